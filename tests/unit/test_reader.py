"""Records, whole and cut: what was written before a cut is kept, and the cut is reported."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from sojourn.analysis.run import load
from sojourn.analysis.tester import other_columns
from sojourn.errors import RequestError
from sojourn.records import TABLES, Field, RunFolder, read_table
from sojourn.records.reader import END_MARKER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def folder(synthetic: Callable[..., Any]) -> RunFolder:
    return RunFolder(synthetic(rounds=6, icmp_bytes=(64,)).write())


def probes_of(folder: RunFolder) -> Path:
    return folder.records / "probes-000.arrow"


def cut(path: Path, keep: float) -> None:
    octets = path.read_bytes()
    path.write_bytes(octets[: int(len(octets) * keep)])


def test_intact_table_is_complete_and_keeps_units_and_clocks(folder: RunFolder) -> None:
    table = read_table(folder.records, "probes")
    assert table.frame.height == 6 * 3 * 2 * 44
    assert table.truncated == []
    assert table.metadata("profile") == ["release"]
    assert table.field_metadata("departure_ns", "clock") == ["simulated"]
    assert table.field_metadata("departure_ns", "unit") == ["ns"]


def test_times_are_plain_integers(folder: RunFolder) -> None:
    schema = read_table(folder.records, "probes").frame.schema
    assert {schema[one.name] for one in TABLES["probes"].values() if one.unit == "ns"} == {pl.Int64()}


@pytest.mark.parametrize("keep", [0.3, 0.5, 0.77, 0.999])
def test_complete_batches_before_a_truncation_are_kept(folder: RunFolder, keep: float) -> None:
    cut(probes_of(folder), keep)
    table = read_table(folder.records, "probes")
    assert [part.complete for part in table.parts] == [False]
    assert 0 < table.frame.height < 6 * 3 * 2 * 44 or keep == 0.999
    assert table.frame.height % 44 == 0


def test_missing_end_marker_is_detected_although_all_rows_exist(folder: RunFolder) -> None:
    octets = probes_of(folder).read_bytes()
    assert octets.endswith(END_MARKER)
    probes_of(folder).write_bytes(octets[: -len(END_MARKER)])
    table = read_table(folder.records, "probes")
    assert table.frame.height == 6 * 3 * 2 * 44
    assert [part.cut for part in table.truncated] == ["without its end marker"]


def test_a_tail_of_zeros_is_not_taken_for_an_end(folder: RunFolder) -> None:
    octets = probes_of(folder).read_bytes()
    probes_of(folder).write_bytes(octets[: len(octets) // 2] + bytes(4096))
    assert len(read_table(folder.records, "probes").truncated) == 1


@pytest.mark.parametrize("octets", [b"", b"\xff\xff\xff\xff", b"not arrow at all, but longer than a header"])
def test_file_without_a_header_gives_no_rows_and_is_reported(folder: RunFolder, octets: bytes) -> None:
    probes_of(folder).write_bytes(octets)
    table = read_table(folder.records, "probes")
    assert table.frame.height == 0
    assert len(table.truncated) == 1


def test_parts_are_concatenated_in_order(folder: RunFolder) -> None:
    probes_of(folder).with_name("probes-001.arrow").write_bytes(probes_of(folder).read_bytes())
    table = read_table(folder.records, "probes")
    assert table.frame["part"].unique().sort().to_list() == [0, 1]
    assert table.frame.height == 2 * 6 * 3 * 2 * 44


def test_parts_are_ordered_by_number_with_any_number_of_digits(tmp_path: Path) -> None:
    for number in (10, 999, 1000, 70_000):
        write_sends(tmp_path / f"sends-a-{number:03}.arrow", [number])
    table = read_table(tmp_path, "sends")
    assert [part.number for part in table.parts] == table.frame["seq"].to_list() == [10, 999, 1000, 70_000]


def test_no_file_gives_an_empty_table_with_all_columns(tmp_path: Path) -> None:
    table = read_table(tmp_path, "captures")
    assert table.frame.columns == [*TABLES["captures"], "part"]
    assert table.frame.height == 0


def test_another_table_is_refused(folder: RunFolder) -> None:
    probes_of(folder).write_bytes((folder.records / "blocks-000.arrow").read_bytes())
    with pytest.raises(RequestError, match="is a record of 'sojourn\\.blocks', not of 'probes'"):
        read_table(folder.records, "probes")


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write a file again with other columns."""
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        table = change(stream.read_all())
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)


