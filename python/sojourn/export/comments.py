"""Comments in a capture: what TCP's state was at each packet, from a log of the same packets.

A packet is found by both its ends, sequence and acknowledgement number, flags and payload's length, and of several
alike the nearest in time. On a loopback one packet is two samples, going out and coming in: its comment has both.
Where segments were split or joined between the two places, nothing is found, and how many is told.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, BinaryIO

import polars as pl

from sojourn.export.capture import Key, read_capture, tcp_of, write_block

if TYPE_CHECKING:
    from pathlib import Path

    from sojourn.export.log import TcpLog
    from sojourn.export.output import Told

TOLERANCE_NS = 1_000_000_000
"""How far apart in time the two sights of a packet may be: clocks differ little on one machine, queues are long."""

LAST_NS = 2**62
"""In the year 2116: what a damaged capture has beyond is no time at which anything was logged."""

INFINITE = 0x7FFF_FFFF
STATES = {
    1: "ESTABLISHED",
    2: "SYN_SENT",
    3: "SYN_RECV",
    4: "FIN_WAIT1",
    5: "FIN_WAIT2",
    6: "TIME_WAIT",
    7: "CLOSE",
    8: "CLOSE_WAIT",
    9: "LAST_ACK",
    10: "LISTEN",
    11: "CLOSING",
    12: "NEW_SYN_RECV",
}
RECOVERY = {0: "Open", 1: "Disorder", 2: "CWR", 3: "Recovery", 4: "Loss"}
KEYS = ("source", "sport", "destination", "dport", "seq", "ack", "flags12", "payload_bytes")
KNOWN_BY = ("seq", "ack", "tcp_flags", "payload_bytes", "ip_id")
COLUMNS = (
    *("flow", "time_ns", "point", "packet", "state", "ca_state"),
    *("snd_cwnd", "snd_ssthresh", "mss_bytes", "srtt_us", "rtt_last_us", "rtt_min_us", "rto_us", "in_flight_bytes"),
    *("snd_wnd_bytes", "rcv_wnd_bytes", "lost_out", "retrans_out", "total_retrans", "pacing_rate_bps"),
)


def write_comments(log: TcpLog, capture: Path, file: BinaryIO, told: Told) -> None:
    """Write the capture anew with a comment to each packet that the log has, too."""
    packets = _packets(capture)
    comments, used = _comments(log, packets)
    number = 0
    for block in read_capture(capture):
        is_packet = block.at_ns is not None
        write_block(file, block, comments.get(number) if is_packet else None)
        number += is_packet
    told.records = len(comments)
    tcp = packets.height
    logged = used["logged"]
    told.sentences.append(
        f"{len(comments)} of {tcp} TCP packets in {capture} have a comment, {tcp - len(comments)} are not in the log; "
        f"{logged - used['matched']} of {logged} logged packets are not in the capture"
    )
    if number - tcp:
        told.sentences.append(f"{number - tcp} packets of {capture} are not TCP's, or cut short")


def _packets(capture: Path) -> pl.DataFrame:
    """The TCP packets of a capture: their place in it, their time and what they are known by."""
    rows: list[tuple[int, int, *tuple[object, ...]]] = []
    number = 0
    for block in read_capture(capture):
        if block.at_ns is None:
            continue
        key: Key | None = tcp_of(block)
        if key is not None and abs(block.at_ns) <= LAST_NS:
            rows.append((number, block.at_ns, *key))
        number += 1
    names = ("place", "utc_ns", *KEYS, "ip_id")
    texts = {"source", "destination"}
    return pl.DataFrame(rows, schema={name: pl.String if name in texts else pl.Int64 for name in names}, orient="row")


def _comments(log: TcpLog, packets: pl.DataFrame) -> tuple[dict[int, str], dict[str, int]]:
    """The comment of each packet by its place, and how many samples of packets there were and were found."""
    samples = _sampled(log)
    found = pl.concat([_matched(packets, samples.filter(pl.col("point") == point)) for point in ("out", "in")])
    used = {"logged": samples.height, "matched": found["row"].n_unique()}
    lines: list[pl.DataFrame] = []
    row = 0
    for frame in log.in_order(COLUMNS):
        numbered = frame.with_row_index("row", row).cast({"row": pl.Int64})
        row += frame.height
        wanted = numbered.join(found, on="row").with_columns(_comment().alias("comment"))
        lines.append(wanted.select("place", "point", "comment"))
    if not lines:
        return {}, used
    # Going out before coming in.
    joined = pl.concat(lines).sort("place", "point", descending=[False, True]).group_by("place", maintain_order=True)
    texts = joined.agg(pl.col("comment").str.join("\n"))
    return dict(zip(texts["place"], texts["comment"], strict=True)), used


def _sampled(log: TcpLog) -> pl.DataFrame:
    """The logged packets in the order of time: which sample of the log each is, and a digest of what it is known by."""
    ends = _ends(log.flows)
    schema = {"row": pl.Int64, "point": pl.String, "utc_ns": pl.Int64, "alike": pl.UInt64, "same": pl.UInt64}
    parts = [pl.DataFrame(schema=schema)]
    row = 0
    for frame in log.in_order([*KNOWN_BY, "flow", "time_ns", "point"]):
        numbered = frame.with_row_index("row", row).cast({"row": pl.Int64})
        row += frame.height
        packets = numbered.filter(pl.col("point").is_in(["in", "out"])).join(ends, on="flow", maintain_order="left")
        parts.append(packets.with_columns(*_wire(), *_when(log)).with_columns(_digests()).select(list(schema)))
    return pl.concat(parts)


def _matched(packets: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """For each packet of the capture the sample of it: place and row.

    As many packets of one digest as samples: in their order. Otherwise the nearest in time, first of those with the
    same identification.
    """
    packets = packets.sort("utc_ns").with_columns(_digests())
    counted = [
        one.with_columns(pl.int_range(pl.len()).over("same").alias("turn"), pl.len().over("same").alias("times"))
        for one in (packets, samples)
    ]
    paired = counted[0].join(counted[1], on=["same", "turn", "times"])
    apart = (pl.col("utc_ns") - pl.col("utc_ns_right")).abs()
    found = [paired.filter(apart <= TOLERANCE_NS).select("place", "row")]
    for digest in ("same", "alike"):
        rest = packets.join(pl.concat(found), on="place", how="anti", maintain_order="left")
        near = rest.select("place", "utc_ns", digest).join_asof(
            samples.select("row", "utc_ns", digest),
            on="utc_ns",
            by=digest,
            strategy="nearest",
            tolerance=TOLERANCE_NS,
            check_sortedness=False,
        )
        found.append(near.drop_nulls("row").select("place", "row"))
    return pl.concat(found)


def _digests() -> list[pl.Expr]:
    """What a packet is known by, with and without IP's identification."""
    return [pl.struct(KEYS).hash().alias("alike"), pl.struct([*KEYS, "ip_id"]).hash().alias("same")]


