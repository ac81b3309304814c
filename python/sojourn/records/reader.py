"""Read record tables, complete or cut: batch by batch, so that everything before a cut is kept.

An Arrow stream without its end marker, or whose end a power loss has filled with zeros, looks complete to every
library; the last eight bytes are therefore checked here. Times stay int64 nanoseconds. Dictionaries, batches and parts
are hidden (one part per instrument process, ordered by number; if several write one table, each file's name and the
column `who` have the writer). Nothing read is judged.

A file of an earlier version lacks newer columns: they are null. Other missing columns are null too, and listed in the
part, for then figures are wrong. Columns of a later version are left out, and listed in the part. Renamed columns and
values get their new names; if a file has a column under both names, the new one is used.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from sojourn.errors import MachineError, RequestError
from sojourn.records.messages import refuse_unpackable
from sojourn.records.schema import NAMED_TABLES, TABLES, VERSION

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from sojourn.records.schema import Field

END_MARKER = b"\xff\xff\xff\xff\x00\x00\x00\x00"
LARGE_BATCH_ROWS = 2048
ROWS_IN_TURN = 1_000_000
"""The most rows of a piece: some 100 MB of probes."""

TYPES: dict[str, tuple[Any, pl.DataType]] = {
    "bool": (pa.bool_(), pl.Boolean()),
    "int32": (pa.int32(), pl.Int32()),
    "int64": (pa.int64(), pl.Int64()),
    "float64": (pa.float64(), pl.Float64()),
    "utf8": (pa.string(), pl.String()),
    "utf8-dictionary": (pa.dictionary(pa.int8(), pa.string()), pl.String()),
    "binary": (pa.binary(), pl.Binary()),
}
"""The types of declared columns, in Arrow and in Polars."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a table: its writer (empty if only one can write it), its rows, and its deviations.

    `cut` says how it ends before its end marker; further fields have missing and unknown columns.
    """

    path: Path
    who: str
    number: int
    rows: int
    cut: str | None
    metadata: Mapping[str, str]
    field_metadata: Mapping[str, Mapping[str, str]]
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether the file has its end marker."""
        return self.cut is None


@dataclass(frozen=True, slots=True)
class Table:
    """All parts of a table: their rows with a column `part`, and the metadata of each file."""

    name: str
    frame: pl.DataFrame
    parts: list[Part] = field(default_factory=list)

    @property
    def truncated(self) -> list[Part]:
        """The parts without an end marker."""
        return [part for part in self.parts if not part.complete]

    def metadata(self, key: str) -> list[str]:
        """Return the distinct values of a key of the schema metadata over all parts."""
        return sorted({part.metadata[key] for part in self.parts if key in part.metadata})

    def field_metadata(self, column: str, key: str) -> list[str]:
        """Return the distinct values of a key of a column's metadata over all parts."""
        values = {part.field_metadata.get(column, {}).get(key) for part in self.parts}
        return sorted(value for value in values if value is not None)


def read_table(
    records: Path, name: str, blocks: Collection[int] | None = None, columns: Collection[str] | None = None
) -> Table:
    """Return the table `name` ("probes", "streams", ...) of a records folder; without a file it has no rows.

    `blocks`, `columns`: read only these rows and columns, so that a table of millions costs no more than needed; `part`
    and `who` are always included.
    """
    wanted = None if blocks is None else pa.array(sorted(blocks), pa.int32())
    parts, frames = [], [no_rows(name, columns)]
    for path in _files(records, name):
        with _told(path):
            part, table = _part_of(path, name, wanted, columns)
            frames += [] if table is None else [_frame_of(part, table, name, columns)]
        parts.append(part)
    return Table(name, pl.concat(frames, how="diagonal"), parts)


def read_in_turn(records: Path, name: str) -> Iterator[Table]:
    """Yield the table in pieces, for callers with another form of millions of rows; the first piece has the part."""
    for path in _files(records, name):
        with _told(path):
            part, table = _part_of(path, name, None, None)
            for start in range(0, part.rows or 1, ROWS_IN_TURN):
                frame = None if table is None else _frame_of(part, table.slice(start, ROWS_IN_TURN), name, None)
                yield Table(name, no_rows(name) if frame is None else frame, [] if start else [part])


