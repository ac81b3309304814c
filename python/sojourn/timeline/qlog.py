"""The joined table as qlog: the sender's trace of `tcplog convert --to qlog`, and where each data packet was then.

The events of other places are of a category of our own, `path`, which the schema allows; qvis leaves out what it does
not know. Each names its packet by the number that `transport:packet_sent` gave it, and the segment by its sequence
number: a packet of several (GSO) has events for each.
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
"""Each event: the column of the joined table that is its time, and what it tells, by the columns that have it."""

RANK = 6
"""Behind the sender's events of the same moment."""

TEXTS = {"emulator", "disposition", "cause", "tap_before", "tap_after", "lost_where"}


def write_joined_qlog(joined: Sequence[Joined], file: BinaryIO) -> int:
    """Write a trace a flow; how many segments they have."""
    head = {"qlog_version": VERSION, "qlog_format": "JSON", "title": joined[0][0].sender.log.path.name}
    file.write(json.dumps(head).removesuffix("}").encode() + b', "traces": [')
    count = 0
    for at, (flow, segments, _) in enumerate(joined):
        log = flow.sender.log
        [ends] = log.flows.head(1).iter_rows(named=True)
        samples = flow.sender.samples.select(*COLUMNS, "cpu", "number")
        first = segments["write_ns"].min()  # what the log's first sample is of may have been written before
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
    """The events of other places."""
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
    # A name of a file or an interface is foreign: quoted as JSON.
    quoted = pl.col(column).map_elements(json.dumps, return_dtype=pl.String)
    return pl.when(pl.col(column) != "").then(quoted)  # null where it is empty or null
