"""Find what recurs or changes in one series of delays: every n-th probe, periods in time, ramps, steps, drift, modes.

The probes of a counted period are searched separately: this detects a ramp in only a few of a thousand probes.
Recurring parts are subtracted before the search for steps, drift and modes. Sizes are of round trips. For each search,
the probability of a false alarm in a series without anomalies is below one in thousands.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from sojourn.statistics.cycle import LEAST_RETURNS, find_cycle
from sojourn.statistics.fold import find_every
from sojourn.statistics.interval import Interval, student_quantile, student_t
from sojourn.statistics.modes import find_modes
from sojourn.statistics.order import median_of
from sojourn.statistics.period import FALSE_ALARM, slow_ones
from sojourn.statistics.ranks import mean_ranks
from sojourn.statistics.steps import LEAST_BINS, LEAST_IN_A_BIN, binned, find_steps
from sojourn.statistics.trend import trend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sojourn.statistics.fold import Every

EVERY, PULSE, RAMP, STEP, DRIFT, MODE = "every n-th", "pulse", "ramp", "step", "drift", "mode"
KINDS = (EVERY, PULSE, RAMP, STEP, DRIFT, MODE)
"""In the order of reports."""

CLUSTERS = 20
"""Parts of a series, of which each gives one value of a size."""

SHORTEST_INTERVALS = 8
"""The shortest period in time, in intervals between probes."""

PROFILE_BINS = 1000
LEAST_IN_PROFILE = 20
DRAWN = 200
PROFILE_FOOT = 0.1
"""A pulse or a ramp lasts while its profile is above this share of its peak."""

RAMP_RHO, RAMP_P = 0.5, 1e-6
"""Limits for a ramp: rank correlation of the delay with time, and its p."""

LEAST_RAMP_BINS = 5
LEAST_PART = 0.05
SAME = 0.02
"""The largest deviation of a period from a multiple of another, as a share of the other."""

LEVEL_PHASES = 10
LEVEL_SHARE, LEVEL_NEAR = 0.8, 0.05
"""A level recurs if this share of its variance does; shares within `LEVEL_NEAR` are equally good."""

IN_STEP = 0.98
"""A whole number of intervals replaces a nearby period if it explains at least this share of what the period
explains."""

MOST_NUMBERS = 8

DRIFT_P, DRIFT_SHARE = 1e-6, 0.02
STEP_SHARE = 0.02
"""The least step or drift, as a share of the level."""

MODE_P = 1e-6
"""The p behind `find_modes`' rule: a valley five standard deviations deeper than chance explains."""


