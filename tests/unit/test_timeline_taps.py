"""Write calls and taps in the timeline: of made records each segment has its own times, and what differs is named."""

from __future__ import annotations

import csv
import shutil
import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sojourn.export import Chosen
from sojourn.export.log import TcpLog
from sojourn.records.pcap import Block, dropped_of
from sojourn.timeline.perfetto import STAGES, _segments, stages_of
from sojourn.timeline.segments import Account, joined
from sojourn.timeline.source import open_flow
from tests.unit import made_up_path
from tests.unit.chrome_trace import checked
from tests.unit.in_process import sojourn
from tests.unit.made_up_path import CALL_NS, MSS, SOON_NS, TAP_NS, MadePath

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOST = {40: "before", 41: "full", 120: "managed"}


def written(made: MadePath, path: Path, *folders: str, **how: Any) -> tuple[pl.DataFrame, Account]:
    made.write(path)
    made.write_calls(path)
    made.write_taps(path, TcpLog.open(path / "t", Chosen()).minus_utc_ns, **how)
    return joined(open_flow(path / "t", 1, Chosen(), [path / one for one in folders or ("e", "c", "w")]))


@pytest.mark.parametrize(
    "made",
    [
        MadePath(segments=200, lost=LOST),
        MadePath(segments=200, lost=LOST, family=6),
        MadePath(segments=200, lost=LOST, isn=2**32 - 100 * MSS),
        MadePath(segments=200, lost=LOST, per_packet=4, joined=3),
    ],
    ids=["plain", "ipv6", "wraps", "gso-gro"],
)
def test_every_segment_has_its_call_and_its_taps_both_ways(made: MadePath, tmp_path: Path) -> None:
    segments, account = written(made, tmp_path)
    sent = made.segments + len(LOST)
    assert (account.writes, account.written) == (made.segments // 10, sent)
    near, far = account.taps
    assert (near.tap, near.packets, near.joined, near.unjoined, near.segments) == ("near", sent, sent, 0, sent)
    assert (far.tap, far.packets, far.joined, far.unjoined) == ("far", made.segments, made.segments, 0)
    assert (near.last_seen, near.lost_at_emulator, near.missed) == (len(LOST), len(LOST), 0)
    assert account.differences() == []
    acks = 0
    for row in segments.iter_rows(named=True):
        at, segment, _ = made.sights()[row["emulator_number"]]
        call = made.sent_ns(segment - segment % 10)
        expected = (call - 2 * CALL_NS, call - CALL_NS, segment // 10)
        assert (row["write_ns"], row["write_end_ns"], row["write_number"]) == expected
        assert (row["tap_before"], row["tap_before_ns"]) == ("near", at + TAP_NS)
        left = at + SOON_NS + made.wait(segment) + made.delay_ns
        assert row["tap_after_ns"] == (None if row["disposition"] == "lost" else left + TAP_NS)
        if row["acked_ns"] is not None:
            acks += 1
            assert row["ack_tap_before_ns"] == row["acked_ns"] - TAP_NS
            assert row["ack_tap_after_ns"] == row["acked_ns"] - made.delay_ns + TAP_NS
    assert account.acks_at_taps == acks > 0


def test_disagreement_of_instruments_is_located(tmp_path: Path) -> None:
    _, account = written(MadePath(segments=200, lost=LOST), tmp_path, blind={7, 9}, stray=3)
    near, far = account.taps
    assert (near.missed, near.segments, far.unjoined, far.packets) == (2, 201, 3, 203)
    told = account.differences()
    assert told == [
        "difference: tap near did not see 2 segments that were seen behind it",
        "difference: tap far saw 3 packets with data that belong to no segment",
    ]


def test_loss_without_an_emulator_log_is_located_between_two_taps(tmp_path: Path) -> None:
    _, account = written(MadePath(segments=200, lost=LOST), tmp_path, "c", "w")
    [told] = account.differences()
    assert told.startswith("difference: 3 segments were seen at tap near last, and no emulator lost them")
    assert "between it and tap far" in told


def test_microsecond_captures_are_joined_like_nanosecond_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_up_path, "TAP_NS", 400)  # behind the building by less than the capture can tell
    made = MadePath(segments=200)
    (fine, of_fine), (coarse, of_coarse) = (
        written(made, tmp_path / name, micro=name == "coarse") for name in ("fine", "coarse")
    )
    assert [one.segments for one in of_coarse.taps] == [one.segments for one in of_fine.taps] == [200, 200]
    late = (fine["tap_before_ns"] - coarse["tap_before_ns"]).to_list()
    assert all(0 <= one < 1_000 for one in late)


def test_trace_contains_segments_not_seen_after_the_emulator(tmp_path: Path) -> None:
    row = dict.fromkeys(("write_ns", "tap_after_ns", "received_ns", "acked_ns", *STAGES), None)
    assert stages_of(row | {"sent_ns": 5, "arrival_ns": 7, "departure_ns": 9})[-1][1:] == (7, 9)


TIMES = ("write_ns", "sent_ns", "acked_ns", *STAGES)


@given(st.fixed_dictionaries({name: st.none() | st.integers(1, 50) for name in TIMES}), st.booleans())
@example(dict.fromkeys(TIMES) | {"sent_ns": 1, "tap_after_ns": 9, "received_ns": 8, "acked_ns": 20}, False)  # noqa: FBT003
@example(dict.fromkeys(TIMES) | {"sent_ns": 1, "tap_after_ns": 9, "received_ns": 8}, False)  # noqa: FBT003
def test_stages_of_a_segment_follow_each_other_and_end_before_it(times: dict[str, int | None], again: bool) -> None:
    """A tap's timestamp may be later than that of TCP behind it, on another processor."""
    row = times | {"sent_ns": times["sent_ns"] or 1, "again": again}
    stages = stages_of(row)
    assert all(begin <= end for _, begin, end in stages)
    assert all(after[1] >= before[2] for before, after in pairwise(stages))
    events = list(_segments_of(row | {"disposition": "passed"}))
    assert max(float(one["ts"]) for one in events if one["ph"] == "e") == float(events[-1]["ts"])


def _segments_of(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of one segment."""
    names = ["seq", "payload_bytes", "ip_id", "snd_cwnd", "limited_by", "cause", "lost_where"]
    names += ["sent_cpu", "sent_number", "emulator_number"]
    whole = dict.fromkeys(names) | row
    segments = pl.DataFrame([whole], infer_schema_length=1)
    yield from (one for one in _segments(segments, {"pid": 1, "tid": 1}, 0, 0, 1) if one["ph"] in "be")


def test_a_trace_has_the_device_between_the_taps(tmp_path: Path) -> None:
    made = MadePath(segments=200, lost=LOST)
    written(made, tmp_path)
    words = ("timeline", str(tmp_path / "t"), "--to", "perfetto", "--records", str(tmp_path / "c"))
    assert sojourn(*words).returncode == 0
    events, _ = checked(tmp_path / "t" / "timeline.json")
    [device] = [one["pid"] for one in events if one["name"] == "process_name" and "device" in one["args"]["name"]]
    mine = [one for one in events if one["pid"] == device]
    delays = [one["args"]["delay"] for one in mine if one["ph"] == "C"]
    assert len(delays) == made.segments
    assert set(delays) == {(SOON_NS + made.wait(0) + made.delay_ns) / 1e6}
    assert sum(one["name"] == "lost between the taps" for one in mine) == len(LOST)
    assert sum(one["name"] == "lost" for one in events) == len(LOST)


def test_a_trace_has_the_send_buffer_and_the_taps_as_stages(tmp_path: Path) -> None:
    made = MadePath(segments=50, stamped_late_ns=3 * SOON_NS)
    written(made, tmp_path)
    records = [word for one in ("e", "c", "w") for word in ("--records", str(tmp_path / one))]
    assert sojourn("timeline", str(tmp_path / "t"), "--to", "perfetto", *records).returncode == 0
    events, _ = checked(tmp_path / "t" / "timeline.json")
    mine = [
        (one["name"], one["ph"], one["ts"]) for one in events if one.get("id") == "0x1" and one["name"] != "segment"
    ]
    names = ["send buffer", "to the first tap", "to the emulator", "queue and link", "delay line", "to the last tap"]
    assert [name for name, phase, _ in mine if phase == "b"] == [*names, "to the receiver", "acknowledgement"]
    begins = [at for _, phase, at in mine if phase == "b"]
    assert begins[1:] == [at for _, phase, at in mine if phase == "e"][:-1], "one stage begins where another ends"
    done = sojourn("timeline", str(tmp_path / "t"), "--to", "csv", *records)
    assert "50 segments were joined to one of 5 calls that wrote data, 0 were not" in done.stderr
    with (tmp_path / "t" / "timeline.csv").open() as file:
        assert {line["tap_before"] for line in csv.DictReader(file)} == {"near"}


def test_a_compressed_capture_is_refused_in_one_sentence(tmp_path: Path) -> None:
    MadePath(segments=20).write(tmp_path)
    (tmp_path / "e" / "eth1.pcapng.zst").touch()
    done = sojourn("timeline", str(tmp_path / "t"), "--to", "csv", "--records", str(tmp_path / "e"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "decompress" in done.stderr


def test_a_run_folder_has_its_own_taps_on_the_clock_of_its_bed(tmp_path: Path) -> None:
    """CLOCK_TAI was never set there: it is UTC. Of another block of the run nothing is read."""
    made = MadePath(segments=100, lost={40: "before"})
    made.write(tmp_path, emulator=False)
    run = tmp_path / "t"
    (run / "header.json").unlink(missing_ok=True)
    (run / "bed.json").write_text('{"stable": {"machine": {"clocks": {"tai_minus_utc_s": 0}}}}')
    assert TcpLog.open(run, Chosen()).minus_utc_ns == 0
    made.write_taps(tmp_path, 0)
    mine = int(pl.read_ipc_stream(run / "records" / "tcp_flows-tcplog-000.arrow")["block"][0])
    for host, name in (("a", "near"), ("b", "far")):
        for block in (mine, mine + 1):
            folder = run / "records" / "taps" / f"000-{block}-{host}"
            folder.mkdir(parents=True)
            shutil.copy(tmp_path / "c" / f"{name}.pcap", folder / f"{host}.pcapng")
    segments, account = joined(open_flow(run, 1, Chosen(block=mine)))
    assert [(one.tap, one.segments, one.packets) for one in account.taps] == [
        ("host-a", 101, 101),
        ("host-b", 100, 100),
    ]
    [lost] = segments.drop_nulls("lost_where").iter_rows(named=True)
    assert (lost["lost_where"], lost["tap_before_frame"]) == ("device", 41 + segments_acked(segments, lost))
    assert account.acks_at_taps == account.acknowledged > 0


def segments_acked(segments: pl.DataFrame, lost: dict[str, Any]) -> int:
    """Acknowledgements that the near tap saw before a segment: frames of its file, too."""
    return segments.filter(pl.col("ack_tap_before_ns") < lost["tap_before_ns"])["ack_tap_before_ns"].n_unique()


def test_capture_reports_its_number_of_missing_packets() -> None:
    options = struct.pack("<HHQHHQHH", 5, 8, 3, 7, 8, 4, 0, 0)
    body = struct.pack("<III", 0, 0, 0) + options
    octets = struct.pack("<II", 5, len(body) + 12) + body + struct.pack("<I", len(body) + 12)
    assert dropped_of(Block(octets, "<", 5)) == 7
    assert dropped_of(Block(octets, "<", 6)) is None
