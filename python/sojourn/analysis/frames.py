"""Every frame of the measured trials, all timestamps on the sender's clock: for latency breakdowns and models.

One row per sent frame, received or not: device, cell, round, visit, block, flow, seq, the sender's timestamps, the
first undamaged arrival at the measured receiver (port 0) and, where it was reflected, the first answer. Frames of
background loads, of qualification and of repeated trials are left out. Only trials recorded frame by frame have rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.analysis.clocks import on_sender_clock
from sojourn.analysis.streams import LOAD_FLOWS, kept_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.analysis.run import Run

KEY = ["block", "flow", "seq"]
SENT = ("intended_ns", "send_call_ns", "scheduled_ns", "departure_ns", "departure_source")
ARRIVED = (
    "arrival_on_sender_ns",
    "receive_call_on_sender_ns",
    "arrival_source",
    "clock_bound_ns",
    "clock_error95_ns",
    "clock_shared",
)


def cells_of_frames(run: Run, *, answers: bool = False) -> Iterator[pl.DataFrame]:
    """Return the frames of each cell, all devices together: those of a whole run would not fit into a small machine."""
    flows = measured_flows(run)
    for cell in sorted(flows["cell"].unique()):
        frames = frames_of(run, flows.filter(pl.col("cell") == cell), answers=answers)
        if frames.height:
            yield frames


def measured_flows(run: Run) -> pl.DataFrame:
    """Return block, flow, device, cell, round, visit, session of every measured and kept stream without the
    background."""
    return (
        run.streams.filter(
            pl.col("role") == "send",
            pl.col("purpose") == "measure",
            pl.col("flow") < LOAD_FLOWS,
            pl.col("block").is_in(sorted(kept_blocks(run))),
        )
        .select("block", "flow", "device", "cell", "round", "visit", run.session)
        .unique(["block", "flow"], maintain_order=True)
    )


def frames_of(run: Run, flows: pl.DataFrame, *, answers: bool = False) -> pl.DataFrame:
    """Return the frames of these flows, by block, flow and number; with their answers on request."""
    blocks = flows["block"].unique().to_list()
    sent = run.sends.filter(pl.col("block").is_in(blocks)).select(*KEY, *SENT)
    here = run.arrivals.filter(pl.col("block").is_in(blocks), ~pl.col("corrupted"))
    arrived = on_sender_clock(here, run.clock_lines, run.streams)
    there = _first(arrived.filter(pl.col("node") == 0, pl.col("port") == 0)).select(*KEY, *ARRIVED)
    frames = sent.join(flows, on=["block", "flow"], how="inner").join(there, on=KEY, how="left")
    if answers:
        frames = frames.join(_answers(arrived), on=KEY, how="left")
    return frames.sort(KEY)


def _answers(arrived: pl.DataFrame) -> pl.DataFrame:
    return _first(arrived.filter(pl.col("node") > 0)).select(
        *KEY,
        pl.col("arrival_on_sender_ns").alias("answer_arrival_ns"),
        pl.col("receive_call_on_sender_ns").alias("answer_receive_call_ns"),
    )


def _first(arrivals: pl.DataFrame) -> pl.DataFrame:
    return arrivals.sort("arrival_ns").unique(KEY, keep="first", maintain_order=True)
