"""Read a run's log: one JSON object per line; a line that a crash cut is left out.

The shape of each event is declared in `records.events`. An event of another shape is refused here, so that no reader of
the log meets one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sojourn.errors import RequestError
from sojourn.records.earlier import VALUES, read_json
from sojourn.records.events import EVENTS, EVERY
from sojourn.records.shape import misfit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

MOST_BYTES = 1 << 30
"""The longest log that is read; that of a day with 10⁸ probes has 20 MB."""

LONGEST_LINE = 8 << 20
"""The longest line of a log that is read."""


def read_log(path: Path, events: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return every complete line of a log, or only these events, which are few in the log of a day.

    Raises RequestError where an event is of another shape than declared.
    """
    entries: list[dict[str, Any]] = []
    words = [f'"{name}"' for name in (*events, *(old for old, now in VALUES.items() if now in events))]
    for number, line in enumerate(_lines(path), start=1):
        if words and not any(one in line for one in words):
            continue
        try:
            entry = read_json(line)
        except json.JSONDecodeError:
            continue
        if isinstance(entry, dict) and (not events or str(entry.get("event")) in events):
            if (wrong := damage(entry)) is not None:
                raise RequestError(f"{path} is damaged: line {number}, {wrong}")
            entries.append(entry)
    return entries


def damage(entry: dict[str, Any]) -> str | None:
    """Return what is wrong with an event's shape; None if nothing is."""
    wrong = misfit(entry, EVERY)
    if wrong is None:
        wrong = misfit(entry, EVENTS.get(str(entry.get("event")), {}))
    return None if wrong is None else f"an event {str(entry.get('event'))[:80]!r}: {wrong}"


def _lines(path: Path) -> Iterator[str]:
    left = MOST_BYTES
    try:
        if not path.is_file():
            return
        with path.open(encoding="utf-8", errors="replace") as file:
            while line := file.readline(LONGEST_LINE + 1):
                left -= len(line)
                if len(line) > LONGEST_LINE or left < 0:
                    most = f"a line of more than {LONGEST_LINE >> 20}" if left >= 0 else f"more than {MOST_BYTES >> 20}"
                    raise RequestError(f"{path} is damaged: it has {most} MiB")
                yield line
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error
