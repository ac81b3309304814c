"""Judge single samples for a summary: what limits the sender until the next one, and the kind of a retransmission."""

from __future__ import annotations

import polars as pl

LIMITS = ("application", "receiver", "send_buffer", "recovery", "cwnd", "path_or_pacing")
"""What limits the sender. The kernel reports only `busy` if the limit is none of application, receiver's window and
send buffer; then the state of congestion control, the windows and the queued data decide."""

KINDS = ("fast", "timeout", "tail_loss_probe", "other")
"""Kinds of retransmission: in Recovery, in Loss, that starts a probe, any other."""

CWND_LIMITED, TAIL_LOSS_PROBE = "cwnd-limited", "tlp"
CWR, RECOVERY, LOSS = 2, 3, 4
"""ca_state."""

SYN, FIN = 2, 1
"""Bits of the TCP header."""


def judged(samples: pl.DataFrame, flag_names: list[str]) -> pl.DataFrame:
    """Add `limit`, `lasts_ns` (until the flow's next sample) and `again`, the kind of a retransmission or null.

    A flow's last sample has no duration and is no retransmission: the kernel counts a packet only after its sample.
    """
    next_ns = pl.col("time_ns").shift(-1).over("flow")
    is_probe = (pl.col("flags").shift(-1).over("flow") & _bit(flag_names, TAIL_LOSS_PROBE)) > 0
    return samples.with_columns(
        _limit(_bit(flag_names, CWND_LIMITED)).alias("limit"),
        (next_ns - pl.col("time_ns")).fill_null(0).alias("lasts_ns"),
        pl.when(next_ns.is_not_null() & _is_again()).then(_kind(is_probe)).alias("again"),
    )


def _bit(flag_names: list[str], name: str) -> int:
    return 1 << flag_names.index(name) if name in flag_names else 0


def _limit(cwnd_bit: int) -> pl.Expr:
    # The packet of an `out` sample is not yet in flight, new or not: from then until the next sample it is.
    leaving_segments = pl.when((pl.col("point") == "out") & (pl.col("payload_bytes") > 0)).then("segments").otherwise(0)
    in_flight = pl.col("packets_out") - pl.col("sacked_out") - pl.col("lost_out") + pl.col("retrans_out")
    in_flight += leaving_segments.fill_null(0)
    is_cwnd_full = ((pl.col("flags") & cwnd_bit) > 0) | (in_flight >= pl.col("snd_cwnd"))
    # Its new data are not waiting either.
    leaving = pl.when((pl.col("point") == "out") & ~_is_again()).then(pl.col("payload_bytes")).otherwise(0).fill_null(0)
    under_way = pl.col("in_flight_bytes") + leaving
    waiting = pl.col("snd_queued_bytes") - under_way
    has_no_window = (under_way + pl.col("mss_bytes") > pl.col("snd_wnd_bytes")) & (waiting > 0)
    # Everything sent is acknowledged by this packet: no window limits the sender; the application has not written.
    is_all_acked = (pl.col("point") == "in") & (pl.col("ack") == pl.col("snd_nxt")) & (waiting <= 0)
    return (
        pl.when((pl.col("limited_by") == "idle") | ((pl.col("limited_by") == "busy") & is_all_acked))
        .then(pl.lit("application"))
        .when(pl.col("limited_by") == "receiver")
        .then(pl.lit("receiver"))
        .when(pl.col("limited_by") == "buffer")
        .then(pl.lit("send_buffer"))
        .when(pl.col("ca_state") >= CWR)
        .then(pl.lit("recovery"))
        .when((pl.col("limited_by") == "busy") & (waiting <= 0))
        .then(pl.lit("application"))
        .when(is_cwnd_full)
        .then(pl.lit("cwnd"))
        .when((pl.col("limited_by") == "busy") & has_no_window)
        .then(pl.lit("receiver"))
        .when(pl.col("limited_by") == "busy")
        .then(pl.lit("path_or_pacing"))
    )


def _is_again() -> pl.Expr:
    """Return whether a sample's packet has sequence numbers that were sent before. A first SYN is in snd_nxt
    already."""
    flags = pl.col("tcp_flags").fill_null(0)
    behind = (pl.col("snd_nxt") - pl.col("seq") + 2**32) % 2**32
    is_before = (behind > 0) & (behind < 2**31)
    has_data = (pl.col("payload_bytes") > 0) | ((flags & FIN) > 0)
    is_syn = ((flags & SYN) > 0) & (pl.col("ca_state") == LOSS)
    is_data = has_data & ((flags & SYN) == 0) & is_before
    return ((pl.col("point") == "out") & (is_syn | is_data)).fill_null(value=False)


def _kind(is_probe: pl.Expr) -> pl.Expr:
    return (
        pl.when(pl.col("ca_state") == RECOVERY)
        .then(pl.lit("fast"))
        .when(pl.col("ca_state") == LOSS)
        .then(pl.lit("timeout"))
        .when(is_probe)
        .then(pl.lit("tail_loss_probe"))
        .otherwise(pl.lit("other"))
    )
