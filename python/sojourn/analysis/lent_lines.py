"""Clock lines for trials without exchanges: those of the trials before and after, between the same two clocks.

An exchange over an emulator would include the emulated delay, so a stream over one makes none; the direct path's
streams of the same run do. A line is extrapolated over the time between, and its errors grow with the distance
(clocks.py). The error includes the disagreement of two lines. Where a line exists on one side only (before the first
direct stream, after the last one), a clock step in between is not covered, which a finding reports. Reads `clock_lines`
and `streams`; estimates nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

BETWEEN = ["sender", "clock_id"]


def with_lent(lines: pl.DataFrame, streams: pl.DataFrame, devices: Collection[str]) -> pl.DataFrame:
    """Return the lines, and for each block without lines over these paths the nearest ones in time of other blocks."""
    return pl.concat([lines, *(one.select(lines.columns) for one in _lent_of(lines, streams, devices))])


def one_sided(lines: pl.DataFrame, streams: pl.DataFrame, devices: Collection[str]) -> set[int]:
    """Return the blocks that have a borrowed line from one side only."""
    return {int(one["block"][0]) for one in _lent_of(lines, streams, devices) if one.height == 1}


def _lent_of(lines: pl.DataFrame, streams: pl.DataFrame, devices: Collection[str]) -> list[pl.DataFrame]:
    """Return the borrowed lines of each block that needs some."""
    if not lines.height or not {"clock_id", "started_ns", "device"} <= set(streams.columns):
        return []
    pairs = _pairs(streams)
    borrow = streams.filter(pl.col("device").is_in(sorted(devices))).select("block").unique()
    owed = pairs.join(borrow, on="block", how="semi").join(lines.select("block").unique(), on="block", how="anti")
    known = lines.filter(~pl.col("shared")).join(pairs, on=["block", "clock_id"], how="inner")
    return list(_lent(known, owed))


def _pairs(streams: pl.DataFrame) -> pl.DataFrame:
    """Return for each block its sender's clock, each receiver's other clock, and when reception began on that."""
    senders = streams.filter(pl.col("role") == "send").select("block", sender="clock_id").unique("block")
    receivers = streams.filter(pl.col("role") == "receive").select("block", "clock_id", "started_ns")
    both = receivers.unique(["block", "clock_id"]).join(senders, on="block")
    return both.filter(pl.col("clock_id") != pl.col("sender"), pl.col("clock_id") != 0, pl.col("sender") != 0)


def _lent(known: pl.DataFrame, owed: pl.DataFrame) -> Iterator[pl.DataFrame]:
    for clocks, blocks in owed.partition_by(BETWEEN, as_dict=True, maintain_order=True).items():
        sender, clock = clocks
        there = known.filter(pl.col("sender") == sender, pl.col("clock_id") == clock).sort("from_ns")
        begins = there["from_ns"].to_numpy()
        for block, at_ns in blocks.select("block", "started_ns").iter_rows():
            after = int(begins.searchsorted(at_ns))
            near = there.slice(max(0, after - 1), min(after, 1) + 1)
            yield near.with_columns(pl.lit(block, dtype=known.schema["block"]).alias("block"))
