"""What taps saw of a flow: captures before and behind a device, joined to segments and acknowledgements.

A tap is a capture (`sojourn capture IFACE… -o FOLDER`, or tcpdump's) in a folder that is named besides the run, or one
of the run's own, at the ports of both hosts in logged trials. Taps are ordered by how late they saw the segments: the
first one is before the device, the last one behind it. File times are UTC; here they are converted to the records'
clock. Packets without a sample are counted, tap by tap.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from sojourn.errors import RequestError
from sojourn.records.pcap import ETHERNET, TCP, CutError, dropped_of, read_capture, tcp_of
from sojourn.timeline.frames import FOUND, HEAD_BYTES, plain_segments
from sojourn.timeline.pairs import joined_sights, matched, within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sojourn.records.pcap import Block
    from sojourn.timeline.source import Flow

ACK_KEYS = ("seq", "ack", "payload_bytes", "ip_id")
SYN = 2
MICROSECOND_NS = 1_000
PACKED = ("gz", "zst", "lz4", "xz", "bz2")
PART = re.compile(r"-\d{6}$")
"""The number in the file names of a rotating capture: all of its files are one tap."""

PLAIN, LEAST_PLAIN = b"\x08\x00\x45", 54
"""EtherType, IP version and header length; the least length of such a frame with a TCP header."""

LOG_FILES = ("header.json", "plan.toml")
"""A folder with one of these is a log or a run: captures in it are exports."""


@dataclass(frozen=True, slots=True)
class TapAccount:
    """Counts of a flow's data at one tap: `packets` = `joined` + `copies` + `unjoined`."""

    tap: str
    packets: int
    """Packets with data of this flow and direction."""
    joined: int
    """Of them: joined to a segment."""
    copies: int
    """Of them: copies made by an emulator."""
    unjoined: int
    """Of them: the rest, without a sample of the sender."""
    segments: int
    """Segments that it saw; a packet merged by the kernel (GRO, GSO) holds several."""
    missed: int
    """Segments seen behind this tap but not at it."""
    last_seen: int
    """Segments seen at this tap and nowhere behind it: neither at another tap nor by the receiver, not even by its
    acknowledgement."""
    lost_at_emulator: int
    """Of those: lost by an emulator."""


@dataclass(frozen=True, slots=True)
class _Sight:
    """The segments that a tap saw, and when."""

    later_ns: float
    """The median delay since they were built."""
    tap: str
    seen: pl.DataFrame
    packets: int
    copies: int


@dataclass(frozen=True, slots=True)
class Tapped:
    """The contents of captures: the TCP segments in the order of time, the files by tap, and the drops that files
    report."""

    packets: pl.DataFrame
    files: dict[str, tuple[str, ...]]
    dropped: dict[str, int]
    """By tap, packets that passed it but are missing from its files; taps that do not report it are left out."""


def no_captures() -> pl.DataFrame:
    """Return the empty table of a run without captures."""
    kinds = {"tap": pl.String, "frame": pl.Int64, "utc_ns": pl.Int64}
    return pl.DataFrame(schema=kinds | {name: _kind(name) for name in FOUND})


def tap_files(folders: Sequence[Path], block: int | None = None) -> list[tuple[str, Path]]:
    """Return the captures in these folders, each with the name of its tap; several files may be of one tap, in order.

    Interfaces of the same name on two hosts also get the name of their folder. Of a run folder the captures are those
    that the study took, of one block if it is named.
    """
    files: list[Path] = []
    for folder in folders:
        if any((folder / name).exists() for name in LOG_FILES):
            continue
        if packed := sorted(file for ending in PACKED for file in folder.glob(f"*.pcap*.{ending}")):
            raise RequestError(f"{packed[0]} is compressed: decompress the captures of {folder} first")
        # tcpdump numbers the files of a rotating capture: x.pcap, x.pcap1, ...
        files += sorted([*folder.glob("*.pcapng"), *folder.glob("*.pcap"), *folder.glob("*.pcap[0-9]*")])
    names = [PART.sub("", path.stem) for path in files]
    owners = {name: {path.parent for path, other in zip(files, names, strict=True) if other == name} for name in names}
    others = [
        (name if len(owners[name]) == 1 else f"{path.parent.name}/{name}", path)
        for path, name in zip(files, names, strict=True)
    ]
    return [*(one for folder in folders for one in _own_files(folder, block)), *others]


def _own_files(folder: Path, block: int | None) -> list[tuple[str, Path]]:
    """Return the captures that a study took at its hosts' ports during a log of TCP."""
    found = sorted((folder / "records" / "taps").glob(f"*-{'*' if block is None else block}-[ab]/[ab].pcapng"))
    return [(f"host-{path.stem}", path) for path in found]


