"""The interface below a bed: what one or several machines must offer so that a bed can be built on them.

Everything passes as text: commands as argument lists, `ip -batch` and the like on standard input, JSON as output. Every
fact of a host (its files, clocks, cores, tools, counters) is read through this interface. So a backend for hosts that
share no file with this process needs no change above it (tests/net/own_files.py is one). A backend creates hosts and
bare cables, and runs programs on a host; it does not know addresses, bridges, offloads or anything else that is the
same on every machine. sojourn/backends.py lists all backends.
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
    """The number of processors that may be used."""


class FilesRead(NamedTuple):
    """Files of a host, read one after another."""

    at_ns: int
    """The host's CLOCK_TAI when the first was read."""
    texts: tuple[str, ...]
    cpu_ns: int
    """The processor time so far of the programs that were asked for."""


class Backend(Protocol):
    """Hosts that run programs. `close` removes whatever `open` made; it may be called at any moment, and twice."""

    simulated: ClassVar[bool]
    """Whether the bed has no frames and runs in the instrument's simulated time."""

    unprivileged: bool
    """Whether it works without the rights of root."""

    missing: list[str]
    """What this machine lacks, a sentence each."""

    @classmethod
    def hold(cls, hosts: Mapping[HostName, HostSpec], run: str) -> AbstractContextManager[None]:
        """Hold these hosts so that nobody else uses them, from the first of several beds to the last."""

    def open(self, topology: Topology, spec: BedSpec) -> None:
        """Create the hosts, without cables between them."""

    def lay(self, cables: Iterable[Cable], mtu: int) -> None:
        """Create the cables, or find them: bare, with their MAC addresses, all down."""

    def start(self, host: HostName, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        """Start a program on a host; it dies with this process, however this process ends."""

    def run(self, host: HostName, argv: Sequence[str], input: str | None = None) -> str:  # noqa: A002
        """Run a command on a host to its end and return its standard output; raises MachineError when it fails."""

    def beside(self, argv: Sequence[str], host: HostName | None = None, **popen: Any) -> subprocess.Popen[Any]:
        """Start a program on the machine of a host (None: of all hosts) but outside of it, such as an observer.

        It too dies with this process.
        """

    def cgroup(self, host: HostName) -> str:
        """Return the cgroup in which a host's programs run; raises MachineError where it has none of its own."""

    def put(self, host: HostName, path: str, text: str) -> None:
        """Write a file of a host, the kernel's own (`/proc`, `/sys`) included."""

    def get(self, host: HostName, path: str) -> str:
        """Read a file of a host, the kernel's own included. It must be fast, because it is called between trials."""

    def read(self, host: HostName, paths: Sequence[str], pids: Sequence[int]) -> FilesRead:
        """Read several files of a host, and the processor time of programs started there, in one go."""

    def folder(self, host: HostName | None, local: Path) -> Path:
        """Return the folder where programs of a host, or beside it, write what `gather` brings to `local`."""

    def lend(self, host: HostName, local: Path) -> Path:
        """Return the path at which programs of a host can read our file `local`."""

    def require_hosts(self) -> None:
        """Raise MachineError, which names the host, if one was lost: measurements since then are not valid."""

    def lost_links(self) -> Mapping[str, str]:
        """Return the ports that lost their link since the last call, as people call them, by their names in the bed."""

    def gather(self) -> None:
        """Fetch what programs have written for our folders so far, from every host that is still there.

        Raises MachineError if a host was lost.
        """

    def socket(self, name: str) -> str:
        """Return a path at which a program of the devices' host can listen for this process; it goes with the bed."""

    def connect(self, path: str, seconds: float) -> sockets.socket:
        """Return a connection to the emulator that listens there; every wait on it has this timeout."""

    def instrument(self) -> str:
        """Return the path of `sojourn-instrument` on the hosts."""

    def find(self, tool: str, host: HostName | None = None) -> str | None:
        """Return the path of a tool on a host (None: on all hosts), or None; `python3` may have its standard library
        only.
        """

    def require_tool(self, host: HostName, tool: str, package: str, purpose: str) -> str:
        """Return the path of a tool on a host; raises MachineError, which says what the host needs it for."""

    @staticmethod
    def cores(hosts: Mapping[HostName, HostSpec] | None = None) -> list[int]:
        """Return the usable cores, for real hosts those common to both ends; known before a bed is built."""

    def without(self, core: int) -> AbstractContextManager[None]:
        """Keep this process off a core within the block, so that it does not disturb what runs there."""

    @property
    def one_clock(self) -> bool:
        """Whether all hosts share one clock, so that times of different hosts can be subtracted."""

    def tai_ns(self, host: HostName) -> int:
        """Return a host's CLOCK_TAI at some time between the call and its return; records have its timestamps."""

    def tai_offset_ns(self, host: HostName) -> int:
        """Return the difference CLOCK_TAI − CLOCK_REALTIME on a host; captures have timestamps of CLOCK_REALTIME."""

    def cpu_ns(self, pid: int) -> int:
        """Return the processor time so far of a program that was started here; 0 if unknown."""

    def usage(self) -> Usage:
        """Return the processor time so far: of all processes, and of this run."""

    def softnet_dropped(self) -> int:
        """Return the packets that cores dropped since boot because their backlog was full."""

    def machine_ids(self) -> dict[str, str]:
        """Return an identifier of each machine by its name here; empty where the identity does not matter."""

    def machine(self) -> dict[str, Any]:
        """Return hardware, kernel and tools of the hosts, as in `bed.json`."""

    def moment(self) -> dict[str, Any]:
        """Return load, interrupts and the like now."""

    def keep_awake(self, *, polling: bool) -> str | None:
        """Make idle processors poll until `close`, or leave their idle states alone; return why not, if impossible."""

    @classmethod
    def require_frequency(cls) -> None:
        """Raise MachineError if the processors' frequency cannot be set, before anything starts."""

    def keep_frequency(self, *, highest: bool) -> None:
        """Hold the processors at their highest frequency until `close`, or leave their frequency alone."""

    @classmethod
    def require_settings(cls, asked: Mapping[str, str]) -> None:
        """Refuse settings that do not exist here, as far as this is known before anything starts."""

    def tune(self, topology: Topology, asked: Mapping[str, str]) -> None:
        """Set these on every port and host, and record old and new values in `tuned`; `close` restores them."""

    def look_at_settings(self) -> None:
        """Read the settings again, and record the values in `tuned`."""

    @property
    def tuned(self) -> list[Tuned]:
        """The settings with their values; after `close` also the restored ones."""

    def governors(self) -> dict[str, list[str]]:
        """Return the frequency governors of the processors, by host; empty if there are none."""

    def close(self) -> None:
        """Restore everything to its earlier state."""
