"""Engines that divide packets by their digests tell of each what one pass tells.

Losses, copies, reordering, equal packets, times that step back, one clock or two, either direction.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from sojourn.instruments import find_instrument, slices, spark
from sojourn.instruments.matching import NAMES
from sojourn.records import TABLES
from sojourn.records.reader import read_table
from sojourn.records.taps import write_dataset
from tests.unit.made_up_taps import Box, write_taps
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    import polars as pl

BOX = Box(packets=20_000)
BOXES = {
    "one clock": BOX,
    "equal packets": replace(BOX, alike_after=40),
    "few that differ": replace(BOX, alike_after=3, packets=6_000),
    "two clocks": replace(BOX, offset_ns=5_000_000_000),
    "two clocks, equal packets": replace(BOX, offset_ns=-40_000_000, alike_after=400),
    "nothing says which way": replace(BOX, unlabelled=True, backward=0.0),
    "one direction": replace(BOX, backward=0.0, stepped_back=0.3),
}
"""Trains of equal packets cross every border that there is between slices of time."""

WINDOW = "2ms"


def matched(words: list[str], folder: Path) -> dict[str, Any]:
    """What `match` says, and in the folder its rows."""
    argv = [str(find_instrument()), "match", *words, "--window", WINDOW, "-o", str(folder), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = printed("match", done.stdout)
    return told


def rows(folder: Path, table: str) -> pl.DataFrame:
    """The rows of a table, in an order that does not depend on who wrote them."""
    frame = read_table(folder, table).frame
    return frame.sort(frame.columns)


@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("slices", [1, 3])
def test_matching_in_slices_equals_matching_in_one_pass(name: str, slices: int, tmp_path: Path) -> None:
    [first], [second] = write_taps(BOXES[name], tmp_path / "c")
    one = matched([str(first), str(second)], tmp_path / "one")
    words = [str(first), str(second), "--engine", "local", "--slices", str(slices)]
    assert matched(words, tmp_path / "local") == one
    for table in ("crossings", "unmatched"):
        assert rows(tmp_path / "local", table).equals(rows(tmp_path / "one", table))
    counts = [way["counts"] for way in one["pairs"][0]["directions"]]
    # What was to be tested is there.
    for what in ("matched", "lost", "duplicated", "unexpected", "reordered"):
        assert sum(count[what] for count in counts) > 0, what
    assert sum(count["ambiguous"] for count in counts) > 100 or not BOXES[name].alike_after
    assert one["taps"][0]["stepped_back"] > 10


@pytest.mark.parametrize("sources", [("kernel", "bpf"), ("bpf", "bpf"), ("hardware", "kernel")])
def test_delays_between_timestamps_of_different_sources_are_counted_and_noted(
    sources: tuple[str, str], tmp_path: Path
) -> None:
    [first], [second] = write_taps(replace(BOX, packets=2_000, sources=sources), tmp_path / "c")
    words = [str(first), str(second)]
    one = matched(words, tmp_path / "one")
    assert matched([*words, "--engine", "local"], tmp_path / "local") == one
    differ = sources[0] != sources[1]
    for way in one["pairs"][0]["directions"]:
        assert way["mixed_timestamps"] == (way["counts"]["matched"] if differ else 0)
    crossings = rows(tmp_path / "one", "crossings").filter(direction="forward")
    assert crossings.select("first_source", "second_source").unique().rows() == [sources]
    argv = [str(find_instrument()), "match", *words, "--window", WINDOW]
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert ("between timestamps of different sources" in told) == differ


def test_sources_have_one_order_everywhere() -> None:
    """What runs on a cluster's machines imports nothing of ours, so it has the names again."""
    assert list(slices.SOURCES) == NAMES["time_source"]
    assert len(slices.SOURCES) < slices.NO_SOURCE
    assert TABLES["taps"]["time_source"].doc.endswith(": " + ", ".join(slices.SOURCES) + ".")
    notes = np.arange(32, dtype=np.uint8)
    told = spark._sources(notes).to_pylist()
    assert told[: len(slices.SOURCES)] == NAMES["time_source"]
    assert told == [told[note & slices.NO_SOURCE] for note in range(32)]
    assert told[len(slices.SOURCES) : slices.NO_SOURCE + 1] == [None] * (slices.NO_SOURCE + 1 - len(slices.SOURCES))


def test_matching_in_slices_is_correct_across_batch_boundaries(tmp_path: Path) -> None:
    """Batches of 65,536 packets end in the middle of windows, trains and reordered packets."""
    [first], [second] = write_taps(replace(BOX, packets=150_000, alike_after=30_000, interval_ns=2_000), tmp_path / "c")
    one = matched([str(first), str(second)], tmp_path / "one")
    local = matched([str(first), str(second), "--engine", "local", "--slices", "2"], tmp_path / "local")
    assert local == one
    for table in ("crossings", "unmatched"):
        assert rows(tmp_path / "local", table).equals(rows(tmp_path / "one", table))


def test_three_taps_are_two_pairs(tmp_path: Path) -> None:
    [first], [second] = write_taps(BOX, tmp_path / "c")
    [_], [third] = write_taps(replace(BOX, delay_ns=(500_000, 900_000)), tmp_path / "d")
    words = [str(first), str(second), str(third)]
    one = matched(words, tmp_path / "one")
    assert matched([*words, "--engine", "local"], tmp_path / "local") == one
    assert rows(tmp_path / "local", "crossings").equals(rows(tmp_path / "one", "crossings"))


