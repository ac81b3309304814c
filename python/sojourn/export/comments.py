"""Comments in a capture: TCP's state at each packet, from a log of the same packets.

A sample belongs to at most one captured packet, and a packet to at most one sample of each direction. `matched` pairs
those with equal endpoints, sequence and acknowledgement number, flags, length and IP identification. Where TCP passes
down a super-packet and its segments are captured separately, `segments_of` gives each the sample of the whole. On
loopback, or between two namespaces, a packet has two samples, sent and received: its comment has both.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import polars as pl

from sojourn.errors import RequestError
from sojourn.export.names import RECOVERY, STATES
from sojourn.records.pcap import read_capture, tcp_of, write_block

if TYPE_CHECKING:
    from pathlib import Path

    from sojourn.export.log import TcpLog
    from sojourn.export.output import Told

TOLERANCE_NS = 4_000_000_000
"""The greatest time between the two sightings of a packet: a host's first packet waits up to three seconds (three tries
of neighbour discovery or ARP) until the link-layer address of its destination is known."""

LAST_NS = 2**62
"""In the year 2116: a damaged capture may have later times, at which nothing was logged."""

INFINITE = 0x7FFF_FFFF
BUCKET_BITS = 13
"""Segments are matched to super-packets with bytes in the same 8 KiB of sequence numbers."""

KEYS = ("source", "sport", "destination", "dport", "seq", "ack", "flags12", "payload_bytes", "ip_id")
ENDS = KEYS[:4]
KNOWN_BY = ("seq", "ack", "tcp_flags", "payload_bytes", "ip_id")
COLUMNS = (
    *("flow", "time_ns", "point", "packet", "state", "ca_state"),
    *("snd_cwnd", "snd_ssthresh", "mss_bytes", "srtt_us", "rtt_last_us", "rtt_min_us", "rto_us", "in_flight_bytes"),
    *("snd_wnd_bytes", "rcv_wnd_bytes", "lost_out", "retrans_out", "total_retrans", "pacing_rate_bps"),
)


def write_comments(log: TcpLog, capture: Path, file: BinaryIO, told: Told) -> None:
    """Copy the capture, and add a comment to each packet that the log has too."""
    packets, others = _packets(capture)
    found = _found(log, packets)
    if not found.comments:
        raise RequestError(_nothing_common(log, capture, packets))
    number = 0
    for block in read_capture(capture):
        is_packet = block.at_ns is not None
        write_block(file, block, found.comments.get(number) if is_packet else None)
        number += is_packet
    told.records = len(found.comments)
    told.sentences.extend(found.sentences(capture, packets.height))
    if others:
        told.sentences.append(f"{others} packets of {capture} are not TCP's, or cut short")


@dataclass(frozen=True)
class _Found:
    """The comment of each packet by its index, and how many samples have packets."""

    comments: dict[int, str]
    logged: int
    whole: int
    """Samples whose packet was captured as logged."""
    split: int
    """Samples of super-packets that were captured as segments."""
    segments: int
    """The number of those segments."""
    doubly: int
    """Packets with two samples: where they were sent and where they were received."""

    def sentences(self, capture: Path, packets: int) -> list[str]:
        """Return the counts as sentences: every packet and every sample is in exactly one of them."""
        rest = self.logged - self.whole - self.split
        found = len(self.comments)
        whole = f"{self.whole} are in the capture as they were logged"
        told = [
            f"{found} of {packets} TCP packets in {capture} have a comment, {packets - found} are not in the log",
            f"of {self.logged} logged packets {whole}, {self.split} in segments, {rest} are not in it",
        ]
        if self.split:
            told.append(f"{self.segments} segments have the sample of the super-packet that they were sent in")
        if self.doubly:
            told.append(f"{self.doubly} packets have two samples: where they were sent, and where they were received")
        return told


def _nothing_common(log: TcpLog, capture: Path, packets: pl.DataFrame) -> str:
    """Return why no packet of the capture is in the log."""
    if packets.is_empty():
        return f"{capture} has no TCP packet"
    ends = log.flows.select(pl.col("local_address").map_elements(_digits, return_dtype=pl.String).alias("local"))
    ours = set(ends["local"]) & (set(packets["source"]) | set(packets["destination"]))
    if not ours:
        return f"no TCP packet of {capture} is in the log {log.path}: they have no address in common"
    times = [int(one) for one in (packets["utc_ns"].min(), packets["utc_ns"].max()) if isinstance(one, int)]
    apart = (times[0] - (log.start_ns - log.minus_utc_ns)) / 1e9
    return (
        f"no TCP packet of {capture} is in the log {log.path}, though addresses agree: the capture begins {apart:+.1f} "
        "s from the log's start; was it of the same connections, and was a NAT or a joining of segments between?"
    )


def _packets(capture: Path) -> tuple[pl.DataFrame, int]:
    """Return the TCP packets of a capture, with index, time and identifying fields; and the number of other packets."""
    rows: list[tuple[object, ...]] = []
    number = 0
    for block in read_capture(capture):
        if block.at_ns is None:
            continue
        segment = tcp_of(block)
        if segment is not None and abs(block.at_ns) <= LAST_NS:
            rows.append((number, block.at_ns, *segment[: len(KEYS)]))
        number += 1
    names, texts = ("place", "utc_ns", *KEYS), {"source", "destination"}
    schema = {name: pl.String if name in texts else pl.Int64 for name in names}
    return pl.DataFrame(rows, schema=schema, orient="row"), number - len(rows)


def _found(log: TcpLog, packets: pl.DataFrame) -> _Found:
    """Find the packets' samples, and write the comments."""
    samples = _sampled(log)
    whole, parts = [], []
    for point in ("out", "in"):
        here = samples.filter(pl.col("point") == point)
        pairs = matched(packets, here)
        rest = packets.join(pairs, on="place", how="anti", maintain_order="left")
        whole.append(pairs)
        parts.append(segments_of(rest, here.join(pairs, on="row", how="anti", maintain_order="left")))
    split = pl.concat(parts)
    found = pl.concat([*(pairs.with_columns(pl.lit("").alias("part")) for pairs in whole), split])
    return _Found(
        _texts(log, found),
        samples.height,
        sum(pairs.height for pairs in whole),
        split["row"].n_unique(),
        split["place"].n_unique(),
        found.height - found["place"].n_unique(),
    )