@dataclass(frozen=True, slots=True)
class Series:
    """The delays of probes in order, in ns (NaN: no answer), and their departures, in s."""

    times_s: NDArray[np.float64]
    values: NDArray[np.float64]
    interval_s: float


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One anomaly; fields that do not apply to its kind are None. `among`: only each n-th probe has it."""

    kind: str
    size: Interval
    p: float | None
    """The probability that noise shows it; None where it is unknown."""

    every: int | None = None
    phase: int | None = None
    seconds: float | None = None
    duration_s: float | None = None
    at_s: float | None = None
    share: float | None = None
    among: int | None = None
    profile: tuple[tuple[float, float], ...] = ()
    """Position in the period (probes or s), and the mean delay above the median of all (ns)."""


def anomalies_in(series: Series) -> list[Anomaly]:
    """Return all anomalies of one series, periods first."""
    known = ~np.isnan(series.values)
    if known.sum() < 2 * LEAST_BINS * LEAST_IN_A_BIN:
        return []
    filled = np.where(known, series.values, np.nanmedian(series.values))
    numbers, rest = _numbers(series, filled, known)
    of_rest = _cycle(series, filled, rest, None)
    members = _members(known, numbers)
    of_members = [_cycle(series, filled, own, one.n) for own, one in zip(members, numbers, strict=True)]
    left = filled.copy()
    for chosen, cycle in ((rest, of_rest), *zip(members, of_members, strict=True)):
        if cycle is not None:
            left[chosen] -= _folded(series.times_s[chosen], left[chosen], cycle.seconds or 1.0)
    recurring = [
        one for one in of_members
        if one is not None and (of_rest is None or not _is_multiple(one.seconds or 0.0, of_rest.seconds or 0.0))
    ]  # fmt: skip
    counted = [_every(filled, left, one, own, rest) for one, own in zip(numbers, members, strict=True)]
    found = [*counted, *recurring, *([] if of_rest is None else [of_rest]), *_changes(series, left, rest)]
    return [one for one in found if _has_size(one.size)]


def _numbers(
    series: Series, filled: NDArray[np.float64], known: NDArray[np.bool_]
) -> tuple[list[Every], NDArray[np.bool_]]:
    """Return the periods that count probes, and the probes of none of them. Periods in time are subtracted
    meanwhile."""
    numbers: list[Every] = []
    rest, values = known.copy(), series.values.copy()
    returning = 0.0
    for _ in range(2 * MOST_NUMBERS):
        every = find_every(np.where(rest, values, np.nan))
        if every is None or len(numbers) == MOST_NUMBERS:
            break
        seconds = every.n * series.interval_s
        if _is_multiple(seconds, returning):
            break  # it is a remainder of the period in time
        less = rest & ~every.members(len(filled))
        in_time = _cycle(series, filled, less, None)
        if in_time is not None and _has_size(in_time.size) and _is_multiple(seconds, in_time.seconds or 0.0):
            returning = in_time.seconds or 0.0
        else:
            numbers.append(every)
            rest = less
        values = series.values.copy()
        if returning:  # again: its profile contained the counted probes
            values[rest] -= _folded(series.times_s[rest], filled[rest], returning)
    return numbers, rest


def _members(known: NDArray[np.bool_], numbers: list[Every]) -> list[NDArray[np.bool_]]:
    """Return the probes of each counted period: those of no other period, unless most are shared."""
    whole = [known & one.members(len(known)) for one in numbers]
    of = np.sum(whole, axis=0) if whole else np.zeros(0)
    alone = [one & (of == 1) for one in whole]
    return [one if 2 * one.sum() >= every.sum() else every for one, every in zip(alone, whole, strict=True)]


def _has_size(size: Interval) -> bool:
    """Return whether a size is a number, and its interval, if any, excludes 0."""
    return not np.isnan(size.estimate) and (size.low is None or size.high is None or size.excludes(0))


def _is_multiple(seconds: float, period: float) -> bool:
    """Return whether a period is a multiple of another one."""
    times = seconds / period if period else 0.0
    return round(times) >= 1 and abs(times - round(times)) < SAME * max(1.0, times)


def _every(
    values: NDArray[np.float64],
    left: NDArray[np.float64],
    every: Every,
    members: NDArray[np.bool_],
    rest: NDArray[np.bool_],
) -> Anomaly:
    """Return how much longer the probes of a counted period take, by their median; by their mean if few of them do."""
    typical, whole = _typical(left, members, rest), _mean(values, members, rest)
    size = typical if typical.excludes(0) and typical.estimate > LEAST_PART * whole.estimate else whole
    folded = values[: len(values) // every.n * every.n].reshape(-1, every.n).mean(axis=0) - float(np.median(values))
    profile = tuple((float(place), float(level)) for place, level in enumerate(folded))
    return Anomaly(EVERY, size, every.p, every=every.n, phase=every.phase, profile=profile)


def _typical(values: NDArray[np.float64], members: NDArray[np.bool_], rest: NDArray[np.bool_]) -> Interval:
    """Return the median of the members above that of the rest, which are enough for theirs to be known."""
    found, other = median_of(values[members]), float(np.median(values[rest]))
    ends = [None if end is None else end - other for end in (found.low, found.high)]
    return Interval(found.estimate - other, ends[0], ends[1], found.level, found.n)


def _mean(values: NDArray[np.float64], members: NDArray[np.bool_], rest: NDArray[np.bool_]) -> Interval:
    """Return the mean of the members above that of the rest, over parts of the series that have both."""
    parts = np.array_split(np.arange(len(values)), CLUSTERS)
    apart = [values[part][members[part]].mean() - values[part][rest[part]].mean()
             for part in parts if members[part].any() and rest[part].any()]  # fmt: skip
    return student_t(np.array(apart))


def _cycle(series: Series, values: NDArray[np.float64], chosen: NDArray[np.bool_], among: int | None) -> Anomaly | None:
    """Return what recurs in time among the chosen probes: a ramp if the delay rises within it, else a pulse."""
    t, v = series.times_s[chosen], values[chosen]
    if len(v) < LEAST_IN_PROFILE * (LEAST_RAMP_BINS + 1):
        return None
    shortest = SHORTEST_INTERVALS * series.interval_s * (among or 1)
    cycle = find_cycle(t, slow_ones(v), shortest)
    seconds = _recurring_level(t, v) if cycle is None else cycle.seconds
    if seconds is None:
        return None
    excess = v - float(np.median(v))
    period = _in_step(t, excess, _refined(t, excess, seconds), series.interval_s)
    profile = _profile(t, excess, period)
    if cycle is None:  # no probes outside the cycle could give the median
        base = float(profile.min())
        excess, profile = excess - base, profile - base
    first, peak, last = _run(profile)
    rises = peak + 1 - first >= max(LEAST_RAMP_BINS, (last - first) / 2) and _rises(
        np.mod(t / period - first / len(profile), 1.0), v, (peak + 1 - first) / len(profile)
    )
    bins = (peak + 1 if rises else last) - first
    start, length = first / len(profile), bins / len(profile)
    phase = np.mod(t / period - start, 1.0)
    inside = np.mod(_placed(t, period)[0] - first, len(profile)) < bins
    begins = _foot(phase[inside], excess[inside]) if rises else 0.0
    number = np.floor(t / period - start).astype(np.int64)
    sizes = [_size((phase[one] - begins) / (length - begins), excess[one], ramp=rises)
             for whole in np.unique(number)[1:-1] if (one := inside & (number == whole)).sum() >= 2]  # fmt: skip
    size = _widened(student_t(np.array(sizes)), 1 / max(1.0, length * len(profile)))
    return Anomaly(
        RAMP if rises else PULSE, size, None if cycle is None else FALSE_ALARM, seconds=period, among=among,
        duration_s=(length - begins) * period, share=length - begins, profile=_drawn(profile, first, period),
    )  # fmt: skip


def _recurring_level(t: NDArray[np.float64], values: NDArray[np.float64]) -> float | None:
    """Return the period in time that explains most of the variance of the bins' levels, or None."""
    levels, starts = binned(values)
    n, at = len(levels), t[starts] - t[0]
    span = float(t[-1] - t[0])
    if n <= LEAST_RETURNS * LEVEL_PHASES or np.ptp(levels) == 0 or span <= 0:
        return None
    apart = levels - levels.mean()
    # Multiples of a period recur too: the shortest is the period.
    tried = span / np.arange(LEAST_RETURNS, n / LEVEL_PHASES, 0.1)
    shares = np.array([_returning(at, apart, float(one)) for one in tried])
    best = float(shares.max())
    if best < LEVEL_SHARE:
        return None
    near = np.flatnonzero(shares > best - LEVEL_NEAR)
    return float(tried[near[-1]])


