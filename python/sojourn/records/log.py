"""Reads a run's log: one JSON object a line; a line that was cut by a crash is left out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sojourn.records.earlier import VALUES, read_json

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


def read_log(path: Path, events: Collection[str] = ()) -> list[dict[str, Any]]:
    """Every whole line of a log; of these events alone, where any are named: they are few in the log of a day."""
    entries: list[dict[str, Any]] = []
    words = [f'"{name}"' for name in (*events, *(old for old, now in VALUES.items() if now in events))]
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        if words and not any(one in line for one in words):
            continue
        try:
            entry = read_json(line)
        except json.JSONDecodeError:
            continue
        if isinstance(entry, dict) and (not events or str(entry.get("event")) in events):
            entries.append(entry)
    return entries
