"""The figures of an emulator: delay errors over delay and rate, distributions, and the pattern of losses.

Points are measured, lines are configured or follow from the configuration. It draws samples and computes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.report.charts import Axis, Distribution, Events, Lines
from sojourn.report.palette import INSIDE, OUTSIDE
from sojourn.report.streams.delays import thinned
from sojourn.report.streams.points import NO_INTERVAL, along, figure, sample, several

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run

SOURCES = {"log": INSIDE, "streams": OUTSIDE}
CURVE_POINTS = 80
SMALLEST = 0.95
"""Errors that a larger share of packets exceeds are left out: they would fill most of the logarithmic axis."""

STATISTICS = {"p50": "median", "p99": "99th percentile"}


def errors(run: Run) -> Figure | None:
    """Return the errors of departures and delays, on a log(1 - p) axis."""
    found = sample(run, "emulation_errors")
    if found.is_empty():
        return None
    largest = found.filter(pl.col("exceedance") < SMALLEST)
    drawn = _by_path(largest if largest.height else found).with_columns(
        (pl.col("error_ns") / 1e3).clip(lower_bound=0.001).round(3).alias("x"),
        pl.col("exceedance").round_sig_figs(4),
        pl.col("of").replace(SOURCES).alias("device"),
    )
    drawn = thinned(drawn, ("cell", "device"), CURVE_POINTS)
    caption = (
        "Absolute errors. Emulation error, in the emulator's log: actual minus intended departure of each packet. "
        "From outside: the stream's one-way delay, minus the configured delay of each packet, minus the direct path's "
        "median; it includes the tester's own jitter. The axis is logarithmic in 1 − p, so that each step up is ten "
        "times rarer."
    )
    title = "Absolute error (µs)"
    chart = Distribution(Axis(title, log=True).x("x"), float(drawn["exceedance"].min() or 1e-3), title)  # type: ignore[arg-type]
    return figure("emulation_error_cdf", "Delay error", caption, drawn, chart)


def _by_path(rows: pl.DataFrame) -> pl.DataFrame:
    """Prefix the panel's name with the path, where there are several."""
    if rows["device"].n_unique() < 2:
        return rows
    return rows.with_columns(cell=pl.format("{}: {}", "device", "cell"))


def over_delay(run: Run) -> Figure | None:
    """Return the error over the configured delay."""
    rows = _error_rows(run, "delay_ns", 1e-6, "pipe")
    if rows.is_empty() or rows.filter(pl.col("x") > 0)["x"].n_unique() < 2:
        return None
    caption = (
        "From outside: one-way delay minus the configured delay and the direct path's median, with its interval. An "
        "emulator that acts only at clock ticks sends up to one tick too early at every delay; dummynet in 2003 was a "
        "quarter of a millisecond too early. A percentile is shown only where at least ten packets lie beyond it."
    )
    shown = tuple(one for one in STATISTICS.values() if one in set(rows["series"].to_list()))
    chart = Lines(Axis("Configured delay (ms)", log=True), Axis("Error (µs)", zero=True), shown)
    return figure("error_over_delay", "Error over configured delay", caption, rows, chart)


def over_rate(run: Run) -> Figure | None:
    """Return the median error over the time between packets, one line for each pipe."""
    rows = _error_rows(run, "interval_ns", 1e-6, "pipe", "interval_ns", "schedule")
    rows = rows.filter(pl.col("series") == STATISTICS["p50"]) if rows.height else rows
    if rows.is_empty() or rows["x"].n_unique() < 2:
        return None
    rows = rows.with_columns(series=pl.col("pipe"))
    names = several(rows, "series")
    caption = (
        "Median error from outside, one line for each pipe. If the delay does not depend on the packet rate, the lines "
        "are horizontal; the hypothesis allows a difference as large as the limit of the median delay. Where no delay "
        "is configured, the error is the time that the emulator holds a packet."
    )
    chart = Lines(Axis("Mean time between packets (ms)", log=True), Axis("Median error (µs)", zero=True), names)
    return figure("error_over_rate", "Error over the time between packets", caption, rows, chart, columns=1)


def _error_rows(run: Run, x: str, factor: float, *without: str) -> pl.DataFrame:
    """Return rows of the error from outside over a column of the pipe or a factor; series is the statistic."""
    pipes = run.samples("pipes")
    found = run.results.filter(
        (pl.col("quantity") == "emulation_error_outside") & pl.col("statistic").is_in(list(STATISTICS))
    )
    if pipes is None or found.is_empty():
        return pl.DataFrame()
    configured = pipes.select("device", pl.col("cell").cast(pl.Int64), "delay_ns")
    joined = found.join(configured, on=["device", "cell"], how="inner").with_columns(
        cell=pl.col("cell").replace_strict(run.labels(*without), default=None, return_dtype=pl.String),
        x=pl.col(x).cast(pl.Float64) * factor,
        series=pl.col("statistic").replace(STATISTICS),
        role=pl.lit("point"),
        **{to: pl.col(key) / 1e3 for to, key in (("y", "estimate"), ("low", "ci_low"), ("high", "ci_high"))},
    )
    return joined.pipe(along)


