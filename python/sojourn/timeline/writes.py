"""The calls in which an application wrote the data: for each segment, the call that wrote its first byte.

`sojourn-instrument tcp send --read-before-send --record FOLDER` records them (table `tcp_readings`): TCP_INFO before
each call, when the call returned, and how many bytes the kernel took. The bytes of a stream are counted from its first
one, after the SYN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.records import read_table
from sojourn.timeline.pairs import WRAP, unwrapped

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

READ = (
    *("block", "role", "why", "number", "socket_cookie", "local_address", "local_port", "remote_address"),
    *("remote_port", "read_after_ns", "sent_ns", "handed_bytes"),
)
OF_WRITE = ("write_ns", "write_end_ns", "write_number")
SYN = 2


def no_writes() -> pl.DataFrame:
    """Return the empty table of a flow without recorded calls."""
    return pl.DataFrame(schema={"begin": pl.Int64, "end": pl.Int64, **dict.fromkeys(OF_WRITE, pl.Int64)})


def writes_of(folders: Sequence[Path], ends: dict[str, Any], block: int | None) -> pl.DataFrame:
    """Return one row per call that wrote data: its bytes of the stream, [`begin`, `end`), and its times in ns."""
    blocks = None if block is None else {block}
    same = [pl.col(name) == ends[name] for name in ("local_address", "local_port", "remote_address", "remote_port")]
    same.append(pl.col("socket_cookie") == ends["socket_cookie"])
    found = [read_table(one, "tcp_readings", blocks, READ).frame.filter(*same) for one in folders]
    calls = pl.concat(found).filter(pl.col("why") == "send", pl.col("handed_bytes") > 0).sort("number")
    end = pl.col("handed_bytes").cast(pl.Int64).cum_sum()
    return calls.select(
        (end - pl.col("handed_bytes")).alias("begin"),
        end.alias("end"),
        pl.col("read_after_ns").alias("write_ns"),
        pl.col("sent_ns").alias("write_end_ns"),
        pl.col("number").alias("write_number"),
    )


def with_writes(segments: pl.DataFrame, writes: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """Add to each segment the call of its first byte; null where none was recorded, or the stream's start is
    unknown."""
    first = first_byte(samples)
    if writes.is_empty() or first is None or segments.is_empty():
        return segments.with_columns(pl.lit(None, pl.Int64).alias(name) for name in OF_WRITE)
    asked = segments.select("place").with_columns(unwrapped(segments["seq"], first).alias("at"))
    found = asked.sort("at").join_asof(writes.sort("begin"), left_on="at", right_on="begin", strategy="backward")
    inside = found.filter(pl.col("at") < pl.col("end")).select("place", *OF_WRITE)
    return segments.join(inside, on="place", how="left", maintain_order="left")


def first_byte(samples: pl.DataFrame) -> int | None:
    """Return the sequence number of the stream's first byte: from the SYN, else from a sender without sent data."""
    out = samples.filter(pl.col("point") == "out")
    syn = out.filter(pl.col("tcp_flags").fill_null(0) & SYN > 0)
    if syn.height:
        return (int(syn["seq"][0]) + 1) % WRAP
    quiet = samples.filter(pl.col("sent_bytes") == 0, pl.col("state") == 1)
    return int(quiet["snd_nxt"][0]) % WRAP if quiet.height else None
