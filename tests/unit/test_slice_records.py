"""Tables of the orchestrator's own: each column has its own value, and a row that does not fit is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sojourn.conduct.slice_records import RowWriter
from sojourn.records import TABLES, RunFolder
from sojourn.records.reader import read_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OWN = ("tcp_slices", "tcp_costs", "tcp_captures")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "records").mkdir()
    return RunFolder(tmp_path)


def row_of(table: str) -> dict[str, Any]:
    """A row with a value in each column that no other column has; what is true or false is the exception."""
    made: dict[str, Callable[[int], Any]] = {"utf8": str, "float64": lambda n: n + 0.5, "bool": lambda n: n > 0}
    fields = enumerate(TABLES[table].values(), start=101)
    return {field.name: made.get(field.type, int)(number) for number, field in fields}


@pytest.mark.parametrize("table", OWN)
def test_every_column_has_its_own_value(folder: RunFolder, table: str) -> None:
    row = row_of(table)
    with RowWriter(folder, table, 0) as rows:
        rows.write([dict(reversed(row.items()))])
    (read,) = read_table(folder.records, table).frame.drop("part").rows(named=True)
    assert read == row


@pytest.mark.parametrize("table", OWN)
def test_a_row_that_does_not_fit_is_refused_and_not_written(folder: RunFolder, table: str) -> None:
    row = row_of(table)
    with RowWriter(folder, table, 0) as rows:
        with pytest.raises(ValueError, match=f"a row of {table}: no column for blok"):
            rows.write([row, row | {"blok": 1}])
        with pytest.raises(ValueError, match=f"a row of {table}: no value for block"):
            rows.write([row | {"block": None}])
        with pytest.raises(ValueError, match="no value for block"):
            rows.write([{name: value for name, value in row.items() if name != "block"}])
    assert read_table(folder.records, table).frame.height == 0