def rows_of_blocks(records: Path, name: str) -> dict[tuple[int, int], int]:
    """Count the rows of each block in each part, in bounded memory: a batch mostly has a single block.

    Rows before a cut count, as in `read_table`.
    """
    found: dict[tuple[int, int], int] = {}
    for path in _files(records, name):
        part = _head_and_number(path)[1]
        with _told(path), _opened(path, name) as source:
            for block, rows in _rows_of_blocks(path, name, source):
                found[part, block] = found.get((part, block), 0) + rows
    return found


def _rows_of_blocks(path: Path, name: str, source: pa.NativeFile) -> Iterator[tuple[int, int]]:
    """Yield the blocks of each batch of a file, in order, each with its number of rows."""
    try:
        schema = pa.ipc.open_stream(source).schema
        source.seek(0)
        stream = pa.ipc.open_stream(source, options=_options(schema.names, ("block",)))
    except (pa.ArrowInvalid, OSError):
        return  # cut in its header
    names = schema.names
    _refuse_another(path, name, _decode(schema.metadata))
    for batch in _batches(stream) if "block" in names else ():
        batch.validate(full=True)
        column = batch.column("block")
        ends: Any = pc.min_max(column).as_py()
        least, most = ends["min"], ends["max"]
        if least == most and least is not None:
            yield least, len(column) - column.null_count
        else:
            counts = ((one["values"].as_py(), one["counts"].as_py()) for one in pc.value_counts(column))
            yield from ((block, rows) for block, rows in counts if block is not None)


def _files(records: Path, name: str) -> list[Path]:
    """Return the files of a table, in the order of their parts."""
    return sorted(records.glob(f"{name}-*.arrow"), key=lambda path: (*_head_and_number(path), path.name))


def _frame_of(part: Part, table: pa.Table, name: str, columns: Collection[str] | None) -> pl.DataFrame:
    """Return the rows of a part, with the columns that identify the part."""
    return _plain(table, name, columns).with_columns(_origin(name, part.who, part.number))


DAMAGED = (ValueError, KeyError, OSError, pa.ArrowException, pl.exceptions.PolarsError)
"""Errors of the libraries for files whose bytes are inconsistent."""


@contextmanager
def _opened(path: Path, name: str, *, at_once: bool = False) -> Iterator[pa.NativeFile]:
    """Map a file of the table `name`; raises RequestError if its rows would take too much memory."""
    refuse_unpackable(path, name, at_once=at_once)
    with pa.memory_map(str(path)) if path.stat().st_size else pa.BufferReader(b"") as source:
        yield source


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn errors in reading a file into one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise
    except PermissionError as error:
        raise RequestError(
            f"{path} cannot be read by this user: read it as the user who measured it, or as root"
        ) from error
    except MemoryError as error:
        raise MachineError(f"{path}: this machine has not enough memory to read it") from error
    except DAMAGED as error:
        raise RequestError(f"{path} is damaged: {_first_line(error)}") from error


def _refuse_another(path: Path, name: str, metadata: Mapping[str, str]) -> None:
    """Refuse a file whose name and content are of different tables."""
    if metadata.get("schema", f"sojourn.{name}") != f"sojourn.{name}":
        raise RequestError(f"{path} is a record of {metadata['schema']!r}, not of {name!r}: give it its own name back")


