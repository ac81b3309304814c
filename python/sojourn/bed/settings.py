"""Settings of ports and hosts that a bed sets, each with its old, present and restored value.

`HostSettings` does this on one real host, by shell scripts (bed/setting_scripts.py); its keeper restores.
`LocalSettings` does it on this machine: ports of a bed of namespaces go with the bed, and the machine's own settings
are held with a journal and a guardian (bed/held.py). The settings are declared in sojourn.plan.settings.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar

from sojourn.bed import frequency, held, machine
from sojourn.bed.setting_scripts import LACKING, NOW, TUNE
from sojourn.bed.ssh import reading
from sojourn.errors import MachineError, RequestError
from sojourn.plan.settings import OF_VETH, SETTINGS
from sojourn.records.settings import GONE, Tuned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sojourn.bed.backend import Backend
    from sojourn.bed.model import Topology
    from sojourn.bed.remote import RemoteMachine

NET = Path("/proc/sys/net/core")
ITS_OWN = "-"
"""Used in place of an interface for the host's own settings."""


def lacking(where: str, setting: str, port: str = "") -> RequestError:
    """Return the error for a setting that does not exist."""
    own = SETTINGS[setting]
    has = f"{port} of {where} has no {own.what}" if port else f"{where} has no {own.what}"
    return RequestError(f"settings.{setting}: {has}: leave it out, or {own.fix}")


class HostSettings:
    """The settings of one real host."""

    def __init__(self, remote: RemoteMachine, asked: Mapping[str, str], *, has_its_own: bool) -> None:
        self._remote = remote
        self._asked = asked
        self._scopes = ("port", "host") if has_its_own else ("port",)
        self.tuned: list[Tuned] = []
        self._at: list[tuple[str, str]] = []
        """Namespace and interface of each value in `tuned`."""

    def require(self, interfaces: Sequence[str]) -> None:
        """Refuse settings that an interface, or the host, does not have. Changes nothing."""
        lines = [f"{name} {place}\n" for name in self._asked for place in self._places(name, interfaces)]
        for line in self._remote.run(self._script(LACKING), "".join(lines)).splitlines():
            with reading(self._remote):
                name, place = line.split()
                refusal = lacking(str(self._remote), name, "" if place == ITS_OWN else place)
            raise refusal

    def set(self, ports: Sequence[tuple[str, str, str]]) -> None:
        """Set all of them on ports, each given by namespace, name on the host, and name in the bed."""
        names = {new: (ns, old) for ns, old, new in ports} | {ITS_OWN: (ITS_OWN, ITS_OWN)}
        lines = []
        for name, word in self._asked.items():
            if name == "idle_latency":
                self._limit_idle(word)
                continue
            for new in self._places(name, [new for _, _, new in ports]):
                ns, old = names[new]
                lines.append(f"{ns} {old} {new} {name} {word}\n")
        if not lines:
            return
        said = self._remote.run(self._script(TUNE, str(self._remote.keeper)), "".join(lines))
        for line in said.splitlines():
            with reading(self._remote):
                self._was_set(line, names)

    def _was_set(self, line: str, names: Mapping[str, tuple[str, str]]) -> None:
        """Handle the host's report on one value; `names` has namespace and interface of each place."""
        kind, place, *words = line.split()
        port = "" if place == ITS_OWN else names[place][1]
        if kind == "refused":
            value, now, *why = words
            wanted = f"{port} of {self._remote}" if port else str(self._remote)
            raise RequestError(
                f"{wanted} does not take {self._of(value)} = {self._word(value)} (it has {now}): {' '.join(why)}"
            )
        name, value, before, *now_is = words
        in_force = now_is[0] if now_is else GONE
        self.tuned.append(Tuned(self._remote.name, port, name, value, self._asked[name], before, in_force))
        self._at.append((names[place][0], place))

    def look(self) -> None:
        """Read all values again."""
        lines = [f"{ns} {dev} {one.value}\n" for (ns, dev), one in zip(self._at, self.tuned, strict=True)]
        if lines:
            found = self._remote.run(self._script(NOW), "".join(lines)).split()
            with reading(self._remote):
                for one, now in zip(self.tuned, found, strict=True):
                    one.ended = now

    def hear(self, said: str) -> None:
        """Record the restored values that the keeper reports."""
        at = {(dev, one.value): one for (_, dev), one in zip(self._at, self.tuned, strict=True)}
        for line in said.splitlines():
            words = line.split()
            if words[:1] == ["back"] and len(words) == 4 and (one := at.get((words[1], words[2]))) is not None:
                one.restored = words[3]

    def _limit_idle(self, word: str) -> None:
        before = self._latency()
        self._remote.send(f"latency {word}")
        self._remote.require()  # the keeper has read the line
        now = before
        for _ in range(20):
            now = self._latency()
            with reading(self._remote):
                has_come = int(now) <= int(word)
            if has_come:
                break
        self.tuned.append(Tuned(self._remote.name, "", "idle_latency", "idle_latency", word, before, now))
        self._at.append((ITS_OWN, ITS_OWN))

    def _latency(self) -> str:
        return self._remote.run(self._script(NOW), f"{ITS_OWN} {ITS_OWN} idle_latency\n").strip()

    def _script(self, script: str, *more: str) -> list[str]:
        return ["sh", "-c", script, "sh", self._remote.tools, *more]

    def _places(self, name: str, interfaces: Sequence[str]) -> Sequence[str]:
        scope = SETTINGS[name].scope
        return () if scope not in self._scopes else interfaces if scope == "port" else (ITS_OWN,)

    def _of(self, value: str) -> str:
        return {"irq": "irq_cpus"}.get(value.partition("-")[0], value.partition("-")[0])

    def _word(self, value: str) -> str:
        return self._asked[self._of(value)]


