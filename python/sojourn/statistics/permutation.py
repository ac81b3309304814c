"""Test whether two paths differ, each measured once in each round: signs are flipped round by round.

Samples within one trial depend on each other, so only whole trials are exchanged, and only within their round: a drift
of the machine, or anything common to a trial's samples, is then attributed to no path. The probability is exact: over
every flip if rounds are few, else over random ones. Distributions are compared as curves on one grid, one per trial, so
that a flip is a sum with other signs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

EXACT_UP_TO = 13
"""The most rounds for exact enumeration; beyond, flips are drawn at random."""

DRAWN = 20_000
GRID = 400
TIE = 1e-12


@dataclass(frozen=True, slots=True)
class Apart:
    """The distance of two paths' pooled distributions, and its probability by chance."""

    kolmogorov: float
    kolmogorov_p: float
    energy: float
    """Twice the integral of the squared difference of the distribution functions, in the unit of the values."""
    energy_p: float
    rounds: int


def flips(rounds: int, seed: int = 1) -> NDArray[np.float64]:
    """Return one row of signs per flip; the first is the original assignment."""
    if rounds <= EXACT_UP_TO:
        codes = np.arange(2**rounds)[:, None] >> np.arange(rounds)
        return np.where(codes & 1, -1.0, 1.0)
    drawn = np.random.default_rng(seed).integers(0, 2, (DRAWN, rounds)) * 2.0 - 1.0
    drawn[0] = 1.0
    return np.asarray(drawn, dtype=np.float64)


def paired_p(differences: NDArray[np.float64], seed: int = 1) -> float:
    """Return the two-sided probability of a mean difference at least this large if the paths do not differ."""
    sums = np.abs(flips(len(differences), seed) @ differences)
    return _chance(sums)


def apart(first: Sequence[NDArray[np.float64]], second: Sequence[NDArray[np.float64]], seed: int = 1) -> Apart:
    """Compare the paths' distributions, with a sample of each round in both; rounds have equal weight."""
    rounds = len(first)
    low, high, widths, grid = _grid([*first, *second])
    if not high > low:
        return Apart(0.0, 1.0, 0.0, 1.0, rounds)
    difference = np.array([_shares(a, grid) - _shares(b, grid) for a, b in zip(first, second, strict=True)])
    signed = flips(rounds, seed) @ difference / rounds
    kolmogorov = np.abs(signed).max(axis=1)
    energy = 2.0 * np.square(signed) @ widths
    return Apart(float(kolmogorov[0]), _chance(kolmogorov), float(energy[0]), _chance(energy), rounds)


def least_p(rounds: int) -> float:
    """Return the least p that this many rounds can give: the all-opposite signs count too."""
    return 2.0 / 2**rounds if rounds <= EXACT_UP_TO else 1.0 / DRAWN


def holm(chances: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number (Holm): the probability of any false rejection is at most each
    value."""
    order = np.argsort(chances)
    adjusted = np.empty(len(chances))
    worst = 0.0
    for place, index in enumerate(order):
        worst = max(worst, (len(chances) - place) * float(chances[index]))
        adjusted[index] = min(1.0, worst)
    return [float(one) for one in adjusted]


def _chance(statistic: NDArray[np.float64]) -> float:
    return float((statistic >= statistic[0] * (1 - TIE) - 1e-300).mean())


def _grid(samples: Sequence[NDArray[np.float64]]) -> tuple[float, float, NDArray[np.float64], NDArray[np.float64]]:
    """Return the grid of all curves: quantiles of all samples, so that each point is near data."""
    every = np.concatenate(samples)
    grid = np.unique(np.quantile(every, np.linspace(0, 1, GRID)))
    return float(grid[0]), float(grid[-1]), np.diff(grid, append=grid[-1]), grid


def _shares(sample: NDArray[np.float64], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.searchsorted(np.sort(sample), grid, side="right") / max(1, len(sample)))
