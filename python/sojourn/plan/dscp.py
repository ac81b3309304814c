"""Differentiated services code points and their names, from RFC 2474, 2597, 3246 and 8622."""

from __future__ import annotations

from sojourn.plan.values import Reader

MOST = 63
NAMES = (
    {"BE": 0, "LE": 1, "EF": 46, "VA": 44}
    | {f"CS{number}": 8 * number for number in range(1, 8)}
    | {f"AF{kind}{drop}": 8 * kind + 2 * drop for kind in range(1, 5) for drop in range(1, 4)}
)
EXPECTED = 'a DSCP: "BE", "LE", "EF", "CS1" to "CS7", "AF11" to "AF43" or a number from 0 to 63'


def code_of(word: str) -> int | None:
    """Return the code point of a name or a number; None if there is none."""
    if word in NAMES:
        return NAMES[word]
    if word == "CS0":
        return 0
    return int(word) if word.isascii() and word.isdecimal() and int(word) <= MOST else None


def name_of(code: int) -> str:
    """Return the name of a code point, or its number if it has none."""
    return next((name for name, number in NAMES.items() if number == code), str(code))


def code_point() -> Reader:
    """Return the reader of a code point, which is written by its name."""
    return Reader(lambda value: code_of(value) if isinstance(value, str) else None, EXPECTED, name_of)
