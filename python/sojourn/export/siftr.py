"""Write a log in the format of FreeBSD's SIFTR: an enable line, one line per packet, a disable line.

Formats: sys/netinet/siftr.c of FreeBSD, 1.3.0 (2023) with 27 fields, and 1.2.3 (2010, and 2013 for its last field) with
26, whose second one is a hash that SIFTR leaves 0 unless it is requested. Numbers are FreeBSD's: states of tcp_fsm.h,
flags of tcp_var.h, windows in bytes. Fields that Linux lacks are 0, and reported. Only samples of packets become lines.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import polars as pl

from sojourn.export.flow_hash import hash_of
from sojourn.export.output import write_text

if TYPE_CHECKING:
    from sojourn.export.log import TcpLog
    from sojourn.export.output import Told

INFINITE = 65535 << 14
"""TCP_MAXWIN << TCP_MAX_WINSHIFT: no slow-start threshold yet."""

LINUX_INFINITE = 0x7FFF_FFFF
U32 = 0xFFFF_FFFF
HZ = 1000
RTT_SCALE = 32
"""The units of RTTs and timeouts in 1.2.3; FreeBSD's own values, also written into the enable line."""

OPAQUE, OPAQUE_HASH = 63, 63 | 0x80
"""M_HASHTYPE_OPAQUE: the flow's id does not depend on its endpoints; M_HASHTYPE_OPAQUE_HASH: it is a hash of them."""

STATES = {1: 4, 2: 2, 3: 3, 4: 6, 5: 9, 6: 10, 7: 0, 8: 5, 9: 8, 10: 1, 11: 7, 12: 3}
"""From include/net/tcp_states.h of Linux to sys/netinet/tcp_fsm.h of FreeBSD."""

ESTABLISHED = 4
FIN_SENT = [6, 7, 8, 9, 10]

NODELAY, SENTFIN, SCALE, TIMESTAMPS, SACK = 0x4, 0x10, 0x60, 0x180, 0x200
NOPUSH, FASTRECOVERY, CONGRECOVERY, FASTOPEN = 0x1000, 0x0010_0000, 0x2000_0000, 0x8000_0000
ECN_PERMIT, ECN_SND_CWR, ECN_SND_ECE = 0x20, 0x40, 0x80
OLD_ECN = {ECN_PERMIT: 0x0400_0000, ECN_SND_CWR: 0x0800_0000, ECN_SND_ECE: 0x1000_0000}
"""Before t_flags2 existed, ECN was in t_flags."""

COLUMNS = (
    *("flow", "time_ns", "point", "state", "snd_cwnd", "snd_ssthresh", "mss_bytes", "snd_wnd_bytes", "rcv_wnd_bytes"),
    *("snd_wscale", "rcv_wscale", "srtt_us", "rto_us", "sndbuf_bytes", "snd_queued_bytes", "rcvbuf_bytes"),
    *("rcv_queued_bytes", "in_flight_bytes", "flags", "ca_state", "num_sacks"),
)

SKIPPED = {
    "malloc": ("full", "broken", "no-room"),
    "tcpcb": ("no-state", "control", "late"),
    "inpcb": ("no-socket", "unparsed"),
}
"""The dispositions that correspond to each of SIFTR's reasons."""


@dataclass(frozen=True, slots=True)
class Version:
    """The version of SIFTR's format."""

    name: str = "1.3.0"
    established_only: bool = True
    """Leave out packets before the connection was established, as SIFTR does; they count as skipped."""
    has_hashes: bool = False
    """For 1.3: the flow's id is a hash of its endpoints instead of its number in the log."""

    @property
    def is_old(self) -> bool:
        """Whether it is 1.2.x: a hash in the second field, and ticks."""
        return self.name.startswith("1.2")


def write_siftr(log: TcpLog, file: BinaryIO, told: Told, version: Version) -> None:
    """Write the log's lines in the order of time."""
    log.require(COLUMNS, "a line of SIFTR")
    flows = log.logged_flows
    file.write(enable_line(log, flows, version).encode())
    ends = _ends(log, has_hashes=version.has_hashes)
    logged = {"in": 0, "out": 0}
    left_out = {"in": 0, "out": 0}
    for samples in log.in_order(COLUMNS):
        packets = samples.filter(pl.col("point").is_in(["in", "out"]))
        lines = packets.with_columns(_state().alias("freebsd"))
        if version.established_only:
            early = lines.filter(pl.col("freebsd") < ESTABLISHED)
            _count(left_out, early)
            lines = lines.filter(pl.col("freebsd") >= ESTABLISHED)
        _count(logged, lines)
        rows = lines.join(ends, on="flow", how="left", maintain_order="left")
        fields = _fields(log, version)
        write_text(rows.select(fields), file, quote_style="never", float_precision=6)
    told.records = sum(logged.values())
    file.write(disable_line(log, flows, version, logged, left_out).encode())
    _tell(log, told, left_out)


