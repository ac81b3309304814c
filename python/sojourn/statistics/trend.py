"""Test whether a series has a trend: rank correlation with time, and the Theil-Sen slope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from sojourn.statistics.ranks import mean_ranks

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLOPES_UP_TO = 400
"""Longer series are first reduced to this number of points: all pairs would be too many."""


@dataclass(frozen=True, slots=True)
class Trend:
    """`slope` per unit of time, `change` over the whole series, `p` that ranks and time are unrelated."""

    slope: float
    change: float
    p: float


def trend(times: NDArray[np.float64], values: NDArray[np.float64]) -> Trend:
    """Return Theil-Sen's slope of `values` over `times`, and Spearman's test that there is none."""
    n = len(values)
    if n < 8:
        return Trend(0.0, 0.0, 1.0)
    if np.ptp(values) == 0 or np.ptp(times) == 0:
        return Trend(0.0, 0.0, 1.0)
    slope = theil_sen(times, values)
    return Trend(slope, slope * float(np.ptp(times)), _spearman_p(times, values))


def theil_sen(times: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    """Return the median of the slopes between all pairs of points."""
    if len(values) > SLOPES_UP_TO:
        order = np.argsort(times, kind="stable")
        chunks = np.array_split(order, SLOPES_UP_TO)
        times, values = (
            np.array([times[chunk].mean() for chunk in chunks]),
            np.array([np.median(values[chunk]) for chunk in chunks]),
        )
    first, second = np.triu_indices(len(values), 1)
    apart = times[second] - times[first]
    differ = apart != 0
    return float(np.median((values[second] - values[first])[differ] / apart[differ])) if differ.any() else 0.0


def _spearman_p(times: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    """Return the two-sided p of no rank correlation, by Student's t."""
    correlation = float(np.corrcoef(mean_ranks(times), mean_ranks(values))[0, 1])
    freedom = len(values) - 2
    unexplained = max((1 + correlation) * (1 - correlation), 0.0)
    t = abs(correlation) * (freedom / unexplained) ** 0.5 if unexplained else np.inf
    return float(2 * special.stdtr(freedom, -t))
