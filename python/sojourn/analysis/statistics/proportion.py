"""Clopper-Pearson: the exact interval of a proportion, for loss, duplication and what else is counted."""

from __future__ import annotations

from scipy import special

from sojourn.analysis.statistics.interval import Interval


def clopper_pearson(successes: int, trials: int, level: float = 0.95) -> Interval:
    """The share of `successes` and its interval of at least `level`; exact for independent trials.

    Losses that come in bursts are not independent: the interval is then too narrow.
    """
    if trials == 0:
        return Interval(float("nan"), None, None, level, 0)
    tail = (1 - level) / 2
    failures = trials - successes
    low = 0.0 if successes == 0 else float(special.betaincinv(successes, failures + 1, tail))
    high = 1.0 if failures == 0 else float(special.betaincinv(successes + 1, failures, 1 - tail))
    return Interval(successes / trials, low, high, level, trials)