def captured(folders: Sequence[Path], block: int | None = None) -> Tapped:
    """Return the TCP segments in the captures of these folders; a capture may end within a packet."""
    frames, files, dropped = [no_captures()], dict[str, tuple[str, ...]](), dict[str, int]()
    for tap, path in tap_files(folders, block):
        found, lost = _segments_of(path)
        frames.append(found.select(pl.lit(tap).alias("tap"), "frame", "utc_ns", *FOUND))
        files[tap] = (*files.get(tap, ()), str(path))
        if lost is not None:
            dropped[tap] = dropped.get(tap, 0) + lost
    return Tapped(pl.concat(frames).sort("utc_ns", maintain_order=True), files, dropped)


def _segments_of(path: Path) -> tuple[pl.DataFrame, int | None]:
    """Return the TCP segments of a file with their frame numbers from 1, and the number of packets that it lacks."""
    plain: list[tuple[int, int]] = []
    heads: list[bytes] = []
    rows: list[tuple[object, ...]] = []
    lacks: int | None = None
    number = 0
    for block in _blocks(path):
        if block.at_ns is None:
            lost = dropped_of(block)
            lacks = lacks if lost is None else (lacks or 0) + lost
            continue
        number += 1
        if block.link == ETHERNET and is_plain(block.packet):
            plain.append((number, block.at_ns))
            heads.append(block.packet[:HEAD_BYTES])
        elif (found := tcp_of(block)) is not None:
            rows.append((number, block.at_ns, *found[: len(FOUND)]))
    kinds = {"frame": pl.Int64(), "utc_ns": pl.Int64()}
    few = pl.DataFrame(rows, schema=kinds | {name: _kind(name) for name in FOUND}, orient="row")
    many = plain_segments(pl.DataFrame(plain, schema=kinds, orient="row"), heads)
    return pl.concat([few, many.select(few.columns)]), lacks


def _blocks(path: Path) -> Iterator[Block]:
    try:
        yield from read_capture(path)
    except CutError:
        return


def is_plain(packet: bytes) -> bool:
    """Return whether a frame is untagged IPv4, unfragmented, with TCP after a 20-byte header, below 64 KiB:
    most are."""
    is_whole = len(packet) >= LEAST_PLAIN and packet[16:18] != bytes(2) and not (packet[20] & 0x3F or packet[21])
    return is_whole and packet[12:15] == PLAIN and packet[23] == TCP


def _kind(name: str) -> pl.DataType:
    return pl.String() if name in {"source", "destination"} else pl.Int64()


def at_taps(segments: pl.DataFrame, flow: Flow, source: str) -> tuple[pl.DataFrame, tuple[TapAccount, ...]]:
    """Add the times of the first and the last tap that saw the flow; return also each tap's counts, in order."""
    sights: list[_Sight] = []
    copied = _copies(flow.packets, source)
    for (tap,), frames in flow.tapped.group_by("tap", maintain_order=True):
        late = _rounded_down_by(frames)
        is_data = (pl.col("source") == source) & (pl.col("payload_bytes") > 0)
        mine = frames.filter(is_data, pl.col("flags12") & SYN == 0)
        mine = mine.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("row"))
        at_latest = mine.with_columns(pl.col("at_ns") + late)
        pairs = joined_sights(segments, at_latest)
        seen = pairs.join(mine.select("row", "at_ns", "frame"), on="row")
        copies = _of_copies(copied, at_latest.join(pairs, on="row", how="anti"))
        if seen.height:
            later = seen.join(segments.select("place", "sent_ns"), on="place")
            middle = (later["at_ns"] - later["sent_ns"]).median()
            sights.append(_Sight(float(str(middle)), str(tap), seen, mine.height, copies))
    sights.sort(key=lambda one: (one.later_ns, one.tap))
    wide = segments
    for name, one in zip(("before", "after"), (sights[:1], sights[1:][-1:]), strict=True):
        wide = _with_sight(wide, name, one[0] if one else None)
    return _placed(wide, flow), tuple(_account(place, sights, segments) for place in range(len(sights)))


def _placed(segments: pl.DataFrame, flow: Flow) -> pl.DataFrame:
    """Add `lost_where`: before the first tap, in the device behind it, or behind the last one.

    Only a segment sent before another that arrived there can have been lost on that section; later ones may be in
    flight.
    """
    at_near, at_far, got = (pl.col(name).is_not_null() for name in ("tap_before_ns", "tap_after_ns", "received_ns"))
    arrived = pl.col("reached") | pl.col("acked_ns").is_not_null() if flow.receiver is None else pl.col("reached")
    until = {name: pl.col("sent_ns") < pl.col("sent_ns").filter(seen).max()
             for name, seen in (("near", at_near), ("far", at_far), ("got", got))}  # fmt: skip
    has_two = pl.col("tap_after").is_not_null().any() & pl.col("tap_before").is_not_null().any()
    behind = pl.when(flow.receiver is not None).then(until["got"]).otherwise(statement=False)
    where = (
        pl.when(~has_two | arrived)
        .then(None)
        .when(~at_near & ~at_far & until["near"])
        .then(pl.lit("before"))
        .when(at_near & ~at_far & until["far"])
        .then(pl.lit("device"))
        .when(at_far & behind)
        .then(pl.lit("behind"))
    )
    return segments.with_columns(where.alias("lost_where"))


