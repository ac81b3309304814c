"""The report of "short-flows": completion times by size, their distributions, and how they were measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.charts import Axis, Distribution
from sojourn.report.numbers import NOTHING, Shown, show
from sojourn.report.parts import Key, Parts
from sojourn.report.paths import path_words
from sojourn.report.streams.measures import clock_entry
from sojourn.report.streams.points import figure
from sojourn.report.table import Column, Entry, Table, interval, number, text, whole

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run

MILLION = 1e6
STATISTICS = {"mean": "mean", "p50": "median", "p90": "p90", "p99": "p99"}


def cells_of(run: Run) -> list[dict[tuple[str, str], dict[str, Any]]]:
    """Return the figures of every cell over every device, by quantity and statistic."""
    found: dict[tuple[str, int], dict[tuple[str, str], dict[str, Any]]] = {}
    for row in run.entries:
        found.setdefault((row["device"], row["cell"]), {})[row["quantity"], row["statistic"]] = row
    return list(found.values())


def completion(run: Run) -> Table:
    """Return completion times, a line for each statistic of a cell."""
    columns = (
        Column(("device",), "Path", numeric=False),
        Column(("congestion",), "Congestion control", numeric=False),
        Column(("pipe",), "Pipe", numeric=False),
        Column(("size_bytes",), "Size", "bytes"),
        Column(("statistic",), "Statistic", numeric=False),
        Column(("time_ms",), "Completion time", "ms"),
        Column(("time_low_ms", "time_high_ms"), "95 % CI", "ms"),
        Column(("transfers",), "Transfers"),
        Column(("rate",), "Rate", "Mbit/s"),
    )
    rows = []
    for of in cells_of(run):
        rate = of["transfer_rate", "mean"]
        for statistic, said in STATISTICS.items():
            if (row := of.get(("completion_time", statistic))) is not None:
                shown = _in_ms(row)
                entries: tuple[Entry, ...] = (text(said), number(shown), interval(shown), whole(row["probes"]))
                own = number(show(rate["estimate"], None, None, "bit/s")) if statistic == "mean" else text(NOTHING)
                rows.append((text(row["device"], row["device"]), text(row["congestion"]),
                             text(row["pipe"] or NOTHING), whole(row["payload_bytes"]), *entries, own))  # fmt: skip
    note = (
        "From the write of the first byte on an open connection until the receiving application has read the last one; "
        "the handshake, which takes one more round trip, is not included. Percentiles are of all transfers of a "
        "session (of a round, where the run has one bed), and given where ten transfers lie beyond them."
    )
    return Table("completion", "Completion times", columns, tuple(rows), note, wide=True, grouped=True)


def _in_ms(row: dict[str, Any]) -> Shown:
    value, low, high = (
        None if row[name] is None else row[name] / MILLION for name in ("estimate", "ci_low", "ci_high")
    )
    return show(value, low, high, "ms")


def distributions(run: Run) -> Figure | None:
    """Return the distributions of the completion times, a panel for each cell."""
    found = run.samples("short_curves")
    if found is None or found.is_empty():
        return None
    names = {}
    for of in cells_of(run):
        row = next(iter(of.values()))
        names[row["cell"]] = ", ".join(
            [f"{row['payload_bytes']} bytes", row["congestion"], *([row["pipe"]] if row["pipe"] else [])]
        )
    rows = found.with_columns(
        (pl.col("value") / MILLION).round(4).alias("x"),
        pl.col("cell").replace_strict(names, default="", return_dtype=pl.String),
    )
    said, rarest = "Completion time (ms)", float(rows["exceedance"].min() or 1e-3)  # type: ignore[arg-type]
    caption = "The completion times of all transfers, on a log(1 − p) axis."
    return figure("short_curves", "Completion times", caption, rows, Distribution(Axis(said).x("x"), rarest, said))


def keys(run: Run) -> list[Key]:
    """Return the median of each size, or the mean where there is none."""
    found = []
    for of in cells_of(run)[:4]:
        row = of.get(("completion_time", "p50")) or of["completion_time", "mean"]
        shown = _in_ms(row)
        lines = (*shown.told, STATISTICS[row["statistic"]], row["congestion"])
        found.append(Key(f"{row['payload_bytes']} bytes", shown.text, "ms", lines, str(row["device"])))
    return found


def words(run: Run) -> list[str]:
    """Return how it was measured."""
    plan = run.plan.get("short", {})
    how = (
        f"A trial is {plan.get('transfers', NOTHING)} transfers from host A to host B, each on a connection of its own "
        "that is opened when the one before it has ended; nothing else is on the path. The kernel keeps no metrics of "
        "earlier connections. Packets have one segment each: segmentation offloads are off."
    )
    judged = f"Intervals are Student's over sessions, or over rounds where the run has one bed. {clock_words(run)}"
    return [*path_words(run), how, judged]


def clock_words(run: Run) -> str:
    """Whose clock the times are of; of two, their errors."""
    apart = [row for row in run.rows("completion_time").iter_rows(named=True) if row["clock_bound_ns"]]
    if not apart:
        return "Both applications read one clock (TAI)."
    return (
        "The applications read two clocks (TAI), which clock trials compare: 95 % error (maximum error) "
        f"{clock_entry(apart).text} µs."
    )


PARTS = Parts(tables=(completion,), figures=(distributions,), keys=keys, words=words, results=("completion",))
