"""How far measured numbers are from a distribution that was asked for, and how far chance alone may take them.

The distance is Kolmogorov's; with `slack` the larger of both after each number may move by so much (Lévy's idea, with
time and probability limited apart): an emulator that is a few microseconds late has the right distribution still.
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
    """The largest difference of the shares below any value, where values may lie off by `slack` either way."""
    n = len(values)
    if not n:
        return float("nan")
    ordered = np.sort(values)
    # Behind each value as many are below it as its last equal's rank; just before it, as its first equal's.
    upto = np.searchsorted(ordered, ordered, side="right") / n
    before = np.searchsorted(ordered, ordered, side="left") / n
    above = upto - cdf(ordered + slack)
    below = cdf(np.nextafter(ordered - slack, -np.inf)) - before
    return max(0.0, float(above.max()), float(below.max()))


def band(n: float, alpha: float) -> float:
    """Dvoretzky, Kiefer and Wolfowitz with Massart's constant: chance exceeds it with at most `alpha`."""
    return math.sqrt(math.log(2 / alpha) / (2 * n)) if n > 0 else 1.0
