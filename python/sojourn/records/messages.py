"""What reading an Arrow stream takes of memory, by the headers of its messages; no row is read.

Uncompressed columns are mapped, and so no larger than their file. A compressed one says how long it is, which Arrow
allocates: a few MB can say terabytes. Headers are flatbuffers, of which this reads what the formats of Arrow's IPC
(Message.fbs) call Message, RecordBatch, DictionaryBatch and BodyCompression. A header that is malformed ends the look:
Arrow refuses it.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from typing import TYPE_CHECKING

from sojourn.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 64 << 30
"""The most bytes that the rows of a file that is read at once may have uncompressed; 10⁷ samples of TCP have 6 GB."""

MOST_BYTES_AT_ONCE = 4 << 30
"""The same of one batch; ours have 65,536 rows at most, and so 40 MB."""

COMPRESSED = frozenset({"tcp_samples", "tcp_private", "tcp_flows", "tcp_account", "tcp_gaps", "crossings", "unmatched"})
"""The tables that instruments compress (crates/record/src/files), all by LZ4."""

_DICTIONARY, _BATCH = 2, 3
_LZ4 = 0


def refuse_unpackable(path: Path, name: str, *, at_once: bool = False) -> None:
    """Raise RequestError if rows of the table `name` are compressed and never are, or are too long uncompressed.

    Of a file that is read batch by batch, and not `at_once`, only each batch is limited.
    """
    # Without O_NONBLOCK a pipe that somebody has put there is waited for.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise RequestError(f"{path} is damaged: it is no ordinary file")
        if not found.st_size:
            return
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as octets:
            try:
                why = _unpackable(octets, name, at_once=at_once)
            except struct.error:
                return
    if why is not None:
        raise RequestError(f"{path} is damaged: {why}")


def _unpackable(octets: mmap.mmap, name: str, *, at_once: bool) -> str | None:
    at, total, end = 0, 0, len(octets)
    while at + 8 <= end:
        head, about = struct.unpack_from("<Ii", octets, at)
        at += 8
        if head != 0xFFFFFFFF:  # before version 0.15 of Arrow there was no such word
            at, about = at - 4, head
        if about <= 0 or about > end - at:
            return None
        message = _table(octets, at)
        body = _number(octets, message, 3, "<q")
        batch = _batch_of(octets, message)
        at += about
        if batch:
            if (why := _unusual(octets, message, batch, name)) is not None:
                return why
            length = _unpacked(octets, batch, at) if _field(octets, batch, 3) else 0
            total += length
            if length > MOST_BYTES_AT_ONCE or (at_once and total > MOST_BYTES):
                most = MOST_BYTES_AT_ONCE if length > MOST_BYTES_AT_ONCE else MOST_BYTES
                return f"uncompressed its rows have more than {most >> 30} GiB"
        if body < 0:
            return None
        at += body
    return None


def _unusual(octets: mmap.mmap, message: int, batch: int, name: str) -> str | None:
    """Return why a message with a batch is none of an instrument's."""
    if _field(octets, message, 4):
        # Arrow takes compression from here, too, if the message is of the fourth version (Arrow 0.17).
        return "a batch has metadata of its own, which those of instruments never have"
    if not (packed := _field(octets, batch, 3)):
        return None
    if name not in COMPRESSED:
        return "its rows are compressed, which those of this table never are"
    if _number(octets, _table(octets, packed), 0, "<b") != _LZ4:
        return "its rows are compressed by something else than LZ4"
    return None


def _batch_of(octets: mmap.mmap, message: int) -> int:
    """Return the place of a message's record batch, also of a dictionary's; 0 if it has none."""
    kind, header = _number(octets, message, 1, "<B"), _field(octets, message, 2)
    if kind not in {_BATCH, _DICTIONARY} or not header:
        return 0
    batch = _table(octets, header)
    if kind == _BATCH:
        return batch
    rows = _field(octets, batch, 1)
    return _table(octets, rows) if rows else 0


def _unpacked(octets: mmap.mmap, batch: int, body: int) -> int:
    """Return the length of a compressed batch's buffers: each begins with its own, -1 if it is not compressed."""
    buffers = _field(octets, batch, 2)
    if not buffers:
        return 0
    place = _table(octets, buffers)
    (count,) = struct.unpack_from("<I", octets, place)
    total = 0
    for number in range(count):
        start, length = struct.unpack_from("<qq", octets, place + 4 + 16 * number)
        if length >= 8 and 0 <= start <= len(octets) - body - 8:
            (unpacked,) = struct.unpack_from("<q", octets, body + start)
            total += max(unpacked, 0)
    return total


def _table(octets: mmap.mmap, place: int) -> int:
    """Return the place of what a field leads to."""
    return place + int(struct.unpack_from("<I", octets, place)[0])


def _field(octets: mmap.mmap, table: int, number: int) -> int:
    """Return the place of a table's field; 0 if it is absent."""
    about = table - int(struct.unpack_from("<i", octets, table)[0])
    if about < 0:
        raise struct.error("a table's layout is before the file")
    (size,) = struct.unpack_from("<H", octets, about)
    if 4 + 2 * number + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", octets, about + 4 + 2 * number)
    return table + offset if offset else 0


def _number(octets: mmap.mmap, table: int, number: int, kind: str) -> int:
    """Return a number of a table; 0 if it is absent."""
    place = _field(octets, table, number)
    return int(struct.unpack_from(kind, octets, place)[0]) if place else 0
