"""The backend for real hosts, reached by OpenSSH: a test port is an interface of a host, a cable is a cable.

On each host a *keeper* (bed/keeper.py) has a network namespace for every host of the bed, and the test ports are moved
into it: the host's own network and settings stay outside, and everything that the bed sets goes with the namespace.
Programs run there over SSH, with their standard streams connected to this process; their files stay on the host until
`gather`. The keeper cleans up when this process ends, when the SSH session ends, and when it has not heard from this
process for LEASE_SECONDS.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import re
import secrets
import shlex
import socket as sockets
import subprocess
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sojourn.bed import keeper, machine
from sojourn.bed.backend import FilesRead, Usage
from sojourn.bed.backends.local import BUSY
from sojourn.bed.copies import architecture_of, how_to_have, instrument_for_hosts, is_for, tools_folder
from sojourn.bed.fetching import Fetched, fetch
from sojourn.bed.hosts import DEVICES, DEVICES_HOST, END_HOSTS, ports_of
from sojourn.bed.look import OLDEST_KERNEL, TOOLS, Looked, look, unfit
from sojourn.bed.processes import end_all, guarded
from sojourn.bed.remote import NO_CGROUPS, RemoteMachine, RemoteProcess, about_sudo
from sojourn.bed.settings import HostSettings
from sojourn.bed.ssh import looking, reading
from sojourn.bed.state import Process, StateFile, remove_left
from sojourn.errors import MachineError, RequestError
from sojourn.records.decode import json_value
from sojourn.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sojourn.bed.hosts import HostName
    from sojourn.bed.model import BedSpec, Cable, HostSpec, Port, Topology
    from sojourn.bed.ssh import Line
    from sojourn.records.settings import Tuned

MOUNT = "mount -t cgroup2 none /mnt, with a folder /mnt"


class SshBackend:
    """The hosts are real machines."""

    simulated: ClassVar[bool] = False
    unprivileged: bool = False
    _held: ClassVar[str | None] = None
    """The name under which this process holds the hosts, from one bed to the next."""

    def __init__(self, run_id: str) -> None:
        self.missing: list[str] = []
        self._state = StateFile(run_id)
        self._token = secrets.token_hex(8)
        self._machines: dict[str, RemoteMachine] = {}
        self._ports: dict[str, str] = {}
        self._at: dict[str, RemoteMachine] = {}
        """The machine of each port of the bed, by the port's name there."""
        self._loose: list[Port] = []
        """Ports whose cable leads to a device that is none of ours."""
        self._carriers: dict[str, int] = {}
        self._started: list[subprocess.Popen[Any]] = []
        self._folders: dict[tuple[HostName, Path], Fetched] = {}
        self._tools = ""
        self._numbers = iter(range(1, 1_000_000))
        self._settings: list[HostSettings] = []
        self._tai_offsets: dict[str, int] = {}
        self._no_cgroups = "it was not asked for cgroups"

    @staticmethod
    def cores(hosts: Mapping[str, HostSpec] | None = None) -> list[int]:
        """Return the cores that may be used on both ends."""
        hosts = hosts or {}
        return _common_cores(tuple((name, hosts[name]) for name in END_HOSTS if name in hosts))

    @classmethod
    @contextmanager
    def hold(cls, hosts: Mapping[str, HostSpec], run: str) -> Iterator[None]:
        """Hold these hosts, and keep the instrument on them, from the first bed of a run to the last."""
        remove_left()
        state = StateFile(f"{run}-hold")
        state.write(Process.of(os.getpid()))
        machines: list[RemoteMachine] = []
        holder = secrets.token_hex(8)
        try:
            for name, host in hosts.items():
                machines.append(RemoteMachine(name, host, str(state.socket(f"hold-{name}"))))
            tools = tools_folder(*_binaries(machines).values())
            for one in machines:
                one.keep(holder, holder, (), tools)
            cls._held = holder
            yield
        finally:
            cls._held = None
            for one in machines:
                one.close()
            state.remove()

    def open(self, topology: Topology, spec: BedSpec) -> None:
        """Connect to the hosts, refuse unfit ones, and start a keeper on each."""
        if not spec.hosts:
            raise RequestError("a bed of real hosts needs a file that names them: --bed bed.toml")
        remove_left()
        self._state.claim()
        self._state.write(Process.of(os.getpid()))
        for name, host in spec.hosts.items():
            self._machines[name] = RemoteMachine(name, host, str(self._state.socket(f"ssh-{name}")))
        self._ports = ports_of(topology, spec.paths)
        at = {port.dev: self._on(host.name) for host in topology.hosts for port in topology.ports(host.name)}
        self._at = {dev: one for dev, one in at.items() if dev in self._ports}
        self._loose = [port for link in topology.laid for port in link.loose]
        binaries = _binaries(self._machines.values())
        if DEVICES_HOST in self._machines:
            tools = {tool: package for one in topology.stations for tool, package in one.mode.tools.items()}
            require_tools(self._machines[DEVICES_HOST].line, tools)
        self._tools = tools_folder(*binaries.values())
        for one in self._machines.values():
            hosts = [host.name for host in topology.hosts if _machine_of(host.name) == one.name]
            grouped = spec.cgroups and one.name in END_HOSTS
            one.keep(self._token, self._held or self._token, hosts, self._tools, with_cgroups=grouped)
            if grouped and one.cgroups is None:
                self._no_cgroups = f"no unified hierarchy is mounted there, or it takes no folder: {MOUNT}"
                self.missing.append(f"Cgroups of {one}: {self._no_cgroups}.")
            require_ports(one.line, one.found, self._interfaces(one.name, topology))
        for one in self._machines.values():
            self._install(one, binaries[one.found.architecture])
        self._settings = self._settings_of(spec.settings)
        for settings, one in zip(self._settings, self._machines.values(), strict=False):
            settings.require(list(self._interfaces(one.name, topology)))

    def lay(self, cables: Iterable[Cable], mtu: int) -> None:
        """Move the test ports into their namespaces, with the bed's names and MAC addresses, all down.

        Cables within the device's host are veth pairs, which go with the namespaces.
        """
        every, lines = list(cables), dict[str, list[str]]()
        self._lay_within([one for one in every if one.left.dev not in self._ports], mtu)
        ends = [port for cable in every for port in (cable.left, cable.right) if port.dev in self._ports]
        for port in (*ends, *self._loose):
            one, old = self._on(port.host), self._ports[port.dev]
            link = one.found.links[old]
            up = "up" if "UP" in link["flags"] else "down"
            is_now = f"{link['address']} {link['mtu']} {up}"
            there = f"{one.namespaces[port.host]} {old} {port.dev} {port.mac} {mtu} {is_now}\n"
            lines.setdefault(one.name, []).append(there)
        for name, some in lines.items():
            one = self._machines[name]
            one.run(["sh", "-c", keeper.TAKE, "sh", str(one.keeper), one.tools], "".join(some))

    def _lay_within(self, cables: Sequence[Cable], mtu: int) -> None:
        def holder(port: Port) -> str:
            return self._on(port.host).namespaces[port.host]

        def end(port: Port) -> str:
            place = f"netns {holder(port).partition('-')[0]}"
            return f"name {port.dev} {place} address {port.mac} mtu {mtu} numtxqueues 1 numrxqueues 1"

        if cables:
            lines = [f"link add {end(cable.left)} type veth peer {end(cable.right)}\n" for cable in cables]
            holders = dict.fromkeys(holder(port) for cable in cables for port in (cable.left, cable.right))
            self._on(DEVICES).run(["sh", "-c", keeper.LAY, "sh", *holders], "".join(lines))

    def start(self, host: HostName, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        one = self._on(host)
        group = f"{one.cgroups}/{host}" if one.cgroups is not None else NO_CGROUPS
        return self._start(one, one.namespaces[host], group, argv, popen)

    def _start(
        self, one: RemoteMachine, namespace: str, group: str, argv: Sequence[str], popen: dict[str, Any]
    ) -> RemoteProcess:
        number = next(self._numbers)
        given = popen.pop("env", None) or {}
        variables = [f"{name}={value}" for name, value in given.items() if os.environ.get(name) != value]
        popen.pop("cwd", None)  # the folder is one of this machine
        popen.setdefault("stdin", subprocess.DEVNULL)
        popen.setdefault("start_new_session", True)
        if popen.get("text"):
            popen.setdefault("errors", "replace")  # the host may send any bytes
        enter = ["sh", "-c", keeper.ENTER, "sh", one.work, str(number), namespace, one.tools, group]
        process = RemoteProcess(guarded(one.line.command([*one.root, *enter, *variables, *argv])), **popen)
        process.remote, process.number = one, number
        self._started.append(process)
        return process

    def run(self, host: HostName, argv: Sequence[str], input: str | None = None) -> str:  # noqa: A002
        one = self._on(host)
        there = ["sh", "-c", keeper.INSIDE, "sh", one.namespaces[host], one.tools, *argv]
        try:
            return one.line.run([*one.root, *there], input or "")
        except MachineError as error:
            raise MachineError(one.gone() or f"{error} (by '{shlex.join(argv)}')") from error

    def beside(self, argv: Sequence[str], host: HostName | None = None, **popen: Any) -> subprocess.Popen[Any]:
        """Start a program on the host's machine, in a cgroup beside the host's, which the keeper ends with the bed."""
        if host is None:
            raise MachineError(f"'{argv[0]}' watches all hosts: that needs a bed on one machine, --bed netns")
        group = Path(self.cgroup(host)).with_name(keeper.BESIDE)
        return self._start(self._on(host), "-", str(group), argv, popen)

    def cgroup(self, host: HostName) -> str:
        one = self._on(host)
        if one.cgroups is None or host not in END_HOSTS:
            raise MachineError(f"{one} has no cgroup of this bed: {self._no_cgroups}")
        return f"{one.cgroups}/{host}"

    def put(self, host: HostName, path: str, text: str) -> None:
        if path.startswith("/sys/class/net/"):
            self._in_sysfs(host, ["sh", "-c", 'cat > "$0"', path], text)
        else:
            self.run(host, ["sh", "-c", 'cat > "$0"', path], text)

    def get(self, host: HostName, path: str) -> str:
        return self._in_sysfs(host, ["cat", path], None) if path.startswith("/sys/class/net/") else self.run(
            host, ["cat", path]
        )  # fmt: skip

    def read(self, host: HostName, paths: Sequence[str], pids: Sequence[int]) -> FilesRead:
        one = self._on(host)
        started = [one for one in self._started if isinstance(one, RemoteProcess) and one.pid in pids]
        numbers = " ".join(str(process.number) for process in started)
        said = self.run(host, ["sh", "-c", keeper.READ, "sh", one.work, numbers, *paths])
        with reading(one):
            return files_of(said, len(paths), self.tai_offset_ns(host))

    def folder(self, host: HostName | None, local: Path) -> Path:
        if host is None:
            raise MachineError("programs beside all hosts need a bed on one machine: --bed netns")
        if (host, local) not in self._folders:
            one = self._on(host)
            there = f"{one.work}/{len(self._folders)}"
            one.run(["mkdir", "-m", "700", there])
            self._folders[host, local] = Fetched(one, there, local, {})
        return Path(self._folders[host, local].there)

    def lend(self, host: HostName, local: Path) -> Path:
        one = self._on(host)
        there = f"{one.work}/lent-{next(self._numbers)}-{local.name}"
        # Root runs what is lent, or the emulator reads it as the caller of sudo: nobody else has to.
        script = 'umask 077; cat >"$0" && chmod 700 "$0" && { [ -z "$SUDO_UID" ] || chown "$SUDO_UID" "$0"; }'
        one.line.run_bytes([*one.root, "sh", "-c", script, there], local.read_bytes())
        return Path(there)

    def require_hosts(self) -> None:
        for one in self._machines.values():
            one.require()

    def lost_links(self) -> dict[str, str]:
        """Compare with the hosts' last reports; a port that was not in the last report has lost its link."""
        now = {dev: one.carriers[dev] for dev, one in self._at.items() if dev in one.carriers}
        before, self._carriers = self._carriers, self._carriers | now
        if unseen := [dev for dev in self._at if dev not in self._carriers]:
            where = " and ".join(f"{self._at[dev]} does not tell it of {self._ports[dev]}" for dev in unseen)
            fix = "`ip -s -s link show` there must print the column transns (iproute2 of 2014 or newer)"
            raise MachineError(f"whether a link is lost cannot be seen: {where}; {fix}")
        lost = [dev for dev in self._at if now.get(dev, math.inf) > before.get(dev, now.get(dev, 0))]
        return {dev: f"{self._ports[dev]} of {self._at[dev]}" for dev in lost}

    def gather(self) -> None:
        """Fetch the new part of every file, and compare the file's hash."""
        gone: MachineError | None = None
        for one in self._folders.values():
            if one.local.is_dir():  # temporary folders may be gone by now
                try:
                    one.machine.require()
                    fetch(one)
                except MachineError as error:
                    gone = gone or error
        if gone is not None:
            raise gone
        self.require_hosts()

    def socket(self, name: str) -> str:
        return f"{self._on(DEVICES).work}/{name}.sock"

    def connect(self, path: str, seconds: float) -> sockets.socket:
        """Connect through a program on the host that relays lines over the SSH session; no port listens here."""
        ours, theirs = sockets.socketpair()
        ours.settimeout(seconds)
        with theirs:
            try:
                argv = [self.instrument(), "emulate", "ask", "--control", path]
                self.start(DEVICES, argv, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL)
            except BaseException:
                ours.close()
                raise
        return ours

    def instrument(self) -> str:
        return f"{self._tools}/sojourn-instrument"

    def find(self, tool: str, host: HostName | None = None) -> str | None:
        asked = self._machines.values() if host is None else [self._on(host)]
        return tool if all(tool in one.found.tools for one in asked) else None

    def require_tool(self, host: HostName, tool: str, package: str, purpose: str) -> str:
        if (path := self.find(tool, host)) is None:
            raise MachineError(f"{self._on(host)} has no {tool}, which {purpose}: apt-get install {package} there")
        return path

    @contextmanager
    def without(self, core: int) -> Iterator[None]:
        """Do nothing: this process runs on another machine."""
        del core
        yield

    @property
    def one_clock(self) -> bool:
        """Whether all hosts are one machine."""
        return len({one.found.boot_id for one in self._machines.values()}) == 1

    def tai_ns(self, host: HostName) -> int:
        """Ask the host for its time: some tens of milliseconds, in which the answer was true at some time."""
        one, offset = self._on(host), self.tai_offset_ns(host)
        with reading(one):
            return int(one.line.run(["date", "+%s%N"])) + offset

    def tai_offset_ns(self, host: HostName) -> int:
        """Ask the host's instrument for the kernel's offset; once, so that all times of a bed have the same one."""
        one = self._on(host)
        if one.name not in self._tai_offsets:
            with reading(one):
                said = json_value(self.run(host, [self.instrument(), "clock", "--json"]))
                self._tai_offsets[one.name] = int(said["local"]["kernel"]["tai_offset_s"]) * 1_000_000_000
        return self._tai_offsets[one.name]

    def cpu_ns(self, pid: int) -> int:
        """Return the processor time of a program that still runs there, accurate to a clock tick."""
        for process in self._started:
            if process.pid == pid and isinstance(process, RemoteProcess) and process.remote is not None:
                there = f"{process.remote.work}/pid.{process.number}"
                script = "cat /proc/$(cat \"$0\")/task/*/schedstat 2>/dev/null | cut -d' ' -f1; true"
                with reading(process.remote):
                    return sum(map(int, process.remote.run(["sh", "-c", script, there]).split()))
        return 0

    def usage(self) -> Usage:
        """Return the processor time of all hosts together; hosts with one kernel count its processors once."""
        every = [(one.found.boot_id, _usage(one)) for one in self._machines.values()]
        kernels = dict(every).values()
        busy, steal, processors = (sum(one[place] for one in kernels) for place in (0, 1, 3))
        return Usage(time.monotonic(), busy, steal, sum(one[2] for _, one in every), int(processors))

    def softnet_dropped(self) -> int:
        script = "cat /proc/net/softnet_stat"
        dropped = 0
        for one in self._machines.values():
            with reading(one):
                dropped += sum(int(row.split()[1], 16) for row in one.line.run(["sh", "-c", script]).splitlines())
        return dropped

    def machine_ids(self) -> dict[str, str]:
        return {name: one.found.machine_id for name, one in self._machines.items()}

    def machine(self) -> dict[str, Any]:
        """Return the facts of the hosts; those of host A also under the names of a single machine's facts."""
        found = {name: _facts(one.found) for name, one in self._machines.items()}
        return {"machine": found["a"], "machines": found, "versions": machine.versions()}

    def moment(self) -> dict[str, Any]:
        """Return load and uptime of each host now."""
        every = {name: _moment(one) for name, one in self._machines.items()}
        return {**every["a"], "machines": every}

    def keep_awake(self, *, polling: bool) -> str | None:
        """Not supported on real hosts."""
        del polling
        return "idle processors of real hosts are left as they are"

    @classmethod
    def require_frequency(cls) -> None:
        """Not supported on real hosts."""
        raise MachineError(
            "the clock of real hosts' processors is left as it is: leave frequency out of variance.factors"
        )

    def keep_frequency(self, *, highest: bool) -> None:
        """Not supported on real hosts."""
        del highest
        self.require_frequency()

    @classmethod
    def require_settings(cls, asked: Mapping[str, str]) -> None:
        """Do nothing: each host is asked when a bed is opened on it."""

    def tune(self, topology: Topology, asked: Mapping[str, str]) -> None:
        """Set these on every host; each records the old values and restores them itself."""
        del asked  # as passed to `open`
        for settings, one in zip(self._settings, self._machines.values(), strict=True):
            ports = [
                (one.namespaces[host.name], self._ports[port.dev], port.dev)
                for host in topology.hosts
                if _machine_of(host.name) == one.name
                for port in topology.ports(host.name)
                if port.dev in self._ports
            ]
            settings.set(ports)

    def look_at_settings(self) -> None:
        """Have every host read its settings again."""
        for settings in self._settings:
            settings.look()

    @property
    def tuned(self) -> list[Tuned]:
        """The settings with their values, host by host."""
        return [row for settings in self._settings for row in settings.tuned]

    def governors(self) -> dict[str, list[str]]:
        """Return the governors of each host's processors."""
        found = {str(one): one.governors() for one in self._machines.values()}
        return {name: several for name, several in found.items() if several}

    def close(self) -> None:
        """End the started programs, and have each host clean up."""
        end_all(self._started)
        self._started.clear()
        self._folders.clear()
        settings = dict(zip(self._machines, self._settings, strict=False))
        for name, one in self._machines.items():
            one.close(heard=None if name not in settings else settings[name].hear)
        self._machines.clear()
        self._state.remove()

    def _settings_of(self, asked: Mapping[str, str]) -> list[HostSettings]:
        """Return the settings of each host; a setting of the kernel is set once per kernel."""
        if not asked:
            return []
        boots = [one.found.boot_id for one in self._machines.values()]
        return [
            HostSettings(one, asked, has_its_own=one.found.boot_id not in boots[:number])
            for number, one in enumerate(self._machines.values())
        ]

    def _on(self, host: HostName) -> RemoteMachine:
        try:
            return self._machines[_machine_of(host)]
        except KeyError:
            raise MachineError("the bed is gone; build it again") from None

    def _interfaces(self, name: str, topology: Topology) -> Iterator[str]:
        """The test ports of a machine."""
        for host in topology.hosts:
            if _machine_of(host.name) == name:
                ports = (port.dev for port in topology.ports(host.name))
                yield from (self._ports[dev] for dev in ports if dev in self._ports)

    def _install(self, one: RemoteMachine, binary: bytes) -> None:
        """Copy the instrument unless the host has it, and run it once."""
        digest = hashlib.sha256(binary).hexdigest()
        if "have" not in one.run(["sh", "-c", keeper.INSTALLED, "sh", self._tools, digest]):
            argv = ["sh", "-c", keeper.INSTALL, "sh", self._tools, digest]
            one.line.run_bytes([*one.root, *argv], _packed(binary))
        try:
            said = one.line.run([self.instrument(), "--version"]).strip()
        except MachineError as error:
            fix = "run `make static` in the source tree here: it builds one that needs no library of the host"
            raise MachineError(f"{error}: the instrument does not run there: {fix}") from error
        if said.rpartition(" ")[2] != __version__:
            other = f"the instrument for {one.found.architecture} is of another version ({said})"
            raise MachineError(f"{one.line}: {other}, and this is Sojourn {__version__}: build or name one of it")

    def _in_sysfs(self, host: HostName, argv: Sequence[str], text: str | None) -> str:
        script = 'mount -n --make-rprivate / && mount -n -t sysfs sysfs /sys && exec "$@"'
        private = ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", script, "sh"]
        return self.run(host, [*private, *argv], text)


def files_of(said: str, count: int, tai_offset_ns: int) -> FilesRead:
    """Parse what READ says of so many files; raises ValueError if it is malformed."""
    before, first, after, *others, programs = re.split(rf"^{keeper.READ_NEXT}\n", said, flags=re.MULTILINE)
    if len(others) != count - 1:
        raise ValueError(f"{len(others) + 1} files in place of {count}")
    at_ns = (int(before) + int(after)) // 2 + tai_offset_ns
    return FilesRead(at_ns, (first, *others), sum(map(int, programs.split())))


def require_fit(line: Line, found: Looked, binary: bytes) -> None:
    """Refuse a host that cannot hold a bed, and say what would fix it."""
    lacking = [tool for tool in TOOLS if tool not in found.tools]
    if lacking:
        packages = " ".join(sorted({TOOLS[tool] for tool in lacking}))
        raise MachineError(f"{line} has no {', '.join(lacking)}: apt-get install {packages}")
    if found.kernel < OLDEST_KERNEL:
        oldest = ".".join(map(str, OLDEST_KERNEL))
        raise MachineError(f"{line} has Linux {found.release}: it needs {oldest} or newer")
    if not is_for(binary, found.architecture):
        message = f"{line} is {found.architecture}, and the instrument here is built for {architecture_of(binary)}"
        raise MachineError(f"{message}: {how_to_have(found.architecture)}")
    if found.uid != 0 and not line.spec.sudo:
        raise MachineError(f"{line}: who logs in is not root: log in as root, or set sudo = true for it")
    if found.uid != 0 and "not found" in found.sudo:
        raise MachineError(f"{line} has no sudo: apt-get install sudo, or log in as root")
    if found.uid != 0 and found.sudo != "yes":
        raise MachineError(
            f"{line}: no rights of root ({found.sudo or 'there is no sudo'}){about_sudo('sudo', line.spec)}"
        )


def _binaries(machines: Iterable[RemoteMachine]) -> dict[str, bytes]:
    """Return the instrument for each architecture of these hosts; refuses hosts that cannot hold a bed."""
    binaries: dict[str, bytes] = {}
    for one in machines:
        architecture = one.found.architecture
        if architecture not in binaries:
            binaries[architecture] = instrument_for_hosts(architecture).read_bytes()
        require_fit(one.line, one.found, binaries[architecture])
    return binaries


def require_tools(line: Line, tools: Mapping[str, str]) -> None:
    """Refuse a host without the tools that its devices are built with."""
    script = 'PATH=$PATH:/usr/sbin:/sbin; for tool; do command -v "$tool" >/dev/null || echo "$tool"; done'
    if lacking := line.run(["sh", "-c", script, "sh", *tools]).split():
        packages = " ".join(sorted({tools.get(tool, tool) for tool in lacking}))
        raise MachineError(f"{line} has no {', '.join(lacking)}, which its devices need: apt-get install {packages}")


def require_ports(line: Line, found: Looked, interfaces: Iterable[str]) -> None:
    """Refuse interfaces that cannot be test ports."""
    for name in interfaces:
        if (reason := unfit(found, name)) is not None:
            raise RequestError(f"{line} {reason}")


@cache
def _common_cores(hosts: tuple[tuple[str, HostSpec], ...]) -> list[int]:
    """Return the cores that every one of these hosts has; each host is asked once."""
    common: set[int] | None = None
    for name, spec in hosts:
        with looking(name.upper(), spec) as line:
            found = set(look(line).cpus)
        common = found if common is None else common & found
    return sorted(common or {0})


@cache
def _packed(binary: bytes) -> bytes:
    return gzip.compress(binary, 1)


def _machine_of(host: HostName) -> str:
    """Return the real host of a host of the bed."""
    return host if host in END_HOSTS else DEVICES_HOST


def _usage(one: RemoteMachine) -> tuple[float, float, float, float]:
    """Return busy, stolen and our own processor time in seconds, and the number of processors."""
    with reading(one):
        return _usage_in(one.run(["sh", "-c", keeper.USAGE, "sh", one.work]))


def _usage_in(said: str) -> tuple[float, float, float, float]:
    """Parse the same from the host's output."""
    first, ticks, processors, *rest = said.splitlines()
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    counts = dict(zip(names, map(int, first.split()[1:]), strict=False))
    ours = 0.0
    for row in rest:
        kind, *words = row.split()
        if kind == "ended":
            ours += sum(map(_seconds, words))
        elif kind == "live":
            ours += sum(map(int, words[11:15])) / int(ticks)
    busy = sum(counts[name] for name in BUSY) / int(ticks)
    return busy, counts.get("steal", 0) / int(ticks), ours, int(processors)


def _seconds(words: str) -> float:
    """Parse a time as a shell's `times` writes it: 1m2.30s."""
    found = re.fullmatch(r"(\d+)m([\d.]+)s", words)
    return int(found[1]) * 60 + float(found[2]) if found else 0.0


def _facts(found: Looked) -> dict[str, Any]:
    return {
        "kernel": {"release": found.release, "version": found.version, "architecture": found.architecture},
        "distribution": found.distribution,
        "cpu": {"model": found.cpu, "usable": list(found.cpus), "online": len(found.cpus)},
        "memory_total_bytes": found.memory_bytes,
        "clocks": {"clocksource": found.clocksource},
    }


def _moment(one: RemoteMachine) -> dict[str, Any]:
    with reading(one):
        load, up = one.line.run(["cat", "/proc/loadavg", "/proc/uptime"]).splitlines()
        return {
            "boot_id": one.found.boot_id,
            "uptime_s": float(up.split()[0]),
            "load_average": [float(word) for word in load.split()[:3]],
        }
