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
    rows: pl.Series
    """Which of the measured probes they are."""

    def probes(self, *columns: str) -> pl.DataFrame:
        """These columns of its probes, in their order."""
        return self.run.measured.select(columns)[self.rows]

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
