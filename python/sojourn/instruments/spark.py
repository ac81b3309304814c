"""`match --engine spark`: match taps of a Parquet data set on a cluster of Apache Spark.

Spark divides packets by their digests, sorts each slice into the order of both taps, and passes it to the instrument,
which matches it as in a single pass. What depends on all packets is computed before and afterwards: numbering and the
ends of the taps, from the files; reordering, from the received packets, in chunks, each with the packets received since
the earliest one that overtook one of it. A machine holds the window of a slice, or a chunk, in memory.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sojourn.binary import find_instrument
from sojourn.errors import MachineError, RequestError
from sojourn.instruments import slices
from sojourn.instruments.slices import (
    AMBIGUOUS,
    COUNTS,
    EVENTS,
    MATCHED,
    NO_SOURCE,
    OUTCOMES,
    SOURCES,
    UNMATCHED,
    WAYS,
    File,
    Terms,
    extents,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from sojourn.records.taps import ParquetTap

CHUNK_ROWS = 1 << 20
"""The packets of a chunk, whose reordering is computed at once."""

ROWS_OF_A_SLICE = 1 << 22
SAMPLE = 1 << 18
"""The delays of each direction that percentiles use: of more, a random sample, as in a single pass."""

INSTALL = "pip install 'sojourn[spark]', and Java 17 or newer (apt-get install openjdk-17-jre-headless)"


@dataclass(frozen=True)
class Asked:
    """The master's address, the number of slices, and the folder of the result."""

    master: str
    output: Path
    slices: int | None = None
    chunk_rows: int = CHUNK_ROWS


LOGGING = """rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %m%n
"""
"""The logging configuration of Spark: errors only."""

Told = dict[str, Any]


def match(taps: Sequence[ParquetTap], told: Mapping[str, Any], asked: Asked) -> Told:
    """Match two taps by the instrument's parameters; write `crossings` and `unmatched` below the output folder.

    Returns the counts, and delays of a random sample. Raises RequestError if the output exists already, MachineError if
    Spark is missing or fails.
    """
    if asked.output.exists():
        raise RequestError(f"{asked.output} is there already: give another folder")
    terms = _terms(told["pairs"][0])
    with _scratch(asked) as scratch, _session(asked.master, scratch) as spark:
        return _Job(spark, terms, asked).run(taps)


def _terms(pair: Mapping[str, Any]) -> Terms:
    ways = {name: WAYS.index(pair[name]) for name in ("along", "against", "unlabelled")}
    one, other = pair["aligned_ns"]
    return Terms(pair["window_ns"], pair["ahead_ns"], pair["memory_bytes"], (one, other), ways, pair["is_always"])


@contextmanager
def _scratch(asked: Asked) -> Iterator[Path]:
    """Make a folder beside the output, for temporary files of executors on this machine."""
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=asked.output.parent, prefix=".sojourn-spark-") as folder:
        yield Path(folder).resolve()


@contextmanager
def _session(master: str, scratch: Path) -> Iterator[SparkSession]:
    try:
        from pyspark import cloudpickle
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MachineError(f"Apache Spark is not installed: {INSTALL}") from error
    from py4j.protocol import Py4JError

    cloudpickle.register_pickle_by_value(slices)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    # Before their JVM starts: executors of local-cluster would otherwise write into the installed package.
    for name, value in (("PYSPARK_PYTHON", sys.executable), ("SPARK_WORKER_DIR", str(scratch / "work")),
                        ("SPARK_LOCAL_DIRS", str(scratch / "local"))):  # fmt: skip
        os.environ.setdefault(name, value)
    logging = scratch / "log4j2.properties"
    logging.write_text(LOGGING)
    builder = SparkSession.builder.master(master).appName("sojourn match")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging}",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(slices.BATCH_ROWS),
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, Py4JError, RuntimeError, OSError) as error:
        raise MachineError(
            f"Spark does not start with --master {master}: {_sentence(error)}; it needs {INSTALL}"
        ) from error
    try:
        yield spark
    except (PySparkException, Py4JError) as error:
        raise MachineError(f"Spark failed: {_sentence(error)}") from error
    finally:
        spark.stop()


