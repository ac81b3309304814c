"""The output of a conversion: a new file or standard output; complete, or not written at all.

A symbolic link is refused; one that appears during the conversion is replaced, not followed.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

from sojourn.errors import RequestError
from sojourn.records.whole_file import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import polars as pl


@dataclass
class Told:
    """The result of a conversion: the output, the number of records, and sentences that a person must read."""

    where: str
    records: int = 0
    sentences: list[str] = field(default_factory=list)
    cut: bool = False
    """Whether the log is truncated."""


def refuse_existing(path: Path | None, *, force: bool) -> None:
    """Raise RequestError before any work if the output exists."""
    if path is None or not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_file():  # root would replace even /dev/null
        raise RequestError(f"{path} is no ordinary file: give another name with -o")
    if force:
        return
    raise RequestError(f"{path} is there already: give another name with -o, or --force to write it anew")


def write_text(frame: pl.DataFrame, file: BinaryIO, **how: Any) -> None:
    """Write a frame's rows as CSV without a header, through memory: a full disk or a closed pipe then raises Python's
    own error, which names the cause."""
    octets = io.BytesIO()
    frame.write_csv(octets, include_header=False, **how)
    file.write(octets.getbuffer())


@contextmanager
def writing(path: Path | None) -> Iterator[BinaryIO]:
    """Open the file `path`, or standard output where it is None."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if not path.parent.is_dir():
        raise RequestError(f"{path.parent} is no folder: make it, or name another place with -o")
    with whole_file(path) as file:
        yield file
