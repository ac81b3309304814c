"""Intervals of proportions, for loss, duplication and other counts: of independent trials, and in clusters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_CLUSTERS = 3
"""With fewer clusters there is no interval, as with fewer values of an average."""


def clopper_pearson(successes: int, trials: int, level: float = 0.95) -> Interval:
    """Return the share of `successes` and its interval of at least `level`; exact for independent trials.

    Losses in bursts are not independent: the interval is then too narrow.
    """
    if trials == 0:
        return Interval(float("nan"), None, None, level, 0)
    return Interval(successes / trials, *_exact(successes, trials, level), level, trials)


def worth_pearson(successes: int, trials: int, worth: float, level: float = 0.95) -> Interval:
    """Return the same for dependent trials, whose effective number is `worth`."""
    if trials == 0:
        return Interval(float("nan"), None, None, level, 0)
    share = successes / trials
    return Interval(share, *_exact(share * worth, worth, level), level, trials)


def none_among(trials: int, confidence: float = 0.95) -> float:
    """Return the largest share that gives no success in `trials` independent trials with probability 1 - confidence."""
    return 1.0 if trials < 1 else 1 - (1 - confidence) ** (1 / trials)


def trials_needed(share: float, margin: float, power: float = 0.9, level: float = 0.95) -> int:
    """Return the number of independent trials for an interval of a true `share` within ± `margin` of it, with this
    power.

    The two one-sided tests of an equivalence trial (Schuirmann, 1987), by the normal approximation.
    """
    reach = float(special.ndtri((1 + level) / 2) + special.ndtri((1 + power) / 2))
    return math.ceil(reach**2 * share * (1 - share) / margin**2)


def korn_graubard(successes: NDArray[np.float64], trials: NDArray[np.float64], level: float = 0.95) -> Interval:
    """Return the share of all successes, with an interval for clustered trials (one entry per cluster).

    Clopper and Pearson's interval for the effective number of independent trials: it follows from the variance between
    clusters over the binomial one, and Student's t widens it (Korn and Graubard, 1998). The degrees of freedom are
    those of the clusters that hold the successes, or the failures, less one, by Kish's effective number: where few
    clusters hold nearly all of them, the variation between clusters is poorly known. If all clusters were counted,
    intervals of rare bursts would contain the true value in as few as 71 % of cases.

    Without any success, or any failure, the variation between clusters is unknown: the bound is that on the share of
    clusters with one, as if a cluster were one trial. Below three clusters there is no interval.
    """
    n, total = len(trials), float(trials.sum())
    if not total:
        return Interval(float("nan"), None, None, level, n)
    share = float(successes.sum()) / total
    if n < LEAST_CLUSTERS:
        return Interval(share, None, None, level, n)
    if successes.sum() in (0.0, total):
        most = none_among(n, level)
        return Interval(share, *((0.0, most) if share == 0 else (1 - most, 1.0)), level, n)
    residual = successes - share * trials
    between = n / (n - 1) * float(np.square(residual).sum()) / total**2
    holding = min(_effective(successes), _effective(trials - successes))
    degrees = min(n - 1.0, max(1.0, holding - 1))
    shrink = (float(special.stdtrit(degrees, (1 + level) / 2)) / float(special.ndtri((1 + level) / 2))) ** 2
    worth = min(total, share * (1 - share) / max(between, 1e-300) / shrink)
    return Interval(share, *_exact(share * worth, worth, level), level, n)


def _effective(counts: NDArray[np.float64]) -> float:
    """Return Kish's effective number: how many clusters with equal counts would be as uneven."""
    return float(counts.sum() ** 2 / np.square(counts).sum())


def share_by_rounds(are: NDArray[np.bool_], rounds: NDArray[np.int64], level: float = 0.95) -> Interval:
    """Return the share of true values, with the rounds in `rounds` as clusters."""
    counted = np.asarray(np.bincount(rounds), dtype=np.float64)
    return korn_graubard(np.asarray(np.bincount(rounds, weights=are), dtype=np.float64), counted, level)


def _exact(successes: float, trials: float, level: float) -> tuple[float, float]:
    tail = (1 - level) / 2
    failures = trials - successes
    low = 0.0 if successes <= 0 else float(special.betaincinv(successes, failures + 1, tail))
    high = 1.0 if failures <= 0 else float(special.betaincinv(successes + 1, failures, 1 - tail))
    return low, high
