"""Does a series move: rank correlation with time, and the Theil-Sen slope that says how fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

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
    order = np.argsort(times, kind="stable")
    t, v = times[order], values[order]
    ranks = np.argsort(np.argsort(v, kind="stable"), kind="stable")
    rho = float(np.corrcoef(np.arange(n), ranks)[0, 1])
    p = _correlation_p(rho, n)
    slope = theil_sen(t, v)
    return Trend(slope, slope * float(t[-1] - t[0]), p)


def theil_sen(times: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    """The median of the slopes between all pairs of points."""
    if len(values) > SLOPES_UP_TO:
        chunks = np.array_split(np.arange(len(values)), SLOPES_UP_TO)
        times = np.array([times[chunk].mean() for chunk in chunks])
        values = np.array([np.median(values[chunk]) for chunk in chunks])
    first, second = np.triu_indices(len(values), 1)
    apart = times[second] - times[first]
    usable = apart > 0
    if not usable.any():
        return 0.0
    return float(np.median((values[second] - values[first])[usable] / apart[usable]))


def _correlation_p(rho: float, n: int) -> float:
    if abs(rho) >= 1:
        return 0.0
    t = abs(rho) * ((n - 2) / (1 - rho * rho)) ** 0.5
    return float(2 * special.stdtr(n - 2, -t))
