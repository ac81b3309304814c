"""What recurs or changes in one series of delays: every n-th probe, every so many seconds, ramps, steps, drift, modes.

The probes of a period that counts are searched apart from the others: in them a ramp is seen that a few in a thousand
probes carry. What recurs is taken off before steps, drift and modes are looked for. Sizes are of round trips. Each
search speaks where a series without anything would less than once in thousands.
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
"""As reports list them."""

CLUSTERS = 20
"""Parts of a series of which each gives one value of a size."""

SHORTEST_INTERVALS = 8
"""Periods in time are looked for from so many times between two probes."""

PROFILE_BINS = 1000
LEAST_IN_PROFILE = 20
DRAWN = 200
PROFILE_FOOT = 0.1
"""A pulse or a ramp lasts as long as its profile is above this share of its peak."""

RAMP_RHO, RAMP_P = 0.5, 1e-6
"""The delay within a ramp rises with time: rank correlation, and its p."""

LEAST_RAMP_BINS = 5
LEAST_PART = 0.05
SAME = 0.02
"""How far a period may be from a whole number of times another, as a share of the other's."""

LEVEL_PHASES = 10
LEVEL_SHARE, LEVEL_NEAR = 0.8, 0.05
"""A level recurs where so much of its variance does; shares within `LEVEL_NEAR` are as good."""

IN_STEP = 0.98
"""A whole number of intervals explains so much of what a period near to it does: it is the period."""

MOST_NUMBERS = 8

DRIFT_P, DRIFT_SHARE = 1e-6, 0.02
STEP_SHARE = 0.02
"""The least step or drift, of the level."""

MODE_P = 1e-6
"""What `find_modes` asks for: a valley deeper by five standard deviations than chance digs."""


