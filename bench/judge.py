"""An independent measurement of departures: tcpdump at the B side, whoever the sender is.

From the capture's own kernel timestamps: the gaps between neighbours, and each departure against an even schedule whose
phase (and, if requested, rate) is fitted to the middle of the data, because a sender's clock may run slightly fast. The
B side sees departures with the path's jitter, so the errors found are at least the sender's own.
"""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sojourn.errors import MachineError
from sojourn.instruments.capture import await_listening, captured

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from sojourn.bed import Bed

GRACE_SECONDS = 1.2
"""The kernel passes a block of frames to tcpdump at most one second after its first."""


@dataclass(frozen=True, slots=True)
class Departures:
    """How well a sender kept an even schedule."""

    count: int
    rate: float
    within_1us: float
    within_10us: float
    p99_ns: float
    gaps_within_1us: float
    gaps_within_10us: float

    @classmethod
    def of(cls, arrivals_ns: NDArray[np.int64], interval_ns: int) -> Departures:
        """Judge a run's arrivals at the far end, its first and last twentieth left out."""
        edge = len(arrivals_ns) // 20
        kept = arrivals_ns[edge : len(arrivals_ns) - edge].astype(np.float64)
        if len(kept) < 100:
            raise MachineError(f"the capture at the far end saw only {len(arrivals_ns)} probes")
        error = np.abs(_from_even_schedule(kept - kept[0], interval_ns))
        gap = np.abs(np.diff(kept) - interval_ns)
        return cls(
            count=len(kept),
            rate=float((len(kept) - 1) / (kept[-1] - kept[0]) * 1e9),
            within_1us=float(np.mean(error <= 1e3)),
            within_10us=float(np.mean(error <= 1e4)),
            p99_ns=float(np.quantile(error, 0.99)),
            gaps_within_1us=float(np.mean(gap <= 1e3)),
            gaps_within_10us=float(np.mean(gap <= 1e4)),
        )


def _from_even_schedule(times: NDArray[np.float64], interval_ns: int) -> NDArray[np.float64]:
    """Residuals from an even schedule; its rate from the medians of the outer thirds, its phase from the median."""
    index = np.arange(len(times), dtype=np.float64)
    residual = times - index * interval_ns
    third = len(times) // 3
    slope = (np.median(residual[-third:]) - np.median(residual[:third])) / (len(times) - third)
    residual = residual - slope * index
    corrected: NDArray[np.float64] = residual - np.median(residual)
    return corrected


@contextmanager
def watch(bed: Bed, dev: str, port: int, file: Path) -> Iterator[None]:
    """Capture packets for a UDP port at B, from before the block until after it.

    Not in immediate mode: then tcpdump wakes for many frames at once, and disturbs the measured cores less.
    """
    options = ["-i", dev, "-n", "-p", "-s", "64", "-B", "16384", "--time-stamp-precision=nano", "-w", "-"]
    with file.open("wb") as output:
        process = bed.backend.start(
            "b", ["tcpdump", *options, f"udp dst port {port}"], stdout=output, stderr=subprocess.PIPE
        )
    await_listening(process)
    try:
        yield
        time.sleep(GRACE_SECONDS)
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
    expect_whole(said)


def expect_whole(said: bytes) -> None:
    """Raise MachineError if tcpdump, by what it said at its end, has dropped frames."""
    if b"\n0 packets dropped by kernel" not in said:
        raise MachineError(f"tcpdump lost frames, so it cannot judge: {said.decode(errors='replace').strip()}")


def arrivals(file: Path) -> NDArray[np.int64]:
    """The kernel's receive timestamps in a capture of ours, in nanoseconds."""
    return np.array([packet.at_ns for packet in captured(file)], dtype=np.int64)
