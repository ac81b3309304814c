"""Senders judged from the far end: what a capture becomes, ping's command line, and which trials are whole."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import pytest

from sojourn.bed import BedSpec, build_bed
from sojourn.errors import MachineError
from sojourn.instruments import ping_argv, respond_argv
from sojourn.instruments.blocks import longest_seconds
from sojourn.instruments.capture import Frame, Window, read_pcap, why_not, write_captures
from sojourn.instruments.conversation import error_of, parse
from sojourn.methods.departures.measure import whole
from sojourn.plan import load_plan
from sojourn.records import RunFolder, read_table

if TYPE_CHECKING:
    from pathlib import Path

    from sojourn.plan.probes import Probing
    from sojourn.plan.trial import Trial


def echo_request(identifier: int, sequence: int, kind: int = 8) -> bytes:
    ethernet = bytes(12) + b"\x08\x00"
    ip = b"\x45" + bytes(19)
    return ethernet + ip + struct.pack("!BBHHH", kind, 0, 0, identifier, sequence) + bytes(22)


def pcap(frames: list[tuple[int, bytes, int]], order: str = "<", magic: int = 0xA1B23C4D) -> bytes:
    octets = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 64, 1)
    for stamp, head, length in frames:
        seconds, nanos = divmod(stamp, 1_000_000_000)
        octets += struct.pack(f"{order}IIII", seconds, nanos, len(head), length) + head
    return octets


@pytest.mark.parametrize("order", ["<", ">"])
def test_captured_timestamps_keep_nanosecond_resolution(order: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    head = echo_request(17, 3)
    reply = echo_request(17, 3, kind=0)
    path.write_bytes(pcap([(5_000_000_123, head, 1514), (6_000_000_000, reply, 98), (7_000_000_001, head, 42)], order))
    tai = 37_000_000_000
    assert list(read_pcap(path, tai)) == [
        Frame(5_000_000_123 + tai, 1518, 17, 3),
        Frame(7_000_000_001 + tai, 64, 17, 3),
    ]


def test_truncated_capture_gives_its_complete_frames(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    octets = pcap([(n, echo_request(1, n), 98) for n in range(10)])
    for cut in range(len(octets)):
        path.write_bytes(octets[:cut])
        assert [frame.icmp_seq for frame in read_pcap(path, 0)] == list(range(max(0, cut - 24) // (16 + 64)))
    path.write_bytes(pcap([], magic=0xA1B2C3D4))
    with pytest.raises(MachineError, match="no nanosecond timestamps"):
        list(read_pcap(path, 0))


def test_frames_are_assigned_to_blocks_by_time(tmp_path: Path) -> None:
    frames = [Frame(time, 102, 1, time) for time in (30, 10, 20, 99, 55)]
    assert write_captures(tmp_path / "captures-000.arrow", frames, [Window(7, 10, 20), Window(8, 30, 60)]) == 4
    table = read_table(tmp_path, "captures")
    assert table.frame.select("block", "arrival_ns").rows() == [(7, 10), (7, 20), (8, 30), (8, 55)]
    assert table.truncated == []
    assert table.field_metadata("arrival_ns", "clock") == ["TAI"]
    assert table.field_metadata("arrival_ns", "source") == ["kernel"]


def test_every_column_of_a_capture_has_its_own_value(tmp_path: Path) -> None:
    frame = Frame(arrival_ns=11, frame_bytes=102, icmp_id=13, icmp_seq=14)
    write_captures(tmp_path / "captures-000.arrow", [frame], [Window(7, 10, 20)])
    (row,) = read_table(tmp_path, "captures").frame.drop("part").rows(named=True)
    assert row == {"block": 7, "arrival_ns": 11, "frame_bytes": 102, "icmp_id": 13, "icmp_seq": 14}


def trials() -> dict[tuple[str, int], Trial[Probing]]:
    return {
        (block.factors.tool, block.factors.interval_ns): block for block in load_plan("ping-wait", quick=True).expand()
    }


def test_ping_is_called_with_ordinary_options() -> None:
    block = trials()["ping", 2_000_000]
    with build_bed(BedSpec("sim"), "ping") as bed:
        argv, identifier = ping_argv(bed, block, "10.77.1.2", None)
        flood = ping_argv(bed, trials()["ping", 0], "10.77.1.2", None)[0]
    line = " ".join(argv)
    assert f" -c {block.count} -s {block.factors.size - 8} -i 0.002 " in line
    assert argv[-1] == "10.77.1.2"
    assert identifier is None or f" -e {identifier} " in line
    assert "-f" in flood
    assert "-i" not in flood


def test_responder_polls_only_on_a_dedicated_core() -> None:
    alone = respond_argv("x", ["b-direct", "b-wire"], None, 1, alone=True)
    free = "--peer-rate 0 --rate 0"
    rest = f"{free} --cpu 1 --wait spin --json --die-with-parent"
    assert " ".join(alone) == f"x probe respond --raw b-direct --raw b-wire {rest}"
    shared = respond_argv("x", [], 7707, 0, alone=False)
    assert " ".join(shared) == f"x probe respond --udp 7707 {free} --cpu 0 --wait sleep --json --die-with-parent"


def test_longer_replies_are_allowed_to_any_peer_behind_nat() -> None:
    longer = respond_argv("x", [], 7707, 0, alone=False, amplified=True)
    peers = [longer[at + 1] for at, word in enumerate(longer) if word == "--allow-amplification"]
    assert peers == ["any"]


def test_trial_is_complete_if_it_ended_and_was_captured(tmp_path: Path) -> None:
    plan = load_plan("ping-wait", quick=True)
    folder = RunFolder(tmp_path)
    folder.records.mkdir()
    pings = [block.block for block in plan.expand() if block.factors.tool == "ping"][:3]
    told = {"event": "trial", "tool": "ping", "icmp_bytes": 64, "interval_ns": 0}
    entries = [told | {"block": block} for block in pings[:2]]
    folder.log.write_text("\n".join(json.dumps(entry) for entry in entries))
    windows = [Window(pings[0], 0, 10), Window(pings[2], 11, 20)]
    write_captures(folder.records / "captures-000.arrow", [Frame(5, 102, 1, 1), Frame(15, 102, 1, 1)], windows)
    assert whole(folder, plan) == {pings[0]}


def test_error_messages_of_the_instrument_become_exceptions() -> None:
    assert [error_of(status, "x").status for status in (2, 3, 4, 101)] == [2, 3, 4, 3]
    with pytest.raises(MachineError, match="gave an invalid answer"):
        parse(b"[1]")
    closed = {"count": 10, "schedule": "closed-loop", "timeout_ns": 1e9, "interval_ns": 0}
    assert longest_seconds(closed) == pytest.approx(41)


def test_a_tcpdump_that_does_not_start_says_why() -> None:
    assert "run this study as root" in why_not("tcpdump: Couldn't change to 'tcpdump' uid=102")
    assert why_not("a\nb") == "tcpdump does not start: b"
    assert why_not("") == "tcpdump does not start: it says nothing"
