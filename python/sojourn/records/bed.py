"""The shape of bed.json, declared once, and its reader.

A run may come from somebody else: members declared here have the declared types, or the file is refused in a sentence.
Other facts are kept as they are; a fact that is null is absent.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from sojourn.errors import RequestError
from sojourn.records.decode import json_text
from sojourn.records.earlier import read_json
from sojourn.records.shape import EACH, NEEDED

if TYPE_CHECKING:
    from pathlib import Path

NUMBER: Final = (int, float)
_LINK: Final[dict[str, Any]] = {"offloads": {}, "pause": (dict, str), "coalescing": {}, "rings": {}}
_HOST: Final[dict[str, Any]] = {"links": {EACH: _LINK}, "neighbours": {}, "sysctls": {}, "qdiscs": [{}]}

SHAPE: Final[dict[str, Any]] = {
    "hash": str,
    "stable": {
        "machine": {
            "kernel": {"release": str},
            "cpu": {"model": str, "online": int},
            "clocks": {"tai_minus_utc_s": int},
        },
        "hosts": {EACH: _HOST},
        "bed": {
            "paths": [{NEEDED: ("path",), "path": str, "rated": [{"rate_bps": NUMBER, "delay_ns": NUMBER}]}],
            "spec": {"rate_bps": NUMBER},
        },
        "sojourn": {"version": str, "commit": str},
        "line_rate_bps": NUMBER,
    },
    "moment": {"load_average": list, "machines": {EACH: {"boot_id": str}}},
    "parts": [{"before": {"cpu_ticks": {EACH: int}}, "after": {"cpu_ticks": {EACH: int}}}],
    "objects": {EACH: {NEEDED: ("notes", "shown"), "notes": [str], "shown": {EACH: str}}},
    "drawing": {
        "links": [{NEEDED: ("path", "from", "to"), "path": str, "from": str, "to": str}],
        "nodes": [{NEEDED: ("label",), "path": str, "label": str}],
    },
    "line_rate_bps": NUMBER,
}
"""A table may have these members, an array has such elements, anything else is of such a type."""


def read_bed(path: Path) -> dict[str, Any]:
    """Return the content of bed.json; empty if there is none. Raises RequestError if it is unreadable or malformed."""
    try:
        content = read_json(json_text(path))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RequestError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise RequestError(f"{path} is damaged: it is not a JSON object")
    return dict(_shaped(content, SHAPE, "", path))


def _shaped(value: Any, shape: Any, place: str, path: Path) -> Any:
    """Return the value without nulls if it has the declared shape; otherwise refuse it."""
    kind: Any = type(shape) if isinstance(shape, dict | list) else shape
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise RequestError(f"{path} is damaged: {place} is of another type")
    if isinstance(shape, list):
        return [_shaped({} if one is None else one, shape[0], place, path) for one in value]
    if not isinstance(shape, dict):
        return value
    assert isinstance(value, dict)
    if lacking := [name for name in shape.get(NEEDED, ()) if value.get(name) is None]:
        raise RequestError(f"{path} is damaged: {place} has no {lacking[0]}")
    found = {}
    for name, inner in value.items():
        own = shape.get(name or EACH, shape.get(EACH))
        if own is None:
            found[name] = inner
        elif inner is not None:
            found[name] = _shaped(inner, own, f"{place}.{name}".lstrip("."), path)
    return found
