"""Targets of several small readers: the first byte of the input chooses one, as in tests/fuzz/src/chosen.rs.

New readers are added at the end, so that the seeds keep theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Reader:
    """A reader of some bytes, and whole examples of them."""

    read: Callable[[bytes], object]
    examples: tuple[bytes, ...]


def one_of(readers: Sequence[Reader]) -> Callable[[bytes], None]:
    """Return a reader of inputs whose first byte chooses one of these readers."""

    def read(octets: bytes) -> None:
        if octets:
            readers[octets[0] % len(readers)].read(octets[1:])

    return read


def examples(readers: Sequence[Reader]) -> list[bytes]:
    """Return the examples of all readers, each behind the byte that chooses its reader."""
    return [bytes([place]) + one for place, reader in enumerate(readers) for one in reader.examples]
