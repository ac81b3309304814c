"""False discovery over a matrix of cells (Benjamini-Hochberg), and p-values of differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from sojourn.statistics.ranks import mean_ranks, ties
from sojourn.statistics.signed_rank import EXACT_UP_TO, signed_rank_cdf

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_VALUES = 3
"""With fewer values there is no p of a difference of means."""


def signed_rank_p(differences: NDArray[np.float64]) -> float:
    """Return the two-sided p that differences are symmetric about zero; ties share ranks, zeros count half to each
    side."""
    n, sizes = len(differences), np.abs(differences)
    if not n:
        return 1.0
    ranks = mean_ranks(sizes)
    above = float(ranks[differences > 0].sum() + ranks[differences == 0].sum() / 2)
    if n <= EXACT_UP_TO:
        cumulated = signed_rank_cdf(n)
        # Half ranks are rounded towards the larger p.
        below, beyond = int(np.ceil(above)), n * (n + 1) // 2 - int(np.floor(above))
        return min(1.0, 2 * float(min(cumulated[below], cumulated[beyond])))
    variance = n * (n + 1) * (2 * n + 1) / 24 - ties(sizes) / 48
    away = above - n * (n + 1) / 4
    return float(2 * special.ndtr(-abs(away - 0.5 * np.sign(away)) / variance**0.5))


def benjamini_hochberg(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the q-value of each p: among those at or below q, the expected share of false rejections is at most q."""
    order = np.argsort(p, kind="stable")
    raised = np.asarray(p, dtype=np.float64)[order] * (len(p) / np.arange(1, len(p) + 1))
    q = np.empty(len(p))
    q[order] = np.minimum.accumulate(raised[::-1])[::-1]
    return np.clip(q, 0.0, 1.0)


def selected_level(q_values: NDArray[np.float64], rate: float) -> float:
    """Return the level for intervals of the figures with a q-value of at most `rate`, so that at most that share miss.

    The false coverage rate of Benjamini and Yekutieli (2005): intervals of figures selected because they are extreme
    would otherwise miss the true value too often.
    """
    chosen = max(1, int((q_values <= rate).sum()))
    return 1 - rate * chosen / max(1, len(q_values))


def greater_p(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the one-sided p that the mean of `first` is no greater than that of `second`: Welch's test.

    With fewer than three values on a side p is 1. Values without scatter are compared directly.
    """
    if min(len(first), len(second)) < LEAST_VALUES:
        return 1.0
    if not np.ptp(first) and not np.ptp(second):
        return 0.0 if first[0] > second[0] else 1.0
    errors = np.array([one.var(ddof=1) / len(one) for one in (first, second)])
    freedom = errors.sum() ** 2 / float((errors**2 / [len(first) - 1, len(second) - 1]).sum())
    return float(special.stdtr(freedom, (second.mean() - first.mean()) / errors.sum() ** 0.5))