def _returning(at: NDArray[np.float64], apart: NDArray[np.float64], period: float) -> float:
    """Return the share of the variance of levels that is between the phases of a period."""
    place = (np.mod(at / period, 1.0) * LEVEL_PHASES).astype(np.int64)
    sums, counts = np.bincount(place, weights=apart), np.bincount(place)
    within = len(apart) - len(counts)
    total = float((apart * apart).sum())
    between = float((sums * sums / np.maximum(counts, 1)).sum())
    return 1 - (total - between) / within / (total / len(apart))


def _widened(size: Interval, share: float) -> Interval:
    """Widen an interval by a share of the estimate, in quadrature: the profile's bins limit where a pulse ends."""
    if size.half_width is None:
        return size
    reach = float(np.hypot(size.half_width, share * size.estimate))
    return Interval(size.estimate, size.estimate - reach, size.estimate + reach, size.level, size.n)


def _refined(t: NDArray[np.float64], excess: NDArray[np.float64], period: float) -> float:
    """Return the period near a first estimate whose folded delays differ most between phases."""
    cycles = max(1.0, float(np.ptp(t)) / period)
    for reach in (0.5 / cycles, 0.05 / cycles):
        tried = period * (1 + reach * np.linspace(-1, 1, 41))
        period = float(tried[np.argmax([_spread(t, excess, float(one)) for one in tried])])
    return period


def _in_step(t: NDArray[np.float64], excess: NDArray[np.float64], period: float, interval_s: float) -> float:
    """Return the whole number of intervals near a period, if the probes do not distinguish the two."""
    whole = round(period / interval_s) * interval_s
    drift = abs(whole - period) * float(np.ptp(t)) / period
    is_as_good = 0.0 < drift < interval_s and _spread(t, excess, whole) > IN_STEP * _spread(t, excess, period)
    return whole if is_as_good else period


def _spread(t: NDArray[np.float64], excess: NDArray[np.float64], period: float) -> float:
    """Return the sum of squares of the folded means, weighted by their number of values."""
    place, counts = _placed(t, period)
    sums = np.bincount(place, weights=excess, minlength=len(counts))
    return float((sums * sums / np.maximum(counts, 1)).sum())