@pytest.mark.parametrize("engine", [[], ["--engine", "local", "--slices", "2"]])
def test_impossible_row_ends_reading_and_no_row_is_matched_twice(engine: list[str], tmp_path: Path) -> None:
    (first,), (second,) = write_taps(BOX, tmp_path)
    with pa.OSFile(str(second), "rb") as file, pa.ipc.open_stream(file) as stream:
        whole = stream.read_all()
    place = whole.schema.get_field_index("length_bytes")
    lengths = whole["length_bytes"].to_pylist()
    lengths[700] = -1
    bad = whole.set_column(place, whole.schema.field(place), pa.array(lengths, pa.int32()))
    with pa.OSFile(str(second), "wb") as file, pa.ipc.new_stream(file, bad.schema) as stream:
        stream.write_table(bad)
    argv = [str(find_instrument()), "match", str(first), str(second), "--window", WINDOW, "--json", *engine]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 4, done.stderr
    assert "length_bytes is -1; only what was before it has been matched" in done.stderr


def test_too_little_memory_is_counted(tmp_path: Path) -> None:
    """What is forgotten early is another packet than in one pass; nothing is counted twice or not at all."""
    [first], [second] = write_taps(replace(BOX, packets=60_000, interval_ns=100), tmp_path / "c")
    words = [str(first), str(second), "--engine", "local", "--memory", "1MiB"]
    told = matched(words, tmp_path / "local")
    for way in told["pairs"][0]["directions"]:
        count = way["counts"]
        assert count["evicted"] > 0
        assert count["seen_first"] == sum(count[one] for one in ("matched", "lost", "evicted", "pending"))
        assert count["seen_second"] == sum(count[one] for one in ("matched", "duplicated", "unexpected"))


@pytest.mark.parametrize(
    ("words", "sentence"), [(["--slices", "2"], "goes with --engine local"), (["--engine", "spark"], "`sojourn match`")]
)
def test_wrong_requests_are_refused(words: list[str], sentence: str, tmp_path: Path) -> None:
    [first], [second] = write_taps(Box(packets=100), tmp_path / "c")
    argv = [str(find_instrument()), "match", str(first), str(second), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr


def sojourn(*words: str) -> subprocess.CompletedProcess[str]:
    """The program, in a process of its own: it starts the instrument."""
    argv = [str(Path(sys.executable).with_name("sojourn")), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)


def through_sojourn(words: list[str], folder: Path) -> dict[str, Any]:
    """As `matched`, but by the program that reads data sets, too."""
    done = sojourn("match", *words, "--window", WINDOW, "-o", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = printed("match", done.stdout)
    return told


@pytest.mark.parametrize("engine", ["one", "local"])
@pytest.mark.parametrize("name", ["one clock", "two clocks"])
def test_matching_a_data_set_equals_matching_its_records(name: str, engine: str, tmp_path: Path) -> None:
    # Four seconds, so that a second is a file.
    box = replace(BOXES[name], interval_ns=200_000, delay_ns=(20_000, 1_500_000))
    write_taps(box, tmp_path / "parts", parts=4)
    [first], [second] = write_taps(box, tmp_path / "c")
    one = matched([str(first), str(second)], tmp_path / "one")
    write_dataset(tmp_path / "parts", tmp_path / "data", "monday", 1_000_000_000)
    taps = [str(tmp_path / f"data/run=monday/tap={tap}") for tap in ("before", "after")]
    told = through_sojourn([*taps, "--engine", engine], tmp_path / "set")
    assert [tap["name"] for tap in told["taps"]] == taps
    # Each part says what it dropped.
    assert [tap["dropped_by_capture"] for tap in told["taps"]] == [8, 8]
    for tap, mine in zip(told["taps"], one["taps"], strict=True):
        tap |= {"name": mine["name"], "dropped_by_capture": mine["dropped_by_capture"]}
    told["pairs"][0] |= {which: one["pairs"][0][which] for which in ("first", "second")}
    assert told == one
    for table in ("crossings", "unmatched"):
        assert rows(tmp_path / "set", table).equals(rows(tmp_path / "one", table))


def test_a_partition_that_is_given_twice_is_read_twice(tmp_path: Path) -> None:
    [first], _ = write_taps(Box(packets=5_000), tmp_path / "c")
    write_dataset(tmp_path / "c", tmp_path / "data", "monday")
    tap = str(tmp_path / "data/run=monday/tap=before")
    one = matched([str(first), str(first), str(first)], tmp_path / "one")
    told = through_sojourn([tap, tap, tap], tmp_path / "set")
    assert [way["counts"] for pair in told["pairs"] for way in pair["directions"]] == [
        way["counts"] for pair in one["pairs"] for way in pair["directions"]
    ]
    assert len(told["pairs"]) == 2


def test_option_value_equal_to_an_input_name_is_not_an_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, [second] = write_taps(Box(packets=1_000), tmp_path / "c")
    write_dataset(tmp_path / "c", tmp_path / "data", "monday")
    (tmp_path / "bridge").symlink_to(tmp_path / "data/run=monday/tap=before")
    monkeypatch.chdir(tmp_path)
    told = through_sojourn(["bridge", str(second), "--key", "bridge"], tmp_path / "out")
    assert told["key"] == "bridge"
    assert [tap["name"] for tap in told["taps"]] == ["bridge", str(second)]


def test_data_set_refused_by_the_instrument_ends_without_hanging(tmp_path: Path) -> None:
    write_taps(Box(packets=1_000), tmp_path / "c")
    write_dataset(tmp_path / "c", tmp_path / "data", "monday")
    taps = [str(tmp_path / f"data/run=monday/tap={tap}") for tap in ("before", "after")]
    for words, sentence in ((["--key", "nat"], "digests by the key bridge"), (["--slices", "2"], "goes with")):
        done = sojourn("match", *taps, *words)
        assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr
