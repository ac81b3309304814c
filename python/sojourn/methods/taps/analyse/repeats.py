"""Cells with a large deviation during a run, and whether it persists when they are repeated separately.

A cell's deviation is a device's excess delay over its reference in the cell, minus the median excess of all its cells
of that size. It is anomalous where the deviation of the rounds, over sessions, is significant and large; it persists
where that of the repeated trials, minus the same median, has its sign, is significant, and has at least half its size.

Rows: cell_anomaly; mean (of the rounds), repeated (separately) [ns], with the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.rows import Row
from sojourn.analysis.wording import micro
from sojourn.statistics.interval import Interval, student_t

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from sojourn.analysis.run import Run

QUANTITY = "cell_anomaly"
MARGIN = 0.25
"""Share of the reference's mean delay: a smaller deviation does not count."""

PERSISTS = 0.5
FEW = 3
"""From this many sessions with repeated trials on, each gives one value; with fewer, each pair of trials does."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """A repeated cell: its deviation in the rounds and when repeated, and the reference's delay there."""

    device: str
    reference: str
    cell: int
    rounds: Interval
    again: Interval
    delay_ns: float
    sessions: int
    of: int

    @property
    def is_anomalous(self) -> bool:
        """Whether the rounds of all sessions show it, not only those of one."""
        return self.rounds.excludes(0) and abs(self.rounds.estimate) > MARGIN * self.delay_ns

    @property
    def persists(self) -> bool | None:
        """Whether the deviation is there when repeated; None: too few trials to decide."""
        if self.again.low is None:
            return None
        ratio = self.again.estimate / self.rounds.estimate if self.rounds.estimate else 0.0
        return self.again.excludes(0) and ratio >= PERSISTS


def repeated_cells(run: Run, means: pl.DataFrame, mean_of: Callable[[dict[str, Any]], float | None]) -> list[Repeated]:
    """Return every repeated cell, from the trials of the rounds (`means`) and the log."""
    taps = {int(one["block"]): one for one in run.log if one.get("event") == "taps"}
    told: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for event in (one for one in run.log if one.get("event") == "repeated"):
        told.setdefault((str(event["device"]), str(event["reference"]), int(event["cell"])), []).append(event)
    level = _levels(means)
    sessions = sorted({session for _, _, session in level})
    found = []
    for (device, reference, cell), events in told.items():
        if cell not in run.cells:  # the run folder was truncated
            continue
        several = [one for one in run.cells if _alike(run, one, cell)]
        own = {}
        for session in sessions:
            over = [level[device, one, session] - level[reference, one, session] for one in several
                    if (device, one, session) in level and (reference, one, session) in level]  # fmt: skip
            if over and (device, cell, session) in level and (reference, cell, session) in level:
                own[session] = (level[device, cell, session] - level[reference, cell, session], float(np.median(over)))
        again = {}
        for event in events:
            session = int(event["part"]) if run.sessions > 1 else 0
            pairs = [(mean_of(taps[one]), mean_of(taps[other]))
                     for one, other in zip(event["of_device"], event["of_reference"], strict=False)
                     if one in taps and other in taps]  # fmt: skip
            known = [one - other for one, other in pairs if one is not None and other is not None]
            if known and session in own:
                again[session] = np.array(known) - own[session][1]
        if own and again:
            values = np.array([value - middle for value, middle in own.values()])
            delay = float(np.mean([level[reference, cell, session] for session in own]))
            found.append(Repeated(device, reference, cell, student_t(values), _over(list(again.values())), delay,
                                  len(again), len(own)))  # fmt: skip
    return found


def _levels(means: pl.DataFrame) -> dict[tuple[str, int, int], float]:
    """Return the mean delay of each path, cell and session; each trial is one value."""
    each = means.group_by("device", "cell", "session").agg(pl.col("mean").mean())
    return {(str(device), int(cell), int(session)): float(mean) for device, cell, session, mean in each.iter_rows()}


def _alike(run: Run, one: int, other: int) -> bool:
    """Return whether two cells differ only in the rate of frames."""
    names = ("probe", "kind", "engine", "schedule", "frame_bytes", "to", "senders", "pipe")
    return all(getattr(run.cells[one], name) == getattr(run.cells[other], name) for name in names)


def _over(again: list[NDArray[np.float64]]) -> Interval:
    return student_t(np.array([one.mean() for one in again]) if len(again) >= FEW else np.concatenate(again))


def repeat_rows(run: Run, cells: list[Repeated]) -> list[Row]:
    """Return the deviations, of the rounds and when repeated."""
    return [
        Row(one.device, QUANTITY, statistic, value, "ns", one.reference, run.cells[one.cell], one.cell)
        for one in cells
        for statistic, value in (("mean", one.rounds), ("repeated", one.again))
    ]


def anomalous(cells: list[Repeated]) -> list[Finding]:
    """Return the cells that are anomalous over all sessions, and whether they persist."""
    found = {Place(one.device, one.cell): one for one in cells if one.is_anomalous}
    if not found:
        return []
    places, _ = worst_first({place: abs(one.rounds.estimate) for place, one in found.items()})
    worst = found[places[0]]
    persists = {
        True: "it persists",
        False: "it does not persist",
        None: ("there are too few trials to decide whether it persists"),
    }
    said = (
        f"{worst.device} takes {_said(worst.rounds)} more over {worst.reference} than in its other cells of that size; "
        f"repeated by itself on {worst.sessions} of {worst.of} beds, {persists[worst.persists]}: {_said(worst.again)}"
    )
    kept = sum(one.persists is True for one in found.values())
    several = f"; {kept} of {len(found)} such cells persist" if len(found) > 1 else ""
    return [Finding("anomalous_cell", said + several, worst.rounds.estimate, places)]


def _said(value: Interval) -> str:
    span = "no interval" if value.low is None or value.high is None else f"{micro(value.low)} to {micro(value.high)}"
    return f"{micro(value.estimate)} ({span})"
