"""`sojourn timeline`: each format has every segment with its times, and says what could not be joined."""

from __future__ import annotations

import csv
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from sojourn.export.names import RECOVERY
from tests.unit.chrome_trace import checked
from tests.unit.in_process import sojourn
from tests.unit.made_up_path import MSS, SOON_NS, MadePath
from tests.unit.made_up_tcp import START, Log, MadeFlow
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from pathlib import Path

LOST = {40: "before", 41: "full", 120: "managed"}
SENT = 200 + len(LOST)


@pytest.fixture
def made(tmp_path: Path) -> MadePath:
    path = MadePath(segments=200, lost=LOST)
    path.write(tmp_path)
    return path


def timeline(path: Path, to: str, *words: str, emulator: bool = True) -> Any:
    records = ["--records", str(path / "e")] if emulator else []
    done = sojourn("timeline", str(path / "t"), "--to", to, *records, *words)
    assert done.returncode == 0, done.stderr
    return done


def test_trace_follows_the_published_format_with_the_simulated_times(made: MadePath, tmp_path: Path) -> None:
    done = timeline(tmp_path, "perfetto")
    events, other = checked(tmp_path / "t" / "timeline.json")
    begin = int(other["otherData"]["begin_tai_ns"])
    slices = [one for one in events if one["ph"] == "b" and one["name"] == "segment"]
    ends = {one["id"]: one["ts"] for one in events if one["ph"] == "e" and one["name"] == "segment"}
    assert len(slices) == SENT
    assert f"{SENT} segments to {tmp_path / 't' / 'timeline.json'}" in done.stderr
    stages = {(one["id"], one["name"], one["ph"]): one["ts"] for one in events if one["ph"] in "be"}
    for one in slices:
        at, segment, again = made.sights()[one["args"]["packet"]]
        assert begin + round(one["ts"] * 1000) == at
        assert one["args"]["seq"] == made.seq(segment)
        if not again and segment in LOST:
            assert begin + round(ends[one["id"]] * 1000) == at + SOON_NS
            assert (one["id"], "delay line", "b") not in stages
            continue
        waited = stages[one["id"], "queue and link", "e"] - stages[one["id"], "queue and link", "b"]
        assert round(waited * 1000) == made.wait(segment)
        assert stages[one["id"], "delay line", "e"] == stages[one["id"], "to the receiver", "b"]
        assert (one["id"], "acknowledgement", "e") in stages
    marks = Counter(one["name"] for one in events if one["ph"] == "i")
    assert marks["retransmission"] == marks["lost"] == len(LOST)
    assert marks["lost: full"] == marks["lost: before"] == marks["lost: managed"] == 1


