"""`match --engine spark` on real Spark: two executors, or a standalone master, tell what one pass tells, row by row.

Spark is half a gigabyte, which `make setup` installs for `make proof` alone; the small case runs wherever it is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from sojourn.cli.match import inputs_of, is_ours, percentiles
from sojourn.instruments import slices, spark
from sojourn.records.reader import read_table
from sojourn.records.taps import write_dataset
from tests.unit.made_up_taps import Box, write_taps
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Iterator

SOJOURN = str(Path(sys.executable).with_name("sojourn"))
HAS_SPARK = find_spec("pyspark") is not None and shutil.which("java") is not None
needs_spark = pytest.mark.skipif(not HAS_SPARK, reason="Apache Spark is not here: scripts/setup.sh proof installs it")
WINDOW = "2ms"
BOX = Box(packets=20_000, interval_ns=200_000, delay_ns=(20_000, 1_500_000), alike_after=10, sources=("kernel", "bpf"))
"""Four seconds: a file for each."""


def data_set(box: Box, folder: Path) -> list[str]:
    """The two taps of a box as a data set."""
    write_taps(box, folder / "parts", parts=4)
    write_dataset(folder / "parts", folder / "data", "monday", 1_000_000_000)
    shutil.rmtree(folder / "parts")
    return [str(folder / f"data/run=monday/tap={tap}") for tap in ("before", "after")]


def matched(taps: list[str], folder: Path, *options: str) -> dict[str, Any]:
    """What `sojourn match` says; its rows are in the folder."""
    argv = [SOJOURN, "match", *taps, "--window", WINDOW, "-o", str(folder), "--json", *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=1_500)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = printed("match-spark" if "spark" in options else "match", done.stdout)
    return told


def agree(taps: list[str], folder: Path, *options: str) -> dict[str, Any]:
    """Match by one pass and by Spark; every row, count and delay must be the same."""
    one = matched(taps, folder / "one")
    told = matched(taps, folder / "spark", "--engine", "spark", *options)
    for table in ("crossings", "unmatched"):
        mine = read_table(folder / "one", table).frame.drop("part", "who")
        theirs = pl.read_parquet(str(folder / "spark" / table / "*.parquet"))
        assert mine.sort(mine.columns).equals(theirs.sort(mine.columns)), table
    pair, other = one["pairs"][0], told["pairs"][0]
    for name in ("first", "second", "direction_rule", "direction_assumed", "aligned_by_ns"):
        assert other[name] == pair[name], name
    for way, of_spark in zip(pair["directions"], other["directions"], strict=True):
        for name in ("direction", "counts", "had_window", "loss_runs", "mixed_timestamps"):
            assert of_spark[name] == way[name], name
        if pair["clocks"]["relation"] == "one" and not way["delay"]["sampled"]:
            assert of_spark["delay"].pop("mean_ns") == pytest.approx(way["delay"]["mean_ns"])
            assert of_spark["delay"] == {name: way["delay"][name] for name in of_spark["delay"]}
    for tap, of_spark in zip(one["taps"], told["taps"], strict=True):
        for name in ("packets", "with_digest", "without_key", "fragments", "stepped_back", "dropped_by_capture"):
            assert of_spark[name] == tap[name], name
    assert not list(folder.glob(".sojourn-spark-*"))
    return told


@needs_spark
@pytest.mark.may_skip
def test_matching_on_two_executors_equals_one_pass(tmp_path: Path) -> None:
    told = agree(data_set(BOX, tmp_path), tmp_path, "--master", "local-cluster[2,1,1024]", "--slices", "3")
    assert told["engine"]["slices"] == 3
    assert sum(way["counts"]["ambiguous"] for way in told["pairs"][0]["directions"]) > 100


@needs_spark
@pytest.mark.proof
@pytest.mark.parametrize(
    "box",
    [
        replace(BOX, packets=1_000_000, interval_ns=20_000, alike_after=300),
        replace(BOX, packets=300_000, interval_ns=20_000, alike_after=0, offset_ns=3_000_000_000),
        replace(BOX, packets=300_000, interval_ns=20_000, unlabelled=True, backward=0.0, stepped_back=0.3),
    ],
    ids=["a million", "two clocks", "nothing says which way"],
)
def test_matching_many_packets_on_two_executors_equals_one_pass(box: Box, tmp_path: Path) -> None:
    agree(data_set(box, tmp_path), tmp_path, "--master", "local-cluster[2,1,1024]")


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and a worker of Spark on the loopback; the master's address."""
    import pyspark

    spark_class = str(Path(pyspark.__file__).parent / "bin/spark-class")
    env = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(folder / "work")}
    log = folder / "master.log"
    deploy = "org.apache.spark.deploy"
    options = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    processes = []
    try:
        with log.open("w") as to:
            argv = [spark_class, f"{deploy}.master.Master", *options]
            processes.append(subprocess.Popen(argv, env=env, stdout=to, stderr=to))
        url = awaited(log, r"Starting Spark master at (spark://\S+)")
        with (folder / "worker.log").open("w") as to:
            argv = [spark_class, f"{deploy}.worker.Worker", *options, "--cores", "1", "--memory", "1g", url]
            processes.append(subprocess.Popen(argv, env=env, stdout=to, stderr=to))
        awaited(folder / "worker.log", "(Successfully registered) with master")
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(30)


def awaited(log: Path, words: str) -> str:
    """What a program says, once it has."""
    until = time.monotonic() + 180
    while (found := re.search(words, log.read_text())) is None:
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.2)
    return found[1]


