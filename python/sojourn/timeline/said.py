"""The sentences of `why`, and the rows of records that they rest on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

MS = 1e6
INCONCLUSIVE = "inconclusive"

NEARLY_ALL = 0.8
"""The least share of the losses that must have one cause."""

TARGET_NS = 5_000_000
"""CoDel's target (RFC 8289): a queue whose least delay over an interval exceeds it is a standing queue."""

SHORT_OF_ROUND = 0.5
"""A queue shorter than this share of a round trip lets the link idle after each reduction of the window: by 30 %
(CUBIC, RFC 9438: 0.43 of a round trip is needed) or by half (Reno: a whole one)."""

MOST_BEHIND_POLICER = 2.5
"""The longest wait at a policer, in segment times: a policer has no queue, or one of a packet."""

LEAST_PACKETS = 5


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a record: the file, and which rows."""

    file: str
    rows: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """A statement, and the records that it rests on."""

    text: str
    records: tuple[Rows, ...]


def spans(numbers: pl.Series) -> str:
    """Return row numbers for a person: their span and, if it has gaps, their count."""
    there = numbers.unique().sort()
    if there.len() <= 3:
        return ", ".join(str(one) for one in there)
    first, last = int(there[0]), int(there[-1])
    whole = last - first + 1 == there.len()
    return f"{first} to {last}" if whole else f"{first} to {last} ({there.len()} of them)"
