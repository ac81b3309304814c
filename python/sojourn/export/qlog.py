"""Write a log as qlog, for qvis: one trace per flow, with its packets and TCP's metrics at each.

The schema is qlog 0.3 (draft-ietf-quic-qlog-main-schema-02 to -08, draft-ietf-quic-qlog-quic-events of that time), the
newest that qvis reads; its vocabulary is QUIC's. A TCP segment becomes a packet of type 1RTT with a packet number
counted from 0 for each direction. Sequence numbers become frames: data a `stream` frame, an acknowledgement an `ack`
frame of the packets whose last byte it covers. A retransmission implies a loss: `packet_lost` names the packet that
last had its bytes, which is then not acknowledged. TCP's own fields are added under `tcp`. All selected flows are held
in memory.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import polars as pl

from sojourn.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sojourn.export.log import TcpLog
    from sojourn.export.output import Told

VERSION = "0.3"
SEPARATOR = "\x1e"
INFINITE = 0x7FFF_FFFF
ACK_FLAG = 0x10

COLUMNS = (
    *("flow", "time_ns", "point", "seq", "ack", "tcp_flags", "window", "packet_bytes", "payload_bytes", "segments"),
    *("state", "snd_cwnd", "snd_ssthresh", "mss_bytes", "srtt_us", "rtt_last_us", "rtt_min_us", "rttvar_us"),
    *("in_flight_bytes", "packets_out", "pacing_rate_bps", "ca_state", "packet", "segs_in", "segs_out"),
)

CONNECTION = {
    1: "handshake_complete",
    2: "attempted",
    3: "handshake_started",
    6: "draining",
    7: "closed",
    10: "listening",
}
CLOSING = "closing"
"""Every other state: one side has sent its FIN."""

RECOVERY = {1: "disorder", 2: "cwr", 3: "recovery", 4: "loss"}
"""Linux's states of congestion control; Open is slow start or congestion avoidance, by the window."""


def write_qlog(log: TcpLog, file: BinaryIO, told: Told, *, sequence: bool) -> None:
    """Write the traces: as one JSON object or, with `sequence`, as JSON text sequences, which hold a single trace."""
    flows = log.flows
    if sequence and flows.height != 1:
        raise RequestError(
            f"a .sqlog holds one flow and here are {flows.height}: choose one with --flow, or write .qlog"
        )
    frames = list(log.in_order(COLUMNS))
    samples = (
        pl.concat(frames) if frames else pl.DataFrame(schema={**dict.fromkeys(COLUMNS, pl.Int64), "point": pl.String})
    )
    traces = []
    for flow in flows.iter_rows(named=True):
        of_flow = samples.filter(pl.col("flow") == flow["flow"])
        if of_flow.height:
            traces.append((trace_of(log, flow, of_flow), events_of(flow, of_flow, log.start_ns)))
            told.records += of_flow.height
    head = {"qlog_version": VERSION, "qlog_format": "JSON-SEQ" if sequence else "JSON", "title": log.path.name}
    if sequence:
        _write_sequence(head, traces, file)
    else:
        _write_object(head, traces, file)


def _write_object(head: dict[str, Any], traces: list[tuple[dict[str, Any], pl.Series]], file: BinaryIO) -> None:
    file.write(json.dumps(head).removesuffix("}").encode() + b', "traces": [')
    for at, (trace, events) in enumerate(traces):
        file.write((",\n" if at else "\n").encode() + json.dumps(trace).removesuffix("}").encode() + b', "events": [\n')
        file.write(",\n".join(events).encode())
        file.write(b"]}")
    file.write(b"]}\n")


def _write_sequence(head: dict[str, Any], traces: list[tuple[dict[str, Any], pl.Series]], file: BinaryIO) -> None:
    """Write JSON text sequences (RFC 7464): a record separator before each text, a line feed after it."""
    for trace, events in traces:
        texts = [json.dumps(head | {"trace": trace}), *events]
        file.write("".join(f"{SEPARATOR}{text}\n" for text in texts).encode())


def trace_of(log: TcpLog, flow: dict[str, Any], samples: pl.DataFrame) -> dict[str, Any]:
    ends = f"{_end(flow, 'local')} to {_end(flow, 'remote')}"
    more = ", ".join(str(one) for one in (flow["algorithm"], flow["command"]) if one)
    return {
        "title": f"flow {flow['flow']}: {ends}" + (f" ({more})" if more else ""),
        "vantage_point": {"name": str(log.header.get("hostname", "")), "type": _role(samples)},
        "common_fields": {
            "group_id": str(flow["flow"]),
            "protocol_type": ["TCP"],
            "time_format": "relative",
            "reference_time": (log.start_ns - log.minus_utc_ns) / 1e6,
        },
    }


