"""What every backend on this machine shares: its tools, cores, clocks and files, and what goes on beside a run.

All that is read here is read by nobody else on the left side of the run folder: a backend for other machines has the
same methods over a line to them.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from sojourn.bed import frequency, machine
from sojourn.bed.backend import Usage
from sojourn.bed.events import Counters
from sojourn.bed.processes import find_tool
from sojourn.binary import find_instrument
from sojourn.records.on_disk import OnDisk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sojourn.bed.backend import Backend
    from sojourn.bed.hosts import HostName
    from sojourn.bed.model import HostSpec, Topology
    from sojourn.bed.settings import LocalSettings
    from sojourn.records.settings import Tuned

BUSY = ("user", "nice", "system")
"""What programs use. Interrupts serve our own frames as well, and nobody tells whose they serve."""


class LocalMachine:
    """This machine, on which all hosts live and which shares its files with them."""

    _counters: Counters | None = None
    _awake: BinaryIO | None = None
    _highest: frequency.Highest | None = None
    _settings: LocalSettings | None = None
    _on_disk: OnDisk | None = None

    @classmethod
    def hold(cls, hosts: Mapping[HostName, HostSpec], run: str) -> AbstractContextManager[None]:
        """Nothing: beds of this machine are in nobody's way."""
        del hosts, run
        return nullcontext()

    def instrument(self) -> str:
        """The one binary, for programs of any host."""
        return find_instrument()

    def find(self, tool: str) -> str | None:
        """Where a tool is, or None; Python is the one that runs this."""
        return sys.executable if tool == "python3" else find_tool(tool)

    @staticmethod
    def cores(hosts: Mapping[HostName, HostSpec] | None = None) -> list[int]:
        """The cores that may be used."""
        del hosts
        return sorted(os.sched_getaffinity(0))

    @contextmanager
    def without(self, core: int) -> Iterator[None]:
        """Keeps this process away from a core meanwhile, where there is another."""
        before = os.sched_getaffinity(0)
        with suppress(OSError):
            os.sched_setaffinity(0, before - {core} or before)
        try:
            yield
        finally:
            with suppress(OSError):
                os.sched_setaffinity(0, before)

    @property
    def one_clock(self) -> bool:
        """This machine's."""
        return True

    def tai_ns(self) -> int:
        """CLOCK_TAI, which stamps records, now."""
        return time.clock_gettime_ns(time.CLOCK_TAI)

    def tai_offset_ns(self) -> int:
        """What the kernel adds to CLOCK_REALTIME, which stamps captures, to have CLOCK_TAI: whole seconds."""
        apart = time.clock_gettime_ns(time.CLOCK_TAI) - time.clock_gettime_ns(time.CLOCK_REALTIME)
        return round(apart / 1e9) * 1_000_000_000

    def folder(self, host: HostName | None, local: Path) -> Path:
        """Where programs of a host write what shall be in a folder of ours: there itself."""
        del host
        self._on_disk = self._on_disk or OnDisk()
        self._on_disk.add(local)
        return local

    def lend(self, host: HostName, local: Path) -> Path:
        """The file itself."""
        del host
        return local

    def require_hosts(self) -> None:
        """All are this machine."""

    def lost_links(self) -> Mapping[str, str]:
        """None: nobody pulls a cable of this machine's own."""
        return {}

    def gather(self) -> None:
        """Everything is where it should be, and outlives a loss of power from now on."""
        if self._on_disk is not None:
            self._on_disk.sync()

    def connect(self, path: str, seconds: float) -> socket.socket:
        """A connection to what a program of the bed listens at."""
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.settimeout(seconds)
        line.connect(path)
        return line

    def cpu_ns(self, pid: int) -> int:
        """Processor time of all threads of a program so far, as the scheduler counted it; 0 where it does not tell."""
        total = 0
        with suppress(OSError, IndexError, ValueError):
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - often, and quick
                total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text(encoding="ascii").split()[0])
        return total

    def usage(self) -> Usage:
        """Processor time up to now; zeros where the kernel does not tell."""
        counts = machine.cpu_ticks()
        ticks = os.sysconf("SC_CLK_TCK")
        busy = sum(counts.get(name, 0) for name in BUSY)
        return Usage(
            time.monotonic(), busy / ticks, counts.get("steal", 0) / ticks, ours_ticks() / ticks, os.cpu_count() or 1
        )

    def softnet_dropped(self) -> int:
        """Packets that the machine's cores dropped because their backlog was full, since it started."""
        return machine.softnet_dropped()

    def machine_ids(self) -> dict[str, str]:
        """The identifier of this machine, which all hosts are."""
        file = Path("/etc/machine-id")
        return {"machine": file.read_text(encoding="ascii").strip() if file.is_file() else ""}

    def machine(self) -> dict[str, Any]:
        """What the machine is, and the tools on it, as `bed.json` keeps it."""
        return {"machine": machine.stable(), "versions": machine.versions()}

    def moment(self) -> dict[str, Any]:
        """Load, interrupts and such, as they are now; events of the processors since the first look."""
        if self._counters is None:
            self._counters = Counters(machine.online())
        return {**machine.moment(), "counters": self._counters.read()}

    def keep_awake(self, *, polling: bool) -> str | None:
        """By /dev/cpu_dma_latency, which asks for a wake-up latency of 0 for as long as it is open."""
        if machine.idle_driver() is None:
            return "this machine has no idle driver"
        try:
            request = machine.DMA_LATENCY.open("wb", buffering=0)
        except OSError as error:
            return f"idle states cannot be asked for ({machine.DMA_LATENCY}: {error.strerror})"
        if polling:
            request.write((0).to_bytes(4, sys.byteorder))
            self._awake = request
        else:
            request.close()
        return None

    @classmethod
    def require_frequency(cls) -> None:
        """Refuses where the clock of this machine's processors cannot be set."""
        frequency.require()

    def keep_frequency(self, *, highest: bool) -> None:
        """At its highest by cpufreq, with a journal and a guardian; what a dead run left is given back first."""
        frequency.recover()
        if highest:
            self._highest = frequency.Highest()

    @classmethod
    def require_settings(cls, asked: Mapping[str, str]) -> None:
        """Refuses what this machine does not have, or this user may not set."""
        from sojourn.bed.settings import require_here  # with libraries that a bed without settings does not need

        require_here(asked)

    def tune(self, topology: Topology, asked: Mapping[str, str]) -> None:
        """Sets these at the ports, and on the machine for as long as the bed stands."""
        from sojourn.bed.settings import LocalSettings

        self._settings = LocalSettings(cast("Backend", self), topology, asked)

    def look_at_settings(self) -> None:
        """Reads again what was set."""
        if self._settings is not None:
            self._settings.look()

    @property
    def tuned(self) -> list[Tuned]:
        """What was set."""
        return [] if self._settings is None else self._settings.tuned

    def governors(self) -> dict[str, list[str]]:
        """Those of this machine's processors."""
        found = {one for one in machine.governors().values() if one}
        return {"this machine": sorted(found)} if found else {}

    def let_go(self) -> None:
        """End what counts events of the processors, what keeps them awake, and what holds their clock or settings."""
        if self._counters is not None:
            self._counters.close()
        if self._awake is not None:
            self._awake.close()
            self._awake = None
        highest, self._highest = self._highest, None
        try:
            if self._settings is not None:
                self._settings.close()
        finally:
            if highest is not None:
                highest.close()


def ours_ticks() -> int:
    """Processor time of this process, of all that it started, and of those that have ended since."""
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError, IndexError, ValueError):  # it may end while it is looked at
                fields = (path / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                parents[int(path.name)] = int(fields[1])
                spent[int(path.name)] = sum(map(int, fields[11:15]))
    return sum(ticks for process, ticks in spent.items() if descends(process, parents))


def descends(process: int, parents: dict[int, int]) -> bool:
    """Whether a process is this one or came from it."""
    own = os.getpid()
    while process != own and process in parents:
        process = parents[process]
    return process == own
