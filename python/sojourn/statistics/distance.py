"""The distance of two samples of delays, trial by trial: Kolmogorov's and Wasserstein's first distance.

The trial is the unit: a prediction is compared with the trial that it predicts, a repetition with every other trial of
the same load, so both distances contain the chance variation of one trial each. Intervals are a bootstrap over trials.
Where trials come in clusters, a jackknife leaves out one cluster at a time: few clusters cannot be resampled. Infinite
delays (lost frames) count for Kolmogorov's distance; Wasserstein's is of the finite ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sojourn.statistics.interval import Interval, student_quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

RESAMPLES = 1000
LEAST_TRIALS = 4
"""With fewer there is no interval: resampling three trials shows little."""

MOST_TRIALS = 40
"""Trials beyond this number are not compared with each other."""

LEAST_CLUSTERS = 3
"""With fewer there is no interval either."""

Pair = tuple[Interval, Interval]
"""Kolmogorov's distance and Wasserstein's (in the unit of the values)."""


@dataclass(frozen=True, slots=True)
class Distances:
    """Distances of the prediction, of repetitions (None with one trial) and of the model without a queue."""

    prediction: Pair
    repetition: Pair | None
    without: Pair

    def each(self) -> dict[str, Pair]:
        """Return the distances by name."""
        found = {"prediction": self.prediction, "no-queue": self.without}
        return found if self.repetition is None else {**found, "repetition": self.repetition}


def distances(
    measured: Sequence[NDArray[np.float64]],
    predicted: Sequence[NDArray[np.float64]],
    without: Sequence[NDArray[np.float64]],
    seed: int,
    clusters: NDArray[np.int64] | None = None,
) -> Distances | None:
    """Return the three distances over the trials; None where no trial has a frame. `clusters`: the cluster of each
    trial."""
    kept = [i for i, one in enumerate(measured) if np.isfinite(one).any()]
    if not kept:
        return None
    if clusters is not None:
        return _judged(measured, predicted, without, kept, clusters)
    kept = kept[:MOST_TRIALS]
    real = [np.sort(measured[i]) for i in kept]
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(kept), (RESAMPLES, len(kept)))
    repetition = None
    if len(kept) > 1:
        each = np.array([[_both(one, other) for other in real] for one in real])
        repetition = _over_pairs(each, picks)
    return Distances(
        _over(np.array([_both(one, np.sort(predicted[i])) for i, one in zip(kept, real, strict=True)]), picks),
        repetition,
        _over(np.array([_both(one, np.sort(without[i])) for i, one in zip(kept, real, strict=True)]), picks),
    )


def _judged(
    measured: Sequence[NDArray[np.float64]],
    predicted: Sequence[NDArray[np.float64]],
    without: Sequence[NDArray[np.float64]],
    kept: list[int],
    clusters: NDArray[np.int64],
) -> Distances:
    """Return the distances with intervals of a jackknife that leaves out one cluster at a time."""
    chosen = [kept[i] for i in np.unique(np.linspace(0, len(kept) - 1, min(len(kept), MOST_TRIALS)).astype(int))]
    of, real = clusters[chosen], [np.sort(measured[i]) for i in chosen]
    prediction, beside = (
        np.array([_both(one, np.sort(other[i])) for i, one in zip(chosen, real, strict=True)])
        for other in (predicted, without)
    )
    each = np.array([[_both(one, other) for other in real] for one in real])
    apart = ~np.eye(len(real), dtype=np.bool_)

    def mean(which: NDArray[np.bool_], one: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(one[which].mean(axis=0), dtype=np.float64)

    def between(which: NDArray[np.bool_]) -> NDArray[np.float64]:
        return mean(apart & np.outer(which, which), each)

    pairs = _left_out(between, of) if len(real) > 1 else None
    return Distances(
        _left_out(lambda which: mean(which, prediction), of), pairs, _left_out(lambda which: mean(which, beside), of)
    )


def _left_out(of: Callable[[NDArray[np.bool_]], NDArray[np.float64]], clusters: NDArray[np.int64]) -> Pair:
    """Return a pair of figures of the trials, with Student's intervals of the jackknife over clusters."""
    names = np.unique(clusters)
    estimate, k = of(np.ones(len(clusters), dtype=np.bool_)), len(names)
    if k < LEAST_CLUSTERS:
        bare = [Interval(float(one), None, None, 0.95, len(clusters)) for one in estimate]
        return bare[0], bare[1]
    rest = np.array([of(clusters != name) for name in names])
    reach = student_quantile(k - 1, 0.95) * ((k - 1) / k * np.square(rest - rest.mean(axis=0)).sum(axis=0)) ** 0.5
    ks, w1 = (
        Interval(float(one), max(0.0, float(one - by)), float(one + by), 0.95, len(clusters))
        for one, by in zip(estimate, reach, strict=True)
    )
    return ks, w1


def kolmogorov(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the largest difference of two distribution functions; both samples sorted, infinity allowed."""
    at = np.concatenate([first, second])
    at = at[np.isfinite(at)]
    below = np.searchsorted(first, at, side="right") / len(first)
    other = np.searchsorted(second, at, side="right") / len(second)
    return float(np.abs(below - other).max(initial=0.0))


def wasserstein(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the mean distance by which values must move to turn one sample into the other; finite values only."""
    first, second = first[np.isfinite(first)], second[np.isfinite(second)]
    if not len(first) or not len(second):
        return float("nan")
    from scipy import stats

    return float(stats.wasserstein_distance(first, second))


def _both(first: NDArray[np.float64], second: NDArray[np.float64]) -> tuple[float, float]:
    return kolmogorov(first, second), wasserstein(first, second)


def _over(each: NDArray[np.float64], picks: NDArray[np.int64]) -> Pair:
    """Return averages over trials with their bootstrap intervals."""
    means = each[picks].mean(axis=1)
    ks, w1 = (_interval(float(each[:, i].mean()), means[:, i], len(each)) for i in range(2))
    return ks, w1


def _over_pairs(each: NDArray[np.float64], picks: NDArray[np.int64]) -> Pair:
    """Return averages over pairs of different trials; a resample may repeat a trial, but pairs only different ones."""
    n = len(each)
    differ = picks[:, :, None] != picks[:, None, :]
    drawn = each[picks[:, :, None], picks[:, None, :]]
    counts = np.maximum(differ.sum(axis=(1, 2)), 1)
    means = (drawn * differ[..., None]).sum(axis=(1, 2)) / counts[:, None]
    usable = differ.any(axis=(1, 2))
    plain = each.sum(axis=(0, 1)) / (n * (n - 1))
    ks, w1 = (_interval(float(plain[i]), means[usable, i], n) for i in range(2))
    return ks, w1


def _interval(estimate: float, resampled: NDArray[np.float64], n: int) -> Interval:
    if n < LEAST_TRIALS or not np.isfinite(resampled).all():
        return Interval(estimate, None, None, 0.95, n)
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Interval(estimate, min(float(low), estimate), max(float(high), estimate), 0.95, n)
