"""Does a series move: rank correlation with time, and the Theil-Sen slope that says how fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLOPES_UP_TO = 400
"""Longer series are averaged in runs to this length first: all pairs of points would be too many."""


@dataclass(frozen=True, slots=True)
class Trend:
    """`slope` per unit of time, `change` over the whole series, `p` that ranks and time are unrelated."""

    slope: float
    change: float
    p: float


def trend(times: NDArray[np.float64], values: NDArray[np.float64]) -> Trend:
    """Theil-Sen's slope of `values` over `times`, and Spearman's test that there is none."""
    n = len(values)
    if n < 8:
        return Trend(0.0, 0.0, 1.0)
    from scipy import stats

    if np.ptp(values) == 0 or np.ptp(times) == 0:
        return Trend(0.0, 0.0, 1.0)
    slope = theil_sen(times, values)
    p = float(stats.spearmanr(times, values).pvalue)
    return Trend(slope, slope * float(np.ptp(times)), p)


def theil_sen(times: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    """The median of the slopes between all pairs of points."""
    from scipy import stats

    if len(values) > SLOPES_UP_TO:
        order = np.argsort(times, kind="stable")
        chunks = np.array_split(order, SLOPES_UP_TO)
        times, values = (
            np.array([times[chunk].mean() for chunk in chunks]),
            np.array([np.median(values[chunk]) for chunk in chunks]),
        )
    return float(stats.theilslopes(values, times).slope) if np.ptp(times) > 0 else 0.0
