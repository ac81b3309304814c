"""The log's packets compared with a capture at the same host: missing packets, order, and the time between both.

Packets are matched by their headers: ports, sequence and acknowledgement numbers, flags, window, lengths; the n-th
packet with a header in the log is the n-th with it in the capture. Reads no file.
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
"""The maximum difference between the kernel's two ways of reading the time within a tick of the clock's adjustment."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One direction of one trial."""

    direction: str
    logged: int
    captured: int
    matched: int
    swapped: int
    """Successive packets of one connection on one CPU whose order is reversed in the capture; packets of two CPUs may
    overtake each other without an error in either."""
    apart_ns: NDArray[np.int64]
    """The time between log and capture: from the log to the capture for sent packets, the reverse for received ones."""

    @property
    def only_logged(self) -> int:
        """The number of packets that are not in the capture."""
        return self.logged - self.matched

    @property
    def only_captured(self) -> int:
        """The number of packets that are not in the log."""
        return self.captured - self.matched

    @property
    def too_early(self) -> int:
        """The number of packets whose times are in the wrong order by more than the clock error."""
        return int((self.apart_ns < -CLOCK_ERROR_NS).sum())


def compare(samples: pl.DataFrame, captures: pl.DataFrame) -> list[Compared]:
    """Return both directions; `samples` have the ports of their flow."""
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
    """Return headers with their position, and the index of each packet among those with the same header."""
    own = [time, *(["cpu"] if "cpu" in rows.columns else [])]
    chosen = rows.select(*own, *(pl.col(name).cast(pl.Int64) for name in HEADER))
    return chosen.with_row_index("place").with_columns(pl.int_range(pl.len()).over(HEADER).alias("copy"))
