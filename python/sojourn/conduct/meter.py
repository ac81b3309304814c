"""The kernel's counters: bytes, retransmitted segments, expired timers, processor time in total and for each end.

Read from files of the two hosts: a command on each would take longer than a slice.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from sojourn.bed.hosts import END_HOSTS
from sojourn.bed.ssh import reading
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.bed import Bed
    from sojourn.bed.hosts import HostName

RX_BYTES, RX_FRAMES = 0, 1
"""The columns of these fields in a line of /proc/net/dev, after the name."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All counters at one time; durations are in seconds."""

    at_ns: int
    received_bytes: int
    frames: int
    retransmitted: int
    cpu_busy_s: float
    cpu_sender_s: float
    cpu_receiver_s: float
    logger_cpu_s: float
    timeouts: int = 0

    def since(self, before: Reading) -> dict[str, float]:
        """Return the increase since an earlier reading, by name."""
        names = [one.name for one in fields(self) if one.name != "at_ns"]
        return {name: getattr(self, name) - getattr(before, name) for name in names}


@dataclass(frozen=True, slots=True)
class Meter:
    """The source of readings: hosts A (sends) and B (receives), B's interface, and the processes of logs."""

    bed: Bed
    dev: str
    loggers: Sequence[int]
    ticks_per_s: int
    """The clock ticks per second in host A's `/proc/stat`."""

    @classmethod
    def of(cls, bed: Bed, dev: str, loggers: Sequence[int]) -> Meter:
        """Make a meter; asks host A for its clock ticks."""
        with reading("host A"):
            return cls(bed, dev, loggers, int(bed.backend.run("a", ["getconf", "CLK_TCK"])))

    def read(self) -> Reading:
        """Read now; the bytes first, close to the timestamp."""
        with reading("host A or B"):
            return self._read()

    def _read(self) -> Reading:
        backend = self.bed.backend
        before_ns = backend.tai_ns("b")
        received, frames = interface(backend.get("b", "/proc/net/dev"), self.dev)
        at_ns = (before_ns + backend.tai_ns("b")) // 2
        sender, receiver = (self._cgroup_seconds(host) for host in END_HOSTS)
        loggers = sum(backend.cpu_ns(pid) for pid in self.loggers) / 1e9
        busy = busy_seconds(backend.get("a", "/proc/stat"), self.ticks_per_s)
        again = retransmitted(backend.get("a", "/proc/net/snmp"))
        expired = timeouts(backend.get("a", "/proc/net/netstat"))
        return Reading(at_ns, received, frames, again, busy, sender, receiver, loggers, expired)

    def _cgroup_seconds(self, host: HostName) -> float:
        return cgroup_seconds(self.bed.backend.get(host, f"{self.bed.backend.cgroup(host)}/cpu.stat"))


def interface(text: str, dev: str) -> tuple[int, int]:
    """Return bytes and frames that an interface received, from `/proc/net/dev`."""
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        if name.strip() == dev:
            words = rest.split()
            return int(words[RX_BYTES]), int(words[RX_FRAMES])
    raise MachineError(f"host B has no interface {dev} any more")


def retransmitted(text: str) -> int:
    """Return the segments that a host has retransmitted since its creation, from `/proc/net/snmp`."""
    return _counted(text, "Tcp:", "RetransSegs")


def timeouts(text: str) -> int:
    """Return the expired retransmission timers of a host; each sets a congestion window to one segment."""
    return _counted(text, "TcpExt:", "TCPTimeouts")


def _counted(text: str, group: str, name: str) -> int:
    """Return a counter of `/proc/net/snmp` or `/proc/net/netstat`: a line of names, a line of values."""
    names, values = (line.split() for line in text.splitlines() if line.startswith(group))
    return int(dict(zip(names, values, strict=True))[name])


def cgroup_seconds(text: str) -> float:
    """Return the processor time of a cgroup, from its `cpu.stat`."""
    for line in text.splitlines():
        if line.startswith("usage_usec"):
            return int(line.split()[1]) / 1e6
    raise MachineError("the cgroups here do not tell their processor time: is the unified hierarchy theirs?")


def busy_seconds(text: str, ticks_per_s: int) -> float:
    """Return the busy time of all processors together, to a clock tick, from `/proc/stat`."""
    user, nice, system, _, _, irq, softirq = map(int, text.splitlines()[0].split()[1:8])
    return (user + nice + system + irq + softirq) / ticks_per_s
