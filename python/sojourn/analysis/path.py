"""One path in one cell: its probes, gathered of the run's when they are asked for, so that a run holds them once.

It judges nothing.
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
"""Round trips that are no column of the probes: what is subtracted from what."""


@dataclass(frozen=True)
class PathInCell:
    """The measured probes of one device in one cell."""

    device: str
    cell: int
    run: Run
    rows: NDArray[np.int32]
    """Which of the measured probes they are, in their order."""

    def probes(self, *columns: str) -> pl.DataFrame:
        """These columns of its probes, in their order."""
        return gathered(self.run.measured.select(columns), self.rows)

    @property
    def clusters(self) -> NDArray[np.int64]:
        """The round of each probe, numbered from 0 without gaps; the session in its place where the run has several.

        Intervals are over clusters.
        """
        return _numbered(self.probes(self._cluster).to_series().to_numpy())

    @cached_property
    def sessions(self) -> int | None:
        """Over how many sessions the probes are; None where the run has one bed."""
        return beds_in(self.probes("part").to_series().to_numpy()) if self.run.sessions > 1 else None

    def answered(self, column: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The times of a column, where there are any, and the cluster of each, numbered from 0 without gaps."""
        first, *less = DIFFERENCES.get(column, (column,))
        time = pl.col(first) - pl.col(less[0]) if less else pl.col(first)
        frame = self.probes(first, *less, self._cluster).select(time.cast(pl.Float64).alias("time"), self._cluster)
        frame = frame.drop_nulls("time")
        return frame["time"].to_numpy(), _numbered(frame[self._cluster].to_numpy())

    def laid(self) -> Laid:
        """Its answered probes, those of all beds laid upon one another."""
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
    """The range of rows of each block, in a frame that is in the order of its blocks."""

    block: NDArray[np.int64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]

    @classmethod
    def of(cls, probes: pl.DataFrame) -> RowRanges:
        """Those of a frame."""
        block = probes["block"].to_numpy()
        start = np.flatnonzero(np.concatenate(([True], block[1:] != block[:-1]))) if len(block) else np.empty(0, int)
        return cls(block[start].astype(np.int64), start, np.diff(start, append=len(block)))

    @property
    def lengths(self) -> pl.DataFrame:
        """Of each block how many rows it has (`len`)."""
        return pl.DataFrame({"block": self.block.astype(np.int32), "len": self.length})

    def rows(self, blocks: Sequence[int]) -> NDArray[np.int32]:
        """The rows of these blocks, in the frame's order."""
        chosen = np.isin(self.block, blocks)
        start, length = self.start[chosen], self.length[chosen]
        before = np.cumsum(length) - length
        rows: NDArray[np.int32] = np.arange(int(length.sum()), dtype=np.int32)
        rows += np.repeat((start - before).astype(np.int32), length)
        return rows


PIECE_ROWS = 1 << 20
"""Rows that are looked at together: some 100 MB of probes."""


def gathered(frame: pl.DataFrame, rows: NDArray[np.int32]) -> pl.DataFrame:
    """These rows, which ascend, of a frame of many pieces: piece by piece, for Polars would first make one of all."""
    starts = range(0, frame.height, PIECE_ROWS)
    ends = np.searchsorted(rows, [*starts, frame.height]).tolist()
    each = ((start, rows[first:end] - start) for start, first, end in zip(starts, ends, ends[1:], strict=False))
    found = [frame.slice(start, PIECE_ROWS)[own] for start, own in each if len(own)]
    return pl.concat([frame.clear(), *found]).rechunk()


@dataclass(frozen=True, slots=True)
class Laid:
    """Answered probes, those of each bed laid upon one another where their fastest modes begin: beds are no modes."""

    probes: pl.DataFrame
    """rtt (float), part, round."""
    above_foot: NDArray[np.float64]
    """How far each round trip lies above where the fastest mode of its own link begins."""
    shift: float
    """What brings them back to the median of all."""
    of_several: bool
    """Whether there are several beds."""

    @property
    def values(self) -> NDArray[np.float64]:
        """The round trips; of one bed as they are."""
        return self.above_foot + self.shift if self.of_several else self.probes["rtt"].to_numpy()


def _numbered(of: NDArray[np.int32]) -> NDArray[np.int64]:
    """Numbers from 0 without gaps, in their order."""
    return np.unique(of, return_inverse=True)[1].astype(np.int64)
