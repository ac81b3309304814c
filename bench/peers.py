"""The programs that we measure against, run as their manuals say and read from what they print.

ping times a round trip from its own clock reading before the send to the kernel's receive stamp (to its own clock
reading after the receive with -U), both cut to whole microseconds. sockperf reads the time-stamp counter on both
sides in user space. sockperf's default of one reply per hundred requests under load is set to every one: the same load
as ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.measure import Finished, finish
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from sojourn.bed import Bed

SOCKPERF_PORT = 11111
SOCKPERF_START_SECONDS = 2.1
"""The time from its launch to its first request: it measures the time-stamp counter's rate first."""

PERCENTILES = {"50.000": "p50_ns", "90.000": "p90_ns", "99.000": "p99_ns"}


@dataclass(frozen=True, slots=True)
class Peer:
    """The report of a peer on one run; `seconds` is the part of the run that its figures cover."""

    figures: dict[str, float]
    probes: int
    lost: int
    seconds: float
    cpu_ns: int

    @property
    def cpu_per_probe_ns(self) -> float:
        """CPU time of the probing program only, per probe."""
        return self.cpu_ns / self.probes


def ping_paced(bed: Bed, address: str, count: int, *, user_level: bool) -> Peer:
    """`ping -i 0.001`, every line read, for the median that its summary lacks."""
    level = ["-U"] if user_level else []
    done = finish(bed, "a", ["ping", "-n", *level, "-i", "0.001", "-c", str(count), address])
    times = np.array([float(found) for found in re.findall(r" time=([0-9.]+) ms", done.printed)]) * 1e6
    if not len(times):
        raise MachineError(f"ping got no answer: {done.printed.strip()[-200:]}")
    figures = {"min_ns": float(times.min()), "p50_ns": float(np.median(times)), "mean_ns": float(times.mean())}
    return _ping(done, figures)


def ping_flood(bed: Bed, address: str, count: int) -> Peer:
    """`ping -f`: the next probe after each reply; only the summary's minimum and mean."""
    done = finish(bed, "a", ["ping", "-n", "-q", "-f", "-c", str(count), address])
    found = re.search(r"= ([0-9.]+)/([0-9.]+)/[0-9.]+/[0-9.]+ ms", done.printed)
    if not found:
        raise MachineError(f"ping got no answer: {done.printed.strip()[-200:]}")
    return _ping(done, {"min_ns": float(found[1]) * 1e6, "mean_ns": float(found[2]) * 1e6})


def _ping(done: Finished, figures: dict[str, float]) -> Peer:
    found = re.search(r"(\d+) packets transmitted, (\d+) received.* time (\d+)ms", done.printed)
    if not found:
        raise MachineError(f"ping's summary is not understood: {done.printed.strip()[-200:]}")
    sent, received, elapsed_ms = int(found[1]), int(found[2]), int(found[3])
    return Peer(figures, sent, sent - received, max(elapsed_ms, 1) / 1e3, done.cpu_ns)


def sockperf_ping_pong(bed: Bed, address: str, seconds: float, payload_bytes: int) -> Peer:
    """`sockperf ping-pong`: closed loop."""
    return _sockperf(finish(bed, "a", _client("ping-pong", address, seconds, payload_bytes)))


def sockperf_under_load(bed: Bed, address: str, seconds: float, payload_bytes: int, rate: int) -> Peer:
    """`sockperf under-load`: open loop, `rate` requests a second."""
    argv = [*_client("under-load", address, seconds, payload_bytes), "--mps", str(rate), "--reply-every", "1"]
    return _sockperf(finish(bed, "a", argv))


def sockperf_server(address: str) -> list[str]:
    """The command line of the answering side."""
    return ["sockperf", "server", "-i", address, "-p", str(SOCKPERF_PORT)]


def _client(mode: str, address: str, seconds: float, payload_bytes: int) -> list[str]:
    to = ["-i", address, "-p", str(SOCKPERF_PORT)]
    return ["sockperf", mode, *to, "-t", str(round(seconds)), "-m", str(payload_bytes), "--full-rtt"]


def _sockperf(done: Finished) -> Peer:
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.printed)
    valid = re.search(r"\[Valid Duration\] RunTime=([0-9.]+) sec; SentMessages=(\d+); ReceivedMessages=(\d+)", text)
    if not valid:
        raise MachineError(f"sockperf's report is not understood: {text.strip()[-300:]}")
    figures = {key: _micro(text, rf"percentile {name} = +") for name, key in PERCENTILES.items()}
    figures["min_ns"] = _micro(text, r"<MIN> observation = +")
    figures["mean_ns"] = _micro(text, r"avg-rtt=")
    total = re.search(r"\[Total Run\].* SentMessages=(\d+)", text)
    sent, received = int(valid[2]), int(valid[3])
    whole = int(total[1]) if total else sent
    # CPU time is of the whole run, figures are of its valid part.
    return Peer(figures, sent, sent - received, float(valid[1]), round(done.cpu_ns * sent / max(whole, 1)))


def _micro(text: str, pattern: str) -> float:
    found = re.search(pattern + r"([0-9.]+)", text)
    if not found:
        raise MachineError(f"sockperf's report has no '{pattern}': {text.strip()[-300:]}")
    return float(found[1]) * 1e3
