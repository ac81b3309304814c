"""A summary of each flow of a log: bytes, goodput, retransmissions, RTT, what limited the sender and for how long.

Bytes, retransmissions and times of the kernel's chronograph are its counters at the last sample less those at the
first, so they hold for the log's span, also with fewer than all packets logged. What limited the sender while it was
busy comes from the samples: the time to the next sample counts for what the earlier one says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.export.log import NS, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sojourn.export.log import TcpLog

COUNTERS = {
    "sent_bytes": "sent_bytes",
    "acked_bytes": "acked_bytes",
    "received_bytes": "received_bytes",
    "retransmitted_bytes": "retransmitted_bytes",
    "retransmitted_segments": "total_retrans",
    "timeouts": "total_rto",
    "busy_us": "busy_us",
    "receiver_limited_us": "receiver_limited_us",
    "buffer_limited_us": "buffer_limited_us",
}
"""What is a counter of the kernel's: its name here, and its column."""

LIMITS = ("application", "receiver", "send_buffer", "recovery", "cwnd", "path_or_pacing")
"""What limits the sender. The kernel says only `busy` where it is neither the application, the peer's window nor the
send buffer; then congestion control's state and the flag cwnd-limited say more."""

CWND_LIMITED = "cwnd-limited"
LEAST_STATE_OF_RECOVERY = 2
"""CWR; Recovery and Loss are above."""

SAMPLED = (
    *("flow", "time_ns", "point", "rtt_last_us", "rtt_min_us", "limited_by", "ca_state", "flags"),
    *("state", "in_flight_bytes", "data_segs_in", "seq", "payload_bytes", "tcp_flags", "rcv_nxt"),
)

SYN_STATES = (2, 3)
"""SYN_SENT and SYN_RECV."""

PEER_CLOSED_STATES = (6, 8, 9, 11)
"""TIME_WAIT, CLOSE_WAIT, LAST_ACK and CLOSING: the peer's FIN has been received."""

FIN = 1
"""The bit of the header."""


def summarised(log: TcpLog) -> pl.DataFrame:
    """A row for each flow that was logged, in the order of their numbers."""
    columns = [*SAMPLED, *COUNTERS.values()]
    parts = list(log.in_order(columns))
    samples = pl.concat(parts).select(columns) if parts else pl.DataFrame(schema={one: kind_of(one) for one in columns})
    limited = _with_limits(samples, log.header.get("tcp_flag_names") or [])
    rtt = pl.col("rtt_last_us").filter(pl.col("point").is_in(["in", "rtt"]) & (pl.col("rtt_last_us") > 0))
    is_fin_in = (pl.col("point") == "in") & (pl.col("tcp_flags").fill_null(0) & FIN > 0)
    behind_fin = (pl.col("seq") + pl.col("payload_bytes") + 1) % 2**32
    # In FIN_WAIT2 the last sample is of before the state changes: there the FIN's sequence number tells.
    is_fin_taken = (behind_fin.filter(is_fin_in).last() == pl.col("rcv_nxt").last()).fill_null(value=False)
    was_closed = pl.col("state").is_in(PEER_CLOSED_STATES)
    grouped = limited.group_by("flow", maintain_order=True).agg(
        pl.len().alias("samples"),
        ((pl.col("time_ns").max() - pl.col("time_ns").min()) / NS).alias("span_s"),
        *((pl.col(column).last() - pl.col(column).first()).alias(name) for name, column in COUNTERS.items()),
        (pl.col("data_segs_in").last() - pl.col("data_segs_in").first()).alias("data_segs_in"),
        pl.col("in_flight_bytes").first(),
        pl.col("state").first().is_in(SYN_STATES).alias("has_syn"),
        (~was_closed.first() & (was_closed.any() | is_fin_taken)).alias("has_fin"),
        rtt.min().alias("rtt_min_us"),
        rtt.quantile(0.5, "nearest").alias("rtt_p50_us"),
        rtt.quantile(0.95, "nearest").alias("rtt_p95_us"),
        rtt.max().alias("rtt_max_us"),
        pl.col("rtt_min_us").drop_nulls().last().alias("kernel_rtt_min_us"),
        *(
            (pl.col("lasts_ns").filter(pl.col("limit") == name).sum() / NS).alias(f"limited_by_{name}_s")
            for name in LIMITS
        ),
    )
    rate = pl.when(pl.col("span_s") > 0).then(8 / pl.col("span_s"))
    ends = log.flows.select("flow", "local_address", "local_port", "remote_address", "remote_port", "algorithm")
    return (
        ends.join(grouped.with_columns(*_user_data()), on="flow")
        .drop("data_segs_in", "in_flight_bytes", "has_syn", "has_fin")
        .with_columns(
            (pl.col("acked_bytes") * rate).alias("goodput_out_bps"),
            (pl.col("received_bytes") * rate).alias("goodput_in_bps"),
        )
        .sort("flow")
    )


