"""Ranks of values, with ties sharing theirs. SciPy's are not used: loading `scipy.stats` takes a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def mean_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each value from 1; ties have their mean rank."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[which], dtype=np.float64)


def ties(values: NDArray[np.float64]) -> float:
    """Return the sum of t³ − t over groups of t tied values: what ties take from the variance of a sum of ranks."""
    _, counts = np.unique(values, return_counts=True)
    of = counts.astype(np.float64)
    return float((of**3 - of).sum())
