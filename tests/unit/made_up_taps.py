"""Taps of made-up boxes, as our records: losses, copies, reordering, equal packets, times that step back, both ways."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sojourn.instruments.matching import NAMES
from sojourn.records.reader import arrow_schema

if TYPE_CHECKING:
    from pathlib import Path

BEGIN_NS = 1_700_000_000_000_000_000
SOURCES = NAMES["time_source"]


@dataclass(frozen=True)
class Box:
    """What a box does to packets; shares are of packets, times in ns."""

    packets: int = 20_000
    interval_ns: int = 10_000
    delay_ns: tuple[int, int] = (20_000, 400_000)
    loss: float = 0.02
    copies: float = 0.01
    foreign: float = 0.01
    without_key: float = 0.01
    stepped_back: float = 0.02
    backward: float = 0.4
    alike_after: int = 0
    """Packets repeat after so many; 0: never."""

    outage: tuple[float, float] = (0.7, 0.71)
    """Between these shares of the time everything is lost."""

    offset_ns: int = 0
    """By how much the second clock is ahead; other than 0: two clocks."""

    unlabelled: bool = False
    """Whether nothing says which way packets go."""

    sources: tuple[str, str] = ("kernel", "kernel")
    """Who stamps at either tap."""

    seed: int = 1


Rows = dict[str, np.ndarray]


def taps(box: Box) -> tuple[Rows, Rows]:
    """What the first and the second tap saw, each in its order."""
    rng = np.random.default_rng(box.seed)
    count = box.packets
    entered = BEGIN_NS + np.cumsum(rng.integers(1, 2 * box.interval_ns, count))
    left = entered + rng.integers(*box.delay_ns, count, endpoint=True)
    kind = np.arange(count, dtype=np.uint64)
    if box.alike_after:
        kind %= np.uint64(box.alike_after)
    digest = (kind + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    digest ^= digest >> np.uint64(31)
    backward = rng.random(count) < box.backward
    length = 60 + (np.arange(count) * 37) % 1400
    share = np.arange(count) / count
    out = (share > box.outage[0]) & (share < box.outage[1])
    arrives = (rng.random(count) >= box.loss) & ~out
    copied = (rng.random(count) < box.copies) & arrives
    foreign = rng.random(count) < box.foreign

    def side(*, first: bool) -> Rows:
        enters = backward != first
        """Whether the packet enters the box here."""
        here = np.where(enters, entered, left)
        there = enters | arrives
        parts = [(here[there], digest[there], length[there], enters[there])]
        again = ~enters & copied
        parts.append((here[again] + 5_000, digest[again], length[again], enters[again]))
        strange = foreign & (rng.random(count) < 0.5)
        parts.append((here[strange] + 77, ~digest[strange], length[strange], enters[strange]))
        time, known, octets, goes_in = (np.concatenate(each) for each in zip(*parts, strict=True))
        order = np.argsort(time, kind="stable")
        time, known, octets, goes_in = time[order], known[order], octets[order], goes_in[order]
        back = rng.random(len(time)) < box.stepped_back
        time = time - np.where(back, rng.integers(1, 6 * box.interval_ns, len(time)), 0)
        if not first:
            time = time + box.offset_ns
        return {
            "time_ns": time.astype(np.int64),
            "digest": known.view(np.int64),
            "length_bytes": octets.astype(np.int32),
            "in": goes_in,
            "keyed": rng.random(len(time)) >= box.without_key,
            "fragment": rng.random(len(time)) < 0.01,
            "super_packet": rng.random(len(time)) < 0.01,
        }

    return side(first=True), side(first=False)


def write_taps(box: Box, folder: Path, parts: int = 1) -> tuple[list[Path], list[Path]]:
    """Write both taps as records, each in so many parts."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    clocks = ("77", "78" if box.offset_ns else "77")
    for name, rows, clock, source in zip(("before", "after"), taps(box), clocks, box.sources, strict=True):
        rows["source"] = np.full(len(rows["time_ns"]), SOURCES.index(source), np.int8)
        edges = np.linspace(0, len(rows["time_ns"]), parts + 1).astype(int)
        paths = []
        for part, (begin, end) in enumerate(itertools.pairwise(edges)):
            paths.append(folder / f"taps-{name}-{part:03d}.arrow")
            cut = {column: values[begin:end] for column, values in rows.items()}
            write_part(paths[-1], name, cut, clock, labelled=not box.unlabelled)
        written.append(paths)
    return written[0], written[1]


def write_part(path: Path, name: str, rows: Rows, clock: str, *, labelled: bool) -> None:
    """Write one file of a tap, and beside it what the tap counted."""
    about = {"tap": name, "interface": f"{name}0", "host": "box", "key": "bridge", "most_octets": "", "clock_id": clock}
    write(path, "taps", about, _columns(rows, labelled=labelled))
    count = len(rows["time_ns"])
    counts = {"tap": [name], "opened_ns": [0], "closed_ns": [1], "seen": [count + 2], "recorded": [count]}
    counts |= {"dropped": [2], "without_key": [int((~rows["keyed"]).sum())]}
    write(path.with_name(path.name.replace("taps-", "tap_counts-")), "tap_counts", {}, counts)


def write(path: Path, table: str, about: dict[str, str], columns: dict[str, Any]) -> None:
    """Write a table of ours as the instrument does."""
    schema = arrow_schema(table, "made up")
    schema = schema.with_metadata({**(schema.metadata or {}), **about})
    arrays = [pa.array(columns[one.name]).cast(one.type) for one in schema]
    batch = pa.record_batch(arrays, schema=schema)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        for begin in range(0, max(1, batch.num_rows), 3_001):
            stream.write_batch(batch.slice(begin, 3_001))


def _columns(rows: Rows, *, labelled: bool) -> dict[str, Any]:
    count = len(rows["time_ns"])
    places = rows["in"].astype(np.int8) ^ 1
    direction = pa.array(places, mask=np.full(count, not labelled))
    return {
        "time_ns": rows["time_ns"],
        "time_source": pa.DictionaryArray.from_arrays(rows["source"], pa.array(SOURCES)),
        "digest": pa.array(rows["digest"], mask=~rows["keyed"]),
        "length_bytes": rows["length_bytes"],
        "direction": pa.DictionaryArray.from_arrays(direction, pa.array(["in", "out"])),
        "fragment": rows["fragment"],
        "super_packet": rows["super_packet"],
        "truncated": np.zeros(count, bool),
    }
