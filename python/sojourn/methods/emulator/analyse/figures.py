"""The results of an emulator (rows of results.json), and the samples that its page draws.

Rows, one for each path and cell:
- emulation_error (actual minus intended departure, in the emulator's log); emulation_error_outside (one-way delay minus
  the configured delay and the direct path's median); min mean p50 p99 p99.9 max sd [ns]
- path_delay (one-way delay minus the direct path's median and minus the logged time in the emulator); p50 [ns]
- emulation_error_compensated (emulation_error_outside minus the path_delay of the other half of the trials); as above
  [ns]
- emulated_delay (one-way delay minus the direct path's median); min mean p50 p99 max sd [ns]
- emulated_delay_error (mean delay minus the direct path's mean and the configured mean); mean [ns]
- emulated_loss (share of the stream's frames that did not arrive); ratio [1], with Clopper and Pearson's interval, or
  that of as many independent packets as the losses of a chain are worth; over sessions Korn and Graubard's

Of a run of several sessions the direct path's median is that of the same session, and intervals are over sessions;
beside emulated_delay_error stand within_bed, next_run and between_beds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.rows import Row
from sojourn.analysis.samples import Sample, curve_of, shared, with_cells
from sojourn.analysis.sessions import beside
from sojourn.analysis.stream_samples import COMMON
from sojourn.analysis.streams import elapsed_s, share_of
from sojourn.methods.emulator.analyse import delay, loss, path
from sojourn.methods.emulator.analyse.seen import parts_of, sessions_in
from sojourn.statistics.interval import Interval
from sojourn.statistics.proportion import korn_graubard, worth_pearson
from sojourn.statistics.quantile import allowed, mean_by_rounds, quantile_by_rounds, sd_by_rounds
from sojourn.statistics.randomness import autocorrelation, run_lengths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sojourn.analysis.run import Run
    from sojourn.methods.emulator.analyse.seen import Seen

QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
LAGS = (1, 2, 3, 5, 8, 12, 20, 30, 50)
MOST_LOSSES = 6000
MOST_LENGTH = 60
CURVE = 160


def rows_of(run: Run, seen: Seen) -> list[Row]:
    """Return the results of one path and cell."""
    rows = []
    if seen.has_log:
        rows += _spread(run, seen, "emulation_error", seen.inside, "error_ns")
    if seen.floor_p50_ns is not None:
        rows += _spread(run, seen, "emulation_error_outside", seen.outside, "error_ns")
        rows += _spread(run, seen, "emulated_delay", seen.over_floor(seen.packets), "over_ns")
        rows += _shift(run, seen)
        rows += _path(run, seen)
    for row in rows:
        is_logged = row.quantity == "emulation_error"
        row.source = "the emulator's packet log" if is_logged else "the stream's timestamps"
        if row.unit == "ns" and not is_logged:
            row.between_clocks(*seen.clock_errors)
    return [*rows, *_lost(run, seen)]


def _path(run: Run, seen: Seen) -> list[Row]:
    """Return the path's delay outside the emulator, and the errors with it compensated."""
    found = path.crossed(seen)
    if not found.height:
        return []
    own = _row(run, seen, ("path_delay", "p50", "ns"), path.delay_of(found), found)
    return [own, *_spread(run, seen, "emulation_error_compensated", found, "error_ns")]


def _spread(run: Run, seen: Seen, quantity: str, packets: pl.DataFrame, column: str) -> list[Row]:
    if not packets.height:
        return []
    values, parts = packets[column].to_numpy(), parts_of(packets)
    n = len(np.unique(parts))
    found = {"min": Interval(float(values.min()), None, None, 0.95, n), "mean": mean_by_rounds(values, parts)}
    found |= {name: quantile_by_rounds(values, parts, p) for name, p in QUANTILES.items() if allowed(p, len(values))}
    found |= {"max": Interval(float(values.max()), None, None, 0.95, n), "sd": sd_by_rounds(values, parts)}
    return [_row(run, seen, (quantity, name, "ns"), value, packets) for name, value in found.items()]


def _row(run: Run, seen: Seen, name: tuple[str, str, str], value: Interval, packets: pl.DataFrame) -> Row:
    """Return a row; `name`: quantity, statistic, unit."""
    quantity, statistic, unit = name
    row = Row(seen.device, quantity, statistic, value, unit, None, run.cells[seen.cell], seen.cell, packets.height)
    row.sessions = sessions_in(packets)
    row.clock_bound_ns = row.clock_error95_ns = 0.0 if unit == "ns" else None
    return row


