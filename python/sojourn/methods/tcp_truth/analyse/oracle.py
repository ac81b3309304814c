"""TCP_INFO as an oracle: the application's reading immediately before it sends, and the sample of the packet it sent.

Between the reading and the sample the state may change: received packets are processed, and the packet itself is
counted before it reaches the log. So each field has its rule: the same value, the same value rounded down to whole
units, or the value plus the packet's contribution. A moment is quiet if there is no other packet and no event of the
connection nearby, and the connection has not been idle for so long that the kernel restarts its window: there the rule
must hold exactly. Reads no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

GUARD_NS = 1_000_000
"""A packet received less than this time before the reading may still have been processed during it."""

RESTART_US = 10_000
"""A tick of the slowest kernel (100 Hz): the kernel may see a connection as idle this much before its RTO has
passed."""

NO_RTT_MIN = 4_294_967_295
"""TCP_INFO's value for an unknown minimum RTT."""

SAME, WHOLE, RATE, UNKNOWN, PACKET, DATA, SEGMENTS, TICKS = (
    *(
        "same",
        "whole units",
        "whole bytes",
        "same, or unknown",
        "and the packet",
        "and its data",
        "and its data segments",
    ),
    "within its ticks",
)
"""The rules by which a sample's value follows from the reading's."""

FIELDS: dict[str, str] = {
    **dict.fromkeys(
        (
            *("state", "ca_state", "retransmits", "probes_out", "backoff", "rto_us", "mss_bytes", "packets_out"),
            *("sacked_out", "lost_out", "retrans_out", "rcv_ssthresh_bytes", "snd_ssthresh", "snd_cwnd"),
            *("advmss_bytes", "reordering", "rcv_space_bytes", "total_retrans", "pacing_rate_bps", "acked_bytes"),
            *("received_bytes", "segs_in", "data_segs_in", "delivered", "delivered_ce", "retransmitted_bytes"),
            *("dsack_dups", "reord_seen", "rcv_ooopack", "snd_wnd_bytes", "rcv_wnd_bytes", "total_rto"),
            *("snd_wscale", "rcv_wscale", "received_ce"),
        ),
        SAME,
    ),
    **dict.fromkeys(("srtt_us", "mdev_us", "rcv_rtt_us"), WHOLE),
    "delivery_rate_bps": RATE,
    "rtt_min_us": UNKNOWN,
    "segs_out": PACKET,
    "sent_bytes": DATA,
    "data_segs_out": SEGMENTS,
    **dict.fromkeys(("busy_us", "receiver_limited_us", "buffer_limited_us"), TICKS),
}
OF_PACKET = ("payload_bytes", "segments")


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often the rule of a field held: over all pairs, and over the quiet ones."""

    field: str
    law: str
    pairs: int
    agree: int
    quiet: int
    quiet_agree: int

    def __add__(self, other: Agreement) -> Agreement:
        counts = (getattr(self, name) + getattr(other, name) for name in ("pairs", "agree", "quiet", "quiet_agree"))
        return Agreement(self.field, self.law, *counts)


def pairs(readings: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """Return each reading before a send with the first data packet sent after it; `quiet`: nothing else was near.

    `samples` are those of all points; both tables have socket_cookie.
    """
    asked = readings.filter((pl.col("why") == "send") & (pl.col("handed_bytes") > 0))
    out = samples.filter((pl.col("point") == "out") & (pl.col("payload_bytes") > 0))
    renamed = out.rename({name: f"logged_{name}" for name in out.columns if name != "socket_cookie"})
    found = asked.sort("read_after_ns").join_asof(
        renamed.sort("logged_time_ns").with_columns(pl.col("logged_time_ns").alias("at")),
        left_on="read_after_ns",
        right_on="at",
        by="socket_cookie",
        strategy="forward",
        check_sortedness=False,
    )
    found = found.filter(pl.col("logged_time_ns") <= pl.col("sent_ns"))
    return found.with_columns((_quiet(found, samples) & ~_restarted(found, out)).alias("quiet"))


def _restarted(found: pl.DataFrame, out: pl.DataFrame) -> pl.Series:
    """Return whether a connection had sent no data for about an RTO before a pair's packet.

    When new data is written, the kernel then reduces the window (RFC 5681, 4.1): after the reading, before the packet.
    """
    idle_us = pl.col("logged_time_ns").cast(pl.Float64).sub(pl.col("before")) / 1e3
    before = out.sort("time_ns").select(
        "socket_cookie", logged_time_ns="time_ns", before=pl.col("time_ns").shift(1).over("socket_cookie")
    )
    each = found.select("socket_cookie", "logged_time_ns", "rto_us").join(
        before.unique(["socket_cookie", "logged_time_ns"], keep="first", maintain_order=True),
        on=["socket_cookie", "logged_time_ns"], how="left", maintain_order="left",
    )  # fmt: skip
    return each.select((idle_us > pl.col("rto_us") - RESTART_US).fill_null(value=False).alias("is"))["is"]


def _quiet(found: pl.DataFrame, samples: pl.DataFrame) -> pl.Series:
    """Return whether a connection has only the pair's own sample from just before the reading up to that sample."""
    quiet = np.zeros(found.height, dtype=bool)
    cookies = found["socket_cookie"].to_numpy()
    for cookie in np.unique(cookies):
        times = np.sort(samples.filter(pl.col("socket_cookie") == int(cookie))["time_ns"].to_numpy())
        chosen = cookies == cookie
        since = found["read_before_ns"].to_numpy()[chosen] - GUARD_NS
        until = found["logged_time_ns"].to_numpy()[chosen]
        quiet[chosen] = np.searchsorted(times, until, "right") - np.searchsorted(times, since, "left") == 1
    return pl.Series(quiet)