def test_column_added_since_is_null_without_a_warning(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    new = Field("session", "int32", nullable=False, unit="1", clock=None, source=None, since=2, doc="")
    monkeypatch.setitem(TABLES, "probes", {"session": new, **TABLES["probes"]})
    table = read_table(folder.records, "probes")
    assert table.frame.columns == [*TABLES["probes"], "part"]
    assert table.frame.schema["session"] == pl.Int32()
    assert table.frame["session"].null_count() == table.frame.height == 6 * 3 * 2 * 44
    assert (table.parts[0].missing, table.parts[0].unknown) == ((), ())


@pytest.mark.parametrize("column", list(TABLES["probes"]))
def test_missing_required_column_is_null_and_reported(folder: RunFolder, column: str) -> None:
    whole = read_table(folder.records, "probes").frame
    rewrite(probes_of(folder), lambda table: table.drop_columns([column]))
    for wanted in (None, ["block", column]):
        table = read_table(folder.records, "probes", columns=wanted)
        assert table.parts[0].missing == (column,)
        assert table.frame[column].null_count() == whole.height
        assert table.frame.drop(column).equals(whole.select(table.frame.columns).drop(column))
        assert table.frame.schema == whole.select(table.frame.columns).schema
    found = {one.name: one for one in other_columns(load(folder.path))}
    assert found["columns_missing"].sentence.startswith(f"probes-000.arrow lacks {column}")


def test_column_of_a_later_version_is_ignored_and_reported(folder: RunFolder) -> None:
    rewrite(probes_of(folder), lambda table: table.append_column("colour", table.column("seq")))
    table = read_table(folder.records, "probes")
    assert table.parts[0].unknown == ("colour",)
    assert table.frame.columns == [*TABLES["probes"], "part"]
    assert [one.name for one in other_columns(load(folder.path))] == ["columns_unknown"]


def test_a_renamed_column_and_a_renamed_value_are_read_from_older_files(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read_table(folder.records, "probes").frame
    source = dataclasses.replace(
        TABLES["probes"]["arrival_source"], was="stamped_by", renamed=(("simulator", "simulated"),)
    )
    monkeypatch.setitem(TABLES, "probes", {**TABLES["probes"], "arrival_source": source})

    def as_it_was(table: pa.Table) -> pa.Table:
        place = table.column_names.index("arrival_source")
        names = pa.array(["simulator"] * table.num_rows).dictionary_encode()
        return table.set_column(place, "stamped_by", names)

    rewrite(probes_of(folder), as_it_was)
    for wanted in (None, ["block", "arrival_source"]):
        table = read_table(folder.records, "probes", columns=wanted)
        assert (table.parts[0].missing, table.parts[0].unknown) == ((), ())
        assert set(table.frame["arrival_source"]) == {"simulated"}
        assert table.frame.equals(whole.select(table.frame.columns))


def test_column_under_old_and_new_name_uses_the_new_one(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    seq = dataclasses.replace(TABLES["probes"]["seq"], was="number")
    monkeypatch.setitem(TABLES, "probes", {**TABLES["probes"], "seq": seq})
    whole = read_table(folder.records, "probes").frame
    rewrite(probes_of(folder), lambda table: table.append_column("number", table.column("block")))
    table = read_table(folder.records, "probes")
    assert table.frame.equals(whole)
    assert table.parts[0].unknown == ("number",)


def test_tables_of_both_ends_name_their_writer(tmp_path: Path) -> None:
    for who, seq in (("a", [0, 1]), ("a2", [5])):
        write_sends(tmp_path / f"sends-{who}-000.arrow", seq)
    table = read_table(tmp_path, "sends")
    assert [(part.who, part.number, part.rows) for part in table.parts] == [("a", 0, 2), ("a2", 0, 1)]
    assert table.frame.select("who", "seq").rows() == [("a", 0), ("a", 1), ("a2", 5)]
    assert read_table(tmp_path, "streams").frame.columns == [*TABLES["streams"], "part", "who"]


def write_sends(path: Path, seq: list[int]) -> None:
    """A file of sends in which only the numbers differ."""
    types = {"int32": pa.int32(), "int64": pa.int64(), "utf8-dictionary": pa.dictionary(pa.int8(), pa.string())}
    fields = TABLES["sends"].values()
    schema = pa.schema([pa.field(one.name, types[one.type], one.nullable) for one in fields])
    columns = {one.name: ["kernel" if "source" in one.name else 1] * len(seq) for one in fields} | {"seq": seq}
    with pa.ipc.new_stream(str(path), schema) as writer:
        writer.write_table(pa.table(columns, schema=schema))
