"""What the senders' TCP says of its flows: timeouts, needless retransmissions, marks, and what limited it for how long.

Of counters, differences between a flow's first and last reading, summed over flows; a counter that this kernel does not
have makes no figure. The kernel's clocks tell the application (no data to send), the receiver's window and the send
buffer from the rest of the time; of the rest, readings tell the congestion window from pacing. It judges nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMITS = ("congestion window", "receiver", "send buffer", "application", "pacing or path")
"""What limits a sender, as statistics have it behind the direction."""

CLOCKS = {"receiver": "receiver_limited_us", "send buffer": "buffer_limited_us"}
"""The kernel's own clocks beside that of the time with data to send."""

CWR = 2
"""The lowest ca_state in which a window is being reduced: CWR, Recovery, Loss."""

COUNTERS = {"timeouts": "total_rto"}
SHARES = {"spurious": ("dsack_dups", "data_segs_out"), "ecn_echoed": ("delivered_ce", "delivered")}
"""By quantity: what is counted, and of what it is a share."""


def tcp_says(flows: Sequence[pl.DataFrame], way: str) -> dict[tuple[str, str], float]:
    """Every figure of a direction; `flows` are the readings of one flow each in the working conditions, in order."""
    found: dict[tuple[str, str], float] = {}
    for quantity, column in COUNTERS.items():
        if (count := grown(flows, column)) is not None:
            found[quantity, way] = count
    for quantity, (part, whole) in SHARES.items():
        count, of = grown(flows, part), grown(flows, whole)
        if count is not None and of:
            found[quantity, way] = count / of
    if (count := ssthresh_changes(flows)) is not None:
        found["ssthresh_changes", way] = count
    return found | {("limited", f"{way} {name}"): share for name, share in limited(flows).items()}


def losses_inferred(flows: Sequence[pl.DataFrame], way: str) -> dict[tuple[str, str], float]:
    """Segments that TCP retransmitted, and those that were there already; `flows` are the readings of whole flows."""
    found = {}
    for said, column in (("retransmitted", "total_retrans"), ("spurious", "dsack_dups")):
        last = [flow[column][-1] for flow in flows]
        if last and None not in last:
            found["losses", f"{way} {said}"] = float(sum(last))
    return found


def grown(flows: Sequence[pl.DataFrame], column: str) -> float | None:
    """By how much a counter grew, over all flows; None where a reading has it not."""
    ends = [(flow[column][0], flow[column][-1]) for flow in flows]
    if not ends or any(None in pair for pair in ends):
        return None
    return float(sum(last - first for first, last in ends))


def ssthresh_changes(flows: Sequence[pl.DataFrame]) -> float | None:
    """Between how many readings the slow-start threshold changed.

    Reductions of the window do that, the end of slow start (HyStart), and reductions that are undone.
    """
    if not flows or any(flow["snd_ssthresh"].null_count() for flow in flows):
        return None
    return float(sum(int((flow["snd_ssthresh"].diff() != 0).sum()) for flow in flows))


def limited(flows: Sequence[pl.DataFrame]) -> dict[str, float]:
    """Of the time of all flows, the shares in which each limit held; nothing where the kernel has no such clocks."""
    spent, busy = elapsed_us(flows), grown(flows, "busy_us")
    told = {name: grown(flows, column) for name, column in CLOCKS.items()}
    if spent <= 0 or busy is None or None in told.values():
        return {}
    # The kernel's clocks go in jiffies: over a short time they may exceed it.
    shares = {name: min(1.0, (microseconds or 0.0) / spent) for name, microseconds in told.items()}
    shares["application"] = max(0.0, 1.0 - busy / spent)
    rest = max(0.0, 1.0 - sum(shares.values()))
    read = of_readings(pl.concat(flows))
    if read is None:
        return {}
    # Readings are taken all the while: those with nothing to send are in the application's share already.
    full, dry = read
    window = min(rest, full)
    empty = min(rest - window, max(0.0, dry - shares["application"]))
    shares["application"] += empty
    return shares | {"congestion window": window, "pacing or path": rest - window - empty}


def elapsed_us(flows: Sequence[pl.DataFrame]) -> float:
    """The time between the first and the last reading, of all flows together."""
    return float(sum((flow["read_after_ns"][-1] - flow["read_after_ns"][0]) / 1e3 for flow in flows))


def of_readings(readings: pl.DataFrame) -> tuple[float, float] | None:
    """Of all readings the shares with a full congestion window, and with room in it and nothing to send."""
    of_flight = ("packets_out", "sacked_out", "lost_out", "retrans_out", "snd_cwnd", "ca_state", "not_sent_bytes")
    known = readings.drop_nulls(of_flight)
    if known.is_empty():
        return None
    flight = pl.col("packets_out") - pl.col("sacked_out") - pl.col("lost_out") + pl.col("retrans_out")
    is_full = (flight >= pl.col("snd_cwnd")) | (pl.col("ca_state") >= CWR)
    full, dry = known.select(is_full.mean(), (~is_full & (pl.col("not_sent_bytes") <= 0)).mean().alias("dry")).row(0)
    return full, dry