def _texts(log: TcpLog, found: pl.DataFrame) -> dict[int, str]:
    """Return the comment of each packet, by index."""
    lines = []
    row = 0
    for frame in log.in_order(COLUMNS):
        numbered = frame.with_row_index("row", row).cast({"row": pl.Int64})
        row += frame.height
        wanted = numbered.join(found, on="row").with_columns(_comment().alias("comment"))
        lines.append(wanted.select("place", "point", "comment"))
    if not lines:
        return {}
    # The sample of sending comes before that of receiving.
    joined = pl.concat(lines).sort("place", "point", descending=[False, True]).group_by("place", maintain_order=True)
    texts = joined.agg(pl.col("comment").str.join("\n"))
    return dict(zip(texts["place"], texts["comment"], strict=True))


def _sampled(log: TcpLog) -> pl.DataFrame:
    """Return the logged packets in the order of time, with their row in the log and their identifying fields."""
    ends = _ends(log.flows)
    texts = {"point", "source", "destination"}
    names = ("row", "point", "utc_ns", "segments", *KEYS)
    schema = pl.Schema({name: pl.String() if name in texts else pl.Int64() for name in names})
    parts = [pl.DataFrame(schema=schema)]
    row = 0
    for frame in log.in_order([*KNOWN_BY, "flow", "time_ns", "point", "segments"]):
        numbered = frame.with_row_index("row", row).cast({"row": pl.Int64})
        row += frame.height
        packets = numbered.filter(pl.col("point").is_in(["in", "out"])).join(ends, on="flow", maintain_order="left")
        parts.append(packets.with_columns(*_wire(), *_when(log)).select(list(schema)).cast(schema))
    return pl.concat(parts)


