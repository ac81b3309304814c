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


MULTIPLES = (2, 3, 5)
APART, NOT_LONGER = 6.0, 4.0
"""Standard deviations between one in so many values of a number and its others, and of these above all values."""


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
    """The number at which a series in its order is longest on one place, or None. NaN: nothing is known of that one.

    A number beyond `longest` is found by a divisor of it, and told itself.
    """
    known = ~np.isnan(values)
    longest = min(longest, len(values) // LEAST_CYCLES)
    if longest < 2 or not known.any() or np.ptp(values[known]) == 0:
        return None
    filled = np.where(known, values, np.median(values[known]))
    scores = np.zeros(len(values))
    scores[known] = normal_scores((filled - running_median(filled))[known])
    numbers = np.arange(2, longest + 1)
    folded = [_strongest(scores, known, int(n)) for n in numbers]
    strength = np.array([z for z, _ in folded])
    best = int(strength.argmax())
    p = min(1.0, float(special.ndtr(-strength[best]) * numbers.sum()))
    if p > FALSE_ALARM or strength[best] < ABOVE_OTHERS * float(np.median(strength)):
        return None
    return _multiplied(scores, Every(int(numbers[best]), folded[best][1], p))


def _multiplied(scores: NDArray[np.float64], every: Every) -> Every | None:
    """The multiple of a number where one in two, three or five of its values is longer and the others are not."""
    for times in MULTIPLES:
        members = scores[every.phase :: every.n]
        of = np.arange(len(members)) % times
        means = np.array([members[of == one].mean() for one in range(times)]) if len(members) >= times else np.zeros(1)
        best = int(means.argmax())
        chosen, others = members[of == best], members[of != best]
        if len(means) < times or not len(others):
            continue
        apart = (chosen.mean() - others.mean()) / (1 / len(chosen) + 1 / len(others)) ** 0.5
        if apart > APART and others.mean() * len(others) ** 0.5 < NOT_LONGER:
            if len(chosen) < LEAST_CYCLES:
                return None
            return _multiplied(scores, Every(every.n * times, every.phase + best * every.n, every.p))
    return every


def running_median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The median about each value."""
    return np.asarray(ndimage.median_filter(values, size=min(WINDOW, len(values)), mode="nearest"), dtype=np.float64)


def normal_scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The normal quantiles of the values' ranks, so that no few values decide; mean 0, variance 1 but for ties."""
    scores = np.asarray(special.ndtri((mean_ranks(values) - 0.5) / len(values)), dtype=np.float64)
    return np.asarray(scores - scores.mean(), dtype=np.float64)  # with ties the mean is not 0 by itself


def _strongest(scores: NDArray[np.float64], known: NDArray[np.bool_], n: int) -> tuple[float, int]:
    """The largest mean of known scores n apart in its standard deviations, and its phase."""
    cycles = len(scores) // n
    sums = scores[: cycles * n].reshape(cycles, n).sum(axis=0)
    counts = known[: cycles * n].reshape(cycles, n).sum(axis=0)
    strength = np.where(counts < LEAST_CYCLES / 2, 0.0, sums / np.maximum(counts, 1) ** 0.5)
    phase = int(strength.argmax())
    return float(strength[phase]), phase
