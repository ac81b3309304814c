"""Do slow values recur after equal times: their power at each period, held against slow values at random.

Finds one period, the strongest. Values are looked at in turns, so the times have gaps; what recurs by number and not by
time is `period`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sojourn.statistics.period import FALSE_ALARM

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEPS_A_CYCLE = 8
"""Bins of time in the shortest period that is looked for: its power is then that of the bins' middles but for 5 %."""

NEIGHBOURS = 50
"""Frequencies to either side whose median power is what a frequency's own is held against."""

LEAST_RETURNS = 8
"""A period in time must be seen so often: what comes and goes slowly by chance returns six times more easily."""

MOST_TRIED = 32

LEAST_HITS = 0.6
"""Of the cycles in which there was anything to see, this share must show it."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """What recurs every `seconds`: `cycles` show it, which are `hits` of those looked at when it was due.

    `share` of the slow values lie within a third of the cycle.
    """

    seconds: float
    cycles: int
    hits: float
    share: float


def find_cycle(times_s: NDArray[np.float64], slow: NDArray[np.bool_], shortest_s: float) -> Cycle | None:
    """The period in time at which slow values recur, from `shortest_s` to an eighth of the time looked at, or None.

    `times_s` are the times of all values, rising, gaps allowed: a path is looked at in turns with others. Held against
    slow values that are placed at random among those times: their power at a frequency, over its expectation, is
    exponential (Lomb, 1976; Scargle, 1982), where the pattern of the looks themselves is taken off. Slow values that
    come in bursts have more power at all low frequencies; a period must stand above its neighbours as well, and most
    of its cycles must show it.
    """
    m, n = int(slow.sum()), len(slow)
    span = float(times_s[-1] - times_s[0]) if n else 0.0
    if m < LEAST_RETURNS or m > n / 2 or span < LEAST_RETURNS * shortest_s:
        return None
    bin_s = shortest_s / STEPS_A_CYCLE
    power = _power_of_labels(times_s - times_s[0], slow, bin_s)
    step = 1 / (2 * (len(power) - 1) * bin_s)  # from one frequency to the next; the number of bins is a power of two
    first, last = int(np.ceil(LEAST_RETURNS / span / step)), min(len(power) - 1, int(1 / shortest_s / step))
    known = power[first : last + 1]
    if not len(known) or known.max() < np.log(len(known) / FALSE_ALARM):
        return None
    # Pulses have as much power at multiples of their frequency, where the gaps between looks add more: of those that
    # stand out, the one whose cycles show most.
    is_peak = np.concatenate(([True], known[1:] >= known[:-1])) & np.concatenate((known[:-1] > known[1:], [True]))
    strong = np.flatnonzero(is_peak & (known > _around(known) * np.log(len(known) / FALSE_ALARM)))
    strongest = strong[np.argsort(known[strong])[::-1][:MOST_TRIED]]
    t = times_s - times_s[0]
    tried = [_confirm_cycle(t, slow, _refined(t[slow], step * (first + int(place)), step)) for place in strongest]
    return max((one for one in tried if one is not None), key=lambda one: one.share * one.hits, default=None)


OVERSAMPLING = 4
"""Frequencies looked at for each that independent ones would have: a period between two of them loses little."""


def _power_of_labels(t: NDArray[np.float64], slow: NDArray[np.bool_], bin_s: float) -> NDArray[np.float64]:
    """|sum of the labels' phases less their share of all phases|² over its variance for random labels."""
    bins = (t / bin_s).astype(np.int64)
    size = 1 << int(np.ceil(np.log2(OVERSAMPLING * (int(bins[-1]) + 1))))
    every = np.fft.rfft(np.bincount(bins, minlength=size))
    chosen = np.fft.rfft(np.bincount(bins[slow], minlength=size))
    n, m = len(slow), int(slow.sum())
    window = np.abs(every / n) ** 2
    variance = m * (1 - m / n) * n / (n - 1) * np.maximum(1 - window, 1e-3)
    return np.asarray(np.abs(chosen - m / n * every) ** 2 / variance, dtype=np.float64)


def _around(power: NDArray[np.float64]) -> NDArray[np.float64]:
    """The median power about each frequency, as the mean of an exponential distribution; 1 at least."""
    reach = NEIGHBOURS * OVERSAMPLING
    padded = np.pad(power, reach, mode="reflect") if len(power) > reach else np.pad(power, reach, mode="edge")
    step = max(1, reach // 4)
    places = np.arange(0, len(power), step)
    medians = np.array([np.median(padded[place : place + 2 * reach + 1]) for place in places])
    level = np.interp(np.arange(len(power)), places, medians) / np.log(2)
    return np.asarray(np.maximum(1.0, level), dtype=np.float64)


def _refined(events: NDArray[np.float64], frequency: float, step: float) -> float:
    """The period next to a frequency at which the events lie closest together: many cycles tell it finely."""
    near = frequency + step * np.linspace(-1, 1, 41)
    few = events[:: max(1, len(events) // 1000)]
    together = np.abs(np.exp(2j * np.pi * np.outer(near, few)).sum(axis=1))
    return float(1 / near[together.argmax()])


def _confirm_cycle(t: NDArray[np.float64], slow: NDArray[np.bool_], period: float) -> Cycle | None:
    """Whether half of the slow values lie in one third of the cycle, and most cycles that were looked at have one."""
    angle = np.angle(np.exp(2j * np.pi * t[slow] / period).sum())
    off = np.mod(t / period - angle / (2 * np.pi) + 0.5, 1.0) - 0.5
    inside = np.abs(off) < 1 / 6
    share = float(inside[slow].mean())
    if share < 0.5:
        return None
    # A cycle counts as looked at where it was looked at while the slow values were due, not just near to that.
    due = np.abs(off) <= np.quantile(np.abs(off[slow & inside]), 0.9)
    number = np.round(t / period - angle / (2 * np.pi)).astype(np.int64)
    looked, hit = np.unique(number[due]), np.unique(number[due & slow])
    if len(hit) < max(LEAST_RETURNS, LEAST_HITS * len(looked)):
        return None
    return Cycle(float(period), len(hit), len(hit) / len(looked), share)
