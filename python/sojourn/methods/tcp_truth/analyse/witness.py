"""The log's packets against a capture at the same host: the same packets, their order, and the time between both.

A packet is known by its header: ports, sequence and acknowledgement numbers, flags, length; the n-th of one header in
the log is the n-th of it in the capture. It reads no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEADER = ("local_port", "remote_port", "seq", "ack", "tcp_flags", "window", "packet_bytes", "payload_bytes")
CLOCK_ERROR_NS = 1_000
"""How far the kernel's two ways of reading the time may differ within a tick of the clock's adjustment."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One direction of one trial."""

    direction: str
    logged: int
    captured: int
    matched: int
    swapped: int
    """Neighbouring packets of one connection on one CPU that are in the other order in the capture; packets of two CPUs
    may overtake each other without either being wrong."""
    apart_ns: NDArray[np.int64]
    """The time between log and capture: from the log to the capture of sent packets, and back of received ones."""

    @property
    def only_logged(self) -> int:
        """Packets that are not in the capture."""
        return self.logged - self.matched

    @property
    def only_captured(self) -> int:
        """Packets that are not in the log."""
        return self.captured - self.matched

    @property
    def too_early(self) -> int:
        """Packets whose times are in the wrong order by more than the clock error."""
        return int((self.apart_ns < -CLOCK_ERROR_NS).sum())


def compare(samples: pl.DataFrame, captures: pl.DataFrame) -> list[Compared]:
    """Both directions; `samples` with the ports of their flow."""
    return [_compare(direction, samples, captures) for direction in ("out", "in")]


def _compare(direction: str, samples: pl.DataFrame, captures: pl.DataFrame) -> Compared:
    logged = _numbered(samples.filter(pl.col("point") == direction).sort("time_ns", maintain_order=True), "time_ns")
    seen = captures.filter(pl.col("direction") == direction).sort("captured_ns", maintain_order=True)
    captured = _numbered(seen, "captured_ns")
    both = logged.join(captured, on=[*HEADER, "copy"], how="inner").sort("place")
    sign = 1 if direction == "out" else -1
    apart = sign * (both["captured_ns"] - both["time_ns"]).to_numpy()
    step = both.select(pl.col("place_right").cast(pl.Int64).diff().over("local_port", "remote_port", "cpu"))
    swapped = int((step["place_right"].fill_null(1) < 0).sum())
    return Compared(direction, logged.height, captured.height, both.height, swapped, apart.astype(np.int64))


def _numbered(rows: pl.DataFrame, time: str) -> pl.DataFrame:
    """Headers with their place, and which packet of the same header each is."""
    own = [time, *(["cpu"] if "cpu" in rows.columns else [])]
    chosen = rows.select(*own, *(pl.col(name).cast(pl.Int64) for name in HEADER))
    return chosen.with_row_index("place").with_columns(pl.int_range(pl.len()).over(HEADER).alias("copy"))
