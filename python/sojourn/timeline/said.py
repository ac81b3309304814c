"""What `why` says, and the rows of records that it rests on; numbers of rows as a person reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

MS = 1e6
INCONCLUSIVE = "inconclusive"

NEARLY_ALL = 0.8
"""Of the losses, for their cause to be the cause."""

TARGET_NS = 5_000_000
"""Of CoDel (RFC 8289): a queue whose least delay over an interval is above it stands."""

SHORT_OF_ROUND = 0.5
"""A queue that holds less of a round trip than this leaves the link idle after each reduction of a window by 30 %
(CUBIC, RFC 9438: 0.43 of a round trip) or by half (Reno: a whole one)."""

MOST_BEHIND_POLICER = 2.5
"""Segments' times that none waits longer at a policer: it has no queue, or one of a packet."""

LEAST_PACKETS = 5


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a record: the file, and which."""

    file: str
    rows: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """What is said, and what it rests on."""

    text: str
    records: tuple[Rows, ...]


def spans(numbers: pl.Series) -> str:
    """Numbers as a person reads them: the span, and how many of it."""
    there = numbers.unique().sort()
    if there.len() <= 3:
        return ", ".join(str(one) for one in there)
    first, last = int(there[0]), int(there[-1])
    whole = last - first + 1 == there.len()
    return f"{first} to {last}" if whole else f"{first} to {last} ({there.len()} of them)"
