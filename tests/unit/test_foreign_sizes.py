"""Files of somebody else's run that are endless, or that a few bytes make huge: one sentence, and little memory."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any, Literal, cast

import polars as pl
import pyarrow as pa
import pytest

from sojourn.analysis.run import load
from sojourn.api.runs import Run
from sojourn.cli.compare import read_plan
from sojourn.conduct.run import resume
from sojourn.errors import RequestError
from sojourn.export import log as export_log
from sojourn.export.prometheus import _analysed
from sojourn.history.entry import study_of
from sojourn.records import log, messages
from sojourn.records.bed import read_bed
from sojourn.records.decode import MOST_BYTES, MOST_OF_RUN, json_file
from sojourn.records.folder import RunFolder
from sojourn.records.log import read_log
from sojourn.records.reader import arrow_schema, read_batches, read_in_turn, read_table, rows_of_blocks
from sojourn.records.results import read_budgets, read_verdict
from sojourn.report.clocks import Clocks
from sojourn.watch.follow import Follower
from sojourn.watch.runs import line_of
from tests.unit.made_up_tcp import Log, MadeFlow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

READERS = [read_bed, read_budgets, read_verdict, json_file]
ROWS = 10_000


@pytest.mark.parametrize("read", READERS)
def test_too_long_file_is_refused(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    file = tmp_path / "x.json"
    file.touch()
    os.truncate(file, MOST_BYTES + 1)
    with pytest.raises(RequestError, match="has more than 64 MiB"):
        read(file)


@pytest.mark.parametrize("read", READERS)
def test_file_of_too_many_values_is_refused(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    """Each takes some 70 bytes: 64 MiB of `{},` took gigabytes."""
    (tmp_path / "x.json").write_bytes(b"[" + b"{}," * (MOST_OF_RUN // 2 + 1) + b"{}]")
    with pytest.raises(RequestError, match="values"):
        read(tmp_path / "x.json")


OF_FOLDERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "analysis": (load, "plan"),
    "resume": (lambda run: resume(RunFolder(run), cast("Any", None)), "plan"),
    "history": (lambda run: study_of(RunFolder(run)), "plan"),
    "compare": (lambda run: read_plan(RunFolder(run).plan), "plan"),
    "api, plan": (lambda run: Run(RunFolder(run)).plan, "plan"),
    "metrics": (lambda run: _analysed(RunFolder(run)), "verdict"),
}
"""What reads a file of a run folder, and the file."""


@pytest.mark.parametrize("reader", OF_FOLDERS)
@pytest.mark.parametrize("kind", ["pipe", "too long"])
def test_foreign_file_of_a_run_folder_is_neither_waited_for_nor_read_whole(
    tmp_path: Path, reader: str, kind: str
) -> None:
    read, name = OF_FOLDERS[reader]
    file = getattr(RunFolder(tmp_path), name)
    file.parent.mkdir(exist_ok=True)
    RunFolder(tmp_path).analysis.mkdir(exist_ok=True)
    RunFolder(tmp_path).results.write_text("[]")
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.touch()
        os.truncate(file, MOST_BYTES + 1)
    with pytest.raises(RequestError, match="no ordinary file" if kind == "pipe" else "more than 64 MiB"):
        read(tmp_path)


def test_api_reads_a_bed_of_limited_length(tmp_path: Path) -> None:
    RunFolder(tmp_path).bed.touch()
    os.truncate(RunFolder(tmp_path).bed, MOST_BYTES + 1)
    with pytest.raises(RequestError, match="more than 64 MiB"):
        _ = Run(RunFolder(tmp_path)).bed


def test_list_of_runs_has_a_run_whose_verdict_is_a_pipe(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "one")
    folder.analysis.mkdir(parents=True)
    folder.log.touch()
    os.mkfifo(folder.verdict)
    assert line_of(folder, Follower(folder.log))["verdict"] == ""
    folder.log.unlink()
    os.mkfifo(folder.log)
    assert not Follower(folder.log).poll()


@pytest.mark.parametrize("read", [read_bed, json_file])
def test_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    os.mkfifo(tmp_path / "x.json")
    with pytest.raises(RequestError, match="no ordinary file"):
        read(tmp_path / "x.json")


def test_endless_line_of_a_log_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text('{"event": "sham"}\n')
    os.truncate(file, 1 << 40)
    with pytest.raises(RequestError, match="has a line of more than 8 MiB"):
        read_log(file)


def test_too_long_log_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MOST_BYTES", 4 << 20)
    file = tmp_path / "log.jsonl"
    line = '{"event": "sham"}\n'
    file.write_text(line * ((4 << 20) // len(line)))
    assert read_log(file, {"begun"}) == []
    file.write_text(line * ((4 << 20) // len(line) + 1))
    with pytest.raises(RequestError, match="has more than 4 MiB"):
        read_log(file, {"begun"})


def written(
    folder: Path, name: str, codec: Literal["lz4", "zstd"] | None, metadata: dict[bytes, bytes] | None = None
) -> Path:
    """A table of so many rows, all of whose columns are zeros; strings are from a dictionary."""
    schema = arrow_schema(name, "unit")
    columns: list[pa.Array[Any]] = []
    for field in schema:
        if pa.types.is_dictionary(field.type):
            columns.append(pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int8()), pa.array(["x" * 200])))
        else:
            columns.append(pa.array([0] * ROWS).cast(field.type))
    path = folder / f"{name}-x-000.arrow"
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(str(path), schema, options=options) as stream:
        stream.write_batch(pa.record_batch(columns, schema=schema), custom_metadata=metadata)
    return path


def every_reader(folder: Path, name: str, path: Path) -> list[Callable[[], Any]]:
    def in_batches() -> int:
        with read_batches(path, name) as reading:
            return sum(batch.num_rows for batch in reading)

    return [
        lambda: read_table(folder, name).frame.height,
        lambda: sum(one.frame.height for one in read_in_turn(folder, name)),
        lambda: sum(rows_of_blocks(folder, name).values()) or ROWS,  # some have no blocks
        in_batches,
    ]


@pytest.mark.parametrize(("name", "codec"), [("sends", None), ("crossings", "lz4"), ("crossings", None)])
def test_tables_are_read_as_instruments_write_them(
    tmp_path: Path, name: str, codec: Literal["lz4", "zstd"] | None
) -> None:
    path = written(tmp_path, name, codec)
    assert {read() for read in every_reader(tmp_path, name, path)} == {ROWS}


@pytest.mark.parametrize(
    ("name", "codec", "why"),
    [("sends", "lz4", "compressed, which those of this table never are"), ("crossings", "zstd", "else than LZ4")],
)
def test_compression_that_no_instrument_uses_is_refused(
    tmp_path: Path, name: str, codec: Literal["lz4", "zstd"], why: str
) -> None:
    for read in every_reader(tmp_path, name, written(tmp_path, name, codec)):
        with pytest.raises(RequestError, match=why):
            read()


def test_rows_that_say_they_have_terabytes_are_refused_before_they_are_allocated(tmp_path: Path) -> None:
    path = written(tmp_path, "crossings", "lz4")
    octets, said = path.read_bytes(), struct.pack("<q", 8 * ROWS)
    assert octets.count(said) >= 3
    path.write_bytes(octets.replace(said, struct.pack("<q", 1 << 41), 1))
    for read in every_reader(tmp_path, "crossings", path):
        with pytest.raises(RequestError, match="uncompressed its rows have more than 4 GiB"):
            read()


def test_lengths_of_batches_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum is that of the columns, whatever they are compressed to."""
    path = written(tmp_path, "crossings", "lz4")
    with pa.memory_map(str(path)) as source:
        total = sum(len(buffer) for batch in pa.ipc.open_stream(source) for one in batch.columns
                    for buffer in one.buffers() if buffer is not None)  # fmt: skip
    assert path.stat().st_size < total / 20
    monkeypatch.setattr(messages, "MOST_BYTES", total + 1000)
    assert read_table(tmp_path, "crossings").frame.height == ROWS
    monkeypatch.setattr(messages, "MOST_BYTES", total - 1000)
    at_once, in_turn = every_reader(tmp_path, "crossings", path)[:2], every_reader(tmp_path, "crossings", path)[2:]
    for read in at_once:
        with pytest.raises(RequestError, match="uncompressed its rows have more than"):
            read()
    assert {read() for read in in_turn} == {ROWS}, "what is read batch by batch may be of any length"
    monkeypatch.setattr(messages, "MOST_BYTES_AT_ONCE", total - 1000)
    for read in in_turn:
        with pytest.raises(RequestError, match="uncompressed its rows have more than"):
            read()


