"""Limits on figures of two runs: what fails, holds and stays open; the same in JUnit's XML and a workflow's words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from sojourn.analysis.comparison import OPEN, shared_results
from sojourn.analysis.limits import FAILS, HOLDS, judge, read_limit
from sojourn.cli.cases import escaped, property_of
from sojourn.errors import RequestError
from sojourn.statistics.interval import Interval
from tests.unit.in_process import sojourn
from tests.unit.test_comparison import NO_MARGIN, around, made_up_run, row_of

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = str(Path(sys.executable).with_name("sojourn"))
LOSS: dict[str, Any] = {"quantity": "loss_ratio", "statistic": "ratio", "unit": "1", "reference": None}
RATE: dict[str, Any] = {"quantity": "throughput_bps", "statistic": "mean", "unit": "bit/s", "reference": None}


def answer(limit: str, one: dict[str, Any], two: dict[str, Any]) -> str:
    [judged] = judge([read_limit(limit)], shared_results([one], [two], NO_MARGIN))
    return str(judged["answer"])


@pytest.mark.parametrize(
    ("limit", "second", "expected"),
    [  # the first run has 1000 ± 10 ns, each second one ± 10: the difference is ± 14.1
        ("device_latency > +5%", 1065, FAILS),  # 51 to 79
        ("device_latency > +5%", 1063, OPEN),  # 49 to 77
        ("device_latency > +5%", 1037, OPEN),  # 23 to 51
        ("device_latency > +5%", 1035, HOLDS),  # 21 to 49
        ("device_latency.mean > +50ns", 1065, FAILS),
        ("device_latency.mean > +0.05us", 1035, HOLDS),
        ("device_latency < -5%", 935, FAILS),
        ("device_latency < -5%", 937, OPEN),
        ("device_latency < -5%", 965, HOLDS),
        ("device_latency > 1050ns", 1061, FAILS),  # the second run's own interval: 1051 to 1071
        ("device_latency > 1.05us", 1059, OPEN),
        ("device_latency > 1.05us", 1040, HOLDS),
        ("device_latency < 1us", 989, FAILS),
    ],
)
def test_limit_is_decided_by_the_interval(limit: str, second: float, expected: str) -> None:
    assert answer(limit, around(1000), around(second)) == expected


def test_rates_and_ratios_have_units_of_their_own() -> None:
    rates = around(900e6, 1e6, **RATE), around(890e6, 1e6, **RATE)
    assert answer("throughput_bps < -1Mbit/s", *rates) == FAILS
    assert answer("throughput_bps < 880Mbit/s", *rates) == HOLDS
    losses = around(0.01, 0.0001, **LOSS), around(0.02, 0.0001, **LOSS)
    assert answer("loss_ratio > +0.5pp", *losses) == FAILS
    assert answer("loss_ratio > +150%", *losses) == HOLDS
    assert answer("loss_ratio > 1.5%", *losses) == FAILS
    assert answer("loss_ratio > 0.03", *losses) == HOLDS
    with pytest.raises(RequestError, match=r"5% is no amount of device_latency, which is in ns: write \+5%"):
        answer("device_latency > 5%", around(1000), around(1000))
    with pytest.raises(RequestError, match="100pps is no amount of throughput_bps, which is in bit/s"):
        answer("throughput_bps < 100pps", *rates)


def test_a_figure_without_an_interval_is_not_decided() -> None:
    bare = row_of(Interval(5000, None, None, 0.95, 1))
    assert answer("device_latency > +5%", around(1000), bare) == OPEN
    assert answer("device_latency > 2us", around(1000), bare) == OPEN
    endless = row_of(Interval(5000, 4000, None, 0.95, 9))
    assert answer("device_latency > 2us", around(1000), endless) == FAILS, "open above, and wholly beyond"
    assert answer("device_latency > 4500ns", around(1000), endless) == OPEN


def test_every_printed_name_selects_exactly_its_figure() -> None:
    factors: list[dict[str, Any]] = [
        {},
        {"icmp_bytes": 64},
        {"icmp_bytes": 1500},
        {"rate_share": 0.5, "pipe": 'delay 10ms, "loss" 2% > [0]'},
        {"device": "bridge:qos"},
        {"device": "a/a"},
        {"statistic": "p99.9"},
    ]
    figures = [around(1000, **one) for one in factors]
    rows = shared_results(figures, figures, NO_MARGIN)
    for row in rows[1:]:
        [judged] = judge([read_limit(f"{row['name']} > +5%")], rows)
        assert [one["name"] for one in judged["figures"]] == [row["name"]]


def test_short_name_selects_every_leading_figure_except_the_control() -> None:
    def run(at: float) -> list[dict[str, Any]]:
        others: list[dict[str, Any]] = [{"icmp_bytes": 1500}, {"statistic": "sd"}, {"device": "a/a"}]
        return [around(1000, icmp_bytes=64), *(around(at, **one) for one in others)]

    rows = shared_results(run(1000), run(2000), NO_MARGIN)
    [judged] = judge([read_limit("device_latency > +5%")], rows)
    assert [one["answer"] for one in judged["figures"]] == [HOLDS, FAILS]
    assert judged["answer"] == FAILS
    [narrow] = judge([read_limit("device_latency[icmp_bytes=64] > +5%")], rows)
    assert narrow["answer"] == HOLDS
    [control] = judge([read_limit("device_latency[device=a/a] > +5%")], rows)
    assert control["answer"] == FAILS


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("device_latency", "expected NAME > AMOUNT"),
        ("device_latency >= +5%", "expected NAME > AMOUNT"),
        ("device_latency > much", "expected NAME > AMOUNT"),
        ("device_latency[bytes=1] > +5%", "no figure has a factor 'bytes'"),
        ("device_latency[icmp_byte=1] > +5%", "did you mean icmp_bytes"),
        ("device_latency[icmp_bytes] > +5%", "expected FACTOR=VALUE"),
        ("device_latencies > +5%", "have no figure device_latencies in common .did you mean device_latency"),
        ("device_latency[icmp_bytes=64] > +5%", "no device_latency that both runs have"),
        ("device_latency.p7 > +5%", "no device_latency that both runs have"),
    ],
)
def test_meaningless_limit_is_refused(limit: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        answer(limit, around(1000), around(1000))


@pytest.fixture
def slower(tmp_path: Path) -> list[str]:
    """Two runs, the second surely slower by 100 of 1000 ns, and in loss perhaps."""
    rows = [[around(at), around(loss, 0.002, **LOSS)] for at, loss in ((1000, 0.01), (1100, 0.012))]
    return [str(made_up_run(tmp_path / f"run-{number}", found)) for number, found in enumerate(rows)]


def test_given_limits_alone_decide_the_exit_status(slower: list[str]) -> None:
    def status(*words: str) -> int:
        return sojourn("compare", *slower, *words).returncode

    assert status() == 1
    assert status("--fail-if", "device_latency > +20%") == 0, "worse, but not by more than was allowed"
    assert status("--fail-if", "device_latency > +5%") == 1
    assert status("--fail-if", "device_latency > +20%", "--fail-if", "device_latency > +5%") == 1
    assert status("--fail-if", "device_latency > +20%", "--fail-on", "worse") == 1
    assert status("--fail-if", "loss_ratio > +10%") == 0, "not decided"
    assert status("--fail-if", "loss_ratio > +10%", "--fail-on", "inconclusive") == 1
    assert status("--fail-if", "rtt > +10%") == 2, "a gate on what is not there is no gate"
    assert status("--fail-if", "device_latency > +20%", "--github", "--json") == 2


def test_limits_on_other_figures_are_evaluated(tmp_path: Path) -> None:
    rows = [around(at, statistic="p99") for at in (1000, 1100)]
    runs = [str(made_up_run(tmp_path / f"run-{number}", [row])) for number, row in enumerate(rows)]
    assert sojourn("compare", *runs).returncode == 2, "nothing is judged"
    file = tmp_path / "cases.xml"
    done = sojourn("compare", *runs, "--fail-if", "device_latency.p99 > +5%", "--junit", str(file))
    assert done.returncode == 1
    assert "the limits alone are judged" in done.stdout
    root = ET.parse(file).getroot()
    assert (root.get("failures"), root.get("errors")) == ("1", "0")
    assert sojourn("compare", *runs, "--fail-if", "device_latency.p99 > +20%").returncode == 0


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_closed_output_pipe_does_not_change_the_exit_status(slower: list[str], words: Sequence[str]) -> None:
    for limit, status in (("5%", 1), ("20%", 0)):
        reads, writes = os.pipe()
        os.close(reads)
        asked = [PROGRAM, "compare", *slower, "--fail-if", f"device_latency > +{limit}", *words]
        done = subprocess.run(asked, stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
        os.close(writes)
        assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr


def test_limits_are_printed_as_text_and_json(slower: list[str]) -> None:
    words = ("--fail-if", "device_latency > +5%", "--fail-if", "loss_ratio > +10%")
    said = " ".join(sojourn("compare", *slower, *words).stdout.split())
    assert "fails: device_latency > +5% fails: bridge over direct: latency: difference +0.100 µs" in said
    assert "(0.086 to 0.114), limit +0.050 µs" in said
    assert "inconclusive: loss_ratio > +10%" in said
    assert "limit +0.100 %" in said, "10 % of 1 %, as ratios are printed"
    told = json.loads(sojourn("compare", *slower, *words, "--json").stdout)
    assert [one["answer"] for one in told["limits"]] == [FAILS, OPEN]
    assert told["limits"][0]["figures"][0]["bound"] == 50
    names = {row["name"] for row in told["results"]}
    assert {one["name"] for limit in told["limits"] for one in limit["figures"]} <= names


def junit_of(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The counts of a JUnit file, and of each case by its class and name what it holds."""
    [suite] = ET.parse(path).getroot()
    kinds = {f"{one.get('classname')} {one.get('name')}": "".join(inner.tag for inner in one) for one in suite}
    return dict(suite.attrib), kinds


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ((), 1),
        (("--fail-on", "never"), 0),
        (("--fail-if", "device_latency > +20%"), 0),
        (("--fail-if", "device_latency > +5%"), 1),
        (("--fail-if", "loss_ratio > +10%", "--fail-on", "inconclusive"), 1),
    ],
)
def test_junit_has_a_failure_exactly_if_the_exit_status_is_1(
    words: tuple[str, ...], status: int, slower: list[str], tmp_path: Path
) -> None:
    done = sojourn("compare", *slower, *words, "--junit", str(tmp_path / "junit.xml"))
    counts, kinds = junit_of(tmp_path / "junit.xml")
    assert done.returncode == status
    assert (int(counts["failures"]) > 0) is (status == 1)
    assert counts["errors"] == "0"
    assert int(counts["tests"]) == len(kinds) == 1 + 2 + 2 + len([one for one in words if ">" in one])
    assert int(counts["failures"]) == sum(kind == "failure" for kind in kinds.values())
    assert int(counts["skipped"]) == sum(kind == "skipped" for kind in kinds.values())


