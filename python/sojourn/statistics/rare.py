"""Exact p-values for rows with few losses (or few deliveries), for which limiting distributions are not valid.

Losses of 1 % are adjacent so rarely that two pairs more than expected are extreme under a normal or chi-square
distribution, but not unusual: at a level of 1 in 10,000 those would raise an alarm once in a hundred runs. Runs have an
exact distribution; correlations are compared with those of shuffled rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Places = list[NDArray[np.int64]]

FEW = 3000
"""Above this number of the rarer kind, the normal distribution of runs is accurate in its tails too."""

MET = 50.0
"""From this number of expected pairs at each lag on, chi-square is accurate in its tails too."""

SHUFFLES = 20_000
ENOUGH = 20
"""The number of shuffled rows with as much correlation at which their share is p; with fewer the tail is
extrapolated."""

FIRST = 100
"""Shuffles per batch."""


def runs_p(rows: Sequence[NDArray[np.bool_]], runs: int) -> float | None:
    """Return the two-sided p of the number of runs, given each row's number of losses; None where there are many."""
    counts = [(int(row.sum()), len(row) - int(row.sum())) for row in rows]
    counts = [(one, other) for one, other in counts if one and other]
    if sum(min(pair) for pair in counts) > FEW:
        return None
    law = np.ones(1)
    for one, other in counts:
        law = np.convolve(law, _runs_law(one, other))
    return float(min(1.0, 2 * min(law[: runs + 1].sum(), law[runs:].sum())))


def _runs_law(one: int, other: int) -> NDArray[np.float64]:
    """Return the probability of each number of runs, from 0 on (Wald and Wolfowitz, 1940)."""
    most = min(one, other)
    k = np.arange(1, most + 1, dtype=np.float64)
    whole = _log_choose(one + other, np.array([float(one)]))
    law = np.zeros(2 * most + 2)
    law[2 : 2 * most + 1 : 2] = 2 * np.exp(_log_choose(one - 1, k - 1) + _log_choose(other - 1, k - 1) - whole)
    more = np.exp(_log_choose(one - 1, k) + _log_choose(other - 1, k - 1) - whole)
    law[3 : 2 * most + 2 : 2] = more + np.exp(_log_choose(one - 1, k - 1) + _log_choose(other - 1, k) - whole)
    return law


def _log_choose(n: int, k: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithm of a binomial coefficient; minus infinity for a coefficient of zero."""
    inside = np.where(k <= n, k, 0.0)
    found = special.gammaln(n + 1) - special.gammaln(inside + 1) - special.gammaln(n - inside + 1)
    return np.asarray(np.where(k <= n, found, -np.inf), dtype=np.float64)


def shuffled_p(rows: Sequence[NDArray[np.float64]], lags: int) -> float | None:
    """Return the share of shuffled rows with as much correlation; None for many losses, or rows that are not losses.

    Beyond the resolution of the shuffles, the tail is that of a gamma distribution with their mean, spread and
    skewness.
    """
    rows = [row for row in rows if len(row)]
    n, ones = sum(map(len, rows)), float(sum(row.sum() for row in rows))
    if not all(np.isin(row, (0.0, 1.0)).all() for row in rows) or not 0 < ones < n:
        return None
    rarer = float(ones <= n / 2)
    places = [np.flatnonzero(row == rarer).astype(np.int64) for row in rows]
    sizes = [len(row) for row in rows]
    share = sum(map(len, places)) / n
    if share**2 * n >= MET:
        return None
    wanted = np.array([sum(max(0, size - lag) for size in sizes) for lag in range(1, lags + 1)]) * share**2
    seen = _excess(places, wanted)
    random = np.random.default_rng(len(places[0]) + n)
    drawn: list[float] = []
    while len(drawn) < SHUFFLES and sum(one >= seen for one in drawn) < ENOUGH:
        drawn += [_excess(_shuffled(places, sizes, random), wanted) for _ in range(FIRST)]
    return _tail(np.array(drawn), seen)


def _shuffled(places: Places, sizes: list[int], random: np.random.Generator) -> Places:
    return [
        np.sort(random.choice(size, len(at), replace=False, shuffle=False))
        for at, size in zip(places, sizes, strict=True)
    ]


def _excess(places: Places, wanted: NDArray[np.float64]) -> float:
    """Return chi-square of the numbers of pairs at each lag."""
    found = np.zeros(len(wanted))
    for at in places:
        for step in range(1, len(at)):
            apart = at[step:] - at[:-step]
            near = apart[apart <= len(wanted)]
            if not len(near):
                break
            found += np.bincount(near, minlength=len(wanted) + 1)[1:]
    spread = np.maximum(wanted, 1e-300)
    return float((np.square(found - wanted) / spread).sum())


def _tail(drawn: NDArray[np.float64], seen: float) -> float:
    beyond = int((drawn >= seen).sum())
    counted = (beyond + 1) / (len(drawn) + 1)
    deviation = float(drawn.std())
    if beyond >= ENOUGH or deviation <= 0:
        return counted
    skewness = max(0.1, float(((drawn - drawn.mean()) ** 3).mean()) / deviation**3)
    shape = 4 / skewness**2
    continued = float(special.gammaincc(shape, shape + (seen - float(drawn.mean())) / deviation * shape**0.5))
    return min(counted, continued)
