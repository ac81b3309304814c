"""Match packets of two taps in slices by digest, through the instrument: the code for the machines of a cluster.

This file is sent to them as it is. They need Python with NumPy and PyArrow and the instrument's binary, but not
Sojourn: nothing of it is imported here. Packets and results have the layouts `EVENT` and `OUTCOME`, which `sojourn-
instrument match-slice` reads and writes.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

LONGEST_NS = 1 << 62
BATCH_ROWS = 1 << 16
WAYS = ("forward", "backward")
SOURCES = ("hardware", "kernel", "user", "simulated", "bpf")
NO_SOURCE, FRAGMENT, SUPER_PACKET = 7, 8, 16
"""Bits of the octet in which the instrument notes properties of a packet."""

EVENT = np.dtype(
    [("at", "<i8"), ("time", "<i8"), ("digest", "<i8"), ("number", "<i8"), ("length", "<u4"), ("note", "u1"),
     ("tap", "u1"), ("way", "u1"), ("nothing", "u1")]
)  # fmt: skip
OUTCOME = np.dtype(
    [("number", "<i8"), ("rank", "<i8"), ("time", "<i8"), ("second", "<i8"), ("digest", "<i8"), ("length", "<u4"),
     ("note", "u1"), ("second_note", "u1"), ("way", "u1"), ("what", "u1")]
)  # fmt: skip
MATCHED, AMBIGUOUS, COUNTS = 0, 16, 255
UNMATCHED = {1: "lost", 2: "evicted", 3: "pending", 4: "duplicated", 5: "unexpected"}


def _fields(kinds: np.dtype[Any]) -> list[pa.Field[Any]]:
    types = {8: pa.int64(), 4: pa.int64(), 1: pa.int16()}
    named: Mapping[str, Any] = kinds.fields or {}
    return [pa.field(name, types[named[name][0].itemsize]) for name in kinds.names or () if name != "nothing"]


EVENTS = pa.schema(_fields(EVENT))
OUTCOMES = pa.schema([*_fields(OUTCOME), pa.field("counts", pa.string())])
COLUMNS = [
    "time_ns",
    "time_source",
    "digest",
    "length_bytes",
    "direction",
    "fragment",
    "super_packet",
    "truncated",
    "behind_ns",
]


@dataclass(frozen=True)
class Terms:
    """The parameters for matching two taps, which the instrument derived from their beginnings."""

    window_ns: int
    ahead_ns: int
    memory_bytes: int
    aligned_ns: tuple[int, int]
    ways: Mapping[str, int]
    """The direction of packets along, against and without a label: 0 is forward."""

    always: bool

    def way(self, tap: int, direction: pa.Array[Any]) -> Any:
        """Return the direction of each packet."""
        names = np.asarray(direction.to_numpy(zero_copy_only=False), dtype=object)
        goes_in, known = names == "in", names != None  # noqa: E711 - an array is compared element by element
        along = goes_in == (tap == 0)
        labelled = np.where(along, self.ways["along"], self.ways["against"])
        return np.where(known, labelled, self.ways["unlabelled"]).astype(np.uint8)


@dataclass(frozen=True)
class File:
    """A file of a tap, with the number of packets before it at this tap in each direction."""

    path: str
    tap: int
    place: int
    before: tuple[int, int] = (0, 0)


@dataclass
class Counted:
    """The counts of a file; times are on the common clock of both taps."""

    tap: int
    place: int
    ways: list[int] = field(default_factory=lambda: [0, 0])
    first: list[int | None] = field(default_factory=lambda: [None, None])
    last: list[int | None] = field(default_factory=lambda: [None, None])
    told: dict[str, int] = field(default_factory=dict)


def events_of(file: File, terms: Terms, counted: Counted | None = None) -> Iterator[np.ndarray[Any, Any]]:
    """Yield a file's packets with a digest in the layout of slices, in the tap's order."""
    numbers = np.array(file.before, dtype=np.int64)
    for batch in pq.ParquetFile(file.path, pre_buffer=False).iter_batches(BATCH_ROWS, columns=COLUMNS):
        times = batch.column("time_ns").to_numpy()
        sane = (times > -LONGEST_NS) & (times < LONGEST_NS)
        valid = batch.column("digest").is_valid().to_numpy(zero_copy_only=False)
        keyed = sane & valid
        if counted is not None:
            _count(counted, batch, sane, keyed)
        part = batch.filter(pa.array(keyed))
        events = np.zeros(part.num_rows, EVENT)
        off = terms.aligned_ns[file.tap]
        events["time"] = part.column("time_ns").to_numpy() - off
        events["at"] = events["time"] + part.column("behind_ns").to_numpy()
        events["digest"] = part.column("digest").to_numpy()
        events["length"] = part.column("length_bytes").to_numpy()
        events["note"] = _notes(part)
        events["tap"] = file.tap
        events["way"] = terms.way(file.tap, part.column("direction"))
        for way in (0, 1):
            mine = events["way"] == way
            count = int(np.count_nonzero(mine))
            events["number"][mine] = numbers[way] + np.arange(count)
            numbers[way] += count
            if counted is not None and count:
                counted.ways[way] += count
                first = int(events["at"][mine][0])
                counted.first[way] = first if counted.first[way] is None else counted.first[way]
                counted.last[way] = int(events["at"][mine][-1])
        yield events


def _notes(part: pa.RecordBatch) -> Any:
    names = part.column("time_source").dictionary_encode()
    codes = [SOURCES.index(name) if name in SOURCES else NO_SOURCE for name in names.dictionary.to_pylist()]
    places = names.indices.fill_null(0).to_numpy()
    notes = np.array(codes or [NO_SOURCE], dtype=np.uint8)[places] if len(places) else np.zeros(0, np.uint8)
    fragments, supers = (part.column(name).to_numpy(zero_copy_only=False) for name in ("fragment", "super_packet"))
    return (
        notes | np.where(fragments, FRAGMENT, 0).astype(np.uint8) | np.where(supers, SUPER_PACKET, 0).astype(np.uint8)
    )


def _count(counted: Counted, batch: pa.RecordBatch, sane: Any, keyed: Any) -> None:
    flags = {
        "truncated": batch.column("truncated"), "fragments": batch.column("fragment"),
        "super_packets": batch.column("super_packet"),
    }  # fmt: skip
    more = {"with_digest": keyed, "without_key": sane & ~keyed, "malformed": ~sane}
    more |= {name: keyed & flag.to_numpy(zero_copy_only=False) for name, flag in flags.items()}
    more["stepped_back"] = keyed & (batch.column("behind_ns").to_numpy() > 0)
    more["unlabelled"] = keyed & batch.column("direction").is_null().to_numpy(zero_copy_only=False)
    for name, which in more.items():
        counted.told[name] = counted.told.get(name, 0) + int(np.count_nonzero(which))


def count(file: File, terms: Terms) -> Counted:
    """Count a file by reading it once."""
    counted = Counted(file.tap, file.place)
    for _ in events_of(file, terms, counted):
        pass
    return counted


def as_arrow(events: np.ndarray[Any, Any], schema: pa.Schema) -> pa.RecordBatch:
    """Convert records to columns; text is null."""
    columns = [
        pa.nulls(len(events), pa.string()) if one.type == pa.string() else pa.array(events[one.name]).cast(one.type)
        for one in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def as_events(batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
    """Convert columns to records."""
    events = np.zeros(batch.num_rows, EVENT)
    for name in batch.schema.names:
        events[name] = batch.column(name).to_numpy()
    return events


def match_slice(
    batches: Iterable[pa.RecordBatch], instrument: Sequence[str], terms: Terms, ends: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """Pass the packets of one slice, in the order of both taps, through the instrument."""
    asked = {
        "window_ns": terms.window_ns, "ahead_ns": terms.ahead_ns, "memory_bytes": terms.memory_bytes,
        "ways": 1 if terms.always else 2, **ends,
    }  # fmt: skip
    argv = [*instrument, "match-slice", json.dumps(asked)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        failures: list[BaseException] = []
        feeder = Thread(target=_feed, args=(process.stdin, batches, failures))
        feeder.start()
        counts = ""
        try:
            while octets := process.stdout.read(BATCH_ROWS * OUTCOME.itemsize):
                outcomes = np.frombuffer(octets[: len(octets) - len(octets) % OUTCOME.itemsize], OUTCOME)
                [ends_at] = np.nonzero(outcomes["what"] == COUNTS)
                if len(ends_at):
                    begin = (int(ends_at[0]) + 1) * OUTCOME.itemsize
                    counts = (octets[begin:] + process.stdout.read()).decode()
                    outcomes = outcomes[: ends_at[0]]
                yield as_arrow(outcomes, OUTCOMES)
        finally:
            process.stdout.close()
            feeder.join()
        if failures:
            raise failures[0]
        if process.wait() != 0 or not counts:
            raise RuntimeError(f"the instrument ended with status {process.returncode}")
    last = as_arrow(np.zeros(1, OUTCOME), OUTCOMES).to_pydict() | {"what": [COUNTS], "counts": [counts]}
    yield pa.RecordBatch.from_pydict(last, schema=OUTCOMES)


def _feed(to: Any, batches: Iterable[pa.RecordBatch], failures: list[BaseException]) -> None:
    try:
        with to:
            for batch in batches:
                to.write(as_events(batch).tobytes())
    except BrokenPipeError:
        pass  # the reader of its output checks how it ended
    except BaseException as error:
        failures.append(error)


def extents(rank: np.ndarray[Any, Any], number: np.ndarray[Any, Any]) -> Any:
    """Return the reordering extents of packets (RFC 4737, 4.2.2); 0 for those in order.

    The arguments have, ordered by `rank`, all matched packets since the earliest that any of them could be behind.
    """
    assert np.all(np.diff(rank) > 0)
    highest = np.maximum.accumulate(number)
    behind = number < highest
    earliest = np.searchsorted(highest, number, side="right")
    return np.where(behind, np.arange(len(number)) - earliest, 0)
