"""Quantiles, spreads and averages of values that come in rounds, with intervals that respect the rounds.

Values of one round share that round's luck, so the round is the unit: the spread between rounds makes the interval,
never the number of values. It does not decide which quantiles a sample allows: `allowed` says it, callers obey.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from sojourn.analysis.statistics.interval import Interval, student_quantile, student_t

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_ROUNDS = 4
"""Below this the spread between rounds is not known well enough for any interval."""


HEAVY_SHARE = 0.05
"""One value with more of the sum of squares than this is a heavy tail's: spreads of such samples have no interval."""


def allowed(p: float, count: int) -> bool:
    """Whether `count` values say anything about quantile p: ten of them must lie beyond it."""
    return count * min(p, 1 - p) >= 10 - 1e-9


def quantile_by_rounds(
    values: NDArray[np.float64], rounds: NDArray[np.int64], p: float, level: float = 0.95
) -> Interval:
    """Quantile p of all values, with Woodruff's interval: the share below it, its spread over rounds, and back.

    `rounds` numbers the round of each value from 0 without gaps. The share is handled as a log-odds, so that the
    interval stays within the values however near p is to one.
    """
    ordered = np.sort(values)
    estimate = float(np.quantile(ordered, p, method="hazen"))
    sizes = np.bincount(rounds)
    n = len(sizes)
    if n < LEAST_ROUNDS:
        return Interval(estimate, None, None, level, n)
    below = np.bincount(rounds, weights=values <= estimate, minlength=n)
    residual = below - below.sum() / sizes.sum() * sizes
    variance = n / (n - 1) * float(np.square(residual).sum()) / float(sizes.sum()) ** 2
    # At least one value's worth of spread: rounds that agree by chance must not give a width of zero.
    deviation = max(variance**0.5, 1 / len(values)) / (p * (1 - p))
    reach = student_quantile(n - 1, level) * deviation
    odds = float(special.logit(p))
    low, high = np.quantile(ordered, special.expit(np.array([odds - reach, odds + reach])), method="hazen")
    return Interval(estimate, float(low), float(high), level, n)


def mean_by_rounds(values: NDArray[np.float64], rounds: NDArray[np.int64], level: float = 0.95) -> Interval:
    """The plain average of all values, with Student's interval over the averages of rounds."""
    sizes = np.bincount(rounds)
    averages = np.bincount(rounds, weights=values) / sizes
    between = student_t(averages, level)
    average = float(np.mean(values))
    if between.low is None or between.high is None:
        return Interval(average, None, None, level, len(sizes))
    shift = average - between.estimate
    return Interval(average, between.low + shift, between.high + shift, level, len(sizes))


def sd_by_rounds(values: NDArray[np.float64], rounds: NDArray[np.int64], level: float = 0.95) -> Interval:
    """The standard deviation of all values, its interval by leaving out one round after the other, on a log scale.

    No interval where one value holds much of the sum of squares: the tail is then too heavy for any to be honest.
    """
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
    sizes = np.bincount(rounds)
    n = len(sizes)
    if n < LEAST_ROUNDS or not sd > 0:
        return Interval(sd, None, None, level, n)
    centred = values - values.mean()
    if np.square(centred).max() > HEAVY_SHARE * np.square(centred).sum():
        return Interval(sd, None, None, level, n)
    sums, squares = np.bincount(rounds, weights=centred), np.bincount(rounds, weights=centred**2)
    left, total, square = len(values) - sizes, sums.sum() - sums, squares.sum() - squares
    variance = (square - total**2 / left) / (left - 1)
    if not np.all(variance > 0):
        return Interval(sd, None, None, level, n)
    logs = np.log(variance) / 2
    deviation = float(((n - 1) / n * np.square(logs - logs.mean()).sum()) ** 0.5)
    factor = float(np.exp(student_quantile(n - 1, level) * deviation))
    return Interval(sd, sd / factor, sd * factor, level, n)
