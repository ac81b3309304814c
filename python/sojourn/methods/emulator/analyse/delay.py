"""Delays, configured against measured.

Three separate questions. Are the *drawn* delays from the configured distribution (Anderson and Darling's test, on the
emulator's log), and correlated in time as configured? Are the delays *kept*: actual minus intended departure in the
emulator's log, and, from outside, the stream's one-way delay minus that of the direct path? Does a clock *tick* show: a
periodic quantisation error? Where the order is kept under jitter, a packet's own delay is not the drawn one: the set of
departure times is as drawn, and each time goes to the packet that has waited longest. There the sets of times are
compared exactly, and the mean delay as a number.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from scipy import special

from sojourn.analysis.checks import Asked
from sojourn.analysis.sessions import figure_of
from sojourn.methods.emulator.analyse.seen import parts_of, sessions_in
from sojourn.statistics import cdf
from sojourn.statistics.anderson import anderson_darling
from sojourn.statistics.interval import Interval, student_quantile
from sojourn.statistics.quantile import allowed, quantile_by_rounds
from sojourn.statistics.randomness import two_sided
from sojourn.statistics.ticks import find_tick

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.analysis.sessions import Figure
    from sojourn.methods.emulator.analyse.seen import Seen

LEAST_DRAWN = 500
"""With fewer draws than this, a test that raises no alarm is inconclusive."""

SWAPPED = 0.01
"""Delays are compared with the distribution while less than this share of packets left at another packet's time."""

PART_OF_SPREAD = 0.1
"""The limit of a mean delay under jitter is the offset's limit plus this share of the jitter's standard deviation: a
closer limit would need many more packets."""


def asked(seen: Seen, limits: dict[str, float]) -> list[Asked]:
    """Return all checks of one pipe's delays; without timing checks where packets leave at once."""
    if not seen.is_timed:
        return [*_drawn(seen), *_order(seen)]
    if seen.floor_p50_ns is None:
        return [*_kept(seen, limits), *_drawn(seen), *_order(seen), *_tick(seen, limits)]
    outside = [*_outside(seen, limits), *_mean(seen, limits)]
    if error95 := seen.clock_errors[1]:  # an error of the clocks would shift the whole distribution
        outside = [_less_sure(one, error95) for one in outside]
    else:
        outside += _distribution(seen, limits)
    return [*_kept(seen, limits), *outside, *_drawn(seen), *_order(seen), *_tick(seen, limits)]


def _less_sure(one: Asked, by_ns: float) -> Asked:
    """Return the check with an interval that includes the clocks' error."""
    reading = one.reading
    if reading is None or one.unit != "ns":
        return one
    return replace(one, reading=lambda alpha: reading(alpha).widened(by_ns))


def _kept(seen: Seen, limits: dict[str, float]) -> list[Asked]:
    """Return checks of actual minus intended departure, in the log."""
    rows = seen.inside
    if not rows.height:
        return []
    errors, parts = rows["error_ns"].to_numpy(), parts_of(rows)
    return [
        _quantile("departure, median", "log", errors, parts, (0.5, limits["p50"])),
        *_tails("departure", "log", np.abs(errors), parts, (limits["p99"], limits["p999"])),
    ]


def _tails(
    name: str, of: str, sizes: NDArray[np.float64], parts: NDArray[np.int64], limits: tuple[float, float]
) -> list[Asked]:
    wanted = zip(("p99", "p99.9"), (0.99, 0.999), limits, strict=True)
    return [
        _quantile(f"{name}, {tail}", of, sizes, parts, (p, limit))
        for tail, p, limit in wanted
        if allowed(p, len(sizes))
    ]


def _quantile(
    name: str, of: str, values: NDArray[np.float64], parts: NDArray[np.int64], at: tuple[float, float]
) -> Asked:
    p, limit = at

    def reading(alpha: float) -> Interval:
        return quantile_by_rounds(values, parts, p, 1 - alpha)

    outside = "one-way delay minus the configured delay and the direct path's delay"
    what = "actual minus intended departure" if of == "log" else outside
    return Asked(name, of, 0.0, "ns", what, reading, (-limit, limit), limit, n=len(values))


def _outside(seen: Seen, limits: dict[str, float]) -> list[Asked]:
    """Return checks of the stream's one-way delays, minus the direct path's."""
    rows = seen.outside
    if not rows.height or seen.floor_p50_ns is None:
        return []
    errors, parts = rows["error_ns"].to_numpy(), parts_of(rows)
    what = "mean one-way delay minus the configured delay and the direct path's mean"
    offset = Asked(
        "delay, offset", "streams", 0.0, "ns", what,
        lambda alpha: mean_over_floor(seen, alpha, less_stay=True), (-limits["offset"], limits["offset"]),
        limits["offset"], n=rows.height,
    )  # fmt: skip
    found = [offset, _quantile("delay, median", "streams", errors, parts, (0.5, limits["p50"]))]
    if allowed(0.99, rows.height):
        direct = float(seen.floor["delay_ns"].quantile(0.99) or 0.0) - seen.floor_p50_ns
        found.append(_quantile("delay, p99", "streams", np.abs(errors), parts, (0.99, limits["p99"] + direct)))
    return found


