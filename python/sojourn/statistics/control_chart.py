"""Control limits for single values in the order in which they were taken: the chart of individuals and moving range.

ISO 7870-2 (Shewhart charts) and Wheeler and Chambers, "Understanding Statistical Process Control". The scatter is taken
from neighbours, so that a slow change of level widens the limits less than it would widen a standard deviation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEAN_RANGE_OF_TWO = 1.128
"""d2: the mean range of two normal values, in standard deviations."""

LEAST_VALUES = 6
"""Fewer values have no limits. Limits are rough below some twenty (Wheeler)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The mean, and three standard deviations to both sides; by chance, one of 370 values lies outside."""

    mean: float
    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Return whether a value lies outside by more than rounding."""
        rounding = 1e-9 * abs(self.mean)
        return not self.low - rounding <= value <= self.high + rounding


def individuals(values: NDArray[np.float64]) -> Limits | None:
    """Return the limits of these values; None for fewer than six."""
    if len(values) < LEAST_VALUES:
        return None
    mean = float(np.mean(values))
    reach = 3 * float(np.mean(np.abs(np.diff(values)))) / MEAN_RANGE_OF_TWO
    return Limits(mean, mean - reach, mean + reach)
