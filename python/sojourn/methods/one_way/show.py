"""The report of "one-way": delay over the time between frames, where queues grow, and the least such time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.report.charts import Axis, Lines
from sojourn.report.pacing import departures
from sojourn.report.paired import control, differences
from sojourn.report.parts import Key, Parts
from sojourn.report.streams import delays
from sojourn.report.streams.measures import Ask, Measure, measured
from sojourn.report.streams.points import ESTIMATE, along, factor, figure, rows_over, sample, spans
from sojourn.report.streams.words import words

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run
    from sojourn.report.table import Table

SCHEDULES = {"poisson": "Poisson", "regular": "regular"}
MEANINGS = {"sustained": "stable queue", "saturated": "arrivals in overload", "calculated": "from the link's rate"}


def by_interval(run: Run) -> Table:
    """Return delay, growth and loss over the interval."""
    measures = (
        Measure("one_way_delay", "p50", "Median", "One-way delay"),
        Measure("one_way_delay", "p99", "p99", "One-way delay"),
        Measure("queue_stable", "ratio", "Trials with a stable queue", interval=False),
        Measure("queue_growth", "trend", "Delay gained", interval=False),
        Measure("loss_ratio", "ratio", "Lost", interval=False),
        Measure("achieved_ratio", "mean", delays.ACHIEVED, interval=False),
    )
    note = (
        "A queue is stable where delay does not grow through the trial, loss is no higher than at the longest "
        "interval, and the sender met its schedule. Delay gained: how much the delay from the intended departure grows "
        "in each second of the trial; a growth that is not significant in most trials does not count as a growing "
        "queue."
    )
    return measured(run, Ask("by_interval", "Delay over the time between frames", measures, note, clock=True))


def least_interval(run: Run) -> Table:
    """Return the minimum time between frames: still stable, saturated, and calculated."""
    measures = (
        Measure("min_frame_interval", "sustained", "Shortest with a stable queue", interval=False),
        Measure("min_frame_interval", "at_most", "Shortest that the tester kept", interval=False),
        Measure("min_frame_interval", "next_tried", "Next shorter that was tried", interval=False),
        Measure("min_frame_interval", "saturated", "Between arrivals in overload"),
        Measure("min_frame_interval", "calculated", "From the link's rate", interval=False),
    )
    rows = run.rows("min_frame_interval", "calculated")
    why = {str(one) for one in rows.filter(pl.col("estimate").is_null())["source"]}
    note = (
        "The queue is stable at this inter-departure time, and not at the next shorter one that was tried: the limit "
        f"lies between these two, which are a bracket and not a confidence interval.{_next_tried(run)} In overload, "
        "frames arrive at the maximum rate of sender and path together."
    )
    note += f" Where there is no figure from the link's rate, the reason is: {'; '.join(sorted(why))}." if why else ""
    asked = Ask(
        "min_frame_interval", "Minimum sustainable inter-departure time", measures, note, without=("interval_ns",)
    )
    return measured(run, asked)


def _next_tried(run: Run) -> str:
    """Return the times that the tester did not keep: they give no bound for the path."""
    limits = run.rows("min_frame_interval", "at_most")
    beyond = run.rows("min_frame_interval", "next_tried").join(limits, on=["device", "cell"], how="semi")
    tried = sorted(set(beyond["estimate"].to_list()))
    if not tried:
        return ""
    said = ", ".join(f"{one / 1e3:g} µs" for one in tried)
    return f" Where the tester was the limit, the sender could not keep the next shorter time that was tried, {said}."


def over_interval(run: Run) -> Figure | None:
    """Return the median delay from the intended departure over the interval; it includes the sender's own queue."""
    return _over_interval(run, ("one_way_delay_intended", "p50"), "Median delay from the intended departure")


def actual_over_interval(run: Run) -> Figure | None:
    """Return the median delay from the actual departure over the interval: the path alone."""
    return _over_interval(run, ("one_way_delay", "p50"), "Median delay from the actual departure")


def tail_over_interval(run: Run) -> Figure | None:
    """Return the 99th percentile from the actual departure over the interval."""
    return _over_interval(run, ("one_way_delay", "p99"), "The 99th percentile from the actual departure")


