"""The bench's figures held to numbers: the judge of departures, the readers of peers' reports, the table's answers."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bench import live
from bench.compare import Row, Target, What, alone, ratio
from bench.contest import Claim, Contest
from bench.emulator import is_backlogged
from bench.experiments import Figure, experiments
from bench.judge import Departures, arrivals
from bench.loads import trips_of_fping, trips_of_irtt
from bench.measure import Finished
from bench.peers import _ping, _sockperf
from bench.table import cells
from bench.taps import Flood, counted, flood_rows, is_capturing, path_rows, steady_rows
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from pathlib import Path

SOCKPERF = """
sockperf: [Total Run] RunTime=2.000 sec; Warm up time=400 msec; SentMessages=20005; ReceivedMessages=20005
sockperf: [Valid Duration] RunTime=1.550 sec; SentMessages=15503; ReceivedMessages=15500
sockperf: \x1b[2;35m====> avg-rtt=23.155 (std-dev=65.788)\x1b[0m
sockperf: ---> <MAX> observation = 2102.306
sockperf: ---> percentile 99.000 =   34.014
sockperf: ---> percentile 90.000 =   23.717
sockperf: ---> percentile 50.000 =   18.806
sockperf: ---> <MIN> observation =   12.754
"""

PING = """
--- 10.9.0.2 ping statistics ---
2000 packets transmitted, 1998 received, 0.1% packet loss, time 17ms
rtt min/avg/max/mdev = 0.002/0.002/0.023/0.000 ms, ipg/ewma 0.008/0.003 ms
"""


def test_departures_of_a_known_sender() -> None:
    # A tenth of the probes leaves 5 µs late, a twentieth 50 µs: so 85 % and 95 %.
    index = np.arange(20_000)
    late = np.where(index % 20 == 7, 50_000, np.where(index % 10 == 3, 5_000, 0))
    found = Departures.of(1_700_000_000_000_000_000 + index * 100_000 + late, 100_000)
    assert found.within_1us == pytest.approx(0.85, abs=0.001)
    assert found.within_10us == pytest.approx(0.95, abs=0.001)
    assert found.rate == pytest.approx(10_000, rel=1e-4)


def test_clock_skew_is_not_counted_as_pacing_error() -> None:
    times = np.round(np.arange(20_000) * 100_000 * (1 + 2e-5)).astype(np.int64)
    found = Departures.of(times, 100_000)
    assert found.within_1us == 1.0
    assert found.gaps_within_1us == 1.0


def test_bursts_of_departures_are_detected() -> None:
    # Ten at once, then nothing for a millisecond: the rate is right, nothing else is.
    times = np.repeat(np.arange(2_000) * 1_000_000, 10) + np.tile(np.arange(10) * 3_000, 2_000)
    found = Departures.of(times, 100_000)
    assert found.within_10us < 0.15
    assert found.gaps_within_10us < 0.15


def test_too_small_a_capture_is_refused() -> None:
    with pytest.raises(MachineError, match="only 5 probes"):
        Departures.of(np.arange(5) * 100_000, 100_000)


def test_capture_timestamps_are_read_to_the_nanosecond(tmp_path: Path) -> None:
    head = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 64, 1)
    frames = b"".join(struct.pack("<IIII", 7, 1_000 * k + 1, 4, 60) + b"\0\0\0\0" for k in range(3))
    file = tmp_path / "three.pcap"
    file.write_bytes(head + frames)
    assert arrivals(file).tolist() == [7_000_000_001, 7_000_001_001, 7_000_002_001]
    file.write_bytes(struct.pack("<I", 0xA1B2C3D4) + head[4:])
    with pytest.raises(MachineError, match="nanosecond timestamps"):
        arrivals(file)


def test_sockperf_output_is_parsed() -> None:
    found = _sockperf(Finished(SOCKPERF, elapsed_ns=4_200_000_000, cpu_ns=2_000_500_000))
    assert found.figures["p50_ns"] == 18_806
    assert found.figures["min_ns"] == 12_754
    assert found.figures["mean_ns"] == 23_155
    assert (found.probes, found.lost, found.seconds) == (15_503, 3, 1.55)
    assert found.cpu_per_probe_ns == pytest.approx(100_000)
    with pytest.raises(MachineError, match="not understood"):
        _sockperf(Finished("sockperf: ERROR", 1, 1))


def test_ping_output_is_parsed() -> None:
    found = _ping(Finished(PING, elapsed_ns=20_000_000, cpu_ns=10_000_000), {})
    assert (found.probes, found.lost, found.seconds) == (2000, 2, 0.017)
    assert found.cpu_per_probe_ns == 5_000


def test_ratio_compares_adjacent_runs() -> None:
    # The machine slows down fourfold in the course of it; ours takes half as long as theirs all the time.
    pairs = [(slow * 5.0, slow * 10.0) for slow in (1.0, 1.5, 2.0, 2.5, 3.0, 4.0)]
    row = ratio(What("t", "p", "f", "ns"), pairs, Target("at most", 0.55))
    assert row.measured == pytest.approx(0.5)
    assert row.answer == "met"


def test_inconclusive_comparison_is_reported_as_such() -> None:
    pairs = [(value, 1.0) for value in (0.80, 0.84, 0.86, 0.88, 0.90, 0.95)]
    assert alone(What("t", "p", "f", "1"), pairs, Target("at least", 0.85)).answer == "met?"
    assert alone(What("t", "p", "f", "1"), pairs[:3], Target("at least", 0.85)).answer == "not met?"
    assert alone(What("t", "p", "f", "1"), pairs, Target("at least", 0.99)).answer == "not met"


@pytest.mark.parametrize(("halted_ns", "backlogged"), [(0, True), (200_000, True), (400_000, False)])
def test_halted_sender_leaves_no_rate_of_the_link_once_its_queue_is_empty(halted_ns: int, backlogged: bool) -> None:
    left = np.arange(2_000) * 1_000 // 13 * 10 + np.where(np.arange(2_000) < 1_000, 0, halted_ns)
    assert is_backlogged(left, 1_000.0) is backlogged


def test_figure_that_no_repetition_measured_is_shown_and_meets_nothing() -> None:
    claims = (Claim("ours", "rate", "rate", "1/s", Target("at least", 1.0), beside="theirs"),)
    contest = Contest("a task", {}, (), claims, {"ours": [{"rate": 3.0}, {}], "theirs": [{}, {"rate": 2.0}]})
    (row,) = contest.rows()
    plain = json.loads(json.dumps(row.as_json(), allow_nan=False))
    for one in (row, Row.from_json(plain)):
        assert cells(one) == ("rate", "–", "–", "–", "none", "at least 1.00×", "not met?")


def test_every_target_of_the_bench_is_there() -> None:
    wanted = [figure for one in experiments() for figure in one.figures if figure.target is not None]
    assert all(isinstance(figure, Figure) for figure in wanted)
    names = " ".join(figure.name for figure in wanted)
    for word in ("minimum RTT", "median RTT", "within ±1 µs", "within ±10 µs", "90th percentile"):
        assert word in names


def test_drop_counts_of_capture_tools_are_parsed() -> None:
    ours = 'sojourn: local drops\n{\n"taps": [{"account": {"seen": 990, "dropped": 10}}]}\n'
    tcpdump = "990 packets captured\n1000 packets received by filter\n10 packets dropped by kernel\n"
    dumpcap = (
        "Packets captured: 990\nPackets received/dropped on interface 'eth0': 990/10 (pcap:10/dumpcap:0) (99.0%)\n"
    )
    for name, told in (("capture", ours), ("bpf", ours), ("tcpdump", tcpdump), ("dumpcap", dumpcap)):
        assert counted(name, told) == (990, 10), name
        with pytest.raises(MachineError, match="does not say"):
            counted(name, "nothing of it")


def test_ended_capture_program_is_not_measured(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cmdline").write_bytes(b"tcpdump\0-i\0left\0-s\x00128\0-Z\0root\0")
    assert is_capturing("tcpdump", tmp_path)
    assert not is_capturing("dumpcap", tmp_path)
    assert not is_capturing("capture", tmp_path)
    (tmp_path / "7/cmdline").write_bytes(b"instrument\0capture\0left\0--snap\x00128\0--out\0x\0--tap\0ring\0")
    assert is_capturing("capture", tmp_path)
    assert not is_capturing("bpf", tmp_path)
    assert not is_capturing("tcpdump", tmp_path)


def test_capture_tools_are_compared_with_each_other_and_the_plain_bridge() -> None:
    floods = {
        "capture": [Flood(400e3, 0.0, 0.3)] * 6,
        "bpf": [Flood(400e3, 0.01, 0.3)] * 6,
        "tcpdump": [Flood(200e3, 0.5, 0.6)] * 6,
        "dumpcap": [Flood(500e3, 0.0, 0.1)] * 6,
    }
    found = {(row.peer, row.name): (round(row.measured, 6), row.answer) for row in flood_rows(floods)}
    assert found["tcpdump", "frames captured a second"] == (2.0, "met")
    assert found["dumpcap", "frames captured a second"] == (0.8, "not met")
    assert found["tcpdump", "CPU s per million frames"] == (0.5, "met")
    steady = {(row.peer, row.name): row for row in steady_rows(floods)}
    assert (steady["bpf", "dropped"].ours, steady["bpf", "dropped"].theirs) == (0.0, 0.01)
    assert steady["tcpdump", "CPU s per million frames"].measured == pytest.approx(0.5)
    medians = {
        "bridge": [10e3] * 6,
        "capture": [11e3] * 6,
        "bpf": [10.5e3] * 6,
        "tcpdump": [12e3] * 6,
        "dumpcap": [11e3] * 6,
    }
    rows = {(row.peer, row.name): row for row in path_rows(medians)}
    added = rows["tcpdump", "added to the median round trip"]
    assert (added.ours, added.theirs) == (1e3, 2e3)
    assert rows["tcpdump", "median round trip"].measured == pytest.approx(11 / 12)


def test_round_trips_of_fping_and_irtt_equal_their_printed_values() -> None:
    printed = "ICMP Host Unreachable from 10.0.0.1\n10.0.0.2 : 20.1 - 0.035 45.25\n"
    assert trips_of_fping(printed) == [20.1e6, 35e3, 45.25e6]
    with pytest.raises(MachineError, match="fping got no answer"):
        trips_of_fping("10.0.0.2 : - -\n")
    one = {"lost": "false", "delay": {"rtt": 20_100_300, "send": 5, "receive": 6}}
    assert trips_of_irtt({"round_trips": [one, {"lost": "true_up", "delay": {}}]}) == [20_100_300.0]
    with pytest.raises(MachineError, match="irtt got no answer"):
        trips_of_irtt({"round_trips": []})


def test_live_matched_frames_are_compared_with_sent_frames() -> None:
    account = {"seen": 990, "dropped": 10}
    told = {
        "pairs": [{"directions": [{"direction": "forward", "counts": {"matched": 900}}]}],
        "live": {"taps": [{"account": account}] * 2, "processor_time_ns": 450_000},
    }
    found = live.accounted(told, {"sent": 1_000, "achieved_pps": 210_000.0})
    assert found == pytest.approx((210_000.0, 189_000.0, 0.01, 0.1, 500.0))
    met = live.Matched(210_000.0, 210_000.0, 0.0, 0.0, 500.0)
    assert [row.answer for row in live.lines([met] * 6)] == ["met", "met", "met", ""]
    assert [row.answer for row in live.lines([found] * 6)] == ["not met", "not met", "not met", ""]