def _part_of(
    path: Path, name: str, wanted: pa.Array[Any] | None, columns: Collection[str] | None
) -> tuple[Part, pa.Table | None]:
    head, number = _head_and_number(path)
    who = head.removeprefix(name).removeprefix("-")
    with _opened(path, name, at_once=True) as source:
        try:
            stream = pa.ipc.open_stream(source)
        except (pa.ArrowInvalid, OSError) as error:
            return Part(path, who, number, 0, f"cut in its header ({_first_line(error)})", {}, {}), None
        schema = stream.schema
        metadata = _decode(schema.metadata)
        _refuse_another(path, name, metadata)
        renames = _renames(name, schema.names)
        names = [renames.get(one, one) for one in schema.names]
        options = _options(names, columns)
        source.seek(0)
        table, cut = _all(source, options)
        table.validate(full=True)  # a file that Arrow trusted could crash the process
        table = table.rename_columns([renames.get(one, one) for one in table.column_names])
        if wanted is not None and "block" in table.column_names:
            table = table.filter(pc.is_in(table.column("block"), value_set=wanted))
        cut = cut or _missing_end(path)
    fields = {one: _decode(field.metadata) for one, field in zip(names, schema, strict=True)}
    missing = _missing(name, names, _version(metadata), columns)
    unknown = tuple(one for one in names if one not in TABLES[name])
    return Part(path, who, number, table.num_rows, cut, metadata, fields, missing, unknown), table


class Reading:
    """One file, batch by batch: its declared columns under their present names; a missing column is null.

    `cut` says, after all was read, how the file ended early; rows before that were read.
    """

    def __init__(self, path: Path, name: str, source: pa.NativeFile) -> None:
        self._path, self._name, self.cut = path, name, None if path.stat().st_size else "empty"
        try:
            self._stream = pa.ipc.open_stream(source) if self.cut is None else None
        except (pa.ArrowInvalid, OSError) as error:
            self._stream, self.cut = None, f"cut in its header ({_first_line(error)})"
        schema = self._stream.schema if self._stream is not None else pa.schema([])
        self.metadata = _decode(schema.metadata)
        self.field_metadata = {one.name: _decode(one.metadata) for one in schema}
        if self.metadata.get("schema", f"sojourn.{name}") != f"sojourn.{name}":
            raise RequestError(f"{path} is a record of {self.metadata['schema']!r}, not of {name!r}")
        self._renames = _renames(name, schema.names)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._stream is None:
            return
        while True:
            try:
                batch = self._stream.read_next_batch()
                batch.validate(full=True)
            except StopIteration:
                self.cut = _missing_end(self._path)
                return
            except (pa.ArrowInvalid, OSError) as error:
                self.cut = f"cut in a batch ({_first_line(error)})"
                return
            yield self._declared(batch)

    def _declared(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        there = {self._renames.get(one, one): batch.column(one) for one in batch.schema.names}
        columns = {}
        for one in TABLES[self._name].values():
            kind = TYPES[one.type][0]
            column = there.get(one.name, pa.nulls(batch.num_rows, kind))
            if column.type != kind:
                raise RequestError(f"{self._path}: its column {one.name} is of another type than declared")
            columns[one.name] = column
        return pa.RecordBatch.from_pydict(columns)


@contextmanager
def read_batches(path: Path, name: str) -> Iterator[Reading]:
    """Open one file of the table `name`, to be read in bounded memory."""
    try:
        with _opened(path, name) as source:
            yield Reading(path, name, source)
    except PermissionError as error:
        raise RequestError(
            f"{path} cannot be read by this user: read it as the user who measured it, or as root"
        ) from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise RequestError(f"{path} is damaged: {_first_line(error)}") from error


def _head_and_number(path: Path) -> tuple[str, int]:
    """Return a file's name before the number of its part, and that number."""
    head, _, digits = path.stem.rpartition("-")
    return head, int(digits) if digits.isdigit() else 0


def _renames(name: str, there: list[str]) -> dict[str, str]:
    """Return the old names of columns that this file still has, each with the present name."""
    known = TABLES[name].values()
    return {one.was: one.name for one in known if one.was in there and one.name not in there}


def _missing(name: str, there: list[str], version: int, columns: Collection[str] | None) -> tuple[str, ...]:
    """Return the columns that this file lacks although its version has them."""
    declared = _declared(name, columns)
    return tuple(one for one, known in declared.items() if known.since <= version and one not in there)


def _version(metadata: Mapping[str, str]) -> int:
    """Return the version of the tables with which a file was written."""
    told = metadata.get("version", "")
    return int(told) if told.isdecimal() else 1


def _origin(name: str, who: str, number: int) -> list[pl.Expr]:
    """Return the columns that identify the file of each row."""
    part = pl.lit(number, dtype=pl.Int32).alias("part")
    return [part, pl.lit(who).alias("who")] if name in NAMED_TABLES else [part]


def _options(names: list[str], columns: Collection[str] | None) -> pa.ipc.IpcReadOptions:
    """Return options for Arrow to read and decompress only these columns, and the column `block`."""
    if columns is None:
        return pa.ipc.IpcReadOptions()
    wanted = {"block", *columns}
    return pa.ipc.IpcReadOptions(included_fields=[place for place, one in enumerate(names) if one in wanted])


def _all(source: pa.NativeFile, options: pa.ipc.IpcReadOptions) -> tuple[pa.Table, str | None]:
    """Read everything at once; only if that fails, read batch by batch up to the cut (three times slower)."""
    try:
        return pa.ipc.open_stream(source, options=options).read_all(), None
    except (pa.ArrowInvalid, OSError) as error:
        cut = f"cut in a batch ({_first_line(error)})"
    source.seek(0)
    again = pa.ipc.open_stream(source, options=options)
    return pa.Table.from_batches(list(_batches(again)), schema=again.schema), cut


def _batches(stream: pa.RecordBatchStreamReader) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            yield stream.read_next_batch()
        except (StopIteration, pa.ArrowInvalid, OSError):
            return


def _missing_end(path: Path) -> str | None:
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - len(END_MARKER)))
        return None if file.read() == END_MARKER else "without its end marker"


