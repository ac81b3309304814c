"""Anderson and Darling's test that numbers come from a distribution: a fully specified one, or an exponential one.

The p of a fully specified one is Marsaglia and Marsaglia's (Journal of Statistical Software 9 (2), 2004): the limiting
distribution and the correction for few numbers, accurate to about 1e-6. That of an exponential one, whose mean is
estimated, is Stephens' (D'Agostino and Stephens, "Goodness-of-Fit Techniques", 1986, table 4.11 and after), as in the
instrument's own test of its streams. Numbers must be independent and the distribution continuous.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST = 1e-15
"""Probabilities are clipped to this distance from 0 and 1: an impossible value must not make the statistic infinite."""

LEAST_GAPS = 8
"""Fewer times between events are not tested for an exponential distribution."""

LEAST_GAP_NS = 0.5
"""The value that stands for a time of 0: times are whole nanoseconds."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The statistic A squared, and the probability of one at least as large under the distribution."""

    statistic: float
    p: float
    n: int


def anderson_darling(u: NDArray[np.float64]) -> Fit:
    """Test whether these probabilities (each number's cumulative probability) are uniform between 0 and 1."""
    n = len(u)
    if not n:
        return Fit(float("nan"), float("nan"), 0)
    ordered = np.clip(np.sort(u), LEAST, 1 - LEAST)
    weights = 2 * np.arange(1, n + 1) - 1
    a2 = -n - float(np.dot(weights, np.log(ordered) + np.log1p(-ordered[::-1]))) / n
    return Fit(a2, 1 - probability(a2, n), n)


def exponential(gaps_ns: NDArray[np.float64]) -> Fit | None:
    """Test whether these times are exponentially distributed, with any mean; None of too few. A squared is not
    modified."""
    n, mean = len(gaps_ns), float(gaps_ns.mean()) if len(gaps_ns) else 0.0
    if n < LEAST_GAPS or not mean > 0:
        return None
    scaled = np.maximum(np.sort(gaps_ns), LEAST_GAP_NS) / mean
    weights = 2 * np.arange(1, n + 1) - 1
    a2 = -n - float(np.dot(weights, np.log(-np.expm1(-scaled)) - scaled[::-1])) / n
    return Fit(a2, _exponential_p(a2 * (1 + 0.6 / n)), n)


def _exponential_p(z: float) -> float:
    """Return Stephens' p of the modified statistic; beyond the range of the last formula it is 0."""
    if z >= 10.03:
        return 0.0
    if z < 0.26:
        return 1 - math.exp(-12.2204 + 67.459 * z - 110.3 * z * z)
    if z < 0.51:
        return 1 - math.exp(-6.1327 + 20.218 * z - 18.663 * z * z)
    if z < 0.95:
        return math.exp(0.9209 - 3.353 * z + 0.3 * z * z)
    return math.exp(0.731 - 3.009 * z + 0.15 * z * z)


def probability(a2: float, n: int) -> float:
    """Return the probability that the statistic of n numbers is below `a2`."""
    limiting = _limit(a2)
    return min(1.0, max(0.0, limiting + _correction(n, limiting)))


def _limit(z: float) -> float:
    """Return the limiting distribution, in the two pieces of Marsaglia and Marsaglia."""
    if z <= 0:
        return 0.0
    if z < 2:
        series = 2.00012 + (0.247105 - (0.0649821 - (0.0347962 - (0.011672 - 0.00168691 * z) * z) * z) * z) * z
        return math.exp(-1.2337141 / z) / math.sqrt(z) * series
    series = 1.0776 - (2.30695 - (0.43424 - (0.082433 - (0.008056 - 0.0003146 * z) * z) * z) * z) * z
    return math.exp(-math.exp(series))


def _correction(n: int, x: float) -> float:
    """Return the correction for n numbers."""
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
