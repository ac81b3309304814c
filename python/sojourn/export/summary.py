"""A summary of each flow of a log: bytes, goodput, retransmissions, RTT, what limited the sender and for how long.

Bytes, retransmissions and times of the kernel's chronograph are its counters at the last sample minus those at the
first; they cover the log's span even if not all packets were logged. What limited the busy sender comes from the
samples: each sample's limit lasts until the next one. The log is read in chunks; memory holds one row per flow, its
last sample, and its RTTs counted in classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.export.log import NEVER_NS, NS, kind_of
from sojourn.export.names import STATES
from sojourn.export.summary_samples import KINDS, LIMITS, judged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sojourn.export.log import TcpLog

__all__ = ["COUNTERS", "LIMITS", "SYN_STATES", "summarised"]

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
    "segments_in": "segs_in",
    "segments_out": "segs_out",
    "spurious_segments": "dsack_dups",
    "delivered_ce_segments": "delivered_ce",
    "received_ce_segments": "received_ce",
    "data_segs_in": "data_segs_in",
}
"""The kernel's counters: the name here, and the column."""

BITS = dict.fromkeys(
    ("total_retrans", "segs_in", "segs_out", "dsack_dups", "delivered_ce", "received_ce", "data_segs_in"), 32
) | {"total_rto": 16}
"""The width in bits of counters that wrap within days. The others have 64."""

WRAPPING = tuple(name for name, column in COUNTERS.items() if column in BITS)

SAMPLED = (
    *("flow", "time_ns", "point", "rtt_last_us", "rtt_min_us", "limited_by", "ca_state", "flags", "state"),
    *("in_flight_bytes", "seq", "ack", "payload_bytes", "tcp_flags", "rcv_nxt", "snd_nxt", "segments", "snd_cwnd"),
    *("packets_out", "sacked_out", "lost_out", "retrans_out", "snd_wnd_bytes", "mss_bytes", "snd_queued_bytes"),
)

SYN_STATES = (2, 3)
"""SYN_SENT and SYN_RECV."""

PEER_CLOSED_STATES = (6, 8, 9, 11)
"""TIME_WAIT, CLOSE_WAIT, LAST_ACK and CLOSING: the peer's FIN has been received."""

FIN = 1
"""The FIN bit of the header."""

EXACT_BITS = 10
"""RTTs are counted in classes of their ten highest bits: a quantile is wrong by 0.1 % at most."""

HELD_PARTS = 16
"""The number of chunks whose sums are kept before they are merged."""

SHOWN_QUANTILES = {"rtt_p50_us": 0.5, "rtt_p95_us": 0.95}


def summarised(log: TcpLog) -> pl.DataFrame:
    """Return one row per logged flow, ordered by number; RequestError where a needed field was not logged."""
    log.require([*SAMPLED, *COUNTERS.values()], "a summary")
    flows, classes = _read(log)
    user_data = flows.with_columns(_is_fin_taken().alias("has_fin")).with_columns(
        ((pl.col("last_ns") - pl.col("first_ns")) / NS).alias("span_s"),
        *((pl.col(f"last_{name}") - pl.col(f"first_{name}")).alias(name) for name in COUNTERS if name not in WRAPPING),
        *((pl.col(f"limited_by_{name}_ns") / NS).alias(f"limited_by_{name}_s") for name in LIMITS),
        pl.col("first_state").is_in(SYN_STATES).alias("has_syn"),
        pl.col("last_state").replace_strict(STATES, default=None, return_dtype=pl.String).alias("state_name"),
    )
    rows = user_data.with_columns(*_user_data(), *_kinds()).join(_quantiles(classes), on="flow", how="left")
    rows = rows.with_columns(pl.col(name).clip("rtt_min_us", "rtt_max_us") for name in SHOWN_QUANTILES)
    rate = pl.when(pl.col("span_s") > 0).then(8 / pl.col("span_s"))
    rows = rows.with_columns(
        (pl.col("acked_bytes") * rate).alias("goodput_out_bps"),
        (pl.col("received_bytes") * rate).alias("goodput_in_bps"),
    )
    ends = log.flows.select("flow", "local_address", "local_port", "remote_address", "remote_port", "algorithm")
    joined = ends.join(rows, on="flow").join(_accounted(log), on="flow", how="left")
    return _with_gaps(joined, log).select(_columns()).sort("flow")


