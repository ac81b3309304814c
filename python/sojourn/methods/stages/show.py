"""The report of "stages": the breakdown of a frame's latency, and what a device adds to each stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.report.charts import Intervals, Waterfall
from sojourn.report.numbers import percent, show
from sojourn.report.pacing import departures
from sojourn.report.parts import Key, Parts
from sojourn.report.streams import delays
from sojourn.report.streams.measures import clock_entry
from sojourn.report.streams.points import figure, in_legend_order, sample, several, spans
from sojourn.report.streams.words import estimates, words
from sojourn.report.table import Column, Table, interval, number, text, whole

if TYPE_CHECKING:
    from typing import Any

    from sojourn.report.figure import Figure
    from sojourn.report.run import Run
    from sojourn.report.table import Entry

TOTAL = "total"


def breakdown_table(run: Run) -> Table:
    """Return every stage of every device and cell, and the total."""
    columns = (
        Column(("cell",), "Cell", numeric=False),
        Column(("device",), "Device", numeric=False),
        Column(("reference",), "over", numeric=False),
        Column(("stage",), "Stage", numeric=False),
        Column(("begins", "ends"), "From – to", numeric=False),
        Column(("mean_us",), "Mean over trials", "µs"),
        Column(("ci_low_us", "ci_high_us"), "95 % CI", "µs"),
        *(Column((f"{name}_us",), title, "µs") for name, title in (("p50", "Median"), ("p90", "p90"), ("p99", "p99"))),
        Column(("share_percent",), "Of the total", "%"),
        Column(("trials",), "Trials"),
    )
    found = in_legend_order(sample(run, "latency_breakdown"))
    rows = tuple(_stage_entries(row) for row in found.iter_rows(named=True))
    strong = frozenset(i for i, stage in enumerate(found["stage"].to_list() if found.height else ()) if stage == TOTAL)
    note = (
        "Only frames that have all timestamps of their cell, so that the stages of each frame sum to its total to the "
        f"nanosecond. Means over trials are {estimates(run)}, which do not always sum to the total: the sum holds for "
        "each frame and for plain averages. A median is not the sum of medians. Percentiles are taken in each trial, "
        f"and the table has their medians over trials; the estimates of the key figures are {estimates(run)}. With a "
        "reference: the device minus that path, paired within rounds, which is not always the difference of both "
        "means. Where an answer has no timestamps on its way back, the breakdown ends at the receive call."
    )
    title = "Latency stage by stage"
    return Table("latency_breakdown", title, columns, rows, note + _clock_note(run), strong, wide=True, grouped=True)


def _stage_entries(row: dict[str, Any]) -> tuple[Entry, ...]:
    shown = show(row["mean_ns"], row["ci_low_ns"], row["ci_high_ns"], "ns")
    over = row["reference"]
    rest = (show(row[f"{name}_ns"], None, None, "ns") for name in ("p50", "p90", "p99"))
    return (
        text(row["cell"]),
        text(row["device"], row["device"]),
        text(over or "whole path"),
        text(row["stage"].replace("+", " + ").replace("_", " ")),
        text(f"{row['begins']} – {row['ends']}"),
        number(shown),
        interval(shown),
        *(number(one) for one in rest),
        number(show(row["share"], None, None, "ratio")),
        whole(row["trials"]),
    )


def _clock_note(run: Run) -> str:
    """Return the clock error of the stages between two hosts."""
    crossing = run.rows("stage_total").drop_nulls("clock_bound_ns")
    words_ = clock_entry(crossing.iter_rows(named=True)).text
    return (
        " All timestamps are of one clock."
        if words_ == "one clock"
        else f" Stages between two clocks: error {words_} µs."
    )


def missing(run: Run) -> Table:
    """Return the missing timestamps, and the reasons."""
    columns = (
        Column(("device",), "Device", numeric=False),
        Column(("cell",), "Cell", numeric=False),
        Column(("stamp",), "Stamp", numeric=False),
        Column(("why",), "Why there is none", numeric=False),
    )
    found = run.samples("missing_timestamps")
    names = {cell.number: cell.short for cell in run.cells}
    rows = [] if found is None else [
        (text(row["device"], row["device"]), text(names.get(row["cell"], "")), text(row["stamp"]), text(row["why"]))
        for row in found.sort("device", "cell").iter_rows(named=True)
    ]  # fmt: skip
    return Table("missing_timestamps", "Timestamps that are missing", columns, tuple(rows), grouped=True)


def breakdown(run: Run) -> Figure | None:
    """Return the latency breakdown: every stage begins where the previous one ended."""
    found = sample(run, "latency_breakdown")
    if found.is_empty():
        return None
    whole_path = found.filter(pl.col("reference").is_null()).sort("position", maintain_order=True)
    place = ["cell", "device"]
    stages = whole_path.with_columns(
        name=_named(),
        end=pl.when(pl.col("stage") == TOTAL).then("mean_ns").otherwise(pl.col("mean_ns").cum_sum().over(place)),
    )
    rows = stages.with_columns(
        (pl.col("end") / 1e3).round(4).alias("high"),
        ((pl.col("end") - pl.col("mean_ns")) / 1e3).round(4).alias("low"),
        (pl.col("mean_ns") / 1e3).round(4).alias("x"),
    )
    caption = (
        "Means, from top to bottom in the order of the path: each bar begins where the one above it ends; the last is "
        "the total, estimated separately. A stage whose timestamp is missing is merged with the next (“send + qdisc”) "
        "and has no bar of its own."
    )
    chart = Waterfall("Time since the intended departure (µs)", _in_order(stages))
    return figure("latency_breakdown", "Latency breakdown", caption, rows, chart, columns=1)


def differences(run: Run) -> Figure | None:
    """Return what each device adds to each stage."""
    found = sample(run, "latency_breakdown")
    if found.is_empty():
        return None
    wire = "wire" in found["reference"].to_list()
    which = (pl.col("reference") == "wire") | (pl.col("device") == "wire") if wire else pl.lit(value=True)
    added = found.filter(pl.col("reference").is_not_null() & which)
    rows = added.sort("position", maintain_order=True).with_columns(
        _named().alias("name"), *spans(("mean_ns", "ci_low_ns", "ci_high_ns"), 1e-3, "x"),
    )  # fmt: skip
    caption = (
        f"The device minus the {'wire, and the wire minus the direct link' if wire else 'direct link'}, paired within "
        "rounds, with intervals over rounds where there are enough of them."
    )
    chart = Intervals("Added to the stage (µs)", _in_order(rows))
    return figure("stage_differences", "What the device adds, stage by stage", caption, rows, chart)


def _named() -> pl.Expr:
    return pl.col("stage").str.replace_all("+", " + ", literal=True).str.replace_all("_", " ", literal=True)


def _in_order(rows: pl.DataFrame) -> tuple[str, ...]:
    """Return the stages in the order of the path, the total last; merged ones are sorted by their first part."""
    order = ("pacing", "send", "qdisc", "path", "receive", "answer", "answer receive", TOTAL)
    names = several(rows, "name")
    return tuple(sorted(names, key=lambda name: (order.index(name.split(" + ")[0]), name)))


def keys(run: Run) -> list[Key]:
    """Return the total of each device, and its largest stage."""
    found = []
    for device in [one for one in run.devices if one != "a/a"]:
        totals = run.rows("stage_total", "p50", device=device, reference=None).sort(
            "frame_bytes", "interval_ns", descending=[False, True]
        )
        for row in totals.head(1).iter_rows(named=True):
            cell = run.cell_of(row)
            label = cell.short if cell else ""
            found.append(
                delays.key_of(
                    row,
                    f"{device}: median, intended departure to receive call",
                    label,
                    *_largest(run, row),
                    delays.clock_line(row),
                )
            )
    return found


def _largest(run: Run, total: dict[str, Any]) -> tuple[str, ...]:
    shares = run.results.filter(
        pl.col("quantity").str.starts_with("stage_")
        & (pl.col("quantity") != "stage_total")
        & (pl.col("statistic") == "share")
        & (pl.col("cell") == total["cell"])
        & (pl.col("device") == total["device"])
    )
    most = delays.extreme(shares, "estimate")
    if most is None:
        return ()
    stage = most["quantity"].removeprefix("stage_").replace("_", " ")
    return (f"{percent(round(most['estimate'], 2))} of the mean is the stage “{stage}”",)


def how(run: Run) -> list[str]:
    """Return what is particular to this method's measurement."""
    return words(
        run,
        "A frame's latency is split at every timestamp that is available on its way: the intended departure, the call "
        "to send, the queue, the driver, the arrival, the receive call, and for answers the same on the way back. A "
        "stage lasts from one timestamp to the next, so for each frame the stages sum to the whole latency. The sender "
        "calls earlier by the duration of its call, so the stage “pacing” is negative.",
    )


PARTS = Parts(
    tables=(breakdown_table, missing, delays.added, delays.delays, delays.conservation, delays.pacing),
    figures=(breakdown, differences, delays.cdfs, delays.histograms, delays.over_time, departures),
    keys=keys,
    words=how,
    results=("latency_breakdown",),
)
