"""What a command printed under `--json`, held against its published schema before a test looks at it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[2] / "docs/reference/schemas"


def printed(name: str, text: str) -> Any:
    """The printed value; fails where it is not what docs/reference/schemas/NAME.json says."""
    value = json.loads(text)
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    wrong = [f"{error.json_path}: {error.message[:300]}" for error in Draft202012Validator(schema).iter_errors(value)]
    assert not wrong, f"{name}: {wrong[:5]}"
    return value