def _ends(flows: pl.DataFrame) -> pl.DataFrame:
    """Addresses as their bytes in hexadecimal digits: one spelling for each."""
    addresses = (
        pl.col(f"{side}_address").map_elements(_digits, return_dtype=pl.String).alias(side)
        for side in ("local", "remote")
    )
    return flows.select("flow", *addresses, "local_port", "remote_port")


def _digits(address: str) -> str:
    return ipaddress.ip_address(address).packed.hex()


def _wire() -> list[pl.Expr]:
    """Source and destination as in the packet."""
    is_out = pl.col("point") == "out"
    return [
        pl.when(is_out).then("local").otherwise("remote").alias("source"),
        pl.when(is_out).then("remote").otherwise("local").alias("destination"),
        pl.when(is_out).then("local_port").otherwise("remote_port").cast(pl.Int64).alias("sport"),
        pl.when(is_out).then("remote_port").otherwise("local_port").cast(pl.Int64).alias("dport"),
        pl.col("tcp_flags").cast(pl.Int64).alias("flags12"),
        pl.col("payload_bytes").cast(pl.Int64),
        pl.col("ip_id").cast(pl.Int64),
    ]


def _when(log: TcpLog) -> list[pl.Expr]:
    return [(pl.col("time_ns") - log.minus_utc_ns).alias("utc_ns")]


def _comment() -> pl.Expr:
    """One line: what is known of the moment; what is null is left out."""
    mss = pl.col("mss_bytes").cast(pl.Int64)
    threshold = pl.col("snd_ssthresh")
    parts = {
        "": pl.col("state").replace_strict(STATES, default="?", return_dtype=pl.String),
        " ": pl.col("ca_state").replace_strict(RECOVERY, default=None, return_dtype=pl.String),
        ", cwnd ": pl.format("{} segments ({} bytes)", "snd_cwnd", pl.col("snd_cwnd").cast(pl.Int64) * mss),
        ", ssthresh ": pl.when(threshold == INFINITE)
        .then(pl.lit("infinite"))
        .otherwise(pl.format("{} segments", threshold)),
        ", in flight ": pl.format("{} bytes", "in_flight_bytes"),
        ", srtt ": pl.format("{} us", pl.col("srtt_us").round(3)),
        ", last rtt ": pl.format("{} us", "rtt_last_us"),
        ", min rtt ": pl.format("{} us", "rtt_min_us"),
        ", rto ": pl.format("{} us", "rto_us"),
        ", peer's window ": pl.format("{} bytes", "snd_wnd_bytes"),
        ", our window ": pl.format("{} bytes", "rcv_wnd_bytes"),
        ", lost ": pl.col("lost_out").cast(pl.String),
        ", resent ": pl.format("{} (ever {})", "retrans_out", "total_retrans"),
        ", pacing ": pl.when(pl.col("pacing_rate_bps") >= 0).then(pl.format("{} bit/s", "pacing_rate_bps")),
    }
    head = pl.format("tcplog {}, flow {} packet {}: ", "point", "flow", "packet")
    return pl.concat_str(head, *(pl.concat_str(pl.lit(name), text).fill_null("") for name, text in parts.items()))
