"""A figure that another tool reported, with its kind and statistic, in our units; and one of ours. Knows no tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.errors import spelled

if TYPE_CHECKING:
    from collections.abc import Mapping

ROUND_TRIP, ONE_WAY, JITTER, RATE, LOSS = "round-trip time", "one-way delay", "jitter", "throughput", "loss"
UNITS = {ROUND_TRIP: "ns", ONE_WAY: "ns", JITTER: "ns", RATE: "bit/s", LOSS: "1"}
"""The kinds in the order of the table, each with the unit of its values."""


def plain(words: str) -> str:
    """Return the text with its control characters spelled out, safe for a terminal or a page."""
    return "".join(map(spelled, words))


@dataclass(frozen=True, slots=True)
class Theirs:
    """One figure of a result file."""

    kind: str
    of: str
    """What the figure describes, in the tool's own words."""
    statistic: str
    value: float
    n: int | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The content of one result file."""

    name: str
    tool: str
    figures: tuple[Theirs, ...]


@dataclass(frozen=True, slots=True)
class Ours:
    """A result row of the run that is of the same kind as figures of other tools."""

    kind: str
    of: str
    """What the figure describes: its path, and what of it."""
    statistic: str
    row: Mapping[str, Any]
