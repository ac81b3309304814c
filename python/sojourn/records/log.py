"""Reads a run's log: one JSON object a line; a line that was cut by a crash is left out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sojourn.records.earlier import read_json

if TYPE_CHECKING:
    from pathlib import Path


def read_log(path: Path) -> list[dict[str, Any]]:
    """Every whole line of a log."""
    entries: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        try:
            entry = read_json(line)
        except json.JSONDecodeError:
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries
