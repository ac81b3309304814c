"""False discovery over a matrix of cells (Benjamini-Hochberg), and the signed-rank p-value that feeds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from sojourn.statistics.signed_rank import EXACT_UP_TO, signed_rank_cdf

if TYPE_CHECKING:
    from numpy.typing import NDArray


def signed_rank_p(differences: NDArray[np.float64]) -> float:
    """Two-sided p of the differences being symmetric about zero; ties share ranks, zeros count half to each side."""
    n = len(differences)
    if n == 0:
        return 1.0
    ranks = _average_ranks(np.abs(differences))
    positive = float(ranks[differences > 0].sum() + ranks[differences == 0].sum() / 2)
    smaller = min(positive, n * (n + 1) / 2 - positive)
    if n <= EXACT_UP_TO:
        return min(1.0, 2 * float(signed_rank_cdf(n)[int(np.ceil(smaller - 1e-9))]))
    mean, sd = n * (n + 1) / 4, (n * (n + 1) * (2 * n + 1) / 24) ** 0.5
    return min(1.0, 2 * float(special.ndtr((smaller + 0.5 - mean) / sd)))


def benjamini_hochberg(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """The q-value of each p: reject those at or below q and the share of false ones among them is at most q."""
    m = len(p)
    order = np.argsort(p)
    scaled = p[order] * m / np.arange(1, m + 1)
    adjusted = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    q = np.empty(m)
    q[order] = adjusted
    return q


def _average_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], dtype=np.float64)
