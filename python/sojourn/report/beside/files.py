"""Read a result file of iperf3, irtt, sockperf or flent. The content is untrusted: its size is bounded.

A file of an unknown format, a damaged file and a file without a figure raise RequestError. Judges no figure.
"""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING

from sojourn.errors import RequestError
from sojourn.records.decode import json_value
from sojourn.report.beside import tools
from sojourn.report.beside.figure import ToolResult, plain

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 256 << 20
"""The most bytes of an unpacked file: ten million lines of sockperf."""

GZIP = b"\x1f\x8b"


def read_result(path: Path) -> ToolResult:
    """Return the figures in a result file of another tool."""
    try:
        with path.open("rb") as file:
            octets = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror}") from error
    return result_of(octets, path.name)


def result_of(octets: bytes, name: str) -> ToolResult:
    """Return the figures in the content of a file; error messages call it `name`."""
    words = _unpacked(octets, name)
    if len(words) > MOST_BYTES:
        raise RequestError(f"{name}: more than {MOST_BYTES >> 20} MiB: nothing of it is read")
    tool, figures = tools.of_csv(words) if tools.is_csv(words) else tools.of_json(_json(words, name))
    if tool is None:
        wanted = "iperf3 -J, irtt -o, sockperf --full-log or flent (.flent.gz)"
        raise RequestError(f"{name}: no result file that is known: expected one of {wanted}")
    if not figures:
        raise RequestError(f"{name}: a file of {tool} without a figure: did the test fail?")
    return ToolResult(plain(name)[:80], tool, tuple(figures))


def _unpacked(octets: bytes, name: str) -> bytes:
    if not octets.startswith(GZIP):
        return octets
    decompressor = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        return decompressor.decompress(octets, MOST_BYTES + 1)
    except (zlib.error, gzip.BadGzipFile, EOFError) as error:
        raise RequestError(f"{name}: damaged as gzip: {error}") from error


def _json(words: bytes, name: str) -> object:
    try:
        found: object = json_value(words.decode())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RequestError(f"{name}: neither JSON nor a log of sockperf: {str(error)[:120]}") from error
    return found
