"""Straight lines per round: slope, intercept and residuals, with intervals over rounds.

A line is fitted to every round, and Hodges-Lehmann intervals are taken over the rounds (they have their nominal
coverage, where a cluster bootstrap covers 90 %). Where rows are sessions, which are few and already averages of rounds,
Student's t is used. Deviations test both hypotheses: a + b*size (deviations from a line) and independence of rate
(deviations from a constant).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from sojourn.statistics.signed_rank import hodges_lehmann

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.statistics.interval import Interval


Over = Callable[["NDArray[np.float64]", float], "Interval"]
"""The estimator of an interval from the values of rows, at a level."""


@dataclass(frozen=True, slots=True)
class Line:
    """Slope and intercept over rounds, and those of every round."""

    intercept: Interval
    slope: Interval
    intercepts: NDArray[np.float64]
    slopes: NDArray[np.float64]
    over: Over = hodges_lehmann

    def band(self, x: NDArray[np.float64], level: float = 0.95) -> list[Interval]:
        """Return the line's height at each x with its (pointwise) interval."""
        return [self.over(self.intercepts + self.slopes * at, level) for at in x]


def fit(x: NDArray[np.float64], y: NDArray[np.float64], level: float = 0.95, over: Over = hodges_lehmann) -> Line:
    """Fit a line to each row of `y` (rounds by sizes) over `x` (at least two distinct values) by least squares."""
    centre = x.mean()
    slopes = (y - y.mean(axis=1, keepdims=True)) @ (x - centre) / np.square(x - centre).sum()
    intercepts = y.mean(axis=1) - slopes * centre
    return Line(over(intercepts, level), over(slopes, level), intercepts, slopes, over)


@dataclass(frozen=True, slots=True)
class Deviations:
    """The residuals at each level of the factor: simultaneous intervals, and one p for all."""

    each: list[Interval]
    p: float | None

    @property
    def largest(self) -> Interval:
        """The deviation farthest from zero."""
        return max(self.each, key=lambda one: abs(one.estimate))

    def lie_within(self, margin: float) -> bool:
        """Return whether every interval lies within ± margin."""
        return bool(self.each) and all(
            one.low is not None and one.high is not None and max(-one.low, one.high) <= margin for one in self.each
        )

    def beyond(self, margin: float) -> Interval | None:
        """Return the largest deviation whose whole interval lies beyond ± margin, or None."""
        return max(
            (
                one
                for one in self.each
                if one.low is not None and one.high is not None and max(one.low, -one.high) > margin
            ),
            key=lambda one: abs(one.estimate),
            default=None,
        )


def deviations(
    x: NDArray[np.float64] | None, y: NDArray[np.float64], level: float = 0.95, over: Over = hodges_lehmann
) -> Deviations:
    """Return deviations of the rows of `y` (rounds by levels) from a line over `x`, or from a constant if `x` is None.

    The intervals are Bonferroni's over the levels; p is Hotelling's test that all deviations are zero on average.
    """
    columns = y.shape[1]
    model = np.ones((columns, 1)) if x is None else np.column_stack([np.ones(columns), x - np.mean(x)])
    basis, _ = np.linalg.qr(model, mode="complete")
    contrasts = basis[:, model.shape[1] :]
    scores = y @ contrasts
    residuals = scores @ contrasts.T
    together = 1 - (1 - level) / columns
    return Deviations([over(column, together) for column in residuals.T], hotelling(scores))


def hotelling(scores: NDArray[np.float64]) -> float | None:
    """Return p of Hotelling's T² that the rows of `scores` have mean zero; None with too few rows or no spread."""
    n, k = scores.shape
    if k == 0 or n <= k + 1:
        return None
    covariance = np.atleast_2d(np.cov(scores, rowvar=False))
    if np.linalg.matrix_rank(covariance) < k:
        return None
    mean = scores.mean(axis=0)
    t_squared = n * float(mean @ np.linalg.solve(covariance, mean))
    return float(special.fdtrc(k, n - k, (n - k) / (k * (n - 1)) * t_squared))