def _sentence(error: Exception) -> str:
    """Return the first informative lines of an error of Spark."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return " ".join(lines[:2])[:300]


class _Job:
    """The matching of one pair of taps."""

    def __init__(self, spark: SparkSession, terms: Terms, asked: Asked) -> None:
        self.spark, self.terms, self.asked = spark, terms, asked
        self.instrument = find_instrument()
        spark.sparkContext.addFile(self.instrument)

    def run(self, taps: Sequence[ParquetTap]) -> Told:
        """Run the whole job."""
        from pyspark import StorageLevel

        files = [
            File(str(path.resolve()), tap, place)
            for tap, one in enumerate(taps)
            for place, path in enumerate(one.files)
        ]
        counted = self.counted(files)
        numbered, ends = _numbered(files, counted)
        slices_of = self.asked.slices or max(
            self.spark.sparkContext.defaultParallelism, -(-sum(sum(one.ways) for one in counted) // ROWS_OF_A_SLICE)
        )
        outcomes = self.outcomes(numbered, ends, slices_of).persist(StorageLevel.DISK_ONLY)
        counts = _counts(row["counts"] for row in outcomes.filter(f"what = {COUNTS}").select("counts").collect())
        crossings = self.crossings(outcomes).persist(StorageLevel.DISK_ONLY)
        crossings.write.parquet(str(self.asked.output / "crossings"))
        self.unmatched(outcomes).write.parquet(str(self.asked.output / "unmatched"))
        directions = [self.direction(way, counts[way], crossings, outcomes) for way in (0, 1)]
        assumed = {"none": (), "unlabelled": ("unlabelled",), "all": ("with_digest",)}
        return {
            "slices": slices_of,
            "taps": [_summed(counted, tap) for tap in range(len(taps))],
            "directions": [one for one in directions if one["counts"]["seen_first"] + one["counts"]["seen_second"]],
            "assumed_by": {
                name: sum(one.told.get(key, 0) for one in counted for key in keys) for name, keys in assumed.items()
            },
        }

    def files(self, files: Sequence[File]) -> DataFrame:
        """Return one row per file, each in a partition of its own."""
        rows = [(json.dumps([one.path, one.tap, one.place, *one.before]),) for one in files]
        return self.spark.createDataFrame(self.spark.sparkContext.parallelize(rows, max(1, len(rows))), "file string")

    def counted(self, files: Sequence[File]) -> list[slices.Counted]:
        """Return the counts of each file."""
        terms = self.terms

        def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for file in _files_of(batches):
                one = slices.count(file, terms)
                told = [one.tap, one.place, one.ways, one.first, one.last, one.told]
                yield pa.RecordBatch.from_pydict({"counted": [json.dumps(told)]})

        found = self.files(files).mapInArrow(count, "counted string").collect()
        return [slices.Counted(*json.loads(row["counted"])) for row in found]

    def outcomes(self, files: Sequence[File], ends: Mapping[str, Any], count: int) -> DataFrame:
        """Return the outcome of every packet, slice by slice."""
        terms, name = self.terms, os.path.basename(self.instrument)  # noqa: PTH119 - as Spark names it

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for file in _files_of(batches):
                for events in slices.events_of(file, terms):
                    yield slices.as_arrow(events, EVENTS)

        def match_slice(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import SparkFiles

            yield from slices.match_slice(batches, [SparkFiles.get(name)], terms, ends)

        events = self.files(files).mapInArrow(read, _ddl(EVENTS))
        divided = events.repartition(count, "digest").sortWithinPartitions("at", "tap", "way", "number")
        return divided.mapInArrow(match_slice, _ddl(OUTCOMES))

    def crossings(self, outcomes: DataFrame) -> DataFrame:
        """Return the matched packets with their reordering extents, as the table `crossings`."""
        matched = outcomes.filter(f"what in ({MATCHED}, {AMBIGUOUS})").drop("counts", "digest")
        rows = self.asked.chunk_rows
        chunks = matched.selectExpr("way", f"rank div {rows} as chunk", "number").groupBy("way", "chunk")
        bounds = {
            (row["way"], row["chunk"]): (row["least"], row["most"])
            for row in chunks.agg({"number": "min"}).withColumnRenamed("min(number)", "least").join(
                chunks.agg({"number": "max"}).withColumnRenamed("max(number)", "most"), ["way", "chunk"]
            ).collect()
        }  # fmt: skip
        later = _later(bounds)
        begins = self.begins(matched, later, bounds)
        aligned = self.terms.aligned_ns

        def divide(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from _divide(batches, begins, rows)

        def tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for chunk in _chunks(batches):
                yield _crossings(chunk, aligned)

        columns = [one for one in OUTCOMES if one.name not in {"counts", "digest"}]
        schema = pa.schema([*columns, pa.field("chunk", pa.int64()), pa.field("context", pa.bool_())])
        spread = matched.mapInArrow(divide, _ddl(schema))
        count = max(1, min(len(bounds), 4 * self.spark.sparkContext.defaultParallelism))
        divided = spread.repartition(count, "way", "chunk").sortWithinPartitions("way", "chunk", "rank")
        return divided.mapInArrow(tell, _ddl(CROSSINGS))

    def begins(
        self,
        matched: DataFrame,
        later: Mapping[tuple[int, int], list[int]],
        bounds: Mapping[tuple[int, int], tuple[int, int]],
    ) -> dict[tuple[int, int], int]:
        """Return for each chunk the rank of the earliest packet before it with a higher number than one of it."""
        rows = self.asked.chunk_rows
        if not later:
            return {}

        def find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from _begins(batches, later, bounds, rows)

        found = matched.select("way", "rank", "number").mapInArrow(find, "way int, chunk long, rank long").collect()
        begins: dict[tuple[int, int], int] = {}
        for row in found:
            key = (row["way"], row["chunk"])
            begins[key] = min(begins.get(key, row["rank"]), row["rank"])
        return begins

    def unmatched(self, outcomes: DataFrame) -> DataFrame:
        """Return the other packets, as the table `unmatched`."""
        aligned = self.terms.aligned_ns

        def tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield _unmatched(batch, aligned)

        others = outcomes.filter(f"what not in ({MATCHED}, {AMBIGUOUS}, {COUNTS})").drop("counts")
        return others.mapInArrow(tell, _ddl(TOLD_UNMATCHED))

    def direction(self, way: int, counts: dict[str, int], crossings: DataFrame, outcomes: DataFrame) -> Told:
        """Return the results of one direction."""
        mine = crossings.filter(f"direction = '{WAYS[way]}'")
        wide = mine.selectExpr(
            "sum(if(reordering_extent is null, 0, 1)) as reordered", "max(reordering_extent) as extent",
            "min(delay_ns) as least", "max(delay_ns) as most", "avg(delay_ns) as mean",
            "sum(if(delay_ns < 0, 1, 0)) as negative",
            "sum(if(first_source <> second_source, 1, 0)) as mixed",
        ).collect()[0]  # fmt: skip
        counts = counts | {"reordered": wide["reordered"] or 0, "reordering_extent_max": wide["extent"] or 0}
        lost = outcomes.filter(f"what = 1 and way = {way}").select("number")
        followers = lost.selectExpr("number + 1 as number")
        runs = lost.join(followers, "number", "left_anti").count()
        told = {
            "direction": WAYS[way],
            "counts": counts,
            "had_window": counts["lost"] + counts["matched"] - counts["matched_early"] - counts["matched_at_end"],
            "loss_runs": runs,
            "mixed_timestamps": wide["mixed"] or 0,
        }
        if counts["matched"]:
            drawn = mine.selectExpr("delay_ns", "xxhash64(number) as drawn")
            if counts["matched"] > SAMPLE:
                drawn = drawn.orderBy("drawn").limit(SAMPLE)
            sample = np.sort(np.array([row["delay_ns"] for row in drawn.collect()], dtype=np.int64))
            told["delay"] = {"n": len(sample), "sampled": counts["matched"] > SAMPLE, "min_ns": wide["least"],
                             "mean_ns": wide["mean"], "max_ns": wide["most"], "negative": wide["negative"]}  # fmt: skip
            told["sample"] = sample
        return told


CROSSINGS_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("pair", pa.int32()), ("direction", pa.string()), ("number", pa.int64()), ("first_ns", pa.int64()),
    ("first_source", pa.string()), ("second_source", pa.string()), ("delay_ns", pa.int64()),
    ("length_bytes", pa.int32()), ("ambiguous", pa.bool_()), ("reordering_extent", pa.int32()),
]  # fmt: skip
CROSSINGS = pa.schema(CROSSINGS_COLUMNS)
UNMATCHED_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("pair", pa.int32()), ("direction", pa.string()), ("time_ns", pa.int64()), ("time_source", pa.string()),
    ("length_bytes", pa.int32()), ("digest", pa.int64()), ("outcome", pa.string()),
]  # fmt: skip
TOLD_UNMATCHED = pa.schema(UNMATCHED_COLUMNS)


def _ddl(schema: pa.Schema) -> str:
    """Return a schema in Spark's notation."""
    names = {pa.int64(): "long", pa.int32(): "int", pa.int16(): "short", pa.string(): "string", pa.bool_(): "boolean"}
    return ", ".join(f"`{one.name}` {names[one.type]}" for one in schema)


