"""The phase between two streams over hosts with two clocks: with B's times an hour ahead and faster, the same is found.

Both streams pass a rated link, through which no stream asks for a time: clock trials between the trials give the lines.
"""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.methods.fan_in.show import how
from sojourn.records import RunFolder
from sojourn.report.run import Run
from tests.unit.made_up_streams import write_table
from tests.unit.test_phase import SERVICE_NS, two_streams
from tests.unit.test_tcp_load_two_clocks import both, found_in
from tests.unit.two_clocks import Apart, part_clocks

if TYPE_CHECKING:
    from pathlib import Path

TRIAL_NS = 1_200_000_000
HOUR_NS = 3_600_000_000_000
CROSSING = ("delay_by_phase", "phase_effect", "phase_height", "one_way_delay", "one_way_delay_intended", "delay_spread")
"""Quantities that are made of times of both hosts."""


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run over a rated link, whose emulator is in the log."""
    run = RunFolder(two_streams(tmp_path / "one", 1.0))
    ready = json.dumps({"event": "emulator-ready", "device": "bridge"})
    run.log.write_text(f"{ready}\n{run.log.read_text()}")
    return run


def apart(**of: Any) -> Apart:
    """Clocks an hour and 50 ppm apart, and a clock trial behind each trial."""
    return Apart(**{"lasts_ns": lambda _: TRIAL_NS} | of)


def outcome(folder: RunFolder) -> dict[str, Any]:
    """What is said of the published hypothesis."""
    [found] = json.loads(folder.verdict.read_text())["hypotheses"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("ahead_ns", [HOUR_NS, -HOUR_NS])
def test_clocks_that_are_known_give_the_same_figures_and_their_error(folder: RunFolder, ahead_ns: int) -> None:
    (one, found), (two, found_of_two) = both(folder, apart(ahead_ns=ahead_ns))
    assert found_of_two == found
    assert {one[key]["quantity"] for key in one.keys() ^ two.keys()} == {"late"}, "lateness is counted by one clock"
    assert {row["quantity"] for row in two.values()} >= set(CROSSING)
    for key, row in two.items():
        # What is of B's times alone is on B's clock, which is faster by 50 ppm.
        rounding = 2.0 if row["unit"] == "ns" else 0.0
        rounding += 0.0 if row["quantity"] in CROSSING else abs(row["estimate"]) * 1e-4
        assert row["estimate"] == pytest.approx(one[key]["estimate"], abs=rounding), key
        if row["quantity"] not in CROSSING or row["statistic"] in ("within_bed", "next_run", "between_beds"):
            continue
        assert 0 < row["clock_error95_ns"] <= row["clock_bound_ns"], key
        assert one[key]["clock_bound_ns"] in (None, 0.0)
        if row["statistic"] != "sd" and row["ci_high"] is not None:
            alone, wider = (of["ci_high"] - of["estimate"] for of in (one[key], row))
            assert wider == pytest.approx(math.hypot(alone, row["clock_error95_ns"]), rel=0.05, abs=2.0), key
    [height] = [row for row in two.values() if row["quantity"] == "phase_height"]
    assert height["estimate"] == pytest.approx(SERVICE_NS, rel=0.005)
    assert outcome(RunFolder(folder.path.with_name("two")))["outcome"] == "supported"
    began, began_of_two = (
        pl.read_parquet(RunFolder(folder.path.with_name(name)).samples / "trials.parquet")["elapsed_s"].to_list()
        for name in ("one", "two")
    )
    assert began_of_two == pytest.approx(began, abs=2.0), "seconds of A's clock since A's first stream or clock trial"
    said = " ".join(how(Run.read(folder.path.with_name("two"))))
    assert "compared with the sender's by clock trials, short streams over the direct path between the trials" in said


def test_figures_differ_by_no_more_than_the_clocks_are_wrong(folder: RunFolder) -> None:
    """Each line is wrong by 80 µs, by turns too much and too little."""
    (one, _), (two, _) = both(folder, apart(wrong_ns=80_000.0, bound_ns=85_000.0))
    differ = 0
    for key, row in two.items():
        if row["quantity"] in CROSSING and row["clock_bound_ns"] is not None:
            off = abs(row["estimate"] - one[key]["estimate"])
            assert off <= row["clock_bound_ns"], key
            differ += off > 1_000.0
    assert differ > 10, "lines that are wrong move the figures"


def test_errors_of_the_clocks_are_in_what_is_said_of_the_hypothesis(folder: RunFolder) -> None:
    """A 95 % error of 60 µs leaves the deviations of the bins unknown to within 5 % of a frame's time."""
    both(folder, apart(bound_ns=600_000.0))
    found = outcome(RunFolder(folder.path.with_name("two")))
    assert found["outcome"] == "inconclusive"
    assert "deviations of the bins are not known to within" in found["sentence"]
    assert outcome(folder)["outcome"] == "supported"


def test_without_an_answered_clock_trial_there_are_no_delays(folder: RunFolder) -> None:
    (one, found), (two, found_of_two) = both(folder, apart(parts=lambda _: False))
    assert not [row for row in two.values() if row["quantity"] in CROSSING]
    assert {row["quantity"] for row in one.values()} - {row["quantity"] for row in two.values()} >= set(CROSSING)
    assert [row for row in two.values() if row["quantity"] == "throughput_pps"], "B counts frames by its own clock"
    assert "clock_unsynchronised" in found_of_two - found
    assert outcome(RunFolder(folder.path.with_name("two")))["outcome"] == "inconclusive"


def test_clocks_that_are_not_known_over_a_trial_are_a_finding(folder: RunFolder) -> None:
    _, (two, found) = both(folder, apart(bound_ns=12_000_000.0))
    assert "clock_imprecise" in found
    assert all(row["clock_bound_ns"] > 1e7 for row in two.values() if row["quantity"] == "delay_by_phase")


def test_what_clock_trials_say_of_ways_that_differ_is_a_finding(folder: RunFolder) -> None:
    asymmetric = {"finding": "clock_asymmetric", "sentence": "ways differ"}
    _, (_, found) = both(folder, apart(told=({"shared": False, "findings": [asymmetric]},)))
    assert "clock_asymmetric" in found


def test_a_session_that_ended_behind_its_first_clock_trial_has_figures_and_is_said(folder: RunFolder) -> None:
    other = RunFolder(folder.path.with_name("two"))
    shutil.copytree(folder.path, other.path)
    part_clocks(other, apart())
    for file in other.records.glob("clock_lines-*.arrow"):
        write_table(file, "clock_lines", pl.read_ipc_stream(file).head(1))
    (one, _), (two, found) = found_in(folder), found_in(other)
    assert "clock_one_sided" in found, "a step behind the last line would be in no error"
    for key, row in two.items():
        if row["quantity"] == "delay_by_phase":
            assert row["estimate"] == pytest.approx(one[key]["estimate"], abs=2.0), key
