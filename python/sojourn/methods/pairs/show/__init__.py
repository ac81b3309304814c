"""The report of a run of pairs: what devices add to round trips, and how that was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.methods.pairs.show.sizes import lines
from sojourn.report import tables
from sojourn.report.figures import cdfs, over_time
from sojourn.report.numbers import Shown, count, nominal
from sojourn.report.pacing import departures
from sojourn.report.paired import control, differences
from sojourn.report.parts import Key, Parts
from sojourn.report.stamps import clock_and_stamps
from sojourn.report.tables import fitted_lines, in_order, shown_of

if TYPE_CHECKING:
    from sojourn.report.run import Run


def words(run: Run) -> list[str]:
    """How it was measured: unit, clock, timestamps, intervals."""
    clock, stamps = clock_and_stamps(run, "rtt")
    return [line.format(clock=clock, stamps=stamps) for line in METHOD]


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
    keys = [_device_key(run, row) for row in in_order(pooled)]
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


def _device_key(run: Run, row: dict[str, Any]) -> Key:
    """A device's latency as the verdict's sentence has it: a + b × size where b is not zero, else pooled."""
    lines = {
        one["reference"]: (one, slope)
        for one, slope in reversed(list(fitted_lines(run)))
        if one["device"] == row["device"] and _is_not_zero(slope)
    }
    head, slope = lines.get("direct", (row, None))
    shown = shown_of(head)
    said = ["too few pairs for an interval" if head["ci_low"] is None else _interval(head)]
    if slope:
        per_byte = _brief(shown_of(slope)).replace("ns/byte", "ns")
        said += [f"per byte {per_byte}", f"mean over cells {_brief(shown_of(row))}"]
    wire = lines.get("wire", (None, None))[0] if slope else _pooled_over_wire(run, row["device"])
    if wire:
        said.append(f"over wire {_brief(shown_of(wire))}")
    return Key(f"{row['device']} adds, one way", shown.text, shown.unit, tuple(said), row["device"])


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
