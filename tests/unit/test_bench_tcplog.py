"""The bench of the log: figures of the study become lines with targets."""

from __future__ import annotations

import pytest

from bench.tcplog import READINGS, Figure, distance, nanoseconds, next_figure, skips, throughputs
from sojourn.errors import MachineError


def row(quantity: str, estimate: float, **more: object) -> dict[str, object]:
    found = {
        "quantity": quantity,
        "estimate": estimate,
        "ci_low": None,
        "ci_high": None,
        "n": 30,
        "statistic": "typical",
    }
    return found | {"path": "gso", "flows": 1, "packets_per_log": None, "device": "on"} | more


def test_change_in_either_direction_is_a_positive_distance() -> None:
    assert distance(Figure(0.99, 0.97, 1.01)) == (0.010000000000000009, 0.0, 0.030000000000000027, 1)
    assert distance(Figure(1.05, 1.03, 1.08))[1:3] == (0.030000000000000027, 0.08000000000000007)


def test_each_path_has_its_own_targets() -> None:
    results = [
        row("throughput_ratio", 0.96, ci_low=0.955, ci_high=0.97, packets_per_log=1),
        row("throughput_ratio", 0.99, ci_low=0.985, ci_high=0.995, packets_per_log=10),
        row("throughput_ratio", 0.86, ci_low=0.85, ci_high=0.87, packets_per_log=1, path="mtu"),
        row("throughput_ratio", 1.0, ci_low=0.99, ci_high=1.01, device="a/a"),
    ]
    answers = {(one.task, one.name): one.answer for one in throughputs(results)}
    assert list(answers.values()) == ["met", "met", "", "not met"]


def test_skips_and_nanoseconds_are_compared_with_their_targets() -> None:
    results = [
        row("skipped", 0.0), row("skipped", 3.0, flows=100),
        row("program_time", 190.0, ci_low=185.0, ci_high=195.0, device="logged", statistic="in", path=None),
        row("program_time", 90.0, ci_low=85.0, ci_high=95.0, device="decimated", statistic="out", path=None),
    ]  # fmt: skip
    assert [one.answer for one in skips(results)] == ["met?", "not met?"]
    assert [one.answer for one in nanoseconds(results)] == ["met", "not met"]


def test_missing_count_is_not_reported_as_zero_skipped() -> None:
    with pytest.raises(MachineError, match="skipped with 100 flows"):
        list(skips([row("skipped", 0.0)]))


def test_minimum_and_maximum_of_the_readings_are_a_95_percent_interval() -> None:
    assert 1 - 2 * 0.5**READINGS >= 0.95


def test_intervals_of_iperf_are_read_until_it_ends() -> None:
    one = "[  5]   {}   sec   12 MBytes  {} Mbits/sec    0   1.40 MBytes{}\n"
    lines = iter([
        "Connecting to host 192.0.2.1\n", one.format("0.00-1.00", "3510", ""), one.format("1.00-2.00", "95.3", ""),
        one.format("0.00-2.00", "3300", "   sender"), "iperf3: error - unable to send\n",
    ])  # fmt: skip
    assert [next_figure(lines, 1), next_figure(lines, 1)] == [3.51e9, 95.3e6]
    with pytest.raises(MachineError, match="iperf3 ended early: iperf3: error - unable to send"):
        next_figure(lines, 1)
    both = iter([one.format("0.00-1.00", "10", ""), "[SUM]   0.00-1.00   sec   25 MBytes   20 Mbits/sec    0\n"])
    assert next_figure(both, 2) == 20e6
