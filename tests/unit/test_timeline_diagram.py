"""The page of a timeline: what is packed in it is the joined table; and the joined table in qlog and in a capture."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.export import Chosen
from sojourn.export.log import TcpLog
from sojourn.timeline.comments import line_of
from sojourn.timeline.diagram import RECORDS, TEXTS, THOUSANDTHS
from sojourn.timeline.marks import LOST as LOST_WHERE
from sojourn.timeline.packed import LARGEST, Block, pack, unpack
from sojourn.timeline.sacks import blocks_of
from sojourn.timeline.segments import joined
from sojourn.timeline.source import open_flow
from tests.unit.in_process import sojourn
from tests.unit.made_up_path import MadePath

if TYPE_CHECKING:
    from pathlib import Path

LOST = {40: "before", 41: "full", 120: "managed"}
NUMBERS = st.none() | st.integers(-LARGEST // 4, LARGEST // 4)


def made(path: Path, **how: Any) -> tuple[pl.DataFrame, list[str]]:
    """A made-up path with calls and taps: the joined table, and the words that name its records."""
    one = MadePath(segments=200, lost=LOST, **how)
    one.write(path)
    one.write_calls(path)
    one.write_taps(path, TcpLog.open(path / "t", Chosen()).minus_utc_ns)
    folders = [path / name for name in ("e", "c", "w")]
    segments, _ = joined(open_flow(path / "t", 1, Chosen(), folders))
    return segments.sort("sent_ns", maintain_order=True), [word for one in folders for word in ("--records", str(one))]


def page_of(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """What a page has: its facts, and its packed blocks."""
    text = (path / "t" / "timeline.html").read_text()
    found = re.findall(r'<script type="(application/[a-z-]+)" id="([^"]+)">([^<]*)</script>', text)
    facts = next(json.loads(body) for kind, _, body in found if kind == "application/json")
    return facts, {id_: body for kind, id_, body in found if kind == "application/octet-stream"}


@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.booleans()), max_size=60))
def test_packed_columns_round_trip(rows: list[tuple[int | None, int | None, bool]]) -> None:
    schema = {"a": pl.Int64, "b": pl.Int64, "c": pl.Int64}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    assert unpack(pack(table)).cast(schema).equals(table)  # type: ignore[arg-type]


def test_steady_columns_are_small() -> None:
    times = pl.DataFrame({"time": range(0, 10**12, 10**7)})
    assert len(pack(times).text) < 2_000


def test_number_too_large_for_the_page_is_refused() -> None:
    with pytest.raises(ValueError, match="no number that a page can hold"):
        pack(pl.DataFrame({"a": [0, LARGEST * 2, None]}))


@pytest.mark.parametrize("family", [4, 6])
def test_a_page_has_the_joined_table(tmp_path: Path, family: int) -> None:
    segments, words = made(tmp_path, family=family)
    done = sojourn("timeline", str(tmp_path / "t"), "--to", "html", *words)
    assert done.returncode == 0, done.stderr
    facts, texts = page_of(tmp_path)
    [flow] = facts["flows"]
    rows = pl.concat([unpack(Block(head, texts[head["id"]])) for head in flow["pieces"]], how="vertical_relaxed")
    assert rows.height == segments.height == 203
    assert int(flow["begin"]) == segments["sent_ns"][0]
    for name in [one for columns in RECORDS.values() for one in columns]:
        told, wanted = rows[name].to_list(), segments[name].to_list()
        if name in TEXTS:
            told = [None if one is None else flow["texts"][name][one] for one in told]
        elif name in THOUSANDTHS:
            told = [one / 1000 for one in told]
        elif name == "sent_ns":
            told = [one + int(flow["begin"]) for one in told]
        elif name.endswith("_ns"):
            told = [None if one is None else one + at for one, at in zip(told, segments["sent_ns"], strict=True)]
        assert told == wanted, name
    drawn = unpack(Block(flow["drawn"], texts[flow["drawn"]["id"]]))
    is_lost = (segments["disposition"] == "lost").to_list()
    assert [one // 8 == LOST_WHERE.index("emulator") for one in drawn["mark"]] == is_lost
    assert [one % 8 > 0 for one in drawn["mark"]] == segments["again"].to_list()
    assert drawn["delay_ns"].to_list() == (segments["received_ns"] - segments["sent_ns"]).to_list()
    acks = unpack(Block(flow["acks"], texts[flow["acks"]["id"]]))
    assert acks["at"].to_list() == sorted(acks["at"].to_list())
    assert acks["at"][-1] == 200 * 1448


def test_names_from_records_are_escaped_in_the_page(tmp_path: Path) -> None:
    _, words = made(tmp_path)
    evil = "</script><img src=x onerror=alert(1)>"
    log = tmp_path / "t<b>"
    (tmp_path / "t").rename(log)
    near = tmp_path / "c" / "near.pcap"
    near.rename(tmp_path / "c" / f"{evil.replace('/', '')}.pcap")
    done = sojourn("timeline", str(log), "--to", "html", "-o", str(tmp_path / "x.html"), *words)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "x.html").read_text()
    assert "<img src=x" not in text
    assert "t<b>" not in text
    assert (tmp_path / "x.html").stat().st_mode & 0o777 == 0o600


def test_losses_without_an_emulator_record_are_marked(tmp_path: Path) -> None:
    made(tmp_path)
    done = sojourn("timeline", str(tmp_path / "t"), "--to", "html", "--records", str(tmp_path / "c"))
    assert done.returncode == 0, done.stderr
    facts, texts = page_of(tmp_path)
    head = facts["flows"][0]["drawn"]
    marks = unpack(Block(head, texts[head["id"]]))["mark"]
    assert (marks // 8 == LOST_WHERE.index("elsewhere")).sum() == len(LOST)


def test_each_captured_packet_has_its_timeline_line_as_comment(tmp_path: Path) -> None:
    segments, words = made(tmp_path)
    done = sojourn("timeline", str(tmp_path / "t"), "--to", "pcapng", *words)
    assert done.returncode == 0, done.stderr
    if shutil.which("tshark") is None:
        pytest.skip("no tshark here: scripts/setup.sh test installs it")
    file = tmp_path / "t" / "timeline.pcapng"
    found = subprocess.run(
        ["tshark", "-r", str(file), "-T", "fields", "-e", "frame.comment"], capture_output=True, text=True, check=True
    )
    comments = [line for line in found.stdout.splitlines() if line]
    assert comments == [line_of(row) for row in segments.iter_rows(named=True)]
    first = dict(word.split("=") for word in comments[0].removeprefix("sojourn: ").split())
    assert int(first["received_ns"]) == segments["received_ns"][0] - segments["sent_ns"][0]


def test_a_capture_of_other_flows_is_one_sentence(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "x.pcap").write_bytes(struct.pack("<IHHiIII", 0xA1B2_C3D4, 2, 4, 0, 0, 262_144, 1))
    done = sojourn("timeline", str(tmp_path / "t"), "--to", "pcapng", "--records", str(tmp_path / "o"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "no packet with data of these flows is in the captures" in done.stderr
    assert not (tmp_path / "t" / "timeline.pcapng").exists()


@pytest.mark.parametrize("per_packet", [1, 4])
def test_qlog_states_the_position_of_each_packet(tmp_path: Path, per_packet: int) -> None:
    segments, words = made(tmp_path, per_packet=per_packet)
    done = sojourn("timeline", str(tmp_path / "t"), "--to", "qlog", *words)
    assert done.returncode == 0, done.stderr
    read = json.loads((tmp_path / "t" / "timeline.qlog").read_text())
    assert (read["qlog_version"], read["qlog_format"]) == ("0.3", "JSON")
    [trace] = read["traces"]
    events = trace["events"]
    assert all(set(event) == {"time", "name", "data"} for event in events)
    times = [event["time"] for event in events]
    assert times == sorted(times)
    assert times[0] >= 0
    sent = {e["data"]["header"]["packet_number"]: e for e in events if e["name"] == "transport:packet_sent"}
    named = {name: [e for e in events if e["name"] == name] for name in {e["name"] for e in events}}
    for name, column in (
        ("path:emulator_arrived", "arrival_ns"), ("path:tap_passed", "tap_before_ns"), ("path:written", "write_ns"),
        ("path:packet_received", "received_ns"), ("path:packet_acknowledged", "acked_ns"),
    ):  # fmt: skip
        assert len(named[name]) == segments[column].drop_nulls().len(), name
    begin = trace["common_fields"]["reference_time"]
    wanted = segments.drop_nulls("received_ns").sort("received_ns", maintain_order=True)
    minus_utc_ns = TcpLog.open(tmp_path / "t", Chosen()).minus_utc_ns
    told = [begin + event["time"] for event in named["path:packet_received"]]
    assert told == pytest.approx([(one - minus_utc_ns) / 1e6 for one in wanted["received_ns"]], abs=1e-3)
    for event in named["path:emulator_arrived"]:
        of = sent[event["data"]["header"]["packet_number"]]["data"]["tcp"]
        assert 0 <= event["data"]["tcp"]["seq"] - of["seq"] < per_packet * 1448
    assert sum(event["data"].get("cause") is not None for event in named["path:emulator_arrived"]) == len(LOST)


def test_sack_blocks_are_parsed_and_malformed_options_end_parsing() -> None:
    stamps = bytes([1, 1, 8, 10, *range(8)])
    edges = struct.pack(">IIII", 5, 9, 2**32 - 1, 3)
    assert blocks_of(stamps + bytes([1, 1, 5, 18]) + edges) == [(5, 9), (2**32 - 1, 3)]
    assert blocks_of(stamps) == []
    assert blocks_of(bytes([5, 18]) + edges[:7]) == []
    assert blocks_of(bytes([8, 0, 5, 10]) + edges[:8]) == []


@given(st.binary(max_size=40))
def test_arbitrary_tcp_options_never_fail(options: bytes) -> None:
    assert all(0 <= low < 2**32 and 0 <= high < 2**32 for low, high in blocks_of(options))


def test_page_contains_sack_blocks_of_a_tap_from_the_first_segment(tmp_path: Path) -> None:
    made(tmp_path)
    near = tmp_path / "c" / "near.pcap"
    octets = near.read_bytes()
    low, high = (struct.pack(">I", 1_000_001 + one * 1448) for one in (50, 52))
    plain = struct.pack(">I", 5_000_001) + struct.pack(">I", 1_000_001 + 40 * 1448)  # acknowledgements that ask for 40
    at = octets.index(plain) + 16  # the end of the fixed header
    options = bytes([1, 1, 5, 10]) + low + high
    assert octets[at : at + 12] == bytes(12), "made acknowledgements have twelve empty octets of options"
    near.write_bytes(octets[:at] + options + octets[at + 12 :])
    done = sojourn("timeline", str(tmp_path / "t"), "--to", "html", "--records", str(tmp_path / "c"))
    assert done.returncode == 0, done.stderr
    facts, texts = page_of(tmp_path)
    [flow] = facts["flows"]
    sacks = unpack(Block(flow["sacks"], texts[flow["sacks"]["id"]]))
    assert sacks.select("low", "high").rows() == [(50 * 1448, 52 * 1448)]
    assert flow["sacks_seen_at"] == "tap near"
