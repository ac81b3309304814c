"""Taps at both hosts' ports of a path, for trials whose flows of TCP are logged: what passes them, frame by frame.

Whatever stands between the hosts is between the two taps, an emulator or a box without a log. They are attached before
the first flow and detached behind the last one. No figure needs them: a study goes on without, and says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.bed.hosts import END_HOSTS
from sojourn.conduct.part import without_event
from sojourn.errors import MachineError
from sojourn.instruments.tap import TapInstrument, tap_argv

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from sojourn.bed.hosts import HostName
    from sojourn.conduct.part import Session

OPTIONS = {"format": "both", "headers": True}
"""Frames for the timeline, which looks for segments in them, and a row each for `sojourn match`."""


class FlowTaps:
    """The programs that capture, one on each host."""

    def __init__(self, session: Session, stack: ExitStack) -> None:
        self._session = session
        self._running: dict[HostName, TapInstrument] = {}
        argv = tap_argv(session.instrument, session.cores.responder)
        for host in END_HOSTS:
            self._running[host] = one = TapInstrument(session.site.start(host), argv)
            stack.callback(one.kill)
            stack.callback(one.finish)

    def begin(self, path: str, block: int) -> None:
        """Attach the taps of a trial: when this is back, they see every frame."""
        for host, port in self._ports(path):
            tap = {"name": host, "interface": port, "options": OPTIONS}
            self._running[host].start(self._session.records(host) / self._folder(block, host), [tap], block)

    def end(self, path: str, block: int) -> list[dict[str, Any]]:
        """Detach them: their files are whole. What each saw, for the log."""
        return [
            {"host": host, "port": port, "records": self._folder(block, host)}
            | without_event(self._running[host].stop())
            for host, port in self._ports(path)
        ]

    def _ports(self, path: str) -> Iterator[tuple[HostName, str]]:
        link = self._session.site.bed.topology.paths[path]
        yield from (("a", link.a_port.dev), ("b", link.b_port.dev))

    def _folder(self, block: int, host: HostName) -> str:
        # By part: a trial that was cut short is measured again in another one.
        return f"taps/{self._session.part.number:03}-{block}-{host}"


def open_flow_taps(session: Session, stack: ExitStack) -> FlowTaps | None:
    """The taps of a session; None where this machine has none: the log says why."""
    try:
        return FlowTaps(session, stack)
    except MachineError as error:
        session.log("untapped", part=session.part.number, why=str(error))
        session.screen.note(f"no taps beside the log of TCP's state: {error}")
        return None
