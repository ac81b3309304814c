"""A link that serves packets as its law says: the truth that what is measured of a link is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def leave(
    entered: NDArray[np.int64], bits: NDArray[np.int64], rate_bps: int, first: int | None = None
) -> NDArray[np.int64]:
    """When packets leave a link that takes them in this order, in whole nanoseconds, what is left over carried on.

    `first`: when the first of them left, where the link may have been busy before; else it was idle.
    """
    takes = bits * (1e9 / rate_bps)
    base = int(entered[0])
    at = (entered - base).astype(np.float64)
    # d_k = max(a_k, d_{k-1}) + t_k  =  T_k + max over i <= k of (a_i - T_{i-1}), with T the sum of what packets take.
    total = np.cumsum(takes)
    starts = at - (total - takes)
    if first is not None:
        starts[0] = max(float(first - base) - float(takes[0]), float(starts[0]))
    return np.floor(total + np.maximum.accumulate(starts) + 1e-6).astype(np.int64) + base
