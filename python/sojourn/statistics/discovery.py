"""False discovery over a matrix of cells (Benjamini-Hochberg), and the signed-rank p-value that feeds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sojourn.statistics.signed_rank import EXACT_UP_TO

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
