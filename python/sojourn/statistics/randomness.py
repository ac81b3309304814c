"""Tests whether a series of losses (or of numbers) is without memory: runs, run lengths, autocorrelation.

Several rows (trials) are tested together; nothing is assumed about the time between two of them, so that neither a run
cut by a trial's end nor its first run biases the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from sojourn.statistics.interval import Interval, student_quantile
from sojourn.statistics.rare import runs_p, shuffled_p

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

LEAST_EXPECTED = 5.0
"""Ages of runs are pooled until the variance expected of their ends reaches this."""

MOST_AGE = 100_000


@dataclass(frozen=True, slots=True)
class Test:
    """A statistic, its expectation, its p (two-sided, or of values at least as large), and the number of values."""

    statistic: float
    expected: float
    p: float
    n: int


def runs_test(rows: Sequence[NDArray[np.bool_]]) -> Test:
    """Test by Wald and Wolfowitz whether there are as many runs as in a shuffled row."""
    runs = expected = variance = 0.0
    total = 0
    for row in rows:
        n, ones = len(row), int(row.sum())
        if n < 2 or ones in (0, n):
            continue
        pairs = 2.0 * ones * (n - ones)
        runs += 1 + int((row[1:] != row[:-1]).sum())
        expected += 1 + pairs / n
        variance += pairs * (pairs - n) / (n**2 * (n - 1))
        total += n
    if variance <= 0:
        return Test(runs, expected, float("nan"), total)
    exact = runs_p(rows, int(runs))
    p = two_sided((runs - expected) / variance**0.5) if exact is None else exact
    return Test(runs, expected, p, total)


def two_sided(z: float) -> float:
    """Return the probability that a normal number is farther from 0 than z."""
    return float(2 * special.ndtr(-abs(z)))


def age_test(rows: Sequence[NDArray[np.bool_]], value: bool, hazard: Callable[[NDArray[np.int64]], Any]) -> Test:
    """Test by chi-square over the ages of runs of `value` whether as many end at each age (from 1) as `hazard`
    predicts.

    For a geometric distribution the hazard is one constant. Runs that a row's end cuts are at risk until there, no
    longer. Ages are pooled so that ends and continuations are both expected at least five times.
    """
    ends, at_risk = _ages(rows, value)
    if not at_risk.sum():
        return Test(float("nan"), 0, float("nan"), 0)
    chance = np.clip(np.asarray(hazard(np.arange(1, len(at_risk) + 1)), dtype=np.float64), 0.0, 1.0)
    pooled = list(_pooled(ends, at_risk * chance, at_risk * chance * (1 - chance)))
    statistic = sum((found - wanted) ** 2 / spread for found, wanted, spread in pooled)
    degrees = len(pooled)
    p = float(special.chdtrc(degrees, statistic)) if degrees else float("nan")
    return Test(float(statistic), float(degrees), p, int(ends.sum()))


def _ages(rows: Sequence[NDArray[np.bool_]], value: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how many runs ended at each age, and how many of that age were at risk."""
    ended: list[NDArray[np.int64]] = []
    cut: list[NDArray[np.int64]] = []
    for row in rows:
        lengths, values = _runs(row)
        if not len(lengths):
            continue
        own = values == value
        ended.append(lengths[:-1][own[:-1]])
        if own[-1]:
            cut.append(lengths[-1:] - 1)  # the end of its last value cannot be observed
    whole = np.minimum(np.concatenate([*ended, np.zeros(0, np.int64)]), MOST_AGE)
    open_ = np.minimum(np.concatenate([*cut, np.zeros(0, np.int64)]), MOST_AGE)
    most = int(max(whole.max(initial=0), open_.max(initial=0)))
    ends = np.bincount(whole, minlength=most + 1)[1:]
    gone = ends + np.bincount(open_, minlength=most + 1)[1:]
    at_risk = np.cumsum(gone[::-1])[::-1]
    return ends.astype(np.float64), at_risk.astype(np.float64)