def _role(samples: pl.DataFrame) -> str:
    """Return the role: a client's first packet is its SYN; an accepted socket is first seen when it is open."""
    first = samples.row(0, named=True)
    opening = {2: "client", 3: "server", 12: "server"}.get(first["state"] or 0)
    is_new = first["packet"] == 0 and (first["segs_in"] or 0) + (first["segs_out"] or 0) in {1, 2, 3}
    return opening or ("server" if is_new else "unknown")


def _end(flow: dict[str, Any], side: str) -> str:
    address = flow[f"{side}_address"]
    return f"{f'[{address}]' if ':' in address else address}:{flow[f'{side}_port']}"


def events_of(
    flow: dict[str, Any], samples: pl.DataFrame, start_ns: int, more: Sequence[pl.DataFrame] = ()
) -> pl.Series:
    """Return every event of a flow as JSON, in the order of time; `rank` orders simultaneous events.

    `more`: events of other points, as `named` returns them.
    """
    samples = samples.with_columns(((pl.col("time_ns") - start_ns) / 1e6).round(6).alias("time"))
    started = {
        "ip_version": "v6" if ":" in flow["local_address"] else "v4",
        "protocol": "TCP",
        "src_ip": flow["local_address"],
        "src_port": flow["local_port"],
        "dst_ip": flow["remote_address"],
        "dst_port": flow["remote_port"],
    }
    begin = samples.head(1).select("time", pl.lit(json.dumps(started)).alias("data"))
    parts = [
        named(begin, "connectivity:connection_started", 0),
        _changes(samples, _connection(), "connectivity:connection_state_updated", 1),
        *_packets(samples),
        _metrics(samples),
        _changes(samples, _congestion(), "recovery:congestion_state_updated", 5),
        *more,
    ]
    events = pl.concat(parts).sort("time", "rank", maintain_order=True)
    return events.select(_event())["event"]


def _event() -> pl.Expr:
    quoted = (pl.lit('{"time":'), pl.col("time").cast(pl.String), pl.lit(',"name":"'), pl.col("name"))
    return pl.concat_str(*quoted, pl.lit('","data":'), pl.col("data"), pl.lit("}")).alias("event")


def named(frame: pl.DataFrame, name: str, rank: int) -> pl.DataFrame:
    """Return events of one name: time, name, data, rank."""
    return frame.select(
        pl.col("time").cast(pl.Float64), pl.lit(name).alias("name"), pl.col("data"), pl.lit(rank).alias("rank")
    )


def object_of(members: dict[str, pl.Expr]) -> pl.Expr:
    """Return a JSON object; null members are left out."""
    parts = [
        pl.when(value.is_not_null())
        .then(pl.concat_str(pl.lit(f',"{name}":'), value.cast(pl.String)))
        .otherwise(pl.lit(""))
        for name, value in members.items()
    ]
    return pl.concat_str(pl.lit("{"), pl.concat_str(*parts).str.strip_prefix(","), pl.lit("}"))


def _text(value: pl.Expr) -> pl.Expr:
    return pl.concat_str(pl.lit('"'), value, pl.lit('"'))


def _connection() -> pl.Expr:
    known = pl.col("state").replace_strict(CONNECTION, default=CLOSING, return_dtype=pl.String)
    return pl.when(pl.col("state").is_not_null()).then(known)


def _congestion() -> pl.Expr:
    slow = pl.col("snd_cwnd") < pl.col("snd_ssthresh")
    is_open = pl.when(slow).then(pl.lit("slow_start")).when(~slow).then(pl.lit("congestion_avoidance"))
    other = pl.col("ca_state").replace_strict(RECOVERY, default=None, return_dtype=pl.String)
    return pl.when(pl.col("ca_state").is_not_null()).then(pl.coalesce(other, is_open))


def _changes(samples: pl.DataFrame, state: pl.Expr, name: str, rank: int) -> pl.DataFrame:
    """Return an event for each change of a state; the first has no old state."""
    states = samples.select("time", state.alias("new")).drop_nulls("new")
    states = states.with_columns(pl.col("new").shift(1).alias("old"))
    changed = states.filter(pl.col("new").ne_missing(pl.col("old")))
    data = object_of({"old": _text(pl.col("old")), "new": _text(pl.col("new"))})
    return named(changed.with_columns(data.alias("data")), name, rank)


