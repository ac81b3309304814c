"""The joined table as a page: a time–sequence diagram of each flow, and every segment's row in every record.

The page is one file that loads nothing: its columns are packed within it. The columns that the diagram draws are
separate from the rest, which is unpacked in pieces when a segment is selected. The browser decides which of many
segments it draws, by what the screen can show (templates/diagram_data.js).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import polars as pl
from markupsafe import Markup

from sojourn.report.shell import asset, policy, script_json, style, templates
from sojourn.timeline.marks import AGAIN, LOST, marks_of
from sojourn.timeline.packed import pack
from sojourn.timeline.perfetto import STAGES
from sojourn.timeline.tables import COLUMNS
from sojourn.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sojourn.timeline.marks import Marks
    from sojourn.timeline.packed import Block
    from sojourn.timeline.segments import Account
    from sojourn.timeline.source import Flow

    Joined = tuple[Flow, pl.DataFrame, Account]

ROWS_A_PIECE = 1 << 15
"""Rows of the joined table in one piece, which is unpacked when a segment is selected."""

TEXTS = ("limited_by", "tap_before", "emulator", "disposition", "cause", "tap_after", "lost_where")
THOUSANDTHS = ("srtt_us",)
"""Columns with a fraction: they are multiplied by 1000 and packed as integers."""

PARTS = ("drawn", "acks", "window", "sacks", "lost_acks")
"""The blocks of a flow that its diagram is drawn from."""

RECORDS = {
    "segment": ("seq", "payload_bytes", "ip_id"),
    "write call": ("write_ns", "write_end_ns", "write_number"),
    "sample when built": (
        *("sent_ns", "sent_cpu", "sent_number", "state", "ca_state", "snd_cwnd", "snd_ssthresh", "snd_wnd_bytes"),
        *("in_flight_bytes", "snd_queued_bytes", "pacing_rate_bps", "srtt_us", "limited_by"),
    ),
    "first tap": ("tap_before", "tap_before_ns", "tap_before_frame"),
    "emulator": (
        *("emulator", "emulator_number", "arrival_ns", "entered_ns", "queue_slots", "queue_bytes", "link_left_ns"),
        *("intended_ns", "departure_ns", "disposition", "cause", "marked"),
    ),
    "last tap": ("tap_after", "tap_after_ns", "tap_after_frame", "lost_where"),
    "receiver's sample": (
        *("received_ns", "received_cpu", "received_number", "rcv_wnd_bytes", "rcv_queued_bytes", "rcv_ooopack"),
    ),
    "acknowledgement": (
        *("ack_tap_after_ns", "ack_arrival_ns", "ack_departure_ns", "ack_tap_before_ns", "acked_ns", "acked_cpu"),
        "acked_number",
    ),
}
"""The records that can hold a segment, and their columns of the joined table."""


def write_page(joined: Sequence[Joined], file: BinaryIO, name: str, folders: Sequence[Path], block: int | None) -> int:
    """Write the page of these flows; return the number of its segments."""
    drawn = [(flow, segments, account) for flow, segments, account in joined if segments.height]
    blocks: list[tuple[str, Block]] = []
    flows = []
    for place, (flow, segments, account) in enumerate(drawn):
        marks = marks_of(flow, segments, folders, block)
        flows.append(_flow(f"f{place}", flow, marks, account, blocks))
    file.write(_page(name, flows, blocks).encode())
    return sum(segments.height for _, segments, _ in drawn)


def _page(name: str, flows: list[dict[str, Any]], blocks: list[tuple[str, Block]]) -> str:
    script = asset("diagram_data.js") + asset("diagram_canvas.js") + asset("diagram.js")
    early = [flows[0][part]["id"] for part in PARTS]
    facts = {
        "early": early,
        "flows": flows,
        "records": [{"name": name, "columns": [(one, COLUMNS[one]) for one in of]} for name, of in RECORDS.items()],
        "stages": list(STAGES.items()),
        "kinds": [one.replace("_", " ") for one in AGAIN],
        "losses": LOST,
    }
    return (
        templates()
        .get_template("diagram.html")
        .render(
            name=name,
            flows=flows,
            policy=policy([script]),
            style=Markup(style() + asset("diagram.css")),
            version=__version__,
            facts=Markup(script_json(facts)),
            # Base64. The page draws the first flow before the rest has loaded.
            early=[(id_, Markup(one.text)) for id_, one in blocks if id_ in early],
            later=[(id_, Markup(one.text)) for id_, one in blocks if id_ not in early],
            script=Markup(script),
        )
    )


def _flow(id_: str, flow: Flow, marks: Marks, account: Account, blocks: list[tuple[str, Block]]) -> dict[str, Any]:
    """Return the flow's facts that the page needs at once; append the packed columns to `blocks`."""
    rows = marks.segments
    begin = int(rows["sent_ns"][0])
    texts, whole = _numbers(rows, begin)

    def added(part: str, frame: pl.DataFrame) -> dict[str, Any]:
        block = pack(frame)
        blocks.append((f"{id_}-{part}", block))
        return block.head | {"id": f"{id_}-{part}"}

    def line(part: str, frame: pl.DataFrame) -> dict[str, Any]:
        return added(part, frame.with_columns(pl.col("time_ns") - begin))

    drawn = rows.select(
        (pl.col("sent_ns") - begin).alias("sent"),
        *("at", "payload_bytes", "delay_ns"),
        (pl.col("kind") + pl.col("lost") * 8).alias("mark"),
    )
    pieces = range(0, whole.height, ROWS_A_PIECE)
    return {
        "title": f"flow {flow.sender.flow}: {flow.sender.title}",
        "begin": str(begin),
        "texts": texts,
        "thousandths": THOUSANDTHS,
        "delayed_to": "receiver" if flow.receiver is not None else "acknowledgement",
        "sacks_seen_at": marks.sacks_seen_at,
        "account": account.sentences(),
        "files": _files(flow, rows),
        "drawn": added("drawn", drawn),
        "acks": line("acks", marks.acks),
        "window": line("window", marks.window),
        "sacks": line("sacks", marks.sacks),
        "lost_acks": line("lost-acks", marks.lost_acks),
        "pieces": [added(f"piece-{at}", whole.slice(at, ROWS_A_PIECE)) for at in pieces],
        "rows_a_piece": ROWS_A_PIECE,
    }


