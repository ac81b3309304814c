"""The waist: where a run folder's parts lie, what its records hold, and a reader that survives cut and older files.

Imported by both halves, imports neither. The columns of tables come from crates/record (`make schema`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.lazy import names_of

if TYPE_CHECKING:
    from sojourn.records.findings import FINDINGS, FindingKind, Severity
    from sojourn.records.folder import RunFolder
    from sojourn.records.reader import Part, Table, arrow_schema, read_table
    from sojourn.records.schema import TABLES, Field
else:
    __getattr__ = names_of(
        __name__,
        {
            ".findings": ("FINDINGS", "FindingKind", "Severity"),
            ".folder": ("RunFolder",),
            ".reader": ("Part", "Table", "arrow_schema", "read_table"),
            ".schema": ("TABLES", "Field"),
        },
    )

__all__ = [
    "FINDINGS",
    "TABLES",
    "Field",
    "FindingKind",
    "Part",
    "RunFolder",
    "Severity",
    "Table",
    "arrow_schema",
    "read_table",
]
