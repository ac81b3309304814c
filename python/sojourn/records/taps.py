"""Tap records as a partitioned Parquet data set for other programs, and their reading in the tap's own order.

`DATA/run=RUN/tap=TAP/bucket_s=BEGIN/part-00000.parquet`: a bucket has the packets of so many seconds of the tap's
clock, a row group about a million. Columns are those of the table `taps`, with plain strings, and two more: `number`,
the packet's place in its tap's order, and `behind_ns`. The tap's description and counts are in each file's metadata, so
that the data set alone can be matched. A run and tap is written once. All taps of a capture are added, or none: they
are written to `.DATA.part` beside the data set, which is its user's alone, and renamed into it.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sojourn.errors import MachineError, RequestError
from sojourn.records.reader import read_batches, read_table
from sojourn.records.schema import TABLES, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sojourn.records.reader import Part

GROUP_ROWS = 1 << 20
"""Rows of a row group; the last of a bucket has fewer."""

BUCKET_NS = 600 * 1_000_000_000
LONGEST_NS = 1 << 62
"""The limit of times, relative to 1970, as in `match`."""

COMPRESSION_LEVEL = 3
KEPT = ("tap", "interface", "host", "key", "most_octets", "clock_id")
"""Keys of the tap in a record's metadata, which must be equal in all its parts."""

PARTITIONS = ("run=", "tap=", "bucket_s=")
"""Prefixes of the names of a data set's folders."""

NAMED_WRONG = frozenset({errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EXDEV})
"""Errors of the given path; any other is the machine's."""

TEXTS = ("time_source", "direction")
ADDED = {"number": "1", "behind_ns": "ns"}
"""The columns that are added to the table `taps`, all int64, with their units."""

Metadata = dict[str, str]


@dataclass
class Written:
    """The result for one tap: its packets and files, and sentences for the user."""

    tap: str
    folder: Path
    packets: int = 0
    files: int = 0
    sentences: list[str] = field(default_factory=list)
    cut: bool = False
    """Whether a part has no end marker."""


def write_dataset(records: Path, data: Path, run: str, bucket_ns: int = BUCKET_NS) -> list[Written]:
    """Add every tap of a folder of records to a data set, as the run of this name.

    A bucket has whole seconds. Raises RequestError if the folder has no taps, parts of one tap are inconsistent, or the
    data set has that run and tap already or cannot be there; MachineError if it cannot be written. Nothing is added
    then.
    """
    taps = _parts(records)
    if not taps:
        raise RequestError(f"{records} holds no records of a tap (taps-*.arrow): give what `sojourn capture` wrote")
    for name in (run, *taps):
        if not name or set(name) & set("/=%\\") or not name.isprintable() or name.startswith("."):
            raise RequestError(f"{name!r} cannot be the name of a partition: give another with --run")
    abouts = {tap: _about(parts) for tap, parts in taps.items()}
    counts = read_table(records, "tap_counts")
    dropped = {part.who: part for part in counts.parts}
    with _in_a_sentence(data), _beside(place_of(data)) as beside:
        folders = {tap: data / f"run={run}" / f"tap={tap}" for tap in taps}
        for folder in folders.values():
            if folder.exists():
                raise RequestError(f"{folder} is there already: a data set is written once; give another --run")
        written = []
        for tap, parts in taps.items():
            about = abouts[tap] | {"dropped": _dropped(counts, tap, len(parts), dropped)}
            folder = beside / f"run={run}" / f"tap={tap}"
            folder.mkdir(parents=True)
            written.append(_write_tap(parts, folder, about, bucket_ns))
            written[-1].folder = folders[tap]
        _move_in(beside / f"run={run}", data / f"run={run}")
    return written


def _parts(records: Path) -> dict[str, list[Path]]:
    """Return the files of each tap, by its name, in the order of writing."""
    if not records.is_dir():
        raise RequestError(f"{records} is no folder: give the one that `sojourn capture` wrote")
    found: dict[str, list[tuple[int, Path]]] = {}
    for path in records.glob("taps-*-*.arrow"):
        who, _, digits = path.stem.removeprefix("taps-").rpartition("-")
        if digits.isdigit():
            found.setdefault(who, []).append((int(digits), path))
    return {who: [path for _, path in sorted(parts)] for who, parts in sorted(found.items())}


