"""Fetch files that programs on a real host write, as they grow, and compare their hashes. It trusts no host."""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from sojourn.bed import keeper
from sojourn.bed.bounded import MOST_BYTES
from sojourn.bed.ssh import TooMuchError
from sojourn.errors import MachineError
from sojourn.records.whole_file import sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sojourn.bed.remote import RemoteMachine

Part = tuple[str, int, int]
"""A file, and the bytes of it from one place to before another."""
AT_ONCE_BYTES = MOST_BYTES

_RECORD = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)
_SIZE = re.compile(r" *(\d{1,15}) \./(.+)")


class Fetched(NamedTuple):
    """A folder of a host, and the folder here for its files."""

    machine: RemoteMachine
    there: str
    local: Path
    sizes: dict[str, int]
    """The fetched size of each file."""


def fetch(one: Fetched) -> None:
    """Fetch the new part of a folder's files; a part whose hash differs from the host's is fetched again, once."""
    sizes = _sizes(one)
    for gone in one.sizes.keys() - sizes.keys():
        _place(one, gone).unlink(missing_ok=True)
        del one.sizes[gone]
    for attempt in range(2):
        wanted = [
            (name, one.sizes.get(name, 0) if size >= one.sizes.get(name, 0) else 0, size)
            for name, size in sizes.items()
        ]
        wanted = [(name, at, size) for name, at, size in wanted if size != one.sizes.get(name)]
        if not wanted:
            return
        if all(_fetch_parts(one, parts) for parts in _at_once(wanted)):
            return
        if attempt:
            raise _otherwise(one)


def _at_once(wanted: Sequence[Part]) -> Iterator[list[Part]]:
    """Yield parts that are fetched together: a host that says how long its files are fills no memory."""
    together, bytes_of = list[Part](), 0
    for name, begin, end in wanted:
        # A file that has become empty is one part, of no bytes.
        for at in range(begin, max(end, begin + 1), AT_ONCE_BYTES):
            until = min(end, at + AT_ONCE_BYTES)
            if together and bytes_of + until - at > AT_ONCE_BYTES:
                yield together
                together, bytes_of = [], 0
            together.append((name, at, until))
            bytes_of += until - at
    yield together


def _fetch_parts(one: Fetched, wanted: Sequence[Part]) -> bool:
    """Fetch some parts, and keep those whose hash is the host's; return whether all are."""
    asked = "".join(f"{begin} {end - begin} {name}\n" for name, begin, end in wanted)
    most_bytes = sum(end - begin for _, begin, end in wanted)
    script = [*one.machine.root, "sh", "-c"]
    try:
        got = one.machine.line.run_bytes([*script, keeper.FETCH, "sh", one.there], asked.encode(), 3600, most_bytes)
    except TooMuchError as error:
        raise _otherwise(one) from error
    sums = one.machine.line.run([*script, keeper.SUMS, "sh", one.there], asked, 3600).splitlines()
    return _keep(one, wanted, got, sums)


def _otherwise(one: Fetched) -> MachineError:
    return MachineError(f"{one.machine}: records came otherwise than they are there: is its disk sound?")


def _keep(one: Fetched, wanted: Sequence[Part], got: bytes, sums: Sequence[str]) -> bool:
    """Write the received parts to their files and sync them; return whether every hash matches."""
    named: set[Path] = set()
    at, good = 0, len(sums) == len(wanted)
    for (name, begin, size), digest in zip(wanted, sums, strict=False):
        part = got[at : at + size - begin]
        at += size - begin
        if hashlib.sha256(part).hexdigest() != digest.partition(" ")[0]:
            good = False
            continue
        path = _place(one, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if begin else "wb") as file:
            file.seek(begin)
            file.write(part)
            file.flush()
            os.fsync(file.fileno())
        if not begin:
            named.update(folder for folder in path.parents if folder.is_relative_to(one.local))
        one.sizes[name] = size
    for folder in sorted(named, reverse=True):
        sync_folder(folder)
    return good


def _sizes(one: Fetched) -> dict[str, int]:
    """Return the files of a folder on the host with their sizes; `wc` adds a line for all.

    The output is not trusted.
    """
    said = one.machine.line.run([*one.machine.root, "sh", "-c", keeper.SIZES, "sh", one.there])
    found: dict[str, int] = {}
    for row in said.split("\n"):
        if not row or row.endswith(" total"):
            continue
        words = _SIZE.fullmatch(row)
        if words is None or not _is_record(words[2]):
            raise MachineError(f"{one.machine}: {row.strip()[:200]!r} is no record's size and name: nothing is fetched")
        found[words[2]] = int(words[1])
    return found


def _is_record(name: str) -> bool:
    """Return whether a file of this name stays inside the folder that it is fetched to."""
    return _RECORD.fullmatch(name) is not None and not {".", ".."} & set(name.split("/"))


def _place(one: Fetched, name: str) -> Path:
    """Return the path here of a host's file; refuses symbolic links on the way."""
    path = one.local
    for part in name.split("/"):
        path /= part
        if path.is_symlink():
            raise MachineError(f"{path} is a symbolic link: a record of {one.machine} is not written through it")
    return path
