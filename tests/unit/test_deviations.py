"""Deviations from the RFCs, each both ways: listed by a run that deviates, not by one that does as the text says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.suites.deviations import ALWAYS, CHECKS, SIZES, SIZES_8219, Made
from sojourn.plan import load_plan
from sojourn.report import write_report
from sojourn.report.run import Run as ReportRun
from sojourn.report.suites import buffers, departures, deviations_told
from tests.unit.made_up_suites import Device, Suite

if TYPE_CHECKING:
    from pathlib import Path

DOUBLED = ("RFC 9004", "6.2")
"""Of every run with bursts."""

TESTS = {
    "rfc2544": ("throughput", "latency", "frame-loss", "back-to-back"),
    "rfc8219": ("throughput", "latency", "pdv", "ipdv"),
    "rfc2889": ("address-capacity", "learning-rate", "broadcast-forwarding", "broadcast-latency", "forward-pressure"),
}


def rfc_of(method: str) -> str:
    """The RFC that it follows."""
    return method.upper().replace("RFC", "RFC ")


def conforming(method: str) -> Made:
    """A run that does what the text says."""
    tests = TESTS[method]
    return Made(
        tests=tests,
        sizes=frozenset(SIZES_8219 if method == "rfc8219" else SIZES),
        engines=frozenset({"udp"}),
        has_line_rate=True,
        grace_s=7.0,
        ends_early=False,
        final_s=60.0,
        verifies_loss=False,
        loss_step=0.1,
        receivers=1,
        cut_short=0,
        shortest_s=dict.fromkeys(tests, 120.0),
        trials=dict.fromkeys(tests, 50),
        searches=dict.fromkeys(tests, 50),
        unfilled=0,
        unfillable=(),
        burst_limit_s=2.0,
        longest_burst_s=2.0,
        slowest_share=dict.fromkeys(tests, 1.0),
    )


def found(method: str, made: Made) -> list[tuple[str, str, str]]:
    """What is listed beyond what no plan avoids."""
    every = [one for check in CHECKS[rfc_of(method)] for one in check(made)]
    return [(one.rfc, one.section, one.sentence) for one in every if "doubled" not in one.sentence]


@pytest.mark.parametrize("method", TESTS)
def test_conforming_run_has_no_avoidable_deviation(method: str) -> None:
    assert found(method, conforming(method)) == []


def lasting(**seconds: float) -> dict[str, dict[str, float]]:
    return {"shortest_s": {name.replace("_", "-"): lasts for name, lasts in seconds.items()}}


@pytest.mark.parametrize(
    ("method", "changed", "rfc", "section", "said"),
    [
        (
            "rfc2544",
            {"sizes": frozenset({64, 1518})},
            "RFC 2544",
            "9.1",
            "frames of 128, 256, 512, 1024 and 1280 bytes",
        ),
        ("rfc8219", {"sizes": frozenset(SIZES_8219) - {9216}}, "RFC 8219", "5.1.1", "frames of 9216 bytes"),
        ("rfc2889", {"sizes": frozenset(SIZES) - {64, 512}}, "RFC 2889", "4", "frames of 64 and 512 bytes"),
        (
            "rfc2544",
            {"tests": ("throughput", "frame-loss", "back-to-back")},
            "RFC 2544",
            "26.2",
            "(latency) was left out",
        ),
        ("rfc8219", {"tests": ("throughput", "latency", "pdv")}, "RFC 8219", "7.3.2", "(ipdv) was left out"),
        ("rfc2889", {"tests": TESTS["rfc2889"][1:]}, "RFC 2889", "5.7", "(address capacity) was left out"),
        ("rfc2544", {"engines": frozenset({"udp", "packet"})}, "RFC 2544", "8", "(engine packet)"),
        ("rfc8219", {"engines": frozenset({"live"})}, "RFC 2544", "8", "no UDP datagrams"),
        ("rfc8219", {"has_line_rate": False}, "RFC 2544", "20", "tester zero-loss rate"),
        ("rfc2544", {"grace_s": 2.0}, "RFC 2544", "23", "had a pause of 0 s, not 5 s (step e)"),
        ("rfc2544", {"final_s": 0.12}, "RFC 2544", "24", "lasted 0.12 s, not 60 s"),
        ("rfc2544", lasting(throughput=60.0, frame_loss=15.0), "RFC 2544", "24", "lasted 15 s, not 60 s"),
        ("rfc2889", {"final_s": 1.0}, "RFC 2889", "5.1.2", "lasted 1 s, not 30 s"),
        ("rfc2544", {"cut_short": 3}, "RFC 2544", "24", "time ended 3 searches"),
        ("rfc2544", {"verifies_loss": True}, "RFC 2544", "26.1", "TST 009"),
        ("rfc2544", lasting(latency=60.0), "RFC 2544", "26.2", "lasted 60 s, not 120 s"),
        ("rfc2544", {"trials": {"latency": 19}}, "RFC 2544", "26.2", "made 19 times"),
        ("rfc8219", lasting(latency=119.0), "RFC 8219", "7.2", "lasted 119 s"),
        ("rfc8219", {"trials": {"latency": 20, "pdv": 3, "ipdv": 20}}, "RFC 8219", "7.3.1", "made 3 times"),
        ("rfc8219", lasting(ipdv=59.0) | {"trials": {"ipdv": 20}}, "RFC 8219", "7.3.2", "lasted 59 s, not 60 s"),
        ("rfc2544", {"loss_step": 0.25}, "RFC 2544", "26.3", "by 25 % of the highest, not by 10 %"),
        ("rfc2544", {"searches": {"back-to-back": 49}}, "RFC 2544", "26.4", "made 49 times at a size, not 50"),
        ("rfc2544", {"burst_limit_s": 0.04}, "RFC 2544", "26.4", "bursts of up to 0.04 s were tried, not of 2 s"),
        ("rfc2544", {"unfilled": 2}, "RFC 9004", "6.2", "in 2 searches the longest burst lies at the limit"),
        ("rfc2544", {"longest_burst_s": 30.0}, "RFC 9004", "6.2", "had 7 s to empty, not 30 s"),
        ("rfc2544", {"unfillable": (1280, 1518)}, "RFC 9004", "6.1", "also sent at 1280 and 1518 bytes"),
        ("rfc2889", {"receivers": 3}, "RFC 2889", "5.10", "one of 3 receiving ports"),
    ],
)
def test_each_deviation_is_listed_by_the_run_that_has_it(
    method: str, changed: dict[str, Any], rfc: str, section: str, said: str
) -> None:
    ((of, at, sentence),) = found(method, replace(conforming(method), **changed))
    assert (of, at) == (rfc, section)
    assert said in sentence


def test_deviation_from_several_sections_is_listed_at_each() -> None:
    short = found("rfc2544", replace(conforming("rfc2544"), grace_s=0.02))
    assert [(rfc, at) for rfc, at, _ in short] == [("RFC 2544", "23"), ("RFC 2544", "23"), ("RFC 9004", "6.2")]
    early = found("rfc2544", replace(conforming("rfc2544"), ends_early=True))
    assert [(rfc, at) for rfc, at, _ in early] == [("RFC 2544", "23"), ("RFC 2544", "23"), ("RFC 9004", "6.2")]
    waits, rests, empties = (sentence for _, _, sentence in early)
    assert "waited for 7 s at most, and no longer once each had arrived or was counted as dropped, not 2 s" in waits
    assert "had a pause of 0 s, not 5 s" in rests
    assert "had 7 s at most to empty" in empties
    virtual = found("rfc2544", replace(conforming("rfc2544"), has_line_rate=False))
    assert [(rfc, at) for rfc, at, _ in virtual] == [("RFC 2544", "20"), ("RFC 9004", "6.2"), ("RFC 9004", "6.4")]


def test_omitted_test_is_its_only_deviation() -> None:
    changed = {
        "tests": ("throughput",),
        "shortest_s": {"throughput": 60.0},
        "trials": {},
        "searches": {},
        "loss_step": 0.5,
    }
    without = replace(conforming("rfc2544"), **changed)  # type: ignore[arg-type]
    assert [at for _, at, _ in found("rfc2544", without)] == ["26.2", "26.3", "26.4"]
    for check in CHECKS["RFC 2544"]:
        assert not any("doubled" in one.sentence for one in check(without))


@pytest.mark.parametrize("method", TESTS)
def test_unavoidable_deviations_are_listed_only_for_their_method(method: str) -> None:
    own = {(one.rfc, one.section, one.sentence) for one in ALWAYS[rfc_of(method)]}
    assert own
    others = {
        (one.rfc, one.section, one.sentence)
        for name, several in ALWAYS.items()
        if name != rfc_of(method)
        for one in several
    }
    assert not own & others


def listed(path: Path) -> set[tuple[str, str]]:
    return set(pl.read_parquet(path / "analysis/samples/deviations.parquet").select("rfc", "section").rows())


def test_deviations_refer_to_the_measured_plan_and_trials(tmp_path: Path) -> None:
    """A run of short trials at one size against one of the standard's sizes and times."""

    def run(name: str, suite: Suite, sizes: tuple[int, ...], latencies: int) -> Path:
        for size in sizes:
            head = suite.head("throughput", size, 0)
            for rate, lost in ((1_000.0, 0), (1_000.0, 0), (2_000.0, 500)):
                suite.step(head, Device(1e9), rate, suite.seconds, lost=lost)
            suite.result(head, 0.0, lower_pps=1_000.0, upper_pps=2_000.0)
            for _ in range(latencies):
                head = suite.head("latency", size, 0)
                suite.step(head, Device(1e9), 1_000.0, 120.0 if suite.seconds == 60 else 1.0, lost=0)
                suite.result(head, lower_pps=1_000.0)
        analyse(path := suite.write(tmp_path / name))
        return path

    asked = 'tests = ["throughput", "latency"]\n[trials]\ngrace = "{}"\n'
    short = run("short", Suite("rfc2544", goals=(0.0,), sum_seconds=2.0, asked=asked.format("20ms")), (64,), 2)
    assert {("RFC 2544", at) for at in ("9.1", "20", "23", "24", "26.2", "26.3", "26.4")} <= listed(short)
    whole = run(
        "whole", Suite("rfc2544", goals=(0.0,), seconds=60.0, sum_seconds=120.0, asked=asked.format("7s")), SIZES, 20
    )
    avoidable = {("RFC 2544", at) for at in ("9.1", "24", "26.1")}
    assert not avoidable & listed(whole)
    table = departures(ReportRun.read(short))
    assert any("0.02 s, not 2 s" in row[2].text for row in table.rows)
    assert any("lasted 1 s, not 60 s" in row[2].text for row in table.rows)
    many = Counter(row[0].text for row in table.rows)
    told = deviations_told(ReportRun.read(short))
    assert told == f"{many['RFC 2544']} deviations from RFC 2544"
    assert f'<a href="#table-deviations">{told}</a>, listed below.' in write_report(short).read_text()
    assert np.all([row[1].text for row in table.rows])


