"""Whether a file is a trace in the Trace Event Format, JSON object form, as published; raises AssertionError where not.

Checked of each event: the phase is known, the fields that it needs are there and of their types, and asynchronous
slices are nested: an end has its beginning under the same process, category and id, and what began last ends first.

Source: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format).
"""

from __future__ import annotations

import json
from collections import defaultdict
from numbers import Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

Event = dict[str, Any]

NEEDED: dict[str, set[str]] = {
    "b": {"name", "cat", "id", "ts", "pid", "tid"},
    "e": {"name", "cat", "id", "ts", "pid", "tid"},
    "n": {"name", "cat", "id", "ts", "pid", "tid"},
    "B": {"name", "ts", "pid", "tid"},
    "E": {"ts", "pid", "tid"},
    "X": {"name", "ts", "dur", "pid", "tid"},
    "i": {"name", "ts", "pid", "tid", "s"},
    "C": {"name", "ts", "pid", "args"},
    "M": {"name", "pid", "args"},
}
METADATA = {
    "process_name": "name",
    "process_labels": "labels",
    "process_sort_index": "sort_index",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
}
SCOPES = {"g", "p", "t"}


def checked(path: Path) -> tuple[list[Event], dict[str, Any]]:
    """The events of a trace that obeys the format, and its other keys."""
    trace = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(trace, dict)
    assert trace.get("displayTimeUnit", "ms") in {"ms", "ns"}
    events = trace.pop("traceEvents")
    assert isinstance(events, list)
    for event in events:
        _check(event)
    _check_nesting(events)
    _check_names(events)
    return events, trace


def _check(event: Event) -> None:
    needed = NEEDED[event["ph"]]
    assert needed <= event.keys(), event
    assert isinstance(event["pid"], int), event
    assert isinstance(event.get("tid", 0), int), event
    assert isinstance(event.get("args", {}), dict), event
    for name in ("ts", "dur"):
        assert isinstance(event.get(name, 0), Real), event
        assert event.get(name, 0) >= 0, event
    if event["ph"] == "C":
        assert event["args"], event
        assert all(isinstance(one, Real) for one in event["args"].values()), event
    if event["ph"] == "M":
        assert METADATA[event["name"]] in event["args"], event
    if event["ph"] == "i":
        assert event["s"] in SCOPES, event
    if "id" in event:
        assert isinstance(event["id"], str), event


def _check_nesting(events: list[Event]) -> None:
    """Events of one time stay in their order in the file."""
    open_: dict[tuple[int, str, str], list[Event]] = defaultdict(list)
    for event in sorted((one for one in events if one["ph"] in "be"), key=lambda one: float(one["ts"])):
        here = open_[event["pid"], event["cat"], event["id"]]
        if event["ph"] == "b":
            here.append(event)
            continue
        assert here, f"ends and never began: {event}"
        begun = here.pop()
        assert begun["name"] == event["name"], (begun, event)
        assert begun["ts"] <= event["ts"], (begun, event)
    assert not [one for one in open_.values() if one], "began and never ended"


def _check_names(events: list[Event]) -> None:
    """Every process and thread that an event is of has a name."""
    named = {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name"}
    processes = {one["pid"] for one in events if one["name"] == "process_name"}
    assert {one["pid"] for one in events} <= processes
    assert {(one["pid"], one["tid"]) for one in events if one["ph"] in "bei"} <= named
