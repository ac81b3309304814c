"""Find abrupt changes of a series' level: the best splits, compared with the changes elsewhere.

A slow change is no step: the bins just before and after a step must differ as much as the whole parts do. A burst or a
stall is none: a step's size is between medians of bins. Slow noise changes everywhere; a step exceeds it by far.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from numpy.typing import NDArray

BINS = 400
LEAST_IN_A_BIN = 25
LEAST_BINS = 20
"""The least number of bins on either side of a step."""

NEIGHBOURS = 8
"""Bins on either side whose medians give the size of a step, so that no few bins dominate."""

STRENGTH = 7.0
"""The least strength of a split, in standard deviations estimated from neighbouring bins."""

CHANCE = 1e-6
"""The probability of a step in a series without steps, whose noise may be slow."""

SHARP = 0.6
"""The least ratio of a step to the difference of the adjacent parts, and of that difference to the step."""


@dataclass(frozen=True, slots=True)
class Step:
    """From index `at` on the level is higher by `by`, with its standard error and degrees of freedom.

    `p` is the probability that the series' own noise, slow noise included, has one as large at any place.
    """

    at: int
    by: float
    error: float
    degrees: int
    p: float


def binned(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the medians of bins of consecutive values, and the index where each bin begins."""
    bins = max(1, min(BINS, len(values) // LEAST_IN_A_BIN))
    edges = np.linspace(0, len(values), bins + 1).astype(np.int64)
    levels = [float(np.median(values[first:last])) for first, last in pairwise(edges)]
    return np.array(levels), edges[:-1]


def find_steps(values: NDArray[np.float64], least: float) -> list[Step]:
    """Return the steps of a series in order, each of at least `least`."""
    if len(values) < 2 * LEAST_BINS * LEAST_IN_A_BIN:
        return []
    levels, starts = binned(values)
    apart = np.diff(levels)
    # Neighbouring bins differ by scatter alone except at steps, which are few. Equal levels are a clock's ticks.
    scatter = max(1.4826 * float(np.median(np.abs(apart - np.median(apart)))) / 2**0.5, least / STRENGTH)
    places: list[int] = []
    _split(levels, 0, scatter, places)
    places.sort()
    while places:
        steps = [_step(levels, starts, places, which, scatter) for which in range(len(places))]
        refused = [which for which, one in enumerate(steps) if not _stands(levels, places, which, one, least)]
        if not refused:
            return steps
        del places[max(refused, key=lambda which: steps[which].p)]
    return []


def _split(levels: NDArray[np.float64], first: int, scatter: float, places: list[int]) -> None:
    """Append the indexes of the best splits of a part that begins at `first`, and of its parts recursively."""
    n = len(levels)
    if n < 2 * LEAST_BINS:
        return
    before = np.arange(LEAST_BINS, n - LEAST_BINS + 1)
    sums = np.cumsum(levels)[before - 1]
    by = (levels.sum() - sums) / (n - before) - sums / before
    strength = np.abs(by) / (scatter * np.sqrt(1 / before + 1 / (n - before)))
    best = int(strength.argmax())
    if strength[best] < STRENGTH:
        return
    at = int(before[best])
    places.append(first + at)
    _split(levels[:at], first, scatter, places)
    _split(levels[at:], first + at, scatter, places)


def _step(
    levels: NDArray[np.float64], starts: NDArray[np.int64], places: list[int], which: int, scatter: float
) -> Step:
    """Return the step at a place, compared with the changes of level where there is none, such as by slow noise."""
    windows = np.lib.stride_tricks.sliding_window_view(levels, NEIGHBOURS)
    medians = np.median(windows, axis=1)
    changes = medians[NEIGHBOURS:] - medians[:-NEIGHBOURS]  # entry i is at bin i + NEIGHBOURS
    of = np.arange(len(changes)) + NEIGHBOURS
    apart = np.min([np.abs(of - place) for place in places], axis=0) >= NEIGHBOURS
    others = changes[apart] if apart.any() else changes
    middle = float(np.median(others))
    spread = max(float(np.std(others)), 1.25 * scatter * (2 / NEIGHBOURS) ** 0.5)
    degrees = max(2, len(others) // NEIGHBOURS - 1)
    at = places[which]
    by = float(changes[at - NEIGHBOURS]) - middle
    p = min(1.0, 2 * len(levels) * float(special.stdtr(degrees, -abs(by) / spread)))
    return Step(int(starts[at]), by, spread, degrees, p)


def _stands(levels: NDArray[np.float64], places: list[int], which: int, step: Step, least: float) -> bool:
    """Return whether a step exceeds its noise, and is as large as the difference of the parts on its two sides."""
    first, last = ([0, *places, len(levels)][which + offset] for offset in (0, 2))
    parts = float(np.median(levels[places[which] : last]) - np.median(levels[first : places[which]]))
    if step.p > CHANCE or abs(step.by) < least or step.by * parts <= 0:
        return False
    return SHARP <= abs(step.by) / abs(parts) <= 1 / SHARP
