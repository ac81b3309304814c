"""Parquet files of others in the place of a tap's data set: read as ours are, or refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.errors import RequestError, SojournError
from sojourn.instruments import slices
from sojourn.instruments.matching import as_records, read_packets, records_schema
from sojourn.records.results import read_parquet
from sojourn.records.taps import KEPT, ParquetTap, _schema
from tests.unit.in_process import sojourn

if TYPE_CHECKING:
    from collections.abc import Callable

ABOUT = dict.fromkeys(KEPT, "x") | {"key": "bridge", "clock": "TAI", "dropped": "0"}
SCHEMA = _schema(ABOUT)
NULLABLE = pa.schema([pa.field(one.name, one.type) for one in SCHEMA]).with_metadata(SCHEMA.metadata)
ROWS: dict[str, list[Any]] = {
    "time_ns": [5, 7, 9], "time_source": ["kernel", "hardware", "kernel"], "digest": [1, None, 3],
    "length_bytes": [60, 60, 1500], "direction": ["in", None, "out"], "fragment": [False, True, False],
    "super_packet": [False] * 3, "truncated": [False] * 3, "number": [0, 1, 2], "behind_ns": [0, 0, 0],
}  # fmt: skip
TERMS = slices.Terms(1_000, 0, 1 << 20, (0, 0), {"along": 0, "against": 1, "unlabelled": 0}, always=False)

OTHERS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, None, False]),
    "int8": (pa.int8(), [1, 2, None]),
    "int64": (pa.int64(), [2**63 - 1, -(2**63), None]),
    "uint64": (pa.uint64(), [2**64 - 1, 0, 1]),
    "float64": (pa.float64(), [float("nan"), float("inf"), None]),
    "text": (pa.string(), ["kernel", "", None]),
    "large text": (pa.large_string(), ["in", "out", "both"]),
    "octets": (pa.binary(), [b"\xff", b"", None]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["in", "in", "out"]),
    "time": (pa.timestamp("ns"), [1, 2, 3]),
    "list": (pa.list_(pa.int64()), [[1], [], None]),
    "nothing": (pa.null(), [None] * 3),
}


def written(folder: Path, table: pa.Table) -> Path:
    """The table as the only file of a tap."""
    tap = folder / "run=a/tap=b"
    (tap / "bucket_s=0").mkdir(parents=True)
    pq.write_table(table, tap / "bucket_s=0/part-00000.parquet")
    return tap


def read(tap: Path) -> int:
    """As `match` reads it, with the instrument and on a cluster; how many packets it has."""
    found = ParquetTap.open(tap)
    assert len(found.about["dropped"]) < 20
    schema = records_schema(found)
    rows = sum(as_records(batch, schema).num_rows for batch in read_packets(found))
    for path in found.files:
        counted = slices.count(slices.File(str(path), 0, 0), TERMS)
        assert sum(counted.ways) <= rows
    return rows


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, bool]:
    """A tap's table with some columns as nobody declared them; whether there is such a one."""
    fields, columns, is_other = list(SCHEMA), [pa.array(ROWS[one.name], one.type) for one in SCHEMA], False
    for place in draw(st.sets(st.integers(0, len(fields) - 1), max_size=3)):
        own = fields[place]
        how = draw(st.sampled_from(["missing", "renamed", "nullable", *OTHERS]))
        if how in OTHERS:
            kind, values = OTHERS[how]
            fields[place] = pa.field(own.name, kind, draw(st.booleans()) or None in values)
            columns[place] = pa.array(values, kind)
            is_other = is_other or kind != own.type or not own.nullable
        elif how == "nullable":
            fields[place] = pa.field(own.name, own.type)
            columns[place] = pa.array([None, *ROWS[own.name][1:]], own.type)
            is_other = is_other or not own.nullable
        else:
            fields[place], is_other = own.with_name(f"{own.name}{'s' if how == 'renamed' else ' '}"), True
    metadata: dict[Any, Any] = dict(SCHEMA.metadata or {})
    for name in draw(st.sets(st.sampled_from(sorted(SCHEMA.metadata or {})), max_size=2)):
        metadata[name] = draw(st.sampled_from([b"", b"-1", b"9" * 5000, b"\xff", "²".encode(), b"TAI"]))
        is_other = True
    if draw(st.booleans()):
        fields.append(pa.field("more", pa.int8()))
        columns.append(pa.array([1, 2, 3], pa.int8()))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields).with_metadata(metadata)), is_other


@settings(deadline=None)
@given(tables())
def test_foreign_data_set_is_read_or_refused_in_one_sentence(made: tuple[pa.Table, bool]) -> None:
    table, is_other = made
    with TemporaryDirectory() as spare:
        said = refusal_of(written(Path(spare), table))
    assert is_other or said is None, said
    assert said is None or ("\n" not in said and len(said) < 1_000)


def refusal_of(tap: Path) -> str | None:
    """Why it is refused; None where it is read."""
    try:
        assert read(tap) == 3
    except SojournError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table.drop_columns(["digest"]), "its column digest is missing"),
        (lambda table: table.set_column(0, "time_ns", pa.array([1.0, 2.0, 3.0])), "is of type double, not int64"),
        (lambda table: table.cast(NULLABLE), "may be null"),
        (lambda table: table.replace_schema_metadata({"sojourn.key": "bridge"}), "how many packets were dropped"),
        (lambda table: table.append_column("digest", pa.array([1, 2, 3])), "digest is missing, or there twice"),
    ],
)
def test_missing_columns_of_a_file_are_named_and_match_ends_with_status_2(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], words: str
) -> None:
    tap = written(tmp_path, change(pa.Table.from_pydict(ROWS, SCHEMA)))
    done = sojourn("match", str(tap), str(tap))
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_damaged_page_is_refused_in_one_sentence(tmp_path: Path) -> None:
    tap = written(tmp_path, pa.Table.from_pydict(ROWS, SCHEMA))
    [file] = tap.rglob("*.parquet")
    octets = file.read_bytes()
    for at in range(4, 400, 8):
        file.write_bytes(octets[:at] + bytes([octets[at] ^ 0xFF]) + octets[at + 1 :])
        done = sojourn("match", str(tap), str(tap))
        assert done.returncode in {0, 2, 3, 4}, done.stderr
        assert "Traceback" not in done.stderr


def test_malformed_analysis_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "analysis/samples.parquet"
    path.parent.mkdir()
    path.write_bytes(b"PAR1 and no more PAR1")
    with pytest.raises(RequestError, match="cannot be read"):
        read_parquet(path)