def _about(parts: list[Path]) -> Metadata:
    """Return the tap's metadata, which must be equal in all its parts."""
    agreed: Metadata = {}
    for path in parts:
        with read_batches(path, "taps") as reading:
            metadata = dict(reading.metadata)
            clock = reading.field_metadata.get("time_ns", {}).get("clock", "")
        told = {one: metadata.get(one, "") for one in KEPT} | {"clock": clock}
        if agreed and told != agreed:
            names = ", ".join(one for one in told if told[one] != agreed[one])
            raise RequestError(f"{path} and {parts[0]} are not of one tap: they differ in {names}")
        agreed = told
    return agreed


def _dropped(counts: Any, tap: str, parts: int, known: Mapping[str, Part]) -> str:
    """Return how many packets the tap dropped, over all its parts; empty if one part does not have the number."""
    if tap not in known:
        return ""
    mine = counts.frame.filter(counts.frame["who"] == tap)
    if mine["part"].n_unique() < parts or mine["dropped"].null_count():
        return ""
    return str(mine["dropped"].sum())


@contextmanager
def _in_a_sentence(data: Path) -> Iterator[None]:
    """Turn an error in writing a data set into a sentence."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        sentence = f"{error.filename or data}: {why}: nothing was added to the data set"
        if error.errno in NAMED_WRONG:
            raise RequestError(f"{sentence}; give another folder or --run") from error
        raise MachineError(f"{sentence}; make room, or choose another place") from error


def place_of(data: Path) -> Path:
    """Return the real path of a data set, with links resolved. Raises RequestError if it cannot be there."""
    place = Path(os.path.realpath(data))
    for path in (data.absolute(), place):
        above = [one for one in (path, *path.parents) if one.name.startswith(PARTITIONS)]
        if above:
            raise RequestError(f"{data} is a partition of a data set, or in one: give the whole, {above[-1].parent}")
    there = next(one for one in (place, *place.parents) if one.exists())
    if not there.is_dir():
        raise RequestError(f"{there} is no folder: give another for the data set")
    if place.is_mount():
        raise RequestError(f"{data} is a file system's own folder, and nothing can be beside it: give a folder in it")
    return place


@contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """Make a hidden folder beside a data set, for one writer at a time; remove what a killed writer left there."""
    folder = place.with_name(f".{place.name}.part")
    try:
        folder.mkdir(mode=0o700, parents=True)
        is_new = True
    except FileExistsError:
        is_new = False
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not is_new and not _is_ours(os.fstat(descriptor)):
            raise RequestError(
                f"{folder} is another user's, or others may write in it: remove it, or give another folder"
            )
        if not _is_locked_by_us(descriptor, folder):
            raise RequestError(f"another `sojourn dataset` is writing into {place}: wait until it has ended")
        _clear(folder)
        if any(folder.iterdir()):
            raise RequestError(f"{folder} holds what `sojourn dataset` did not write: remove it")
        try:
            yield folder
        finally:
            with suppress(OSError):
                _clear(folder)
                folder.rmdir()
    finally:
        os.close(descriptor)


def _is_ours(found: os.stat_result) -> bool:
    """Return whether nobody else can put links into a folder that was there before."""
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _is_locked_by_us(descriptor: int, folder: Path) -> bool:
    """Lock an open folder; return False if another process has locked or removed it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return folder.exists() and os.path.samestat(os.fstat(descriptor), folder.stat())


def _clear(folder: Path) -> None:
    for run in folder.glob("run=*"):
        shutil.rmtree(run)


def _move_in(made: Path, run: Path) -> None:
    """Move all taps of a run to their place: a new run in one step."""
    run.parent.mkdir(parents=True, exist_ok=True)
    if not run.exists():
        made.rename(run)
        return
    moved = []
    try:
        for tap in sorted(made.iterdir()):
            tap.rename(run / tap.name)
            moved.append(tap)
    except BaseException:
        for tap in moved:
            (run / tap.name).rename(tap)
        raise


def _write_tap(parts: list[Path], folder: Path, about: Metadata, bucket_ns: int) -> Written:
    """Write the packets of a tap in these files."""
    written = Written(about["tap"] or folder.name, folder)

    def batches() -> Iterator[pa.RecordBatch]:
        for path in parts:
            with read_batches(path, "taps") as reading:
                yield from (_without_gaps(batch, path) for batch in reading)
            if reading.cut:
                written.cut = True
                written.sentences.append(f"{path} is {reading.cut}: what lay before it was written")

    written.packets, written.files = write_packets(batches(), folder, about, bucket_ns)
    return written