def test_log_of_any_length_is_exported_in_chunks_of_few_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One above 64 GiB, of some 10⁸ samples, was refused; a chunk has 16 batches at most, however short."""
    Log((MadeFlow(rounds=10),)).write(tmp_path)
    [path] = tmp_path.rglob("tcp_samples-*.arrow")
    table = pa.ipc.open_stream(path.read_bytes()).read_all()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(str(path), table.schema, options=options) as stream:
        stream.write_table(table, max_chunksize=1)
    monkeypatch.setattr(messages, "MOST_BYTES", 1)
    read = export_log.TcpLog.open(tmp_path)
    chunks = list(read.batches())
    assert sum(frame.height for frame in chunks) == table.num_rows > export_log.CHUNK_BATCHES
    assert max(frame.height for frame in chunks) <= export_log.CHUNK_BATCHES
    assert pl.concat(read.in_order()).equals(pl.concat(chunks).sort("time_ns", maintain_order=True))


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_metadata_of_a_batch_is_refused(tmp_path: Path, codec: Literal["lz4"] | None) -> None:
    """In metadata of the fourth version, Arrow takes compression from it."""
    path = written(tmp_path, "crossings", codec, {b"ARROW:experimental_compression": b"lz4"})
    for read in every_reader(tmp_path, "crossings", path):
        with pytest.raises(RequestError, match="a batch has metadata of its own"):
            read()


def test_pipe_in_place_of_a_table_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "crossings-x-000.arrow"
    os.mkfifo(path)
    for read in every_reader(tmp_path, "crossings", path):
        with pytest.raises(RequestError, match="no ordinary file"):
            read()
    Log((MadeFlow(rounds=10),)).write(tmp_path / "log")
    [samples] = (tmp_path / "log").rglob("tcp_samples-*.arrow")
    samples.unlink()
    os.mkfifo(samples)
    with pytest.raises(RequestError, match="no ordinary file"):
        list(export_log.TcpLog.open(tmp_path / "log").batches())
    os.mkfifo(tmp_path / "clock_lines-x-000.arrow")
    with pytest.raises(RequestError, match="no ordinary file"):
        Clocks.read(tmp_path)


def test_file_that_is_cut_anywhere_is_looked_at_to_its_end(tmp_path: Path) -> None:
    path = written(tmp_path, "crossings", "lz4")
    octets = path.read_bytes()
    for length in range(0, len(octets), 7):
        path.write_bytes(octets[:length])
        messages.refuse_unpackable(path, "crossings")