@needs_spark
@pytest.mark.proof
def test_spark_master_of_the_user_is_contacted_by_address(tmp_path: Path) -> None:
    with standalone(tmp_path) as url:
        agree(data_set(BOX, tmp_path), tmp_path, "--master", url)


@needs_spark
@pytest.mark.proof
def test_spark_opens_a_data_set_as_the_guide_shows(tmp_path: Path) -> None:
    taps = data_set(BOX, tmp_path)
    guide = (Path(__file__).parents[2] / "docs/guide/match.md").read_text()
    found = re.search(r"^\| Spark \| `(.+)` \|$", guide, re.MULTILINE)
    assert found is not None
    line = found[1].replace("out/data", str(tmp_path / "data"))
    code = f"""
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.driver.host", "127.0.0.1").getOrCreate()
frame = {line}
print(frame.count(), sorted(frame.columns), sorted(row["tap"] for row in frame.select("tap").distinct().collect()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, _, rest = done.stdout.strip().partition(" ")
    assert int(count) == sum(sum(pl.read_parquet(path).height for path in Path(tap).rglob("*.parquet")) for tap in taps)
    assert "'bucket_s'" in rest
    assert rest.endswith("['after', 'before']")


def test_missing_spark_is_reported_with_what_to_install(tmp_path: Path) -> None:
    hidden = tmp_path / "pyspark.py"
    hidden.write_text("raise ImportError\n")
    taps = data_set(replace(BOX, packets=500), tmp_path)
    argv = [SOJOURN, "match", *taps, "--engine", "spark", "-o", str(tmp_path / "out")]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, "pip install 'sojourn[spark]'" in done.stderr) == (3, True), done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["a.pcap", "b.pcap", "--engine", "spark", "-o", "out"], "matches two taps of a data set"),
        (["--engine", "spark", "--mtu", "9000"], "does not know --mtu"),
        (["--master", "local[2]", "a", "b"], "goes with --engine spark"),
    ],
)
def test_wrong_requests_are_refused(words: list[str], sentence: str, tmp_path: Path) -> None:
    done = subprocess.run([SOJOURN, "match", *words], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr


def test_arguments_of_match_are_parsed(tmp_path: Path) -> None:
    words = ["a", "-o", "out", "--engine=spark", "b", "--window", "2ms", "--json"]
    told = {"--output": "out", "--engine": "spark", "--window": "2ms", "--json": None}
    assert inputs_of(words) == (["a", "b"], told, [word for word in words if word not in {"a", "b"}])
    assert is_ours(words)
    assert not is_ours(["a", "b", "-o", str(tmp_path)])
    assert is_ours([str(tmp_path), "b"])
    assert not is_ours([str(tmp_path), "--help"])


def test_percentiles_are_those_of_the_instrument() -> None:
    told = percentiles(np.arange(1, 1_001))
    assert told["p50_ns"] == {"value": 500, "low": 469, "high": 532}
    assert told["p99_9_ns"] == {"value": 999, "low": 997, "high": None}
    assert "p99_99_ns" not in told


def brute_extents(arrived: list[int]) -> list[int]:
    """By the definition: how far back the earliest packet is that should have come later."""
    return [
        next((place - before for before in range(place) if arrived[before] > number), 0)
        for place, number in enumerate(arrived)
    ]


@pytest.mark.parametrize("rows", [7, 50, 1_000])
def test_extents_are_found_chunk_by_chunk(rows: int) -> None:
    """Packets are overtaken by a few, or by so many that several chunks lie between, in both directions."""
    rng = np.random.default_rng(rows)
    parts = []
    truth: dict[tuple[int, int], int] = {}
    for way, reach in ((0, 30), (1, 3)):
        number = np.argsort(np.arange(900) + rng.random(900) * reach, kind="stable")
        number[5], number[450] = number[450], number[5]
        kept = rng.random(900) < 0.9
        rank = np.flatnonzero(kept)
        truth |= {
            (way, int(one)): extent
            for one, extent in zip(number[kept], brute_extents(number[kept].tolist()), strict=True)
        }
        outcomes = np.zeros(len(rank), slices.OUTCOME)
        outcomes["rank"], outcomes["number"], outcomes["way"] = rank, number[kept], way
        parts.append(outcomes)
    batch = slices.as_arrow(np.concatenate(parts), slices.OUTCOMES).drop_columns(["counts", "digest"])
    batches = [batch.slice(begin, 100) for begin in range(0, batch.num_rows, 100)]
    bounds: dict[tuple[int, int], tuple[int, int]] = {}
    for row in batch.to_pylist():
        key = (row["way"], row["rank"] // rows)
        low, high = bounds.get(key, (row["number"], row["number"]))
        bounds[key] = (min(low, row["number"]), max(high, row["number"]))
    later = spark._later(bounds)
    begins: dict[tuple[int, int], int] = {}
    for found in spark._begins(batches, later, bounds, rows):
        for row in found.to_pylist():
            key = (row["way"], row["chunk"])
            begins[key] = min(begins.get(key, row["rank"]), row["rank"])
    spread = pa.Table.from_batches(spark._divide(batches, begins, rows)).sort_by(
        [("way", "ascending"), ("chunk", "ascending"), ("rank", "ascending")]
    )
    told = {}
    for chunk in spark._chunks(spread.to_batches(max_chunksize=64)):
        for row in spark._crossings(chunk, (0, 0)).to_pylist():
            told[slices.WAYS.index(row["direction"]), row["number"]] = row["reordering_extent"] or 0
    assert told == truth