def test_an_invalid_run_is_an_error_in_every_form(slower: list[str], tmp_path: Path) -> None:
    finding = {
        "name": "drift",
        "severity": "invalid",
        "where": "b",
        "sentence": "bell \x07 and\n::error::forged 5% <&>",
    }
    verdict = tmp_path / "run-1/analysis/verdict.json"
    verdict.write_text(json.dumps({"verdict": "invalid", "findings": [finding]}))
    done = sojourn("compare", *slower, "--fail-if", "device_latency > +20%", "--github", "--junit", f"{tmp_path}/j.xml")
    assert done.returncode == 4
    counts, kinds = junit_of(tmp_path / "j.xml")
    assert (counts["errors"], counts["failures"]) == ("1", "0")
    assert kinds[f"sojourn.runs {slower[1]}"] == "error"
    [line] = [line for line in done.stdout.splitlines() if line.startswith("::error ")]
    assert "bell \\x07 and ::error::forged 5%25 <&>" in line
    assert not [line for line in done.stdout.splitlines() if line.startswith("::error::")]


def test_workflow_annotations_name_failed_and_inconclusive_limits(slower: list[str]) -> None:
    words = ("--fail-if", "device_latency > +5%", "--fail-if", "loss_ratio > +10%", "--github")
    lines = [line for line in sojourn("compare", *slower, *words).stdout.splitlines() if line.startswith("::")]
    assert [line.split(" ")[0] for line in lines] == ["::notice", "::warning", "::warning", "::error", "::warning"]
    assert lines[0].startswith("::notice title=sojourn compare%3A comparison::Worse (another bed")
    assert lines[3].startswith(
        "::error title=sojourn compare%3A limits::fails: bridge over direct: latency: difference"
    )
    assert (escaped("5%\r\n: ,"), property_of("5%\r\n: ,")) == ("5%25%0D%0A: ,", "5%25%0D%0A%3A %2C")


def test_runs_with_nothing_in_common_are_an_error_in_junit(tmp_path: Path) -> None:
    runs = [str(made_up_run(tmp_path / name, [around(1000, device=name)])) for name in ("bridge", "wire")]
    done = sojourn("compare", *runs, "--junit", str(tmp_path / "junit.xml"), "--fail-if", "device_latency > +5%")
    assert done.returncode == 2
    assert junit_of(tmp_path / "junit.xml")[0]["errors"] == "1"
    done = sojourn("compare", *runs, "--junit", str(tmp_path / "no/junit.xml"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
