"""What a command printed under `--json`, held against its published schema before a test looks at it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

SCHEMAS = Path(__file__).parents[2] / "docs/reference/schemas"


def printed(name: str, text: str) -> Any:
    """The printed value; fails where it is not what docs/reference/schemas/NAME.json says."""
    return held(name, json.loads(text))


def printed_lines(name: str, text: str) -> list[Any]:
    """The same of what is printed as an object a line."""
    return [printed(name, line) for line in text.splitlines()]


def held(name: str, value: Any) -> Any:
    """The value; fails where it is not what the schema says, with the member that is wrong."""
    error = best_match(validator(name).iter_errors(value))
    assert error is None, f"{name}: {error.json_path}: {error.message[:300]}"
    return value


@cache
def validator(name: str) -> Draft202012Validator:
    """What holds values against a schema."""
    return Draft202012Validator(json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8")))
