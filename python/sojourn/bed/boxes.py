"""Boxes that the user's own program builds between two ports; Sojourn then finds out whether they bridge or route.

The program runs with the bed's rights in the network namespace of its device, and in process and mount namespaces of
its own. What it starts ends with the first process of that process namespace, however this program ends; its mounts go
with it; `ip netns` has an empty /run/netns. Files that it writes elsewhere, modules that it loads and services that it
requests by a socket are not cleaned up.

Its environment has SOJOURN_LEFT and SOJOURN_RIGHT, the names of its ports towards A and B, which are up;
SOJOURN_LEFT_IP4, _IP6 and the same of RIGHT, addresses with prefixes that the ports may have; SOJOURN_A_IP4, _IP6, _MAC
and the same of B, the ends behind them if it routes; SOJOURN_MTU; SOJOURN_FOLDER, a folder in memory that goes with it.
"""

from __future__ import annotations

import os
import selectors
import shlex
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sojourn.bed.model import BoxSpec
from sojourn.bed.ssh import reading
from sojourn.bed.wiring import address_ends
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from sojourn.bed.backend import Backend
    from sojourn.bed.model import BedSpec, Link, Topology

LACKS = """
is_mounted() { [ -r /proc/self/mountinfo ] || return 0
    while read -r _ _ _ _ at _; do [ "$at" = "$1" ] && return 0; done </proc/self/mountinfo; return 1; }
needed= lacks=
is_mounted / || for one in /proc /dev /run; do is_mounted $one || needed="$needed $one"; done
command -v mount >/dev/null || lacks="no program mount here: apt-get install mount"
[ -z "$needed" ] || lacks="${lacks:+$lacks; }in this chroot these are no mount points, so a box would mount outside,\
 too:$needed. Make each one, for instance by 'mount --rbind /run /run'"
"""
"""Sets `lacks` to everything that this machine lacks for a box, as part of a sentence; it needs no program."""

# The first process in the box's process namespace: it runs the program, reports its exit status, and waits. Its
# standard output is ours; the program's is the log. Descriptor 3 is our pipe to it: "down", or its end.
# Its mounts are private: nobody else sees them. In a chroot whose root is no mount point, only mount points below it
# can be made private, so each place where we mount must be one; what the user's program mounts on the root itself is
# visible outside.
_FIRST = """
[ -z "$lacks" ] || { echo "$lacks" >&2; exit 1; }
if ! mount -n --make-rprivate / 2>/dev/null; then
    while read -r _ _ _ _ at _; do mount -n --make-private "$(printf %b "$at")" 2>/dev/null; done </proc/self/mountinfo
    for one in /proc /dev /run; do mount -n --make-private $one || exit 1; done
fi
mount -n -t proc proc /proc || exit 1
mount -n -t tmpfs -o mode=700 box /dev/shm && mkdir /dev/shm/box || exit 1
if [ -d /run/netns ] || mkdir /run/netns 2>/dev/null; then mount -n -t tmpfs box /run/netns || exit 1; fi
exec 3<&0 4>&1 </dev/null >&2
sh -c "exec $1" 3<&- 4>&-
echo "up $?" >&4
while read -r word <&3; do
    sh -c "exec $2" 3<&- 4>&-
    echo "down $?" >&4
done
"""
_ALONE = ["unshare", "--pid", "--fork", "--kill-child=KILL", "--mount", "--propagation", "unchanged"]
_SHELL = "/bin/sh"
_FOLDER = "/dev/shm/box"
_QUOTED_LINES = 3
_PATIENCE_SECONDS = 0.05


@dataclass
class _Running:
    """One box, its first process, and the log of its output."""

    link: Link
    spec: BoxSpec
    process: subprocess.Popen[str]
    log: IO[bytes]
    path: Path | None

    @property
    def name(self) -> str:
        return f"box {self.spec.up}"

    def last_lines(self) -> str:
        """Return the end of the program's output, as part of a sentence."""
        self.log.flush()
        self.log.seek(0)
        lines = [line.strip() for line in self.log.read().decode(errors="replace").splitlines() if line.strip()]
        where = f" (all of it: {self.path})" if self.path else ""
        return f"it said: {' / '.join(lines[-_QUOTED_LINES:])}{where}" if lines else "it printed nothing"


