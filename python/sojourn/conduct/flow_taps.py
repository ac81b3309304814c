"""Taps at both hosts' ports of a path, for trials whose TCP flows are logged: they capture every frame.

Everything between the hosts is between the two taps, including an emulator or a box without a log. They are attached
before the first flow and detached after the last. No figure needs them: without taps a study goes on, and logs why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.bed.hosts import END_HOSTS
from sojourn.conduct.part import without_event
from sojourn.errors import MachineError
from sojourn.instruments.conversation import NoAnswerError
from sojourn.instruments.tap import TapInstrument, tap_argv

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from sojourn.bed.hosts import HostName
    from sojourn.conduct.part import Session

OPTIONS = {"format": "both", "headers": True}
"""Frames for the timeline, which searches them for segments, and one row each for `sojourn match`."""


class FlowTaps:
    """The capturing programs, one on each host."""

    def __init__(self, session: Session, stack: ExitStack) -> None:
        self._session = session
        self._running: dict[HostName, TapInstrument] = {}
        argv = tap_argv(session.instrument, session.cores.responder)
        for host in END_HOSTS:
            self._running[host] = one = TapInstrument(session.site.start(host), argv)
            stack.callback(one.kill)
            stack.callback(one.finish)

    def begin(self, path: str, block: int) -> None:
        """Attach the taps of a trial; after the return they see every frame."""
        for host, port in self._ports(path):
            tap = {"name": host, "interface": port, "options": OPTIONS}
            self._running[host].start(self._session.records(host) / self._folder(block, host), [tap], block)

    def end(self, path: str, block: int) -> list[dict[str, Any]]:
        """Detach the taps, which completes their files; return the counts of each for the log."""
        return [
            {"host": host, "port": port, "records": self._folder(block, host)}
            | without_event(self._running[host].stop())
            for host, port in self._ports(path)
        ]

    def _ports(self, path: str) -> Iterator[tuple[HostName, str]]:
        link = self._session.site.bed.topology.paths[path]
        yield from (("a", link.a_port.dev), ("b", link.b_port.dev))

    def _folder(self, block: int, host: HostName) -> str:
        # Named by part too: an interrupted trial is measured again in another part.
        return f"taps/{self._session.part.number:03}-{block}-{host}"


def open_flow_taps(session: Session, stack: ExitStack) -> FlowTaps | None:
    """Return the taps of a session; None, with the reason logged, if this machine does not support them."""
    try:
        return FlowTaps(session, stack)
    except NoAnswerError:
        raise
    except MachineError as error:
        session.log("untapped", part=session.part.number, why=str(error))
        session.screen.note(f"no taps beside the log of TCP's state: {error}")
        return None
