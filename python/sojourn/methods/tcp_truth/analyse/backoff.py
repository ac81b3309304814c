"""Back-offs of a congestion window: their times and factors, and the stretches of congestion avoidance between them.

A back-off is the start of recovery (CWR, Recovery or Loss after Open or Disorder). The kernel then stores the window
before it and sets the threshold, in whole segments. So each back-off bounds the factor from both sides, and the
algorithm's factor lies within the bounds of all back-offs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sojourn.statistics.interval import Interval, student_t

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl
    from numpy.typing import NDArray

COLUMNS = ("ca_state", "snd_cwnd", "snd_ssthresh", "prior_cwnd", "snd_cwnd_cnt", "delivered", "flags", "srtt_us")
OPEN, RECOVERING = 0, 2
LEAST_THRESHOLD = 2
"""The minimum threshold in segments."""


@dataclass(frozen=True, slots=True)
class BackOff:
    """One back-off, in segments."""

    at_ns: int
    before: int
    threshold: int
    after: int | None
    """The window after recovery; None where recovery did not end."""


def back_offs(rows: pl.DataFrame) -> list[BackOff]:
    """Return the back-offs of one connection, from its samples of packets in time order."""
    state = rows["ca_state"].to_numpy()
    if not len(state):
        return []
    recovering = state >= RECOVERING
    starts = np.flatnonzero(recovering[1:] & ~recovering[:-1]) + 1
    ends = np.flatnonzero(~recovering[1:] & recovering[:-1]) + 1
    times, before = rows["time_ns"].to_numpy(), rows["prior_cwnd"].to_numpy()
    threshold, window = rows["snd_ssthresh"].to_numpy(), rows["snd_cwnd"].to_numpy()
    found = []
    for start in starts:
        end = ends[np.searchsorted(ends, start)] if np.searchsorted(ends, start) < len(ends) else None
        after = None if end is None else int(window[end])
        found.append(BackOff(int(times[start]), int(before[start]), int(threshold[start]), after))
    return found


def lawful(one: BackOff, numerator: int, denominator: int) -> bool:
    """Return whether the threshold is exactly the algorithm's: factor times window, rounded down, and at least two."""
    return one.threshold == max(one.before * numerator // denominator, LEAST_THRESHOLD)


def bounds(several: Sequence[BackOff]) -> tuple[float, float] | None:
    """Return the bounds of the factors that give every threshold after rounding down; None without any back-off."""
    told = [one for one in several if one.threshold > LEAST_THRESHOLD and one.before > 0]
    if not told:
        return None
    return max(one.threshold / one.before for one in told), min((one.threshold + 1) / one.before for one in told)


def factor(several: Sequence[BackOff], level: float = 0.95) -> Interval:
    """Return the mean ratio of window after recovery to window before, with half a segment added for rounding down."""
    shares = [(one.after + 0.5) / one.before for one in several if one.after is not None and one.before > 0]
    return student_t(np.array(shares, dtype=np.float64), level)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Congestion avoidance between two back-offs of one connection."""

    seconds: NDArray[np.float64]
    """Time since the first sample."""
    window: NDArray[np.int64]
    counted: NDArray[np.int64]
    """Segments acknowledged towards the window's next growth."""
    delivered: NDArray[np.int64]
    rtt_s: NDArray[np.float64]
    limited: NDArray[np.bool_]
    """Whether the sender was limited by the window."""
    rows: NDArray[np.int64]
    """Indices of the samples in the connection."""

    @property
    def round_trips(self) -> NDArray[np.float64]:
        """Time in round trips since the first sample."""
        steps = np.diff(self.seconds, prepend=0.0) / np.maximum(self.rtt_s, 1e-6)
        return np.cumsum(steps)


CWND_LIMITED = 1 << 10


def stretches(rows: pl.DataFrame, least: int = 20) -> Iterator[Stretch]:
    """Yield each stretch of congestion avoidance with at least `least` samples."""
    state = rows["ca_state"].to_numpy()
    window, threshold = rows["snd_cwnd"].to_numpy(), rows["snd_ssthresh"].to_numpy()
    avoiding = (state == OPEN) & (window >= threshold)
    edges = np.flatnonzero(np.diff(avoiding.astype(np.int8), prepend=0, append=0))
    times = rows["time_ns"].to_numpy()
    counted, delivered = rows["snd_cwnd_cnt"].to_numpy(), rows["delivered"].to_numpy()
    rtt, flags = rows["srtt_us"].fill_null(0.0).to_numpy(), rows["flags"].to_numpy()
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        if end - start < least:
            continue
        chosen = slice(start, end)
        yield Stretch(
            (times[chosen] - times[start]) / 1e9,
            window[chosen].astype(np.int64),
            counted[chosen].astype(np.int64),
            delivered[chosen].astype(np.int64),
            rtt[chosen] / 1e6,
            (flags[chosen] & CWND_LIMITED) > 0,
            np.arange(start, end),
        )


def slope(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the slope of the least-squares line; NaN where x does not vary."""
    spread = x - x.mean()
    total = float(spread @ spread)
    return float(spread @ (y - y.mean())) / total if total > 0 else math.nan