def _rounded_down_by(frames: pl.DataFrame) -> int:
    """Return by how much a capture's times may be too early, in ns: those of tcpdump are whole microseconds by default.

    Otherwise a packet that passed right after its building would seem to precede it.
    """
    of_a_microsecond = frames["at_ns"] % MICROSECOND_NS
    return MICROSECOND_NS - 1 if frames.height > 1 and of_a_microsecond.n_unique() == 1 else 0


def _copies(packets: pl.DataFrame, source: str) -> pl.DataFrame:
    """Return the duplicates that emulators made, as segments built when the copy was made."""
    made = packets.filter(pl.col("source") == source, pl.col("payload_bytes") > 0, pl.col("copy_of").is_not_null())
    made = made.filter(pl.col("disposition") == "sent")
    return made.with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("place"), pl.col("arrival_ns").alias("sent_ns")
    )


def _of_copies(copied: pl.DataFrame, frames: pl.DataFrame) -> int:
    """Return how many of these packets are copies, single or merged by the kernel (GRO)."""
    alone = matched(copied, frames)
    rest = copied.join(alone, on="place", how="anti"), frames.join(alone, on="row", how="anti")
    return alone.height + within(*rest)["row"].n_unique()


def _with_sight(segments: pl.DataFrame, name: str, sight: _Sight | None) -> pl.DataFrame:
    tap, at, frame = f"tap_{name}", f"tap_{name}_ns", f"tap_{name}_frame"
    if sight is None:
        return segments.with_columns(
            pl.lit(None, pl.String).alias(tap), pl.lit(None, pl.Int64).alias(at), pl.lit(None, pl.Int64).alias(frame)
        )
    seen = sight.seen.select("place", pl.lit(sight.tap).alias(tap), pl.col("at_ns").alias(at),
                             pl.col("frame").alias(frame))  # fmt: skip
    return segments.join(seen, on="place", how="left", maintain_order="left")


def _account(place: int, sights: Sequence[_Sight], segments: pl.DataFrame) -> TapAccount:
    mine = sights[place]
    behind = [one.seen.select("place") for one in sights[place + 1 :]]
    behind.append(segments.filter("reached").select("place"))
    later = pl.concat(behind).unique()
    last = segments.join(mine.seen, on="place", how="semi").join(later, on="place", how="anti")
    joined = mine.seen["row"].n_unique()
    return TapAccount(
        tap=mine.tap,
        packets=mine.packets,
        joined=joined,
        copies=mine.copies,
        unjoined=mine.packets - joined - mine.copies,
        segments=mine.seen.height,
        missed=later.join(mine.seen, on="place", how="anti").height,
        last_seen=last.height,
        lost_at_emulator=last.filter(pl.col("disposition") == "lost").height,
    )


def acks_on_their_way(
    segments: pl.DataFrame, flow: Flow, acks: pl.DataFrame, taps: Sequence[TapAccount], source: str
) -> pl.DataFrame:
    """Add the times at which a segment's acknowledgement passed the taps and an emulator.

    `acks` are the sender's samples of received packets; `ack_row` of a segment is a row of them; `source` is the
    receiver's address in digits.
    """
    came = acks.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
        *(pl.col(name).cast(pl.Int64) for name in ACK_KEYS),
        pl.col("time_ns").alias("at_ns"),
    )
    back = flow.packets.filter(pl.col("source") == source, pl.col("copy_of").is_null(), pl.col("disposition") == "sent")
    found = {
        "ack_arrival_ns": (back, "arrival_ns"),
        "ack_departure_ns": (back, "departure_ns"),
    }
    for name, tap in zip(("ack_tap_before_ns", "ack_tap_after_ns"), (taps[:1], taps[1:][-1:]), strict=True):
        wanted = tap[0].tap if tap else ""
        found[name] = (flow.tapped.filter(pl.col("source") == source, pl.col("tap") == wanted), "at_ns")
    for name, (frames, column) in found.items():
        segments = segments.join(_passed(frames, column, came, name), on="ack_row", how="left", maintain_order="left")
    return segments


def _passed(frames: pl.DataFrame, column: str, came: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return by `ack_row` when its packet was seen in these frames."""
    sights = frames.drop_nulls(column).with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("place"), pl.col(column).alias("sent_ns")
    )
    pairs = matched(sights, came, ACK_KEYS)
    seen = pairs.join(sights.select("place", pl.col("sent_ns").alias(name)), on="place")
    return seen.select(pl.col("row").alias("ack_row"), name)
