"""The samples that the figures of streams draw: curves, histograms, times, trials.

The same records always give the same samples. An infinite delay is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.packets import Values, runs_of
from sojourn.analysis.run import A_A, against
from sojourn.analysis.samples import (
    CURVE_POINTS,
    PACING_ERRORS,
    PAIRS,
    Sample,
    curve_of,
    departure_curves,
    shared,
    thinned,
    with_cells,
)
from sojourn.analysis.streams import differences, elapsed_s, series

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.analysis.stream_study import Gathered

BINS = 120
BULK = (0.001, 0.995)
"""A histogram shows this part of the delays in equal bins; a tail on the same axis would hide the bulk."""

ROUNDED_NS = 2.0
"""The largest variation of a difference of two timestamps in whole ns, with equally many ticks between them."""

LEAST_GROUPS = 4
"""The least number of gaps between groups of ticks for estimating the tick's length."""

TRIALS = Sample(
    "A trial's flow at a receiver.",
    {
        **shared("block device cell round visit flow port elapsed_s"),
        "asked_pps": (pl.Float64, "The configured packet rate."),
        "intended_pps": (pl.Float64, "The packet rate of the sender's schedule."),
        "offered_pps": (pl.Float64, "The packet rate that the sender reached."),
        "received_pps": (pl.Float64, "The packet rate at the receiver."),
        "sent": (pl.Int64, "Packets sent."),
        "first": (pl.Int64, "Packets that arrived undamaged, each once."),
        "lost": (pl.Int64, "Packets that were sent and are accounted for nowhere else."),
        "corrupted": (pl.Int64, "Packets that arrived damaged."),
        "local_drops": (pl.Int64, "Packets that the receiver's own socket, ring or queue dropped."),
        "duplicated": (pl.Int64, "Packets that arrived again."),
        "reordered": (pl.Int64, "Packets that a later one overtook (RFC 4737)."),
        "late": (pl.Int64, "Packets that took longer than the limit; null between two clocks."),
        "delay_mean_ns": (pl.Float64, "The mean of their delays."),
        "delay_p50_ns": (pl.Float64, "The median of their delays."),
    },
    with_factors=True,
)
ATTEMPTS = Sample(
    "A measured block of records/. A trial whose sender missed its load was repeated under another number.",
    {
        **shared("block device cell round visit"),
        "trial": (pl.Int64, "The number of the trial."),
        "attempt": (pl.Int64, "Which attempt at it."),
        "kept": (pl.Boolean, "Whether the attempt counts."),
    },
    with_factors=True,
)
DELAY_QUANTILES = Sample(
    "A point of the distribution of the delays; lost packets are above all others.",
    shared("device cell port node measure exceedance delay_ns"),
    with_factors=True,
)
DELAY_HISTOGRAMS = Sample(
    "A bin of the delays: at most 120 equal ones from the 0.1 % to the 99.5 % quantile.",
    {
        **shared("device cell port node measure low_ns high_ns"),
        "share": (pl.Float64, "The share of the packets sent."),
    },
    with_factors=True,
)
DELAY_TIMELINE = Sample(
    "A packet; thinned, the slowest kept.",
    shared("device cell block round visit elapsed_s delay_ns"),
    with_factors=True,
)
INTER_ARRIVAL_QUANTILES = Sample(
    "A point of the distribution of the times between arrivals of one flow.",
    shared("device cell port exceedance gap_ns"),
    with_factors=True,
)
LOSS_RUNS = Sample(
    "Runs of similar length.",
    {
        **shared("device cell port"),
        "run": (pl.String, "loss (packets lost in a row) or gap (packets received in a row)."),
        "low": (pl.Int64, "The shortest length in the class, in packets."),
        "high": (pl.Int64, "The longest length in the class, in packets."),
        "count": (pl.Int64, "How many runs there were."),
    },
    with_factors=True,
)
POINT = shared("device reference cell quantity statistic estimate ci_low ci_high unit port node against")


def point(rows: str) -> Sample:
    """Return the declaration of rows of the results as points (`row_samples`)."""
    return Sample(f"{rows}, as in the results; infinite values are null.", POINT, with_factors=True)


