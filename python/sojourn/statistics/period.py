"""Test whether every k-th of a long row of values is slow: the phases of slow values, folded at each candidate period.

Finds one period, the strongest. Counts probes, whatever the pauses between them, for a device that delays every k-th
frame; `cycle` finds what recurs at equal times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

FALSE_ALARM = 1e-5
"""The probability that randomly placed slow values look periodic at any candidate period."""

LEAST_CYCLES = 6
"""The least number of cycles: with fewer, a burst would look like a period."""

MOST_EVENTS = 2000
"""Slow values beyond this number are ignored; the first ones suffice."""


@dataclass(frozen=True, slots=True)
class Period:
    """Every `every`-th value is slow; `share` of the slow ones are among them."""

    every: int
    share: float


def find_period(positions: NDArray[np.int64], length: int, longest: int | None = None) -> Period | None:
    """Return the period of the events at `positions` (counted from 0, rising) within `length` values, or None."""
    events = np.asarray(positions[:MOST_EVENTS], dtype=np.int64)
    m = len(events)
    if m < LEAST_CYCLES or m > length / 2:
        return None
    span = int(events[-1] - events[0]) + 1
    longest = min(longest or span, span // LEAST_CYCLES)
    candidates = np.arange(2, longest + 1)
    if len(candidates) == 0:
        return None
    strength = np.array([_concentration(events, int(k)) for k in candidates])
    if strength.max() ** 2 * m < np.log(len(candidates) / FALSE_ALARM):
        return None
    # Divisors of a period are as strong as the period: the longest strong candidate is the period.
    strong = candidates[strength >= 0.9 * strength.max()]
    for k in strong[::-1]:
        found = _confirm(events, int(k))
        if found is not None:
            return found
    return None


def slow_ones(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which values are outliers: above the median by more than eight times the spread of the lower half."""
    median = np.median(values)
    spread = float(median - np.quantile(values, 0.1)) / 1.2816
    return np.asarray(values > median + 8 * max(spread, 1e-9, abs(float(median)) * 1e-3), dtype=np.bool_)


def _concentration(events: NDArray[np.int64], period: int) -> float:
    angle = 2 * np.pi * (events % period) / period
    return float(np.hypot(np.cos(angle).sum(), np.sin(angle).sum())) / len(events)


def _confirm(events: NDArray[np.int64], period: int) -> Period | None:
    """Return the period if its phase has an event in nearly every cycle."""
    phase = np.bincount(events % period, minlength=period)
    peak = int(phase.argmax())
    on_phase = events[events % period == peak]
    cycles = (int(events[-1]) - int(events[0])) // period + 1
    share = len(on_phase) / len(events)
    if share < 0.5 or len(on_phase) < max(LEAST_CYCLES, 0.6 * cycles):
        return None
    return Period(period, share)