def test_trace_tracks_are_hosts_flows_and_queues(made: MadePath, tmp_path: Path) -> None:
    del made
    timeline(tmp_path, "perfetto")
    events, _ = checked(tmp_path / "t" / "timeline.json")
    processes = {one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert processes == {"host 10.9.0.1", "host 10.9.0.2", "emulator emulate"}
    threads = {one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert threads == {"flow 1: 10.9.0.1:40000 → 10.9.0.2:5201", "queue forward"}
    counters = {one["name"].rpartition(": ")[2] for one in events if one["ph"] == "C"}
    assert counters == {"windows (bytes)", "round trip (ms)", "receive buffer (bytes)", "found in it"}
    windows = next(one for one in events if one["ph"] == "C" and one["name"].endswith("windows (bytes)"))
    assert windows["args"] == {"congestion window": 10 * MSS, "in flight": 0, "receiver's window": 1_000_000}


def test_tables_have_one_row_per_segment_and_the_accounting(made: MadePath, tmp_path: Path) -> None:
    timeline(tmp_path, "parquet")
    timeline(tmp_path, "csv")
    table = pq.read_table(tmp_path / "t" / "timeline.parquet")
    rows = pl.from_arrow(table)
    assert isinstance(rows, pl.DataFrame)
    assert rows.height == SENT
    account = json.loads(table.schema.metadata[b"sojourn.account"])["1"]
    assert (account["segments"], account["lost_at_emulator"], account["unexplained"]) == (SENT, len(LOST), 0)
    assert all(field.metadata and field.metadata[b"is"] for field in table.schema)
    for row in rows.filter(pl.col("disposition") == "sent").iter_rows(named=True):
        at, segment, _ = made.sights()[row["emulator_number"]]
        assert row["received_ns"] - at == made.wait(segment) + made.delay_ns + 2 * SOON_NS
    with (tmp_path / "t" / "timeline.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [int(line["seq"]) for line in lines] == rows["seq"].to_list()
    ends = rows.select("local_address", "local_port", "remote_address", "remote_port").unique().rows()
    assert ends == [("10.9.0.1", 40000, "10.9.0.2", 5201)]
    assert {line["local_address"] for line in lines} == {"10.9.0.1"}
    assert rows["state_name"].unique().to_list() == ["ESTABLISHED"]
    assert set(rows["ca_state_name"]) == {RECOVERY[one] for one in rows["ca_state"]}
    assert [line["received_ns"] for line in lines] == [str(one or "") for one in rows["received_ns"].to_list()]


def test_departure_timestamp_later_than_the_reception_is_clamped(tmp_path: Path) -> None:
    MadePath(segments=50, stamped_late_ns=3 * SOON_NS).write(tmp_path)
    timeline(tmp_path, "perfetto")
    events, _ = checked(tmp_path / "t" / "timeline.json")
    ends = {(one["id"], one["name"]): one["ts"] for one in events if one["ph"] == "e"}
    assert ends["0x1", "delay line"] == ends["0x1", "to the receiver"] < ends["0x1", "acknowledgement"]


def test_without_an_emulator_the_way_is_one_stage(made: MadePath, tmp_path: Path) -> None:
    done = timeline(tmp_path, "perfetto", emulator=False)
    events, _ = checked(tmp_path / "t" / "timeline.json")
    whole = [one for one in events if one["ph"] == "b" and one["name"] == "to the receiver"]
    assert len(whole) == made.segments
    assert {one["name"] for one in events if one["ph"] == "b"} == {"segment", "to the receiver", "acknowledgement"}
    assert f"{SENT} were not; 200 to a sample of the receiver, {len(LOST)} not" in done.stderr
    assert f"an emulator lost 0; {len(LOST)} are not explained" in done.stderr


def test_written_files_are_listed_as_json(made: MadePath, tmp_path: Path) -> None:
    words = ("timeline", str(tmp_path / "t"), "--to", "csv", "--json")
    assert printed("timeline", sojourn(*words).stdout)["records"] == SENT
    refused = sojourn(*words, "-o", "-")
    assert (refused.returncode, refused.stdout) == (2, ""), "a table and JSON do not mix"


def test_time_span_contains_the_segments_sent_in_it(made: MadePath, tmp_path: Path) -> None:
    """Joined as a whole: what was sent at the end of it has its acknowledgement, and the account is of all."""
    done = timeline(tmp_path, "perfetto", "--since", "100ms", "--until", "200ms")
    events, other = checked(tmp_path / "t" / "timeline.json")
    inside = [at for at, _, _ in made.sights() if 100_000_000 <= at - START < 200_000_000]
    assert sum(one["ph"] == "b" and one["name"] == "segment" for one in events) == len(inside)
    assert other["otherData"]["account"]["1"]["segments"] == SENT
    assert sum(one["ph"] == "b" and one["name"] == "acknowledgement" for one in events) == len(inside)
    assert f"{len(inside)} segments to" in done.stderr
    none = sojourn("timeline", str(tmp_path / "t"), "--to", "csv", "--since", "9s")
    assert none.returncode == 2
    assert "has no packet with data of this flow in that time" in none.stderr


def test_study_with_tcp_info_only_is_reported(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "tcp_readings-a-000.arrow").touch()
    for words in (("timeline", str(tmp_path), "--to", "csv"), ("why", str(tmp_path), "--at", "1s")):
        done = sojourn(*words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "has readings of TCP_INFO and no log of TCP's state" in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("--to", "perfeto"),
            "no format is named perfeto: there are html, perfetto, csv, parquet, qlog, pcapng (did you mean perfetto?)",
        ),
        (("--to", "pcapng"), "no capture (pcapng, pcap) is in"),
        (("--to", "csv", "--flow", "9"), "has no flow 9"),
        (("--to", "csv", "-o", "/nowhere/x.csv"), "/nowhere is no folder"),
    ],
)
def test_a_wrong_request_is_one_sentence(made: MadePath, words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    del made
    done = sojourn("timeline", str(tmp_path / "t"), *words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert sentence in done.stderr
    assert not list((tmp_path / "t").glob("timeline.*"))


def test_of_several_logged_trials_the_first_is_read_and_named(tmp_path: Path) -> None:
    for part, block in enumerate((4, 9)):
        Log((MadeFlow(rounds=3),), block=block).write(tmp_path / str(block))
        for file in (tmp_path / str(block) / "records").iterdir():
            (tmp_path / "run" / "records").mkdir(parents=True, exist_ok=True)
            file.rename(tmp_path / "run" / "records" / file.name.replace("-000.", f"-{part:03}."))
    named = "note: this is trial 4, the first; --block names another: 9"
    words = ("why", str(tmp_path / "run"), "--flow", "1", "--at", "10ms")
    first, second = sojourn(*words), sojourn(*words, "--block", "9")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert named in first.stderr
    assert "trial" not in second.stderr
    assert named in sojourn(*words, "--who", "tcplog").stderr
    assert "has no log by b" in sojourn(*words, "--who", "b").stderr
    done = sojourn("timeline", str(tmp_path / "run"), "--to", "csv")
    assert done.returncode == 0, done.stderr
    assert named in done.stderr


def test_existing_file_is_not_overwritten(made: MadePath, tmp_path: Path) -> None:
    del made
    there = tmp_path / "t" / "timeline.csv"
    there.write_text("mine")
    done = sojourn("timeline", str(tmp_path / "t"), "--to", "csv")
    assert done.returncode == 2
    assert there.read_text() == "mine"
    timeline(tmp_path, "csv", "--force")
    assert there.read_text().startswith("flow,local_address,")