def _user_data() -> tuple[pl.Expr, pl.Expr]:
    """What was acknowledged and received without SYN and FIN, each of which the kernel's counters take for a byte."""
    unacknowledged = pl.when("has_syn").then(0).otherwise("in_flight_bytes")
    sent = pl.col("sent_bytes") - pl.col("retransmitted_bytes") + unacknowledged
    acked = pl.col("acked_bytes") - (pl.col("has_syn") & (pl.col("acked_bytes") > 0)).cast(pl.Int64)
    had_fin = (pl.col("has_fin") & (pl.col("received_bytes") > 0)).cast(pl.Int64)
    received = pl.when(pl.col("data_segs_in") == 0).then(0).otherwise(pl.col("received_bytes") - had_fin)
    return pl.min_horizontal(acked, sent).alias("acked_bytes"), received.alias("received_bytes")


def _with_limits(samples: pl.DataFrame, flag_names: list[str]) -> pl.DataFrame:
    """What limits the sender from each sample on, and for how long: until the flow's next."""
    bit = 1 << flag_names.index(CWND_LIMITED) if CWND_LIMITED in flag_names else 0
    limit = (
        pl.when(pl.col("limited_by") == "idle")
        .then(pl.lit("application"))
        .when(pl.col("limited_by") == "receiver")
        .then(pl.lit("receiver"))
        .when(pl.col("limited_by") == "buffer")
        .then(pl.lit("send_buffer"))
        .when(pl.col("ca_state") >= LEAST_STATE_OF_RECOVERY)
        .then(pl.lit("recovery"))
        .when((pl.col("flags") & bit) > 0)
        .then(pl.lit("cwnd"))
        .when(pl.col("limited_by") == "busy")
        .then(pl.lit("path_or_pacing"))
    )
    lasts = pl.col("time_ns").shift(-1).over("flow") - pl.col("time_ns")
    return samples.with_columns(limit.alias("limit"), lasts.fill_null(0).alias("lasts_ns"))


def described(rows: pl.DataFrame, log: TcpLog) -> str:
    """The summary for a person: some lines a flow, then what was seen and not logged."""
    parts = [_described(row) for row in rows.iter_rows(named=True)]
    unlogged = log.flows.height - rows.height
    if not parts:
        parts.append("No flow was logged.")
    if unlogged:
        parts.append(
            f"{unlogged} more flow{'s' * (unlogged != 1)} seen, of which nothing was logged (filtered, or skipped)."
        )
    return "\n\n".join(parts)


def _described(row: Mapping[str, Any]) -> str:
    local, remote = (_end(row[f"{side}_address"], row[f"{side}_port"]) for side in ("local", "remote"))
    lines = [
        f"flow {row['flow']}: {local} → {remote}, {row['algorithm']}, {row['samples']} samples in {row['span_s']:.3f} s"
    ]
    for way, counter, rate in (
        ("sent", "acked_bytes", "goodput_out_bps"),
        ("received", "received_bytes", "goodput_in_bps"),
    ):
        if row[counter]:
            what = "acknowledged" if way == "sent" else "received"
            lines.append(f"  {what:<16}{row[counter]} bytes, goodput {_rate(row[rate])}")
    if row["sent_bytes"]:
        again = (
            f"{row['retransmitted_segments']} segments, {row['retransmitted_bytes']} bytes, {row['timeouts']} timeouts"
        )
        lines.append(f"  {'retransmitted':<16}{again}")
    if row["rtt_min_us"] is not None:
        names = ("min", "p50", "p95", "max")
        told = ", ".join(f"{name} {_ms(row[f'rtt_{name}_us'])}" for name in names)
        lines.append(f"  {'RTT':<16}{told}{_coarse(row)}")
    times = {name: row[f"limited_by_{name}_s"] for name in LIMITS}
    whole = sum(times.values())
    if row["sent_bytes"] and whole:
        shares = sorted(times.items(), key=lambda one: -one[1])
        told = ", ".join(
            f"{name.replace('_', ' ')} {lasts:.3f} s ({lasts / whole:.0%})" for name, lasts in shares if lasts
        )
        lines.append(f"  {'limited by':<16}{told}")
    return "\n".join(lines)


def _coarse(row: Mapping[str, Any]) -> str:
    """Where the kernel's own minimum is lower than any sample and a whole number of ms: it is of a TCP timestamp."""
    kernel = row["kernel_rtt_min_us"]
    if kernel is None or kernel >= row["rtt_min_us"] or kernel % 1000:
        return ""
    return f"; the kernel's minimum, {_ms(kernel)}, is of TCP timestamps, which count whole ms"


def _end(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _ms(us: float) -> str:
    return f"{us / 1000:.3f} ms"


def _rate(bps: float | None) -> str:
    if bps is None:
        return "unknown"
    for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bps >= size:
            return f"{bps / size:.3f} {unit}"
    return f"{bps:.0f} bit/s"
