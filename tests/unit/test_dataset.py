"""What taps saw as a Parquet data set: every packet once, in order, and opened by what reads Parquet."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sojourn.errors import MachineError, RequestError
from sojourn.records import taps as dataset
from sojourn.records.reader import read_table
from sojourn.records.taps import ParquetTap, write_dataset
from tests.unit.in_process import sojourn
from tests.unit.made_up_taps import Box, write_taps
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Callable

BOX = Box(packets=6_000, interval_ns=1_000_000)
GUIDE = Path(__file__).parents[2] / "docs/guide/match.md"
SECOND = 1_000_000_000


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A capture of two taps, in three parts each."""
    write_taps(BOX, tmp_path / "c", parts=3)
    return tmp_path / "c"


def test_data_set_has_every_packet_once_in_tap_order(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "GROUP_ROWS", 1_000)
    first, second = write_dataset(capture, tmp_path / "data", "monday", 2 * SECOND)
    # Names of taps in their order: after, before.
    assert [first.tap, second.tap] == ["after", "before"]
    frame = read_table(capture, "taps").frame
    for one in (first, second):
        tap = ParquetTap.open(one.folder)
        assert len(tap.files) == one.files > 2
        assert (tap.about["key"], tap.about["clock_id"], tap.about["dropped"]) == ("bridge", "77", "6")
        read = pl.concat([pl.read_parquet(path, hive_partitioning=False) for path in tap.files])
        mine = frame.filter(pl.col("who") == one.tap).drop("part", "who")
        assert read.drop("number", "behind_ns").equals(mine)
        assert read["number"].to_list() == list(range(one.packets))
        for path in tap.files:
            groups = pq.ParquetFile(path).metadata
            rows = [groups.row_group(place).num_rows for place in range(groups.num_row_groups)]
            assert all(count == 1_000 for count in rows[:-1])
        # Where times step back a packet counts from the latest on; so its bucket does.
        counted = read["time_ns"] + read["behind_ns"]
        keyed = read["digest"].is_not_null()
        latest = np.maximum.accumulate(np.where(keyed, read["time_ns"], 0))
        assert np.array_equal(counted.filter(keyed), latest[keyed.to_numpy()])
        assert (read["behind_ns"] > 0).sum() > 50


def lines_of_the_guide() -> dict[str, str]:
    """The line that opens a data set with each program, as the guide has it."""
    found = re.findall(r"^\| (DuckDB|Polars|Spark) \| `(.+)` \|$", GUIDE.read_text(), re.MULTILINE)
    return dict(found)


OPENS: dict[str, Callable[[str], Any]] = {
    "DuckDB": lambda line: duckdb.connect().sql(line).pl(),
    "Polars": lambda line: eval(line, {"pl": pl}).collect(),
}


@pytest.mark.parametrize("program", OPENS)
def test_parquet_readers_open_the_data_set_as_the_guide_shows(program: str, capture: Path, tmp_path: Path) -> None:
    write_dataset(capture, tmp_path / "data", "monday", 2 * SECOND)
    line = lines_of_the_guide()[program].replace("out/data", str(tmp_path / "data"))
    opened = OPENS[program](line)
    frame = read_table(capture, "taps").frame
    assert opened.height == frame.height
    assert {"run", "tap", "bucket_s", "time_ns", "digest", "number"} <= {*opened.columns}
    assert opened["run"].unique().to_list() == ["monday"]
    sums = opened.group_by("tap").agg(pl.col("time_ns").cast(pl.Int128).sum()).sort("tap")
    mine = frame.group_by("who").agg(pl.col("time_ns").cast(pl.Int128).sum()).sort("who")
    assert sums.rows() == mine.rows()


