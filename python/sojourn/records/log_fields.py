"""The fields of TCP's state that a log was configured for, from its header."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection


def unasked_of(header: dict[str, Any], columns: Collection[str]) -> list[str]:
    """Return which of these columns a log lacks because its options excluded them."""
    return [name for name in header.get("unasked", []) if name in columns]


def fields_of(header: dict[str, Any]) -> str:
    """Return the configured fields in the notation of `--fields`."""
    options = header.get("options")
    asked = options.get("fields") if isinstance(options, dict) else None
    return ",".join(map(str, asked)) if isinstance(asked, list) else "all"