def _placed(t: NDArray[np.float64], period: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the bin of the period for each time, and the count of each bin."""
    bins = int(max(LEAST_RAMP_BINS + 1, min(PROFILE_BINS, len(t) // LEAST_IN_PROFILE)))
    place = np.minimum((np.mod(t / period, 1.0) * bins).astype(np.int64), bins - 1)
    return place, np.bincount(place, minlength=bins)


def _foot(phase: NDArray[np.float64], excess: NDArray[np.float64]) -> float:
    """Return the phase at which the line through a ramp is zero, if before the bins that exceed the base."""
    slope, level = np.polyfit(phase, excess, 1)
    return min(0.0, float(-level / slope)) if slope > 0 else 0.0


def _profile(t: NDArray[np.float64], excess: NDArray[np.float64], period: float) -> NDArray[np.float64]:
    """Return the mean excess by the phase of a period; for phases without probes, that of the phase before.

    If a period is a whole number of intervals, most phases have no probe.
    """
    place, counts = _placed(t, period)
    means = np.bincount(place, weights=excess, minlength=len(counts)) / np.maximum(counts, 1)
    before = np.where(counts > 0, np.arange(len(counts)), -1)
    before = np.maximum.accumulate(before)
    return np.asarray(means[np.where(before < 0, before[-1], before)])


def _run(profile: NDArray[np.float64]) -> tuple[int, int, int]:
    """Return the bins around the peak in which a profile exceeds its base: first, peak, end; the first may be
    below 0."""
    bins, peak = len(profile), int(profile.argmax())
    above = profile > PROFILE_FOOT * profile[peak]
    first = last = peak
    while last - first < bins - 1 and above[(first - 1) % bins]:
        first -= 1
    while last - first < bins - 1 and above[(last + 1) % bins]:
        last += 1
    return first, peak, last + 1


def _drawn(profile: NDArray[np.float64], first: int, period: float) -> tuple[tuple[float, float], ...]:
    """Return the profile from a tenth of a period before its begin, in at most `DRAWN` points."""
    bins = len(profile)
    turned = np.roll(profile, bins // 10 - first)
    pieces = np.array_split(np.arange(bins), min(bins, DRAWN))
    return tuple((float(one[0]) / bins * period, float(turned[one].mean())) for one in pieces)


def _rises(phase: NDArray[np.float64], values: NDArray[np.float64], until: float) -> bool:
    """Return whether values rise with the phase up to `until`, by ranks."""
    phase, values = phase[phase <= until], values[phase <= until]
    n = len(values)
    if n < LEAST_IN_A_BIN or np.ptp(values) == 0:
        return False
    rho = float(np.corrcoef(mean_ranks(phase), mean_ranks(values))[0, 1])
    t = rho * ((n - 2) / max(1e-12, (1 + rho) * (1 - rho))) ** 0.5
    return rho > RAMP_RHO and float(special.stdtr(n - 2, -t)) < RAMP_P


def _size(part: NDArray[np.float64], excess: NDArray[np.float64], *, ramp: bool) -> float:
    """Return the size of one occurrence: the mean excess, or for a ramp the end of the line through its begin."""
    return float((part * excess).sum() / (part * part).sum()) if ramp else float(excess.mean())


def _folded(t: NDArray[np.float64], values: NDArray[np.float64], period: float) -> NDArray[np.float64]:
    """Return for each value the mean excess of its phase above the median."""
    place, counts = _placed(t, period)
    levels = np.bincount(place, weights=values - float(np.median(values)), minlength=len(counts))
    return np.asarray((levels / np.maximum(counts, 1))[place], dtype=np.float64)


def _changes(series: Series, values: NDArray[np.float64], chosen: NDArray[np.bool_]) -> Iterator[Anomaly]:
    """Return steps, modes and, if there is no step, a drift over the whole series."""
    t, v = series.times_s[chosen], values[chosen]
    level = abs(float(np.median(v)))
    steps = find_steps(v, STEP_SHARE * level)
    for step in steps:
        reach = student_quantile(step.degrees, 0.95) * step.error
        size = Interval(step.by, step.by - reach, step.by + reach, 0.95, step.degrees + 2)
        yield Anomaly(STEP, size, step.p, at_s=float(t[step.at] - series.times_s[0]))
        v = v - np.where(np.arange(len(v)) >= step.at, step.by, 0.0)
    yield from _modes(v)
    levels, starts = binned(v)
    over = trend(t[starts], levels)
    if not steps and over.p < DRIFT_P and abs(over.change) > DRIFT_SHARE * level:
        yield Anomaly(DRIFT, Interval(over.change, None, None, 0.95, len(levels)), over.p,
                      duration_s=float(np.ptp(t)))  # fmt: skip


def _modes(values: NDArray[np.float64]) -> Iterator[Anomaly]:
    """Return the modes beyond the fastest: the distance of each from that, and the share of the probes in it."""
    modes = find_modes(values)
    borders = [0.0, *((one + other) / 2 for one, other in pairwise(modes)), np.inf]
    for mode, low, high in list(zip(modes, borders[:-1], borders[1:], strict=True))[1:]:
        share = float(((values >= low) & (values < high)).mean())
        yield Anomaly(MODE, Interval(mode - modes[0], None, None, 0.95, len(values)), MODE_P, share=share)
