"""Segments from instrument to instrument: of a made flow each is where it was made to be; differences have a place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from sojourn.analysis.finding import Place
from sojourn.methods.tcp_load.analyse.conserved import Way, frame_of, judged, ways_of
from tests.unit.made_up_path import MadePath
from tests.unit.made_up_tcp import write_table

if TYPE_CHECKING:
    from pathlib import Path

LOST = dict.fromkeys(range(100, 200, 10), "full")
"""Ten packets that the emulator drops; each is sent again."""

HERE = Place("emulate", 3)


def found_in(path: Path, *, skipped: int = 0) -> Way:
    flows = pl.read_ipc_stream(path / "t" / "records" / "tcp_flows-tcplog-000.arrow")
    [way] = ways_of(path / "t", "tcplog", int(flows["block"][0]), [path / "e"], skipped=skipped)
    return way


def named(way: Way) -> list[str]:
    return [one.sentence for one in judged([(HERE, 7, way)])]


def cut(path: Path, table: str, keep: pl.Expr) -> None:
    """Leave rows of a file away."""
    write_table(path, table, pl.read_ipc_stream(path).filter(keep))


def test_known_drops_are_the_only_loss(tmp_path: Path) -> None:
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
def test_a_segment_that_is_missing_has_its_place(
    record: str, table: str, keep: pl.Expr, said: str, tmp_path: Path
) -> None:
    MadePath(lost=LOST).write(tmp_path)
    cut(tmp_path / record, table, keep)
    [sentence] = named(found_in(tmp_path))
    assert said in sentence


def test_what_no_sample_of_the_sender_tells_of_is_a_stranger(tmp_path: Path) -> None:
    """At the emulator, and at the receiver."""
    MadePath().write(tmp_path)
    is_sent = (pl.col("flow") == 1) & (pl.col("point") == "out")
    cut(tmp_path / "t/records/tcp_samples-tcplog-000.arrow", "tcp_samples", ~(is_sent & (pl.col("ip_id") == 65_010)))
    way = found_in(tmp_path)
    assert (way.segments, way.strangers) == (599, 2)
    assert "of which the sender's TCP has no record" in named(way)[0]


def test_copies_of_the_emulator_are_no_strangers(tmp_path: Path) -> None:
    MadePath(copied=range(300, 305)).write(tmp_path)
    way = found_in(tmp_path)
    assert (way.segments, way.departed, way.received, way.strangers) == (600, 600, 600, 0)
    assert named(way) == []


def test_what_the_receiver_drops_for_its_checksum_the_emulator_has_lost(tmp_path: Path) -> None:
    MadePath(lost=dict.fromkeys(range(100, 105), "corrupted")).write(tmp_path)
    way = found_in(tmp_path)
    assert (way.segments, way.dropped, way.departed, way.received, way.behind) == (605, 5, 600, 600, 0)
    assert named(way) == []


def test_where_a_log_lacks_records_nothing_is_judged(tmp_path: Path) -> None:
    MadePath().write(tmp_path)
    cut(tmp_path / "e/packets-emulate-000.arrow", "packets", pl.col("number") > 3)
    assert len(named(found_in(tmp_path))) == 1
    assert named(found_in(tmp_path, skipped=4)) == []
