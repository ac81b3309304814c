"""The joined table as CSV and Parquet: one row per segment, columns in the order of its path, with the flow's endpoints
and the names of states added.

Times are integers of nanoseconds on the records' clock (TAI); unknown values are empty in CSV, null in Parquet.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sojourn.export.names import RECOVERY, STATES
from sojourn.export.output import write_text
from sojourn.timeline.source import ENDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sojourn.timeline.perfetto import Joined

COLUMNS = {
    "flow": "of the sender's log",
    "seq": "first byte's sequence number",
    "payload_bytes": "bytes",
    "ip_id": "of IPv4; 0 in IPv6",
    "again": "whether its bytes had been sent before",
    "write_ns": "ns, before the call in which the application wrote its first byte",
    "write_end_ns": "ns, when that call had returned",
    "sent_ns": "ns, when TCP built it",
    "state": "the sender's, as the columns up to limited_by",
    "ca_state": "0 Open, 1 Disorder, 2 CWR, 3 Recovery, 4 Loss",
    "snd_cwnd": "segments",
    "snd_ssthresh": "segments",
    "snd_wnd_bytes": "bytes",
    "in_flight_bytes": "bytes, without it",
    "snd_queued_bytes": "bytes",
    "pacing_rate_bps": "bit/s",
    "srtt_us": "us",
    "limited_by": "idle, busy, receiver, buffer",
    "tap_before": "the first tap that saw the flow: before the device",
    "tap_before_ns": "ns, when it passed that tap",
    "emulator": "the name in the log's files",
    "arrival_ns": "ns, at the emulator",
    "entered_ns": "ns, from when on it counts there",
    "queue_slots": "packets that it found in the queue",
    "queue_bytes": "bytes that it found there",
    "link_left_ns": "ns, when its last bit left the link",
    "intended_ns": "ns, when it was to leave the emulator",
    "departure_ns": "ns, when it left",
    "disposition": "unmatched, sent, lost",
    "cause": "of a loss",
    "marked": "whether the emulator marked it (ECN)",
    "tap_after": "the last tap that saw the flow: behind the device",
    "tap_after_ns": "ns, when it passed that tap",
    "lost_where": "by two taps where it was lost: before the first, in the device between, behind the last",
    "received_ns": "ns, when the receiver's TCP got it",
    "rcv_wnd_bytes": "bytes, the receiver's window then",
    "rcv_queued_bytes": "bytes that waited unread there",
    "rcv_ooopack": "segments received out of order so far",
    "ack_tap_after_ns": "ns, when the acknowledgement that covers it passed the tap behind the device",
    "ack_arrival_ns": "ns, when that acknowledgement arrived at the emulator",
    "ack_departure_ns": "ns, when it left the emulator",
    "ack_tap_before_ns": "ns, when it passed the tap before the device",
    "acked_ns": "ns, when the sender got the acknowledgement that covers it",
    "write_number": "row of the sender's readings",
    "sent_cpu": "row of the sender's samples",
    "sent_number": "row of the sender's samples",
    "emulator_number": "row of the emulator's packets",
    "tap_before_frame": "number of its packet in the first tap's file, from 1",
    "tap_after_frame": "the same in the last tap's file",
    "received_cpu": "row of the receiver's samples",
    "received_number": "row of the receiver's samples",
    "acked_cpu": "row of the sender's samples",
    "acked_number": "row of the sender's samples",
}
"""Every column of a segment in order, with its meaning."""

NAMES = {"state": ("state_name", STATES), "ca_state": ("ca_state_name", RECOVERY)}
"""Columns of numbers with names: the column of the name, and the names."""

MEANINGS = {
    "flow": COLUMNS["flow"],
    **dict(zip(ENDS, ("the sender's", "the sender's", "the receiver's", "the receiver's"), strict=True)),
    **{name: meaning for name, meaning in COLUMNS.items() if name != "flow"},
    **{named: f"the name of {name}" for name, (named, _) in NAMES.items()},
}
"""Every column of the table in order, with its meaning."""


def write_csv(flows: Sequence[Joined], file: BinaryIO) -> int:
    """Write a line with the names, then one line per segment; return the number of segments."""
    file.write((",".join(MEANINGS) + "\n").encode())
    count = 0
    for rows in _rows(flows):
        write_text(rows, file)
        count += rows.height
    return count


def write_parquet(flows: Sequence[Joined], file: BinaryIO) -> int:
    """Write one row per segment; the meaning of the columns and the accounting of each flow are in the metadata."""
    table = pl.concat(_rows(flows)).to_arrow()
    fields = [one.with_metadata({"is": MEANINGS[one.name]}) for one in table.schema]
    accounts = {int(segments["flow"][0]): account.as_dict() for _, segments, account in flows if segments.height}
    said: dict[str | bytes, str | bytes] = {"sojourn.account": json.dumps(accounts), "sojourn.clock": "TAI"}
    pq.write_table(table.cast(pa.schema(fields, metadata=said)), file, compression="zstd")
    return table.num_rows


def _rows(flows: Sequence[Joined]) -> Iterator[pl.DataFrame]:
    for flow, segments, _ in flows:
        ends = [pl.lit(flow.sender.ends[name]).alias(name) for name in ENDS]
        names = [
            pl.col(name).replace_strict(of, default=None, return_dtype=pl.String).alias(named)
            for name, (named, of) in NAMES.items()
        ]
        yield segments.with_columns(*ends, *names).select(*MEANINGS)
