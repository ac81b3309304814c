"""The common part of the backends for this machine: its tools, cores, clocks and files, and counters beside a run.

Only this file reads these facts during a run: a backend for other machines has the same methods, over SSH.
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
from sojourn.bed.backend import FilesRead, Usage
from sojourn.bed.events import Counters
from sojourn.bed.processes import find_tool
from sojourn.binary import find_instrument
from sojourn.errors import MachineError
from sojourn.records.on_disk import OnDisk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sojourn.bed.backend import Backend
    from sojourn.bed.hosts import HostName
    from sojourn.bed.model import HostSpec, Topology
    from sojourn.bed.settings import LocalSettings
    from sojourn.records.settings import Tuned

BUSY = ("user", "nice", "system")
"""The kinds of time that programs use. Interrupts handle our own frames too, and cannot be attributed."""


class LocalMachine:
    """This machine, which runs all hosts and shares its files with them."""

    _counters: Counters | None = None
    _awake: BinaryIO | None = None
    _highest: frequency.Highest | None = None
    _settings: LocalSettings | None = None
    _on_disk: OnDisk | None = None

    @classmethod
    def hold(cls, hosts: Mapping[HostName, HostSpec], run: str) -> AbstractContextManager[None]:
        """Do nothing: beds on this machine do not disturb each other."""
        del hosts, run
        return nullcontext()

    def instrument(self) -> str:
        """Return the path of the instrument, the same for all hosts."""
        return find_instrument()

    def find(self, tool: str, host: HostName | None = None) -> str | None:
        """Return the path of a tool, or None; `python3` is the interpreter of this process."""
        del host
        return sys.executable if tool == "python3" else find_tool(tool)

    def require_tool(self, host: HostName, tool: str, package: str, purpose: str) -> str:
        """Return the path of a tool of this machine."""
        if (path := self.find(tool, host)) is None:
            raise MachineError(f"there is no {tool} here, which {purpose}: apt-get install {package}")
        return path

    @staticmethod
    def cores(hosts: Mapping[HostName, HostSpec] | None = None) -> list[int]:
        """The cores that may be used."""
        del hosts
        return sorted(os.sched_getaffinity(0))

    @contextmanager
    def without(self, core: int) -> Iterator[None]:
        """Keep this process off a core within the block, if it may use another."""
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
        """All hosts use this machine's clock."""
        return True

    def tai_ns(self, host: HostName) -> int:
        """Return CLOCK_TAI now, which all hosts share."""
        del host
        return time.clock_gettime_ns(time.CLOCK_TAI)

    def tai_offset_ns(self, host: HostName) -> int:
        """Return the difference CLOCK_TAI − CLOCK_REALTIME, rounded to whole seconds."""
        del host
        apart = time.clock_gettime_ns(time.CLOCK_TAI) - time.clock_gettime_ns(time.CLOCK_REALTIME)
        return round(apart / 1e9) * 1_000_000_000

    def folder(self, host: HostName | None, local: Path) -> Path:
        """Return the folder itself, because all hosts share its file system; `gather` will sync it."""
        del host
        self._on_disk = self._on_disk or OnDisk()
        self._on_disk.add(local)
        return local

    def lend(self, host: HostName, local: Path) -> Path:
        """Return the file itself."""
        del host
        return local

    def require_hosts(self) -> None:
        """Do nothing: every host is this machine."""

    def lost_links(self) -> Mapping[str, str]:
        """Return nothing: the links of this machine's beds are virtual."""
        return {}

    def gather(self) -> None:
        """Sync the folders to disk, so that they survive a loss of power; the files are in place already."""
        if self._on_disk is not None:
            self._on_disk.sync()

    def connect(self, path: str, seconds: float) -> socket.socket:
        """Return a connection to a program of the bed that listens at this path."""
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.settimeout(seconds)
        line.connect(path)
        return line

    def cpu_ns(self, pid: int) -> int:
        """Return the processor time of all threads of a program so far, from schedstat; 0 if unknown."""
        total = 0
        with suppress(OSError, IndexError, ValueError):
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - often, and quick
                total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text(encoding="ascii").split()[0])
        return total

    def get(self, host: HostName, path: str) -> str:
        """Return the content of a file, which all hosts have alike."""
        del host
        return Path(path).read_text()

    def read(self, host: HostName, paths: Sequence[str], pids: Sequence[int]) -> FilesRead:
        """Read the files one by one, the first between two readings of the clock."""
        before_ns = self.tai_ns(host)
        first = self.get(host, paths[0])
        at_ns = (before_ns + self.tai_ns(host)) // 2
        texts = (first, *(self.get(host, path) for path in paths[1:]))
        return FilesRead(at_ns, texts, sum(map(self.cpu_ns, pids)))

    def usage(self) -> Usage:
        """Return the processor time so far; zeros if the kernel does not report it."""
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
        """Return the identifier of this machine, on which all hosts are."""
        file = Path("/etc/machine-id")
        return {"machine": file.read_text(encoding="ascii").strip() if file.is_file() else ""}

    def machine(self) -> dict[str, Any]:
        """What the machine is, and the tools on it, as `bed.json` keeps it."""
        return {"machine": machine.stable(), "versions": machine.versions()}

    def moment(self) -> dict[str, Any]:
        """Return load, interrupts and the like now; events of the processors since the first call."""
        if self._counters is None:
            self._counters = Counters(machine.online())
        return {**machine.moment(), "counters": self._counters.read()}

    def keep_awake(self, *, polling: bool) -> str | None:
        """Hold /dev/cpu_dma_latency open with a wake-up latency of 0, which keeps idle processors polling."""
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
        """Refuse if the frequency of this machine's processors cannot be set."""
        frequency.require()

    def keep_frequency(self, *, highest: bool) -> None:
        """Set the highest frequency by cpufreq, with a journal and a guardian; first restore what a dead run left."""
        frequency.recover()
        if highest:
            self._highest = frequency.Highest()

    @classmethod
    def require_settings(cls, asked: Mapping[str, str]) -> None:
        """Refuse settings that this machine does not have, or this user may not set."""
        from sojourn.bed.settings import require_here  # with libraries that a bed without settings does not need

        require_here(asked)

    def tune(self, topology: Topology, asked: Mapping[str, str]) -> None:
        """Set these at the ports, and on the machine until the bed is closed."""
        from sojourn.bed.settings import LocalSettings

        self._settings = LocalSettings(cast("Backend", self), topology, asked)

    def look_at_settings(self) -> None:
        """Read the settings again."""
        if self._settings is not None:
            self._settings.look()

    @property
    def tuned(self) -> list[Tuned]:
        """The settings with their values."""
        return [] if self._settings is None else self._settings.tuned

    def governors(self) -> dict[str, list[str]]:
        """Return the governors of this machine's processors."""
        found = {one for one in machine.governors().values() if one}
        return {"this machine": sorted(found)} if found else {}

    def let_go(self) -> None:
        """End event counters, the request for polling, and the holds on frequency and settings."""
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
    """Return the clock ticks of this process, of all its descendants, and of ended descendants."""
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError, IndexError, ValueError):  # it may end while it is read
                fields = (path / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                parents[int(path.name)] = int(fields[1])
                spent[int(path.name)] = sum(map(int, fields[11:15]))
    return sum(ticks for process, ticks in spent.items() if descends(process, parents))


def descends(process: int, parents: dict[int, int]) -> bool:
    """Return whether a process is this one or its descendant."""
    own = os.getpid()
    while process != own and process in parents:
        process = parents[process]
    return process == own
