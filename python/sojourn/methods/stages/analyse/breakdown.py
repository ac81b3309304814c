"""The parts of a frame's latency: the timestamps of each device and cell, and its stages by trials.

Differences of two paths are paired within rounds. Makes no row and no sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.run import against
from sojourn.analysis.streams import whole_rounds
from sojourn.analysis.wording import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

POINTS = (
    "intended_ns",
    "send_call_ns",
    "scheduled_ns",
    "departure_ns",
    "arrival_on_sender_ns",
    "receive_call_on_sender_ns",
    "answer_arrival_ns",
    "answer_receive_call_ns",
)
"""The timestamps in the order of the path."""

NAMES = ("pacing", "send", "qdisc", "path", "receive", "answer", "answer_receive")
"""The stage between each timestamp and the next."""

CALLED = {
    "intended_ns": "intended",
    "send_call_ns": "send call",
    "scheduled_ns": "queue (qdisc)",
    "departure_ns": "driver",
    "arrival_on_sender_ns": "arrival",
    "receive_call_on_sender_ns": "receive call",
    "answer_arrival_ns": "answer's arrival",
    "answer_receive_call_ns": "answer's receive call",
}

BEHIND = "later than the driver's: it was taken in another queue further along the path, not in the sender's"
"""Why a queue's timestamp is not used: a kernel timestamps a frame again in the queue of each device that
forwards it."""

PRESENT_SHARE = 0.99
"""A timestamp that fewer of a cell's frames have is missing from the cell."""

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Breakdown:
    """One device in one cell: its timestamps, and per trial (rows) and stage (columns) mean and quantiles."""

    device: str
    cell: int
    points: tuple[str, ...]
    rounds: NDArray[np.int64]
    sessions: NDArray[np.int64]
    """The session of each trial; all equal where the run has one bed."""
    means: NDArray[np.float64]
    quantiles: dict[str, NDArray[np.float64]]
    frames: int
    partial: int
    """Frames with the first and the last timestamp that lack one between."""
    missed: NDArray[np.float64]
    """For each trial: the mean total of its frames, partial ones too, minus that of those with every timestamp."""
    negative: NDArray[np.float64]
    missing: dict[str, str]

    @property
    def stages(self) -> list[str]:
        """The stages' names in order, and "total"."""
        return [*(stage_name(begin, end) for begin, end in pairwise(self.points)), "total"]


def stage_name(begin: str, end: str) -> str:
    """Return the name of a stage between two timestamps: the names of the stages in it, joined."""
    return "+".join(NAMES[POINTS.index(begin) : POINTS.index(end)])


def breakdowns(frames: pl.DataFrame) -> list[Breakdown]:
    """Return a breakdown for every device and cell of `frames`: device, cell, round, block, timestamps and their
    sources."""
    found = []
    for (device, cell), rows in frames.partition_by("device", "cell", as_dict=True, maintain_order=True).items():
        one = _breakdown(str(device), int(str(cell)), rows)
        if one is not None:
            found.append(one)
    return found


def _breakdown(device: str, cell: int, frames: pl.DataFrame) -> Breakdown | None:
    missing = _missing(frames)
    points = tuple(one for one in POINTS if one not in missing)
    if len(points) < 2:
        return None
    whole = frames.drop_nulls(list(points)).sort("block")
    if not whole.height:
        return None
    stamps = np.stack([whole[one].to_numpy().astype(np.int64) for one in points], axis=1)
    stages = np.diff(stamps, axis=1)
    total = stamps[:, -1] - stamps[:, 0]
    steps = np.column_stack([stages, total]).astype(np.float64)
    _, first = np.unique(whole["block"].to_numpy(), return_index=True)
    parts = np.split(steps, first[1:])
    means = np.stack([part.mean(axis=0) for part in parts])
    ends = frames.drop_nulls([points[0], points[-1]]).filter(pl.col("block").is_in(whole["block"].unique().implode()))
    every = ends.group_by("block").agg((pl.col(points[-1]) - pl.col(points[0])).mean().alias("total")).sort("block")
    return Breakdown(
        device,
        cell,
        points,
        whole["round"].to_numpy()[first].astype(np.int64),
        whole["session"].to_numpy()[first].astype(np.int64),
        means,
        {name: np.stack([np.quantile(part, q, axis=0) for part in parts]) for name, q in QUANTILES.items()},
        whole.height,
        ends.height - whole.height,
        every["total"].to_numpy() - means[:, -1],
        (stages < 0).mean(axis=0),
        missing,
    )


