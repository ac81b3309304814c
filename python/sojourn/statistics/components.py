"""Components of variance of a nested design, and of a factorial one in which each factor is fixed or free.

Both are balanced designs, so the estimates are those of the analysis of variance: linear combinations of independent
mean squares, unbiased, and equal to REML's wherever that is above zero (Searle, Casella and McCulloch, "Variance
Components", 4.8). Their intervals are the modified large-sample ones of Ting, Burdick, Graybill, Jeyaratnam and Gui
(1990, "Confidence intervals on linear combinations of variance components that are unrestricted in sign"), which are
closed formulae. Their term for two mean squares on one side is not divided by the number of others there: with four of
two degrees of freedom each, lower ends were above the truth in 17 % of simulated runs. Profile likelihoods of
non-negative components were rejected for the factorial: where several are zero, they covered the others in 75 % of
simulated runs at 95 %. Effects are assumed normal and additive. The module is independent of what the factors are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Variance:
    """Variances with their intervals, one entry for each data set; chance can make them negative."""

    estimate: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def combine(
    squares: NDArray[np.float64], degrees: NDArray[np.float64], weights: NDArray[np.float64], level: float = 0.95
) -> Variance:
    """Return the weighted sum of independent mean squares (last axis) with its interval; weights have either sign."""
    used = weights != 0
    terms, n = squares[..., used] * np.abs(weights[used]), degrees[used]
    plus, tail = weights[used] > 0, (1 - level) / 2
    estimate = (terms * np.where(plus, 1.0, -1.0)).sum(axis=-1)
    below = _reach(terms, n, plus, tail)
    above = _reach(terms, n, ~plus, tail)
    return Variance(estimate, estimate - below, estimate + above)


def nested(values: NDArray[np.float64], level: float = 0.95) -> tuple[Variance, Variance, Variance]:
    """Return the components between groups, subgroups and repeats of values (..., group, subgroup, repeat)."""
    b, s, r = values.shape[-3:]
    if min(b, s, r) < 2:
        raise ValueError("a nested design has two groups, subgroups and repeats at least")
    means = values.mean(axis=-1)
    squares = np.stack(
        [
            s * r * means.mean(axis=-1).var(axis=-1, ddof=1),
            r * means.var(axis=-1, ddof=1).mean(axis=-1),
            values.var(axis=-1, ddof=1).mean(axis=(-2, -1)),
        ],
        axis=-1,
    )
    degrees = np.array([b - 1, b * (s - 1), b * s * (r - 1)], dtype=np.float64)
    weights = np.array([[1 / (s * r), -1 / (s * r), 0], [0, 1 / r, -1 / r], [0, 0, 1]])
    groups, subgroups, repeats = (combine(squares, degrees, one, level) for one in weights)
    return groups, subgroups, repeats


@dataclass(frozen=True, slots=True)
class Factorial:
    """The weights of the rows' variances for each component; the first is the part that no factor explains."""

    weights: NDArray[np.float64]

    @property
    def total(self) -> NDArray[np.float64]:
        """The weights for the variance with every factor free."""
        return np.asarray(self.weights.sum(axis=0), dtype=np.float64)


def factorial(free: NDArray[np.bool_]) -> Factorial | None:
    """Return the weights for rows in which factors (columns) are free; None where the rows do not separate the
    factors."""
    design = np.column_stack([np.ones(len(free)), free])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    weights = np.linalg.pinv(design)
    return Factorial(np.where(np.abs(weights) < 1e-12, 0.0, weights))


def spreads_more(deviations: NDArray[np.float64], free: NDArray[np.bool_]) -> float:
    """Return the one-sided p, by ranks, that deviations (from their rows' medians) are no larger where a factor is
    free.

    Fligner and Killeen's test: one outlier, which can dominate a variance, is only one rank here.
    """
    ranks = special.ndtri(0.5 + rankdata(np.abs(deviations)) / (2 * (len(deviations) + 1)))
    apart = ranks[free].mean() - ranks[~free].mean()
    error = float(ranks.std(ddof=1)) * (1 / free.sum() + 1 / (~free).sum()) ** 0.5
    return float(special.ndtr(-apart / error)) if error > 0 else 1.0


def rankdata(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ranks from 1; equal values share their mean rank."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[which], dtype=np.float64)


def _reach(
    terms: NDArray[np.float64], n: NDArray[np.float64], near: NDArray[np.bool_], tail: float
) -> NDArray[np.float64]:
    """Return the distance of the interval's end from the estimate, where the `near` terms may be smaller.

    The `near` terms are the added ones for the lower end, the subtracted ones for the upper end.
    """
    g = 1 - n / special.chdtri(n, tail)
    h = n / special.chdtri(n, 1 - tail) - 1
    found = ((np.where(near, g, h) * terms) ** 2).sum(axis=-1)
    inside, outside = np.flatnonzero(near), np.flatnonzero(~near)
    for q in inside:
        for r in outside:
            f = float(special.fdtri(n[q], n[r], 1 - tail))
            factor = ((f - 1) ** 2 - (g[q] * f) ** 2 - h[r] ** 2) / f
            found = found + factor * terms[..., q] * terms[..., r]
    if len(outside):
        for i, q in enumerate(inside):
            for t in inside[i + 1 :]:
                both = n[q] + n[t]
                whole = (1 - both / float(special.chdtri(both, tail))) ** 2 * both**2 / (n[q] * n[t])
                factor = whole - g[q] ** 2 * n[q] / n[t] - g[t] ** 2 * n[t] / n[q]
                found = found + factor * terms[..., q] * terms[..., t]
    return np.asarray(np.sqrt(np.maximum(found, 0.0)), dtype=np.float64)
