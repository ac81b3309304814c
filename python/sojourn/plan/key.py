"""What the table of keys (keys.py) says of one key; a method with keys of its own may have them in a file beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from sojourn.plan.values import Reader

REQUIRED = object()
"""The default of a key that must be given."""

ABSENT = object()
"""The default of a key that may be missing without a value."""

HOUR_NS = 3_600_000_000_000


class Key(NamedTuple):
    """How a key is read and what it is when nobody gives it."""

    reader: Reader
    default: Any
    meaning: str
