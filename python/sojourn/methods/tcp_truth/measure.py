"""Method "tcp-truth": connections with the log at the sender, and a capture at the sender's port as reference."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.conduct.bench import Bench, Measure
from sojourn.conduct.connections import Applications, open_applications, port_of, whole_connections
from sojourn.conduct.slice_records import RowWriter
from sojourn.instruments.tcp_capture import TcpCapture
from sojourn.methods.tcp_truth.ask import LAW, MESSAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.conduct.bench import Clock
    from sojourn.conduct.part import Session
    from sojourn.methods.tcp_truth.ask import TruthPlan
    from sojourn.plan.tcp import Connections
    from sojourn.plan.trial import Trial

BULK_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Witnessed(Bench):
    """Connections, each with a capture."""

    applications: Applications
    asked: TruthPlan
    captures: RowWriter

    def measure(self, trial: Trial[Connections]) -> None:
        """Measure one trial: set the path, start capture, log and connections, and end all of them."""
        own, session = self.applications, self.applications.session
        with ExitStack() as stack:
            stack.enter_context(session.emulators.during(trial.path, trial.block, trial.factors.pipe))
            capture = start_capture(session, trial)
            stack.callback(capture.kill)
            private = self.asked.private_every if trial.factors.kind == LAW else "off"
            own.begin_log(trial, {"ppl": 1, "sample": "both", "private": private}, keep=True)
            nodelay = {"is_nodelay": True} if trial.factors.kind == MESSAGES else {}
            came = own.connect(trial, traffic(self.asked, trial.factors.kind), **nodelay)
            logged = own.end_log()
            rows, dropped = capture.stop(trial.block)
            self.captures.write(rows)
        own.tell(trial, came, logged, captured=len(rows), capture_dropped=dropped)
        time.sleep(self.asked.pause_ns / 1e9)


def traffic(asked: TruthPlan, kind: str) -> dict[str, Any]:
    """Return what is sent in a trial, as the instrument's options."""
    if kind == MESSAGES:
        own = {"message_bytes": asked.message_bytes, "interval_ns": asked.message_interval_ns, "read_before_send": True}
        return own | {"duration_ns": asked.messages_duration_ns, "connections": 1}
    if kind == LAW:
        count = asked.law_connections
        return {"duration_ns": asked.law_duration_ns, "connections": count, "read_every_ns": asked.read_every_ns}
    return {"message_bytes": BULK_BYTES, "read_before_send": True, "bytes": asked.direct_bytes, "connections": 1}


def start_capture(session: Session, trial: Trial[Connections]) -> TcpCapture:
    """Start the capture at the sender's port."""
    dev, file = session.site.bed.topology.paths[trial.path].a_dev, session.part.folder.records / "capture.pcap"
    return TcpCapture(session.site.bed, dev, port_of(trial), file, session.cores.responder)


@contextmanager
def open_bench(session: Session, clock: Clock) -> Iterator[Bench]:
    """Yield the bench with the applications, the log and the table of captured packets."""
    del clock
    with (
        open_applications(session, session.plan.truth) as applications,
        RowWriter(session.part.folder, "tcp_captures", session.part.number) as captures,
    ):
        yield Witnessed(applications, session.plan.truth, captures)


MEASURE = Measure(open_bench, whole_connections)