def _without_gaps(batch: pa.RecordBatch, path: Path) -> pa.RecordBatch:
    """Return rows of a file. Raises RequestError if one lacks a value that every packet has."""
    for name in (one.name for one in TABLES["taps"].values() if not one.nullable):
        column = batch.column(name)
        # A text may be missing among the rows or among the distinct texts that they refer to.
        if column.null_count or (isinstance(column, pa.DictionaryArray) and column.dictionary.null_count):
            raise RequestError(f"{path} is damaged: the column {name} lacks values")
    return batch


def write_packets(
    batches: Iterable[pa.RecordBatch], folder: Path, about: Metadata, bucket_ns: int = BUCKET_NS
) -> tuple[int, int]:
    """Write rows of the table `taps`, in their tap's order, as a partition of a data set; return packets and files.

    `about` has the keys of `KEPT`, `clock`, and `dropped`, empty if unknown.
    """
    buckets = _Buckets(folder, _schema(about), bucket_ns)
    try:
        for batch in batches:
            buckets.add(batch)
        buckets.close()
    except BaseException:
        buckets.give_up()
        raise
    return buckets.packets, buckets.files


def _schema(about: Metadata) -> pa.Schema:
    """Return every column of the table `taps`, with its unit and clock, and the two that are added."""
    fields = _columns(about["clock"])
    return pa.schema(fields, {f"sojourn.{name}": value for name, value in (about | {"version": str(VERSION)}).items()})


def _columns(clock: str = "") -> list[pa.Field[Any]]:
    fields: list[pa.Field[Any]] = []
    for one in TABLES["taps"].values():
        kind = {"bool": pa.bool_(), "int32": pa.int32(), "int64": pa.int64()}.get(one.type, pa.string())
        metadata = {"unit": one.unit} | ({"clock": clock, "source": one.source or ""} if one.clock else {})
        fields.append(pa.field(one.name, kind, one.nullable, metadata))
    added = (pa.field(name, pa.int64(), nullable=False, metadata={"unit": unit}) for name, unit in ADDED.items())
    return [*fields, *added]


