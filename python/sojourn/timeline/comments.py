"""Write a capture of the run as pcapng, with each data packet's row of the joined table as its comment.

The capture is the first tap that saw the flow. Every block is copied unchanged; the files of a tap follow one another,
each as its own section. A packet that the kernel merged from several segments has one comment line for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from sojourn.errors import RequestError
from sojourn.records.pcap import CutError, read_capture, tcp_of, write_block
from sojourn.timeline.pairs import WRAP
from sojourn.timeline.source import digits
from sojourn.timeline.tables import COLUMNS, NAMES
from sojourn.timeline.taps import tap_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from sojourn.records.pcap import Segment
    from sojourn.timeline.perfetto import Joined

    Ends = tuple[str, int, str, int]
    Lines = dict[tuple[Ends, int], list[tuple[int, str]]]

RELATIVE = tuple(name for name in COLUMNS if name.endswith("_ns") and name != "sent_ns")


def write_commented(joined: Sequence[Joined], file: BinaryIO, folders: Sequence[Path], block: int | None = None) -> int:
    """Write the capture; return the number of segments in comments."""
    files = tap_files(folders, block)
    if not files:
        raise RequestError(
            f"no capture (pcapng, pcap) is in {', '.join(map(str, folders))}: name its folder with --records, or write "
            "another format"
        )
    tap = _first_tap(joined)
    if tap is None:
        raise RequestError(f"no packet with data of these flows is in the captures ({files[0][1]})")
    lines: Lines = {}
    for one in joined:
        _add_lines(one, tap, lines)
    count = 0
    for name, path in files:
        if name == tap:
            count += _write(path, joined[0][0].sender.log.minus_utc_ns, lines, file)
    return count


def _first_tap(joined: Sequence[Joined]) -> str | None:
    for _, segments, _ in joined:
        for tap in segments["tap_before"].drop_nulls()[:1]:
            return str(tap)
    return None


def _add_lines(one: Joined, tap: str, lines: Lines) -> None:
    """Add the segments that the tap saw, by addresses and tap time: the first byte and the comment line of each."""
    flow, segments, _ = one
    ends = flow.sender.ends
    way = (digits(ends["local_address"]), ends["local_port"], digits(ends["remote_address"]), ends["remote_port"])
    for row in segments.iter_rows(named=True):
        for side in ("tap_before", "tap_after"):
            if row[side] == tap:
                lines.setdefault((way, row[f"{side}_ns"]), []).append((row["seq"], line_of(row)))
                break


def line_of(row: dict[str, Any]) -> str:
    """Return the known columns of a segment in the order of its path; times after the first are relative to
    `sent_ns`, and states have their names."""
    told = []
    for name in COLUMNS:
        value = row[name]
        if value is None or value == "":
            continue
        if name in RELATIVE:
            told.append(f"{name}={value - row['sent_ns']:+d}")
        else:
            told.append(f"{name}={NAMES[name][1].get(value, value) if name in NAMES else value}")
    return "sojourn: " + " ".join(told)


def _write(path: Path, later_ns: int, lines: Lines, file: BinaryIO) -> int:
    count = 0
    try:
        for block in read_capture(path):
            found: list[str] = []
            if block.at_ns is not None and (segment := tcp_of(block)) is not None:
                of_moment = lines.get((segment[:4], block.at_ns + later_ns), [])
                found = [text for seq, text in of_moment if _holds(segment, seq)]
            write_block(file, block, "\n".join(found) if found else None)
            count += len(found)
    except CutError:
        return count  # the capture was cut within a packet: the tap's accounting omits that packet too
    return count


def _holds(segment: Segment, seq: int) -> bool:
    return (seq - segment.seq) % WRAP < segment.payload_bytes
