"""Two taps matched: records and packets per second on one core, and memory, compared with a join.

The same packets as our taps' records and as pcapng. The peers do the part that a join can: Polars and DuckDB join the
two taps' records by digest, and Polars tshark's output for a shorter capture by the packets' data. They compute the
median of the differences, and count no losses or duplicates. Measured is processor time, of one process each, in turn:
the machine may run other programs meanwhile.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from bench.compare import Row, Target, What, alone, ratio
from sojourn.errors import MachineError
from sojourn.instruments import find_instrument
from sojourn.records.reader import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PACKETS = 4_000_000
"""At each tap; one each microsecond."""

FEW_PACKETS = 200_000
"""At each tap, for tshark, which takes more than ten times as long per packet."""

DELAY_NS = 50_000
WINDOW = "100ms"
TASK = f"matching {PACKETS:,} packets at two taps, window {WINDOW}"
FEW_TASK = f"matching {FEW_PACKETS:,} packets of two pcapng captures, window {WINDOW}"
BATCH = 1 << 16
FRAME = bytes.fromhex("0200000000020200000000010800 4500002e000040004011 0000 0a0000010a000002 12341235001a0000").ljust(
    60, b"\0"
)
JOIN = """
import sys
import polars as pl
one, other = (pl.read_ipc_stream(path, columns=["time_ns", "digest"]) for path in sys.argv[1:])
joined = one.join(other, on="digest")
print(len(joined), (joined["time_ns_right"] - joined["time_ns"]).median())
"""

DUCK_JOIN = """
import sys
import duckdb
import pyarrow as pa
duckdb.sql("set threads = 1")
one, other = (pa.ipc.open_stream(path).read_all().select(["time_ns", "digest"]) for path in sys.argv[1:])
print(duckdb.sql("select count(*), median(other.time_ns - one.time_ns) from one join other using (digest)").fetchall())
"""

TSHARK_JOIN = """
import subprocess, sys
import polars as pl
fields = ["-T", "fields", "-e", "frame.time_epoch", "-e", "udp.payload"]
def read(path):
    with subprocess.Popen(["tshark", "-n", "-r", path, *fields], stdout=subprocess.PIPE) as tshark:
        columns = pl.read_csv(tshark.stdout.read(), separator="\\t", has_header=False, infer_schema=False,
                              new_columns=["time", "data"])
    assert tshark.returncode == 0
    seconds, nanos = (pl.col("time").str.split(".").list.get(place).cast(pl.Int64) for place in (0, 1))
    return columns.select("data", time_ns=seconds * 1_000_000_000 + nanos)
one, other = map(read, sys.argv[1:])
joined = one.join(other, on="data")
print(len(joined), (joined["time_ns_right"] - joined["time_ns"]).median())
"""

WATCH = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(done.returncode)
"""
"""Runs between the bench and the measured process, whose peak memory would otherwise begin with that of its parent."""


class Cost(NamedTuple):
    """The cost of a process."""

    seconds: float
    peak_mib: float


def rows(repetitions: int, scratch: Path, tell: Callable[[str], None]) -> list[Row]:
    """The lines of the table."""
    taps, captures = [scratch / f"{name}.arrow" for name in "ab"], [scratch / f"{name}.pcapng" for name in "ab"]
    short = [scratch / f"short-{name}.pcapng" for name in "ab"]
    for later, tap, capture, brief in zip((0, DELAY_NS), taps, captures, short, strict=True):
        write_records(tap, later)
        write_capture(capture, later, PACKETS)
        write_capture(brief, later, FEW_PACKETS)
    match = [str(find_instrument()), "match", "--window", WINDOW, "--json"]
    of_records: list[tuple[Cost, Cost]] = []
    of_packets: list[Cost] = []
    by_duck: list[Cost] = []
    of_few: list[tuple[Cost, Cost]] = []
    for number in range(1, repetitions + 1):
        tell(f"matching: repetition {number}/{repetitions}")
        joined = cost([sys.executable, "-c", JOIN, *map(str, taps)])
        of_records.append((cost([*match, *map(str, taps)]), joined))
        of_packets.append(cost([*match, "--same-clock", *map(str, captures)]))
        by_duck.append(cost([sys.executable, "-c", DUCK_JOIN, *map(str, taps)]))
        dissected = cost([sys.executable, "-c", TSHARK_JOIN, *map(str, short)])
        of_few.append((cost([*match, "--same-clock", *map(str, short)]), dissected))
    both = 2 * PACKETS
    rates = [(both / ours.seconds, both / theirs.seconds) for ours, theirs in of_records]
    memory = [(ours.peak_mib, theirs.peak_mib) for ours, theirs in of_records]
    beside_duck = [(rate[0], both / one.seconds) for rate, one in zip(rates, by_duck, strict=True)]
    of_duck = [(both / mine.seconds, both / theirs.seconds) for mine, theirs in zip(of_packets, by_duck, strict=True)]
    few = [(2 * FEW_PACKETS / ours.seconds, 2 * FEW_PACKETS / theirs.seconds) for ours, theirs in of_few]
    packets = [(both / one.seconds, rate[1]) for one, rate in zip(of_packets, rates, strict=True)]
    return [
        alone(What(TASK, "a join in Polars", "records a second a core", "1/s"), rates, Target("at least", 20e6)),
        ratio(What(TASK, "a join in Polars", "beside it", "1/s"), rates, None),
        ratio(What(TASK, "a join in DuckDB", "beside it", "1/s"), beside_duck, None),
        ratio(What(TASK, "a join in DuckDB", "pcapng, beside it", "1/s"), of_duck, None),
        ratio(What(FEW_TASK, "tshark and a join in Polars", "beside it", "1/s"), few, None),
        alone(What(TASK, "a join in Polars", "peak memory", "MiB"), memory, Target("at most", 64)),
        alone(What(TASK, "a join in Polars", "packets a second of pcapng", "1/s"), packets, Target("at least", 2e6)),
    ]


