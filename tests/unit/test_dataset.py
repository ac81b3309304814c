"""What taps saw as a Parquet data set: every packet once, in order, and opened by what reads Parquet."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from sojourn.errors import RequestError
from sojourn.records import taps as dataset
from sojourn.records.reader import read_table
from sojourn.records.taps import ParquetTap, write_dataset
from tests.unit.in_process import sojourn
from tests.unit.made_up_taps import Box, write_taps

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


def test_every_packet_is_there_once_in_the_order_of_its_tap(
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
def test_what_reads_parquet_opens_it_by_the_line_of_the_guide(program: str, capture: Path, tmp_path: Path) -> None:
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


def test_two_runs_and_a_damaged_part(capture: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    done = sojourn("dataset", str(capture), "-o", str(data), "--json")
    assert done.returncode == 0, done.stderr
    assert [one["tap"] for one in json.loads(done.stdout)] == ["after", "before"]
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
    ],
)
def test_wrong_requests_are_refused(
    words: list[str], sentence: str, capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(capture.parent)
    done = sojourn("dataset", *words, "-o", "data")
    assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr


def test_a_tap_of_a_data_set_is_whole(capture: Path, tmp_path: Path) -> None:
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