BURST_PPS = 1e6


@pytest.mark.parametrize(
    ("served", "passes", "section", "said"),
    [
        (3e5, 1_000, None, ""),
        (3e5, 3_900, "6.2", "in 2 searches the longest burst lies at the limit or near it"),
        (3e5, 4_000, "6.2", "in 2 searches"),
        (0.999 * BURST_PPS, 4_000, "6.1", "also sent at 64 bytes, where the throughput is the highest rate"),
    ],
)
def test_bursts_at_the_length_limit_are_reported_unless_the_buffer_cannot_fill(
    tmp_path: Path, served: float, passes: int, section: str | None, said: str
) -> None:
    """Bursts of up to 4,000 frames; those of up to `passes` lose nothing."""
    suite, most = Suite("rfc2544", goals=(0.0,), asked='[trials]\ngrace = "3s"\n'), 4_000
    for repetition in range(2):
        head = suite.head("back-to-back", 64, repetition)
        for frames in sorted({passes, min(most, passes + 20)}):
            suite.step(head, Device(1e9), BURST_PPS, 0.0, frames=frames, lost=max(0, frames - passes))
        told = {"longest_tried": most, "width": 0.01, "burst_pps": BURST_PPS, "throughput_pps": served}
        suite.result(head, extra=told)
    analyse(path := suite.write(tmp_path / "run"))
    found = pl.read_parquet(path / "analysis/samples/deviations.parquet").filter(rfc="RFC 9004")
    sentences = dict(
        found.select("section", "sentence")
        .filter(~pl.col("sentence").str.contains("doubled|links have no rate"))
        .rows()
    )
    assert {"6.4"} ^ sentences.keys() == ({section} if section else set())
    assert said in sentences.get(section or "", "")
    note = buffers(ReportRun.read(path)).note
    assert "Bursts of up to 4\u202f000 frames were tried" in note
    assert "1 % of its length apart" in note


