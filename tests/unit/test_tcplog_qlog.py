"""Logs of TCP's state as qlog: what the schema requires is there, and qvis finds what it looks for.

The members that are asked for are those of draft-ietf-quic-qlog-main-schema (QlogFile, Trace, Event) and of
draft-ietf-quic-qlog-quic-events; how they are read is that of qvis (QlogLoaderV2, CongestionGraphD3Renderer).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.errors import RequestError
from sojourn.export import Chosen, Request, convert
from sojourn.export.qlog import _packets
from tests.unit.made_up_tcp import START, TAI_MINUS_UTC_S, Log, MadeFlow, Truth

if TYPE_CHECKING:
    from pathlib import Path

FLOWS = (MadeFlow(), MadeFlow(algorithm="cubic", family=6, rounds=30), MadeFlow(role="receiver", isn=2**32 - 9000))
NAMES = {
    "connectivity:connection_started",
    "connectivity:connection_state_updated",
    "transport:packet_sent",
    "transport:packet_received",
    "recovery:metrics_updated",
    "recovery:congestion_state_updated",
    "recovery:packet_lost",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth, dict[str, Any]]:
    """A log of three flows, and its qlog."""
    path = tmp_path_factory.mktemp("log") / "t"
    truth = Log(FLOWS, points="both").write(path)
    convert(Request(path, "qlog"))
    read: dict[str, Any] = json.loads((path / "tcplog.qlog").read_text())
    return path, truth, read


def named(trace: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """A trace's events of a name."""
    return [event for event in trace["events"] if event["name"] == name]


def test_the_file_has_what_the_schema_requires(made: tuple[Path, Truth, dict[str, Any]]) -> None:
    _, truth, read = made
    assert list(read)[:2] == ["qlog_version", "qlog_format"]
    assert (read["qlog_version"], read["qlog_format"]) == ("0.3", "JSON")
    assert len(read["traces"]) == len(truth.flows)
    for trace in read["traces"]:
        assert trace["vantage_point"]["type"] in {"client", "server", "network", "unknown"}
        common = trace["common_fields"]
        assert common["time_format"] == "relative"
        assert common["reference_time"] == pytest.approx((START - TAI_MINUS_UTC_S * 10**9) / 1e6)
        assert all(set(event) == {"time", "name", "data"} for event in trace["events"])
        assert {event["name"] for event in trace["events"]} <= NAMES
        times = [event["time"] for event in trace["events"]]
        assert times == sorted(times)
    assert [trace["vantage_point"]["type"] for trace in read["traces"]] == ["client", "client", "server"]


def test_qlog_packets_equal_the_log(made: tuple[Path, Truth, dict[str, Any]]) -> None:
    _, truth, read = made
    for number, trace in enumerate(read["traces"], start=1):
        for point, name in (("out", "transport:packet_sent"), ("in", "transport:packet_received")):
            wanted = truth.samples.filter(flow=number, point=point).sort("time_ns", maintain_order=True)
            packets = [event["data"] for event in named(trace, name)]
            assert [one["raw"]["length"] for one in packets] == wanted["packet_bytes"].to_list()
            assert [one["raw"]["payload_length"] for one in packets] == wanted["payload_bytes"].to_list()
            assert [one["tcp"]["seq"] for one in packets] == wanted["seq"].to_list()
            assert [one["header"]["packet_number"] for one in packets] == list(range(wanted.height))
            assert {one["header"]["packet_type"] for one in packets} == {"1RTT"}


def test_metrics_are_in_bytes_and_milliseconds(made: tuple[Path, Truth, dict[str, Any]]) -> None:
    _, truth, read = made
    windows = [one["data"]["congestion_window"] for one in named(read["traces"][0], "recovery:metrics_updated")]
    assert max(windows) == truth.flows[0].cwnd.max() * 1448
    first = named(read["traces"][0], "recovery:metrics_updated")[0]["data"]
    assert "ssthresh" not in first
    assert first["smoothed_rtt"] == pytest.approx(truth.samples.filter(flow=1)["srtt_us"][0] / 1000)
    assert all(one["data"] for one in named(read["traces"][0], "recovery:metrics_updated"))


