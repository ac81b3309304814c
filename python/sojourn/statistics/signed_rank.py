"""Hodges-Lehmann estimate with the exact Wilcoxon signed-rank interval: the estimator for differences over pairs.

It is valid for any noise distribution, as long as the differences are independent and symmetric about the true value,
and one outlier does not move it. For skewed differences it estimates their pseudomedian, not their mean: pairs of block
means are nearly symmetric unless the device itself has a tail so heavy that single probes dominate a block (with Pareto
tails of shape 2.5 the interval still covers the mean, with shape 2 and many pairs it does not).

It hides the exact distribution of the signed-rank sum and the selection of Walsh averages among many pairs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

EXACT_UP_TO = 200
"""Above this the normal approximation of the rank sum errs by less than 0.0005 in level."""

WALSH_UP_TO = 1500
"""Above this the Walsh averages (n²/2 of them) are counted instead of stored."""


def hodges_lehmann(differences: NDArray[np.float64], level: float = 0.95) -> Interval:
    """Return the pseudomedian of `differences` and its interval of at least `level`; the interval's level is the exact
    one.

    Where too few pairs allow an interval of this level (n < 6 at 0.95, n < 11 at 0.999), low and high are None and the
    level is the requested one.
    """
    d = np.sort(np.asarray(differences, dtype=np.float64))
    n = len(d)
    if n == 0:
        return Interval(float("nan"), None, None, level, 0)
    k, exact = critical_rank(n, level)
    if n > WALSH_UP_TO:
        return _from_counts(d, k, exact)
    walsh = np.sort(((d[:, None] + d[None, :]) / 2)[np.triu_indices(n)])
    estimate = float(np.median(walsh))
    if k < 0:
        return Interval(estimate, None, None, level, n)
    return Interval(estimate, float(walsh[k]), float(walsh[-1 - k]), exact, n)


def critical_rank(n: int, level: float) -> tuple[int, float]:
    """Return the number of Walsh averages outside the interval on each side (-1: no interval), and the exact level."""
    tail = (1 - level) / 2
    if n > EXACT_UP_TO:
        mean, sd = n * (n + 1) / 4, (n * (n + 1) * (2 * n + 1) / 24) ** 0.5
        k = int(np.floor(mean + sd * float(special.ndtri(tail)) - 0.5))
        return k, float(1 - 2 * special.ndtr((k + 0.5 - mean) / sd))
    cdf = signed_rank_cdf(n)
    # Slightly above the tail, so that rounding does not exclude an exact level (multiples of 1/2ⁿ).
    k = int(np.searchsorted(cdf, tail * (1 + 1e-12), side="right")) - 1
    return k, level if k < 0 else float(1 - 2 * cdf[k])


@lru_cache(maxsize=256)
def signed_rank_cdf(n: int) -> NDArray[np.float64]:
    """Return P(T ≤ k) for the signed-rank sum T of n pairs, k = 0 … n(n+1)/2, under symmetry about zero."""
    chance = np.zeros(n * (n + 1) // 2 + 1)
    chance[0] = 1.0
    for rank in range(1, n + 1):
        chance[rank:] = (chance[rank:] + chance[:-rank]) / 2
        chance[:rank] /= 2
    return np.cumsum(chance)


def least_pairs(level: float) -> int:
    """Return the least number of pairs for which an interval of `level` exists."""
    return int(np.ceil(np.log2(2 / (1 - level)) - 1e-9))


def _from_counts(ordered: NDArray[np.float64], k: int, exact: float) -> Interval:
    n = len(ordered)
    total = n * (n + 1) // 2
    middle = (_walsh_at(ordered, (total - 1) // 2) + _walsh_at(ordered, total // 2)) / 2
    return Interval(middle, _walsh_at(ordered, k), _walsh_at(ordered, total - 1 - k), exact, n)


def _walsh_at(ordered: NDArray[np.float64], index: int) -> float:
    """Return the Walsh average of rank `index` (from 0), by bisection on the number of averages at or below a value."""
    low, high = float(ordered[0]), float(ordered[-1])
    while True:
        middle = (low + high) / 2
        if not low < middle < high:
            return low if _walsh_up_to(ordered, low) > index else high
        if _walsh_up_to(ordered, middle) > index:
            high = middle
        else:
            low = middle


def _walsh_up_to(ordered: NDArray[np.float64], value: float) -> int:
    partners = np.searchsorted(ordered, 2 * value - ordered, side="right")
    alone = int(np.searchsorted(ordered, value, side="right"))
    return (int(partners.sum()) + alone) // 2
