"""An estimate with its interval, and Student's interval for averages.

Does not choose an estimator: `signed_rank` is for pairs, this module is for averages over rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate, and the interval that holds the true value at `level`; `low` and `high` are None without an
    interval."""

    estimate: float
    low: float | None
    high: float | None
    level: float
    n: int

    @property
    def half_width(self) -> float | None:
        """Half the interval's width, or None without an interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def longer(self) -> float | None:
        """The longer side of the interval, or None without an interval; half its width where it is symmetric."""
        return (
            None if self.low is None or self.high is None else max(self.high - self.estimate, self.estimate - self.low)
        )

    def excludes(self, value: float) -> bool:
        """Return whether the interval exists and does not contain `value`."""
        return self.low is not None and self.high is not None and not self.low <= value <= self.high

    def scaled(self, factor: float) -> Interval:
        """Return the interval in another unit; `factor` is positive."""
        low = None if self.low is None else self.low * factor
        high = None if self.high is None else self.high * factor
        return Interval(self.estimate * factor, low, high, self.level, self.n)

    def within(self, least: float, most: float = math.inf) -> Interval:
        """Clip the interval to `least` and `most`, between which the true value lies; the estimate always stays
        in it."""
        if self.low is None or self.high is None or (self.low >= least and self.high <= most):
            return self
        low = max(self.low, min(least, self.estimate))
        return Interval(self.estimate, low, min(self.high, max(most, self.estimate)), self.level, self.n)

    def widened(self, error95: float) -> Interval:
        """Add an independent normal error in quadrature, given as half its 95 % interval."""
        reach = error95 * student_quantile(math.inf, self.level) / student_quantile(math.inf, 0.95)
        low = None if self.low is None else self.estimate - math.hypot(self.estimate - self.low, reach)
        high = None if self.high is None else self.estimate + math.hypot(self.high - self.estimate, reach)
        return Interval(self.estimate, low, high, self.level, self.n)


def student_t(values: NDArray[np.float64], level: float = 0.95) -> Interval:
    """Return the average and Student's interval; no interval below three values."""
    n = len(values)
    average = float(np.mean(values)) if n else float("nan")
    if n < 3:
        return Interval(average, None, None, level, n)
    reach = student_quantile(n - 1, level) * float(np.std(values, ddof=1)) / n**0.5
    return Interval(average, average - reach, average + reach, level, n)


def student_quantile(degrees: float, level: float) -> float:
    """Return the two-sided Student quantile: slightly above 2.0 for many degrees of freedom at 0.95, 1.96 for
    infinitely many."""
    return float(special.stdtrit(degrees, (1 + level) / 2))
