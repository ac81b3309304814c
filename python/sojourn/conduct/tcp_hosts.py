"""Settings of the two hosts for trials over TCP, the size of packets, and the log of TCP's state at an end."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sojourn.bed.hosts import END_HOSTS
from sojourn.errors import MachineError
from sojourn.instruments.tcplog import LogInstrument, log_argv

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack

    from sojourn.bed import Bed
    from sojourn.bed.hosts import HostName
    from sojourn.bed.model import Link
    from sojourn.conduct.part import Session

SYSCTLS = "/proc/sys/net/ipv4/"
NOT_SENT_BYTES = 131_072
"""The unsent data that a sender in a trial of fixed duration may queue (tcp_notsent_lowat).

With a full buffer of it, a slow path would go on sending for seconds after the end.
"""


def require_root(session: Session) -> None:
    """Refuse to go on without the right to attach programs to a host's cgroup, or without a cgroup."""
    backend = session.site.bed.backend
    if backend.unprivileged:
        raise MachineError("programs in the kernel are attached to cgroups of the hosts: run this study as root")
    backend.cgroup("a")


def set_tcp(bed: Bed, send_buffer_bytes: int, receive_buffer_bytes: int, **more: str) -> dict[str, Any]:
    """Set the TCP sysctls of both hosts; return the values in force."""
    wanted = {
        "tcp_no_metrics_save": "1",
        "tcp_moderate_rcvbuf": "0",
        "tcp_wmem": f"4096 {send_buffer_bytes} {send_buffer_bytes}",
        "tcp_rmem": f"4096 {receive_buffer_bytes} {receive_buffer_bytes}",
    } | more
    for host in END_HOSTS:
        for name, value in wanted.items():
            bed.backend.put(host, SYSCTLS + name, value)
    return {host: {name: bed.backend.get(host, SYSCTLS + name).split() for name in wanted} for host in END_HOSTS}


OFFLOADS = {"gso": "tso on gso on gro off", "mtu": "tso off gso off gro off"}
"""Large packets cross a veth whole. GRO would only add a ring of 256 entries before them, which overflows."""

MOST_SEGMENTS = {"gso": 65_535, "mtu": 1}
"""The most segments of a packet. Without offloads TCP still builds large packets, which are segmented below it."""

SIZE = """
most=$(ip -d link show dev "$1" | sed -n 's/.* tso_max_segs \\([0-9]*\\).*/\\1/p')
[ -n "$most" ] && [ "$most" -lt {most} ] || most={most}
exec ip link set dev "$1" gso_max_segs "$most"
"""
"""Sets it on a port, up to what its network card can take: the kernel refuses more."""


def size_packets(bed: Bed, link: Link, path: str, *, checksums: bool) -> None:
    """Allow packets over a link to be as large as the kernel makes them (gso), or of one segment each (mtu)."""
    for port in (link.a_port, link.b_port):
        tx = "on" if checksums else "off"
        bed.backend.run(port.host, ["ethtool", "-K", port.dev, "tx", tx, *OFFLOADS[path].split()])
        script = SIZE.format(most=MOST_SEGMENTS[path])
        bed.backend.run(port.host, ["sh", "-c", script, "sh", port.dev])


class Connecting(Protocol):
    """The options of a plan's connections."""

    send_buffer_bytes: int
    receive_buffer_bytes: int
    mss_bytes: int


def prepare_links(session: Session, asked: Connecting, **more: str) -> None:
    """Set the TCP sysctls, and packets of one segment each: a larger packet would count as one in a queue."""
    bed = session.site.bed
    conditions = set_tcp(bed, asked.send_buffer_bytes, asked.receive_buffer_bytes, **more)
    for link in bed.topology.paths.values():
        size_packets(bed, link, "mtu", checksums=False)
    session.log("tcp-conditions", sysctls=conditions, mss_bytes=asked.mss_bytes, cores=session.cores._asdict())


CONVERTING_SECONDS = 300.0
"""The time limit for converting the log of a trial to records."""


def start_log(session: Session, host: HostName | None, stack: ExitStack) -> LogInstrument:
    """Start the log of one end, or of both (None), beside the host: its processor time is not the host's."""
    bed = session.site.bed
    # The cgroups of a bed's hosts are in one of the bed; a program attached to that sees both.
    attach = bed.backend.cgroup(host) if host else str(Path(bed.backend.cgroup("a")).parent)
    argv = log_argv(session.instrument, attach)
    log = LogInstrument(partial(bed.backend.beside, host=host), argv)
    stack.callback(log.kill)
    stack.callback(log.finish)
    said = {name: value for name, value in log.ready.items() if name != "event"}
    session.log("ready", part=session.part.number, host=host or "both", **said)
    return log


def begin_log(session: Session, log: LogInstrument, block: int, options: Mapping[str, Any], who: str, *, keep: bool
              ) -> None:  # fmt: skip
    """Start the log's recording of the trial, in the name of `who`: the end that it logs, or a word for both."""
    # A process writes no file twice: each block has a name of its own.
    name, records = f"{who}{block}x{session.part.number}", session.records(who if who in END_HOSTS else None)
    log.begin(block, "on", records=records, who=name, options=options, keep=keep)


def end_log(log: LogInstrument) -> dict[str, Any]:
    """End the log of a trial; return its packet accounting, and the reason for a gap, if it has one."""
    account = log.end(CONVERTING_SECONDS)
    return {key: account.get(key) for key in ("account", "records", "logger_cpu_s", "interruption")}