def _runs(row: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the lengths of the runs of a row, and their values."""
    if not len(row):
        return np.zeros(0, np.int64), np.zeros(0, np.bool_)
    starts = np.concatenate([[0], np.flatnonzero(row[1:] != row[:-1]) + 1])
    return np.diff(np.concatenate([starts, [len(row)]])).astype(np.int64), row[starts]


def run_lengths(rows: Sequence[NDArray[np.bool_]], value: bool) -> NDArray[np.int64]:
    """Return the lengths of the complete runs of `value`: those that begin and end within a row."""
    found = []
    for row in rows:
        lengths, values = _runs(row)
        found.append(lengths[1:-1][values[1:-1] == value])
    return np.concatenate([*found, np.zeros(0, np.int64)])


def _pooled(
    ends: NDArray[np.float64], expected: NDArray[np.float64], variance: NDArray[np.float64]
) -> list[tuple[float, float, float]]:
    """Pool neighbouring ages until enough is expected; the remainder joins the last pool."""
    found: list[tuple[float, float, float]] = []
    here = (0.0, 0.0, 0.0)
    for one in zip(ends.tolist(), expected.tolist(), variance.tolist(), strict=True):
        here = (here[0] + one[0], here[1] + one[1], here[2] + one[2])
        if here[2] >= LEAST_EXPECTED:
            found.append(here)
            here = (0.0, 0.0, 0.0)
    if found and here[2] > 0:
        last = found.pop()
        found.append((last[0] + here[0], last[1] + here[1], last[2] + here[2]))
    return found


def autocorrelation(
    rows: Sequence[NDArray[np.float64]], lag: int, mean: float | None = None, level: float = 0.95
) -> Interval:
    """Return the correlation of numbers with those `lag` later, within rows; the interval is by batches of the
    products.

    `mean` is the true mean where it is known. Batches (about the root of the count, at most 200) are longer than the
    lag, so that dependent values are mostly in one batch.
    """
    rows = [row for row in rows if len(row) > lag]
    if not rows:
        return Interval(float("nan"), None, None, level, 0)
    centre = float(np.mean(np.concatenate(rows))) if mean is None else mean
    products = np.concatenate([(row[lag:] - centre) * (row[:-lag] - centre) for row in rows])
    squares = np.concatenate([((row[lag:] - centre) ** 2 + (row[:-lag] - centre) ** 2) / 2 for row in rows])
    if not squares.sum():
        return Interval(float("nan"), None, None, level, len(products))
    found = float(products.sum() / squares.sum())
    batches = min(200, int(len(products) ** 0.5), len(products) // (2 * lag))
    if batches < 8:
        return Interval(found, None, None, level, len(products))
    parts = np.array_split(products - found * squares, batches)
    sums = np.array([part.sum() for part in parts])
    reach = student_quantile(batches - 1, level) * float(np.std(sums, ddof=1)) * batches**0.5 / float(squares.sum())
    return Interval(found, found - reach, found + reach, level, len(products))


def ljung_box(rows: Sequence[NDArray[np.float64]], lags: int) -> Test:
    """Test whether the first `lags` autocorrelations together are larger than those of independent numbers.

    For rare losses p comes from shuffled rows instead of chi-square.
    """
    n = sum(len(row) for row in rows)
    centre = float(np.mean(np.concatenate(list(rows)))) if n else 0.0
    scale = sum(float(np.square(row - centre).sum()) for row in rows)
    if n <= 2 * lags or scale <= 0:
        return Test(float("nan"), float(lags), float("nan"), n)
    statistic = 0.0
    for lag in range(1, lags + 1):
        longer = [row - centre for row in rows if len(row) > lag]
        pairs = sum(len(row) - lag for row in longer)
        if pairs:
            found = sum(float(np.dot(row[lag:], row[:-lag])) for row in longer) / scale
            statistic += found**2 * n * (n + 2) / pairs
    shuffled = shuffled_p(rows, lags)
    p = float(special.chdtrc(lags, statistic)) if shuffled is None else shuffled
    return Test(statistic, float(lags), p, n)
