"""Every frame of the measured trials with all its stamps on the sender's clock: what ladders and models are made of.

One row a frame that was sent, whether it arrived or not: device, cell, round, visit, block, flow, seq, the sender's
stamps, the first undamaged arrival at the receiver that is measured (port 0), and where it was reflected the first
answer. Frames of background loads, of qualification and of trials that were repeated are not there. It knows only
trials that were recorded frame by frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.analysis.clocks import on_sender_clock

if TYPE_CHECKING:
    from sojourn.analysis.run import Run

KEY = ["block", "flow", "seq"]
ARRIVED = (
    "arrival_on_sender_ns",
    "receive_call_on_sender_ns",
    "arrival_source",
    "clock_bound_ns",
    "clock_error95_ns",
    "clock_shared",
)


def measured_flows(run: Run) -> pl.DataFrame:
    """Block, flow, device, cell, round and visit of every stream that was measured, kept, and no background."""
    repeated = [block for block, event in run.trial_events.items() if not event.get("kept", True)]
    return (
        run.streams.filter(pl.col("role") == "send", pl.col("purpose") == "measure", ~pl.col("block").is_in(repeated))
        .select("block", "flow", "device", "cell", "round", "visit")
        .unique(["block", "flow"], maintain_order=True)
    )


def frames_of(run: Run) -> pl.DataFrame:
    """The frames, by block, flow and number."""
    flows = measured_flows(run)
    sent = run.sends.select(*KEY, "intended_ns", "send_call_ns", "scheduled_ns", "departure_ns", "departure_source")
    arrived = on_sender_clock(run.arrivals.filter(~pl.col("corrupted")), run.clock_lines, run.streams)
    there = _first(arrived.filter(pl.col("node") == 0, pl.col("port") == 0)).select(*KEY, *ARRIVED)
    back = _first(arrived.filter(pl.col("node") > 0)).select(
        *KEY,
        pl.col("arrival_on_sender_ns").alias("answer_arrival_ns"),
        pl.col("receive_call_on_sender_ns").alias("answer_receive_call_ns"),
    )
    return (
        sent.join(flows, on=["block", "flow"], how="inner")
        .join(there, on=KEY, how="left")
        .join(back, on=KEY, how="left")
        .sort(KEY)
    )


def _first(arrivals: pl.DataFrame) -> pl.DataFrame:
    return arrivals.sort("arrival_ns").unique(KEY, keep="first", maintain_order=True)
