"""Lines of clocks for trials that asked for no time: those of the trials before and after, between the same two clocks.

Through an emulator an exchange would have the error of what is configured there, so a stream over one does not ask.
The direct path's streams of the same run do. A line is stretched to the time between, and its errors grow with the
distance (clocks.py). Reads what `clock_lines` and `streams` hold; estimates nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterator

BETWEEN = ["sender", "clock_id"]


def with_lent(lines: pl.DataFrame, streams: pl.DataFrame) -> pl.DataFrame:
    """The lines, and for each block between two clocks that has none, the nearest ones in time of other blocks."""
    if not lines.height or not {"clock_id", "started_ns"} <= set(streams.columns):
        return lines
    pairs = _pairs(streams)
    owed = pairs.join(lines.select("block").unique(), on="block", how="anti")
    known = lines.filter(~pl.col("shared")).join(pairs, on=["block", "clock_id"], how="inner")
    return pl.concat([lines, *(one.select(lines.columns) for one in _lent(known, owed))])


def _pairs(streams: pl.DataFrame) -> pl.DataFrame:
    """Of each block its sender's clock, each other clock of a receiver, and when reception began on that."""
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
