"""False discovery over a matrix of cells (Benjamini-Hochberg), and p-values of differences that feed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sojourn.statistics.signed_rank import EXACT_UP_TO

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_VALUES = 3
"""Fewer have no p of a difference of means."""


def signed_rank_p(differences: NDArray[np.float64]) -> float:
    """Two-sided p of the differences being symmetric about zero; ties share ranks, zeros count half to each side."""
    from scipy import stats

    if not len(differences):
        return 1.0
    if len(differences) <= EXACT_UP_TO:
        return float(stats.wilcoxon(differences, zero_method="zsplit", method="exact").pvalue)
    return float(stats.wilcoxon(differences, zero_method="zsplit", correction=True, method="approx").pvalue)


def benjamini_hochberg(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """The q-value of each p: reject those at or below q and the share of false ones among them is at most q."""
    from scipy import stats

    return np.asarray(stats.false_discovery_control(p, method="bh"), dtype=np.float64)


def selected_level(q_values: NDArray[np.float64], rate: float) -> float:
    """The level for intervals of the figures with a q-value of at most `rate`, of which as few then miss the truth.

    The false coverage rate of Benjamini and Yekutieli (2005): intervals of figures that were chosen because they are
    extreme would else miss the truth too often.
    """
    chosen = max(1, int((q_values <= rate).sum()))
    return 1 - rate * chosen / max(1, len(q_values))


def greater_p(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """One-sided p of the mean of `first` being no greater than that of `second`: Welch's test.

    Below three values on a side there is no p: 1. Values without any scatter are compared as they are.
    """
    from scipy import stats

    if min(len(first), len(second)) < LEAST_VALUES:
        return 1.0
    if not np.ptp(first) and not np.ptp(second):
        return 0.0 if first[0] > second[0] else 1.0
    return float(stats.ttest_ind(first, second, equal_var=False, alternative="greater").pvalue)