def _plain(table: pa.Table, name: str, wanted: Collection[str] | None) -> pl.DataFrame:
    """Return the declared columns with plain strings, as Polars holds them; a missing one is null."""
    declared = _declared(name, wanted)
    there = set(table.column_names)
    columns = pa.table(
        {one: _spelled(table.column(one)) if one in there else pa.nulls(table.num_rows) for one in declared}
    )
    # Polars is slow with thousands of small batches, one per block; but copying large ones would be slower still.
    if _batch_rows(columns) < LARGE_BATCH_ROWS:
        columns = columns.combine_chunks()
    frame = pl.from_arrow(columns, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    frame = frame.cast({one: _polars_type(known.type) for one, known in declared.items()})
    renamed = ((one, dict(known.renamed)) for one, known in declared.items() if known.renamed)
    return frame.with_columns(pl.col(one).replace(values) for one, values in renamed)


def _batch_rows(table: pa.Table) -> float:
    """Return the mean number of rows in a batch."""
    return table.num_rows / max(1, table.column(0).num_chunks) if table.num_columns else 0.0


def _spelled(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def no_rows(name: str, wanted: Collection[str] | None = None) -> pl.DataFrame:
    """Return the table without rows."""
    columns = {one.name: _polars_type(one.type) for one in _declared(name, wanted).values()}
    who = {"who": pl.String} if name in NAMED_TABLES else {}
    return pl.DataFrame(schema={**columns, "part": pl.Int32, **who})


def _declared(name: str, wanted: Collection[str] | None) -> dict[str, Field]:
    """Return the declared columns, or the wanted ones of them."""
    return {one: known for one, known in TABLES[name].items() if wanted is None or one in wanted}


def arrow_schema(name: str, instrument: str, *, simulated: bool = False) -> pa.Schema:
    """Return the schema with which Python programs write a table, the same as in crates/record."""
    fields = []
    for one in TABLES[name].values():
        metadata = {"unit": one.unit}
        if one.clock:
            metadata |= {"clock": "simulated" if simulated else one.clock, "source": one.source or ""}
        fields.append(pa.field(one.name, TYPES[one.type][0], one.nullable, metadata))
    return pa.schema(fields, {"schema": f"sojourn.{name}", "version": str(VERSION), "instrument": instrument})


def _polars_type(kind: str) -> pl.DataType:
    """Return the Polars type of a declared type; dictionaries of strings are strings here."""
    return TYPES[kind][1]


def _decode(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in (metadata or {}).items()}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:80]