def _metrics(samples: pl.DataFrame) -> pl.DataFrame:
    """Return an event for each sample whose metrics differ from the previous one's; times in ms, windows in bytes."""
    mss = pl.col("mss_bytes").cast(pl.Int64)
    threshold = pl.when(pl.col("snd_ssthresh") < INFINITE).then(pl.col("snd_ssthresh").cast(pl.Int64) * mss)
    members = {
        "congestion_window": pl.col("snd_cwnd").cast(pl.Int64) * mss,
        "ssthresh": threshold,
        "bytes_in_flight": pl.col("in_flight_bytes"),
        "packets_in_flight": pl.col("packets_out"),
        "smoothed_rtt": _ms("srtt_us"),
        "latest_rtt": _ms("rtt_last_us"),
        "min_rtt": _ms("rtt_min_us"),
        "rtt_variance": _ms("rttvar_us"),
        "pacing_rate": pl.when(pl.col("pacing_rate_bps") >= 0).then(pl.col("pacing_rate_bps")),
    }
    events = samples.select("time", object_of(members).alias("data"))
    changed = events.filter(pl.col("data").ne_missing(pl.col("data").shift(1)), pl.col("data") != "{}")
    return named(changed, "recovery:metrics_updated", 4)


def _ms(column: str) -> pl.Expr:
    value = (pl.col(column).cast(pl.Float64) / 1000).round(6)
    return pl.when(value.is_finite()).then(value)


def _packets(samples: pl.DataFrame) -> list[pl.DataFrame]:
    """Return the packets of both directions, with frames, and the lost packets."""
    packets = _of_packets(samples)
    ways = packets.with_columns(
        (pl.int_range(pl.len()).over("point")).alias("number"), _unwrapped("seq").over("point").alias("offset")
    )
    lost = _lost(ways.filter(pl.col("point") == "out"))
    ways = ways.with_columns(_acknowledged(ways, lost))
    out, came = (ways.filter(pl.col("point") == point) for point in ("out", "in"))
    return [
        named(lost.with_columns(_loss().alias("data")), "recovery:packet_lost", 2),
        named(out.with_columns(_packet().alias("data")), "transport:packet_sent", 3),
        named(came.with_columns(_packet().alias("data")), "transport:packet_received", 3),
    ]


def _of_packets(samples: pl.DataFrame) -> pl.DataFrame:
    return samples.filter(pl.col("point").is_in(["in", "out"])).drop_nulls(["seq", "ack", "payload_bytes"])


def packets_sent(samples: pl.DataFrame) -> pl.DataFrame:
    """Return the samples of sent packets, each with the `packet_number` of its `transport:packet_sent`."""
    return _of_packets(samples).filter(pl.col("point") == "out").with_row_index("packet_number")


def _unwrapped(column: str) -> pl.Expr:
    """Return sequence numbers relative to the first one, without the wrap at 2³²."""
    step = (pl.col(column).diff() + 2**31) % 2**32 - 2**31
    return step.fill_null(0).cum_sum()


def _acknowledged(ways: pl.DataFrame, lost: pl.DataFrame) -> pl.Series:
    """Return for each packet the ranges of the opposite packets that it is the first to acknowledge, as JSON; else
    null."""
    told: list[str | None] = [None] * ways.height
    points, offset = ways["point"].to_numpy(), ways["offset"].to_numpy()
    end = offset + ways["payload_bytes"].to_numpy()
    seq, ack = ways["seq"].to_numpy(), ways["ack"].to_numpy()
    has_ack = (ways["tcp_flags"].fill_null(0).to_numpy() & ACK_FLAG) != 0
    for way, other, gone in (("out", "in", _all_lost(ways, lost)), ("in", "out", np.array([], dtype=np.int64))):
        sent, acks = np.flatnonzero(points == way), np.flatnonzero((points == other) & has_ack)
        if not len(sent) or not len(acks):
            continue
        # Relative to the opposite direction's first sequence number, then from acknowledgement to acknowledgement.
        steps = np.diff(ack[acks], prepend=seq[sent[0]])
        covered = np.cumsum((steps + 2**31) % 2**32 - 2**31)
        reach = np.searchsorted(np.maximum.accumulate(end[sent]), np.maximum.accumulate(covered), side="right") - 1
        # A packet cannot be acknowledged before it was sent.
        reach = np.minimum(reach, np.searchsorted(sent, acks) - 1)
        before = np.concatenate([[-1], np.maximum.accumulate(reach)[:-1]])
        for at in np.flatnonzero(reach > before):
            told[acks[at]] = _ranges(int(before[at]) + 1, int(reach[at]), gone)
    return pl.Series("acked", told, pl.String)