def _shift(run: Run, seen: Seen) -> list[Row]:
    """Return the error of the mean delay, for pipes whose mean is known."""
    if seen.pipe.rate_bps or seen.pipe.link.get("trace") or not math.isfinite(seen.pipe.mean_delay_ns):
        return []
    over = delay.mean_over_floor(seen, 0.05)
    quantity, mean = "emulated_delay_error", seen.pipe.mean_delay_ns
    rows = [_row(run, seen, (quantity, "mean", "ns"), _less(over, mean), seen.packets)]
    figure = delay.figure_over_floor(seen, 0.05)
    if figure is not None:
        rows[0].sessions = figure.sessions
    for _, statistic, value, unit in [] if figure is None else beside(quantity, figure, "ns"):
        about = value if statistic == "between_beds" else _less(value, mean)
        rows.append(_row(run, seen, (quantity, statistic, unit), about, seen.packets))
        rows[-1].sessions = None if figure is None else figure.sessions
    return rows


def _less(value: Interval, by: float) -> Interval:
    low, high = (None if end is None else end - by for end in (value.low, value.high))
    return Interval(value.estimate - by, low, high, value.level, value.n)


def _lost(run: Run, seen: Seen) -> list[Row]:
    rows = seen.arrived
    n, lost = sum(map(len, rows)), int(sum(row.sum() for row in rows))
    if not n:
        return []
    chain = loss.whole_chain(seen)
    if sessions_in(seen.trials):
        trials = seen.trials.filter(pl.col("sent") > 0)
        counts = trials.select("lost", "sent").to_numpy().astype(np.float64)
        value = share_of(trials, np.minimum(counts[:, 0], counts[:, 1]), counts[:, 1])
    elif chain is not None:
        value = worth_pearson(lost, n, min(float(n), n / chain.inflation))
    else:
        counts = np.array([(row.sum(), len(row)) for row in rows], dtype=np.float64)
        value = korn_graubard(counts[:, 0], counts[:, 1])
    row = _row(run, seen, ("emulated_loss", "ratio", "1"), value, seen.trials)
    row.probes = n
    row.source = "the stream's sequence numbers"
    return [row]


def samples(run: Run, several: list[Seen], checks: list[dict[str, Any]]) -> dict[str, pl.DataFrame]:
    """Return the samples of the page."""
    found = {
        "pipes": _concat([_pipe(one) for one in several], PIPES),
        "emulation_errors": _concat([frame for one in several for frame in _errors(one)], ERRORS),
        "losses": _concat([_losses(run, one) for one in several], LOSSES),
        "loss_run_lengths": _concat([frame for one in several for frame in _runs(one)], RUNS),
        "autocorrelations": _concat([_correlations(one) for one in several], CORRELATIONS),
        "delay_distribution": _concat([_distribution(one) for one in several], DISTRIBUTION),
    }
    placed = {name: with_cells(run, frame) for name, frame in found.items()}
    return placed | {"checks": pl.DataFrame(checks, schema=CHECKS.own)}


