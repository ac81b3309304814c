"""Read plans, beds and logs of earlier versions: old names are replaced by the present ones.

Earlier names of columns of records are declared with these (`crates/record`). Judges nothing.
"""

from __future__ import annotations

import re
from typing import Any

from sojourn.records.decode import json_value, toml_tables

KEYS = {
    "arm": "path", "arms": "paths", "decoy": "bypass", "fates": "dispositions", "foreign": "unexpected",
    "laws": "hypotheses", "own_drops": "local_drops", "path_cost": "compensate", "settle": "grace", "sham": "placebo",
}  # fmt: skip
TABLES = {"departure_error": "pacing_error", "departure_error_ns": "pacing_error_ns"}
"""Keys whose value is a table."""

VALUES = {
    "arm-throughput": "path-throughput", "as-answered": "closed-loop", "departure_error": "pacing_error",
    "departure_within_10us": "pacing_within_10us", "departure_within_1us": "pacing_within_1us",
    "own_drops": "local_drops", "sham": "placebo", "sham-explains": "placebo-explains",
    "width-grows-with-senders": "delay-spread-grows-with-senders",
}  # fmt: skip
ENDINGS = {"/decoy": "/bypass"}
"""Suffixes of names of paths."""

EARLIER = re.compile("|".join(rf"\b{name}\b" for name in (*KEYS, *TABLES, *VALUES)))
PLAN_KEY = re.compile(rf"^(\s*)({'|'.join(KEYS)})(?=\s*=)", re.MULTILINE)
SECTION = re.compile(r"^\[(\w+)\][^\n]*(?:\n(?!\[)[^\n]*)*", re.MULTILINE)
SINCE = {"load": ("logged = 0",)}
"""Lines for sections of a run's plan whose key is missing: what earlier versions did, not today's default."""

PLAN_VALUE = re.compile(rf'"({"|".join(VALUES)})"')

FIGURES = frozenset({
    "clean_rate_pps", "emulation_error_less_path", "knee", "path_cost", "queue_bounded",
    "tester_floor", "width",
})  # fmt: skip
"""Quantities, statistics and settings of results that were renamed."""


def read_json(text: str) -> Any:
    """Return the value of a JSON text."""
    value = json_value(text)
    return renamed(value) if EARLIER.search(text) else value


def read_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text."""
    return {key: renamed(inner) for key, inner in toml_tables(text).items()}


def plan_text(text: str) -> str:
    """Return the text of a run's plan with its lines unchanged, except for the present keys and values."""
    text = PLAN_KEY.sub(lambda found: f"{found[1]}{KEYS[found[2]]}", text)
    text = PLAN_VALUE.sub(lambda found: f'"{VALUES[found[1]]}"', text)
    return SECTION.sub(lambda found: _as_measured(found[1], found[0]), text)


def _as_measured(section: str, text: str) -> str:
    """Return a section with the values of keys that its version did not have."""
    missing = [line for line in SINCE.get(section, ()) if not re.search(rf"^{line.split()[0]}\s*=", text, re.MULTILINE)]
    return text.replace("]", "\n".join(["]", *missing]), 1)


def renamed(value: Any) -> Any:
    """Return a value with all names replaced by the present ones."""
    if isinstance(value, dict):
        return {_key(key, inner): renamed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [renamed(inner) for inner in value]
    return VALUES.get(value, _path(value)) if isinstance(value, str) else value


def _key(key: str, inner: Any) -> str:
    """Return the present key; a key with a table may be the name of a path or device, which its user chose."""
    return TABLES.get(key, _path(key)) if isinstance(inner, dict) else KEYS.get(key, key)


def _path(name: str) -> str:
    """Return the name of a path with its present suffix."""
    ending = next((old for old in ENDINGS if name.endswith(old)), None)
    return name if ending is None else name.removesuffix(ending) + ENDINGS[ending]
