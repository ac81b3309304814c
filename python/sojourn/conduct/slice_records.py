"""Write the orchestrator's own tables, row by row, with the types, units and clocks of the record schema.

Every batch is flushed, so that a run that ends early keeps its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from sojourn.records import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from sojourn.records import RunFolder


class RowWriter:
    """Writes one part of one table."""

    def __init__(self, folder: RunFolder, table: str, part: int) -> None:
        self._table, self._schema = table, arrow_schema(table, "sojourn")
        self._sink = pa.OSFile(str(folder.records / f"{table}-{part:03}.arrow"), "wb")
        self._stream = pa.ipc.new_stream(self._sink, self._schema)

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write these rows: each has exactly the table's columns; None only where a column is nullable.

        Arrow itself would drop a key without a column, and write null into any column.
        """
        for row in rows:
            if problem := unfit(row, self._schema):
                raise ValueError(f"a row of {self._table}: {problem}")
        if rows:
            self._stream.write_batch(pa.RecordBatch.from_pylist([dict(row) for row in rows], self._schema))
            self._sink.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stream.close()
        self._sink.close()


def unfit(row: Mapping[str, Any], schema: pa.Schema) -> str | None:
    """Return why a row does not fit its table: a key without a column, or no value for a column that needs one."""
    if unknown := sorted(set(row) - set(schema.names)):
        return f"no column for {', '.join(unknown)}"
    if missing := [one.name for one in schema if not one.nullable and row.get(one.name) is None]:
        return f"no value for {', '.join(missing)}"
    return None
