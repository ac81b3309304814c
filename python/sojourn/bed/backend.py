"""The seam below a bed: what a machine, or several, must offer so that a bed can be built on it.

Above it, everything is text: commands as argument lists, `ip -batch` and friends on standard input, JSON out; and
whatever is read of a host (its files, clocks, cores, tools, counters) is read through it. So one for hosts that share
no file with this process fits beside the one for namespaces with no change above (tests/net/own_files.py is one). A
backend knows how to bring hosts and bare cables into being, and how to run something on a host; it does not know
addresses, bridges, offloads or anything else that is the same on every machine. sojourn/backends.py has all names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    import socket as sockets
    import subprocess
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from sojourn.bed.hosts import HostName
    from sojourn.bed.model import BedSpec, Cable, HostSpec, Topology
    from sojourn.records.settings import Tuned


class Usage(NamedTuple):
    """Processor time so far, in seconds."""

    at: float
    busy: float
    steal: float
    ours: float
    processors: int = 1
    """How many there are to be used."""


class Backend(Protocol):
    """Hosts to run things on. `close` removes whatever `open` made, and may be called at any moment, twice too."""

    simulated: ClassVar[bool]
    """Whether there are no frames, and time is the instrument's own."""

    unprivileged: bool
    """Whether it works without the rights of root."""

    missing: list[str]
    """What cannot be had here, a sentence each."""

    @classmethod
    def hold(cls, hosts: Mapping[HostName, HostSpec], run: str) -> AbstractContextManager[None]:
        """Keeps everybody else from these hosts for the time of several beds."""

    def open(self, topology: Topology, spec: BedSpec) -> None:
        """Brings the hosts into being, with no cable between them yet."""

    def lay(self, cables: Iterable[Cable], mtu: int) -> None:
        """Brings the cables into being, or finds them: bare, with their MACs, all down."""

    def start(self, host: HostName, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        """Starts a program on a host; it dies with this process, whatever happens to either."""

    def run(self, host: HostName, argv: Sequence[str], input: str | None = None) -> str:  # noqa: A002
        """Runs a command on a host to its end and gives its standard output; raises MachineError when it fails."""

    def beside(self, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        """Starts a program on no host: it watches them from outside, and dies with this process as they do."""

    def cgroup(self, host: HostName) -> str:
        """The cgroup in which the programs of a host run; raises MachineError where it has none of its own."""

    def put(self, host: HostName, path: str, text: str) -> None:
        """Writes a file of a host, the kernel's own (`/proc`, `/sys`) included."""

    def get(self, host: HostName, path: str) -> str:
        """Reads a file of a host, the kernel's own included: quickly, for it is done between trials."""

    def folder(self, host: HostName | None, local: Path) -> Path:
        """Where programs of a host, or beside all of them, write what shall be in a folder of ours once gathered."""

    def lend(self, host: HostName, local: Path) -> Path:
        """Where programs of a host can read a file of ours."""

    def require_hosts(self) -> None:
        """Raises MachineError, which names the host, where one has gone: what was measured since is of no host."""

    def lost_links(self) -> Mapping[str, str]:
        """The ports whose link was lost since this was last asked, as people call them, by their names in the bed."""

    def gather(self) -> None:
        """Brings what programs wrote for our folders into these, so far, from every host that is there, and raises
        MachineError where one has gone."""

    def socket(self, name: str) -> str:
        """Where a program of the devices' host may listen for this process alone: a path that goes with the bed."""

    def connect(self, path: str, seconds: float) -> sockets.socket:
        """A connection to the emulator that listens there, whose every wait ends after that time."""

    def instrument(self) -> str:
        """Where the hosts have `sojourn-instrument`."""

    def find(self, tool: str) -> str | None:
        """Where the hosts have a tool, or None; `python3` is one that runs programs of the standard library alone."""

    @staticmethod
    def cores(hosts: Mapping[HostName, HostSpec] | None = None) -> list[int]:
        """The cores that may be used, on both ends where these are hosts of their own; known before there is a bed."""

    def without(self, core: int) -> AbstractContextManager[None]:
        """Keeps this process away from a core meanwhile, where it might be in its way."""

    @property
    def one_clock(self) -> bool:
        """Whether all hosts have one clock, so that a time of one may be taken from a time of another."""

    def tai_ns(self) -> int:
        """CLOCK_TAI of the hosts, which stamps records, now."""

    def tai_offset_ns(self) -> int:
        """What the hosts add to CLOCK_REALTIME, which stamps captures, to have CLOCK_TAI."""

    def cpu_ns(self, pid: int) -> int:
        """Processor time so far of a program that was started here; 0 where that is unknown."""

    def usage(self) -> Usage:
        """Processor time so far: of everybody, and of this run."""

    def softnet_dropped(self) -> int:
        """Packets that cores dropped because their backlog was full, since they started."""

    def machine_ids(self) -> dict[str, str]:
        """What identifies each machine, by its name here; empty where it does not matter which it is."""

    def machine(self) -> dict[str, Any]:
        """What the hosts are made of and the tools on them, as `bed.json` keeps it."""

    def moment(self) -> dict[str, Any]:
        """Load, interrupts and such, as they are now."""

    def keep_awake(self, *, polling: bool) -> str | None:
        """Have idle processors poll until this is closed, or let them sleep as they do; or why that cannot be."""

    @classmethod
    def require_frequency(cls) -> None:
        """Refuses where the clock of the processors cannot be set: before anything starts."""

    def keep_frequency(self, *, highest: bool) -> None:
        """Hold the clock of the processors at its highest until this is closed, or let it do as it does."""

    @classmethod
    def require_settings(cls, asked: Mapping[str, str]) -> None:
        """Refuses settings that are not there, as far as that is known before anything starts."""

    def tune(self, topology: Topology, asked: Mapping[str, str]) -> None:
        """Sets these on every port and host, and notes in `tuned` what was and what is; `close` gives them back."""

    def look_at_settings(self) -> None:
        """Reads again what was set, and notes it in `tuned`."""

    @property
    def tuned(self) -> list[Tuned]:
        """What was set; after `close` also what was given back."""

    def governors(self) -> dict[str, list[str]]:
        """What governs the frequency of the processors, by host; none where nothing does."""

    def close(self) -> None:
        """Leaves everything as it was found."""