def cost(argv: list[str]) -> Cost:
    """Run a process to its end; return processor time and peak memory."""
    watched = [sys.executable, "-I", "-S", "-c", WATCH, *argv]
    done = subprocess.run(watched, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise MachineError(f"{argv[0]} ended with status {done.returncode}")
    seconds, peak_kib = done.stdout.split()
    return Cost(float(seconds), int(peak_kib) / 1024)


def write_records(path: Path, later: int) -> None:
    """Write the records of a tap of ours: different packets, outgoing at the second tap."""
    about = {"tap": path.stem, "key": "bridge", "clock_id": "77"}
    schema = arrow_schema("taps", "bench")
    schema = schema.with_metadata({**(schema.metadata or {}), **about})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        for batch in records(schema, PACKETS, later):
            stream.write_batch(batch)


def records(schema: pa.Schema, packets: int, later: int, lost_one_in: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield rows of a tap that sees packets `later` ns after the first tap, without lost ones."""

    def names(of: list[str], place: int, count: int) -> pa.Array[Any]:
        return pa.DictionaryArray.from_arrays(np.full(count, place, np.int8), pa.array(of))

    for first in range(0, packets, BATCH):
        number = np.arange(first, min(first + BATCH, packets), dtype=np.uint64)
        if later and lost_one_in:
            number = number[number % np.uint64(lost_one_in) != np.uint64(lost_one_in - 1)]
        mixed = number * np.uint64(0x9E3779B97F4A7C15)
        mixed = ((mixed << np.uint64(29)) | (mixed >> np.uint64(35))) * np.uint64(0xBF58476D1CE4E5B9)
        count = len(number)
        columns = {
            "time_ns": pa.array(times(number, later).astype(np.int64)),
            "time_source": names(["hardware", "kernel", "user", "simulated"], 1, count),
            "digest": pa.array(mixed.view(np.int64)),
            "length_bytes": pa.array(np.full(count, 60, np.int32)),
            "direction": names(["in", "out"], int(later > 0), count),
            **{flag: pa.array(np.zeros(count, bool)) for flag in ("fragment", "super_packet", "truncated")},
        }
        yield pa.record_batch([columns[field.name] for field in schema], schema=schema)


def write_capture(path: Path, later: int, packets: int) -> None:
    """Write the same packets as a pcapng file, with nanoseconds."""
    block = np.dtype([
        ("kind", "<u4"), ("length", "<u4"), ("interface", "<u4"), ("high", "<u4"), ("low", "<u4"), ("kept", "<u4"),
        ("original", "<u4"), ("frame", "u1", len(FRAME)), ("again", "<u4"),
    ])  # fmt: skip
    with path.open("wb") as file:
        file.write(struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28))
        file.write(struct.pack("<IIHHIHHB3xII", 1, 32, 1, 0, 0, 9, 1, 9, 0, 32))
        for first in range(0, packets, BATCH):
            number = np.arange(first, min(first + BATCH, packets), dtype=np.uint64)
            at, blocks = times(number, later), np.zeros(len(number), block)
            blocks["kind"], blocks["length"], blocks["again"] = 6, block.itemsize, block.itemsize
            blocks["high"], blocks["low"] = at >> np.uint64(32), at & np.uint64(0xFFFFFFFF)
            blocks["kept"] = blocks["original"] = len(FRAME)
            blocks["frame"] = np.frombuffer(FRAME, np.uint8)
            blocks["frame"][:, 42:46] = number.astype(">u4").view(np.uint8).reshape(-1, 4)
            file.write(blocks.tobytes())


def times(number: np.ndarray, later: int) -> np.ndarray:
    """Return the times of the packets: one per microsecond."""
    return np.uint64(1_700_000_000_000_000_000 + later) + number * np.uint64(1_000)
