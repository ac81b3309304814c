"""Pair differences of several sessions as one figure: what it is over beds made anew, and what it is within one.

A session's value is the arithmetic mean of its pair differences. Where a run has one bed alone, the figure is the mean
over its pairs with Student's interval: that is repeatability, and it says nothing of another bed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from sojourn.statistics.discovery import signed_rank_p
from sojourn.statistics.interval import Interval, student_t
from sojourn.statistics.sessions import AcrossSessions, across_sessions
from sojourn.statistics.signed_rank import hodges_lehmann, least_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_PAIRS = 2
"""A session that was cut to fewer has no scatter of its own, and is left out."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean of pair differences; what stands beside it is None where the run has one bed.

    `mean`, `pseudomedian` (Hodges and Lehmann's) and `within` count pairs.
    """

    mean: Interval
    pseudomedian: Interval
    within: Interval
    """As if only the scatter within beds mattered: repeatability."""
    between: Interval | None
    """The standard deviation of beds made anew."""
    next_run: Interval | None
    """Where the mean of another run of as many beds lies."""
    sessions: int
    p: float
    """Of a mean that is zero: by Student's t over sessions, or Wilcoxon's over the pairs of one bed."""


def figure_of(differences: NDArray[np.float64], session: NDArray[np.int64], level: float = 0.95) -> Figure:
    """The figure of differences (NaN: none) by their sessions; all of one session: one bed.

    Where each session has one pair, pairs are as good as sessions.
    """
    used = ~np.isnan(differences)
    d, of = differences[used], session[used]
    pseudomedian = hodges_lehmann(d, level)
    found = across(d, of, level) if len(np.unique(of)) > 1 else None
    if found is None:
        mean = student_t(d, level)
        if len(d) < least_pairs(level):  # so few show nothing of the shape of their scatter
            mean = Interval(mean.estimate, None, None, level, len(d))
        return Figure(mean, pseudomedian, mean, None, None, len(np.unique(of)), signed_rank_p(d))
    return Figure(
        replace(found.mean, n=len(d)),
        pseudomedian,
        replace(found.repeatability, n=len(d)),
        found.between,
        found.next_run,
        found.mean.n,
        _p(found),
    )


def across(d: NDArray[np.float64], session: NDArray[np.int64], level: float = 0.95) -> AcrossSessions | None:
    """What differences without gaps say over sessions; None where fewer than two sessions have pairs enough."""
    several = [d[session == one] for one in np.unique(session)]
    several = [one for one in several if len(one) >= LEAST_PAIRS]
    if len(several) < 2:
        return None
    means = np.array([one.mean() for one in several])
    errors = np.array([one.std(ddof=1) / len(one) ** 0.5 for one in several])
    return across_sessions(means, errors, np.array([len(one) for one in several]), level)


def _p(found: AcrossSessions) -> float:
    if found.standard_error is None:
        return float("nan")
    return float(2 * special.stdtr(found.degrees, -abs(found.mean.estimate) / found.standard_error))