def distribution(run: Run) -> Figure | None:
    """Return measured delays and the configured distribution."""
    found = sample(run, "delay_distribution")
    if found.is_empty():
        return None
    x = (pl.col("delay_ns") / 1e6).alias("x")
    panel = pl.when("measured").then("cell").otherwise(pl.format("{}, as drawn", "cell")).alias("cell")
    base = found.with_columns(x, panel, *NO_INTERVAL)
    points = base.with_columns(y=pl.col("found") * 100, role=pl.lit("point"))
    law = base.with_columns(y=pl.col("expected") * 100, role=pl.lit("fit"))
    drawn = pl.concat([thinned(points, ("cell", "device"), 40), law])
    caption = (
        "Points: the share of packets with at most this delay; the direct path's median is subtracted. Line: the "
        "configured distribution. Where the emulator keeps the order of packets under jitter, a packet can leave at "
        "the time drawn for another: there the points are the drawn delays, from the emulator's log."
    )
    chart = Lines(Axis("Delay (ms)"), Axis("Share of packets below (%)", zero=True))
    return figure("delay_distribution", "Measured delays and the configured distribution", caption, drawn, chart)


def losses_over_time(run: Run) -> Figure | None:
    """Return the lost frames, one row for each trial."""
    found = sample(run, "losses")
    if found.is_empty():
        return None
    rows = found.with_columns(x=pl.col("number"), name=pl.format("round {}", pl.col("round") + 1))
    rows = rows.sort("rank", "round", "number", maintain_order=True)
    caption = (
        "Each mark is a lost frame, each row a trial. Random losses also seem to form clusters: the tests in the table "
        "decide whether losses are random."
    )
    chart = Events("Number of the frame in its trial", several(rows, "name"))
    return figure("losses_over_time", "Losses over time", caption, rows, chart)


def loss_shares(run: Run) -> Figure | None:
    """Return measured minus configured loss, over the configured one."""
    pipes = run.samples("pipes")
    found = run.rows("emulated_loss", "ratio")
    if pipes is None or found.is_empty():
        return None
    configured = pipes.select("device", pl.col("cell").cast(pl.Int64), "configured_loss").filter(
        pl.col("configured_loss") > 0
    )
    share = pl.col("configured_loss") * 100
    rows = found.join(configured, on=["device", "cell"], how="inner").with_columns(
        x=share,
        role=pl.lit("point"),
        **{to: pl.col(key) * 100 - share for to, key in (("y", "estimate"), ("low", "ci_low"), ("high", "ci_high"))},
    )
    if rows["x"].n_unique() < 2:
        return None
    labels = run.labels("pipe")
    rows = rows.with_columns(cell=pl.col("cell").replace_strict(labels, default=None, return_dtype=pl.String)).pipe(
        along
    )
    caption = (
        "Measured minus configured loss ratio, with its 95 % CI (Clopper and Pearson's; for losses in bursts, of the "
        "equivalent number of independent losses). One interval in twenty excludes zero by chance."
    )
    chart = Lines(
        Axis("Configured loss (%)", zero=True), Axis("Measured minus configured (percentage points)"), joined=False
    )
    return figure("loss_shares", "Measured minus configured loss", caption, rows, chart)


def loss_runs(run: Run) -> Figure | None:
    """Return the lengths of bursts and gaps with their geometric distribution."""
    found = sample(run, "loss_run_lengths")
    if found.is_empty():
        return None
    named = found.with_columns(
        x=pl.col("length"), cell=pl.format("{}, {}", "cell", pl.col("run").replace({"loss": "bursts", "gap": "gaps"}))
    ).with_columns(*NO_INTERVAL)
    points = named.filter(pl.col("found") > 0).with_columns(y=pl.col("found"), role=pl.lit("point"))
    law = named.filter(pl.col("expected") >= 0.1).with_columns(y=pl.col("expected"), role=pl.lit("fit"))
    drawn = pl.concat([points, law])
    caption = (
        "How often each number of packets was lost in a row (bursts), or arrived in a row between two losses (gaps). "
        "The line is the geometric distribution that follows from the configuration."
    )
    chart = Lines(Axis("Packets in a row", whole=True), Axis("How often", log=True))
    return figure("loss_run_lengths", "Lengths of loss bursts and gaps", caption, drawn, chart)


def correlations(run: Run) -> Figure | None:
    """Return the correlation over lags with the configured one."""
    found = sample(run, "autocorrelations")
    if found.is_empty():
        return None
    kinds = {"draws": "drawn delays", "losses": "losses"}
    named = found.with_columns(cell=pl.format("{}, {}", "cell", pl.col("of").replace(kinds)), x=pl.col("lag"))
    points = named.with_columns(y=pl.col("found"), role=pl.lit("point"))
    law = named.with_columns(*NO_INTERVAL).with_columns(y=pl.col("expected"), role=pl.lit("fit"))
    drawn = pl.concat([points, law], how="diagonal_relaxed")
    caption = (
        "The correlation between packets at each distance in the sequence, with its interval: of the normal scores of "
        "the drawn delays, and of losses. The line is the configured correlation: 0 where packets are independent, 2 "
        "to the power of −Δt / half-life where jitter is correlated in time."
    )
    chart = Lines(Axis("Lag (packets)", log=True), Axis("Correlation"))
    return figure("autocorrelation", "Correlation between packets", caption, drawn, chart)
