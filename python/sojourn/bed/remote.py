"""A real host with its keeper, and its programs: started, signalled, waited for.

Knows neither the bed's topology (bed/backends/ssh.py) nor records (bed/fetching.py).
"""

from __future__ import annotations

import re
import secrets
import signal
import subprocess
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sojourn.bed import keeper
from sojourn.bed.bounded import first_line, rest_of
from sojourn.bed.hosts import END_HOSTS
from sojourn.bed.look import Looked, look
from sojourn.bed.processes import end
from sojourn.bed.ssh import LOST, Line, launch, reading, rights, who
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sojourn.bed.hosts import HostName
    from sojourn.bed.model import HostSpec

_READY_SECONDS = 30.0
_GONE_SECONDS = 20.0
_KILLED_SECONDS = 5.0

NO_CGROUPS = "-"
"""What a keeper says in place of the folder of its cgroups, and what a program without one is given."""


class RemoteProcess(subprocess.Popen[Any]):
    """A program on a host, represented by its `ssh` here: streams and status; the keeper delivers its signals."""

    remote: RemoteMachine | None = None
    number = 0
    _killed = False

    @property
    def lost(self) -> str | None:
        """The sentence for a program whose end is unknown because the connection to its host was lost."""
        return self.remote.line.lost() if self.remote is not None and self.returncode == LOST else None

    @property
    def where(self) -> str | None:
        """The host that it runs on, as text."""
        return None if self.remote is None else str(self.remote)

    def send_signal(self, sig: int) -> None:
        """Have the keeper send the signal."""
        if self.poll() is not None:
            return
        if self.remote is None or not self.remote.send(f"signal {signal.Signals(sig).name[3:]} {self.number}"):
            super().send_signal(signal.SIGKILL)
        self._killed = self._killed or sig == signal.SIGKILL

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; after a kill, only for a limited time, whatever its host does."""
        try:
            return super().wait(_KILLED_SECONDS if self._killed and timeout is None else timeout)
        except subprocess.TimeoutExpired:
            if not self._killed:
                raise
            super().send_signal(signal.SIGKILL)
            return super().wait()


class RemoteMachine:
    """A real host with its keeper."""

    def __init__(self, name: str, spec: HostSpec, socket: str) -> None:
        self.name = name
        self.spec = spec
        self.line = Line(name.upper() if name in END_HOSTS else name, spec, socket)
        self.found: Looked = look(self.line)
        self.root = rights(self.line, self.found.uid)
        self.work = ""
        self.tools = ""
        """The folder of the instrument on the host."""
        self.keeper = 0
        self.cgroups: str | None = None
        """The folder of the cgroups of the bed's hosts there; None if it has none."""
        self.namespaces: dict[HostName, str] = {}
        """The process that holds the namespace of each of the bed's hosts there, as PID-TICKS."""
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._silent = False
        """Whether the keeper could not be reached, or did not answer."""
        self.carriers: dict[str, int] = {}
        """The number of carrier changes of each port of the bed (`transns`)."""

    def __str__(self) -> str:
        return str(self.line)

    def keep(self, run: str, holder: str, hosts: Sequence[HostName], tools: str, *, with_cgroups: bool = False) -> None:
        """Start the keeper, with a namespace for each of these hosts; the lock is taken in the name of `holder`."""
        self.work = f"{self.spec.folder.rstrip('/')}/sojourn-{run}-{secrets.token_hex(6)}"
        self.tools = tools
        stays = "keep" if self.spec.keep or holder != run else "-"
        grouped = "cgroups" if with_cgroups else "-"
        argv = ["sh", "-c", keeper.KEEPER, "sh", holder, who(), self.work, tools, stays, grouped, *hosts]
        self._process = launch(
            self.line, [*self.root, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        said = first_line(self._process, _READY_SECONDS)
        first, *rest = said.split() or [""]
        if first == "held":
            raise MachineError(f"{self} is held by {' '.join(rest)}: wait until it has ended, or end it there")
        if first != "ready":
            self._process.kill()
            assert self._process.stderr is not None
            why = rest_of(self._process.stderr.fileno(), _KILLED_SECONDS).decode(errors="replace")
            words = " / ".join(why.strip().splitlines()[-2:]) or "it says nothing"
            raise MachineError(f"{self}: no bed can be kept there: {words}{about_sudo(words, self.spec)}")
        with reading(self):
            where = rest.pop() if with_cgroups else NO_CGROUPS
            self.cgroups = None if where == NO_CGROUPS else where
            self.keeper, self.namespaces = kept(rest, hosts)
        self.found = look(self.line)  # an earlier keeper has returned its interfaces by now
        threading.Thread(target=self._beat, daemon=True, name=f"beat-{self.name}").start()

    def send(self, line: str) -> bool:
        """Send a line to the keeper; return whether it could be sent."""
        with self._lock:
            if self._process is None or self._process.stdin is None or self._process.stdin.closed:
                return False
            try:
                self._process.stdin.write(f"{line}\n")
                self._process.stdin.flush()
            except OSError:
                return False
            return self._process.poll() is None

    def gone(self) -> str | None:
        """Return the sentence for a keeper that ended unasked; None while it is there."""
        if self._process is None or (self._process.poll() is None and not self._silent):
            return None
        status = self._process.poll()
        return self.line.lost() if status in {None, LOST} else f"{self} gave up waiting for this controller"

    def require(self) -> None:
        """Raise MachineError unless the keeper answers."""
        if self._process is None:
            return
        if (gone := self.gone()) is not None:
            raise MachineError(gone)
        said = first_line(self._process, _READY_SECONDS) if self.send("look") else ""
        first, *ports = said.split() or [""]
        if first != "here":
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_KILLED_SECONDS)
            gone = self.gone() or f"{self} does not answer any more"
            self._silent = True
            raise MachineError(gone)
        words = (port.partition("=") for port in ports)
        self.carriers = {name: int(count) for name, _, count in words if count.isascii() and count.isdigit()}

    def run(self, argv: Sequence[str], text: str = "") -> str:
        """Run a command outside the bed, with the rights of root."""
        return self.line.run([*self.root, *argv], text)

    def governors(self) -> list[str]:
        """Return the frequency governors of its processors now; empty if there are none."""
        script = "cat /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor 2>/dev/null | sort -u"
        return self.line.run(["sh", "-c", script]).split()

    def close(self, heard: Callable[[str], None] | None = None) -> None:
        """Let the keeper clean up, wait for it, and end the connection; `heard` gets the keeper's output."""
        if (process := self._process) is not None:
            with self._lock, suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GONE_SECONDS)
            if heard is not None and process.poll() is not None:
                assert process.stdout is not None
                heard(rest_of(process.stdout.fileno(), _KILLED_SECONDS).decode(errors="replace"))
            end(process)
            self._process = None
        self.line.close()

    def _beat(self) -> None:
        """Send the keeper a heartbeat until it cannot be reached."""
        while self.send(""):
            time.sleep(keeper.BEAT_SECONDS)
        self._silent = True


def kept(words: Sequence[str], hosts: Sequence[HostName]) -> tuple[int, dict[HostName, str]]:
    """Parse the PID of a ready keeper and the holders of the hosts' namespaces; raises ValueError."""
    keeper, *namespaces = words
    if wrong := [one for one in namespaces if re.fullmatch(r"[0-9]+-[0-9]+", one) is None]:
        raise ValueError(f"this is no process with its start time: {wrong[0][:20]}")
    return int(keeper), dict(zip(hosts, namespaces, strict=True))


def about_sudo(words: str, spec: HostSpec) -> str:
    name = spec.user or "who logs in"
    return f": sudo must ask no password of {name} (see the guide on real hosts)" if "sudo" in words else ""
