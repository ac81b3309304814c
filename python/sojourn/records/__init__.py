"""The waist: where a run folder's parts lie, what its records hold, and a reader that survives cut and older files.

Imported by both halves, imports neither. The columns of tables come from crates/record (`make schema`).
"""

from sojourn.records.findings import FINDINGS, FindingKind, Severity
from sojourn.records.folder import RunFolder
from sojourn.records.reader import Part, Table, arrow_schema, read_table
from sojourn.records.schema import TABLES, Field

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
