"""A cell in a table: its name for people, and a column for each of its factors in CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.report.table import Column, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sojourn.report.run import Run
    from sojourn.report.table import Value

FACTORS = (
    "probe", "engine", "kind", "to", "icmp_bytes", "payload_bytes", "response_payload_bytes", "frame_bytes", "senders",
    "receivers", "load", "load_via", "pipe", "schedule", "rate_share", "rate_pps", "interval_ns",
)  # fmt: skip


def cell_column(run: Run) -> Column:
    """The column of cells."""
    return Column(("cell", *_factors(run)), "Cell", numeric=False)


def cell_entry(run: Run, name: str, cells: Iterable[int | None]) -> Entry:
    """The name, and the factors that these cells have in common."""
    rows = run.results.filter(pl.col("cell").is_in([one for one in cells if one is not None]))
    values: list[Value] = [name]
    for factor in _factors(run):
        found = rows[factor].drop_nulls().unique().to_list()
        values.append(found[0] if len(found) == 1 else None)
    return Entry(name, tuple(values))


def _factors(run: Run) -> list[str]:
    of_cells = run.results.drop_nulls("cell")
    return [one for one in FACTORS if of_cells[one].drop_nulls().len()]