class Boxes:
    """The boxes of a bed."""

    def __init__(self, backend: Backend, topology: Topology, spec: BedSpec, logs: Path | None) -> None:
        self._backend = backend
        self._topology = topology
        self._spec = spec
        self._logs = logs
        self._running: list[_Running] = []

    def up(self) -> Topology:
        """Run every box's program and wait until frames pass; return the topology, in which boxes found to route do so.

        Raises MachineError where a program fails, hangs, or lets no frame pass.
        """
        began = time.monotonic()
        for link in () if self._backend.simulated else self._topology.laid:
            mode = link.device.mode
            if mode.is_box:
                self._start(link, self._spec.boxes[link.device.name])
            elif mode.program:
                self._start(link, BoxSpec(shlex.join([_SHELL, mode.program, *mode.told]), routed=False))
        for one in self._running:
            deadline = began + one.spec.within_ns / 1e9
            self._await_end_of(one, "up", deadline)
            self._await_frames(one, deadline)
        found = {one.link.path: one.link for one in self._running}
        return replace(
            self._topology,
            links=tuple(found.get(link.path, link) for link in self._topology.links),
            laid=tuple(found.get(link.path, link) for link in self._topology.laid),
        )

    def down(self) -> None:
        """Run the `down` command of every box that has one, and end everything that the boxes started."""
        for one in self._running:
            if one.spec.down and one.process.poll() is None and one.process.stdin is not None:
                with suppress(MachineError, OSError):
                    one.process.stdin.write("down\n")
                    one.process.stdin.flush()
                    self._await_end_of(one, "down", time.monotonic() + one.spec.within_ns / 1e9)
        for one in self._running:
            one.process.kill()
            one.process.wait()
            for pipe in (one.process.stdin, one.process.stdout, one.log):
                with suppress(OSError):
                    if pipe is not None:
                        pipe.close()
        self._running.clear()

    def _start(self, link: Link, spec: BoxSpec) -> None:
        words = shlex.split(spec.up)
        # /bin/sh runs a script of ours, because packages do not keep the executable bit. Each host has its own shell.
        folder, lent = Path(words[0]).parent, 1 if words[0] == _SHELL else 0
        words[lent] = str(self._backend.lend(link.device_host, Path(words[lent])))
        argv = [*_ALONE, "sh", "-c", LACKS + _FIRST, "sh", shlex.join(words), spec.down or "true"]
        told = _told(self._spec, link) | {"SOJOURN_INSTRUMENT": self._backend.instrument()}
        path = self._logs / f"{link.slug}.log" if self._logs else None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        log: IO[bytes] = tempfile.TemporaryFile() if path is None else path.open("a+b")  # noqa: SIM115 - closed in `down`
        try:
            process = self._backend.start(
                link.device_host, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=told,
                cwd=folder,
            )  # fmt: skip
        except BaseException:
            log.close()
            raise
        self._running.append(_Running(link, spec, process, log, path))

    def _await_end_of(self, one: _Running, what: str, deadline: float) -> None:
        """Wait until the program has ended; raises MachineError unless it succeeded."""
        assert one.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(one.process.stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                seconds = f"{one.spec.within_ns / 1e9:g} s"
                raise MachineError(f"{one.name} did not come up within {seconds}: it still runs; {one.last_lines()}")
        said, _, status = one.process.stdout.readline().partition(" ")
        if said != what:
            raise MachineError(f"{one.name} cannot be run here, in namespaces of its own; {one.last_lines()}")
        with reading(one.name, "a program of a box"):
            failed = int(status)
        if failed:
            raise MachineError(f"{one.name} failed with status {failed}; {one.last_lines()}")

    def _await_frames(self, one: _Running, deadline: float) -> None:
        """Probe from A until B answers: bridged, or routed; both are tried if the user did not say which."""
        tried = [False, True] if one.spec.routed is None else [one.spec.routed]
        while True:
            for routed in tried:
                if one.link.is_routed != routed:
                    one.link = replace(one.link, is_routed=routed)
                    address_ends(self._backend, one.link)
                if self._answers(one.link):
                    return
            if time.monotonic() > deadline:
                break
            time.sleep(_PATIENCE_SECONDS)
        how = " or ".join("as over a router" if routed else "as over a bridge" for routed in tried)
        raise MachineError(
            f"{one.name} came up, and lets nothing pass within {one.spec.within_ns / 1e9:g} s: host B does not answer "
            f"host A, {how}; {one.last_lines()}"
        )

    def _answers(self, link: Link) -> bool:
        probe = [self._backend.instrument(), "probe", "icmp", link.b_ip4, "--dev", link.a_dev]
        with suppress(MachineError):
            self._backend.run("a", [*probe, "-c", "3", "-i", "10ms", "--timeout", "100ms", "--json"])
            return True
        return False


def _told(spec: BedSpec, link: Link) -> dict[str, str]:
    """Return the environment of a box's program."""
    station = link.stations[0]
    told: dict[str, Any] = {"LEFT": station.left.dev, "RIGHT": station.right.dev, "MTU": spec.mtu, "FOLDER": _FOLDER}
    for name, end, side in zip(("LEFT", "RIGHT"), "AB", link.sides, strict=True):
        told |= {f"{name}_IP4": f"{side.ip4}/24", f"{name}_IP6": f"{side.ip6}/64"}
        told |= {f"{end}_IP4": side.end_ip4, f"{end}_IP6": side.end_ip6, f"{end}_MAC": side.end_mac}
    return dict(os.environ) | {f"SOJOURN_{name}": str(value) for name, value in told.items()}
