"""Common parts of a suite's results: the cell of a search, and the combination of repetitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sojourn.analysis.factors import Factors
from sojourn.analysis.sessions import across, by_session
from sojourn.statistics.interval import Interval, student_t
from sojourn.statistics.order import median_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from sojourn.analysis.suites.searches import Search


def cells_of(searches: Iterable[Search]) -> dict[Factors, int]:
    """Return a number for every engine and frame size, beyond those of a plan's own cells."""
    kinds = sorted({(one.engine, one.frame_bytes) for one in searches})
    return {search_factors(engine, size): 10_000 + number for number, (engine, size) in enumerate(kinds)}


def search_factors(engine: str, frame_bytes: int) -> Factors:
    """Return the cell of a search: raw frames of one size, sent at regular intervals."""
    return Factors(probe=engine, engine=engine, kind="one-way", frame_bytes=frame_bytes, schedule="regular")


def cell_of(search: Search, cells: dict[Factors, int]) -> int:
    """Return the number of a search's cell."""
    return cells[search_factors(search.engine, search.frame_bytes)]


@dataclass(frozen=True, slots=True)
class Repeated:
    """One figure from a value per repetition; intervals count repetitions.

    `within` and `next_run` are None where they are unknown: no bed has two repetitions, or there is only one bed.
    """

    mean: Interval
    within: Interval | None = None
    """The interval if only the scatter within beds existed: repeatability."""
    next_run: Interval | None = None
    """The mean of another run of as many beds, with its prediction interval."""
    sessions: int | None = None
    """The number of rebuilt beds; None for one."""


def over_repetitions(values: NDArray[np.float64], sessions: Sequence[int], level: float = 0.95) -> Repeated:
    """Return the average of repetitions with Student's interval: over the means of beds, or over one bed's repetitions.

    One or two repetitions have no interval, nor have equal values, which do not prove that there is no scatter.
    """
    known = np.isfinite(values)
    y, of = np.asarray(values, dtype=np.float64)[known], np.asarray(sessions)[known]
    beds, counts = np.unique(of, return_counts=True)
    if len(beds) < 2:
        return Repeated(_with_width(student_t(y, level)))
    found = across(y, of, level) if counts.min() >= 2 else None
    if found is None:
        mean = replace(_with_width(student_t(by_session(y, of), level)), n=len(y))
        return Repeated(mean, sessions=len(beds))
    mean = replace(found.mean, n=len(y))
    return Repeated(mean, found.repeatability, found.next_run, len(beds))


def median_over(values: NDArray[np.float64], sessions: Sequence[int], level: float = 0.95) -> Interval:
    """Return the median of all trials; its interval is over trials of one bed, or over the medians of several beds."""
    y, of = np.asarray(values, dtype=np.float64), np.asarray(sessions)
    whole = median_of(y, level)
    beds = np.unique(of)
    if len(beds) < 2:
        return whole
    medians = median_of(np.array([np.median(y[of == bed]) for bed in beds]), level)
    return replace(medians, estimate=whole.estimate, n=len(y))


def _with_width(value: Interval) -> Interval:
    return value if value.half_width else replace(value, low=None, high=None)


def bare(estimate: float, n: int = 1) -> Interval:
    """Return a value without an interval."""
    return Interval(estimate, None, None, 0.95, n)