@dataclass(frozen=True, slots=True)
class Series:
    """The delays of probes in their order, ns, NaN where none came back, and when they left, s."""

    times_s: NDArray[np.float64]
    values: NDArray[np.float64]
    interval_s: float


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One thing that was found; what does not belong to its kind is None. `among`: only each n-th probe has it."""

    kind: str
    size: Interval
    p: float | None
    """The chance that noise shows it: None where no law says."""

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
    """Everything that one series shows, periods first."""
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
    """The periods that count probes, and the probes of none of them. What recurs in time is taken off on the way."""
    numbers: list[Every] = []
    rest, values = known.copy(), series.values.copy()
    returning = 0.0
    for _ in range(2 * MOST_NUMBERS):
        every = find_every(np.where(rest, values, np.nan))
        if every is None or len(numbers) == MOST_NUMBERS:
            break
        seconds = every.n * series.interval_s
        if _is_multiple(seconds, returning):
            break  # it is what is left of that
        less = rest & ~every.members(len(filled))
        in_time = _cycle(series, filled, less, None)
        if in_time is not None and _has_size(in_time.size) and _is_multiple(seconds, in_time.seconds or 0.0):
            returning = in_time.seconds or 0.0
        else:
            numbers.append(every)
            rest = less
        values = series.values.copy()
        if returning:  # anew: those of the numbers stood in it
            values[rest] -= _folded(series.times_s[rest], filled[rest], returning)
    return numbers, rest


def _members(known: NDArray[np.bool_], numbers: list[Every]) -> list[NDArray[np.bool_]]:
    """The probes of each number: those that are of no other, unless most are."""
    whole = [known & one.members(len(known)) for one in numbers]
    of = np.sum(whole, axis=0) if whole else np.zeros(0)
    alone = [one & (of == 1) for one in whole]
    return [one if 2 * one.sum() >= every.sum() else every for one, every in zip(alone, whole, strict=True)]


def _has_size(size: Interval) -> bool:
    """Whether a size is a number, and its interval, where it has one, without 0."""
    return not np.isnan(size.estimate) and (size.low is None or size.high is None or size.excludes(0))


def _is_multiple(seconds: float, period: float) -> bool:
    """Whether a period is a whole number of times another one."""
    times = seconds / period if period else 0.0
    return round(times) >= 1 and abs(times - round(times)) < SAME * max(1.0, times)


def _every(
    values: NDArray[np.float64],
    left: NDArray[np.float64],
    every: Every,
    members: NDArray[np.bool_],
    rest: NDArray[np.bool_],
) -> Anomaly:
    """How much longer the probes of the number take, by their median; by their mean where few of them do."""
    typical, whole = _typical(left, members, rest), _mean(values, members, rest)
    size = typical if typical.excludes(0) and typical.estimate > LEAST_PART * whole.estimate else whole
    folded = values[: len(values) // every.n * every.n].reshape(-1, every.n).mean(axis=0) - float(np.median(values))
    profile = tuple((float(place), float(level)) for place, level in enumerate(folded))
    return Anomaly(EVERY, size, every.p, every=every.n, phase=every.phase, profile=profile)


def _typical(values: NDArray[np.float64], members: NDArray[np.bool_], rest: NDArray[np.bool_]) -> Interval:
    """The median of the members above that of the rest, which are so many that theirs is known."""
    found, other = median_of(values[members]), float(np.median(values[rest]))
    ends = [None if end is None else end - other for end in (found.low, found.high)]
    return Interval(found.estimate - other, ends[0], ends[1], found.level, found.n)


def _mean(values: NDArray[np.float64], members: NDArray[np.bool_], rest: NDArray[np.bool_]) -> Interval:
    """The mean of the members above that of the rest, over parts of the series that have both."""
    parts = np.array_split(np.arange(len(values)), CLUSTERS)
    apart = [values[part][members[part]].mean() - values[part][rest[part]].mean()
             for part in parts if members[part].any() and rest[part].any()]  # fmt: skip
    return student_t(np.array(apart))


def _cycle(series: Series, values: NDArray[np.float64], chosen: NDArray[np.bool_], among: int | None) -> Anomaly | None:
    """What recurs in time among the chosen probes: a ramp where the delay rises within it, else a pulse."""
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
    if cycle is None:  # it has no rest of which the median could be
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
    """The period in time that most of what the levels of bins differ by returns with, or None."""
    levels, starts = binned(values)
    n, at = len(levels), t[starts] - t[0]
    span = float(t[-1] - t[0])
    if n <= LEAST_RETURNS * LEVEL_PHASES or np.ptp(levels) == 0 or span <= 0:
        return None
    apart = levels - levels.mean()
    # Multiples of a period return as well: the shortest is it.
    tried = span / np.arange(LEAST_RETURNS, n / LEVEL_PHASES, 0.1)
    shares = np.array([_returning(at, apart, float(one)) for one in tried])
    best = float(shares.max())
    if best < LEVEL_SHARE:
        return None
    near = np.flatnonzero(shares > best - LEVEL_NEAR)
    return float(tried[near[-1]])


def _returning(at: NDArray[np.float64], apart: NDArray[np.float64], period: float) -> float:
    """The share of the variance of levels that is between the phases of a period."""
    place = (np.mod(at / period, 1.0) * LEVEL_PHASES).astype(np.int64)
    sums, counts = np.bincount(place, weights=apart), np.bincount(place)
    within = len(apart) - len(counts)
    total = float((apart * apart).sum())
    between = float((sums * sums / np.maximum(counts, 1)).sum())
    return 1 - (total - between) / within / (total / len(apart))


def _widened(size: Interval, share: float) -> Interval:
    """An interval with a share of the estimate more to either side, by squares: where a return ends, a bin tells."""
    if size.half_width is None:
        return size
    reach = float(np.hypot(size.half_width, share * size.estimate))
    return Interval(size.estimate, size.estimate - reach, size.estimate + reach, size.level, size.n)


def _refined(t: NDArray[np.float64], excess: NDArray[np.float64], period: float) -> float:
    """The period near to a first one at which the folded delays differ most by their phase."""
    cycles = max(1.0, float(np.ptp(t)) / period)
    for reach in (0.5 / cycles, 0.05 / cycles):
        tried = period * (1 + reach * np.linspace(-1, 1, 41))
        period = float(tried[np.argmax([_spread(t, excess, float(one)) for one in tried])])
    return period


def _in_step(t: NDArray[np.float64], excess: NDArray[np.float64], period: float, interval_s: float) -> float:
    """The whole number of intervals that a period may as well be: no probe distinguishes the two."""
    whole = round(period / interval_s) * interval_s
    drift = abs(whole - period) * float(np.ptp(t)) / period
    is_as_good = 0.0 < drift < interval_s and _spread(t, excess, whole) > IN_STEP * _spread(t, excess, period)
    return whole if is_as_good else period


def _spread(t: NDArray[np.float64], excess: NDArray[np.float64], period: float) -> float:
    """The sum of squares of the folded means, each as often as it has values."""
    place, counts = _placed(t, period)
    sums = np.bincount(place, weights=excess, minlength=len(counts))
    return float((sums * sums / np.maximum(counts, 1)).sum())


def _placed(t: NDArray[np.float64], period: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The bin of the period that each time falls into, and how many do."""
    bins = int(max(LEAST_RAMP_BINS + 1, min(PROFILE_BINS, len(t) // LEAST_IN_PROFILE)))
    place = np.minimum((np.mod(t / period, 1.0) * bins).astype(np.int64), bins - 1)
    return place, np.bincount(place, minlength=bins)


def _foot(phase: NDArray[np.float64], excess: NDArray[np.float64]) -> float:
    """Where the line through a ramp begins at nothing, by phase; before the run that stands out, if at all."""
    slope, level = np.polyfit(phase, excess, 1)
    return min(0.0, float(-level / slope)) if slope > 0 else 0.0


def _profile(t: NDArray[np.float64], excess: NDArray[np.float64], period: float) -> NDArray[np.float64]:
    """The mean excess by the phase of a period; where no probe left, that of the probe before.

    Of a period that is a whole number of intervals most phases have no probe.
    """
    place, counts = _placed(t, period)
    means = np.bincount(place, weights=excess, minlength=len(counts)) / np.maximum(counts, 1)
    before = np.where(counts > 0, np.arange(len(counts)), -1)
    before = np.maximum.accumulate(before)
    return np.asarray(means[np.where(before < 0, before[-1], before)])


def _run(profile: NDArray[np.float64]) -> tuple[int, int, int]:
    """The bins from which, about its peak, and before which a profile stands out; the first may be below 0."""
    bins, peak = len(profile), int(profile.argmax())
    above = profile > PROFILE_FOOT * profile[peak]
    first = last = peak
    while last - first < bins - 1 and above[(first - 1) % bins]:
        first -= 1
    while last - first < bins - 1 and above[(last + 1) % bins]:
        last += 1
    return first, peak, last + 1


def _drawn(profile: NDArray[np.float64], first: int, period: float) -> tuple[tuple[float, float], ...]:
    """The profile from a tenth of a period before its beginning on, in at most `DRAWN` points."""
    bins = len(profile)
    turned = np.roll(profile, bins // 10 - first)
    pieces = np.array_split(np.arange(bins), min(bins, DRAWN))
    return tuple((float(one[0]) / bins * period, float(turned[one].mean())) for one in pieces)


def _rises(phase: NDArray[np.float64], values: NDArray[np.float64], until: float) -> bool:
    """Whether values rise with the phase up to so much of it, by ranks."""
    phase, values = phase[phase <= until], values[phase <= until]
    n = len(values)
    if n < LEAST_IN_A_BIN or np.ptp(values) == 0:
        return False
    rho = float(np.corrcoef(mean_ranks(phase), mean_ranks(values))[0, 1])
    t = rho * ((n - 2) / max(1e-12, (1 + rho) * (1 - rho))) ** 0.5
    return rho > RAMP_RHO and float(special.stdtr(n - 2, -t)) < RAMP_P


def _size(part: NDArray[np.float64], excess: NDArray[np.float64], *, ramp: bool) -> float:
    """Of one return: the mean excess, or of a ramp what a line through its beginning comes to at its end."""
    return float((part * excess).sum() / (part * part).sum()) if ramp else float(excess.mean())


def _folded(t: NDArray[np.float64], values: NDArray[np.float64], period: float) -> NDArray[np.float64]:
    """Of each value, what its phase of the period has above the median."""
    place, counts = _placed(t, period)
    levels = np.bincount(place, weights=values - float(np.median(values)), minlength=len(counts))
    return np.asarray((levels / np.maximum(counts, 1))[place], dtype=np.float64)


def _changes(series: Series, values: NDArray[np.float64], chosen: NDArray[np.bool_]) -> Iterator[Anomaly]:
    """Steps, modes, and where there is no step, a drift over the whole series."""
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
    """Modes beyond the fastest: how far each is from that, and the share of the probes about it."""
    modes = find_modes(values)
    borders = [0.0, *((one + other) / 2 for one, other in pairwise(modes)), np.inf]
    for mode, low, high in list(zip(modes, borders[:-1], borders[1:], strict=True))[1:]:
        share = float(((values >= low) & (values < high)).mean())
        yield Anomaly(MODE, Interval(mode - modes[0], None, None, 0.95, len(values)), MODE_P, share=share)