def _files_of(batches: Iterable[pa.RecordBatch]) -> Iterator[File]:
    for batch in batches:
        for row in batch.column("file").to_pylist():
            path, tap, place, forward, backward = json.loads(str(row))
            yield File(path, tap, place, (forward, backward))


def _numbered(files: Sequence[File], counted: Sequence[slices.Counted]) -> tuple[list[File], Told]:
    """Return the files with the packets before each, and where packets begin and end in each direction."""
    by_file = {(one.tap, one.place): one for one in counted}
    numbered = []
    before: dict[int, list[int]] = {0: [0, 0], 1: [0, 0]}
    for file in files:
        sums, one = before[file.tap], by_file[file.tap, file.place]
        numbered.append(replace(file, before=(sums[0], sums[1])))
        before[file.tap] = [sums[way] + one.ways[way] for way in (0, 1)]
    lasts = [last for one in counted for last in one.last if last is not None]

    def first(way: int) -> int | None:
        return min((at for one in counted if one.tap == way and (at := one.first[way]) is not None), default=None)

    def last(way: int) -> int | None:
        return max((at for one in counted if one.tap != way and (at := one.last[way]) is not None), default=None)

    ends = {
        "last_ns": max(lasts, default=None),
        "came_first_ns": [first(0), first(1)],
        "left_last_ns": [last(0), last(1)],
    }
    return numbered, ends