def matched(packets: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """Pair packets with samples of one direction, one to one; return place and row.

    Where both sides have equally many with the same fields, they are paired in order; otherwise the nearest in time
    first.
    """
    digest = pl.struct(KEYS).hash().alias("same")
    packets, samples = (one.sort("utc_ns").with_columns(digest) for one in (packets, samples))
    turns = pl.int_range(pl.len()).over("same").alias("turn"), pl.len().over("same").alias("times")
    counted = packets.with_columns(turns).join(samples.with_columns(turns), on=["same", "turn", "times"])
    apart = (pl.col("utc_ns") - pl.col("utc_ns_right")).abs()
    found = [counted.filter(apart <= TOLERANCE_NS).select("place", "row")]
    while found[-1].height or len(found) == 1:
        packets = packets.join(found[-1], on="place", how="anti", maintain_order="left")
        samples = samples.join(found[-1], on="row", how="anti", maintain_order="left")
        found.append(_nearest(packets, samples))
    return pl.concat(found)


def _nearest(packets: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """Return for each sample that is the nearest to some equal packets its pair with the nearest of them."""
    near = packets.select("place", "utc_ns", "same").join_asof(
        samples.select("row", "same", "utc_ns", pl.col("utc_ns").alias("at")),
        on="utc_ns",
        by="same",
        strategy="nearest",
        tolerance=TOLERANCE_NS,
        check_sortedness=False,
    )
    near = near.drop_nulls("row").sort((pl.col("utc_ns") - pl.col("at")).abs(), "place")
    return near.unique("row", keep="first", maintain_order=True).select("place", "row")


def segments_of(packets: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """Give each packet with data the sample of the super-packet that holds its bytes; return place, row and the part.

    IP identifications of segments, if used, count up from the super-packet's. Flags may differ: only the last segment
    has PSH and FIN, and only the first has CWR.
    """
    first, last = pl.col("seq"), (pl.col("seq") + pl.col("payload_bytes") - 1).clip(pl.col("seq"))
    in_bucket = (pl.col("bucket") % (1 << 32 - BUCKET_BITS)).alias("bucket")
    supers = (
        samples.filter(pl.col("segments") > 1)
        .with_columns(pl.int_ranges(first // (1 << BUCKET_BITS), last // (1 << BUCKET_BITS) + 1).alias("bucket"))
        .explode("bucket")
        .with_columns(in_bucket)
    )
    singly = packets.filter(pl.col("payload_bytes") > 0).with_columns((first // (1 << BUCKET_BITS)).alias("bucket"))
    pairs = singly.join(supers, on=[*ENDS, "ack", "bucket"]).with_columns(
        ((pl.col("seq") - pl.col("seq_right")) % (1 << 32)).alias("offset"),
        ((pl.col("ip_id") - pl.col("ip_id_right")) % (1 << 16)).alias("turn"),
        (pl.col("utc_ns") - pl.col("utc_ns_right")).abs().alias("apart"),
    )
    # Identification 0 in both: IPv6, or a sender that sets none.
    is_next = (pl.col("ip_id") == 0) & (pl.col("ip_id_right") == 0) | (pl.col("turn") < pl.col("segments"))
    is_within = pl.col("offset") + pl.col("payload_bytes") <= pl.col("payload_bytes_right")
    fitting = pairs.filter(is_next & is_within & (pl.col("apart") <= TOLERANCE_NS)).sort("apart", "place")
    chosen = fitting.unique("place", keep="first", maintain_order=True)
    chosen = chosen.unique(["row", "offset"], keep="first", maintain_order=True)
    part = pl.format(
        ", bytes {} to {} of the {} of a super-packet of {} segments",
        pl.col("offset") + 1,
        pl.col("offset") + pl.col("payload_bytes"),
        "payload_bytes_right",
        "segments",
    )
    return chosen.select("place", "row", part.alias("part"))


def _ends(flows: pl.DataFrame) -> pl.DataFrame:
    """Return addresses as hexadecimal digits, which are unique."""
    addresses = (
        pl.col(f"{side}_address").map_elements(_digits, return_dtype=pl.String).alias(side)
        for side in ("local", "remote")
    )
    return flows.select("flow", *addresses, "local_port", "remote_port")


def _digits(address: str) -> str:
    return ipaddress.ip_address(address).packed.hex()


def _wire() -> list[pl.Expr]:
    """Return source and destination as in the packet."""
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
    """Return one line with the known state; null values are left out."""
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
    head = pl.format("tcplog {}, flow {} packet {}{}: ", "point", "flow", "packet", "part")
    return pl.concat_str(head, *(pl.concat_str(pl.lit(name), text).fill_null("") for name, text in parts.items()))
