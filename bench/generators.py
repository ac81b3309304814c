"""The traffic generators compared with ours, each configured by its manual for the same packets at the same rate.

All send 64 bytes of UDP user data from A to B, where a socket is open: otherwise ICMP errors would be sent. The figures
of a generator are measured from outside: the capture at the B side, the interface's counters, the kernel's CPU times. A
generator's own figures are not used.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn.errors import MachineError
from sojourn.instruments import find_instrument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.experiments import Ground

PAYLOAD_BYTES = 64
SINK_PORT, IPERF_PORT, IPERF3_PORT, ITG_PORT, IRTT_PORT, SOCKPERF_PORT = 5001, 5002, 5201, 8999, 2112, 11111

SINK = (
    "import socket, time\n"
    "inet = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    f"inet.bind(('0.0.0.0', {SINK_PORT}))\n"
    "time.sleep(3600)\n"
)
"""A socket that nobody reads: the kernel drops packets beyond its buffer, and sends no answer."""

LISTENERS: tuple[tuple[str, ...], ...] = (
    (sys.executable, "-c", SINK),
    ("iperf", "-s", "-u", "-p", str(IPERF_PORT)),
    ("iperf3", "-s", "-p", str(IPERF3_PORT)),
    ("ITGRecv",),
    ("irtt", "server", "-i", "0"),
)
START_SECONDS = 1.5
LEAST_RESTFUL_US = 50


@dataclass(frozen=True, slots=True)
class Asked:
    """The rate and the duration for each generator."""

    rate: int
    seconds: float

    @property
    def count(self) -> int:
        """The number of packets."""
        return round(self.rate * self.seconds)

    @property
    def interval_us(self) -> float:
        """The interval between packets, in µs."""
        return 1e6 / self.rate


@dataclass(frozen=True, slots=True)
class Generator:
    """A program that sends: its name, its command line, and the UDP port that its packets go to."""

    name: str
    port: int
    argv: Callable[[Ground, Asked], list[str]]


def ours(ground: Ground, asked: Asked) -> list[str]:
    """Our stream over UDP."""
    to = ["--udp", f"{ground.address}:{SINK_PORT}", "--dev", ground.link.a_dev, "--clock", "none"]
    what = ["--schedule", "regular", "--rate", f"{asked.rate}pps", "--count", str(asked.count)]
    size = ["--payload-bytes", str(PAYLOAD_BYTES)]
    # A real-time program must sleep, for which 100,000 packets a second leave no time.
    place = ground.prober() if asked.interval_us >= LEAST_RESTFUL_US else ["--cpu", str(ground.prober_cpu)]
    return [find_instrument(), "stream", "send", *to, *what, *size, *place]


def mgen(ground: Ground, asked: Asked) -> list[str]:
    """MGEN, periodic."""
    flow = f"UDP DST {ground.address}/{SINK_PORT} PERIODIC [{asked.rate} {PAYLOAD_BYTES}]"
    return ["mgen", "event", f"ON 1 {flow}", "event", f"{asked.seconds} OFF 1"]


def iperf2(ground: Ground, asked: Asked) -> list[str]:
    """iperf 2, paced by packets per second."""
    to = ["-c", ground.address, "-p", str(IPERF_PORT)]
    return ["iperf", "-u", *to, "-b", f"{asked.rate}pps", "-l", str(PAYLOAD_BYTES), "-t", str(asked.seconds)]


def iperf3(ground: Ground, asked: Asked) -> list[str]:
    """iperf 3, paced by bits per second of user data; whole seconds only."""
    to = ["-c", ground.address, "-p", str(IPERF3_PORT)]
    bits = asked.rate * PAYLOAD_BYTES * 8
    return ["iperf3", "-u", *to, "-b", str(bits), "-l", str(PAYLOAD_BYTES), "-t", str(max(1, round(asked.seconds)))]


def ditg(ground: Ground, asked: Asked) -> list[str]:
    """D-ITG, constant inter-departure time."""
    size = ["-c", str(PAYLOAD_BYTES), "-t", str(round(asked.seconds * 1000))]
    return ["ITGSend", "-a", ground.address, "-rp", str(ITG_PORT), "-C", str(asked.rate), *size, "-T", "UDP"]


def trafgen(ground: Ground, asked: Asked) -> list[str]:
    """trafgen with its own gap between packets, which uses the slow path of the kernel."""
    link = ground.link
    frame = (
        f"{{ eth(da={link.b_mac}, sa={link.a_mac}), ipv4(sa={link.a_ip4}, da={link.b_ip4}, ttl=64), "
        f"udp(sp={SINK_PORT}, dp={SINK_PORT}), fill(0, {PAYLOAD_BYTES}) }}"
    )
    gap = ["-t", f"{round(asked.interval_us)}us", "-n", str(asked.count)]
    return ["trafgen", "-o", link.a_dev, *gap, "-P", "1", frame]


def sockperf(ground: Ground, asked: Asked) -> list[str]:
    """sockperf's one-way mode at a rate."""
    to = ["-i", ground.address, "-p", str(SOCKPERF_PORT)]
    what = ["-t", str(max(1, round(asked.seconds))), "-m", str(PAYLOAD_BYTES), "--mps", str(asked.rate)]
    return ["sockperf", "throughput", *to, *what]


def irtt(ground: Ground, asked: Asked) -> list[str]:
    """irtt with its most exact timer."""
    what = ["-i", f"{asked.interval_us:g}us", "-d", f"{asked.seconds}s", "-l", str(PAYLOAD_BYTES), "--timer=busy"]
    return ["irtt", "client", "-q", *what, ground.address]


OURS = "sojourn stream"
GENERATORS: tuple[Generator, ...] = (
    Generator(OURS, SINK_PORT, ours),
    Generator("mgen", SINK_PORT, mgen),
    Generator("iperf2", IPERF_PORT, iperf2),
    Generator("iperf3", IPERF3_PORT, iperf3),
    Generator("D-ITG", ITG_PORT, ditg),
    Generator("trafgen", SINK_PORT, trafgen),
    Generator("sockperf", SOCKPERF_PORT, sockperf),
    Generator("irtt", IRTT_PORT, irtt),
)


@contextmanager
def listening(ground: Ground) -> Iterator[None]:
    """Run the B sides of all generators within the block (sockperf's is running already)."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [ground.bed.backend.start("b", list(argv), **quiet) for argv in LISTENERS]
    try:
        time.sleep(START_SECONDS)
        for argv, process in zip(LISTENERS, started, strict=True):
            if process.poll() is not None:
                raise MachineError(f"'{' '.join(argv[:3])}' does not run at the far end: scripts/setup.sh bench")
        yield
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
