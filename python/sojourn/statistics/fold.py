"""Does every n-th of a long series take longer: the series folded at every number, by ranks.

It counts values, whatever the times between them; what recurs after equal times is `cycle`'s. It finds a period whose
values are longer in a part of the series alone, as a card's that delays every 50th packet now and then, and one that is
well within the noise. `period` looks for strong outliers in short pieces of a series.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import ndimage, special

from sojourn.statistics.ranks import mean_ranks

if TYPE_CHECKING:
    from numpy.typing import NDArray

FALSE_ALARM = 1e-6
"""The chance that independent values, in any order, have a period at any of the numbers."""

LONGEST = 1000
LEAST_CYCLES = 20
WINDOW = 201
"""Values in the running median that is taken off: what changes slowly is no period of a few hundred values."""

ABOVE_OTHERS = 2.0
"""How far the strongest number stands above the median of all: neighbours that resemble each other raise them all."""


@dataclass(frozen=True, slots=True)
class Every:
    """Every `n`-th value is longer, those at `phase`, `phase + n`, …; `p` is the chance that independent values are."""

    n: int
    phase: int
    p: float

    def members(self, length: int) -> NDArray[np.bool_]:
        """Which of so many values they are."""
        return np.asarray(np.arange(length) % self.n == self.phase, dtype=np.bool_)


def find_every(values: NDArray[np.float64], longest: int = LONGEST) -> Every | None:
    """The number at which a series in its order is longest on one place, or None."""
    longest = min(longest, len(values) // LEAST_CYCLES)
    if longest < 2 or np.ptp(values) == 0:
        return None
    scores = normal_scores(values - running_median(values))
    numbers = np.arange(2, longest + 1)
    folded = [_strongest(scores, int(n)) for n in numbers]
    strength = np.array([z for z, _ in folded])
    best = int(strength.argmax())
    p = min(1.0, float(special.ndtr(-strength[best]) * numbers.sum()))
    if p > FALSE_ALARM or strength[best] < ABOVE_OTHERS * float(np.median(strength)):
        return None
    return Every(int(numbers[best]), folded[best][1], p)


def running_median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The median about each value."""
    return np.asarray(ndimage.median_filter(values, size=min(WINDOW, len(values)), mode="nearest"), dtype=np.float64)


def normal_scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The normal quantiles of the values' ranks, so that no few values decide; variance 1 but for ties."""
    return np.asarray(special.ndtri((mean_ranks(values) - 0.5) / len(values)), dtype=np.float64)


def _strongest(scores: NDArray[np.float64], n: int) -> tuple[float, int]:
    """The largest mean of scores n apart in its standard deviations, and its phase."""
    cycles = len(scores) // n
    sums = scores[: cycles * n].reshape(cycles, n).sum(axis=0)
    phase = int(sums.argmax())
    return float(sums[phase]) / cycles**0.5, phase