class _Buckets:
    """Writes packets, in the order of their tap, to the file of their bucket in row groups."""

    def __init__(self, folder: Path, schema: pa.Schema, bucket_ns: int) -> None:
        self.folder, self.schema, self.bucket_ns = folder, schema, bucket_ns
        self.packets = self.files = 0
        self._latest = self._latest_keyed = -LONGEST_NS
        self._bucket: int | None = None
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the tap's next packets."""
        if not batch.num_rows:
            return
        times = batch.column("time_ns").to_numpy()
        sane = (times > -LONGEST_NS) & (times < LONGEST_NS)
        keyed = sane & batch.column("digest").is_valid().to_numpy(zero_copy_only=False)
        latest = _running(times, sane, self._latest)
        latest_keyed = _running(times, keyed, self._latest_keyed)
        self._latest, self._latest_keyed = int(latest[-1]), int(latest_keyed[-1])
        number = np.arange(self.packets, self.packets + len(times))
        behind = np.where(sane, np.maximum(latest_keyed - np.where(sane, times, 0), 0), 0)
        self.packets += len(times)
        made = self._with(batch, number, behind)
        buckets = latest // self.bucket_ns
        edges = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(buckets)]
        for begin, end in itertools.pairwise(edges):
            self._put(int(buckets[begin]), made.slice(begin, end - begin))

    def _with(self, batch: pa.RecordBatch, number: Any, behind: Any) -> pa.RecordBatch:
        columns = {name: batch.column(name) for name in TABLES["taps"]}
        columns |= {name: columns[name].cast(pa.string()) for name in TEXTS}
        columns |= {"number": pa.array(number), "behind_ns": pa.array(behind)}
        return pa.RecordBatch.from_arrays([columns[one.name] for one in self.schema], schema=self.schema)

    def _put(self, bucket: int, rows: pa.RecordBatch) -> None:
        if bucket != self._bucket:
            self.close()
            self._bucket = bucket
        while rows.num_rows:
            room = GROUP_ROWS - self._rows
            self._held.append(rows.slice(0, room))
            self._rows += min(room, rows.num_rows)
            rows = rows.slice(min(room, rows.num_rows))
            if self._rows == GROUP_ROWS:
                self._write()

    def _write(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            # Times before 1970 round down to whole seconds, like any other.
            assert self._bucket is not None
            folder = self.folder / f"bucket_s={self._bucket * self.bucket_ns // 1_000_000_000}"
            folder.mkdir(exist_ok=True)
            self._writer = pq.ParquetWriter(
                folder / "part-00000.parquet",
                self.schema,
                compression="zstd",
                compression_level=COMPRESSION_LEVEL,
                use_dictionary=list(TEXTS),  # type: ignore[arg-type] # names of columns, says its documentation
                column_encoding=dict.fromkeys(("time_ns", "number", "behind_ns"), "DELTA_BINARY_PACKED"),
            )
            self.files += 1
        table = pa.Table.from_batches(self._held, self.schema)
        self._writer.write_table(table, row_group_size=GROUP_ROWS)
        self._held, self._rows = [], 0

    def close(self) -> None:
        """Close the bucket's file."""
        self._write()
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def give_up(self) -> None:
        """Close the bucket's file after a failure; further errors of closing it are ignored."""
        if self._writer is not None:
            with suppress(pa.ArrowException, OSError):
                self._writer.close()


def _running(times: Any, counted: Any, before: int) -> Any:
    """Return the running maximum of the times that count."""
    return np.maximum(np.maximum.accumulate(np.where(counted, times, -LONGEST_NS)), before)


@dataclass(frozen=True, slots=True)
class ParquetTap:
    """One tap of a data set: its files in the order of its packets, and its metadata."""

    folder: Path
    files: tuple[Path, ...]
    rows: tuple[int, ...]
    about: Mapping[str, str]

    @classmethod
    def open(cls, folder: Path) -> ParquetTap:
        """Open the tap of a partition. Raises RequestError if it is none, or one of its files is missing."""
        found = [(_bucket_of(path), path) for path in folder.rglob("*.parquet")] if folder.is_dir() else []
        if not found:
            raise RequestError(
                f"{folder} is no tap of a data set: give DATA/run=RUN/tap=TAP, as `sojourn dataset` wrote"
            )
        files = tuple(path for _, path in sorted(found))
        abouts, rows, numbers = [], [], []
        for path in files:
            metadata, count, first = _head(path)
            abouts.append(metadata)
            rows.append(count)
            numbers.append(first)
        if any(one != abouts[0] for one in abouts) or "key" not in abouts[0]:
            raise RequestError(f"{folder} is of more than one tap: give one of its partitions, as run=RUN/tap=TAP")
        if numbers != [sum(rows[:place]) for place in range(len(rows))]:
            raise RequestError(
                f"{folder} lacks a file, or has one twice: its packets' numbers do not follow each other"
            )
        return cls(folder, files, tuple(rows), abouts[0])


def _bucket_of(path: Path) -> tuple[int, str]:
    """Return the sort key of a tap's files."""
    name, _, value = path.parent.name.partition("=")
    return (int(value) if name == "bucket_s" and value.lstrip("-").isdecimal() else 0, str(path))


MOST_DIGITS = 20
"""More digits than any number of 63 bits has."""


def _unlike(schema: pa.Schema) -> str | None:
    """Return how a file's columns differ from those of a data set; None if they do not. Further columns are allowed."""
    for wanted in _columns():
        if schema.get_field_index(wanted.name) < 0:
            return f"its column {wanted.name} is missing, or there twice"
        there = schema.field(wanted.name)
        if there.type != wanted.type:
            return f"its column {wanted.name} is of type {str(there.type)[:40]}, not {wanted.type}"
        if there.nullable and not wanted.nullable:
            return f"its column {wanted.name} may be null"
    return None


def _head(path: Path) -> tuple[Metadata, int, int]:
    """Return a file's metadata, its rows, and its first packet's number."""
    try:
        file = pq.ParquetFile(path)
        told = {key.decode(): value.decode() for key, value in (file.schema_arrow.metadata or {}).items()}
        if (problem := _unlike(file.schema_arrow)) is not None:
            raise RequestError(f"{path} is no file of a data set of taps: {problem}")
        first = next(file.iter_batches(1, columns=["number"]), None)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RequestError(f"{path} is damaged, or no file of a data set of taps: {str(error)[:80]}") from error
    prefix = "sojourn."
    metadata = {key.removeprefix(prefix): value for key, value in told.items() if key.startswith(prefix)}
    dropped = metadata.get("dropped", "-")
    if dropped and not (dropped.isascii() and dropped.isdecimal() and len(dropped) < MOST_DIGITS):
        raise RequestError(f"{path} is no file of a data set of taps: it does not tell how many packets were dropped")
    number = first.column(0)[0].as_py() if first is not None and first.num_rows else 0
    return metadata, file.metadata.num_rows, number
