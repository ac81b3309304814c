"""A figure of another tool: of what kind, which statistic, in our units. Knows no tool."""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.errors import spelled

ROUND_TRIP, ONE_WAY, JITTER, RATE, LOSS = "round-trip time", "one-way delay", "jitter", "throughput", "loss"
UNITS = {ROUND_TRIP: "ns", ONE_WAY: "ns", JITTER: "ns", RATE: "bit/s", LOSS: "1"}
"""Kinds in the order of the table, each with the unit of its values."""


def plain(words: str) -> str:
    """Somebody's words without what a terminal or a page would obey."""
    return "".join(map(spelled, words))


@dataclass(frozen=True, slots=True)
class Theirs:
    """One figure of a file."""

    kind: str
    of: str
    """What it is of, in the tool's own words."""
    statistic: str
    value: float
    n: int | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What one file says."""

    name: str
    tool: str
    figures: tuple[Theirs, ...]
