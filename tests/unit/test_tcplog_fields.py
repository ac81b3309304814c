"""Logs of some fields of TCP's state alone: every reader works, or says in one sentence which field it misses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from sojourn.errors import RequestError
from sojourn.export import Request, TcpLog, convert
from sojourn.export.summary import COUNTERS, SAMPLED, summarised
from sojourn.records import TABLES
from sojourn.report.tcplog.draw import draw
from sojourn.timeline.source import OF_STATE
from tests.unit.in_process import sojourn
from tests.unit.made_up_tcp import Log, MadeFlow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SIFTR = (
    *("state", "snd_cwnd", "snd_ssthresh", "mss_bytes", "snd_wnd_bytes", "rcv_wnd_bytes", "snd_wscale", "rcv_wscale"),
    *("srtt_us", "rto_us", "sndbuf_bytes", "snd_queued_bytes", "rcvbuf_bytes", "rcv_queued_bytes", "in_flight_bytes"),
    *("flags", "snd_una", "snd_nxt", "rcv_nxt", "ca_state", "num_sacks"),
)
"""What `--fields siftr` logs, with the fields that come along."""

COLUMNS = list(TABLES["tcp_samples"])
STATE = COLUMNS[COLUMNS.index("state") :]


@pytest.fixture
def slim(tmp_path: Path) -> Path:
    made(tmp_path / "t", SIFTR)
    return tmp_path / "t"


def made(path: Path, fields: Sequence[str]) -> None:
    """A log of these fields, which says how it was asked for."""
    Log((MadeFlow(rounds=20),), fields=fields).write(path)
    header = json.loads((path / "header.json").read_text())
    header["options"]["fields"] = ["siftr"] if set(fields) == set(SIFTR) else list(fields) or ["all"]
    (path / "header.json").write_text(json.dumps(header))


@pytest.mark.parametrize("to", ["siftr", "siftr-1.2"])
def test_siftr_fields_alone_give_the_same_siftr_lines(slim: Path, tmp_path: Path, to: str) -> None:
    Log((MadeFlow(rounds=20),)).write(tmp_path / "whole")
    for name in ("whole", "t"):
        convert(Request(tmp_path / name, to, tmp_path / f"{name}.log"))
    assert (tmp_path / "t.log").read_bytes() == (tmp_path / "whole.log").read_bytes()


@pytest.mark.parametrize("to", ["csv", "jsonl", "parquet"])
def test_unselected_fields_are_null_in_tables(slim: Path, to: str) -> None:
    told = convert(Request(slim, to))
    path = slim / f"tcplog.{to}"
    read = pl.read_csv(path) if to == "csv" else pl.read_ndjson(path) if to == "jsonl" else pl.read_parquet(path)
    assert read.height == told.records > 0
    for name in STATE:
        values = read[name]
        assert (values.null_count() == read.height) == (name not in SIFTR), name


def test_qlog_trace_omits_unselected_fields(slim: Path, tmp_path: Path) -> None:
    convert(Request(slim, "qlog"))
    trace = json.loads((slim / "tcplog.qlog").read_text())["traces"][0]
    metrics = {name for one in trace["events"] if one["name"] == "recovery:metrics_updated" for name in one["data"]}
    assert metrics <= {"congestion_window", "ssthresh", "bytes_in_flight", "smoothed_rtt"}
    assert "congestion_window" in metrics
    made(tmp_path / "u", ("ca_state",))
    convert(Request(tmp_path / "u", "qlog"))
    trace = json.loads((tmp_path / "u" / "tcplog.qlog").read_text())["traces"][0]
    states = {one["data"]["new"] for one in trace["events"] if one["name"] == "recovery:congestion_state_updated"}
    assert not states & {"slow_start", "congestion_avoidance"}, "nobody knows without the window"


def test_missing_siftr_fields_are_an_error_not_zeros(tmp_path: Path) -> None:
    made(tmp_path / "t", [name for name in SIFTR if name != "rto_us"])
    with pytest.raises(RequestError, match="has no rto_us, which a line of SIFTR needs"):
        convert(Request(tmp_path / "t", "siftr"))
    assert not (tmp_path / "t" / "siftr.log").exists()


@pytest.mark.parametrize(
    ("words", "what", "field"),
    [
        (("tcplog", "summary", "LOG"), "a summary", "total_retrans"),
        (("why", "LOG", "--at", "10ms"), "a timeline", "sent_bytes"),
        (("timeline", "LOG", "--to", "csv", "-o", "-"), "a timeline", "rtt_last_us"),
    ],
)
def test_error_names_the_missing_field(slim: Path, words: tuple[str, ...], what: str, field: str) -> None:
    done = sojourn(*(str(slim) if word == "LOG" else word for word in words))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"which {what} needs: it was logged with --fields siftr; --fields siftr," in done.stderr
    assert field in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_fields_required_by_a_summary_are_sufficient(tmp_path: Path) -> None:
    needed = {*SAMPLED, *COUNTERS.values()} & set(STATE)
    made(tmp_path / "t", sorted(needed))
    Log((MadeFlow(rounds=20),)).write(tmp_path / "whole")
    assert summarised(TcpLog.open(tmp_path / "t")).equals(summarised(TcpLog.open(tmp_path / "whole")))


@pytest.mark.parametrize("to", ["csv", "html", "perfetto"])
def test_fields_required_by_a_timeline_are_sufficient(tmp_path: Path, to: str) -> None:
    outputs = []
    for fields in (OF_STATE, ()):
        folder = tmp_path / ("some" if fields else "all") / "t"
        made(folder, fields)
        done = sojourn("timeline", "t", "--to", to, "-o", "out", cwd=folder.parent)
        assert done.returncode == 0, done.stderr
        outputs.append((folder.parent / "out").read_text())
    assert outputs[0] == outputs[1]


def test_why_gives_the_same_answer_with_its_required_fields_only(tmp_path: Path) -> None:
    answers = []
    for fields in (OF_STATE, ()):
        folder = tmp_path / ("some" if fields else "all") / "t"
        made(folder, fields)
        done = sojourn("why", "t", "--at", "100ms", "--json", cwd=folder.parent)
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout)
    assert answers[0] == answers[1]


def test_plot_states_what_it_cannot_show(slim: Path) -> None:
    draw(slim, slim / "plot.html")
    assert "Logged with --fields siftr: " in (slim / "plot.html").read_text()
    assert "total_retrans" in (slim / "plot.html").read_text()


def test_full_log_prints_no_note_about_fields(tmp_path: Path) -> None:
    Log((MadeFlow(rounds=5),)).write(tmp_path / "t")
    draw(tmp_path / "t", tmp_path / "plot.html")
    assert "--fields" not in (tmp_path / "plot.html").read_text()
    assert not TcpLog.open(tmp_path / "t").unasked(STATE)