def _all_lost(ways: pl.DataFrame, lost: pl.DataFrame) -> NDArray[np.int64]:
    """Return the packets whose every byte was retransmitted: the last transmission counts as the one that arrived."""
    again = lost.unique(["was", "low"]).group_by("was").agg((pl.col("high") - pl.col("low")).sum().alias("again"))
    sent = ways.filter(pl.col("point") == "out").select(was="number", sent="payload_bytes")
    return sent.join(again, on="was").filter(pl.col("again") >= pl.col("sent"))["was"].sort().to_numpy()


def _ranges(low: int, high: int, gone: NDArray[np.int64]) -> str | None:
    """Return the packets from low to high, without the lost ones."""
    cuts = gone[np.searchsorted(gone, low) : np.searchsorted(gone, high, side="right")].tolist()
    parts = zip([low, *(cut + 1 for cut in cuts)], [*(cut - 1 for cut in cuts), high], strict=True)
    told = ",".join(f"[{first},{last}]" for first, last in parts if first <= last)
    return f"[{told}]" if told else None


def _packet() -> pl.Expr:
    """Return the data of a packet's event."""
    has_data, acks = pl.col("payload_bytes") > 0, pl.col("acked").is_not_null()
    ack = object_of({"frame_type": pl.lit('"ack"'), "acked_ranges": pl.col("acked")})
    frames = pl.concat_str(
        pl.when(has_data).then(_stream(pl.col("offset"), pl.col("payload_bytes"))).otherwise(pl.lit("")),
        pl.when(has_data & acks).then(pl.lit(",")).otherwise(pl.lit("")),
        pl.when(acks).then(ack).otherwise(pl.lit("")),
    )
    members = ("seq", "ack", "tcp_flags", "window", "segments")
    return object_of(
        {
            "header": _header(pl.col("number")),
            "raw": object_of({"length": pl.col("packet_bytes"), "payload_length": pl.col("payload_bytes")}),
            "frames": pl.concat_str(pl.lit("["), frames, pl.lit("]")),
            "tcp": object_of({name.removeprefix("tcp_"): pl.col(name) for name in members}),
        }
    )


def _header(number: pl.Expr) -> pl.Expr:
    return object_of({"packet_type": pl.lit('"1RTT"'), "packet_number": number})


def _stream(offset: pl.Expr, length: pl.Expr) -> pl.Expr:
    return object_of({"frame_type": pl.lit('"stream"'), "stream_id": pl.lit(0), "offset": offset, "length": length})


def _lost(out: pl.DataFrame) -> pl.DataFrame:
    """Return one row per retransmission and packet that last had these bytes (from low to high)."""
    data = out.filter(pl.col("payload_bytes") > 0).select(
        "time", "number", low="offset", high=pl.col("offset") + pl.col("payload_bytes")
    )
    reached = data["high"].cum_max().to_numpy()
    is_new = data["high"].to_numpy() > np.concatenate([[-(2**62)], reached[:-1]])
    again, first = data.filter(~is_new), data.filter(is_new)
    firsts = first["high"].to_numpy()  # increasing
    begin = pl.Series("at", np.searchsorted(firsts, again["low"].to_numpy(), side="right"))
    end = pl.Series("end", np.searchsorted(firsts, again["high"].to_numpy(), side="left") + 1)
    rows = again.with_columns(pl.int_ranges(begin, end).alias("at")).explode("at").drop_nulls("at")
    was = first.select("low", "high", was="number")[rows["at"].to_numpy()]
    rows = rows.with_columns(
        was["was"], pl.max_horizontal(pl.col("low"), was["low"]), pl.min_horizontal(pl.col("high"), was["high"])
    )
    earlier = pl.col("high").shift(1).over("was", "low") >= pl.col("high")
    return rows.with_columns(was=pl.when(earlier).then(pl.col("number").shift(1).over("was", "low")).otherwise("was"))


def _loss() -> pl.Expr:
    frame = _stream(pl.col("low"), pl.col("high") - pl.col("low"))
    return object_of({"header": _header(pl.col("was")), "frames": pl.concat_str(pl.lit("["), frame, pl.lit("]"))})
