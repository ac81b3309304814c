"""The report of a run of pairs: what devices add to round trips, and how that was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.methods.pairs.show.sizes import lines
from sojourn.report import tables
from sojourn.report.figures import cdfs, over_time
from sojourn.report.numbers import MINUS, Shown, count, nominal
from sojourn.report.pacing import departures
from sojourn.report.paired import control, differences
from sojourn.report.parts import Key, Parts
from sojourn.report.paths import path_words
from sojourn.report.stamps import clock_and_stamps
from sojourn.report.tables import fitted_lines, in_order, shown_of

if TYPE_CHECKING:
    from sojourn.report.run import Run


def words(run: Run) -> list[str]:
    """How it was measured: unit, clock, timestamps, intervals."""
    clock, stamps = clock_and_stamps(run, "rtt")
    lines = [line.format(clock=clock, stamps=stamps) for line in METHOD]
    return [lines[0], *path_words(run), *lines[1:], SIZES[run.size_column]]


SIZES = {
    "icmp_bytes": "A cell's size is the ICMP message's: header and data.",
    "payload_bytes": "A cell's size is the payload's; a line a + b × size counts the whole frame.",
    "frame_bytes": "A cell's size is the whole frame's, its check sequence included.",
}
METHOD = (
    (
        "Each pair of blocks gives one estimate: short blocks of probes with and without the device follow each other, "
        "in random and then mirrored order, so that steady drift cancels. Half the difference of their mean round "
        "trips is the device's latency one way. Pairs are counted, never packets."
    ),
    "All times are of one clock: {clock}.",
    (
        "Departures and arrivals have timestamps of {stamps}. Round trips are from the actual departure, and also "
        "from the intended one where probes were scheduled."
    ),
    (
        "Estimates over pairs are Hodges and Lehmann's with the exact Wilcoxon interval, 95 % unless said otherwise; "
        "the A/A control, the direct link against itself, tells what the bed can resolve: nothing smaller is claimed."
    ),
)


def keys(run: Run) -> list[Key]:
    """What each device adds, what the bed can resolve, and from how many pairs."""
    pooled = run.rows("device_latency", "pooled", reference="direct").filter(pl.col("device") != "a/a")
    per_byte = _lines_per_byte(run)
    by_line = all((row["device"], "direct") in per_byte for row in pooled.iter_rows(named=True))
    keys = [_device_key(run, row, per_byte, by_line=by_line) for row in in_order(pooled)]
    for row in run.rows("resolution").head(1).iter_rows(named=True):
        control = run.rows("device_latency", "pooled", device="a/a").iter_rows(named=True)
        lines = tuple(f"A/A control pooled: {_interval(one)}" for one in control if one["ci_low"] is not None)
        keys.append(Key("The bed can resolve", f"{row['estimate'] / 1e3:.2g}", "µs", lines, "a/a"))
    pairs = run.rows("device_latency", "mean")["n"].to_list()
    if pairs:
        most = max(pairs)
        cells = f"{len(run.cells)} cells" if len(run.cells) > 1 else "one cell"
        keys.append(Key("Pairs", count(sum(pairs)), "", (f"{cells}, up to {most} per cell and device",)))
    return keys


Line = tuple[dict[str, Any], dict[str, Any]]


def _lines_per_byte(run: Run) -> dict[tuple[str, str | None], Line]:
    """The lines whose slope is not zero, by device and reference."""
    lines = reversed(list(fitted_lines(run)))
    return {(one["device"], one["reference"]): (one, slope) for one, slope in lines if _is_not_zero(slope)}


def _device_key(run: Run, row: dict[str, Any], per_byte: dict[tuple[str, str | None], Line], *, by_line: bool) -> Key:
    """A device's latency: the mean over cells, or the constant of a + b × size where every device has such a line.

    What is not the value stands below it.
    """
    line = per_byte.get((row["device"], "direct"))
    over = per_byte.get((row["device"], "wire")) if by_line else None
    wire = over[0] if over else _pooled_over_wire(run, row["device"])
    head = line[0] if line and by_line else row
    shown = shown_of(head)
    said = ["too few pairs for an interval" if head["ci_low"] is None else _interval(head)]
    if line:
        slope = shown_of(line[1])
        sign = MINUS if slope.text.startswith(MINUS) else "+"
        constant = "" if by_line else f"{shown_of(line[0]).text} µs "
        said.append(f"{constant}{sign} {slope.text.removeprefix(MINUS)} ns × frame bytes ({slope.interval})")
        if by_line:
            said.append(f"mean over cells {_brief(shown_of(row))}")
    if wire:
        said.append(f"over wire {_brief(shown_of(wire))}")
    what = f"{row['device']} adds, one way" + (": constant" if by_line and line else "")
    return Key(what, shown.text, shown.unit, tuple(said), row["device"])


def _is_not_zero(row: dict[str, Any]) -> bool:
    return row["ci_low"] is not None and row["ci_high"] is not None and not row["ci_low"] <= 0 <= row["ci_high"]


def _pooled_over_wire(run: Run, device: str) -> dict[str, Any] | None:
    rows = run.rows("device_latency", "pooled", device=device, reference="wire")
    return next(rows.iter_rows(named=True), None)


def _brief(shown: Shown) -> str:
    return f"{shown.text} {shown.unit} ({shown.interval})"


def _interval(row: dict[str, Any]) -> str:
    shown = shown_of(row)
    return f"{nominal(row['level'])} CI {shown.interval} {shown.unit}"


PARTS = Parts(
    tables=(tables.device_latency, tables.rtt, tables.lines, tables.tails, tables.conservation, tables.departures),
    figures=(cdfs, over_time, lines, differences, control, departures),
    keys=keys,
    words=words,
    results=("device_latency",),
)