def enable_line(log: TcpLog, flows: pl.DataFrame, version: Version) -> str:
    """Return the first line."""
    at_us = (log.start_ns - log.minus_utc_ns) // 1000
    ticks = f"hz={HZ}\ttcp_rtt_scale={RTT_SCALE}\t" if version.is_old else ""
    v6 = flows["local_address"].str.contains(":", literal=True).any()
    return (
        f"enable_time_secs={at_us // 1_000_000}\tenable_time_usecs={at_us % 1_000_000:06d}\t"
        f"siftrver={version.name}\t{ticks}sysname=Linux\tsysver={_number(str(log.header.get('kernel', '')))}\t"
        f"ipmode={6 if v6 else 4}\n"
    )


def disable_line(
    log: TcpLog, flows: pl.DataFrame, version: Version, logged: dict[str, int], left_out: dict[str, int]
) -> str:
    """Return the last line: packets seen and skipped, and the flows. For a whole log, seen = lines + skipped, where
    every packet was to be logged. Packets excluded by filters are not seen; of a span of time only its own lines count.
    """
    seen, skipped = dict(logged), {reason: {"in": 0, "out": 0} for reason in SKIPPED}
    for way in ("in", "out"):
        seen[way] += left_out[way]
        skipped["tcpcb"][way] += left_out[way]
    account = log.account
    if not log.chosen.in_time and account.height:
        for way in ("in", "out"):
            dispositions = dict(
                account.filter(pl.col("direction") == way).group_by("disposition").agg(pl.col("packets").sum()).rows()
            )
            seen[way] = dispositions.get("seen", 0) - dispositions.get("filtered", 0)
            for reason, ours in SKIPPED.items():
                skipped[reason][way] += sum(dispositions.get(disposition, 0) for disposition in ours)
    at_us = _disabled_us(log, flows)
    mutex = ["num_inbound_skipped_pkts_mtx=0", "num_outbound_skipped_pkts_mtx=0"] if version.is_old else []
    pairs = {
        reason: [f"num_{way}bound_skipped_pkts_{reason}={counts[way]}" for way in ("in", "out")]
        for reason, counts in skipped.items()
    }
    total = sum(sum(counts.values()) for counts in skipped.values())
    listed = "".join(f"{a};{b}-{c};{d}," for a, b, c, d in _endpoints(flows).unique(maintain_order=True).rows())
    return "\t".join(
        [
            f"disable_time_secs={at_us // 1_000_000}",
            f"disable_time_usecs={at_us % 1_000_000:06d}",
            f"num_inbound_tcp_pkts={seen['in']}",
            f"num_outbound_tcp_pkts={seen['out']}",
            f"total_tcp_pkts={seen['in'] + seen['out']}",
            *pairs["malloc"],
            *mutex,
            *pairs["tcpcb"],
            *pairs["inpcb"],
            f"total_skipped_tcp_pkts={total}",
            f"flow_list={listed}\n",
        ]
    )


def _whole(value: pl.Expr) -> pl.Expr:
    """Round down; null where a damaged log has a number out of range."""
    return value.floor().cast(pl.Int64, strict=False)


