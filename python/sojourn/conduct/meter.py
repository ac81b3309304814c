"""What the kernel has counted by now: bytes that arrived, segments sent again, processor time of all and of each end.

Read from files of processes that live on the two hosts: a command on each would take longer than a slice lasts.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

RX_BYTES, RX_FRAMES = 0, 1
"""Where a line of /proc/net/dev has them, after the name."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything at one moment; times in seconds but for the moment itself."""

    at_ns: int
    received_bytes: int
    frames: int
    retransmitted: int
    cpu_busy_s: float
    cpu_sender_s: float
    cpu_receiver_s: float
    logger_cpu_s: float

    def since(self, before: Reading) -> dict[str, float]:
        """What came to it between two, by name."""
        names = [one.name for one in fields(self) if one.name != "at_ns"]
        return {name: getattr(self, name) - getattr(before, name) for name in names}


@dataclass(frozen=True, slots=True)
class Meter:
    """Where to read it: a process on each host, the receiver's interface, both cgroups, the logs' processes."""

    sender_pid: int
    receiver_pid: int
    dev: str
    cgroups: tuple[Path, Path]
    loggers: Sequence[int]

    def read(self) -> Reading:
        """Now; the bytes first, next to the moment that they belong to."""
        before_ns = time.clock_gettime_ns(time.CLOCK_TAI)
        received, frames = interface(self.receiver_pid, self.dev)
        at_ns = (before_ns + time.clock_gettime_ns(time.CLOCK_TAI)) // 2
        sender, receiver = (cgroup_seconds(folder) for folder in self.cgroups)
        loggers = sum(process_seconds(pid) for pid in self.loggers)
        busy = busy_seconds()
        return Reading(at_ns, received, frames, retransmitted(self.sender_pid), busy, sender, receiver, loggers)


def interface(pid: int, dev: str) -> tuple[int, int]:
    """Bytes and frames that an interface received."""
    for line in Path(f"/proc/{pid}/net/dev").read_text(encoding="ascii").splitlines()[2:]:
        name, _, rest = line.partition(":")
        if name.strip() == dev:
            words = rest.split()
            return int(words[RX_BYTES]), int(words[RX_FRAMES])
    return 0, 0


def retransmitted(pid: int) -> int:
    """Segments sent again by a process's host, since it is there."""
    lines = [one.split() for one in Path(f"/proc/{pid}/net/snmp").read_text(encoding="ascii").splitlines()]
    names, values = (line for line in lines if line[0] == "Tcp:")
    return int(dict(zip(names, values, strict=True))["RetransSegs"])


def cgroup_seconds(folder: Path) -> float:
    """Processor time of a cgroup."""
    for line in (folder / "cpu.stat").read_text(encoding="ascii").splitlines():
        if line.startswith("usage_usec"):
            return int(line.split()[1]) / 1e6
    return 0.0


def process_seconds(pid: int) -> float:
    """Processor time of all threads of a process, to the nanosecond where the kernel tells."""
    total = 0
    with suppress(OSError, IndexError, ValueError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - once a slice, and quick
            total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text(encoding="ascii").split()[0])
    return total / 1e9


def busy_seconds() -> float:
    """Time that processors were busy, all together, to a tick."""
    words = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, softirq = map(int, words[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
