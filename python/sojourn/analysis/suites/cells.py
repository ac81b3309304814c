"""What the results of a suite have in common: the cell of a search, and how repetitions become an interval."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sojourn.analysis.factors import Factors
from sojourn.analysis.streams import over_trials
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from sojourn.analysis.suites.searches import Search


def cells_of(searches: Iterable[Search]) -> dict[Factors, int]:
    """A number for every engine and frame size, beyond those of any plan's own cells."""
    kinds = sorted({(one.engine, one.frame_bytes) for one in searches})
    return {search_factors(engine, size): 10_000 + number for number, (engine, size) in enumerate(kinds)}


def search_factors(engine: str, frame_bytes: int) -> Factors:
    """The cell of a search: raw frames of one size, sent at regular intervals."""
    return Factors(probe=engine, engine=engine, kind="one-way", frame_bytes=frame_bytes, schedule="regular")


def cell_of(search: Search, cells: dict[Factors, int]) -> int:
    """The number of a search's cell."""
    return cells[search_factors(search.engine, search.frame_bytes)]


def of_positive(values: NDArray[np.float64]) -> Interval:
    """An estimate over trials of positive values that vary by factors, such as delays: of their logarithms."""
    if not (values > 0).all():
        return over_trials(values)
    found = over_trials(np.log(values))
    low, high = (None if end is None else float(np.exp(end)) for end in (found.low, found.high))
    return replace(found, estimate=float(np.exp(found.estimate)), low=low, high=high)


def bare(estimate: float, n: int = 1) -> Interval:
    """A value without an interval."""
    return Interval(estimate, None, None, 0.95, n)
