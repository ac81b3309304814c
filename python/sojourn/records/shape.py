"""Shapes of untrusted JSON values: declared as values themselves, and checked in one place.

A table declares its members by name, an array has one element that stands for all, a tuple lists alternatives, and
anything else is a kind. Members that a table does not declare may be anything: nothing reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sojourn.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

EACH: Final = "*"
"""Instead of a name: every member without a shape of its own."""

NEEDED: Final = ""
"""Instead of a name: the required members."""

ONLY: Final = "!"
"""Instead of a name: the only allowed members; others are refused."""

NUMBERED: Final = "#"
"""Instead of a name: every member's name is a whole number."""

MOST_INT64, MOST_INT32 = 2**63 - 1, 2**31 - 1
"""The maxima of the columns of records and results."""

MOST_UINT64 = 2**64 - 1
"""The maximum of what an instrument counts or is configured with."""

LEAST_NUMBER: Final = 1e-30
"""Numbers closer to zero, other than zero, have no meaning here, nor has their inverse."""

LONGEST_NUMBER: Final = 9
"""The most digits of a whole number in a text: 32 bits can hold it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of values without parts."""

    said: str
    fits: Callable[[Any], bool]


def within(least: int, most: int) -> Callable[[Any], bool]:
    """Return a check for a whole number within bounds."""
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MOST_INT64:
        return False
    return value == 0 or abs(value) >= LEAST_NUMBER


def _inside(value: Any) -> bool:
    """Return whether a path stays below the folder that it is joined to."""
    return isinstance(value, str) and "\0" not in value and not value.startswith("/") and ".." not in value.split("/")


def is_whole_text(text: str) -> bool:
    """Return whether a text is a whole number of reasonable length, with an optional sign."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) <= LONGEST_NUMBER


TEXT = Kind("a text", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
INTEGER = Kind("a whole number of 64 bits", within(-MOST_INT64, MOST_INT64))
COUNT = Kind("a count", within(0, MOST_INT64))
SEVERAL = Kind("a count of one or more", within(1, MOST_INT64))
UNSIGNED = Kind("a count of 64 bits", within(0, MOST_UINT64))
PERIOD = Kind("a count of one or more, of 64 bits", within(1, MOST_UINT64))
INDEX = Kind("a whole number of 32 bits", within(-MOST_INT32, MOST_INT32))
PLACE = Kind("a number from 0 on, of 32 bits", within(0, MOST_INT32))
NUMBER = Kind("a number", _finite)
POSITIVE = Kind("a number above zero", lambda value: _finite(value) and value > 0)
POINT = Kind(
    "a share from 0 to 1 and a number",
    lambda value: isinstance(value, list) and len(value) == 2 and all(map(_finite, value)) and 0 <= value[0] <= 1,
)
INSIDE = Kind("a path within the folder", _inside)
NULL = Kind("null", lambda value: value is None)
NEVER = Kind("absent", lambda value: False)
TABLE: Final[dict[str, Any]] = {}


def maybe(shape: Any) -> tuple[Any, ...]:
    """Return the shape, with null allowed."""
    return (NULL, *shape) if isinstance(shape, tuple) else (NULL, shape)


def some(shape: Any) -> list[Any]:
    """Return the shape of an array with at least one such element."""
    return [shape, ...]


def misfit(value: Any, shape: Any, place: str = "") -> str | None:
    """Return what is wrong with a value's shape, with its place; None if nothing is."""
    if isinstance(shape, Kind):
        return None if shape.fits(value) else f"{place or 'it'} is not {shape.said}"
    if isinstance(shape, tuple):
        return _misfit_of_all(value, shape, place)
    if isinstance(shape, list):
        return _misfit_of_array(value, shape, place)
    return _misfit_of_table(value, shape, place)


def require(value: Any, shape: Any, what: str) -> None:
    """Raise RequestError if a value has another shape; `what` names its source."""
    if (said := misfit(value, shape)) is not None:
        raise RequestError(f"{what} is damaged: {said}")


def _misfit_of_all(value: Any, shapes: tuple[Any, ...], place: str) -> str | None:
    """Return the complaint of the last alternative, which is the main one: null and the like come first."""
    said = None
    for one in shapes:
        if (said := misfit(value, one, place)) is None:
            return None
    return said


def _misfit_of_array(value: Any, shape: list[Any], place: str) -> str | None:
    if not isinstance(value, list):
        return f"{place or 'it'} is not an array"
    if not value and len(shape) > 1:
        return f"{place or 'it'} is empty"
    return next((said for one in value if (said := misfit(one, shape[0], place)) is not None), None)


def _misfit_of_table(value: Any, shape: dict[str, Any], place: str) -> str | None:
    if not isinstance(value, dict):
        return f"{place or 'it'} is not a table"
    if lacking := next((name for name in shape.get(NEEDED, ()) if name not in value), None):
        return f"{place or 'it'} has no {lacking}"
    for name, inner in value.items():
        if ONLY in shape and name not in shape[ONLY]:
            return f"{place or 'it'} has an unknown {name[:80]!r}"
        if NUMBERED in shape and not is_whole_text(name):
            return f"{place or 'it'} has a member {name[:80]!r}, which is not a whole number"
        own = None if name in MARKS else shape.get(name, shape.get(EACH))
        if own is not None and (said := misfit(inner, own, f"{place}.{name[:80]}".lstrip("."))) is not None:
            return said
    return None


MARKS = frozenset({EACH, NEEDED, ONLY, NUMBERED})
