"""The processes at the ends of streams, each started when first needed, all ended together.

`a` sends and `b` receives; `a2` receives the answers of `b`; `a3` and `b2` are the ends of a background load. On
simulated lines one process, `sim`, is both ends. Does not know the requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from sojourn.conduct.part import require_as_asked, without_event
from sojourn.instruments import StreamInstrument
from sojourn.instruments.conversation import place_options
from sojourn.instruments.stream import serve_argv

if TYPE_CHECKING:
    from types import TracebackType

    from sojourn.bed.hosts import HostName
    from sojourn.conduct.part import Session


class Role(NamedTuple):
    """The host of an end, and whether its departures must be on time."""

    host: HostName
    on_prober: bool


ROLES = {
    "a": Role("a", on_prober=True),
    "b": Role("b", on_prober=False),
    "a2": Role("a", on_prober=False),
    "a3": Role("a", on_prober=False),
    "b2": Role("b", on_prober=False),
    "sim": Role("a", on_prober=True),
}


class Ends:
    """The ends of a session, by name."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._running: dict[str, StreamInstrument] = {}

    def __getitem__(self, name: str) -> StreamInstrument:
        if name not in self._running:
            self._running[name] = self._start(name)
        return self._running[name]

    def finish(self, *, at_once: bool = False) -> None:
        """Have every end close its records, the senders first."""
        for name in sorted(self._running):
            self._running.pop(name).finish(at_once=at_once)

    def _start(self, name: str) -> StreamInstrument:
        session, role = self._session, ROLES[name]
        cores, host = session.cores, session.plan.host
        cpu = cores.prober if role.on_prober else cores.responder
        options = place_options(cpu, host.wait if role.on_prober else None, fifo=role.on_prober and session.fifo)
        folder, part = session.records(role.host), session.part.number
        argv = serve_argv(session.instrument, folder, part, name, options, simulated=session.site.simulated)
        end = StreamInstrument(session.site.start(role.host), argv)
        session.log("ready", part=part, name=name, cores=cores._asdict(), **without_event(end.ready))
        if role.on_prober:
            require_as_asked(session.plan, end.ready)
        return end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for end in self._running.values():
            end.kill()
