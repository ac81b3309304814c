"""Readers of single values: each takes a value of TOML or `--set` and returns the plan's, or None if it is wrong.

Every reader has a description of what it expects, and writes its value back. Relations between values are checked
elsewhere (each method's checks).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sojourn.errors import nearest
from sojourn.units import as_duration, nanoseconds, width

if TYPE_CHECKING:
    from collections.abc import Callable


def plain(value: Any) -> Any:
    """Return a tuple as a list, as in TOML; any other value unchanged."""
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Reader:
    """Converts a raw value to the plan's, or None; and the plan's value to that in a plan file."""

    read: Callable[[Any], Any]
    expected: str
    write: Callable[[Any], Any] = plain
    choices: tuple[str, ...] = ()
    """The allowed words, so that a misspelt one can be corrected."""

    def expected_for(self, value: Any) -> str:
        """Return what was expected, and the word that was probably meant."""
        for word in value if isinstance(value, list) else [value]:
            if isinstance(word, str) and word not in self.choices and (meant := self._meant_by(word)):
                return f'{self.expected}: did you mean "{meant}"?'
        return self.expected

    def _meant_by(self, word: str) -> str | None:
        """Return the present name of an earlier choice, or the choice with the most similar spelling."""
        from sojourn.records.earlier import VALUES  # only a refusal needs it

        return today if (today := VALUES.get(word)) in self.choices else nearest(word, self.choices)


def text() -> Reader:
    """Return the reader of any text."""
    return Reader(lambda value: value if isinstance(value, str) else None, "text in quotes")


def flag() -> Reader:
    """Return the reader of true or false."""
    return Reader(lambda value: value if isinstance(value, bool) else None, "true or false")


def whole(least: int, most: int) -> Reader:
    """Return the reader of a whole number within bounds; TOML's booleans are not numbers here."""

    def read(value: Any) -> int | None:
        number = isinstance(value, int) and not isinstance(value, bool)
        return value if number and least <= value <= most else None

    return Reader(read, f"a whole number from {least} to {most}")


def number(least: float, most: float) -> Reader:
    """Return the reader of a number within bounds, whole or not."""

    def read(value: Any) -> float | None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number and least <= value <= most else None

    return Reader(read, f"a number from {least:g} to {most:g}")


def one_of(*words: str) -> Reader:
    """Return the reader of one of a few words."""
    expected = " or ".join(f'"{word}"' for word in words)
    return Reader(lambda value: value if value in words else None, expected, choices=words)


def matching(pattern: str, expected: str) -> Reader:
    """Return the reader of a text that matches a pattern."""
    shape = re.compile(pattern)
    return Reader(lambda value: value if isinstance(value, str) and shape.fullmatch(value) else None, expected)


def duration(least_ns: int, most_ns: int) -> Reader:
    """Return the reader of a time with its unit, in whole nanoseconds."""

    def read(value: Any) -> int | None:
        nanos = nanoseconds(value) if isinstance(value, str) else None
        return int(nanos) if nanos is not None and nanos == int(nanos) and least_ns <= nanos <= most_ns else None

    bounds = f'between "{as_duration(least_ns)}" and "{as_duration(most_ns)}"'
    return Reader(read, f'a time with its unit, such as "1ms", "500us" or "1s", {bounds}', as_duration)


def half_width() -> Reader:
    """Return the reader of half the width of an interval, a share or a time; kept as written, with its sign."""

    def read(value: Any) -> str | None:
        is_width = isinstance(value, str) and width(value) is not None
        return "±" + value.strip().lstrip("±+/- ") if is_width else None

    return Reader(read, 'half the width of an interval, such as "±5%" or "±0.1us"')


def word_or(word: str, meaning: Any, other: Reader) -> Reader:
    """Return the reader of a word with a meaning of its own, or of whatever `other` reads."""
    return replace(
        other,
        read=lambda value: meaning if value == word else other.read(value),
        expected=f'"{word}" or {other.expected}',
        write=lambda value: word if value == meaning else other.write(value),
        choices=(*other.choices, word),
    )


class Auto:
    """The value of "auto", since None means refused; the plan then holds None."""


AUTO = Auto()


def auto_or(other: Reader) -> Reader:
    """Return the reader of the word "auto", or a value."""
    return replace(word_or("auto", AUTO, other), write=lambda value: "auto" if value is None else other.write(value))


def list_of(item: Reader, *, may_be_empty: bool = False) -> Reader:
    """Return the reader of a list without repetition; a single value is a list of one."""

    def read(value: Any) -> tuple[Any, ...] | None:
        items = tuple(item.read(one) for one in (value if isinstance(value, list) else [value]))
        good = all(one is not None for one in items) and len(set(items)) == len(items)
        return items if good and (items or may_be_empty) else None

    expected = f"a list of different values, each {item.expected}"
    return replace(item, read=read, expected=expected, write=lambda value: [item.write(one) for one in value])
