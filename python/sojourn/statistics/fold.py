"""Test whether every n-th value of a long series is longer: the series folded at every n, by ranks.

Counts values, whatever the times between them; `cycle` finds what recurs at equal times. Finds a period that appears in
only a part of the series, such as a card that sometimes delays every 50th packet, and one that is well within the
noise. `period` looks for strong outliers in short pieces of a series.
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
"""The probability that independent values, in any order, show a period at any n."""

LONGEST = 1000
LEAST_CYCLES = 20
WINDOW = 201
"""Values in the running median that is subtracted: slow changes are no period of a few hundred values."""

ABOVE_OTHERS = 2.0
"""The least ratio of the strongest n to the median of all: autocorrelated neighbours raise all of them."""


MULTIPLES = (2, 3, 5)
APART, NOT_LONGER = 6.0, 4.0
"""In standard deviations: the least excess of one in every n members over the others, and the others' greatest
excess."""


@dataclass(frozen=True, slots=True)
class Every:
    """Every `n`-th value is longer: those at `phase`, `phase + n`, …; `p` is the probability of it for independent
    values."""

    n: int
    phase: int
    p: float

    def members(self, length: int) -> NDArray[np.bool_]:
        """Return which of `length` values they are."""
        return np.asarray(np.arange(length) % self.n == self.phase, dtype=np.bool_)


def find_every(values: NDArray[np.float64], longest: int = LONGEST) -> Every | None:
    """Return the n at which one phase of the series is longest, or None. NaN: unknown value.

    An n beyond `longest` is found by one of its divisors, and n itself is returned.
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
    """Return the multiple of n where one in two, three or five members is longer and the others are not."""
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
    """Return the running median."""
    return np.asarray(ndimage.median_filter(values, size=min(WINDOW, len(values)), mode="nearest"), dtype=np.float64)


def normal_scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the normal quantiles of the values' ranks, so that no few values dominate; mean 0, variance 1 but for
    ties."""
    scores = np.asarray(special.ndtri((mean_ranks(values) - 0.5) / len(values)), dtype=np.float64)
    return np.asarray(scores - scores.mean(), dtype=np.float64)  # ties shift the mean from 0


def _strongest(scores: NDArray[np.float64], known: NDArray[np.bool_], n: int) -> tuple[float, int]:
    """Return the largest mean of known scores n apart in standard deviations, and its phase."""
    cycles = len(scores) // n
    sums = scores[: cycles * n].reshape(cycles, n).sum(axis=0)
    counts = known[: cycles * n].reshape(cycles, n).sum(axis=0)
    strength = np.where(counts < LEAST_CYCLES / 2, 0.0, sums / np.maximum(counts, 1) ** 0.5)
    phase = int(strength.argmax())
    return float(strength[phase]), phase
