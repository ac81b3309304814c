"""Anderson and Darling's test that numbers come from a fully specified distribution.

The p is Marsaglia and Marsaglia's (Journal of Statistical Software 9 (2), 2004): the limiting distribution and the
correction for few numbers, good to about 1e-6. Numbers must be independent and the distribution continuous.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST = 1e-15
"""A probability of 0 or 1 is drawn in by this: one impossible value must not make the statistic infinite."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The statistic A squared, and how likely as large a one is where the distribution is the true one."""

    statistic: float
    p: float
    n: int


def anderson_darling(u: NDArray[np.float64]) -> Fit:
    """Are these probabilities (each number's place in its distribution) uniform between 0 and 1."""
    n = len(u)
    if not n:
        return Fit(float("nan"), float("nan"), 0)
    ordered = np.clip(np.sort(u), LEAST, 1 - LEAST)
    weights = 2 * np.arange(1, n + 1) - 1
    a2 = -n - float(np.dot(weights, np.log(ordered) + np.log1p(-ordered[::-1]))) / n
    return Fit(a2, 1 - probability(a2, n), n)


def probability(a2: float, n: int) -> float:
    """How likely the statistic of n numbers is below `a2`."""
    limiting = _limit(a2)
    return min(1.0, max(0.0, limiting + _correction(n, limiting)))


def _limit(z: float) -> float:
    """The limiting distribution, in the two pieces of Marsaglia and Marsaglia."""
    if z <= 0:
        return 0.0
    if z < 2:
        series = 2.00012 + (0.247105 - (0.0649821 - (0.0347962 - (0.011672 - 0.00168691 * z) * z) * z) * z) * z
        return math.exp(-1.2337141 / z) / math.sqrt(z) * series
    series = 1.0776 - (2.30695 - (0.43424 - (0.082433 - (0.008056 - 0.0003146 * z) * z) * z) * z) * z
    return math.exp(-math.exp(series))


def _correction(n: int, x: float) -> float:
    """What is to be added for n numbers."""
    if x > 0.8:
        series = -130.2137 + (745.2337 - (1705.091 - (1950.646 - (1116.360 - 255.7844 * x) * x) * x) * x) * x
        return series / n
    edge = 0.01265 + 0.1757 / n
    if x < edge:
        t = x / edge
        t = math.sqrt(t) * (1 - t) * (49 * t - 102)
        return t * (0.0037 / n**2 + 0.00078 / n + 0.00006) / n
    t = (x - edge) / (0.8 - edge)
    t = -0.00022633 + (6.54034 - (14.6538 - (14.458 - (8.259 - 1.91864 * t) * t) * t) * t) * t
    return t * (0.04213 + 0.01365 / n) / n
