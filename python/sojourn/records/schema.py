"""The tables and their columns as declared in crates/record: `schema.json`, which `make schema` writes.

`FINDINGS` of `findings` has the rest of that file. Nothing here is written by hand twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a table: its Arrow type, its unit and, for a time, its clock and the source of the timestamp.

    `since`: the first version of the tables that has it; files of an earlier one lack it. `was`: its name in older
    files, if it was renamed; `renamed`: values of older files, each with its present name.
    """

    name: str
    type: str
    nullable: bool
    unit: str
    clock: str | None
    source: str | None
    since: int
    doc: str
    was: str | None = None
    renamed: tuple[tuple[str, str], ...] = ()


DECLARATION: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("schema.json").read_bytes())
"""The output of `sojourn-instrument schema`."""

VERSION: Final[int] = int(DECLARATION["version"])

TABLES: Final[dict[str, dict[str, Field]]] = {
    name: {one["name"]: Field(**one) for one in table["fields"]} for name, table in DECLARATION["tables"].items()
}

NAMED_TABLES: Final[frozenset[str]] = frozenset(name for name, table in DECLARATION["tables"].items() if table["named"])
"""The tables whose files have the writer in their names."""
