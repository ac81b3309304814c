"""Segments from instrument to instrument: of a made flow each is where it was made to be; differences have a place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.analysis.finding import Place
from sojourn.export import Chosen
from sojourn.export.log import TcpLog
from sojourn.methods.tcp_load.analyse.conserved import Way, frame_of, judged, ways_of
from tests.unit.made_up_path import MadePath
from tests.unit.made_up_tcp import write_table

if TYPE_CHECKING:
    from pathlib import Path

LOST = dict.fromkeys(range(100, 200, 10), "full")
"""Ten packets that the emulator drops; each is sent again."""

HERE = Place("emulate", 3)


def found_in(path: Path, *more: str, skipped: int = 0) -> Way:
    flows = pl.read_ipc_stream(path / "t" / "records" / "tcp_flows-tcplog-000.arrow")
    folders = [path / one for one in more or ("e",)]
    [way] = ways_of(path / "t", "tcplog", int(flows["block"][0]), folders, skipped=skipped)
    return way


def tapped(made: MadePath, path: Path, **how: Any) -> None:
    """The path, and taps on both sides of what lies between."""
    made.write(path)
    made.write_taps(path, TcpLog.open(path / "t", Chosen()).minus_utc_ns, **how)


def named(way: Way) -> list[str]:
    return [one.sentence for one in judged([(HERE, 7, way)])]


def cut(path: Path, table: str, keep: pl.Expr) -> None:
    """Leave rows of a file away."""
    write_table(path, table, pl.read_ipc_stream(path).filter(keep))


def test_known_drops_explain_all_loss(tmp_path: Path) -> None:
    MadePath(lost=LOST).write(tmp_path)
    way = found_in(tmp_path)
    assert (way.segments, way.arrived, way.dropped, way.departed, way.received) == (610, 610, 10, 600, 600)
    assert (way.before, way.held, way.behind, way.strangers, way.missing) == (0, 0, 0, 0, 0)
    assert named(way) == []
    assert frame_of([(HERE, 7, way)])["dropped"].to_list() == [10]


@pytest.mark.parametrize(
    ("record", "table", "keep", "said"),
    [
        (
            "e/packets-emulate-000.arrow",
            "packets",
            ~pl.col("number").is_in([5, 50, 300]),
            "3 of 610 of 10.9.0.1:40000 \u2192 10.9.0.2:5201 in trial 7, are between the sender's TCP and the emulator",
        ),
        (
            "t/records/tcp_samples-tcplog-000.arrow",
            "tcp_samples",
            ~((pl.col("flow") == 2) & pl.col("number").is_in([20, 21])),
            "10.9.0.1:40000 \u2192 10.9.0.2:5201 in trial 7, are between the emulator and the receiver's TCP",
        ),
    ],
)
def test_missing_segment_is_located(record: str, table: str, keep: pl.Expr, said: str, tmp_path: Path) -> None:
    MadePath(lost=LOST).write(tmp_path)
    cut(tmp_path / record, table, keep)
    [sentence] = named(found_in(tmp_path))
    assert said in sentence


def test_segment_without_a_sample_of_the_sender_is_unexpected(tmp_path: Path) -> None:
    """At the emulator, and at the receiver."""
    MadePath().write(tmp_path)
    is_sent = (pl.col("flow") == 1) & (pl.col("point") == "out")
    cut(tmp_path / "t/records/tcp_samples-tcplog-000.arrow", "tcp_samples", ~(is_sent & (pl.col("ip_id") == 65_010)))
    way = found_in(tmp_path)
    assert (way.segments, way.strangers) == (599, 2)
    assert "of which the sender's TCP has no record" in named(way)[0]


def test_duplicates_of_the_emulator_are_not_unexpected(tmp_path: Path) -> None:
    MadePath(copied=range(300, 305)).write(tmp_path)
    way = found_in(tmp_path)
    assert (way.segments, way.departed, way.received, way.strangers) == (600, 600, 600, 0)
    assert named(way) == []


def test_segment_with_a_bad_checksum_counts_as_lost_in_the_emulator(tmp_path: Path) -> None:
    MadePath(lost=dict.fromkeys(range(100, 105), "corrupted")).write(tmp_path)
    way = found_in(tmp_path)
    assert (way.segments, way.dropped, way.departed, way.received, way.behind) == (605, 5, 600, 600, 0)
    assert named(way) == []


def test_incomplete_log_gives_no_result(tmp_path: Path) -> None:
    MadePath().write(tmp_path)
    cut(tmp_path / "e/packets-emulate-000.arrow", "packets", pl.col("number") > 3)
    assert len(named(found_in(tmp_path))) == 1
    assert named(found_in(tmp_path, skipped=4)) == []


@pytest.mark.parametrize("made", [MadePath(lost=LOST), MadePath(lost=LOST, family=6),
                                  MadePath(lost=LOST, per_packet=4, joined=3)], ids=["4", "6", "gso-gro"])  # fmt: skip
def test_without_an_emulator_log_taps_locate_the_loss(made: MadePath, tmp_path: Path) -> None:
    tapped(made, tmp_path)
    way = found_in(tmp_path, "c")
    assert way.seen is not None
    assert (way.segments, way.seen.near, way.seen.device, way.seen.far, way.received) == (610, 610, 10, 600, 600)
    others = (way.seen.before, way.seen.missed, way.seen.blind, way.seen.after, way.seen.others, way.strangers)
    assert others == (0,) * 6
    assert (way.arrived, way.dropped, way.seen.silent, way.missing) == (None, None, None, 0)
    assert named(way) == []
    [row] = frame_of([(HERE, 7, way)]).iter_rows(named=True)
    assert (row["tap_device"], row["dropped"]) == (10, None)


def test_taps_and_an_emulators_log_agree(tmp_path: Path) -> None:
    tapped(MadePath(lost=LOST), tmp_path)
    way = found_in(tmp_path, "e", "c")
    assert way.seen is not None
    assert (way.dropped, way.seen.device, way.seen.silent) == (10, 10, 0)
    assert named(way) == []


SAMPLES = "t/records/tcp_samples-tcplog-000.arrow"
OF_RECEIVER = (pl.col("flow") == 2) & (pl.col("ip_id") == 65_050)


@pytest.mark.parametrize(
    ("how", "cuts", "more", "said"),
    [
        ({"blind": {50}, "far_blind": {50}}, (SAMPLES, OF_RECEIVER), ("c",), "the sender's TCP and the first tap"),
        ({"blind": {50}}, None, ("c",), "at the first tap, which did not see what was seen behind it"),
        ({"far_blind": {50}}, None, ("c",), "at the last tap, which did not see what the receiver's TCP got"),
        ({"far_blind": {50}}, (SAMPLES, OF_RECEIVER), ("e", "c"), "between the emulator and the last tap"),
        ({}, (SAMPLES, OF_RECEIVER), ("c",), "between the last tap and the receiver's TCP"),
        ({"stray": 1}, None, ("c",), "at the taps, and the sender's TCP has no record of them"),
    ],
    ids=["before", "near tap", "far tap", "emulator", "behind", "stray"],
)  # fmt: skip
def test_one_withheld_packet_is_located(
    how: dict[str, Any], cuts: tuple[str, pl.Expr] | None, more: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """The only one of 600, by what taps and TCP have; where it was lost it is acknowledged by nobody."""
    made = MadePath()
    tapped(made, tmp_path, **how)
    if cuts is not None:
        cut(tmp_path / cuts[0], "tcp_samples", ~cuts[1])
        unacknowledged(tmp_path / cuts[0], made, 50)
    [sentence] = named(found_in(tmp_path, *more))
    assert said in sentence, sentence


def unacknowledged(path: Path, made: MadePath, segment: int) -> None:
    """The sender's samples with acknowledgements that stop before a segment."""
    frame = pl.read_ipc_stream(path)
    most = made.seq(segment)
    is_sender = (pl.col("flow") == 1) & (pl.col("point") == "in")
    capped = pl.when(is_sender).then(pl.min_horizontal("ack", pl.lit(most))).otherwise("ack").cast(pl.Int64)
    write_table(path, "tcp_samples", frame.with_columns(capped.alias("ack")))


def test_tap_with_drops_gives_no_result(tmp_path: Path) -> None:
    tapped(MadePath(), tmp_path, far_blind={50})
    way = found_in(tmp_path, "c")
    assert len(named(way)) == 1
    assert named(replace(way, missing=1)) == []
