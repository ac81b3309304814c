"""What a method's report consists of: tables, figures, key numbers, and the description of the measurement."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sojourn.report.beside.figure import Ours
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run
    from sojourn.report.table import Table

    Layout = Callable[[Run, str], Table]


@dataclass(frozen=True)
class Key:
    """A number in large type under the verdict."""

    what: str
    value: str
    unit: str
    lines: tuple[str, ...]
    device: str | None = None


@dataclass(frozen=True)
class Parts:
    """The report of a method; tables and figures without rows are left out."""

    tables: tuple[Callable[[Run], Table], ...]
    figures: tuple[Callable[[Run], Figure | None], ...]
    keys: Callable[[Run], list[Key]]
    words: Callable[[Run], list[str]]
    results: tuple[str, ...]
    """The names of the tables under "Results", before the figures."""
    has_round_trips: bool = False
    """Whether the terminal shows round trips, their lines and pacing, instead of the key numbers."""
    published: Mapping[str, Layout] = field(default_factory=dict)
    """The published tables that only this method shows beside ours, by their names."""
    beside: Callable[[Run], Iterable[Ours]] | None = None
    """The figures that are shown beside those of other tools; None: those of the usual names, over whole paths."""