def _missing(frames: pl.DataFrame) -> dict[str, str]:
    """Return the timestamps that this cell lacks, each with the reason."""
    lacking: dict[str, str] = {}
    for point in POINTS:
        share = 1 - frames[point].null_count() / frames.height if point in frames.columns else 0.0
        if share < PRESENT_SHARE:
            lacking[point] = "never taken" if share == 0 else f"taken for {percent(share)} of the frames only"
    for point, source in (("departure_ns", "departure_source"), ("arrival_on_sender_ns", "arrival_source")):
        if point not in lacking and source in frames.columns and (frames[source] == "user").mean() > 1 - PRESENT_SHARE:  # type: ignore[operator]
            lacking[point] = "taken by the program, not by the kernel"
    if not {"scheduled_ns", "departure_ns"} & set(lacking):
        behind = (frames["scheduled_ns"] > frames["departure_ns"]).mean()
        if isinstance(behind, float) and behind > 1 - PRESENT_SHARE:
            lacking["scheduled_ns"] = BEHIND
    if "answer_arrival_ns" in lacking:
        lacking |= dict.fromkeys(("answer_arrival_ns", "answer_receive_call_ns"), "frames were not reflected")
    return lacking


def compared(found: list[Breakdown]) -> Iterator[tuple[Breakdown, Breakdown, tuple[str, ...]]]:
    """Return every device with each reference of its cell, the direct link first, and the timestamps that both have."""
    paths = {(one.cell, one.device): one for one in found}
    references = against(list(dict.fromkeys(one.device for one in found)))
    for one in found:
        for reference in (other for device, other in references if device == one.device):
            beside = paths.get((one.cell, reference))
            if beside is not None:
                yield one, beside, tuple(point for point in one.points if point in beside.points)


def differences(
    device: Breakdown, reference: Breakdown, points: tuple[str, ...]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return per round (rows) and stage between `points` (columns, the total last) device minus reference; with
    sessions."""
    rounds = np.array(sorted(set(_rounds(device)) & set(_rounds(reference))), dtype=np.int64).reshape(-1, 2)
    first, second = _by_round(device, rounds, points), _by_round(reference, rounds, points)
    return first - second, rounds[:, 0]


def _rounds(breakdown: Breakdown) -> list[tuple[int, int]]:
    """Return session and round of the rounds that have all their visits on one bed."""
    visits = max(np.bincount(breakdown.rounds).tolist(), default=0)
    return [(at.session, at.round) for at in whole_rounds(breakdown.sessions, breakdown.rounds, visits)]


def _by_round(breakdown: Breakdown, rounds: NDArray[np.int64], points: tuple[str, ...]) -> NDArray[np.float64]:
    """Return mean stages between the kept points, averaged over the visits of each round."""
    heights = np.concatenate([np.zeros((len(breakdown.means), 1)), np.cumsum(breakdown.means[:, :-1], axis=1)], axis=1)
    kept = heights[:, [breakdown.points.index(one) for one in points]]
    stages = np.column_stack([np.diff(kept, axis=1), kept[:, -1] - kept[:, 0]])
    if not len(rounds):
        return stages[:0]
    session, at = breakdown.sessions, breakdown.rounds
    return np.stack([stages[(session == part) & (at == one)].mean(axis=0) for part, one in rounds])