def _counts(told: Iterable[str]) -> list[dict[str, int]]:
    """Return the counts of all slices together, by direction."""
    sums: list[dict[str, int]] = [{}, {}]
    for one in told:
        for way, counts in enumerate(json.loads(one)):
            for name, count in counts.items():
                sums[way][name] = sums[way].get(name, 0) + count
    return sums


def _summed(counted: Sequence[slices.Counted], tap: int) -> dict[str, int]:
    names = {name for one in counted for name in one.told} - {"unlabelled"}
    return {name: sum(one.told.get(name, 0) for one in counted if one.tap == tap) for name in sorted(names)}


def _later(bounds: Mapping[tuple[int, int], tuple[int, int]]) -> dict[tuple[int, int], list[int]]:
    """Return for each chunk the later ones with a lower number than one of it."""
    later: dict[tuple[int, int], list[int]] = {}
    for way in (0, 1):
        chunks = sorted(chunk for mine, chunk in bounds if mine == way)
        least = np.array([bounds[way, chunk][0] for chunk in chunks])
        for place, chunk in enumerate(chunks):
            behind = np.flatnonzero(least[place + 1 :] < bounds[way, chunk][1])
            if len(behind):
                later[way, chunk] = [chunks[place + 1 + int(one)] for one in behind]
    return later


