"""The comparisons: each experiment runs our probe and one peer at the same task, and names its figures.

Hides how each side is started; a repetition gives one sample of a side, a flat table of figures.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bench import judge, ours, peers
from bench.compare import Target, What, alone, ratio
from sojourn.instruments import Responder, find_instrument
from sojourn.instruments.respond import respond_argv

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.compare import Row
    from sojourn.bed import Bed
    from sojourn.bed.model import Link

PAYLOAD_BYTES = 40
"""The least UDP payload that holds our header; the peers use the same."""

PACED, FLOOD, PING_PONG = 600, 10_000, 30_000
"""Probes of one run."""

CLOSED_LOOP = ("--schedule", "closed-loop", "-i", "0us")
"""Closed loop, without a minimum interval."""

RATE, LOAD_SECONDS = 10_000, 2
STALL_RATE, STALL_RUN_SECONDS, STALL_AFTER_SECONDS, STALL_SECONDS = 200, 4, 1.5, 1.0
"""The peer's default socket buffer holds 200 requests during the stall without a drop."""

Sample = dict[str, float]


@dataclass(frozen=True, slots=True)
class Ground:
    """The bed and the cores of the experiments."""

    bed: Bed
    link: Link
    scratch: Path
    sockperf: subprocess.Popen[str]
    prober_cpu: int
    responder_cpu: int

    @property
    def address(self) -> str:
        """The address of the answering side."""
        return self.link.b_ip4

    @property
    def cores(self) -> int:
        """The number of cores for both sides."""
        return 1 if self.prober_cpu == self.responder_cpu else 2

    def prober(self, wait: str = "sleep-then-spin") -> list[str]:
        """A core of its own, real-time priority unless it spins all the time, which the kernel would throttle."""
        return ["--cpu", str(self.prober_cpu), "--wait", wait, *(["--fifo"] if wait != "spin" else [])]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: a key of the samples, its comparison, and its target."""

    key: str
    name: str
    unit: str
    compare: Literal["ratio", "alone"] = "ratio"
    target: Target | None = None

    def row(self, task: str, peer: str, pairs: list[tuple[Sample, Sample]]) -> Row:
        """Return the line for these repetitions."""
        compare = ratio if self.compare == "ratio" else alone
        values = [(mine[self.key], theirs[self.key]) for mine, theirs in pairs]
        return compare(What(task, peer, self.name, self.unit), values, self.target)


@dataclass(frozen=True, slots=True)
class Experiment:
    """Our probe and one peer at the same task."""

    task: str
    peer: str
    ours: Callable[[Ground], Sample]
    theirs: Callable[[Ground], Sample]
    figures: tuple[Figure, ...]


def experiments() -> tuple[Experiment, ...]:
    """Return all experiments, in the order of the table."""
    within_a_tenth = Target("at most", 1.10)
    return (
        Experiment(
            "ICMP echo each 1 ms",
            "ping -i 0.001",
            lambda ground: _icmp_paced(ground, "ping"),
            lambda ground: _sample(peers.ping_paced(ground.bed, ground.address, PACED, user_level=False)),
            (
                Figure("min_ns", "minimum RTT", "ns", target=within_a_tenth),
                Figure("p50_ns", "median RTT", "ns"),
            ),
        ),
        Experiment(
            "ICMP echo each 1 ms, user level",
            "ping -U -i 0.001",
            lambda ground: _icmp_paced(ground, "ping -U"),
            lambda ground: _sample(peers.ping_paced(ground.bed, ground.address, PACED, user_level=True)),
            (
                Figure("min_ns", "minimum RTT", "ns", target=within_a_tenth),
                Figure("p50_ns", "median RTT", "ns"),
            ),
        ),
        Experiment(
            "ICMP echo, closed loop",
            "ping -f",
            _icmp_flood,
            lambda ground: _sample(peers.ping_flood(ground.bed, ground.address, FLOOD)),
            (
                Figure("min_ns", "minimum RTT", "ns", target=within_a_tenth),
                Figure("rate", "probes per second", "1/s"),
                Figure("cpu_ns", "CPU per probe", "ns"),
            ),
        ),
        Experiment(
            "ICMP echo, closed loop, no TX timestamps",
            "ping -f",
            lambda ground: _icmp_flood(ground, "--no-tx-timestamps"),
            lambda ground: _sample(peers.ping_flood(ground.bed, ground.address, FLOOD)),
            (
                Figure("min_ns", "minimum RTT", "ns", target=within_a_tenth),
                Figure("rate", "probes per second", "1/s"),
                Figure("cpu_ns", "CPU per probe", "ns"),
            ),
        ),
        Experiment(
            "UDP ping-pong, user level",
            "sockperf ping-pong",
            _udp_ping_pong,
            lambda ground: _sample(peers.sockperf_ping_pong(ground.bed, ground.address, 1, PAYLOAD_BYTES)),
            (
                Figure("p50_ns", "median RTT", "ns", target=Target("at most", 1.0)),
                Figure("min_ns", "minimum RTT", "ns"),
                Figure("p99_ns", "99th percentile", "ns"),
                Figure("rate", "probes per second", "1/s"),
                Figure("cpu_ns", "CPU per probe", "ns"),
            ),
        ),
        Experiment(
            f"UDP at {RATE:,}/s, open loop",
            "sockperf under-load",
            _our_load,
            _their_load,
            (
                Figure("p50_ns", "median RTT, user level", "ns", target=Target("at most", 1 / 3)),
                Figure("p99_ns", "99th percentile, user level", "ns"),
                Figure("cpu_ns", "CPU per probe", "ns"),
                Figure("within_1us", "departures within ±1 µs", "1", "alone", Target("at least", 0.85)),
                Figure("within_10us", "departures within ±10 µs", "1", "alone", Target("at least", 0.95)),
                Figure("gaps_within_1us", "gaps within ±1 µs", "1", "alone"),
                Figure("departure_p99_ns", "99th percentile of pacing error", "ns", "alone"),
                Figure("achieved", "rate achieved", "1/s", "alone"),
            ),
        ),
        Experiment(
            f"peer stalled for {STALL_SECONDS:g} s, open loop at {STALL_RATE}/s",
            "sockperf under-load",
            _our_stall,
            _their_stall,
            (
                Figure("p90_share", "90th percentile / stall's own", "1", "alone", Target("at least", 0.95)),
                Figure("p90_ns", "90th percentile", "ns", "alone"),
                Figure("lost", "lost", "1", "alone"),
            ),
        ),
    )


# --- our side --------------------------------------------------------------------------------------------------------


def _icmp_paced(ground: Ground, points: ours.Points) -> Sample:
    # ping spins from one millisecond to the next, so ours does too: a sleeper has cold caches and is not comparable.
    options = ["-c", str(PACED), "-i", "1ms", "--schedule", "regular", *ground.prober("spin")]
    return _icmp(ground, options, points)


def _icmp_flood(ground: Ground, *more: str) -> Sample:
    return _icmp(ground, ["-c", str(FLOOD), *CLOSED_LOOP, *ground.prober(), *more], "ping")


def _icmp(ground: Ground, options: list[str], points: ours.Points) -> Sample:
    to = ["icmp", ground.address]
    done = ours.probe(ground.bed, ground.scratch / "ours", to, [*options, "--payload-bytes", "56"])
    return _our_sample(done, points)


def _udp_ping_pong(ground: Ground) -> Sample:
    with _responder(ground):
        done = _udp(ground, ["-c", str(PING_PONG), *CLOSED_LOOP])
    return _our_sample(done, "user")


def _our_load(ground: Ground) -> Sample:
    file = ground.scratch / "ours.pcap"
    options = ["-c", str(RATE * LOAD_SECONDS), "-i", f"{1_000_000 // RATE}us", "--schedule", "regular"]
    with _responder(ground), judge.watch(ground.bed, ground.link.b_dev, ours.PORT, file):
        done = _udp(ground, options)
    return {**_our_sample(done, "user"), **_departures(file)}


def _our_stall(ground: Ground) -> Sample:
    count = STALL_RATE * STALL_RUN_SECONDS
    options = ["-c", str(count), "-i", f"{1000 // STALL_RATE}ms", "--schedule", "regular", "--timeout", "2s"]
    with _responder(ground) as pid, _stalled(pid, STALL_AFTER_SECONDS):
        done = _udp(ground, options)
    return _stall_sample(_our_sample(done, "intended"), STALL_RUN_SECONDS)


def _udp(ground: Ground, options: list[str]) -> ours.Ours:
    to = ["udp", f"{ground.address}:{ours.PORT}"]
    size = ["--payload-bytes", str(PAYLOAD_BYTES)]
    return ours.probe(ground.bed, ground.scratch / "ours", to, [*options, *size, *ground.prober()])


def _our_sample(done: ours.Ours, points: ours.Points) -> Sample:
    rest = {"rate": done.probes / done.seconds, "cpu_ns": done.cpu_per_probe_ns, "lost": float(done.lost)}
    return {**done.figures(points), **rest}


@contextmanager
def _responder(ground: Ground) -> Iterator[int]:
    """Yield our responder's process id; it runs only while needed, because its spinning would affect a peer's run."""
    started: list[subprocess.Popen[Any]] = []

    def start(argv: list[str], **popen: Any) -> subprocess.Popen[Any]:
        started.append(ground.bed.backend.start("b", argv, **popen))
        return started[-1]

    argv = respond_argv(find_instrument(), [], ours.PORT, ground.responder_cpu, alone=ground.cores > 1)
    responder = Responder(start, argv)
    try:
        yield started[0].pid
    finally:
        responder.stop()


# --- the peers -------------------------------------------------------------------------------------------------------


def _their_load(ground: Ground) -> Sample:
    file = ground.scratch / "theirs.pcap"
    with judge.watch(ground.bed, ground.link.b_dev, peers.SOCKPERF_PORT, file):
        done = peers.sockperf_under_load(ground.bed, ground.address, LOAD_SECONDS, PAYLOAD_BYTES, RATE)
    return {**_sample(done), **_departures(file)}


def _their_stall(ground: Ground) -> Sample:
    with _stalled(ground.sockperf.pid, peers.SOCKPERF_START_SECONDS + STALL_AFTER_SECONDS):
        done = peers.sockperf_under_load(ground.bed, ground.address, STALL_RUN_SECONDS, PAYLOAD_BYTES, STALL_RATE)
    return _stall_sample(_sample(done), done.seconds)


def _sample(done: peers.Peer) -> Sample:
    rest = {"rate": done.probes / done.seconds, "cpu_ns": done.cpu_per_probe_ns, "lost": float(done.lost)}
    return {**done.figures, **rest}


# --- both ------------------------------------------------------------------------------------------------------------


def _departures(file: Path) -> Sample:
    found = judge.Departures.of(judge.arrivals(file), 1_000_000_000 // RATE)
    return {
        "within_1us": found.within_1us,
        "within_10us": found.within_10us,
        "gaps_within_1us": found.gaps_within_1us,
        "departure_p99_ns": found.p99_ns,
        "achieved": found.rate,
    }


@contextmanager
def _stalled(pid: int, after_seconds: float) -> Iterator[None]:
    """Stop the process for STALL_SECONDS somewhere in the block."""
    signals = (signal.SIGSTOP, signal.SIGCONT)
    moments = (after_seconds, after_seconds + STALL_SECONDS)
    timers = [threading.Timer(at, os.kill, (pid, number)) for at, number in zip(moments, signals, strict=True)]
    for timer in timers:
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        os.kill(pid, signal.SIGCONT)


def _stall_sample(sample: Sample, seconds: float) -> Sample:
    """Return the sample with its 90th percentile relative to that from the stall alone.

    In a stall, a share of the requests waits evenly from 0 to 1 s.
    """
    expected_ns = (STALL_SECONDS - 0.1 * seconds) * 1e9
    return {**sample, "p90_share": sample["p90_ns"] / expected_ns}
