"""Readers of single values: each takes what TOML or `--set` gave and returns what the plan holds, or None if wrong.

Every reader knows the words for what it expected. Relations between values are not its business (plan/check.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|min)")


@dataclass(frozen=True, slots=True)
class Reader:
    """Turns a raw value into the plan's, or into None."""

    read: Callable[[Any], Any]
    expected: str


def text() -> Reader:
    """Any text."""
    return Reader(lambda value: value if isinstance(value, str) else None, "text in quotes")


def flag() -> Reader:
    """True or false."""
    return Reader(lambda value: value if isinstance(value, bool) else None, "true or false")


def whole(least: int, most: int) -> Reader:
    """A whole number within bounds; TOML's booleans are not numbers here."""

    def read(value: Any) -> int | None:
        number = isinstance(value, int) and not isinstance(value, bool)
        return value if number and least <= value <= most else None

    return Reader(read, f"a whole number from {least} to {most}")


def number(least: float, most: float) -> Reader:
    """A number within bounds, whole or not."""

    def read(value: Any) -> float | None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number and least <= value <= most else None

    return Reader(read, f"a number from {least:g} to {most:g}")


def one_of(*words: str) -> Reader:
    """One of a few words."""
    return Reader(lambda value: value if value in words else None, " or ".join(f'"{word}"' for word in words))


def matching(pattern: str, expected: str) -> Reader:
    """A text of a given shape."""
    shape = re.compile(pattern)
    return Reader(lambda value: value if isinstance(value, str) and shape.fullmatch(value) else None, expected)


def duration(least_ns: int, most_ns: int) -> Reader:
    """A time with its unit, as whole nanoseconds."""

    def read(value: Any) -> int | None:
        found = DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
        if not found:
            return None
        nanos = Decimal(found[1]) * UNITS_NS[found[2]]
        return int(nanos) if nanos == int(nanos) and least_ns <= nanos <= most_ns else None

    bounds = f'between "{as_duration(least_ns)}" and "{as_duration(most_ns)}"'
    return Reader(read, f'a time with its unit, such as "1ms", "500us" or "1s", {bounds}')


def as_duration(nanos: int) -> str:
    """The shortest exact form: 1500000 -> "1500us"."""
    for unit in ("s", "ms", "us"):
        if nanos % UNITS_NS[unit] == 0:
            return f"{nanos // UNITS_NS[unit]}{unit}"
    return f"{nanos}ns"


def word_or(word: str, meaning: Any, other: Reader) -> Reader:
    """A word with a meaning of its own, or anything that the other reader takes."""
    return Reader(lambda value: meaning if value == word else other.read(value), f'"{word}" or {other.expected}')


class Auto:
    """What "auto" reads as, since None means refused."""


AUTO = Auto()


def auto_or(other: Reader) -> Reader:
    """The word "auto", or a value."""
    return word_or("auto", AUTO, other)


def list_of(item: Reader, *, may_be_empty: bool = False) -> Reader:
    """A list without repetition; a single value stands for a list of one."""

    def read(value: Any) -> tuple[Any, ...] | None:
        items = tuple(item.read(one) for one in (value if isinstance(value, list) else [value]))
        good = all(one is not None for one in items) and len(set(items)) == len(items)
        return items if good and (items or may_be_empty) else None

    return Reader(read, f"a list, each at most once, of: {item.expected}")
