"""The median of independent values, with the interval of the sign test, which assumes no distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray


def median_of(values: NDArray[np.float64], level: float = 0.95) -> Interval:
    """Return the median, and the innermost pair of ordered values that contains the true one at `level` or more.

    The interval's `level` is the exact one (at least 0.969 for six values); below six values there is none at 95 %.
    Values may be infinite; an infinite end is None.
    """
    n = len(values)
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    estimate = float(ordered[n // 2] if n % 2 else _middle(ordered[n // 2 - 1], ordered[n // 2])) if n else float("nan")
    place = int(special.bdtrik((1 - level) / 2, n, 0.5)) if n and 0.5**n <= (1 - level) / 2 else -1
    while place >= 0 and special.bdtr(place, n, 0.5) > (1 - level) / 2:
        place -= 1
    if place < 0:
        return Interval(estimate, None, None, level, n)
    held = 1 - 2 * float(special.bdtr(place, n, 0.5))
    low, high = (float(one) if np.isfinite(one) else None for one in (ordered[place], ordered[n - 1 - place]))
    if low == high:  # equal values do not prove that there is no scatter
        low = high = None
    return Interval(estimate, low, high, held, n)


def _middle(low: float, high: float) -> float:
    return float("inf") if np.isinf(high) else (low + high) / 2
