"""The kernel's counters: bytes, retransmitted segments, expired timers, processor time in total and for each end.

Each host is read in one go, with the time of its own clock: the hosts may be far from each other and from this process.
A slice is as long as between the two readings of B, whose bytes are counted. What A counted is of A's own two times:
processor times are converted to the slice by the ratio of both spans, which is 1 but for the time to reach the hosts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from sojourn.bed.ssh import reading
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sojourn.bed import Bed
    from sojourn.bed.hosts import HostName

SNMP = "/proc/net/snmp"
NETSTAT = "/proc/net/netstat"
ETHERNET_BYTES = 14
"""The header of a frame, which the kernel's counters of IP leave out; no port here merges received packets (GRO)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All counters at one time, that of host B; durations are in seconds."""

    at_ns: int
    received_bytes: int
    frames: int
    retransmitted: int
    cpu_busy_s: float
    cpu_sender_s: float
    cpu_receiver_s: float
    logger_cpu_s: float
    timeouts: int = 0
    sender_at_ns: int | None = None
    """The time of host A's clock when A was read; None: that of B."""
    sender_logger_cpu_s: float = 0.0
    """The part of `logger_cpu_s` that is of a log at A."""

    def since(self, before: Reading) -> dict[str, float]:
        """Return the increase since an earlier reading, by name; processor times of A are for B's time between them."""
        names = [one.name for one in fields(self) if one.name not in NOT_COUNTED]
        more = {name: getattr(self, name) - getattr(before, name) for name in names}
        if self.sender_at_ns is None or before.sender_at_ns is None or self.sender_at_ns <= before.sender_at_ns:
            return more
        ratio = (self.at_ns - before.at_ns) / (self.sender_at_ns - before.sender_at_ns)
        own = self.sender_logger_cpu_s - before.sender_logger_cpu_s
        scaled = {name: more[name] * ratio for name in OF_SENDER}
        return more | scaled | {"logger_cpu_s": more["logger_cpu_s"] + own * (ratio - 1)}


OF_SENDER = ("cpu_busy_s", "cpu_sender_s")
NOT_COUNTED = ("at_ns", "sender_at_ns", "sender_logger_cpu_s")
"""Fields of a reading that a slice has no increase of."""


@dataclass(frozen=True, slots=True)
class Meter:
    """The source of readings: hosts A (sends) and B (receives), and the processes of logs.

    B's bytes are those of its IPv4, which counts each packet as it comes: many network cards update the counters of
    their interface once a second, and a slice is shorter.
    """

    bed: Bed
    loggers: Mapping[HostName, int]
    ticks_per_s: int
    """The clock ticks per second in host A's `/proc/stat`."""

    @classmethod
    def of(cls, bed: Bed, loggers: Mapping[HostName, int]) -> Meter:
        """Make a meter; asks host A for its clock ticks."""
        with reading("host A"):
            return cls(bed, loggers, int(bed.backend.run("a", ["getconf", "CLK_TCK"])))

    def read(self) -> Reading:
        """Read now; of each host first what is close to the timestamp."""
        with reading("host A or B"):
            return self._read()

    def _read(self) -> Reading:
        b = self.bed.backend.read("b", (SNMP, NETSTAT, self._cpu("b")), self._loggers_of("b"))
        a = self.bed.backend.read("a", (self._cpu("a"), "/proc/stat", SNMP, NETSTAT), self._loggers_of("a"))
        there, further, receiver = b.texts
        sender, busy, snmp, netstat = a.texts
        received, frames = received_frames(there, further)
        return Reading(
            b.at_ns, received, frames, retransmitted(snmp), busy_seconds(busy, self.ticks_per_s),
            cgroup_seconds(sender), cgroup_seconds(receiver), (a.cpu_ns + b.cpu_ns) / 1e9, timeouts(netstat), a.at_ns,
            a.cpu_ns / 1e9,
        )  # fmt: skip

    def _loggers_of(self, host: HostName) -> list[int]:
        return [pid for at, pid in self.loggers.items() if at == host]

    def _cpu(self, host: HostName) -> str:
        return f"{self.bed.backend.cgroup(host)}/cpu.stat"


def received_frames(snmp: str, netstat: str) -> tuple[int, int]:
    """Return bytes and frames of IPv4 that a host has received, from `/proc/net/snmp` and `/proc/net/netstat`."""
    frames = _counted(snmp, "Ip:", "InReceives")
    return _counted(netstat, "IpExt:", "InOctets") + ETHERNET_BYTES * frames, frames


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
