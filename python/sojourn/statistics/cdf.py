"""The distance of measured numbers from a specified distribution, and its limit by chance alone.

The distance is Kolmogorov's. With `slack` each number may shift by that much (Lévy's idea, with time and probability
limited separately): an emulator that is a few microseconds late still has the right distribution.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def distance(
    values: NDArray[np.float64],
    cdf: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    slack: float = 0.0,
) -> float:
    """Return the largest difference of the cumulative shares at any value; values may be off by `slack` either way."""
    n = len(values)
    if not n:
        return float("nan")
    ordered = np.sort(values)
    # At each value the empirical share is its last equal's rank; just below it, its first equal's.
    upto = np.searchsorted(ordered, ordered, side="right") / n
    before = np.searchsorted(ordered, ordered, side="left") / n
    above = upto - cdf(ordered + slack)
    below = cdf(np.nextafter(ordered - slack, -np.inf)) - before
    return max(0.0, float(above.max()), float(below.max()))


def band(n: float, alpha: float) -> float:
    """Return the limit by Dvoretzky, Kiefer and Wolfowitz with Massart's constant: chance exceeds it with at most
    `alpha`."""
    return math.sqrt(math.log(2 / alpha) / (2 * n)) if n > 0 else 1.0