@pytest.mark.parametrize(("burst", "is_listed"), [("40ms", True), ("1999ms", True), ("2s", False), ("30s", False)])
def test_a_search_of_bursts_shorter_than_two_seconds_is_listed(tmp_path: Path, burst: str, is_listed: bool) -> None:
    suite = Suite("rfc2544", goals=(0.0,), asked=f'burst = "{burst}"\n[trials]\ngrace = "31s"\n')
    head = suite.head("back-to-back", 64, 0)
    for frames, lost in ((1_000, 0), (1_020, 20)):
        suite.step(head, Device(1e9), BURST_PPS, 0.0, frames=frames, lost=lost)
    suite.result(head, extra={"longest_tried": 4_000, "width": 0.01, "burst_pps": BURST_PPS, "throughput_pps": 3e5})
    analyse(path := suite.write(tmp_path / "run"))
    table = [[cell.text for cell in row] for row in departures(ReportRun.read(path)).rows]
    of_bursts = [row for row in table if any("bursts of up to" in text for text in row)]
    assert len(of_bursts) == is_listed
    assert all("26.4" in " ".join(row) and "not of 2 s" in " ".join(row) for row in of_bursts)


@pytest.mark.parametrize("method", TESTS)
def test_full_studies_have_no_avoidable_deviation(method: str) -> None:
    """What is left of the built-in plans: rests, sizes beyond the MTU, links without a rate, the frames' format."""
    plan = load_plan(method)
    search = plan.search
    made = replace(
        conforming(method),
        tests=search.tests,
        sizes=frozenset(plan.stream.sizes),
        grace_s=plan.trials.grace_ns / 1e9,
        ends_early=plan.trials.grace_ends == "accounted",
        final_s=search.duration_ns / 1e9,
        verifies_loss=search.verify_loss,
        loss_step=search.loss_step,
        shortest_s=dict.fromkeys(search.tests, search.latency_duration_ns / 1000000000.0),
        trials=dict.fromkeys(search.tests, search.repetitions * search.latency_repetitions),
        burst_limit_s=search.burst_ns / 1e9,
        searches={"back-to-back": search.repetitions * search.burst_repetitions} if method == "rfc2544" else {},
    )
    sections = {at for _, at, _ in found(method, made)}
    assert sections == {"rfc2544": {"23"}, "rfc8219": {"23", "5.1.1"}, "rfc2889": set()}[method]


def test_delays_below_the_throughput_are_a_deviation() -> None:
    made = replace(conforming("rfc2544"), slowest_share={"latency": 0.62, "throughput": 0.5})
    sentence = "the slowest stream had 62 % of the throughput: the tester sent no faster"
    assert found("rfc2544", made) == [("RFC 2544", "26.2", sentence)]