def _columns() -> list[str]:
    """Return the columns of a summary, in order."""
    return [
        *("flow", "local_address", "local_port", "remote_address", "remote_port", "algorithm", "state_name"),
        *("samples", "first_ns", "span_s"),
        *(name for name in COUNTERS if name != "data_segs_in"),
        *(f"retransmitted_{kind}_segments" for kind in KINDS),
        *("rtt_min_us", "rtt_p50_us", "rtt_p95_us", "rtt_max_us", "kernel_rtt_min_us"),
        *(f"limited_by_{name}_s" for name in LIMITS),
        *("goodput_out_bps", "goodput_in_bps", "packets_seen", "packets_logged", "packets_full"),
        *("gaps", "gap_records"),
    ]


def _read(log: TcpLog) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return each flow's sums, and its RTTs by class; each chunk is read with the previous chunk's last samples."""
    columns = list(dict.fromkeys([*SAMPLED, *COUNTERS.values()]))
    empty = pl.DataFrame(schema={one: kind_of(one) for one in columns})
    names = log.header.get("tcp_flag_names") or []
    before = empty
    sums, classes = [_summed(judged(_marked(before, empty), names))], [_classes(empty)]
    for part in log.in_order(columns):
        samples = part.select(columns)
        sums.append(_summed(judged(_marked(before, samples), names)))
        classes.append(_classes(samples))
        before = pl.concat([before, samples]).group_by("flow", maintain_order=True).last().select(columns)
        if len(sums) > HELD_PARTS:
            sums, classes = [_joined(sums)], [_joined_classes(classes)]
    return _joined(sums), _joined_classes(classes)


def _marked(before: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    return pl.concat(
        [
            before.with_columns(pl.lit(value=False).alias("is_new")),
            samples.with_columns(pl.lit(value=True).alias("is_new")),
        ]
    )


def _rtt() -> pl.Expr:
    """Return the RTT of samples that measured one: of received packets, and of RTT points."""
    return pl.when(pl.col("point").is_in(["in", "rtt"]) & (pl.col("rtt_last_us") > 0)).then("rtt_last_us")


def _summed(samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row per flow; rows of several chunks can be merged."""
    is_fin_in = (pl.col("point") == "in") & (pl.col("tcp_flags").fill_null(0) & FIN > 0)
    behind_fin = (pl.col("seq") + pl.col("payload_bytes") + 1) % 2**32
    rtt = _rtt().filter("is_new")
    return samples.group_by("flow", maintain_order=True).agg(
        pl.col("is_new").sum().cast(pl.Int64).alias("samples"),
        pl.col("time_ns").min().alias("first_ns"),
        pl.col("time_ns").max().alias("last_ns"),
        *(pl.col(column).first().alias(f"first_{name}") for name, column in COUNTERS.items()),
        *(pl.col(column).last().alias(f"last_{name}") for name, column in COUNTERS.items()),
        *(_counted(COUNTERS[name]).alias(name) for name in WRAPPING),
        pl.col("in_flight_bytes").first().alias("first_in_flight"),
        pl.col("state").first().alias("first_state"),
        pl.col("state").last().alias("last_state"),
        pl.col("rcv_nxt").last().alias("last_rcv_nxt"),
        behind_fin.filter(is_fin_in).last().alias("behind_fin"),
        pl.col("state").is_in(PEER_CLOSED_STATES).any().alias("was_closed"),
        rtt.min().alias("rtt_min_us"),
        rtt.max().alias("rtt_max_us"),
        pl.col("rtt_min_us").drop_nulls().last().alias("kernel_rtt_min_us"),
        *(pl.col("lasts_ns").filter(pl.col("limit") == name).sum().alias(f"limited_by_{name}_ns") for name in LIMITS),
        *(pl.col("segments").filter(pl.col("again") == kind).sum().cast(pl.Int64).alias(kind) for kind in KINDS),
    )


def _counted(column: str) -> pl.Expr:
    """Return the growth of a counter over the samples, wraps included; samples of two processors may be slightly out of
    order.
    """
    half = 2 ** (BITS[column] - 1)
    step = pl.col(column).drop_nulls().cast(pl.Int64).diff().drop_nulls()
    sum_ = ((step + half) % (2 * half) - half).sum()
    return pl.when(pl.col(column).is_not_null().any()).then(sum_)