def agreements(found: pl.DataFrame, tick_us: float) -> list[Agreement]:
    """Return the agreement of each field that both have; fields that this kernel does not report are omitted."""
    told: list[Agreement] = []
    for name, law in FIELDS.items():
        logged = f"logged_{name}"
        if logged not in found.columns or found[name].null_count() == found.height:
            continue
        if law in (SAME, PACKET, DATA, SEGMENTS, TICKS) and found[logged].null_count() == found.height:
            continue
        holds = found.select(follows(name, law, tick_us).fill_null(value=False).alias("holds"))["holds"]
        quiet = found["quiet"]
        told.append(Agreement(name, law, found.height, int(holds.sum()), int(quiet.sum()), int((holds & quiet).sum())))
    return told


def follows(name: str, law: str, tick_us: float) -> pl.Expr:
    """Return whether the sample's value follows from the reading by the field's rule."""
    read, logged = pl.col(name), pl.col(f"logged_{name}")
    if law == WHOLE:
        return logged.fill_null(0.0).floor().cast(pl.Int64) == read
    if law == RATE:  # # TCP_INFO has whole bytes per second
        return (logged.fill_null(0.0) - read).is_between(-0.5, 8.5)
    if law == UNKNOWN:
        return logged.fill_null(NO_RTT_MIN) == read
    if law == TICKS:  # # the time continues to run, and is reported in ticks
        elapsed = (pl.col("logged_time_ns") - pl.col("read_before_ns")) / 1e3
        return (logged - read).is_between(-0.5, elapsed + tick_us + 0.5)
    share = {PACKET: "segments", DATA: "payload_bytes", SEGMENTS: "segments"}.get(law)
    return logged == (read if share is None else read + pl.col(f"logged_{share}"))


def pooled(several: Sequence[Sequence[Agreement]]) -> list[Agreement]:
    """Return the agreements of several trials combined, by field."""
    by_field: dict[str, Agreement] = {}
    for trial in several:
        for one in trial:
            by_field[one.field] = by_field[one.field] + one if one.field in by_field else one
    return list(by_field.values())
