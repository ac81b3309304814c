"""Segments joined to what was recorded of them: of made records with a known truth each is found, and no other."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest

from sojourn.errors import RequestError
from sojourn.export import Chosen
from sojourn.timeline.pairs import joined_sights
from sojourn.timeline.segments import joined
from sojourn.timeline.source import Flow, only_flow, open_flow
from tests.unit.made_up_path import MSS, SOON_NS, MadePath

if TYPE_CHECKING:
    from pathlib import Path

LOST = {40: "before", 41: "full", 300: "managed"}


def opened(made: MadePath, path: Path, flow: int = 1, **how: bool) -> Flow:
    made.write(path, **how)
    return open_flow(path / "t", flow, Chosen(), [path / "e"] if how.get("emulator", True) else [])


@pytest.mark.parametrize(
    "made",
    [
        MadePath(lost=LOST),
        MadePath(lost=LOST, isn=2**32 - 100 * MSS),
        MadePath(lost=LOST, family=6),
        MadePath(lost=LOST, vlan=True),
        MadePath(lost=LOST, per_packet=4),
        MadePath(lost=LOST, per_packet=4, joined=3, family=6),
        MadePath(lost=LOST, joined=2, isn=2**32 - 100 * MSS),
    ],
    ids=["plain", "wraps", "ipv6", "vlan", "gso", "gso-gro-ipv6", "gro-wraps"],
)
def test_every_segment_is_joined_to_its_own_observations(made: MadePath, tmp_path: Path) -> None:
    segments, account = joined(opened(made, tmp_path))
    sent = made.segments + len(LOST)
    assert (account.segments, account.at_emulator, account.emulator_unjoined) == (sent, sent, 0)
    assert (account.not_received, account.lost_at_emulator, account.unexplained) == (len(LOST), len(LOST), 0)
    assert (account.received, account.receiver_unjoined) == (made.segments, 0)
    for row in segments.iter_rows(named=True):
        number = row["emulator_number"]
        at, segment, again = made.sights()[number]
        assert (row["sent_ns"], row["seq"], row["again"]) == (at, made.seq(segment), again)
        assert row["arrival_ns"] == at + SOON_NS
        cause = "" if again else LOST.get(segment, "")
        assert row["cause"] == cause
        if cause:
            assert row["received_ns"] is None
        else:
            arrived = at + 2 * SOON_NS + made.wait(segment) + made.delay_ns
            assert arrived <= row["received_ns"] < arrived + made.joined * made.gap_ns * made.per_packet
        assert row["acked_ns"] > at


def test_unmatched_records_are_counted_and_not_joined(tmp_path: Path) -> None:
    made = MadePath(segments=200)
    flow = opened(made, tmp_path)
    odd = flow.packets.filter(pl.col("number") % 10 != 3)
    fewer = Flow(1, flow.sender, flow.receiver, odd, flow.emulated)
    segments, account = joined(fewer)
    assert (account.at_emulator, account.not_at_emulator, account.emulator_packets) == (180, 20, 180)
    assert account.received == 200
    assert segments.filter(pl.col("arrival_ns").is_null()).height == 20
    strange = flow.packets.with_columns(ip_id=pl.when(pl.col("number") == 5).then(9).otherwise("ip_id"))
    _, account = joined(Flow(1, flow.sender, flow.receiver, strange, flow.emulated))
    assert (account.not_at_emulator, account.emulator_unjoined) == (1, 1)
    copied = flow.packets.with_columns(copy_of=pl.when(pl.col("number") == 7).then(6))
    _, account = joined(Flow(1, flow.sender, flow.receiver, copied, flow.emulated))
    assert (account.not_at_emulator, account.emulator_unjoined) == (1, 1)


def test_data_completing_a_handshake_without_a_sample_are_not_lost(tmp_path: Path) -> None:
    """The first segment overtook the last packet of the handshake: the receiver acknowledges it, and logs nothing."""
    flow = opened(MadePath(lost=LOST), tmp_path)
    assert flow.receiver is not None
    first = flow.receiver.samples.filter(pl.col("point") == "in", pl.col("payload_bytes") > 0)["seq"][0]
    is_first = (pl.col("point") == "in") & (pl.col("payload_bytes") > 0) & (pl.col("seq") == first)
    deaf = replace(flow, receiver=replace(flow.receiver, samples=flow.receiver.samples.filter(~is_first)))
    _, account = joined(deaf)
    assert (account.received, account.not_received) == (599, len(LOST) + 1)
    assert (account.acknowledged_unseen, account.lost_at_emulator, account.unexplained) == (1, len(LOST), 0)
    assert account.differences() == []
    # What nothing acknowledges stays unexplained.
    silent = flow.sender.samples.filter(pl.col("point") == "out")
    unheard = replace(deaf, sender=replace(flow.sender, samples=silent))
    assert joined(unheard)[1].unexplained == 1


def sights(*rows: tuple[int, int, int, int]) -> pl.DataFrame:
    """Time, sequence number, length, IP identification."""
    frame = pl.DataFrame(rows, schema=["at_ns", "seq", "payload_bytes", "ip_id"], orient="row")
    return frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("row"))


def sent_segments(*rows: tuple[int, int, int, int]) -> pl.DataFrame:
    return sights(*rows).rename({"at_ns": "sent_ns", "row": "place"})


def test_first_of_duplicate_and_merged_packet_belongs_to_the_segment() -> None:
    sent = sent_segments((0, 1000, 100, 7), (1, 1100, 100, 8), (2, 1200, 50, 9))
    seen = sights((10, 1000, 250, 7), (20, 1100, 100, 8))
    assert sorted(joined_sights(sent, seen).rows()) == [(0, 0), (1, 0), (2, 0)]
    later = sights((30, 1000, 250, 7), (20, 1100, 100, 8))
    assert sorted(joined_sights(sent, later).rows()) == [(0, 0), (1, 1), (2, 0)]


def test_retransmission_is_not_joined_to_the_packet_of_the_original() -> None:
    """By the IP identification; without one, by when it was sent."""
    for ids in ((7, 8, 50), (0, 0, 0)):
        sent = sent_segments((0, 1000, 100, ids[0]), (1, 1100, 100, ids[1]), (15, 1100, 100, ids[2]))
        seen = sights((10, 1000, 200, ids[0]), (25, 1100, 100, ids[2]))
        assert sorted(joined_sights(sent, seen).rows()) == [(0, 0), (1, 0), (2, 1)]
    # Sent before the packet of both was seen, which waited in a queue: only the identification tells.
    early = sent_segments((0, 1000, 100, 7), (1, 1100, 100, 8), (5, 1100, 100, 50))
    assert sorted(joined_sights(early, sights((10, 1000, 200, 7), (25, 1100, 100, 50))).rows()) == [
        (0, 0),
        (1, 0),
        (2, 1),
    ]


def test_missing_records_give_no_claims(tmp_path: Path) -> None:
    flow = opened(MadePath(lost=LOST), tmp_path, receiver=False, emulator=False)
    _, account = joined(flow)
    assert flow.receiver is None
    assert (account.at_emulator, account.received, account.lost_at_emulator) == (0, 0, 0)
    assert account.acknowledged_unseen == account.segments == account.acknowledged == 603
    assert account.unexplained == 0
    assert "the receiver has no log here" in account.sentences()[0]


def test_flow_number_of_either_end_selects_the_flow(tmp_path: Path) -> None:
    made = MadePath(segments=50)
    made.write(tmp_path)
    flow = open_flow(tmp_path / "t", 2, Chosen(), [])
    assert (flow.asked, flow.sender.flow) == (2, 1)
    assert flow.receiver is not None
    assert flow.receiver.flow == 2
    assert only_flow(tmp_path / "t", Chosen()) == 1


def test_a_log_of_another_host_is_refused(tmp_path: Path) -> None:
    """Its clock is another one."""
    for name, receiver in (("x", False), ("y", True)):
        MadePath(segments=50).write(tmp_path / name, receiver=receiver)
    header = tmp_path / "y" / "t" / "header.json"
    header.write_text(header.read_text().replace('"made-up"', '"elsewhere"'))
    with pytest.raises(RequestError, match="their clocks are not one"):
        open_flow(tmp_path / "x" / "t", 1, Chosen(), [tmp_path / "y" / "t"])


@pytest.mark.parametrize(("boots", "refused"), [(("1", "2"), True), (("1", "1"), False), (("1", ""), False)])
def test_two_boots_of_one_host_name_have_two_clocks(boots: tuple[str, str], refused: bool, tmp_path: Path) -> None:
    """Machines that were cloned have one name. A log of an earlier version has no boot ID."""
    for name, receiver, boot in zip("xy", (False, True), boots, strict=True):
        MadePath(segments=50).write(tmp_path / name, receiver=receiver)
        header = tmp_path / name / "t" / "header.json"
        told = json.loads(header.read_text()) | ({"boot_id": boot} if boot else {})
        header.write_text(json.dumps(told))
    with pytest.raises(RequestError, match="in two boots") if refused else nullcontext():
        open_flow(tmp_path / "x" / "t", 1, Chosen(), [tmp_path / "y" / "t"])
