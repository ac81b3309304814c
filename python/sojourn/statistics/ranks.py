"""Ranks of values, equal ones sharing theirs. SciPy's own are not used: loading `scipy.stats` takes a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def mean_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rank of each value from 1; equal values have the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[which], dtype=np.float64)


def ties(values: NDArray[np.float64]) -> float:
    """The sum of t³ − t over groups of t equal values: what they take from the variance of a sum of ranks."""
    _, counts = np.unique(values, return_counts=True)
    of = counts.astype(np.float64)
    return float((of**3 - of).sum())