def test_every_loss_is_an_event_that_names_the_lost_packet(made: tuple[Path, Truth, dict[str, Any]]) -> None:
    _, truth, read = made
    for flow, trace in zip(truth.flows[:2], read["traces"], strict=False):
        lost = named(trace, "recovery:packet_lost")
        assert len(lost) == len(flow.retransmitted_ns) > 0
        sent = {one["data"]["header"]["packet_number"]: one for one in named(trace, "transport:packet_sent")}
        for one in lost:
            original = sent[one["data"]["header"]["packet_number"]]
            assert original["time"] < one["time"]
            assert original["data"]["frames"][0]["offset"] == one["data"]["frames"][0]["offset"]
        states = [one["data"]["new"] for one in named(trace, "recovery:congestion_state_updated")]
        assert states.count("recovery") == len(lost)
        assert states[0] == "slow_start"


def test_sent_packets_are_acknowledged_once_and_later(made: tuple[Path, Truth, dict[str, Any]]) -> None:
    _, _, read = made
    for trace in read["traces"]:
        sent = {one["data"]["header"]["packet_number"]: one["time"] for one in named(trace, "transport:packet_sent")}
        seen: set[int] = set()
        for event in named(trace, "transport:packet_received"):
            for frame in event["data"]["frames"]:
                for low, high in frame.get("acked_ranges", []):
                    numbers = set(range(low, high + 1))
                    assert not numbers & seen
                    assert all(sent[one] < event["time"] for one in numbers)
                    seen |= numbers
        assert len(seen) > 0.8 * len(sent)


def test_lost_packets_are_not_acknowledged_but_their_retransmissions_are() -> None:
    """Packets 1 and 2 are sent again as one, and that again; of packet 3, a large one, the first half alone."""
    sent = ((0, 100), (100, 100), (200, 100), (300, 200), (100, 200), (100, 200), (300, 100))
    rows = [("out", seq, 7, size) for seq, size in sent]
    rows[5:5] = [("in", 7, 100, 0)]
    rows.append(("in", 7, 500, 0))
    samples = pl.DataFrame(rows, ["point", "seq", "ack", "payload_bytes"], orient="row").with_columns(
        time=pl.int_range(pl.len()).cast(pl.Float64),
        tcp_flags=pl.lit(16), packet_bytes=pl.col("payload_bytes") + 52, window=pl.lit(1), segments=pl.lit(1),
    )  # fmt: skip
    lost, _, came = [[json.loads(one) for one in frame["data"]] for frame in _packets(samples)]
    named_lost = [(one["header"]["packet_number"], one["frames"][0]["offset"]) for one in lost]
    assert named_lost == [(1, 100), (2, 200), (4, 100), (4, 200), (3, 300)]
    ranges = [frame["acked_ranges"] for one in came for frame in one["frames"]]
    assert ranges == [[[0, 0]], [[3, 3], [5, 6]]]


def test_qlog_sequence_contains_one_flow(made: tuple[Path, Truth, dict[str, Any]], tmp_path: Path) -> None:
    path, _, read = made
    with pytest.raises(RequestError, match="--flow"):
        convert(Request(path, "qlog", tmp_path / "t.sqlog"))
    convert(Request(path, "qlog", tmp_path / "t.sqlog", Chosen(flows=frozenset({2}))))
    texts = (tmp_path / "t.sqlog").read_text().split("\x1e")
    assert texts[0] == ""
    head, *events = [json.loads(text) for text in texts[1:]]
    assert head["qlog_format"] == "JSON-SEQ"
    assert head["trace"]["vantage_point"]
    assert events == read["traces"][1]["events"]


def test_fields_missing_in_the_kernel_are_omitted(tmp_path: Path) -> None:
    lacking = ["pacing_rate_bps", "rttvar_us", "ca_state", "snd_ssthresh"]
    Log((MadeFlow(rounds=20),), absent=lacking).write(tmp_path / "t")
    convert(Request(tmp_path / "t", "qlog"))
    trace = json.loads((tmp_path / "t" / "tcplog.qlog").read_text())["traces"][0]
    metrics = {name for one in named(trace, "recovery:metrics_updated") for name in one["data"]}
    assert metrics == {
        *("congestion_window", "bytes_in_flight", "packets_in_flight", "smoothed_rtt", "latest_rtt", "min_rtt"),
    }
    assert not named(trace, "recovery:congestion_state_updated")


def test_a_log_without_samples_has_no_trace(tmp_path: Path) -> None:
    truth = Log((MadeFlow(rounds=3),), ppl=10**6, points="post").write(tmp_path / "t")
    assert truth.samples.filter(pl.col("point") == "out").is_empty()
    with pytest.raises(RequestError, match="nothing of it is left by --since"):
        convert(Request(tmp_path / "t", "qlog", chosen=Chosen(since_ns=10**15)))
    assert not (tmp_path / "t" / "tcplog.qlog").exists()
