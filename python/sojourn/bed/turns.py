"""Paths that share their ports: one of them is connected at a time, by a program of the user's or by a person.

The authors of the papers did so by hand. The program may do this in any way: set other VLANs on a managed switch, turn
a relay, or change a bridge. After each change B must answer A.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import termios
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from sojourn.bed.ssh import UNREADABLE
from sojourn.devices import DIRECT, PERSON
from sojourn.errors import MachineError, SojournError
from sojourn.records.decode import json_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from sojourn.bed.backend import Backend
    from sojourn.bed.model import BedSpec, Link, PathSpec, Topology

PROGRAM_SECONDS = 300.0
"""The time within which a program must have connected a path."""
ANSWER_SECONDS = 60.0
"""The time within which B must answer over it: a switch may block for half a minute (spanning tree)."""
PROBES = 3
LAST_WORDS = 300
"""The number of characters that are quoted from the end of a failed program's output."""


class Turns:
    """The connected one of the paths that share their ports."""

    def __init__(self, topology: Topology, spec: BedSpec) -> None:
        self._topology, self._paths = topology, spec.paths
        self._order = -1 if spec.layout is not None and spec.layout % 2 else 1
        self._in_place: dict[str, str] = {}
        """The connected path, by the interface at A."""

    @property
    def groups(self) -> list[list[str]]:
        """The paths of each shared pair of ports, in the bed's order or, on beds with an odd layout seed, in reverse.

        Reversed orders at random balance out changes over time.
        """
        found: dict[str, list[str]] = {}
        for link in self._topology.links:
            if link.path in self._paths and self._paths[link.path].switch is not None:
                found.setdefault(link.a_dev, []).append(link.path)
        return [several[:: self._order] for several in found.values()]

    def place_of(self, path: str) -> str:
        """Return the bed's path for a path of a trial: without a twin, the A/A control uses the direct one."""
        return self._topology.link(path).path

    @property
    def by_person(self) -> bool:
        """Whether a person connects one of the paths."""
        return any(self._paths[path].switch == PERSON for several in self.groups for path in several)

    def begin(self) -> None:
        """Connect the first path of each group, before any link is waited for."""
        if self.by_person and not all(one is not None and one.isatty() for one in (sys.stdin, sys.stderr)):
            raise MachineError(
                "a path of this bed is put in place by a person, and this is no terminal at which one could be asked: "
                "name a program as its switch, or run it at a terminal"
            )
        if self.by_person and len(self.groups) > 1:
            raise MachineError("a person puts paths in place between one pair of ports, and this bed has several")
        for several in self.groups:
            self.put(several[0], lambda: None)

    def is_in_place(self, path: str) -> bool:
        """Return whether a path can be measured now."""
        link = self._topology.link(path)
        switched = link.path in self._paths and self._paths[link.path].switch is not None
        return not switched or self._in_place.get(link.a_dev) == link.path

    def put(self, path: str, await_links: Callable[[], None], has_moved: Callable[[], bool] = lambda: True) -> None:
        """Connect a path, and wait for its links; a person is asked again until ports have lost their link."""
        link = self._topology.link(path)
        own = self._paths[link.path]
        assert own.switch is not None
        if own.switch == PERSON:
            _ask(_words(link, own))
            while link.a_dev in self._in_place and not has_moved():
                _ask(f"No port has lost its link: nothing was re-cabled. {_words(link, own)}")
        else:
            _run(own.switch, link.path)
        self._in_place[link.a_dev] = link.path
        await_links()

    def require_answer(self, path: str, backend: Backend) -> None:
        """Raise MachineError if B does not answer A over a path that was just connected."""
        link = self._topology.link(path)
        deadline = time.monotonic() + ANSWER_SECONDS
        while (why := unanswered(backend, link)) is not None:
            if time.monotonic() > deadline:
                what = (
                    "after it was re-cabled" if self._paths[link.path].switch == PERSON else "after its program ended"
                )
                raise MachineError(f"path {link.path}: {why} within {ANSWER_SECONDS:.0f} s {what}")
            time.sleep(0.5)


def unanswered(backend: Backend, link: Link) -> str | None:
    """Return what is wrong if B does not answer each of some probes of A; None if it does."""
    argv = [backend.instrument(), "probe", "icmp", link.b_ip4, "--dev", link.a_dev]
    argv += ["-c", str(PROBES), "-i", "20ms", "--timeout", "300ms", "--json"]
    try:
        received = json_value(backend.run("a", argv))["received"]
    except (SojournError, *UNREADABLE):
        return "B does not answer A"
    return None if received == PROBES else "not every probe is answered"


def _words(link: Link, own: PathSpec) -> str:
    """Return the request to a person."""
    what = "one cable, without a device" if link.path == DIRECT else link.path
    return f"Connect {own.a[0]} of host A and {own.b[0]} of host B by {what}; then press Enter: "


def _ask(words: str) -> None:
    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # earlier input is no answer
    print(words, end="", file=sys.stderr, flush=True)
    if not sys.stdin.readline():
        raise MachineError("a path is to be put in place by a person, and the terminal is closed")


def _run(words: str, path: str) -> None:
    """Run a program to its end; end its processes if it takes too long or this process is to end."""
    with tempfile.TemporaryFile() as said:
        try:
            program = subprocess.Popen(
                shlex.split(words), stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
                env=os.environ | {"SOJOURN_PATH": path}, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise MachineError(f"path {path}: {words} cannot be run: {error.strerror or error}") from error
        try:
            status = program.wait(PROGRAM_SECONDS)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise MachineError(f"path {path}: {words} did not end within {PROGRAM_SECONDS:.0f} s") from error
            raise
        if status:
            said.seek(0)
            last = said.read().decode(errors="replace").strip()[-LAST_WORDS:]
            raise MachineError(f"path {path}: {words} ended with status {status}" + (f": {last}" if last else ""))
