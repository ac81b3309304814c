"""The tables and their columns as crates/record declares them: `schema.json`, which `make schema` writes.

`FINDINGS` of `findings` has the rest of that file. Nothing here is written by hand twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a table: its Arrow type, its unit and, for a time, its clock and who stamped it.

    `since`: the version of the tables that it came with; files of an earlier one lack it. `was`: its name in older
    files, where it was renamed; `renamed`: values of older files, each with its name now.
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
"""What `sojourn-instrument schema` prints."""

VERSION: Final[int] = int(DECLARATION["version"])

TABLES: Final[dict[str, dict[str, Field]]] = {
    name: {one["name"]: Field(**one) for one in table["fields"]} for name, table in DECLARATION["tables"].items()
}

NAMED_TABLES: Final[frozenset[str]] = frozenset(name for name, table in DECLARATION["tables"].items() if table["named"])
"""Those whose files carry the name of who wrote them."""