def _begins(
    batches: Iterable[pa.RecordBatch],
    later: Mapping[tuple[int, int], list[int]],
    bounds: Mapping[tuple[int, int], tuple[int, int]],
    rows: int,
) -> Iterator[pa.RecordBatch]:
    found: dict[tuple[int, int], int] = {}
    for batch in batches:
        way, rank, number = (batch.column(name).to_numpy() for name in ("way", "rank", "number"))
        chunk = rank // rows
        for mine, one in {*zip(way.tolist(), chunk.tolist(), strict=True)} & later.keys():
            here = (way == mine) & (chunk == one)
            for other in later[mine, one]:
                ahead = rank[here & (number > bounds[mine, other][0])]
                if len(ahead):
                    found[mine, other] = min(found.get((mine, other), int(ahead.min())), int(ahead.min()))
    columns = {"way": [one for one, _ in found], "chunk": [one for _, one in found], "rank": [*found.values()]}
    types = (pa.int32(), pa.int64(), pa.int64())
    arrays = [pa.array(values, kind) for values, kind in zip(columns.values(), types, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, names=[*columns])


def _divide(
    batches: Iterable[pa.RecordBatch], begins: Mapping[tuple[int, int], int], rows: int
) -> Iterator[pa.RecordBatch]:
    """Assign every packet to its chunk, and to later chunks with a packet that it could have overtaken."""
    # All packets between the earliest one and the chunk are included, whether or not they overtook any.
    spans = {one: (begin, one[1] * rows) for one, begin in begins.items()}
    for batch in batches:
        way, rank = batch.column("way").to_numpy(), batch.column("rank").to_numpy()
        yield _to_chunk(batch, rank // rows, context=False)
        low, high = (int(rank.min()), int(rank.max())) if len(rank) else (0, -1)
        for (mine, chunk), (begin, end) in spans.items():
            if begin <= high and low < end:
                here = (way == mine) & (rank >= begin) & (rank < end)
                part = batch.filter(pa.array(here))
                if part.num_rows:
                    yield _to_chunk(part, np.full(part.num_rows, chunk), context=True)


def _to_chunk(batch: pa.RecordBatch, chunk: Any, *, context: bool) -> pa.RecordBatch:
    columns = [*batch.columns, pa.array(chunk, pa.int64()), pa.array(np.full(batch.num_rows, context))]
    return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, "chunk", "context"])


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the chunks one after another, each complete: batches are sorted by direction and chunk."""
    held: list[pa.RecordBatch] = []
    current: tuple[int, int] | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        way, chunk = batch.column("way").to_numpy(), batch.column("chunk").to_numpy()
        edges = [0, *(np.flatnonzero((np.diff(way) != 0) | (np.diff(chunk) != 0)) + 1).tolist(), batch.num_rows]
        for begin, end in zip(edges, edges[1:], strict=False):  # noqa: RUF007 - Python of the cluster's machines
            key = (int(way[begin]), int(chunk[begin]))
            if current not in {None, key}:
                yield pa.Table.from_batches(held)
                held = []
            current = key
            held.append(batch.slice(begin, end - begin))
    if held:
        yield pa.Table.from_batches(held)


def _crossings(chunk: pa.Table, aligned: tuple[int, int]) -> pa.RecordBatch:
    """Return the packets of a chunk in the order of sending."""
    columns = {name: chunk.column(name).to_numpy() for name in chunk.column_names}
    found = extents(columns["rank"], columns["number"])
    own = np.flatnonzero(~columns["context"])
    own = own[np.argsort(columns["number"][own], kind="stable")]
    columns, found = {name: values[own] for name, values in columns.items()}, found[own]
    here, there = _offsets(columns["way"], aligned)
    first = columns["time"] + here
    return pa.RecordBatch.from_arrays([
        pa.array(np.zeros(len(own), np.int32)),
        _names(columns["way"], WAYS),
        pa.array(columns["number"]),
        pa.array(first),
        _sources(columns["note"]),
        _sources(columns["second_note"]),
        pa.array(columns["second"] + there - first),
        pa.array(columns["length"].astype(np.int32)),
        pa.array(columns["what"] == AMBIGUOUS),
        pa.array(found.astype(np.int32), mask=found == 0),
    ], schema=CROSSINGS)  # fmt: skip


def _unmatched(batch: pa.RecordBatch, aligned: tuple[int, int]) -> pa.RecordBatch:
    columns = {name: batch.column(name).to_numpy() for name in batch.schema.names}
    here, there = _offsets(columns["way"], aligned)
    off = np.where(columns["what"] <= 3, here, there)
    return pa.RecordBatch.from_arrays([
        pa.array(np.zeros(batch.num_rows, np.int32)), _names(columns["way"], WAYS), pa.array(columns["time"] + off),
        _sources(columns["note"]), pa.array(columns["length"].astype(np.int32)), pa.array(columns["digest"]),
        _names(columns["what"] - 1, [*UNMATCHED.values()]),
    ], schema=TOLD_UNMATCHED)  # fmt: skip


def _offsets(way: Any, aligned: tuple[int, int]) -> tuple[Any, Any]:
    """Return the offsets to add to the times of a packet's first tap, and of its second."""
    return np.where(way == 0, aligned[0], aligned[1]), np.where(way == 0, aligned[1], aligned[0])


def _names(places: Any, names: Sequence[str]) -> pa.Array[Any]:
    return pa.array(np.array([*names], dtype=object)[places], pa.string())


def _sources(notes: Any) -> pa.Array[Any]:
    names = [*SOURCES, *[None] * (NO_SOURCE + 1 - len(SOURCES))]
    return pa.array(np.array(names, dtype=object)[notes & NO_SOURCE], pa.string())
