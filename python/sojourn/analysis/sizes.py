"""Latency as a + b times size: for whole paths and for devices, one line per round, with intervals over rounds.

The size of a round trip is the mean of its request and response frames. Half the round trip over that size has the same
slope and intercept as the papers' one-way formula ("allowing for the 64-byte request"), and one rule serves ICMP,
ping-pong and request-response. There is no fit where a plan has only one size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sojourn.analysis.factors import RAW_OVERHEAD, in_common
from sojourn.analysis.rows import Row
from sojourn.analysis.run import A_A
from sojourn.statistics.line import Line, fit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.analysis.factors import Factors
    from sojourn.analysis.pairs import Rounds
    from sojourn.analysis.run import Run
    from sojourn.statistics.interval import Interval
    from sojourn.statistics.line import Over


@dataclass(frozen=True, slots=True)
class BySize:
    """One-way times of a device (over a reference, or of the whole path) per round (rows) and size (columns).

    Of a run of several sessions, a row is the mean of a session's rounds.
    """

    device: str
    reference: str | None
    probe: str
    factors: Factors
    sizes: NDArray[np.float64]
    one_way: NDArray[np.float64]
    probes: int
    over: Over
    """The estimator of an interval from the values of rows."""

    def line(self) -> Line:
        """Return the fitted line."""
        return fit(self.sizes, self.one_way, over=self.over)

    def at_each_size(self) -> list[Interval]:
        """Return the latency at each size."""
        return [self.over(column, 0.95) for column in self.one_way.T]


def by_size(run: Run, rounds: Rounds) -> list[BySize]:
    """Return every probe with at least two sizes, for every path and device; cells that differ otherwise are averaged.

    Frames beyond the MTU travel as fragments and are excluded.
    """
    whole: list[tuple[str, str | None]] = [(one, None) for one in rounds.devices if one != A_A]
    wanted = whole + [pair for pair in rounds.pairs() if pair[0] != A_A]
    found = []
    for probe in sorted({str(one.probe) for one in run.cells.values()}):
        cells = [row for row, cell in enumerate(rounds.cells) if lies_on_line(run, cell, probe)]
        sizes = sorted({run.cells[rounds.cells[row]].mean_frame_bytes for row in cells})
        if len(sizes) >= 2:
            found += [_gather(run, rounds, probe, cells, pair) for pair in wanted]
    return [one for one in found if len(one.one_way)]


def size_rows(fits: list[BySize]) -> list[Row]:
    """Return intercept and slope of every fit."""
    rows = []
    for one in fits:
        line = one.line()
        for quantity, value, unit in (
            ("latency_intercept", line.intercept, "ns"),
            ("latency_slope", line.slope, "ns/byte"),
        ):
            rows.append(Row(one.device, quantity, "fit", value, unit, one.reference, one.factors, None, one.probes))
    return rows


def lies_on_line(run: Run, cell: int, probe: str) -> bool:
    """Return whether a cell is of this probe, and its messages fit in one frame."""
    factors = run.cells[cell]
    longest = int(run.plan.get("bed", {}).get("mtu", 1500)) + RAW_OVERHEAD
    return factors.probe == probe and max(factors.frame_bytes or 0, factors.response_frame_bytes or 0) <= longest


def _gather(run: Run, rounds: Rounds, probe: str, cells: list[int], pair: tuple[str, str | None]) -> BySize:
    device, reference = pair
    one_way = rounds.one_way(device, reference)
    at = np.array([run.cells[rounds.cells[row]].mean_frame_bytes for row in cells])
    sizes = np.unique(at)
    per_size = np.stack([one_way[np.array(cells)[at == size]].mean(axis=0) for size in sizes], axis=1)
    complete = ~np.isnan(per_size).any(axis=1)
    used = np.zeros(one_way.shape, dtype=np.bool_)
    used[cells] = complete
    factors = in_common(run.cells[rounds.cells[row]] for row in cells)
    rows = rounds.by_session(per_size)
    return BySize(device, reference, probe, factors, sizes, rows, rounds.counted(device, reference, used), rounds.over)
