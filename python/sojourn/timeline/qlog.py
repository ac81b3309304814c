"""The joined table as qlog: the sender's trace of `tcplog convert --to qlog`, and when each point saw each data packet.

Events of other points have a category of our own, `path`, which the schema allows; qvis ignores unknown events. Each
names its packet by the number of `transport:packet_sent`, and the segment by its sequence number: a packet of several
segments (GSO) has events for each.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, BinaryIO

import polars as pl

from sojourn.export.qlog import COLUMNS, VERSION, events_of, named, object_of, packets_sent, trace_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.timeline.perfetto import Joined

PLACES: dict[str, tuple[str, dict[str, str]]] = {
    "path:written": ("write_ns", {"call": "write_number"}),
    "path:tap_passed": ("tap_before_ns", {"tap": "tap_before", "frame": "tap_before_frame", "lost": "lost_where"}),
    "path:emulator_arrived": (
        "arrival_ns",
        {"emulator": "emulator", "number": "emulator_number", "queued_packets": "queue_slots",
         "queued_bytes": "queue_bytes", "disposition": "disposition", "cause": "cause", "marked": "marked"},
    ),
    "path:emulator_departed": ("departure_ns", {"emulator": "emulator", "number": "emulator_number"}),
    "path:far_tap_passed": ("tap_after_ns", {"tap": "tap_after", "frame": "tap_after_frame"}),
    "path:packet_received": ("received_ns", {"window": "rcv_wnd_bytes", "unread_bytes": "rcv_queued_bytes"}),
    "path:ack_far_tap_passed": ("ack_tap_after_ns", {"tap": "tap_after"}),
    "path:ack_emulator_arrived": ("ack_arrival_ns", {}),
    "path:ack_emulator_departed": ("ack_departure_ns", {}),
    "path:ack_tap_passed": ("ack_tap_before_ns", {"tap": "tap_before"}),
    "path:packet_acknowledged": ("acked_ns", {}),
}  # fmt: skip
"""Each event: the column of the joined table with its time, and its members with their columns."""

RANK = 6
"""The sort rank: after the sender's events at the same time."""

TEXTS = {"emulator", "disposition", "cause", "tap_before", "tap_after", "lost_where"}


def write_joined_qlog(joined: Sequence[Joined], file: BinaryIO) -> int:
    """Write one trace per flow; return the number of segments."""
    head = {"qlog_version": VERSION, "qlog_format": "JSON", "title": joined[0][0].sender.log.path.name}
    file.write(json.dumps(head).removesuffix("}").encode() + b', "traces": [')
    count = 0
    for at, (flow, segments, _) in enumerate(joined):
        log = flow.sender.log
        [ends] = log.flows.head(1).iter_rows(named=True)
        samples = flow.sender.samples.select(*COLUMNS, "cpu", "number")
        first = segments["write_ns"].min()  # data of the log's first sample may have been written before it
        start_ns = min(log.start_ns, first) if isinstance(first, int) else log.start_ns
        trace = trace_of(log, ends, samples)
        trace["common_fields"]["reference_time"] = (start_ns - log.minus_utc_ns) / 1e6
        events = events_of(ends, samples, start_ns, _placed(segments, samples, start_ns))
        file.write(b",\n" if at else b"\n")
        file.write(json.dumps(trace).removesuffix("}").encode() + b', "events": [\n')
        file.write(",\n".join(events).encode() + b"]}")
        count += segments.height
    file.write(b"]}\n")
    return count


def _placed(segments: pl.DataFrame, samples: pl.DataFrame, start_ns: int) -> list[pl.DataFrame]:
    """Return the events of points other than the sender."""
    numbers = packets_sent(samples).select(
        pl.col("cpu").alias("sent_cpu"), pl.col("number").alias("sent_number"), pl.col("packet_number")
    )
    known = segments.join(numbers, on=["sent_cpu", "sent_number"], how="left", maintain_order="left")
    events = []
    for name, (column, told) in PLACES.items():
        rows = known.drop_nulls(column).with_columns(((pl.col(column) - start_ns) / 1e6).round(6).alias("time"))
        members = {key: _value(of) for key, of in told.items()}
        data = object_of(
            {
                "header": object_of({"packet_type": pl.lit('"1RTT"'), "packet_number": pl.col("packet_number")}),
                "raw": object_of({"payload_length": pl.col("payload_bytes")}),
                "tcp": object_of({"seq": pl.col("seq"), "ip_id": pl.col("ip_id")}),
                **members,
            }
        )
        events.append(named(rows.with_columns(data.alias("data")), name, RANK))
    return events


def _value(column: str) -> pl.Expr:
    if column not in TEXTS:
        return pl.col(column)
    # Names of files and interfaces are untrusted text: quote them as JSON.
    quoted = pl.col(column).map_elements(json.dumps, return_dtype=pl.String)
    return pl.when(pl.col(column) != "").then(quoted)  # null where it is empty or null
