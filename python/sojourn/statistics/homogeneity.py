"""Test whether several estimates are of one number: Cochran's Q over their 95 % intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from numpy.typing import NDArray


def homogeneity_p(estimates: NDArray[np.float64], half_widths: NDArray[np.float64]) -> float:
    """Return the probability that estimates of one number differ at least as much."""
    weights = (special.ndtri(0.975) / half_widths) ** 2
    q = float((weights * (estimates - np.average(estimates, weights=weights)) ** 2).sum())
    return float(special.chdtrc(len(estimates) - 1, q))