COMMON = {
    "trials": TRIALS,
    "attempts": ATTEMPTS,
    "delay_quantiles": DELAY_QUANTILES,
    "delay_histograms": DELAY_HISTOGRAMS,
    "delay_timeline": DELAY_TIMELINE,
    "inter_arrival_quantiles": INTER_ARRIVAL_QUANTILES,
    "loss_runs": LOSS_RUNS,
    "pairs": PAIRS,
    "pacing_errors": PACING_ERRORS,
}
"""The samples that every method of streams has."""


def common_samples(of: Gathered) -> dict[str, pl.DataFrame]:
    """The samples that every method of streams has."""
    run = of.run
    gaps = [one for one in of.variations if one.measure == "inter_arrival"]
    found = {
        "trials": trial_samples(of),
        "delay_quantiles": quantile_samples([*of.delays, *of.intended]),
        "delay_histograms": histogram_samples(of.delays),
        "delay_timeline": timeline(run, of.packets),
        "inter_arrival_quantiles": INTER_ARRIVAL_QUANTILES.of(quantile_samples(gaps).rename({"delay_ns": "gap_ns"})),
        "loss_runs": LOSS_RUNS.of(runs_of(run, of.flows)),
        "pairs": pair_samples(run, of.summaries),
        "attempts": attempts(run),
    }
    placed = {name: with_cells(run, frame) for name, frame in found.items()}
    # The curve's own column of that name, not the cell's.
    return placed | {"pacing_errors": departure_samples(run, of.errors)}


def trial_samples(of: Gathered) -> pl.DataFrame:
    """Every trial, flow and receiver: what was sent, received and lost, and its delays."""
    each = of.packets.group_by("block", "flow", "port").agg(
        pl.col("delay_ns").mean().alias("delay_mean_ns"), pl.col("delay_ns").median().alias("delay_p50_ns")
    )
    placed = of.flows.with_columns(elapsed_s=elapsed_s(of.run, "started_ns"))
    return TRIALS.of(placed.join(each, on=["block", "flow", "port"], how="left"))


def attempts(run: Run) -> pl.DataFrame:
    """Every measured block of the records: its trial, and whether the attempt counts or was repeated."""
    told = [event for _, event in sorted(run.trial_events.items()) if event.get("purpose") in ("measure", "search")]
    rows = [{name: event.get(name) for name in ATTEMPTS.own} | {"kept": event.get("kept", True)} for event in told]
    return pl.DataFrame(rows, schema=ATTEMPTS.own)


def quantile_samples(several: Iterable[Values]) -> pl.DataFrame:
    """The share of packets above each of some delays; lost packets are above all."""
    curves = (DELAY_QUANTILES.of(_at(_curve(one).rename({"value": "delay_ns"}), one)) for one in several)
    return pl.concat([pl.DataFrame(schema=DELAY_QUANTILES.own), *curves])


def _curve(one: Values) -> pl.DataFrame:
    if one.weights is not None:
        return _weighted_curve(one)
    lost = int(one.lost.sum())
    return curve_of(np.concatenate([one.values, np.full(lost, np.inf)])).with_columns(
        pl.when(pl.col("value").is_finite()).then(pl.col("value")).alias("value")
    )


def _weighted_curve(one: Values) -> pl.DataFrame:
    """A step for each bin; thinned to as many points as other curves have."""
    assert one.weights is not None
    order = np.argsort(one.values)
    total = one.weights.sum() + one.lost.sum()
    above = (total - np.cumsum(one.weights[order]) + one.weights[order] / 2) / total
    kept = np.unique(np.linspace(0, len(order) - 1, min(len(order), CURVE_POINTS)).astype(np.int64))
    return pl.DataFrame({"exceedance": above[kept], "value": one.values[order][kept]})


def _at(frame: pl.DataFrame, one: Values) -> pl.DataFrame:
    told = {"device": one.device, "cell": one.cell, "port": one.port, "node": one.node, "measure": one.measure}
    return frame.with_columns(pl.lit(value).alias(name) for name, value in told.items())


