"""Where does the level of a series change at once: the best split, again and again, held against neighbouring bins.

A slow change is no step: the bins just before and behind one must lie apart as the whole parts do.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BINS = 400
LEAST_IN_A_BIN = 25
LEAST_BINS = 20
"""On either side of a step."""

NEIGHBOURS = 8
STRENGTH = 7.0
"""Of the split, in standard deviations; of neighbouring bins, `STRENGTH_BESIDE`."""

STRENGTH_BESIDE = 5.0
SHARP = 0.6
"""Neighbouring bins differ by this share of what the parts differ by, at least."""


@dataclass(frozen=True, slots=True)
class Step:
    """From `at` on (the place of a value) the level is higher by `by`, with its standard error and degrees."""

    at: int
    by: float
    error: float
    degrees: int


def binned(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The medians of bins of values that follow each other, and where each bin begins."""
    bins = max(1, min(BINS, len(values) // LEAST_IN_A_BIN))
    edges = np.linspace(0, len(values), bins + 1).astype(np.int64)
    levels = [float(np.median(values[first:last])) for first, last in pairwise(edges)]
    return np.array(levels), edges[:-1]


def find_steps(values: NDArray[np.float64], least: float) -> list[Step]:
    """The steps of a series in their order, each by `least` or more."""
    if len(values) < 2 * LEAST_BINS * LEAST_IN_A_BIN:
        return []
    levels, starts = binned(values)
    apart = np.diff(levels)
    # Neighbouring bins differ by scatter alone but for steps, which are few. Equal levels are a clock's ticks.
    scatter = max(1.4826 * float(np.median(np.abs(apart - np.median(apart)))) / 2**0.5, least / STRENGTH)
    found: list[Step] = []
    _split(levels, starts, scatter, least, found)
    return sorted(found, key=lambda one: one.at)


def _split(
    levels: NDArray[np.float64], starts: NDArray[np.int64], scatter: float, least: float, found: list[Step]
) -> None:
    n = len(levels)
    if n < 2 * LEAST_BINS:
        return
    before = np.arange(LEAST_BINS, n - LEAST_BINS + 1)
    sums = np.cumsum(levels)[before - 1]
    by = (levels.sum() - sums) / (n - before) - sums / before
    strength = np.abs(by) / (scatter * np.sqrt(1 / before + 1 / (n - before)))
    best = int(strength.argmax())
    at = int(before[best])
    beside = levels[at : at + NEIGHBOURS].mean() - levels[at - NEIGHBOURS : at].mean()
    near = abs(beside) / (scatter * (2 / NEIGHBOURS) ** 0.5)
    if strength[best] < STRENGTH or near < STRENGTH_BESIDE or abs(beside) < max(least, SHARP * abs(by[best])):
        return
    found.append(Step(int(starts[at]), float(beside), scatter * (2 / NEIGHBOURS) ** 0.5, 2 * NEIGHBOURS - 2))
    _split(levels[:at], starts[:at], scatter, least, found)
    _split(levels[at:], starts[at:], scatter, least, found)