class OfThisMachine(held.Held):
    """The settings of this machine, until closed."""

    journal: ClassVar[str] = "sojourn-settings.json"
    what: ClassVar[str] = "settings of this machine"

    def refusal(self, path: Path, value: str, error: OSError) -> Exception:
        """Return a RequestError, because the plan has a value that the kernel does not accept."""
        return RequestError(f"this machine does not take {value} in {path}: {error.strerror}")


def recover() -> list[str]:
    """Restore the values in the journal of a dead run; return the results, a sentence each."""
    return held.recover(OfThisMachine)


def files_of(name: str) -> list[Path]:
    """Return the kernel's files of a setting of the machine."""
    if name == "idle_latency":
        return [machine.DMA_LATENCY] if machine.DMA_LATENCY.exists() else []
    if name == "governor":
        return sorted(frequency.CPU.glob("cpu[0-9]*/cpufreq/scaling_governor"))
    return [NET / name] if (NET / name).is_file() else []


def require_here(asked: Mapping[str, str]) -> None:
    """Refuse settings that this machine does not have, or this user may not set. Changes nothing."""
    for name in asked:
        if SETTINGS[name].scope == "host":
            files = files_of(name)
            if not files:
                raise lacking("this machine", name)
            if not all(os.access(file, os.W_OK) for file in files):
                raise MachineError(f"only root may set settings.{name} ({files[0]}): run with sudo")


class LocalSettings:
    """The settings of this machine, and of the ports of a bed on it."""

    def __init__(self, backend: Backend, topology: Topology, asked: Mapping[str, str]) -> None:
        self._backend = backend
        self.tuned: list[Tuned] = []
        self._files: list[tuple[str, Path]] = []
        """The host of each value, and its file."""
        self._held: OfThisMachine | None = None
        self._idle: BinaryIO | None = None
        self._is_closed = False
        require_here(asked)
        try:
            self._set_own(asked)
            self._set_ports(topology, {name: word for name, word in asked.items() if name in OF_VETH})
        except BaseException:
            self.close()
            raise

    def _set_own(self, asked: Mapping[str, str]) -> None:
        recover()
        own = {name: word for name, word in asked.items() if SETTINGS[name].scope == "host"}
        wanted = [(name, file) for name in own if name != "idle_latency" for file in files_of(name)]
        if wanted:
            self._held = OfThisMachine({file: own[name] for name, file in wanted})
            for name, file in wanted:
                number = f"-{file.parent.parent.name.removeprefix('cpu')}" if name == "governor" else ""
                self._note("machine", "", name, f"{name}{number}", own[name], self._held.found[str(file)], file)
        if (word := own.get("idle_latency")) is not None:
            before = _read_here(machine.DMA_LATENCY)
            self._idle = machine.DMA_LATENCY.open("wb", buffering=0)
            self._idle.write(int(word).to_bytes(4, sys.byteorder))
            self._note("machine", "", "idle_latency", "idle_latency", word, before, machine.DMA_LATENCY)

    def _set_ports(self, topology: Topology, asked: Mapping[str, str]) -> None:
        for host in topology.hosts:
            for port in topology.ports(host.name):
                for name, word in asked.items():
                    file = f"/sys/class/net/{port.dev}/{name}"
                    try:
                        before = self._backend.get(host.name, file).strip()
                    except MachineError as error:
                        raise lacking(f"host {host.name.upper()}", name, port.dev) from error
                    self._backend.put(host.name, file, word)
                    self._note(host.name, port.dev, name, name, word, before, Path(file))

    def _note(  # noqa: PLR0913, PLR0917 - a row
        self, host: str, port: str, setting: str, value: str, word: str, before: str, file: Path
    ) -> None:
        self._files.append((host, file))
        one = Tuned(host, port, setting, value, word, before, "")
        one.in_force = self._read(host, port, file)
        self.tuned.append(one)

    def look(self) -> None:
        """Read all values again."""
        for (host, file), one in zip(self._files, self.tuned, strict=True):
            one.ended = self._read(host, one.port, file)

    def _read(self, host: str, port: str, file: Path) -> str:
        if not port:
            return _read_here(file)
        try:
            return self._backend.get(host, str(file)).strip()
        except MachineError:
            return GONE

    def close(self) -> None:
        """Restore the machine's own settings; ports go with the bed."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._idle is not None:
            self._idle.close()
        mine, self._held = self._held, None
        try:
            if mine is not None:
                mine.close()
        finally:
            for (_, file), one in zip(self._files, self.tuned, strict=True):
                one.restored = GONE if one.port else _read_here(file)


def _read_here(file: Path) -> str:
    try:
        if file == machine.DMA_LATENCY:
            with file.open("rb") as request:
                return str(int.from_bytes(request.read(4), sys.byteorder, signed=True))
        return file.read_text(encoding="ascii").strip()
    except OSError:
        return GONE