def test_two_runs_and_a_damaged_part_are_handled(capture: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    done = sojourn("dataset", str(capture), "-o", str(data), "--json")
    assert done.returncode == 0, done.stderr
    assert [one["tap"] for one in printed("dataset", done.stdout)] == ["after", "before"]
    assert (data / "run=c/tap=before").is_dir()
    again = sojourn("dataset", str(capture), "-o", str(data))
    assert again.returncode == 2
    assert "is there already" in again.stderr
    part = capture / "taps-before-002.arrow"
    part.write_bytes(part.read_bytes()[:-5_000])
    cut = sojourn("dataset", str(capture), "-o", str(data), "--run", "tuesday")
    assert cut.returncode == 4
    assert "what lay before it was written" in cut.stderr
    assert ParquetTap.open(data / "run=tuesday/tap=before").rows[0] > 0
    assert not list(data.rglob(".*"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "is no folder"),
        (["."], "holds no records of a tap"),
        (["c", "--run", "a/b"], "cannot be the name of a partition"),
        (["c", "--bucket", "3"], "give whole seconds"),
        (["c", "--run", "a" * 300], "File name too long: nothing was added"),
        (["c", "-o", "file"], "file is no folder"),
        (["c", "-o", "file/data"], "file is no folder"),
        (["c", "-o", "/proc"], "give a folder in it"),
        (["c", "-o", "data/run=m"], "is a partition of a data set, or in one"),
        (["c", "-o", "data/run=m/below"], "is a partition of a data set, or in one"),
        (["c", "-o", "link"], "is a partition of a data set, or in one"),
    ],
)
def test_wrong_requests_are_refused(
    words: list[str], sentence: str, capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(capture.parent)
    Path("file").touch()
    Path("link").symlink_to("data/run=m/tap=before")
    before = sorted(capture.parent.rglob("*"))
    done = sojourn("dataset", "-o", "data", *words)
    assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(capture.parent.rglob("*")) == before


@pytest.mark.parametrize("is_text", [True, False], ids=["a text", "a number"])
def test_capture_that_lacks_values_is_refused_by_its_name_and_column(is_text: bool, capture: Path) -> None:
    path = sorted(capture.glob("taps-before-*"))[1]
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        table = stream.read_all()
    name = "time_source" if is_text else "time_ns"
    at = table.schema.get_field_index(name)
    kind = table.schema.field(at).type
    column = pa.nulls(table.num_rows, kind)
    if is_text:  # missing among the distinct texts, so no row says that it is
        rows = pa.array([0] * table.num_rows, kind.index_type)
        column = pa.DictionaryArray.from_arrays(rows, pa.nulls(1, kind.value_type))
    table = table.set_column(at, table.schema.field(at), column)
    with pa.ipc.new_stream(str(path), table.schema) as stream:
        stream.write_table(table)
    done = sojourn("dataset", str(capture), "-o", str(capture.parent / "data"))
    assert done.returncode == 2, done.stderr
    assert f"{path.name} is damaged: " in done.stderr
    assert name in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(capture.parent.glob("data/run=*"))


@pytest.fixture
def uneven(tmp_path: Path) -> Path:
    """A capture whose second tap, `before`, saw ten times as much as the first."""
    write_taps(Box(packets=6_000, loss=0.9, copies=0.0, backward=0.0), tmp_path / "uneven")
    return tmp_path / "uneven"


@pytest.mark.parametrize("run", ["monday", "tuesday"])
def test_failed_capture_adds_nothing_to_the_data_set(run: str, uneven: Path, tmp_path: Path) -> None:
    """The second tap's file becomes longer than files may be."""
    data = tmp_path / "data"
    write_taps(Box(packets=100), tmp_path / "c")
    for name in ("before", "after"):
        for path in (tmp_path / "c").glob(f"*-{name}-*"):
            path.rename(path.with_name(path.name.replace(name, f"other-{name}")))
    write_dataset(tmp_path / "c", data, "monday")
    there = sorted(tmp_path.rglob("*"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
    try:
        done = sojourn("dataset", str(uneven), "-o", str(data), "--run", run)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert done.returncode == 3, done.stderr
    assert "File too large: nothing was added to the data set" in done.stderr
    assert sorted(tmp_path.rglob("*")) == there
    assert [one.tap for one in write_dataset(uneven, data, run)] == ["after", "before"]
    names = {one.parent.name + "/" + one.name for one in data.glob("run=*/tap=*")}
    assert names == {f"run={run}/tap={tap}" for tap in ("after", "before")} | {
        f"run=monday/tap=other-{tap}" for tap in ("after", "before")
    }


KILLED = """
import os, signal, sys
from pathlib import Path
from sojourn.records import taps
add = taps._Buckets.add
def killed(self, batch):
    add(self, batch)
    if self.folder.name == "tap=before":
        self.close()
        os.kill(os.getpid(), signal.SIGKILL)
taps._Buckets.add = killed
taps.write_dataset(Path(sys.argv[1]), Path(sys.argv[2]), "tuesday")
"""


def test_draft_of_a_killed_command_disturbs_no_reader_and_is_replaced(capture: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_dataset(capture, data, "monday")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(capture), str(data)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert list((tmp_path / ".data.part").rglob("*.parquet"))
    height = read_table(capture, "taps").frame.height
    for runs in (1, 2):
        for program, line in lines_of_the_guide().items():
            if program in OPENS:
                assert OPENS[program](line.replace("out/data", str(data))).height == runs * height
        if runs == 1:
            write_dataset(capture, data, "tuesday")
    assert not (tmp_path / ".data.part").exists()


def test_one_process_writes_at_a_time_and_removes_nothing_of_others(capture: Path, tmp_path: Path) -> None:
    beside = tmp_path / ".data.part"
    beside.mkdir()
    descriptor = os.open(beside, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(RequestError, match="another `sojourn dataset` is writing"):
        write_dataset(capture, tmp_path / "data", "monday")
    os.close(descriptor)
    (beside / "notes").touch()
    with pytest.raises(RequestError, match="did not write: remove it"):
        write_dataset(capture, tmp_path / "data", "monday")
    assert [path.name for path in beside.iterdir()] == ["notes"]
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("owner", "mode"),
    [
        pytest.param(65534, 0o700, marks=pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives folders away")),
        (-1, 0o777),
        (-1, 0o770),
    ],
)
def test_draft_folder_in_which_another_user_may_write_is_refused(
    owner: int, mode: int, capture: Path, tmp_path: Path
) -> None:
    """A link that lies there could lead a write elsewhere."""
    beside, elsewhere = tmp_path / ".data.part", tmp_path / "elsewhere"
    elsewhere.mkdir()
    beside.mkdir()
    (beside / "run=monday").symlink_to(elsewhere)
    beside.chmod(mode)
    os.chown(beside, owner, -1)
    done = sojourn("dataset", str(capture), "-o", str(tmp_path / "data"), "--run", "monday")
    assert (done.returncode, "is another user's, or others may write in it" in done.stderr) == (2, True), done.stderr
    assert [path.name for path in beside.iterdir()] == ["run=monday"]
    assert not any(elsewhere.iterdir())
    assert not (tmp_path / "data").exists()


def test_draft_folder_is_private_while_it_is_written(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = set()
    write = dataset._write_tap

    def seen(parts: list[Path], folder: Path, *others: Any) -> dataset.Written:
        modes.add(oct((tmp_path / ".data.part").stat().st_mode & 0o7777))
        return write(parts, folder, *others)

    monkeypatch.setattr(dataset, "_write_tap", seen)
    write_dataset(capture, tmp_path / "data", "monday")
    assert modes == {"0o700"}


def test_taps_of_a_run_are_added_all_or_none(capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two renames fails."""
    data = tmp_path / "data"
    (data / "run=monday/tap=other").mkdir(parents=True)
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.parts[-3:] == (".data.part", "run=monday", "tap=before"):
            raise PermissionError(13, "Permission denied", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(MachineError, match="nothing was added"):
        write_dataset(capture, data, "monday")
    assert [path.name for path in (data / "run=monday").iterdir()] == ["tap=other"]
    assert not (tmp_path / ".data.part").exists()


def test_reading_a_tap_requires_exactly_one_complete_tap(capture: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_dataset(capture, data, "monday", SECOND)
    with pytest.raises(RequestError, match="more than one tap"):
        ParquetTap.open(data)
    with pytest.raises(RequestError, match="is no tap of a data set"):
        ParquetTap.open(tmp_path / "nowhere")
    tap = ParquetTap.open(data / "run=monday/tap=after")
    tap.files[1].unlink()
    with pytest.raises(RequestError, match="lacks a file"):
        ParquetTap.open(tap.folder)


def test_parts_of_different_taps_are_refused(capture: Path, tmp_path: Path) -> None:
    write_taps(Box(packets=100, offset_ns=5), tmp_path / "other")
    (tmp_path / "other/taps-after-000.arrow").rename(capture / "taps-after-009.arrow")
    with pytest.raises(RequestError, match="differ in clock_id"):
        write_dataset(capture, tmp_path / "data", "monday")
