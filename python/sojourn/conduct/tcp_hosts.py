"""What trials over TCP set on our two hosts, how large packets may be, and the log of TCP's state at an end."""

from __future__ import annotations

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
"""What a sender of a trial of a known time holds beyond its window (tcp_notsent_lowat): with a whole buffer of it, a
slow path would work for seconds after the end."""


def require_root(session: Session) -> None:
    """Refuse to go on without the right to attach programs to a host's cgroup, or without one."""
    backend = session.site.bed.backend
    if backend.unprivileged:
        raise MachineError("programs in the kernel are attached to cgroups of the hosts: run this study as root")
    backend.cgroup("a")


def set_tcp(bed: Bed, send_buffer_bytes: int, receive_buffer_bytes: int, **more: str) -> dict[str, Any]:
    """Set what connections begin with, on our two hosts alone; gives what is in force."""
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
"""Large packets cross a veth whole. Its receive offload would only put a ring of 256 before them, which overflows."""

MOST_SEGMENTS = {"gso": 65_535, "mtu": 1}
"""Of a packet. Switching offloads off is not enough: TCP builds large packets all the same, and they are cut below."""


def size_packets(bed: Bed, link: Link, path: str, *, checksums: bool) -> None:
    """Let packets over a link be as large as the kernel makes them (gso), or of one segment each (mtu)."""
    for port in (link.a_port, link.b_port):
        tx = "on" if checksums else "off"
        bed.backend.run(port.host, ["ethtool", "-K", port.dev, "tx", tx, *OFFLOADS[path].split()])
        bed.backend.run(port.host, ["ip", "link", "set", "dev", port.dev, "gso_max_segs", str(MOST_SEGMENTS[path])])


class Connecting(Protocol):
    """What a plan asks of its connections."""

    send_buffer_bytes: int
    receive_buffer_bytes: int
    mss_bytes: int


def prepare_links(session: Session, asked: Connecting, **more: str) -> None:
    """Set what connections begin with, and packets of one segment each: one of several would be one in a queue."""
    bed = session.site.bed
    conditions = set_tcp(bed, asked.send_buffer_bytes, asked.receive_buffer_bytes, **more)
    for link in bed.topology.paths.values():
        size_packets(bed, link, "mtu", checksums=False)
    session.log("tcp-conditions", sysctls=conditions, mss_bytes=asked.mss_bytes, cores=session.cores._asdict())


CONVERTING_SECONDS = 300.0
"""Until all that a trial logged has become records."""


def start_log(session: Session, host: HostName | None, stack: ExitStack) -> LogInstrument:
    """The log of one end, or of both (None), outside of every host: its own time is not the host's."""
    bed = session.site.bed
    # The cgroups of a bed's hosts lie in one of the bed; what is attached there sees both.
    attach = bed.backend.cgroup(host) if host else str(Path(bed.backend.cgroup("a")).parent)
    log = LogInstrument(bed.backend.beside, log_argv(session.instrument, attach))
    stack.callback(log.kill)
    stack.callback(log.finish)
    said = {name: value for name, value in log.ready.items() if name != "event"}
    session.log("ready", part=session.part.number, host=host or "both", **said)
    return log


def begin_log(session: Session, log: LogInstrument, block: int, options: Mapping[str, Any], who: str, *, keep: bool
              ) -> None:  # fmt: skip
    """Let the log of `who` record the trial from now on."""
    # A process writes no file twice: each block has a name of its own.
    name, records = f"{who}{block}x{session.part.number}", session.records(None)
    log.begin(block, "on", records=records, who=name, options=options, keep=keep)


def end_log(log: LogInstrument) -> dict[str, Any]:
    """End the log of a trial; gives its account, and why it has a gap, if it has one."""
    account = log.end(CONVERTING_SECONDS)
    return {key: account.get(key) for key in ("account", "records", "logger_cpu_s", "interruption")}