def _over_interval(run: Run, which: tuple[str, str], title: str) -> Figure | None:
    found = sample(run, "delay_by_interval", "interval_ns", "schedule")
    if found.is_empty():
        return None
    mine = found.filter((pl.col("quantity") == which[0]) & (pl.col("statistic") == which[1]))
    rows = factor(mine, "interval_ns", 1e-3).with_columns(
        *spans(ESTIMATE, 1e-3),
        pl.col("schedule").replace(SCHEDULES).alias("series"),
        (~pl.col("stable")).alias("hollow"),
        pl.lit("point").alias("role"),
    )
    rows = rows.filter(pl.col("y") > 0).pipe(along)
    series = tuple(one for one in SCHEDULES.values() if one in set(rows["series"].to_list()))
    chart = Lines(Axis("Mean time between frames (µs)", log=True), Axis("One-way delay (µs)", log=True), series)
    caption = (
        f"Bars are 95 % CIs over {'beds' if run.sessions > 1 else 'trials'}. Points stand at the configured time; the "
        "sender may have needed longer. An arrow above a point: the queue is not stable there, so the delay from "
        "the intended departure grows with the duration of the trial. Dotted vertical line: the shortest time between "
        "frames at which the queue is stable, where a shorter one was tried. There is no point where so many frames "
        "were lost that the figure is infinite."
    )
    drawn = pl.concat([rows, _sustained(run, rows)], how="diagonal_relaxed")
    title += " over the time between frames"
    return figure(f"{'_by_interval_'.join(which)}", title, caption, drawn, chart)


def _sustained(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    found = sample(run, "min_intervals", "interval_ns", "schedule")
    if found.is_empty() or rows.is_empty():
        return pl.DataFrame()
    shorter = found.filter(pl.col("statistic") == "next_tried")
    told = found.filter(pl.col("statistic") == "sustained")
    told = told.join(shorter, on=["cell", "device", "schedule"], how="semi")
    return told.select("cell", "device", (pl.col("estimate") / 1e3).alias("x"), pl.lit("rule").alias("role"))


def least_over_size(run: Run) -> Figure | None:
    """Return the least time between frames over the frame's size."""
    rows = rows_over(run, "min_frame_interval", tuple(MEANINGS), "frame_bytes", without=("interval_ns",))
    rows = rows.with_columns(pl.col("statistic").replace(MEANINGS).alias("series")).drop_nulls("y").pipe(along)
    series = tuple(one for one in MEANINGS.values() if one in set(rows["series"].to_list()))
    chart = Lines(Axis("Frame (bytes)"), Axis("Time between frames (µs)", zero=True), series)
    caption = (
        "The shortest time between frames at which the queue is stable, of those that were tried, the time between "
        "arrivals in overload, and what the link's rate allows where it has one."
    )
    return figure("min_frame_interval", "Minimum sustainable inter-departure time", caption, rows, chart)


def keys(run: Run) -> list[Key]:
    """Return what the device adds, and the minimum sustainable inter-departure time."""
    found = delays.added_keys(run)
    shortest = run.rows("min_frame_interval", "sustained").filter(pl.col("device") != "a/a")
    for device in run.devices:
        smallest = delays.extreme(shortest.filter(pl.col("device") == device), "frame_bytes", least=True)
        if smallest:
            found.append(_sustained_key(run, smallest))
    direct = run.rows("one_way_delay", "p50", device="direct")
    for row in direct.sort("frame_bytes", "interval_ns", descending=[False, True]).head(1).iter_rows(named=True):
        cell = run.cell_of(row)
        found.append(
            delays.key_of(row, "Median delay of the direct link", cell.short if cell else "", delays.clock_line(row))
        )
    return found


def _sustained_key(run: Run, row: dict[str, object]) -> Key:
    beyond = run.rows("min_frame_interval", "next_tried", device=str(row["device"])).filter(cell=row["cell"])
    shorter = None if beyond.is_empty() else float(beyond["estimate"][0])
    what = f"{row['device']}: queue stable down to"
    said = "the shortest that was tried" if shorter is None else f"at {shorter / 1e3:g} µs it grows"
    value = f"{float(str(row['estimate'])) / 1e3:g}"
    return Key(what, value, "µs", (said, f"{row['frame_bytes']} B, {row['schedule']}"), str(row["device"]))


def how(run: Run) -> list[str]:
    """Return what is particular to this method's measurement."""
    return words(
        run,
        "Each stream has one mean time between frames, either constant or exponentially distributed (Poisson). Delays "
        "are from the actual departure; the table of delays also has those from the intended one.",
    )


PARTS = Parts(
    tables=(
        delays.added, least_interval, by_interval, delays.delays, delays.variation, delays.conservation, delays.pacing,
    ),
    figures=(
        over_interval, actual_over_interval, tail_over_interval, least_over_size, delays.cdfs, delays.histograms,
        delays.gaps, delays.over_time, differences, control, departures,
    ),
    keys=keys,
    words=how,
    results=("device_latency", "min_frame_interval"),
)  # fmt: skip
