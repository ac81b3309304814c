"""Readers of record tables, of data sets of taps in Parquet, and of what timelines and figures are drawn from.

The first byte chooses the reader: a table by its place among all tables' names, then the others.
"""

from __future__ import annotations

import tempfile
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import pyarrow as pa

from sojourn.errors import SojournError
from sojourn.instruments import matching, slices
from sojourn.records import read_table
from sojourn.records.reader import arrow_schema, read_in_turn, rows_of_blocks
from sojourn.records.results import read_parquet
from sojourn.records.schema import TABLES
from sojourn.records.taps import ParquetTap, write_dataset, write_packets
from sojourn.records.whole_file import write_table
from sojourn.report.clocks import Clocks
from sojourn.timeline.source import emulated
from tests.fuzz import frames
from tests.fuzz.chosen import Reader

if TYPE_CHECKING:
    from collections.abc import Callable

_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
TERMS = slices.Terms(10**9, 0, 1 << 20, (0, 0), {"along": 0, "against": 1, "unlabelled": 0}, always=True)


def _table(name: str, octets: bytes) -> None:
    """Read a table: at once, in turn, some columns of one block, and its blocks alone. Each may refuse it."""
    refused: SojournError | None = None
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        records = Path(folder)
        (records / f"{name}-a-000.arrow").write_bytes(octets)
        reads: tuple[Callable[[], int], ...] = (
            lambda: read_table(records, name).frame.height,
            lambda: sum(table.frame.height for table in read_in_turn(records, name)),
            lambda: read_table(records, name, {0}, [*TABLES[name]][:2]).frame.height,
            lambda: sum(rows_of_blocks(records, name).values()),
        )
        for read in reads:
            try:
                assert read() >= 0
            except SojournError as error:
                refused = error
        if name == "clock_lines":
            lines = Clocks.read(records)
            assert lines.lines.is_empty() or lines.points().height > 0
        if name == "packets":
            emulated([records], None)
        if name == "taps":
            write_dataset(records, records / "data", "run")
    if refused is not None:
        raise refused


def _parquet(octets: bytes) -> None:
    """Read a file of a data set of taps: as records for `match`, and as events of a slice."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        path = Path(folder) / "bucket_s=0/part-00000.parquet"
        path.parent.mkdir()
        path.write_bytes(octets)
        tap = ParquetTap.open(Path(folder))
        schema = matching.records_schema(tap)
        try:
            for batch in matching.read_packets(tap):
                assert matching.as_records(batch, schema).num_rows == batch.num_rows
            for events in slices.events_of(slices.File(str(path), 0, 0), TERMS):
                assert slices.as_events(slices.as_arrow(events, slices.EVENTS)).tobytes() == events.tobytes()
        except (pa.ArrowException, OSError):
            return  # as in `matching._fill`, and as PySpark reports it


def _samples(octets: bytes) -> None:
    """Read a Parquet file of an analysis."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        path = Path(folder) / "run/analysis/results.parquet"
        path.parent.mkdir(parents=True)
        path.write_bytes(octets)
        found = read_parquet(path)
        assert found.height == len(found.rows())


def _capture(octets: bytes) -> None:
    """Read a capture that is named besides a run."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        (Path(folder) / "eth1.pcap").write_bytes(octets)
        found = emulated([Path(folder)], None).tapped
        assert found.packets.height <= len(octets)


def rows(name: str, count: int) -> pa.Table:
    """Return rows of a table: of block 0, and otherwise of small numbers, short texts, no bytes."""
    schema = arrow_schema(name, "fuzz")

    def value(field: pa.Field[Any], nth: int) -> object:
        if pa.types.is_boolean(field.type):
            return nth % 2 == 0
        if pa.types.is_binary(field.type):
            return frames.frames()[nth]
        if pa.types.is_string(field.type) or pa.types.is_dictionary(field.type):
            return "a"
        return 0 if field.name == "block" else 1000 * nth

    columns = [pa.array([value(one, nth) for nth in range(count)], one.type) for one in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def table(name: str, count: int = 3, *, compression: Literal["lz4"] | None = None) -> bytes:
    """Return a file of a table."""
    sink = pa.BufferOutputStream()
    made = rows(name, count)
    with pa.ipc.new_stream(sink, made.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_table(made)
    return bytes(sink.getvalue().to_pybytes())


@cache
def parquet() -> bytes:
    """Return a file of a data set of taps."""
    about = dict.fromkeys(("tap", "interface", "host", "key", "most_octets", "clock_id", "clock"), "a")
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        made = rows("taps", 3).combine_chunks().to_batches()
        write_packets(made, Path(folder), about | {"dropped": "2"})
        [path] = Path(folder).rglob("*.parquet")
        return path.read_bytes()


@cache
def samples() -> bytes:
    """Return a table of an analysis, of every type that one writes."""
    values = {
        "texts": ["a", None],
        "counts": [1, 2],
        "figures": [0.5, -1.0],
        "flags": [True, None],
        "lists": [["a"], []],
    }
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        path = Path(folder) / "made.parquet"
        write_table(path, pl.DataFrame(values))
        return path.read_bytes()


NAMES = sorted(TABLES)
READERS = (
    *(Reader(partial(_table, name), ()) for name in NAMES),
    *(Reader(one, ()) for one in (_parquet, _capture, _samples)),
)


def examples() -> list[bytes]:
    """Return a file of each table, of a data set, a capture, a table of an analysis, and a compressed table, each
    behind the byte that chooses its reader."""
    files = [*(table(name) for name in NAMES), parquet(), frames.captures(frames.frames()[:3])[0], samples()]
    compressed = bytes([NAMES.index("crossings")]) + table("crossings", 99, compression="lz4")
    return [*(bytes([place]) + one for place, one in enumerate(files)), compressed]
