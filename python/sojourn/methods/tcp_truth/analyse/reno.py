"""Reno's congestion avoidance: the window grows by one segment per window of acknowledged ones, so one per round trip.

Checked in two ways. To the segment: between two samples the window, with what is counted towards its next growth, has
grown by exactly what was delivered (RFC 5681, 3.1; net/ipv4/tcp_cong.c). Over time: the window over round trips is a
line with slope one in every stretch; this uses only the clock and the logged RTT.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sojourn.methods.tcp_truth.analyse.backoff import slope
from sojourn.statistics.signed_rank import hodges_lehmann

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.methods.tcp_truth.analyse.backoff import Stretch
    from sojourn.statistics.interval import Interval

HALF = (1, 2)
LEAST_ROUND_TRIPS = 4.0


@dataclass(frozen=True, slots=True)
class Growth:
    """How often the window grew by exactly what was delivered."""

    steps: int
    exact: int


def credit(window: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Return segments acknowledged since a window of zero: the sum of all smaller windows, plus the current count."""
    return np.asarray(window * (window - 1) // 2 + counted)


def growth(stretch: Stretch) -> Growth:
    """Return the steps between samples in which data was delivered while the window was the limit."""
    delivered = np.diff(stretch.delivered)
    grown = np.diff(credit(stretch.window, stretch.counted))
    asked = (delivered > 0) & stretch.limited[1:] & stretch.limited[:-1]
    return Growth(int(asked.sum()), int((grown[asked] == delivered[asked]).sum()))


def slopes(several: Sequence[Stretch]) -> list[float]:
    """Return the segments per round trip of each stretch that is long enough."""
    found = []
    for one in several:
        trips = one.round_trips
        if trips[-1] >= LEAST_ROUND_TRIPS and one.limited.mean() > 0.9:
            found.append(slope(trips, one.window + one.counted / np.maximum(one.window, 1)))
    return [value for value in found if np.isfinite(value)]


def mean_slope(several: Sequence[float], level: float = 0.95) -> Interval:
    """Return the slope over stretches; robust against a few in which the host stalled."""
    return hodges_lehmann(np.array(several, dtype=np.float64), level)
