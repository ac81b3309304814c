"""A cell in a table: its name for people, and a column for each of its factors in CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.report.table import Column, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sojourn.report.run import Run
    from sojourn.report.table import Value


def cell_column(run: Run) -> Column:
    """Return the column of cells."""
    return Column(("cell", *run.factors), "Cell", numeric=False)


def cell_entry(run: Run, name: str, cells: Iterable[int | None]) -> Entry:
    """Return the entry of a cell: its name, and the factors that these cells have in common."""
    known = [one for one in cells if one is not None]
    values: list[Value] = [name]
    for of_cell in run.factors.values():
        found = set().union(*(of_cell.get(one, ()) for one in known))
        values.append(found.pop() if len(found) == 1 else None)
    return Entry(name, tuple(values))