def _numbers(rows: pl.DataFrame, begin: int) -> tuple[dict[str, list[str]], pl.DataFrame]:
    """Return the joined table as integers: times relative to `sent_ns`, texts as indexes into their sorted texts."""
    texts: dict[str, list[str]] = {}
    columns = []
    for name in [one for of in RECORDS.values() for one in of]:
        if name in TEXTS:
            texts[name] = sorted(rows[name].drop_nulls().unique().to_list())
            places = {text: place for place, text in enumerate(texts[name])}
            columns.append(pl.col(name).replace_strict(places, default=None, return_dtype=pl.Int64))
        elif name in THOUSANDTHS:
            columns.append((pl.col(name).fill_nan(None) * 1000).round().cast(pl.Int64))
        elif name == "sent_ns":
            columns.append(pl.col(name) - begin)
        elif name.endswith("_ns"):
            columns.append(pl.col(name) - pl.col("sent_ns"))
        else:
            columns.append(pl.col(name).cast(pl.Int64))
    return texts, rows.select(columns)


def _files(flow: Flow, rows: pl.DataFrame) -> dict[str, str]:
    """Return the files that hold the rows of each record."""
    receiver = {} if flow.receiver is None else {"receiver's sample": flow.receiver.record}
    taps = {
        record: ", ".join(flow.taps.files.get(name, ()))
        for record, column in (("first tap", "tap_before"), ("last tap", "tap_after"))
        for name in rows[column].drop_nulls()[:1]
    }
    return {
        "sample when built": flow.sender.record,
        "acknowledgement": flow.sender.record,
        "emulator": ", ".join(flow.emulated),
        **taps,
        **receiver,
    }
