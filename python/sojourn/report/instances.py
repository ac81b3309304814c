"""The variation between instances of a link or a device: the table of a bed's two links of one kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.report.numbers import NOTHING, Shown, show
from sojourn.report.table import Column, Entry, Table, interval, number, text, whole

if TYPE_CHECKING:
    from sojourn.report.run import Run

COLUMNS = (
    Column(("device",), "Two links of", numeric=False),
    Column(("by",), "By", numeric=False),
    Column(("difference",), "Second less first"),
    Column(("difference_low", "difference_high"), "Interval"),
    Column(("unit",), "Unit", numeric=False),
    Column(("sd",), "SD of one"),
    Column(("beds",), "Beds"),
)
NOTE = (
    "Each bed has two links of a kind, made alike and measured in turn: they differ by what an instance is worth. "
    "Of the direct link it is the A/A control. The standard deviation is that of one instance, without the scatter of "
    "its measurement; each bed has new instances, so it is in the scatter between beds already. Of searches and "
    "transfers, which are too long to be made over both links, two beds make one value: they count pairs of beds."
)


def instances(run: Run) -> Table:
    """One row for each kind of which a bed has two; a single bed gives no standard deviation."""
    spreads = {row["device"]: row for row in run.rows("between_instances", "sd").iter_rows(named=True)}
    apart = {row["device"]: row for row in run.rows("instance_difference", "pooled").iter_rows(named=True)}
    rows = [_entries(device, apart.get(device), spreads.get(device)) for device in {**apart, **spreads}]
    return Table("instances", "Two links of a kind", COLUMNS, tuple(rows), NOTE)


def _entries(device: str, apart: dict[str, Any] | None, spread: dict[str, Any] | None) -> tuple[Entry, ...]:
    found = apart or spread or {}
    difference, sd = _shown(apart), _shown(spread)
    by = (found["source"] or "").partition(", by ")[2] or "round trips, one way"
    return (
        text(device, device),
        text(by),
        Entry(NOTHING) if difference is None else number(difference),
        Entry(NOTHING, (None, None)) if difference is None else interval(difference),
        text((difference or sd or show(None, None, None, "ns")).unit),
        Entry(NOTHING) if sd is None else number(sd),
        whole(found["sessions"] or 1),
    )


def _shown(row: dict[str, Any] | None) -> Shown | None:
    """A row in display units; shares are in percent."""
    unit = "ratio" if row is not None and row["unit"] == "1" else "ns"
    return None if row is None else show(row["estimate"], row["ci_low"], row["ci_high"], unit)
