"""Trials that are TCP connections from host A to host B, whose application at A reads TCP_INFO while sending.

The log of TCP's state is attached to A only. Does not judge, and does not know methods.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.bed.hosts import END_HOSTS
from sojourn.conduct.facts import watch_neighbours
from sojourn.conduct.tcp_hosts import begin_log, end_log, require_root, set_tcp, size_packets, start_log
from sojourn.errors import DoubtfulError
from sojourn.instruments.tcp import TcpInstrument, tcp_argv
from sojourn.plan.tcp import TRIAL_NS
from sojourn.plan.types import DIRECT
from sojourn.records import read_table
from sojourn.records.log import read_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.bed.hosts import HostName
    from sojourn.conduct.part import Session
    from sojourn.instruments.tcplog import LogInstrument
    from sojourn.plan import Plan
    from sojourn.plan.tcp import Connections
    from sojourn.plan.trial import Trial
    from sojourn.records import RunFolder

FIRST_PORT = 20_000
PORTS = 10_000


@dataclass(frozen=True, slots=True)
class Applications:
    """The applications of both hosts, and the log at A."""

    session: Session
    log: LogInstrument
    ends: dict[HostName, TcpInstrument]
    mss_bytes: int

    def connect(self, trial: Trial[Connections], traffic: dict[str, Any], **own: Any) -> dict[str, Any]:
        """Send `traffic` with the sender's `own` settings, until everything is acknowledged."""
        near, far, port = self.ends["a"], self.ends["b"], port_of(trial)
        link = self.session.site.bed.topology.paths[trial.path]
        settings = {"congestion": trial.factors.congestion, "mss_bytes": self.mss_bytes}
        far.listen(trial.block, port, traffic["connections"], {"mss_bytes": self.mss_bytes})
        request = {"block": trial.block, "to": f"{link.b_ip4}:{port}", "settings": settings | own}
        sent = near.send(request | traffic, (trial.duration_ns + TRIAL_NS) / 1e9, self.session.screen.tick)
        received = far.finish_listening(trial.block)
        broken = [one["problem"] for one in (*sent["connections"], *received["connections"]) if one["problem"]]
        if broken:
            raise DoubtfulError(f"a connection of trial {trial.block} broke: {broken[0]}")
        return sent

    def begin_log(self, trial: Trial[Connections], options: dict[str, Any], *, keep: bool) -> None:
        """Start the log's recording."""
        begin_log(self.session, self.log, trial.block, options, "a", keep=keep)

    def end_log(self) -> dict[str, Any]:
        """End the log of a trial; return its packet accounting, and the reason for a gap, if it has one."""
        return end_log(self.log)

    def tell(self, trial: Trial[Connections], came: dict[str, Any], logged: dict[str, Any] | None, **more: Any) -> None:
        """Log the trial for the analysis of the records."""
        factors = trial.factors
        self.session.log(
            "tcp-trial",
            block=trial.block,
            kind=factors.kind,
            cell=trial.cell,
            congestion=factors.congestion,
            pipe=factors.pipe,
            path=trial.path,
            round=trial.round,
            setting=factors.setting,
            connections=came["connections"],
            logged=logged,
            **more,
        )


def port_of(trial: Trial[Connections]) -> int:
    """The port of a trial's connections."""
    return FIRST_PORT + trial.block % PORTS


@contextmanager
def open_applications(session: Session, asked: Any) -> Iterator[Applications]:
    """Start the applications and the log, with the socket options of the method's section."""
    require_root(session)
    bed = session.site.bed
    with watch_neighbours(session), ExitStack() as stack:
        conditions = set_tcp(bed, asked.send_buffer_bytes, asked.receive_buffer_bytes)
        for name, link in bed.topology.paths.items():
            # On an emulated path large packets would be segmented between log and capture, and lost segment by segment.
            size_packets(bed, link, "gso" if name == DIRECT else "mtu", checksums=name == DIRECT)
        log = start_log(session, "a", stack)
        ends = {host: start_end(session, host, stack) for host in END_HOSTS}
        session.log("tcp-conditions", sysctls=conditions, mss_bytes=asked.mss_bytes, cores=session.cores._asdict())
        yield Applications(session, log, ends, asked.mss_bytes)


def start_end(session: Session, host: HostName, stack: ExitStack, name: str = "", *options: str) -> TcpInstrument:
    """Start the application of a host; its name in records is that of the host by default."""
    cpu = session.cores.prober if host == "a" else session.cores.responder
    records = session.records(host)
    argv = tcp_argv(session.instrument, records, session.part.number, name or host, cpu, *options)
    end = TcpInstrument(session.site.start(host), argv)
    stack.callback(end.kill)
    stack.callback(end.finish)
    return end


def start_anywhere(session: Session, host: HostName, stack: ExitStack, name: str) -> TcpInstrument:
    """Start an application of a host without a fixed core, so that a prober does not have to wait for it."""
    argv = tcp_argv(session.instrument, session.records(host), session.part.number, name, None)
    end = TcpInstrument(session.site.start(host), argv)
    stack.callback(end.kill)
    stack.callback(end.finish)
    return end


def connections_read(folder: RunFolder) -> Counter[tuple[int, str, str]]:
    """Return the number of connections with readings, by block, host, and role at that host."""
    read = read_table(folder.records, "tcp_readings", columns=["block", "connection", "role"]).frame
    each = read.select("block", "role", "who", "connection").unique().iter_rows()
    return Counter((block, who[:1], role) for block, role, who, _ in each)


def whole_connections(folder: RunFolder, plan: Plan) -> set[int]:
    """Return the trials that ended and have readings of both ends."""
    del plan
    read = read_table(folder.records, "tcp_readings", columns=["block", "role"]).frame
    sent, received = (set(read.filter(role=role)["block"].to_list()) for role in ("send", "receive"))
    told = (entry for entry in read_log(folder.log, {"tcp-trial"}) if entry.get("event") == "tcp-trial")
    return {entry["block"] for entry in told} & sent & received
