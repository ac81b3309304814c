"""One path in one cell: its probes, gathered from the run's on request, so that a run holds them once.

The module judges nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.sessions import beds_in
from sojourn.statistics.modes import FOOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sojourn.analysis.run import Run

DIFFERENCES = {"rtt_intended": ("arrival_ns", "intended_ns"), "rtt_user": ("receive_call_ns", "send_call_ns")}
"""Round trips that are no column of the probes: minuend and subtrahend."""


@dataclass(frozen=True)
class PathInCell:
    """The measured probes of one device in one cell."""

    device: str
    cell: int
    run: Run
    rows: NDArray[np.int32]
    """Their indexes among the measured probes, in order."""

    def probes(self, *columns: str) -> pl.DataFrame:
        """Return these columns of its probes, in order."""
        return gathered(self.run.measured.select(columns), self.rows)

    @property
    def clusters(self) -> NDArray[np.int64]:
        """The round of each probe, numbered from 0 without gaps; or its session, where the run has several.

        Intervals are over clusters.
        """
        return _numbered(self.probes(self._cluster).to_series().to_numpy())

    @cached_property
    def sessions(self) -> int | None:
        """The number of sessions with probes; None where the run has one bed."""
        return beds_in(self.probes("part").to_series().to_numpy()) if self.run.sessions > 1 else None

    def answered(self, column: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the non-null times of a column, and the cluster of each, numbered from 0 without gaps."""
        first, *less = DIFFERENCES.get(column, (column,))
        time = pl.col(first) - pl.col(less[0]) if less else pl.col(first)
        frame = self.probes(first, *less, self._cluster).select(time.cast(pl.Float64).alias("time"), self._cluster)
        frame = frame.drop_nulls("time")
        return frame["time"].to_numpy(), _numbered(frame[self._cluster].to_numpy())

    def laid(self) -> Laid:
        """Return its answered probes, with those of all beds aligned."""
        rtt, box = pl.col("rtt"), [*(["part"] if self.run.sessions > 1 else []), "instance"]
        probes = self.probes("rtt", "part", "round", "instance").drop_nulls("rtt").cast({"rtt": pl.Float64})
        above = probes.select(rtt - rtt.quantile(FOOT, "linear").over(box)).to_series().to_numpy()
        shift = float(np.median(probes["rtt"].to_numpy()) - np.median(above)) if len(above) else 0.0
        return Laid(probes.select("rtt", "part", "round"), above, shift, self.run.sessions > 1)

    @property
    def _cluster(self) -> str:
        return "part" if self.run.sessions > 1 else "round"


@dataclass(frozen=True, slots=True)
class RowRanges:
    """The range of rows of each block, in a frame in the order of blocks."""

    block: NDArray[np.int64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]

    @classmethod
    def of(cls, probes: pl.DataFrame) -> RowRanges:
        """Return the ranges of a frame."""
        block = probes["block"].to_numpy()
        start = np.flatnonzero(np.concatenate(([True], block[1:] != block[:-1]))) if len(block) else np.empty(0, int)
        return cls(block[start].astype(np.int64), start, np.diff(start, append=len(block)))

    @property
    def lengths(self) -> pl.DataFrame:
        """The number of rows of each block (`len`)."""
        return pl.DataFrame({"block": self.block.astype(np.int32), "len": self.length})

    def rows(self, blocks: Sequence[int]) -> NDArray[np.int32]:
        """Return the rows of these blocks, in the frame's order."""
        chosen = np.isin(self.block, blocks)
        start, length = self.start[chosen], self.length[chosen]
        before = np.cumsum(length) - length
        rows: NDArray[np.int32] = np.arange(int(length.sum()), dtype=np.int32)
        rows += np.repeat((start - before).astype(np.int32), length)
        return rows


PIECE_ROWS = 1 << 20
"""Rows that are processed together: some 100 MB of probes."""


def gathered(frame: pl.DataFrame, rows: NDArray[np.int32]) -> pl.DataFrame:
    """Return these rows, in ascending order, of a frame of many chunks; chunk by chunk, as Polars would merge all
    first."""
    starts = range(0, frame.height, PIECE_ROWS)
    ends = np.searchsorted(rows, [*starts, frame.height]).tolist()
    each = ((start, rows[first:end] - start) for start, first, end in zip(starts, ends, ends[1:], strict=False))
    found = [frame.slice(start, PIECE_ROWS)[own] for start, own in each if len(own)]
    return pl.concat([frame.clear(), *found]).rechunk()


@dataclass(frozen=True, slots=True)
class Laid:
    """Answered probes, with beds aligned where their fastest modes begin: differences between beds are no modes."""

    probes: pl.DataFrame
    """rtt (float), part, round."""
    above_foot: NDArray[np.float64]
    """The height of each round trip above the begin of the fastest mode of its own link."""
    shift: float
    """The offset that restores the median of all."""
    of_several: bool
    """Whether there are several beds."""

    @property
    def values(self) -> NDArray[np.float64]:
        """The aligned round trips; of one bed unchanged."""
        return self.above_foot + self.shift if self.of_several else self.probes["rtt"].to_numpy()


def _numbered(of: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return dense numbers from 0, in the order of the values."""
    return np.unique(of, return_inverse=True)[1].astype(np.int64)
