"""Is every k-th of a long row of values slow: the phase of the slow ones folded at every candidate period.

Finds one period, the strongest. It counts probes, whatever the pauses between them, as a device does that holds every
k-th frame; what recurs after equal times is `cycle`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

FALSE_ALARM = 1e-5
"""The chance that randomly placed slow values look periodic at any of the candidate periods."""

LEAST_CYCLES = 6
"""A period must be seen in this many cycles, or a burst would look like one."""

MOST_EVENTS = 2000
"""More slow values than this are thinned from the end; the first ones already decide."""


@dataclass(frozen=True, slots=True)
class Period:
    """Every `every`-th value is slow; `share` of the slow ones lie on it."""

    every: int
    share: float


def find_period(positions: NDArray[np.int64], length: int, longest: int | None = None) -> Period | None:
    """The period of the events at `positions` (counted from 0, rising) within `length` places, or None."""
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
    # The divisors of a period concentrate as well as itself: the longest strong one is the period.
    strong = candidates[strength >= 0.9 * strength.max()]
    for k in strong[::-1]:
        found = _confirm(events, int(k))
        if found is not None:
            return found
    return None


def slow_ones(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which values stand far above the rest: over the median by eight times the spread of the lower half."""
    median = np.median(values)
    spread = float(median - np.quantile(values, 0.1)) / 1.2816
    return np.asarray(values > median + 8 * max(spread, 1e-9, abs(float(median)) * 1e-3), dtype=np.bool_)


def _concentration(events: NDArray[np.int64], period: int) -> float:
    angle = 2 * np.pi * (events % period) / period
    return float(np.hypot(np.cos(angle).sum(), np.sin(angle).sum())) / len(events)


def _confirm(events: NDArray[np.int64], period: int) -> Period | None:
    """A true period hits nearly every cycle with its own phase, once."""
    phase = np.bincount(events % period, minlength=period)
    peak = int(phase.argmax())
    on_phase = events[events % period == peak]
    cycles = (int(events[-1]) - int(events[0])) // period + 1
    share = len(on_phase) / len(events)
    if share < 0.5 or len(on_phase) < max(LEAST_CYCLES, 0.6 * cycles):
        return None
    return Period(period, share)
