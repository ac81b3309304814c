"""Reads a run's log: one JSON object a line; a line that was cut by a crash is left out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sojourn.errors import RequestError
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


NULL = type(None)
INTEGERS = (
    "block", "part", "bed", "search", "round", "visit", "searches", "rounds", "sessions", "frame_bytes", "repetition",
    "attempt", "number", "tai_ns", "link",
)  # fmt: skip
NUMBERS = (
    "rate_pps", "asked_pps", "sent_pps", "clean_pps", "flood_pps", "duration_s", "frames", "lower_pps", "upper_pps",
    "tester_pps", "ceiling_pps", "asked",
)  # fmt: skip
TABLES_OF_EVENTS = (
    "factors", "summary", "engines", "floor_ns", "to", "extra", "draw", "left_out", "report", "matched",
)  # fmt: skip
WORDS = ("device", "purpose", "pipe", "words", "sentence", "records", "emulator", "send_engine")
KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(INTEGERS, int),
    **dict.fromkeys(NUMBERS, (int, float, NULL)),
    **dict.fromkeys(TABLES_OF_EVENTS, (dict, NULL)),
    **dict.fromkeys(("cell", "trial", "block", "tai_ns"), (int, NULL)),
    **dict.fromkeys(WORDS, (str, NULL)),
    **dict.fromkeys(("delaying", "flows", "connections", "of_device", "of_reference"), (list, NULL)),
    "captured": (dict, int, NULL),  # of "taps" what each tap says, of "tcp-trial" how many packets
    "cells": (dict, list),
    "sent": (int, list, NULL),
    "received": (int, list, NULL),
    "clock": (list, dict, str, NULL),
    "kept": (bool, NULL),
}
"""The types of what the analysis reads of events, by name: they are the same in every event of READ."""

READ = frozenset({
    "bed", "cells", "contended", "device-broken", "emulator", "emulator-ended", "emulator-replay", "emulator-set",
    "load-trial", "qualified", "search-result", "search-step", "started", "stopped", "stream-trial", "taps",
    "tcp-trial", "time-is-up", "trial", "undisturbed",
})  # fmt: skip
"""The events that it reads."""

NEEDED = {
    "stream-trial": ("block",), "load-trial": ("block",), "tcp-trial": ("block",), "trial": ("block",),
    "emulator": ("block", "summary"), "emulator-set": ("block", "to"), "search-step": ("search", "block"),
    "search-result": ("search",), "qualified": ("frame_bytes",), "taps": ("block", "records", "matched", "captured"),
    "time-is-up": ("asked",),
}  # fmt: skip
"""By event, what it has in any case."""


def read_events(path: Path) -> list[dict[str, Any]]:
    """Every whole line of a run's log, for its analysis. Raises RequestError where an event is of another shape."""
    entries = read_log(path)
    for entry in entries:
        name = str(entry.get("event"))[:80]
        for member, value in entry.items() if name in READ else ():
            kind = KINDS.get(member)
            if kind is not None and (not isinstance(value, kind) or (isinstance(value, bool) and member != "kept")):
                raise RequestError(f"{path} is damaged: {member} of an event {name!r} is of another type")
        if lacking := [member for member in NEEDED.get(name, ()) if entry.get(member) is None]:
            raise RequestError(f"{path} is damaged: an event {name!r} has no {lacking[0]}")
    return entries
