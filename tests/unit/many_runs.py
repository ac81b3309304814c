"""Estimators over the rows of a matrix, as many simulated runs at once: the same as of each row by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sojourn.statistics import sessions
from sojourn.statistics.interval import student_quantile
from sojourn.statistics.signed_rank import critical_rank

if TYPE_CHECKING:
    from numpy.typing import NDArray


def mean_and_error_rows(
    values: NDArray[np.float64], standard_errors: NDArray[np.float64], pairs: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Mean and standard error of every run (rows) over its sessions (columns): the same as row by row, for simulations.

    `pairs` has one entry for each column. The result has two columns; an error of 0 means that no interval exists.
    """
    variance, _ = sessions._pooled(standard_errors, pairs)
    fit = sessions._fit(values, variance, pairs)
    return np.stack([fit.mean, fit.error], axis=1)


def reach_rows(
    values: NDArray[np.float64], standard_errors: NDArray[np.float64], pairs: NDArray[np.int64], level: float = 0.95
) -> NDArray[np.float64]:
    """How many standard errors the interval of every run reaches downwards and upwards, in two columns."""
    variance, _ = sessions._pooled(standard_errors, pairs)
    fit = sessions._fit(values, variance, pairs)
    leans = sessions.lean_of(values, fit.mean, fit.weights)
    degrees = values.shape[1] - 1
    return student_quantile(degrees, level) * np.array([sessions.leaning(lean, degrees) for lean in leans.tolist()])


def hodges_lehmann_rows(differences: NDArray[np.float64], level: float = 0.95) -> NDArray[np.float64]:
    """Estimate, low and high for every row of a matrix without gaps: the same as row by row, for simulations."""
    _, n = differences.shape
    first, second = np.triu_indices(n)
    walsh = np.sort((differences[:, first] + differences[:, second]) / 2, axis=1)
    k, _ = critical_rank(n, level)
    if k < 0:
        raise ValueError(f"no interval of level {level} exists for {n} pairs")
    return np.stack([np.median(walsh, axis=1), walsh[:, k], walsh[:, -1 - k]], axis=1)
