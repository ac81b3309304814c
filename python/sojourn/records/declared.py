"""What a declaration of the record schema says of a field and of a finding; `schema` holds the declarations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["note", "doubtful", "invalid"]


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a record: its Arrow type, its unit and, for a time, its clock and who stamped it."""

    name: str
    type: str
    nullable: bool
    unit: str
    clock: str | None
    source: str | None
    doc: str


@dataclass(frozen=True, slots=True)
class FindingKind:
    """A name that a finding may have, how bad it is, and what it means."""

    name: str
    severity: Severity
    doc: str
