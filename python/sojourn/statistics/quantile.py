"""Quantiles, spreads and averages of values measured in rounds, with intervals over rounds.

Values of one round share its conditions, so the round is the unit: the spread between rounds determines the interval,
never the number of values. The module does not decide which quantiles a sample allows; callers ask `allowed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from sojourn.statistics.interval import Interval, student_quantile, student_t

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

LEAST_ROUNDS = 4
"""With fewer the spread between rounds is not known well enough for any interval."""


HEAVY_SHARE = 0.05
"""If one value has more of the sum of squares than this, the tail is heavy: the spread has no interval."""


def allowed(p: float, count: int) -> bool:
    """Return whether `count` values determine quantile p: at least ten of them must lie beyond it."""
    return count * min(p, 1 - p) >= 10 - 1e-9


def quantile_by_rounds(
    values: NDArray[np.float64],
    rounds: NDArray[np.int64],
    p: float,
    level: float = 0.95,
    *,
    weights: NDArray[np.float64] | None = None,
) -> Interval:
    """Return quantile p of all values, with Woodruff's interval: from the spread over rounds of the share below it.

    `rounds` numbers the round of each value from 0 without gaps. The share is transformed to log-odds, so that the
    interval stays within the values however close p is to one. A value may be infinite (a lost packet), and each counts
    `weights` times.
    """
    counts = np.ones(len(values)) if weights is None else weights
    return _interval(_Sample.of(values, weights), (values, counts, rounds), p, level)


def quantiles_by_rounds(
    values: NDArray[np.float64], rounds: NDArray[np.int64], wanted: Mapping[str, float], level: float = 0.95
) -> dict[str, Interval]:
    """Return several quantiles, by name: the values are sorted once."""
    sample, counts = _Sample.of(values, None), np.ones(len(values))
    return {name: _interval(sample, (values, counts, rounds), p, level) for name, p in wanted.items()}


def _interval(
    sample: _Sample, of: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]], p: float, level: float
) -> Interval:
    """Return the quantile with its interval, from values, their weights and their rounds."""
    values, counts, rounds = of
    estimate = sample.at(p)
    sizes = np.bincount(rounds, weights=counts)
    n, total = len(sizes), float(counts.sum())
    if n < LEAST_ROUNDS:
        return Interval(estimate, None, None, level, n)
    below = np.bincount(rounds, weights=counts * (values <= estimate), minlength=n)
    residual = below - below.sum() / total * sizes
    variance = n / (n - 1) * float(np.square(residual).sum()) / total**2
    # At least the spread of one value: rounds that agree by chance must not give a width of zero.
    deviation = max(variance**0.5, 1 / total) / (p * (1 - p))
    reach = student_quantile(n - 1, level) * deviation
    odds = float(special.logit(p))
    low, high = (sample.at(float(special.expit(odds + side))) for side in (-reach, reach))
    return Interval(estimate, low, high, level, n)


@dataclass(frozen=True, slots=True)
class _Sample:
    """Finite values in rising order, the cumulative share at the middle of each, and the weight of the infinite
    ones."""

    ordered: NDArray[np.float64]
    below: NDArray[np.float64]
    beyond: float

    @classmethod
    def of(cls, values: NDArray[np.float64], counts: NDArray[np.float64] | None) -> _Sample:
        finite = np.isfinite(values)
        if counts is None:
            ordered = np.sort(values[finite])
            below = (np.arange(len(ordered)) + 0.5) / len(values)
            return cls(ordered, below, float(len(values) - len(ordered)))
        order = np.argsort(values[finite], kind="stable")
        ordered, weight = values[finite][order], counts[finite][order]
        total = float(counts.sum())
        return cls(ordered, (np.cumsum(weight) - weight / 2) / total, float(counts[~finite].sum()))

    def at(self, p: float) -> float:
        """Return Hazen's quantile, infinite where it lies among the infinite values."""
        if not len(self.ordered) or (self.beyond and p > self.below[-1]):
            return float("inf")
        return float(np.interp(p, self.below, self.ordered))


def mean_by_rounds(
    values: NDArray[np.float64],
    rounds: NDArray[np.int64],
    level: float = 0.95,
    *,
    weights: NDArray[np.float64] | None = None,
) -> Interval:
    """Return the average of all values, with Student's interval over the averages of rounds."""
    counts = np.ones(len(values)) if weights is None else weights
    averages = np.bincount(rounds, weights=values * counts) / np.bincount(rounds, weights=counts)
    between = student_t(averages, level)
    average = float(np.average(values, weights=counts))
    if between.low is None or between.high is None:
        return Interval(average, None, None, level, len(averages))
    shift = average - between.estimate
    return Interval(average, between.low + shift, between.high + shift, level, len(averages))


def sd_by_rounds(
    values: NDArray[np.float64],
    rounds: NDArray[np.int64],
    level: float = 0.95,
    *,
    weights: NDArray[np.float64] | None = None,
) -> Interval:
    """Return the standard deviation of all values; its interval is a jackknife over rounds, on a log scale.

    No interval where one value has much of the sum of squares: the tail is then too heavy for a valid interval.
    """
    counts = np.ones(len(values)) if weights is None else weights
    total = float(counts.sum())
    centred = values - np.average(values, weights=counts)
    squares = counts * centred**2
    sd = float((squares.sum() / (total - 1)) ** 0.5) if total > 1 else float("nan")
    sizes = np.bincount(rounds, weights=counts)
    n = len(sizes)
    if n < LEAST_ROUNDS or not sd > 0 or (squares / counts).max() > HEAVY_SHARE * squares.sum():
        return Interval(sd, None, None, level, n)
    sums, per_round = np.bincount(rounds, weights=counts * centred), np.bincount(rounds, weights=squares)
    left, rest, square = total - sizes, sums.sum() - sums, per_round.sum() - per_round
    variance = (square - rest**2 / left) / (left - 1)
    if not np.all(variance > 0):
        return Interval(sd, None, None, level, n)
    logs = np.log(variance) / 2
    deviation = float(((n - 1) / n * np.square(logs - logs.mean()).sum()) ** 0.5)
    factor = float(np.exp(student_quantile(n - 1, level) * deviation))
    return Interval(sd, sd / factor, sd * factor, level, n)