def _fields(log: TcpLog, version: Version) -> list[pl.Expr]:
    """Return the fields of a line, in order; the flow's four are one column, with commas."""
    seconds = ((pl.col("time_ns") - log.minus_utc_ns) // 1000).cast(pl.Float64) / 1e6
    ways = pl.when(pl.col("point") == "in").then(pl.lit("i")).otherwise(pl.lit("o"))
    flags2 = _flags2()
    windows = [_ssthresh(), _bytes("snd_cwnd"), pl.lit(INFINITE) if version.is_old else flags2]
    srtt, rto = _whole(pl.col("srtt_us")), pl.col("rto_us")
    if version.is_old:
        srtt, rto = _whole(pl.col("srtt_us") * HZ * RTT_SCALE / 1e6), rto * HZ // 1_000_000
    out_of_order = _bit(13).cast(pl.Int64)
    fields = [
        ways,
        *([pl.lit("0x00000000")] if version.is_old else []),
        seconds,
        pl.col("ends"),
        *windows,
        pl.col("snd_wnd_bytes"),
        pl.col("rcv_wnd_bytes"),
        pl.col("snd_wscale"),
        pl.col("rcv_wscale"),
        pl.col("freebsd"),
        pl.col("mss_bytes"),
        srtt,
        _bit(1).cast(pl.Int8),
        _flags(old=version.is_old),
        rto,
        pl.col("sndbuf_bytes"),
        pl.col("snd_queued_bytes"),
        pl.col("rcvbuf_bytes"),
        pl.col("rcv_queued_bytes"),
        pl.col("in_flight_bytes"),
        pl.max_horizontal(pl.col("num_sacks").cast(pl.Int64), out_of_order),
        *([] if version.is_old else [pl.col("id"), pl.lit(OPAQUE_HASH if version.has_hashes else OPAQUE)]),
    ]
    numbers = 3 if version.is_old else 2
    first, rest = fields[: numbers + 1], fields[numbers + 1 :]
    unsigned = [one.cast(pl.Int64).fill_null(0).clip(0, U32) for one in rest]
    return [one.alias(f"f{at}") for at, one in enumerate([*first, *unsigned])]


def _state() -> pl.Expr:
    """Return FreeBSD's number of the state; 0 (closed) where it is unknown."""
    return pl.col("state").replace_strict(STATES, default=0, return_dtype=pl.Int32)


def _ssthresh() -> pl.Expr:
    return (
        pl.when(pl.col("snd_ssthresh") == LINUX_INFINITE)
        .then(pl.lit(INFINITE, pl.Int64))
        .otherwise(pl.min_horizontal(_bytes("snd_ssthresh"), pl.lit(INFINITE, pl.Int64)))
    )


def _bytes(segments: str) -> pl.Expr:
    return pl.col(segments).cast(pl.Int64) * pl.col("mss_bytes")


def _bit(number: int) -> pl.Expr:
    """Return a flag (crates/tcplog/bpf/layout.h, enum flag); false where flags are unknown."""
    return ((pl.col("flags").fill_null(0) // (1 << number)) % 2) == 1


def _sum(parts: dict[int, pl.Expr]) -> pl.Expr:
    return pl.sum_horizontal(condition.cast(pl.Int64) * value for value, condition in parts.items())


def _flags(*, old: bool) -> pl.Expr:
    """Return t_flags: the bits that have an equivalent in Linux."""
    recovery = pl.col("ca_state").fill_null(0)
    parts = {
        NODELAY: _bit(8),
        SENTFIN: pl.col("freebsd").is_in(FIN_SENT),
        SCALE: _bit(2),
        TIMESTAMPS: _bit(0),
        SACK: _bit(1),
        NOPUSH: _bit(9),
        FASTRECOVERY: recovery == 3,
        CONGRECOVERY: recovery.is_in([2, 3]),
        FASTOPEN: _bit(17) | _bit(18),
    }
    if old:
        parts |= {OLD_ECN[flag]: condition for flag, condition in _ecn().items()}
        del parts[FASTOPEN]
    return _sum(parts)


def _flags2() -> pl.Expr:
    """Return t_flags2: only ECN has an equivalent in Linux."""
    return _sum(_ecn())


def _ecn() -> dict[int, pl.Expr]:
    return {ECN_PERMIT: _bit(4), ECN_SND_CWR: _bit(5), ECN_SND_ECE: _bit(6)}


def _endpoints(flows: pl.DataFrame) -> pl.DataFrame:
    """Return addresses in SIFTR's notation: for IPv6 all eight groups, without leading zeros."""
    columns = flows.select("local_address", "local_port", "remote_address", "remote_port")
    return columns.with_columns(
        pl.col(one).map_elements(_spelled, return_dtype=pl.String) for one in ("local_address", "remote_address")
    )


def _spelled(address: str) -> str:
    if ":" not in address:
        return address
    groups = ipaddress.IPv6Address(address).exploded.split(":")
    return ":".join(f"{int(group, 16):x}" for group in groups)


def _ends(log: TcpLog, *, has_hashes: bool) -> pl.DataFrame:
    """Return the four endpoint fields of each flow as one text, and its id."""
    flows = log.flows
    ids = [int(hash_of(log.path, row), 16) for row in flows.iter_rows(named=True)] if has_hashes else flows["flow"]
    return flows.select("flow").with_columns(
        _endpoints(flows).select(pl.concat_str(pl.all(), separator=",")).to_series().alias("ends"),
        pl.Series("id", ids, pl.Int64),
    )


def _disabled_us(log: TcpLog, flows: pl.DataFrame) -> int:
    """Return when logging ended; without a footer, the time of the last packet."""
    if "disable_time_secs" in log.footer:
        return int(log.footer["disable_time_secs"]) * 1_000_000 + int(log.footer.get("disable_time_usecs", 0))
    last = flows["last_ns"].max()
    return ((int(last) if isinstance(last, int) else log.start_ns) - log.minus_utc_ns) // 1000


def _number(kernel: str) -> int:
    """Return a kernel's version as in <linux/version.h>: 6.18.5 is 6 << 16 | 18 << 8 | 5."""
    digits = [int(part) for part in kernel.split("-", maxsplit=1)[0].split(".")[:3] if part.isdigit()]
    major, minor, patch = (*digits, 0, 0, 0)[:3]
    return major << 16 | minor << 8 | min(patch, 255)


def _count(into: dict[str, int], packets: pl.DataFrame) -> None:
    into["in"] += packets.filter(pl.col("point") == "in").height
    into["out"] += packets.filter(pl.col("point") == "out").height


def _tell(log: TcpLog, told: Told, left_out: dict[str, int]) -> None:
    early = sum(left_out.values())
    if early:
        told.sentences.append(
            f"{early} packets before their connection was established are left out, as SIFTR does, and counted as "
            "skipped (tcpcb); --all-states keeps them"
        )
    lacking = log.absent(COLUMNS)
    if lacking:
        told.sentences.append(f"the log's kernel has no {', '.join(lacking)}: a 0 stands for it")
    if log.chosen.in_time:
        told.sentences.append("the last line counts only what lies in the span of time")