def mean_over_floor(seen: Seen, alpha: float, *, less_stay: bool = False) -> Interval:
    """Return the mean one-way delay minus the direct path's, with Welch's interval over parts of trials.

    `less_stay`: each packet's intended time in the emulator is subtracted too. Of several sessions: the mean over
    rounds of the difference of both paths within each, with an interval over sessions.
    """
    figure = figure_over_floor(seen, alpha, less_stay=less_stay)
    if figure is not None:
        return figure.mean
    rows = seen.outside if less_stay else seen.packets
    values = (rows["delay_ns"] - rows["stay_ns"] if less_stay else rows["delay_ns"]).to_numpy()
    own, floor = _part_means(values, rows), _part_means(seen.floor["delay_ns"].to_numpy(), seen.floor)
    shift = float(own.mean() - floor.mean()) if len(own) and len(floor) else float("nan")
    n = min(len(own), len(floor))
    if n < 3:
        return Interval(shift, None, None, 1 - alpha, n)
    each = [float(np.var(one, ddof=1)) / len(one) for one in (own, floor)]
    whole = sum(each)
    if whole <= 0:
        return Interval(shift, None, None, 1 - alpha, n)
    degrees = whole**2 / sum(part**2 / (len(one) - 1) for part, one in zip(each, (own, floor), strict=True))
    reach = student_quantile(max(1, int(degrees)), 1 - alpha) * whole**0.5
    return Interval(shift, shift - reach, shift + reach, 1 - alpha, n)


def figure_over_floor(seen: Seen, alpha: float, *, less_stay: bool = False) -> Figure | None:
    """Return the same for several sessions, with its parts; None for one session."""
    rows = seen.outside if less_stay else seen.packets
    if sessions_in(rows) is None:
        return None
    value = pl.col("delay_ns") - pl.col("stay_ns") if less_stay else pl.col("delay_ns")
    at = ["session", "round"]
    floor = _whole(seen.floor).group_by(at).agg(pl.col("delay_ns").mean().alias("floor_ns"))
    each = _whole(rows).group_by(at).agg(value.mean().alias("own_ns")).join(floor, on=at, how="inner").sort(at)
    apart = (each["own_ns"] - each["floor_ns"]).to_numpy()
    return figure_of(apart, each["session"].to_numpy().astype(np.int64), 1 - alpha) if len(apart) else None


