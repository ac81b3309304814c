"""Reno's law of congestion avoidance: a segment for each window of acknowledged ones, so one for each round trip.

Two ways to see it. To the segment: between two samples the window with what is counted towards its next growth has
grown by just what was delivered (RFC 5681, 3.1; net/ipv4/tcp_cong.c). Over time: the window over round trips is a line
of slope one, stretch by stretch; nothing but the clock and the RTT that the log tells comes into it.
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
    """How often the window grew by just what was delivered."""

    steps: int
    exact: int


def credit(window: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Segments that had to be acknowledged to come so far from a window of none: the sum of all smaller ones."""
    return np.asarray(window * (window - 1) // 2 + counted)


def growth(stretch: Stretch) -> Growth:
    """Steps between samples in which something was delivered while the window was the limit."""
    delivered = np.diff(stretch.delivered)
    grown = np.diff(credit(stretch.window, stretch.counted))
    asked = (delivered > 0) & stretch.limited[1:] & stretch.limited[:-1]
    return Growth(int(asked.sum()), int((grown[asked] == delivered[asked]).sum()))


def slopes(several: Sequence[Stretch]) -> list[float]:
    """Segments a round trip, of each stretch that is long enough."""
    found = []
    for one in several:
        trips = one.round_trips
        if trips[-1] >= LEAST_ROUND_TRIPS and one.limited.mean() > 0.9:
            found.append(slope(trips, one.window + one.counted / np.maximum(one.window, 1)))
    return [value for value in found if np.isfinite(value)]


def mean_slope(several: Sequence[float], level: float = 0.95) -> Interval:
    """Over stretches; a few in which the host stood still do not move it."""
    return hodges_lehmann(np.array(several, dtype=np.float64), level)