def histogram_samples(several: Iterable[Values]) -> pl.DataFrame:
    """Shares of the packets sent in equal bins over the bulk; packets beyond it are in no bin."""
    found = [pl.DataFrame(schema=DELAY_HISTOGRAMS.own)]
    for one in several:
        low, high = (float(edge) for edge in np.quantile(one.values, BULK))
        edges = whole_bins(one.values, low, high)
        counts, _ = np.histogram(one.values, edges, weights=one.weights)
        bins = pl.DataFrame({"low_ns": edges[:-1], "high_ns": edges[1:], "share": counts / max(1, one.count)})
        found.append(DELAY_HISTOGRAMS.of(_at(bins, one)))
    return pl.concat(found)


def whole_bins(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Edges of equal bins that hold equally many timestamp steps: bins of four and of five would show a comb.

    Edges lie halfway between two steps, so that no value lies on one.
    """
    bulk = values[(values >= low) & (values <= high)]
    step, first = timestamp_step(bulk if len(bulk) else values, low)  # the quantiles of two values lie between them
    width = step * max(1, int(np.ceil((high - low) / (BINS * step))))
    count = int((high - first + step / 2) // width) + 1
    return np.asarray(first - step / 2 + width * np.arange(count + 1), dtype=np.float64)


def timestamp_step(values: NDArray[np.float64], low: float) -> tuple[float, float]:
    """Return the step between two adjacent possible values, and the location of the first.

    A clock of 54 MHz ticks each 18.519 ns, and timestamps are whole ns: values lie in groups of up to three, spaced
    like the ticks.
    """
    each = np.unique(np.round(values, 3))
    apart = np.diff(each)
    step = float(apart.min()) if len(apart) else 1.0
    ends = np.flatnonzero(apart > ROUNDED_NS + 0.5)
    firsts, lasts = each[np.r_[0, ends + 1]], each[np.r_[ends, len(each) - 1]]
    if step > ROUNDED_NS or len(ends) < LEAST_GROUPS or (lasts - firsts).max() > ROUNDED_NS:
        return step, low
    middles = (firsts + lasts) / 2
    from_first = middles - middles[0]
    tick, reach = float(np.diff(middles).min()), 2.0
    while True:  # ever wider spans: each refines the tick
        near = from_first <= reach * tick
        ticks = np.round(from_first[near] / tick)
        if ticks.any():
            tick = float(ticks @ from_first[near] / (ticks @ ticks))
        if near.all():
            break
        reach *= 2
    is_regular = np.abs(from_first - tick * np.round(from_first / tick)).max() <= ROUNDED_NS
    return (tick, float(middles[0])) if is_regular else (step, low)


def timeline(run: Run, packets: pl.DataFrame) -> pl.DataFrame:
    """Every k-th packet, and the slowest of the packets left out between them."""
    known = packets.drop_nulls("delay_ns").with_columns(elapsed_s=elapsed_s(run, "departure_ns"))
    return DELAY_TIMELINE.of(thinned(known, "delay_ns"))


def pair_samples(run: Run, each: pl.DataFrame) -> pl.DataFrame:
    """Device minus reference in every round, one way; the A/A control is device "a/a"."""
    means = series(each, "mean")
    found = [
        (device, reference, cell, at.round, value)
        for device, reference in against(run.devices)
        for cell in run.cells
        for at, value in differences(means.get((device, cell)), means.get((reference, cell))).items()
    ]
    return pl.DataFrame(found, schema=PAIRS.own, orient="row")


def departure_samples(run: Run, errors: pl.DataFrame) -> pl.DataFrame:
    """Pacing errors by path, of the cells with a schedule."""
    paced = [cell for cell, factors in run.cells.items() if factors.schedule in ("regular", "poisson")]
    own = errors.filter(pl.col("cell").is_in(paced))
    paths = [one for one in run.devices if one != A_A]
    return departure_curves((path, own.filter(pl.col("device") == path)["error_ns"].to_numpy()) for path in paths)


def row_samples(run: Run, rows: Iterable[Row]) -> pl.DataFrame:
    """Rows as points with their intervals, for figures over factors; infinite values are null."""
    points = [{name: row.tidy()[name] for name in POINT} for row in rows]
    return with_cells(run, pl.DataFrame(points, schema={name: kind for name, (kind, _) in POINT.items()}))