def _whole(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the packets of rounds that have all their trials on one bed."""
    trials = rows.group_by("session", "round").agg(pl.col("block").n_unique().alias("trials"))
    kept = trials.filter(pl.col("trials") == pl.col("trials").max())
    return rows.join(kept, on=["session", "round"], how="semi", maintain_order="left")


def _part_means(values: NDArray[np.float64], rows: pl.DataFrame) -> NDArray[np.float64]:
    parts = parts_of(rows)
    return np.asarray(np.bincount(parts, weights=values) / np.bincount(parts), dtype=np.float64)


def _mean(seen: Seen, limits: dict[str, float]) -> list[Asked]:
    """Return the check of the mean delay under jitter, for a pipe in which nothing else delays packets."""
    jitter, mean = seen.pipe.jitter, seen.pipe.mean_delay_ns
    known = math.isfinite(mean) and jitter is not None and math.isfinite(jitter.sd)
    if jitter is None or not known or _is_varied(seen) or not seen.packets.height:
        return []
    limit = limits["offset"] + PART_OF_SPREAD * jitter.sd
    what = "mean one-way delay minus the direct path's"
    zone = (mean - limit, mean + limit)
    return [
        Asked("delay, mean", "streams", mean, "ns", what, lambda alpha: mean_over_floor(seen, alpha), zone, limit,
              n=seen.packets.height)
    ]  # fmt: skip


def _is_varied(seen: Seen) -> bool:
    """Return whether packets also wait elsewhere than in the delay line, or some are chosen to overtake."""
    return bool(seen.pipe.rate_bps or seen.pipe.link.get("trace") or seen.pipe.reorder)


def _distribution(seen: Seen, limits: dict[str, float]) -> list[Asked]:
    """Return the check of measured delays against the configured distribution."""
    jitter, floor = seen.pipe.jitter, seen.floor_p50_ns
    if jitter is None or floor is None or _is_varied(seen) or not seen.packets.height or swapped(seen) > SWAPPED:
        return []
    values = seen.over_floor(seen.packets)["over_ns"].to_numpy()
    found = cdf.distance(values, lambda x: np.where(x < 0, 0.0, seen.pipe.delay_cdf(x)), limits["offset"])
    worth = len(values) * _independent(seen)

    def reading(alpha: float) -> Interval:
        band = cdf.band(worth, alpha)
        return Interval(found, max(0.0, found - band), min(1.0, found + band), 1 - alpha, len(values))

    what = (
        "distance between measured and configured distribution, where a delay may be off by "
        f"± {limits['offset'] / 1e3:g} µs"
    )
    return [Asked("delay, distribution", "streams", 0.0, "1", what, reading, (0.0, limits["cdf"]), limits["cdf"],
                  n=len(values))]  # fmt: skip


def _independent(seen: Seen) -> float:
    """Return the effective number of independent packets per packet where jitter is correlated."""
    if not seen.pipe.half_life_ns or not seen.interval_ns:
        return 1.0
    rho = 2 ** (-seen.interval_ns / seen.pipe.half_life_ns)
    return float((1 - rho) / (1 + rho))


def swapped(seen: Seen) -> float:
    """Return the share of packets that left at another packet's time; without a log, 1 or 0 by order and interval."""
    rows = _in_line(seen).drop_nulls("intended_ns")
    if rows.height:
        own = rows["intended_ns"] == rows["at_ns"] + rows["drawn_ns"]
        return 1 - float(own.sum()) / rows.height
    jitter = seen.pipe.jitter
    if not seen.pipe.keeps_order or jitter is None or not seen.interval_ns:
        return 0.0
    return 1.0 if 4 * jitter.sd > seen.interval_ns else 0.0


def _in_line(seen: Seen) -> pl.DataFrame:
    """Return the logged packets that reached the delay line, with `at_ns`, their time; without those chosen to
    overtake."""
    rows = seen.log.filter(pl.col("drawn_ns").is_not_null() & ~pl.col("reordered"))
    return rows.with_columns(at_ns=pl.coalesce("link_left_ns", "entered_ns")).sort("block", "flow", "at_ns", "number")


def _drawn(seen: Seen) -> list[Asked]:
    """Return checks of the drawn delays against the configured distribution."""
    rows, pipe = _in_line(seen), seen.pipe
    if not rows.height or pipe.link.get("trace"):
        return []
    drawn = rows["drawn_ns"].to_numpy().astype(np.float64)
    if pipe.jitter is None:
        wrong = int((drawn != pipe.constant_ns).sum())
        return [Asked("drawn delays, constant", "log", 0.0, "packets", "packets whose delay is not the configured one",
                      exact=wrong, n=len(drawn))]  # fmt: skip
    zero = float(pipe.delay_cdf(np.zeros(1))[0])
    found = [_clipped(drawn, zero)] if zero > 1e-12 else []
    if pipe.half_life_ns:
        return [*found, *correlated(seen, rows)]
    whole = drawn[drawn > 0] if zero > 1e-12 else drawn
    u = (pipe.delay_cdf(whole) - zero) / (1 - zero) if zero > 1e-12 else pipe.delay_cdf(whole)
    return [*found, _fits("drawn delays, distribution", u, continuous=pipe.jitter.is_continuous)]


def _clipped(drawn: NDArray[np.float64], share: float) -> Asked:
    zeros = int((drawn <= 0).sum())
    p = binomial_p(zeros, len(drawn), share)
    what = "share of draws at or below zero, which become zero"
    return Asked("drawn delays, at zero", "log", share, "ratio", what, p=p, measured=zeros / len(drawn), n=len(drawn))


def binomial_p(k: int, n: int, p: float) -> float:
    """Return the two-sided p of a binomial count: twice the smaller tail."""
    low, high = float(special.bdtr(k, n, p)), float(special.bdtrc(k - 1, n, p)) if k else 1.0
    return min(1.0, 2 * min(low, high))


def _fits(name: str, u: NDArray[np.float64], *, continuous: bool) -> Asked:
    """Test by Anderson and Darling; for repeated values (tables) by Kolmogorov's distance, which is then
    conservative."""
    if continuous:
        fit = anderson_darling(u)
        what = "Anderson and Darling's A² of the draws (about 1 if they fit)"
        return Asked(
            name, "log", 1.0, "A²", what, p=fit.p, enough=fit.n >= LEAST_DRAWN, measured=fit.statistic, n=fit.n
        )
    n = len(u)
    upto = np.arange(1, n + 1) / n
    ordered = np.sort(u)
    last = np.concatenate([ordered[1:] != ordered[:-1], [True]])
    found = float(np.abs(upto - ordered)[last].max(initial=0.0))
    p = min(1.0, 2 * math.exp(-2 * n * found**2))
    what = "Kolmogorov's distance between the draws and the table"
    return Asked(name, "log", 0.0, "1", what, p=p, enough=n >= LEAST_DRAWN, measured=found, n=n)


def scores(seen: Seen, rows: pl.DataFrame) -> NDArray[np.float64]:
    """Return the normal scores of the draws: each draw comes from a normal number, and those are correlated."""
    u = seen.pipe.delay_cdf(rows["drawn_ns"].to_numpy().astype(np.float64))
    return np.asarray(special.ndtri(np.clip(u, 1e-12, 1 - 1e-12)), dtype=np.float64)


def steps(seen: Seen, rows: pl.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return for each draw with a predecessor in its trial and flow both scores, and the configured correlation."""
    z = scores(seen, rows)
    at = rows["at_ns"].to_numpy()
    same = (np.diff(rows["block"].to_numpy()) == 0) & (np.diff(rows["flow"].to_numpy()) == 0) & (np.diff(at) > 0)
    clipped = rows["drawn_ns"].to_numpy() <= 0
    same &= ~(clipped[1:] | clipped[:-1])
    rho = 2.0 ** (-np.diff(at)[same] / float(seen.pipe.half_life_ns or 1))
    return z[:-1][same], z[1:][same], rho


def correlated(seen: Seen, rows: pl.DataFrame) -> list[Asked]:
    """Check correlation in time: the innovations must be independent, normal, and of the configured variance."""
    before, after, rho = steps(seen, rows)
    if len(before) < 3:
        return []
    left = np.sqrt(1 - rho**2)
    fit = _fits("drawn delays, distribution", special.ndtr((after - rho * before) / left), continuous=True)
    # Least squares for the fraction of the configured correlation: 1 as configured, 0 without correlation.
    weight = float(((rho * before / left) ** 2).sum())
    there = float((rho * before * after / left**2).sum()) / weight
    mean = float(rho.mean())
    what = "correlation of the normal scores of neighbouring draws"
    return [
        fit,
        Asked("drawn delays, correlation", "log", mean, "1", what, p=two_sided((there - 1) * weight**0.5),
              enough=len(before) >= LEAST_DRAWN, measured=there * mean, n=len(before)),
    ]  # fmt: skip


def _order(seen: Seen) -> list[Asked]:
    """Check that order is kept: no packet overtakes, and departures are at the drawn times, each used once."""
    if not seen.pipe.keeps_order:
        return []
    found = []
    if seen.pipe.jitter and not seen.pipe.link.get("trace"):
        rows = _in_line(seen)
        if rows.drop_nulls("intended_ns").height:
            found.append(_same_times(rows))
            found.append(_never_back(rows))
    overtaken = int(seen.trials["reordered"].sum())
    sent = int(seen.trials["first"].sum())
    what = "packets that arrived after a packet that was sent later"
    return [*found, Asked("order, from outside", "streams", 0.0, "packets", what, exact=overtaken, n=sent)]


def _same_times(rows: pl.DataFrame) -> Asked:
    times = Counter(zip(rows["flow"].to_list(), (rows["at_ns"] + rows["drawn_ns"]).to_list(), strict=True))
    known = rows.drop_nulls("intended_ns")
    taken = Counter(zip(known["flow"].to_list(), known["intended_ns"].to_list(), strict=True))
    what = "departures at a time that was not drawn"
    return Asked("order kept, same times", "log", 0.0, "packets", what, exact=(taken - times).total(), n=known.height)


def _never_back(rows: pl.DataFrame) -> Asked:
    known = rows.drop_nulls("intended_ns")
    back = known.select((pl.col("intended_ns").diff().over("block", "flow") < 0).sum()).item()
    what = "packets intended to leave before a packet that arrived earlier"
    return Asked("order kept, no overtaking", "log", 0.0, "packets", what, exact=int(back or 0), n=known.height)


def _tick(seen: Seen, limits: dict[str, float]) -> list[Asked]:
    """Check for periodic errors: the quantisation error of an emulator that acts on clock ticks only."""
    rows = seen.stayed.drop_nulls("stay_ns").sort("block", "flow", "departure_ns")
    trials = list(seen.by_block(rows))
    times = [one["departure_ns"].to_numpy().astype(np.float64) for one in trials]
    errors = [(one["delay_ns"] - one["stay_ns"]).to_numpy() for one in trials]
    found = find_tick(times, errors) if trials else None
    if found is None:
        return []
    what = "peak-to-peak height of the periodic part of the errors"
    return [
        Asked("delay, quantisation error", "streams", 0.0, "ns", what,
              found.within, (-1.0, limits["offset"]), limits["offset"], n=found.n)
    ]  # fmt: skip
