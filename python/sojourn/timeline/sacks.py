"""The SACK blocks of a flow's acknowledgements (RFC 2018), from captured headers: no sample of TCP's state has them.

Reads the capture of the tap nearest to the sender, else the frame heads in an emulator's log. Without either, no blocks
are known.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import polars as pl

from sojourn.records import read_table
from sojourn.records.pcap import ETHERNET, PACKET, Block, read_packets, tcp_of
from sojourn.timeline.frames import with_segments
from sojourn.timeline.source import OF_FRAMES, digits, of_flow, records_of
from sojourn.timeline.taps import tap_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sojourn.records.pcap import Segment
    from sojourn.timeline.source import Flow

END, NOTHING, SACK = 0, 1, 5
"""Kinds of TCP's options."""

SCHEMA = {"time_ns": pl.Int64, "low": pl.Int64, "high": pl.Int64}


def sack_blocks(folders: Sequence[Path], flow: Flow, tap: str | None, block: int | None = None) -> pl.DataFrame:
    """Return one row per block in the order of time: when its packet was seen on its way back, and its two edges.

    `tap` names the capture; None: the emulators' logs.
    """
    seen = _in_log(folders, flow, block) if tap is None else _at_tap(folders, flow, tap)
    rows = [(at, *edges) for at, segment in seen for edges in blocks_of(segment.options)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("time_ns", maintain_order=True)


def blocks_of(options: bytes) -> list[tuple[int, int]]:
    """Return the SACK blocks in TCP's options; a malformed option ends the parsing."""
    at = 0
    while at < len(options) and options[at] != END:
        if options[at] == NOTHING:
            at += 1
            continue
        length = options[at + 1] if at + 1 < len(options) else 0
        if length < 2 or at + length > len(options):
            break
        if options[at] == SACK:
            return [struct.unpack_from(">II", options, place) for place in range(at + 2, at + length - 7, 8)]
        at += length
    return []


def _at_tap(folders: Sequence[Path], flow: Flow, tap: str) -> Iterator[tuple[int, Segment]]:
    ends, later = flow.sender.ends, flow.sender.log.minus_utc_ns
    back = (digits(ends["remote_address"]), ends["remote_port"], digits(ends["local_address"]), ends["local_port"])
    for name, path in tap_files(folders):
        if name != tap:
            continue
        for one in read_packets(path):
            segment = tcp_of(one)
            if segment is not None and segment[:4] == back and one.at_ns is not None:
                yield one.at_ns + later, segment


def _in_log(folders: Sequence[Path], flow: Flow, block: int | None) -> Iterator[tuple[int, Segment]]:
    source = digits(flow.sender.ends["remote_address"])
    blocks = None if block is None else {block}
    for folder in folders:
        packets = with_segments(read_table(records_of(folder), "packets", blocks, OF_FRAMES).frame)
        mine = of_flow(packets, flow.sender.ends).filter(
            pl.col("source") == source, pl.col("sport") == flow.sender.ends["remote_port"],
            pl.col("departure_ns").is_not_null(), pl.col("copy_of").is_null(),
        )  # fmt: skip
        for at, head, length in mine.select("departure_ns", "head", "frame_bytes").iter_rows():
            segment = tcp_of(Block(b"", "<", PACKET, at, ETHERNET, head, length))
            if segment is not None:
                yield at, segment