def _joined(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Merge the rows of several chunks into one row per flow."""
    rows = pl.concat(parts)
    firsts = [name for name in rows.columns if name.startswith("first_") and name != "first_ns"]
    lasts = [name for name in rows.columns if name.startswith("last_") and name != "last_ns"]
    sums = ["samples", *KINDS, *(f"limited_by_{name}_ns" for name in LIMITS)]
    return rows.group_by("flow", maintain_order=True).agg(
        pl.col("first_ns", "rtt_min_us").min(),
        pl.col("last_ns", "rtt_max_us").max(),
        pl.col(*firsts).first(),
        pl.col(*lasts).last(),
        pl.col("behind_fin", "kernel_rtt_min_us").drop_nulls().last(),
        pl.col("was_closed").any(),
        pl.col(*sums).sum(),
        *(pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name) for name in WRAPPING),
    ).select(rows.columns)  # fmt: skip


def _classes(samples: pl.DataFrame) -> pl.DataFrame:
    """Return the number of RTTs in each class."""
    shift = (pl.col("rtt").log(2).floor() - (EXACT_BITS - 1)).clip(lower_bound=0)
    width = pl.lit(2.0).pow(shift).cast(pl.Int64)
    told = samples.select("flow", _rtt().alias("rtt")).drop_nulls()
    middle = (pl.col("rtt") // width) * width + width // 2
    return told.group_by("flow", middle.alias("rtt")).agg(pl.len().cast(pl.Int64).alias("count"))


def _joined_classes(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(parts).group_by("flow", "rtt").agg(pl.col("count").sum())


def _quantiles(classes: pl.DataFrame) -> pl.DataFrame:
    ranked = classes.sort("flow", "rtt").with_columns(pl.col("count").cum_sum().over("flow").alias("rank"))
    whole = pl.col("rank").last()
    return ranked.group_by("flow").agg(
        pl.col("rtt").filter(pl.col("rank") > (share * (whole - 1)).round()).first().alias(name)
        for name, share in SHOWN_QUANTILES.items()
    )


def _is_fin_taken() -> pl.Expr:
    """Return whether the peer's FIN counts: in FIN_WAIT2 the last sample precedes the change of state, so its sequence
    number is used."""
    is_taken = (pl.col("behind_fin") == pl.col("last_rcv_nxt")).fill_null(value=False)
    return ~pl.col("first_state").is_in(PEER_CLOSED_STATES) & (pl.col("was_closed") | is_taken)


def _user_data() -> tuple[pl.Expr, pl.Expr]:
    """Return acknowledged and received bytes without SYN and FIN, which the kernel's counters count as a byte each."""
    unacknowledged = pl.when("has_syn").then(0).otherwise("first_in_flight")
    sent = pl.col("sent_bytes") - pl.col("retransmitted_bytes") + unacknowledged
    acked = pl.col("acked_bytes") - (pl.col("has_syn") & (pl.col("acked_bytes") > 0)).cast(pl.Int64)
    had_fin = (pl.col("has_fin") & (pl.col("received_bytes") > 0)).cast(pl.Int64)
    received = pl.when(pl.col("data_segs_in") == 0).then(0).otherwise(pl.col("received_bytes") - had_fin)
    return pl.min_horizontal(acked, sent).alias("acked_bytes"), received.alias("received_bytes")


def _kinds() -> list[pl.Expr]:
    """Return retransmissions by kind; null unless the log has every retransmitted packet."""
    is_whole = pl.sum_horizontal(*KINDS) == pl.col("retransmitted_segments")
    return [pl.when(is_whole).then(kind).alias(f"retransmitted_{kind}_segments") for kind in KINDS]


def _accounted(log: TcpLog) -> pl.DataFrame:
    """Return each flow's packets by disposition, both directions together."""
    rows = log.account_of_flows.group_by("flow")
    return rows.agg(
        pl.col("packets").filter(pl.col("disposition") == one).sum().alias(f"packets_{one}")
        for one in ("seen", "logged", "full")
    )


def _with_gaps(rows: pl.DataFrame, log: TcpLog) -> pl.DataFrame:
    """Add the gaps of the log within a flow's time: they may lack records of any flow.

    The number is the gaps that began before the flow's end, minus those that ended before its beginning.
    """
    begun = log.gaps.with_columns(pl.col("after_ns").fill_null(-NEVER_NS)).sort("after_ns")
    over = log.gaps.with_columns(pl.col("before_ns").fill_null(NEVER_NS)).sort("before_ns")
    of_begun = begun["after_ns"].search_sorted(rows["last_ns"], side="right").cast(pl.Int64)
    of_over = over["before_ns"].search_sorted(rows["first_ns"], side="left").cast(pl.Int64)
    return rows.with_columns(
        (of_begun - of_over).alias("gaps"), (_missing(begun, of_begun) - _missing(over, of_over)).alias("gap_records")
    )


def _missing(gaps: pl.DataFrame, counts: pl.Series) -> pl.Series:
    """Return the number of records missing in the first `counts` gaps."""
    none = pl.Series([0], dtype=pl.Int64)
    return none.append(gaps["missing"].cum_sum().cast(pl.Int64)).gather(counts)
