"""Test whether slow values recur at equal times: their power at each period, compared with randomly placed slow values.

Finds one period, the strongest. Paths are measured in turn, so the times have gaps. `period` finds what recurs by count
instead of time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sojourn.statistics.period import FALSE_ALARM

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEPS_A_CYCLE = 8
"""Bins of time in the shortest period: the power at the bins' middles is then exact to 5 %."""

NEIGHBOURS = 50
"""Frequencies on either side whose median power a frequency's power is compared with."""

LEAST_RETURNS = 8
"""The least number of cycles in the series: slow random variation easily recurs six times."""

MOST_TRIED = 32

LEAST_HITS = 0.6
"""The least share of the observed cycles that must show the period."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """A recurrence every `seconds`: `cycles` show it, the share `hits` of those observed when it was due.

    `share` of the slow values lie within a third of the cycle.
    """

    seconds: float
    cycles: int
    hits: float
    share: float


def find_cycle(times_s: NDArray[np.float64], slow: NDArray[np.bool_], shortest_s: float) -> Cycle | None:
    """Return the period in time at which slow values recur, from `shortest_s` to an eighth of the observed time, or
    None.

    `times_s` are the times of all values, rising; gaps are allowed, as paths are measured in turn. The reference is
    slow values placed at random among those times: their power at a frequency, over its expectation, is exponential
    (Lomb, 1976; Scargle, 1982) once the spectrum of the observation times is removed. Slow values in bursts have more
    power at all low frequencies; a period must therefore exceed its neighbours as well, and most of its cycles must
    show it.
    """
    m, n = int(slow.sum()), len(slow)
    span = float(times_s[-1] - times_s[0]) if n else 0.0
    if m < LEAST_RETURNS or m > n / 2 or span < LEAST_RETURNS * shortest_s:
        return None
    bin_s = shortest_s / STEPS_A_CYCLE
    power = _power_of_labels(times_s - times_s[0], slow, bin_s)
    step = 1 / (2 * (len(power) - 1) * bin_s)  # step between frequencies; the number of bins is a power of two
    first, last = int(np.ceil(LEAST_RETURNS / span / step)), min(len(power) - 1, int(1 / shortest_s / step))
    known = power[first : last + 1]
    if not len(known) or known.max() < np.log(len(known) / FALSE_ALARM):
        return None
    # Pulses have as much power at multiples of their frequency, and gaps in the observation may add more: of the
    # significant frequencies, choose the one that most cycles show.
    is_peak = np.concatenate(([True], known[1:] >= known[:-1])) & np.concatenate((known[:-1] > known[1:], [True]))
    strong = np.flatnonzero(is_peak & (known > _around(known) * np.log(len(known) / FALSE_ALARM)))
    strongest = strong[np.argsort(known[strong])[::-1][:MOST_TRIED]]
    t = times_s - times_s[0]
    tried = [_confirm_cycle(t, slow, _refined(t[slow], step * (first + int(place)), step)) for place in strongest]
    return max((one for one in tried if one is not None), key=lambda one: one.share * one.hits, default=None)


OVERSAMPLING = 4
"""Frequencies per independent one: a period between two of them loses little power."""


def _power_of_labels(t: NDArray[np.float64], slow: NDArray[np.bool_], bin_s: float) -> NDArray[np.float64]:
    """Return |sum of the labels' phases minus their share of all phases|² over its variance for random labels."""
    bins = (t / bin_s).astype(np.int64)
    size = 1 << int(np.ceil(np.log2(OVERSAMPLING * (int(bins[-1]) + 1))))
    every = np.fft.rfft(np.bincount(bins, minlength=size))
    chosen = np.fft.rfft(np.bincount(bins[slow], minlength=size))
    n, m = len(slow), int(slow.sum())
    window = np.abs(every / n) ** 2
    variance = m * (1 - m / n) * n / (n - 1) * np.maximum(1 - window, 1e-3)
    return np.asarray(np.abs(chosen - m / n * every) ** 2 / variance, dtype=np.float64)


def _around(power: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median power around each frequency, as the mean of an exponential distribution; at least 1."""
    reach = NEIGHBOURS * OVERSAMPLING
    padded = np.pad(power, reach, mode="reflect") if len(power) > reach else np.pad(power, reach, mode="edge")
    step = max(1, reach // 4)
    places = np.arange(0, len(power), step)
    medians = np.array([np.median(padded[place : place + 2 * reach + 1]) for place in places])
    level = np.interp(np.arange(len(power)), places, medians) / np.log(2)
    return np.asarray(np.maximum(1.0, level), dtype=np.float64)


def _refined(events: NDArray[np.float64], frequency: float, step: float) -> float:
    """Return the period near a frequency at which the events are most concentrated: many cycles determine it finely."""
    near = frequency + step * np.linspace(-1, 1, 41)
    few = events[:: max(1, len(events) // 1000)]
    together = np.abs(np.exp(2j * np.pi * np.outer(near, few)).sum(axis=1))
    return float(1 / near[together.argmax()])


def _confirm_cycle(t: NDArray[np.float64], slow: NDArray[np.bool_], period: float) -> Cycle | None:
    """Return the cycle if half of the slow values lie in one third of it, and most observed cycles have one."""
    angle = np.angle(np.exp(2j * np.pi * t[slow] / period).sum())
    off = np.mod(t / period - angle / (2 * np.pi) + 0.5, 1.0) - 0.5
    inside = np.abs(off) < 1 / 6
    share = float(inside[slow].mean())
    if share < 0.5:
        return None
    # A cycle counts as observed if values exist where slow ones are due, not merely near that phase.
    due = np.abs(off) <= np.quantile(np.abs(off[slow & inside]), 0.9)
    number = np.round(t / period - angle / (2 * np.pi)).astype(np.int64)
    looked, hit = np.unique(number[due]), np.unique(number[due & slow])
    if len(hit) < max(LEAST_RETURNS, LEAST_HITS * len(looked)):
        return None
    return Cycle(float(period), len(hit), len(hit) / len(looked), share)