PIPES = Sample(
    "The configuration of a path in a cell.",
    {
        **shared("device cell"),
        "delay_ns": (pl.Float64, "The constant delay."),
        "mean_delay_ns": (pl.Float64, "The mean delay, with its variation."),
        "jitter": (pl.String, "The distribution of the variation; null without one."),
        "sd_ns": (pl.Float64, "Its standard deviation."),
        "half_life_ns": (pl.Float64, "The time in which the correlation of two delays halves."),
        "configured_loss": (pl.Float64, "The share of packets that it loses; null: not one share."),
        "rate_bps": (pl.Float64, "The rate of the link; null without one."),
    },
    with_factors=True,
)
ERRORS = Sample(
    "A point of the distribution of the errors of emulation.",
    {
        **shared("device cell"),
        "of": (pl.String, "log (departures in the emulator's log), streams (delays from outside)."),
        **shared("exceedance error_ns"),
    },
    with_factors=True,
)
LOSSES = Sample(
    "A lost frame; thinned.",
    {
        **shared("device cell block round elapsed_s"),
        "number": (pl.Int64, "The number of the frame in its trial and flow, from 1."),
        "asked": (pl.Int64, "Frames of that trial and flow."),
    },
    with_factors=True,
)
RUNS = Sample(
    "Runs of a length, where losses tell the state of the configured chain.",
    {
        **shared("device cell"),
        "run": (pl.String, "loss (packets lost in a row) or gap (packets received in a row)."),
        "length": (pl.Int64, "The length, in packets."),
        "found": (pl.Float64, "How many runs there were."),
        "expected": (pl.Float64, "How many are expected."),
    },
    with_factors=True,
)
CORRELATIONS = Sample(
    "The autocorrelation at a lag.",
    {
        **shared("device cell"),
        "of": (pl.String, "draws (normal scores of the drawn delays) or losses."),
        "lag": (pl.Int64, "The lag, in packets."),
        "lag_ns": (pl.Float64, "The mean time between such packets."),
        "found": (pl.Float64, "The correlation."),
        "low": (pl.Float64, "The lower end of its interval."),
        "high": (pl.Float64, "The upper end of its interval."),
        "expected": (pl.Float64, "The correlation that the configuration gives."),
    },
    with_factors=True,
)
DISTRIBUTION = Sample(
    "A point of the distribution function of the delays.",
    {
        **shared("device cell"),
        "measured": (pl.Boolean, "Whether delays are measured; else drawn ones, since packets overtake each other."),
        "delay_ns": (pl.Float64, "The delay; a measured one less the median of the direct path."),
        "found": (pl.Float64, "The share of delays below."),
        "expected": (pl.Float64, "The share below that the configuration gives."),
    },
    with_factors=True,
)
CHECKS = Sample(
    "A check, as in verdict.json.",
    {
        **shared("device cell pipe"),
        "check": (pl.String, "The check."),
        "of": (pl.String, "Its source: streams, log or replay."),
        "what": (pl.String, "What is compared, in words; null: its name says it."),
        "configured": (pl.Float64, "The configured value, in `unit`."),
        "measured": (pl.Float64, "The measured value."),
        **shared("ci_low ci_high level unit"),
        "limit": (pl.Float64, "The largest difference that passes; null without one."),
        "p": (pl.Float64, "The p of its test; null without one."),
        "n": (pl.Int64, "How many packets or values it is over."),
        "verdict": (pl.String, "pass, fail or inconclusive."),
    },
)
SAMPLES = COMMON | {
    "pipes": PIPES,
    "emulation_errors": ERRORS,
    "losses": LOSSES,
    "loss_run_lengths": RUNS,
    "autocorrelations": CORRELATIONS,
    "delay_distribution": DISTRIBUTION,
    "checks": CHECKS,
}


def _concat(frames: list[pl.DataFrame], sample: Sample) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(schema=sample.own), *(sample.of(frame) for frame in frames if frame.height)])


def _at(seen: Seen) -> list[pl.Expr]:
    return [pl.lit(seen.device).alias("device"), pl.lit(seen.cell, dtype=pl.Int32).alias("cell")]


def _pipe(seen: Seen) -> pl.DataFrame:
    pipe, jitter = seen.pipe, seen.pipe.jitter
    chain = loss.whole_chain(seen)
    pipe_row = {
        "device": seen.device, "cell": seen.cell, "delay_ns": float(pipe.constant_ns),
        "mean_delay_ns": pipe.mean_delay_ns, "jitter": jitter.name if jitter else None,
        "sd_ns": jitter.sd if jitter else None, "half_life_ns": pipe.half_life_ns,
        "configured_loss": chain.loss if chain else 0.0 if not _loses(seen) else None, "rate_bps": pipe.rate_bps,
    }  # fmt: skip
    return pl.DataFrame([pipe_row], schema=PIPES.own)


def _loses(seen: Seen) -> bool:
    return any(seen.pipe.losses(stage) for stage in loss.STAGES)


def _errors(seen: Seen) -> Iterator[pl.DataFrame]:
    of = [("log", seen.inside)] if seen.has_log else []
    if seen.floor_p50_ns is not None:
        of.append(("streams", seen.outside))
    for name, rows in of:
        if rows.height:
            curve = curve_of(np.abs(rows["error_ns"].to_numpy())).rename({"value": "error_ns"})
            yield curve.with_columns(*_at(seen), pl.lit(name).alias("of"))


