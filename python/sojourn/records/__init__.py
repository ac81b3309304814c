"""The waist: where a run folder's parts lie, what its records hold, and a reader that survives cut files.

Imported by both halves, imports neither. `schema` is generated from the Rust declaration (`make schema`).
"""

from sojourn.records.declared import Field, FindingKind, Severity
from sojourn.records.folder import RunFolder
from sojourn.records.reader import Part, Table, read_table
from sojourn.records.schema import FINDINGS, TABLES

__all__ = ["FINDINGS", "TABLES", "Field", "FindingKind", "Part", "RunFolder", "Severity", "Table", "read_table"]
