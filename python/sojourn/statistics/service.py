"""A link that serves packets one after the other: when each leaves, and at which rate.

Times are in ns, sizes in bits. Every work-conserving link obeys, whatever the order of service: departure =
max(arrival, previous departure) + bits / rate.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def misses(
    entered: NDArray[np.int64], left: NDArray[np.int64], bits: NDArray[np.int64], rate_bps: int
) -> NDArray[np.float64]:
    """Return the deviation of each departure but the first from that rule, given the previous observed one (ns)."""
    began = np.maximum(entered[1:], left[:-1])
    return np.asarray((left[1:] - began).astype(np.float64) - bits[1:] * (1e9 / rate_bps), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Windows:
    """Relative deviations of the rate in windows of one length, and the share of one packet in a window."""

    window_ns: float
    off: NDArray[np.float64]
    packet: float


def rate_in_windows(
    left: Sequence[NDArray[np.float64]], bits: Sequence[NDArray[np.float64]], rate_bps: float, window_ns: float
) -> Windows | None:
    """Return the rate in consecutive windows of this length over rows of busy time; None where no window fits.

    A packet counts entirely in the window where it ended: a window may therefore have one packet's bits too many or too
    few.
    """
    shares: list[NDArray[np.float64]] = []
    largest = 0.0
    for times, sizes in zip(left, bits, strict=True):
        several = int((times[-1] - times[0]) // window_ns) if len(times) > 1 else 0
        if several < 1:
            continue
        edges = times[0] + window_ns * np.arange(several + 1)
        total = np.concatenate([[0.0], np.cumsum(sizes[1:])])
        at = np.searchsorted(times, edges, side="right") - 1
        shares.append(np.diff(total[at]) / (rate_bps * window_ns / 1e9))
        largest = max(largest, float(sizes.max()))
    if not shares:
        return None
    return Windows(window_ns, np.concatenate(shares) - 1, largest / (rate_bps * window_ns / 1e9))


def busy_rows(entered: NDArray[np.int64], left: NDArray[np.int64]) -> list[slice]:
    """Return the slices in which the link was never idle, in the order of departures: at each departure a packet
    waited."""
    if not len(left):
        return []
    idle = np.flatnonzero(entered[1:] > left[:-1]) + 1
    edges = [0, *idle.tolist(), len(left)]
    return [slice(a, b) for a, b in itertools.pairwise(edges) if b - a > 1]