def _losses(run: Run, seen: Seen) -> pl.DataFrame:
    """Return the intended departure of each lost frame."""
    came = seen.packets.select("block", "flow", "seq").unique()
    order = pl.col("seq").rank("ordinal").over("block", "flow").cast(pl.Int64)
    count = pl.len().over("block", "flow").cast(pl.Int64)
    sent = seen.sends.with_columns(number=order, asked=count)
    gone = sent.join(came, on=["block", "flow", "seq"], how="anti").sort("block", "seq")
    rounds = seen.trials.select("block", "round").unique("block")
    kept = gone.gather_every(max(1, -(-gone.height // MOST_LOSSES))).join(rounds, on="block", how="left")
    return kept.with_columns(*_at(seen), elapsed_s=elapsed_s(run, "intended_ns"))


def _runs(seen: Seen) -> Iterator[pl.DataFrame]:
    """Return the lengths of bursts and gaps with their expected counts, where losses reveal the chain's state."""
    chain = loss.whole_chain(seen)
    if chain is None or not chain.is_renewal or not 0 < chain.loss < 1:
        return
    for name, lost in (("loss", True), ("gap", False)):
        lengths = run_lengths(seen.arrived, lost)
        if not len(lengths):
            continue
        most = int(min(MOST_LENGTH, lengths.max()))
        each, ends = np.arange(1, most + 1), chain.ends(lost)
        found = np.bincount(np.minimum(lengths, most + 1), minlength=most + 2)[1 : most + 1]
        expected = len(lengths) * ends * (1 - ends) ** (each - 1.0)
        counts = {"length": each, "found": found.astype(np.float64), "expected": expected}
        yield pl.DataFrame(counts).with_columns(*_at(seen), pl.lit(name).alias("run"))


def _correlations(seen: Seen) -> pl.DataFrame:
    """Return correlations over lags: of the normal scores of draws, and of losses; with the expected ones."""
    return pl.concat([pl.DataFrame(schema=CORRELATIONS.own), *_of_draws(seen), *_of_losses(seen)])


def _of_draws(seen: Seen) -> list[pl.DataFrame]:
    rows = seen.log.filter(pl.col("drawn_ns").is_not_null() & ~pl.col("reordered")) if seen.has_log else pl.DataFrame()
    if seen.pipe.jitter is None or not rows.height:
        return []
    at = pl.coalesce("link_left_ns", "entered_ns")
    ordered = rows.with_columns(at_ns=at).sort("block", "flow", "at_ns", "number")
    several = ordered.partition_by("block", "flow", maintain_order=True)
    scores = [delay.scores(seen, one) for one in several]
    times = [one["at_ns"].to_numpy().astype(np.float64) for one in several]
    return [_lags(seen, "draws", scores, times, 0.0)]


def _lags(
    seen: Seen, of: str, rows: list[NDArray[np.float64]], times: list[NDArray[np.float64]], mean: float
) -> pl.DataFrame:
    found = []
    for lag in LAGS:
        value = autocorrelation(rows, lag, mean)
        spans = [time[lag:] - time[:-lag] for time in times if len(time) > lag]
        if not value.n or not spans:
            continue
        span = np.concatenate(spans)
        half = seen.pipe.half_life_ns
        expected = float((2.0 ** (-span / half)).mean()) if half else 0.0
        found.append(
            (seen.device, seen.cell, of, lag, float(span.mean()), value.estimate, value.low, value.high, expected)
        )
    return pl.DataFrame(found, schema=CORRELATIONS.own, orient="row")


def _of_losses(seen: Seen) -> list[pl.DataFrame]:
    chain = loss.whole_chain(seen)
    if chain is None or not 0 < chain.loss < 1 or not seen.arrived:
        return []
    rows = [row.astype(np.float64) for row in seen.arrived]
    found = []
    for lag in LAGS:
        value = autocorrelation(rows, lag, chain.loss)
        if value.n and not math.isnan(value.estimate):
            span = lag * (seen.interval_ns or 0.0)
            found.append(
                (seen.device, seen.cell, "losses", lag, span, value.estimate, value.low, value.high,
                 chain.correlation(lag))
            )  # fmt: skip
    return [pl.DataFrame(found, schema=CORRELATIONS.own, orient="row")]


def _distribution(seen: Seen) -> pl.DataFrame:
    """Return measured delays minus the direct path's median; where packets swap departure times, the drawn delays."""
    if seen.pipe.jitter is None or seen.pipe.rate_bps:
        return pl.DataFrame(schema=DISTRIBUTION.own)
    is_measured = seen.floor_p50_ns is not None and delay.swapped(seen) <= delay.SWAPPED
    found = seen.over_floor(seen.packets)["over_ns"] if is_measured else seen.log["drawn_ns"].drop_nulls()
    values = np.sort(found.to_numpy().astype(np.float64))
    if not len(values):
        return pl.DataFrame(schema=DISTRIBUTION.own)
    kept = np.unique(np.linspace(0, len(values) - 1, CURVE).astype(np.int64))
    at = values[kept]
    curve = {
        "delay_ns": at,
        "found": (kept + 0.5) / len(values),
        "expected": seen.pipe.delay_cdf(at),
        "measured": is_measured,
    }
    return pl.DataFrame(curve).with_columns(*_at(seen))
