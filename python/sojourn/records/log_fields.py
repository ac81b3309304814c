"""Which fields of TCP's state a log was asked for, by its header."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection


def unasked_of(header: dict[str, Any], columns: Collection[str]) -> list[str]:
    """Which of these columns a log has none of because nobody asked for them, by its header."""
    return [name for name in header.get("unasked", []) if name in columns]


def fields_of(header: dict[str, Any]) -> str:
    """Which fields were asked, as `--fields` takes them."""
    options = header.get("options")
    asked = options.get("fields") if isinstance(options, dict) else None
    return ",".join(map(str, asked)) if isinstance(asked, list) else "all"
