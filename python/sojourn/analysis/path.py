"""One path in one cell: its probes, gathered of the run's when they are asked for, so that a run holds them once.

Where beds of a run differ, their round trips are laid upon one another where their fastest modes begin. It judges
nothing.
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

    @cached_property
    def clusters(self) -> NDArray[np.int64]:
        """The round of each probe, numbered from 0 without gaps; the session in its place where the run has several.

        Intervals are over clusters.
        """
        of = self.probes("part" if self.run.sessions > 1 else "round").to_series().to_numpy()
        return np.unique(of, return_inverse=True)[1].astype(np.int32)

    @cached_property
    def sessions(self) -> int | None:
        """Over how many sessions the probes are; None where the run has one bed."""
        return beds_in(self.probes("part").to_series().to_numpy()) if self.run.sessions > 1 else None

    def answered(self, column: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The times of a column, where there are any, and the cluster of each, numbered from 0 without gaps."""
        first, *less = DIFFERENCES.get(column, (column,))
        frame = self.probes(first, *less)
        values = (frame[first] - frame[less[0]] if less else frame[first]).cast(pl.Float64)
        there = values.is_not_null().to_numpy()
        clusters = np.unique(self.clusters[there], return_inverse=True)[1]
        return values.drop_nulls().to_numpy(), clusters.astype(np.int64)

    @cached_property
    def round_trips(self) -> pl.DataFrame:
        """Its answered probes: rtt (float), part, round, instance."""
        return self.probes("rtt", "part", "round", "instance").drop_nulls("rtt").cast({"rtt": pl.Float64})

    @cached_property
    def above_foot(self) -> NDArray[np.float64]:
        """How far each round trip lies above where the fastest mode of its own link begins."""
        rtt, box = pl.col("rtt"), [*(["part"] if self.run.sessions > 1 else []), "instance"]
        return self.round_trips.select(rtt - rtt.quantile(FOOT, "linear").over(box)).to_series().to_numpy()

    @cached_property
    def shift(self) -> float:
        """What brings beds that are laid upon one another back to the median of all."""
        return float(np.median(self.round_trips["rtt"].to_numpy()) - np.median(self.above_foot))

    def within_beds(self) -> NDArray[np.float64]:
        """The round trips, those of each bed laid upon one another at their fastest modes: beds are no modes."""
        return self.round_trips["rtt"].to_numpy() if self.run.sessions == 1 else self.above_foot + self.shift
