"""Method "short-flows": connections from host A to host B, one after the other, each timed from first byte to last."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.bed.hosts import END_HOSTS
from sojourn.conduct.bench import Bench, Measure
from sojourn.conduct.connections import port_of, start_end, whole_connections
from sojourn.conduct.facts import watch_neighbours
from sojourn.conduct.tcp_hosts import prepare_links
from sojourn.errors import DoubtfulError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.bed.hosts import HostName
    from sojourn.conduct.bench import Clock
    from sojourn.conduct.part import Session
    from sojourn.instruments.tcp import TcpInstrument
    from sojourn.methods.short_flows.ask import ShortPlan
    from sojourn.plan.trial import Trial

PATIENCE_SECONDS = 60.0
TOLD = ("local", "congestion", "mss_bytes", "started_ns", "ended_ns")


@dataclass(frozen=True, slots=True)
class Transferring(Bench):
    """The applications of both hosts."""

    session: Session
    asked: ShortPlan
    ends: dict[HostName, TcpInstrument]

    def measure(self, trial: Trial[Any]) -> None:
        """Measure one trial."""
        session, factors = self.session, trial.factors
        with session.emulators.during(trial.path, trial.block, factors.pipe):
            transfers = [self._transfer(trial) for _ in range(self.asked.transfers)]
        session.log(
            "tcp-trial",
            block=trial.block,
            kind=factors.kind,
            cell=trial.cell,
            congestion=factors.congestion,
            pipe=factors.pipe,
            path=trial.device,
            round=trial.round,
            setting=factors.setting,
            connections=transfers,
        )
        time.sleep(self.asked.pause_ns / 1e9)

    def _transfer(self, trial: Trial[Any]) -> dict[str, Any]:
        """Run one transfer; return its size, when its first byte was written at A, and when its last one was
        read at B."""
        near, far, factors = self.ends["a"], self.ends["b"], trial.factors
        link, settings = self.session.site.bed.topology.paths[trial.path], {"mss_bytes": self.asked.mss_bytes}
        far.listen(trial.block, port_of(trial), 1, settings)
        request = {"block": trial.block, "to": f"{link.b_ip4}:{port_of(trial)}", "bytes": factors.size_bytes}
        own = {"settings": settings | {"congestion": factors.congestion}, "connections": 1}
        [sent] = near.send(request | own, PATIENCE_SECONDS, self.session.screen.tick)["connections"]
        [got] = far.finish_listening(trial.block)["connections"]
        if broken := sent["problem"] or got["problem"]:
            raise DoubtfulError(f"a transfer of trial {trial.block} broke: {broken}")
        told = {"size_bytes": factors.size_bytes, "received_bytes": got["moved_bytes"]}
        times = {"written_ns": sent["first_moved_ns"], "read_ns": got["last_moved_ns"]}
        return {name: sent[name] for name in TOLD} | told | times


@contextmanager
def open_transfers(session: Session, clock: Clock) -> Iterator[Bench]:
    """Open the applications of both hosts; packets have one segment each, as a queue counts them."""
    del clock
    asked = session.plan.short
    prepare_links(session, asked)
    with ExitStack() as stack, watch_neighbours(session):
        yield Transferring(session, asked, {host: start_end(session, host, stack) for host in END_HOSTS})


MEASURE = Measure(open_transfers, whole_connections)
