"""Suites against devices of known capacity: what searches found is recomputed from their trials and holds the truth."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.factors import Factors
from sojourn.analysis.suites import Sought
from sojourn.analysis.suites.cells import median_over, over_repetitions
from sojourn.analysis.suites.contradictions import contradicted, rises
from sojourn.analysis.suites.searches import seconds_of
from sojourn.errors import RequestError
from sojourn.report.run import Run as ReportRun
from sojourn.report.suites import latency
from sojourn.statistics.bounds import (
    Bounds,
    Goal,
    Trial,
    classify,
    loose_bounds,
    quantile_loss,
    relevant_bounds,
    verified,
)
from tests.unit.made_up_suites import Device, Suite

SEED = 20_261_124

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CAPACITY = 300_000.0
MOST = 800_000.0


def rows_of(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    rows = json.loads((path / "analysis/results.json").read_text())
    return {(row["quantity"], row["statistic"]): row for row in rows if row["frame_bytes"] in (64, None)}


def sample(path: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(path / f"analysis/samples/{name}.parquet")


def names(verdict: Any) -> set[str]:
    return {one["name"] for one in verdict.findings}


ROOM = 40


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Seven repetitions of both algorithms, each over a device of another capacity, known."""
    suite = Suite("rfc2544")
    suite.qualified(64)
    for repetition, capacity in enumerate(CAPACITIES):
        suite.mlr(Device(capacity, room=ROOM), 64, repetition, MOST)
        suite.halve(Device(capacity, room=ROOM), 64, repetition, MOST)
    path = suite.write(tmp_path_factory.mktemp("suite") / "run")
    return path, analyse(path)


CAPACITIES = CAPACITY * (1 + 0.002 * np.random.default_rng(SEED).standard_normal(7))
WIDTH = 0.005
"""Of the made-up searches."""


@pytest.mark.parametrize("algorithm", ["", "_binary"])
def test_the_zero_loss_rate_is_at_most_the_capacity_and_within_the_resolution_of_it(
    searched: tuple[Path, Any], algorithm: str
) -> None:
    """What passes a trial of one second is what the device forwards, and what its buffer holds."""
    rows, truth = rows_of(searched[0]), float(np.mean(CAPACITIES)) + ROOM / 1.0
    rate = rows[f"ndr{algorithm}", "rate"]
    assert truth * (1 - WIDTH) <= rate["estimate"] <= truth
    assert rate["ci_low"] < rate["estimate"] < rate["ci_high"]
    assert rate["n"] == 7
    assert rate["sessions"] is None
    assert rate["estimate"] < rows[f"ndr{algorithm}", "upper"]["estimate"]
    assert rows[f"ndr{algorithm}", "bits"]["estimate"] == pytest.approx(rate["estimate"] * 512)
    assert rows[f"ndr{algorithm}", "spread"]["estimate"] < 0.02
    searches = sample(searched[0], "searches").filter(
        (pl.col("goal") == 0) & (pl.col("algorithm") == ("binary" if algorithm else "mlrsearch"))
    )
    for lower, upper, capacity in zip(searches["lower"], searches["upper"], CAPACITIES, strict=True):
        assert lower <= capacity + ROOM + 1 <= upper + 1
    tried = set(sample(searched[0], "search_steps")["load"])
    assert set(searches["lower"]) <= tried, "a rate that is reported was tried"
    assert "the trials" not in rate["source"]
    assert "5 trials at the lower bound" in rate["source"]


@pytest.mark.parametrize("algorithm", ["", "_binary"])
def test_partial_drop_rate_exceeds_the_zero_loss_rate_by_the_allowed_loss(
    searched: tuple[Path, Any], algorithm: str
) -> None:
    """Half a per cent may be lost: the load may be higher by that, and what comes through is the capacity again."""
    rows = rows_of(searched[0])
    rate = rows[f"pdr{algorithm}", "rate"]["estimate"]
    assert CAPACITY / 0.995 * 0.99 <= rate <= (max(CAPACITIES) + ROOM) / 0.995
    assert rows[f"pdr{algorithm}", "conditional"]["estimate"] == pytest.approx(CAPACITY, rel=0.01)


def test_the_tolerance_of_the_offered_rate_is_what_was_seen_at_the_bound(tmp_path: Path) -> None:
    suite = Suite("rfc2544", goals=(0.0, 0.005), sum_seconds=1.0)
    head = suite.head("throughput", 64, 0)
    suite.step(head, Device(1e9), 200_000.0, 1.0, lost=0)
    suite.sent[-1]["achieved_pps"] = 199_400.0
    suite.step(head, Device(1e9), 210_000.0, 1.0, lost=9_000)
    for goal in suite.goals:
        suite.result(head, goal, lower_pps=2e5, upper_pps=2.1e5)
    analyse(path := suite.write(tmp_path / "run"))
    ndr, pdr = sample(path, "suite_rates").iter_rows(named=True)
    assert ndr["offered_off"] == pytest.approx(0.003)
    assert ndr["offered_pps"] == pytest.approx(600 / 3**0.5)
    assert ndr["finite_trial_pps"] is None, "no buffer was measured"
    assert pdr["unseen_loss"] is None


def test_rate_with_loss_in_one_of_three_trials_is_not_a_zero_loss_rate(tmp_path: Path) -> None:
    """Nor one of short trials, nor one that nobody tried between the bounds."""
    suite = Suite("rfc2544", goals=(0.0, 0.005), sum_seconds=3.0)
    head, device = suite.head("throughput", 64, 0), Device(CAPACITY)
    for rate, lost in ((200_000.0, (0, 0, 0)), (250_000.0, (0, 1, 0)), (300_000.0, (9_000,) * 3)):
        for one in lost:
            suite.step(head, device, rate, 1.0, lost=one)
    for goal, rate in ((0.0, 200_000.0), (0.005, 250_000.0)):
        suite.result(head, goal, lower_pps=rate, upper_pps=rate + 50_000)
    verdict = analyse(path := suite.write(tmp_path / "run"))
    rows = rows_of(path)
    assert rows["ndr", "rate"]["estimate"] == 200_000
    assert rows["ndr", "upper"]["estimate"] == 250_000
    assert rows["pdr", "rate"]["estimate"] == 250_000
    assert rows["ndr", "rate"]["ci_low"] is None, "one search has no interval"
    assert "no interval" in verdict.sentence
    assert "225" not in verdict.sentence


def test_device_that_loses_at_every_rate_has_only_an_upper_limit(tmp_path: Path) -> None:
    suite = Suite("rfc2544", goals=(0.0,))
    for repetition in range(3):
        head = suite.head("throughput", 64, repetition)
        for rate in (400_000.0, 100_000.0, 50_000.0):
            suite.step(head, Device(1e9), rate, 1.0, lost=round(rate / 1e4))
        suite.result(head, 0.0, upper_pps=50_000.0, sentence="frames are lost at every load that was tried")
    verdict = analyse(path := suite.write(tmp_path / "run"))
    rows = rows_of(path)
    assert ("ndr", "rate") not in rows
    assert rows["ndr", "below"]["estimate"] == 50_000
    assert "less than 50" in verdict.sentence
    assert sample(path, "suite_rates").select("pps", "below").row(0) == (None, True)


def test_repetition_with_loss_at_every_rate_counts_in_the_mean(tmp_path: Path) -> None:
    suite = Suite("rfc2544", goals=(0.0,), sum_seconds=1.0)
    for repetition, lost in enumerate((0, 0, 10)):
        head = suite.head("throughput", 64, repetition)
        suite.step(head, Device(1e9), 300_000.0, 1.0, lost=lost)
        suite.step(head, Device(1e9), 400_000.0, 1.0, lost=100)
        suite.result(head, 0.0, lower_pps=None if lost else 3e5, upper_pps=3e5 if lost else 4e5)
    analyse(path := suite.write(tmp_path / "run"))
    assert rows_of(path)["ndr", "rate"]["estimate"] == pytest.approx(200_000)


def test_search_out_of_time_before_any_success_reports_no_rate(tmp_path: Path) -> None:
    suite = Suite("rfc2544", goals=(0.0,), sum_seconds=1.0)
    head = suite.head("throughput", 64, 0)
    suite.step(head, Device(1e9), 400_000.0, 1.0, lost=100)
    suite.result(head, 0.0, upper_pps=4e5, cut_short=True, sentence="time was up")
    verdict = analyse(path := suite.write(tmp_path / "run"))
    assert not {("ndr", "rate"), ("ndr", "below")} & rows_of(path).keys()
    assert verdict.verdict != "trusted"


def test_zero_loss_rate_of_few_frames_states_its_upper_loss_limit(tmp_path: Path) -> None:
    def found(rate: float) -> set[str]:
        suite = Suite("rfc2544", goals=(0.0,), sum_seconds=1.0)
        head = suite.head("throughput", 64, 0)
        suite.step(head, Device(1e9), rate, 1.0, lost=0)
        suite.step(head, Device(1e9), 2 * rate, 1.0, lost=100)
        suite.result(head, 0.0, lower_pps=rate, upper_pps=2 * rate)
        return names(analyse(suite.write(tmp_path / f"run-{rate:.0f}")))

    assert "too_few_frames" in found(400.0)
    assert "too_few_frames" not in found(4_000.0)


def test_repetitions_on_several_beds_have_an_interval_over_beds(tmp_path: Path) -> None:
    """The interval is Student's over beds; where a bed has two repetitions, what it is within one is reported too."""
    rates = {0: (280_000.0, 282_000.0), 1: (300_000.0, 301_000.0), 2: (290_000.0, 293_000.0)}

    def found(each: int) -> dict[tuple[str, str], dict[str, Any]]:
        suite = Suite("rfc2544", goals=(0.0,), sum_seconds=1.0)
        for part, lowers in rates.items():
            suite.session(part)
            for rate in lowers[:each]:
                head = suite.head("throughput", 64, part)
                suite.step(head, Device(1e9), rate, 1.0, lost=0)
                suite.step(head, Device(1e9), 1.01 * rate, 1.0, lost=100)
                suite.result(head, 0.0, lower_pps=rate, upper_pps=1.01 * rate)
        path = suite.write(tmp_path / f"run-{each}")
        analyse(path)
        return rows_of(path)

    for each in (1, 2):
        rows = found(each)
        means = np.array([np.mean(lowers[:each]) for lowers in rates.values()])
        reach = 4.3027 * np.std(means, ddof=1) / 3**0.5
        rate = rows["ndr", "rate"]
        assert rate["estimate"] == pytest.approx(means.mean())
        assert rate["ci_high"] - rate["estimate"] == pytest.approx(reach, rel=1e-4)
        assert (rate["sessions"], rate["n"]) == (3, 3 * each)
        assert (("ndr", "within_bed") in rows) == (each == 2)
        if each == 2:
            assert rows["ndr", "within_bed"]["ci_high"] < rate["ci_high"] < rows["ndr", "next_run"]["ci_high"]


def test_interval_of_a_rate_with_large_scatter_is_not_negative(tmp_path: Path) -> None:
    suite = Suite("rfc2544", goals=(0.0,), sum_seconds=1.0)
    for part, rate in enumerate((100_000.0, 900_000.0, 200_000.0)):
        suite.session(part)
        head = suite.head("throughput", 64, part)
        suite.step(head, Device(1e9), rate, 1.0, lost=0)
        suite.step(head, Device(1e9), 1.01 * rate, 1.0, lost=100)
        suite.result(head, 0.0, lower_pps=rate, upper_pps=1.01 * rate)
    verdict = analyse(suite.write(tmp_path / "run"))
    assert "400 000 frames/s (95 % CI 0 to " in verdict.sentence.replace("\u202f", " ").replace("\u00a0", " ")


def test_trial_with_missed_load_bounds_offered_rate_if_lossy_else_achieved_rate(
    tmp_path: Path,
) -> None:
    suite = Suite("rfc2544", goals=(0.0,), sum_seconds=1.0)
    head = suite.head("throughput", 64, 0)
    suite.step(head, Device(1e9), 250_000.0, 1.0, lost=0)
    suite.step(head, Device(1e9), 200_000.0, 1.0, lost=900, asked_pps=300_000.0)
    suite.result(head, 0.0, lower_pps=2.5e5, upper_pps=3e5)
    head = suite.head("throughput", 512, 0)
    suite.step(head, Device(1e9), 200_000.0, 1.0, lost=0, asked_pps=300_000.0)
    suite.step(head, Device(1e9), 400_000.0, 1.0, lost=900)
    suite.result(head, 0.0, lower_pps=2e5, upper_pps=4e5)
    verdict = analyse(path := suite.write(tmp_path / "run"))
    found = sample(path, "searches").sort("frame_bytes")
    assert found.select("lower", "upper").rows() == [(250_000.0, 300_000.0), (200_000.0, 400_000.0)]
    assert "search_disagrees" not in names(verdict)


def test_restarted_search_is_analysed_on_its_second_bed_only(tmp_path: Path) -> None:
    suite = Suite("rfc2544", goals=(0.0,), sum_seconds=1.0)
    suite.session(0)
    head = suite.head("throughput", 64, 0)
    suite.step(head, Device(1e9), 100_000.0, 1.0, lost=100)
    suite.session(1)
    for rate, lost in ((200_000.0, 0), (210_000.0, 50)):
        suite.step(head, Device(1e9), rate, 1.0, lost=lost)
    suite.result(head, 0.0, lower_pps=2e5, upper_pps=2.1e5)
    analyse(path := suite.write(tmp_path / "run"))
    assert rows_of(path)["ndr", "rate"]["estimate"] == 200_000


def test_analysis_confirms_the_bounds_reported_by_the_search(searched: tuple[Path, Any]) -> None:
    path, verdict = searched
    assert "search_disagrees" not in names(verdict)
    assert "tester_limited" not in names(verdict)
    searches = sample(path, "searches").filter(pl.col("algorithm") == "mlrsearch")
    assert (searches["lower"] - searches["claimed_lower"]).abs().to_list() == [0.0] * searches.height
    assert (searches["upper"] - searches["claimed_upper"]).abs().to_list() == [0.0] * searches.height
    assert "loss_unverified" not in names(verdict)
    assert "64 B" in verdict.sentence
    steps = sample(path, "search_steps")
    assert set(steps["verdict"]) == {"used", "alive"}
    assert (steps.filter(pl.col("verdict") == "alive")["load"] == 500).all()


def test_loss_not_confirmed_by_a_second_trial_is_ignored_and_reported(tmp_path: Path) -> None:
    suite = Suite("rfc2544", goals=(0.0,), sum_seconds=2.0)
    head = suite.head("throughput", 64, 0, "binary")
    for rate, lost in ((4e5, 50), (4e5, 50), (3e5, 0), (3e5, 9), (3e5, 0)):
        suite.step(head, Device(1e9), rate, 1.0, lost=lost)
    suite.result(head, 0.0, lower_pps=3e5, upper_pps=4e5)
    verdict = analyse(path := suite.write(tmp_path / "run"))
    assert "loss_unverified" in names(verdict)
    assert rows_of(path)["ndr_binary", "rate"]["estimate"] == 3e5


def test_search_bound_not_supported_by_its_trials_is_a_finding(tmp_path: Path) -> None:
    suite = Suite("rfc2544", goals=(0.0,))
    suite.mlr(Device(CAPACITY), 64, 0, MOST)
    suite.log[-1]["lower_pps"] *= 1.1
    verdict = analyse(suite.write(tmp_path / "run"))
    assert "search_disagrees" in names(verdict)


def test_result_near_the_limit_of_the_tester_is_rejected(tmp_path: Path) -> None:
    suite = Suite("rfc2544", goals=(0.0,), clean_pps=CAPACITY * 1.05)
    suite.qualified(64)
    suite.mlr(Device(CAPACITY), 64, 0, suite.clean_pps)
    verdict = analyse(path := suite.write(tmp_path / "run"))
    rows = rows_of(path)
    assert ("ndr", "rate") not in rows
    assert rows["ndr", "at_least"]["estimate"] == pytest.approx(CAPACITY, rel=0.01)
    assert "tester_limited" in rows["ndr", "at_least"]["findings"]
    assert "tester_limited" in names(verdict)
    assert "at least" in verdict.sentence
    assert sample(path, "suite_rates")["tester_limited"].to_list() == [True]


WHY = "the tester does not reach the configured rates, down to 208266 packets/s: stop other programs on this machine"


def test_a_search_that_found_nothing_is_never_trusted(tmp_path: Path) -> None:
    suite = Suite("rfc2544")
    head = suite.head("throughput", 64, 0)
    for rate in (800_000.0, 400_000.0):
        suite.step(head, Device(1e9), rate, 1.0, missed=True)
    for goal in suite.goals:
        suite.result(head, goal, sentence=WHY)
    curve = suite.head("frame-loss", 64, 0)
    suite.step(curve, Device(CAPACITY), 200_000.0, 1.0)
    suite.result(curve)
    verdict = analyse(suite.write(tmp_path / "run"))
    assert verdict.verdict == "doubtful"
    assert any(WHY in one["sentence"] for one in verdict.findings)


def test_a_suite_without_any_figure_is_invalid(tmp_path: Path) -> None:
    suite = Suite("rfc2544", goals=(0.0,))
    head = suite.head("throughput", 64, 0)
    suite.step(head, Device(1e9), 800_000.0, 1.0, missed=True)
    suite.result(head, 0.0, sentence=WHY)
    verdict = analyse(suite.write(tmp_path / "run"))
    assert verdict.verdict == "invalid"
    assert any(WHY in one["sentence"] for one in verdict.findings)


def test_sizes_with_and_without_a_result_are_both_reported(tmp_path: Path) -> None:
    suite = Suite("rfc2544", goals=(0.0,))
    suite.mlr(Device(CAPACITY), 512, 0, MOST)
    head = suite.head("throughput", 64, 0)
    suite.step(head, Device(1e9), 800_000.0, 1.0, missed=True)
    suite.result(head, 0.0, sentence=WHY)
    verdict = analyse(suite.write(tmp_path / "run"))
    assert "512 B" in verdict.sentence
    assert verdict.verdict == "doubtful"


def test_device_faster_than_the_tester_has_only_a_lower_limit(tmp_path: Path) -> None:
    suite = Suite("rfc2544", goals=(0.0,))
    suite.mlr(Device(1e9), 64, 0, 500_000.0)
    analyse(path := suite.write(tmp_path / "run"))
    assert rows_of(path)["ndr", "at_least"]["estimate"] == 500_000.0


def test_rates_that_rise_with_the_frame_are_a_finding(tmp_path: Path) -> None:
    def found(second: float) -> set[str]:
        suite = Suite("rfc2544", goals=(0.0,))
        for repetition in range(3):
            suite.mlr(Device(CAPACITY), 64, repetition, MOST)
            suite.mlr(Device(second), 512, repetition, MOST)
        return names(analyse(suite.write(tmp_path / f"run-{second:.0f}")))

    assert "rate_rises_with_size" not in found(CAPACITY * 0.8)
    assert "rate_rises_with_size" not in found(CAPACITY * 1.001)
    assert "rate_rises_with_size" in found(CAPACITY * 1.2)


@pytest.mark.parametrize(("partial", "is_found"), [(0.9, True), (0.9999995, False), (1.0, False), (1.1, False)])
def test_partial_drop_rate_below_the_zero_loss_rate_is_a_finding(partial: float, *, is_found: bool) -> None:
    def rates(name: str, goal: float, pps: float) -> Sought:
        return Sought(name, "b", 0, goal, "mlr", [Bounds(pps, pps + 1, None)] * 3, 9e9)

    found = contradicted([rates("pdr", 0.005, 1e6 * partial), rates("ndr", 0.0, 1e6)])
    assert [one.name for one in found] == ["goals_contradict"] * is_found


@pytest.mark.parametrize("runs", [100, pytest.param(250, marks=pytest.mark.proof)])
def test_rates_of_many_sizes_that_do_not_rise_are_seldom_a_finding(runs: int, proven: Callable[..., None]) -> None:
    """Seven sizes of one rate: all 21 pairs together alarm in 1 % of runs at most; a rise of three sigmas is found."""
    rng, sizes = np.random.default_rng(SEED), (64, 128, 256, 512, 1024, 1280, 1518)
    cells = {at: Factors(frame_bytes=size) for at, size in enumerate(sizes)}

    def alarms(runs: int, last: float) -> float:
        found = 0
        for _ in range(runs):
            middles = rng.normal(1.0, 0.01, (len(sizes), 6))
            middles[-1] += last
            sought = [
                Sought("ndr", "b", at, 0.0, "mlr", [Bounds(float(one), float(one), None) for one in row], 9.0)
                for at, row in enumerate(middles)
            ]
            found += bool(rises(sought, cells))
        return found / runs

    none, rise = alarms(runs, 0.0), alarms(30, 0.05)
    print(f"seed {SEED}: {none:.4f} without a rise, {rise:.3f} with one")
    proven("alarms", "a rate that rises with frame size, at 1 %", alarms=round(none * runs), of=runs)
    assert none <= 0.02
    assert rise >= 0.9


def test_trials_with_missed_load_and_local_drops_are_excluded(tmp_path: Path) -> None:
    suite = Suite("rfc2544", goals=(0.0,), sum_seconds=1.0)
    head, device = suite.head("throughput", 64, 0), Device(CAPACITY)
    suite.step(head, device, 200_000.0, 1.0, local_drops=50)
    suite.step(head, device, 150_000.0, 1.0, lost=400, missed=True)
    suite.step(head, device, 301_000.0, 1.0)
    suite.result(head, 0.0, lower_pps=200_000.0, upper_pps=301_000.0)
    verdict = analyse(path := suite.write(tmp_path / "run"))
    assert "search_disagrees" not in names(verdict)
    row = sample(path, "suite_rates").row(0, named=True)
    assert (row["pps"], row["upper_pps"]) == (200_000.0, 301_000.0)
    assert (row["trials"], row["frames"], row["seconds"]) == (1, 200_000, 1.0)
    assert row["unseen_loss"] == pytest.approx(3 / 200_000, rel=0.01)
    assert sample(path, "search_steps")["verdict"].to_list() == ["used", "missed", "used"]


def test_latency_is_reported_in_both_definitions_and_that_of_rfc_8219(tmp_path: Path) -> None:
    suite = Suite("rfc8219")
    suite.qualified(64)
    rng = np.random.default_rng(8)
    for repetition in range(8):
        suite.timed("latency", 64, repetition, 10_000 + rng.exponential(1_000, 12_000))
    verdict = analyse(path := suite.write(tmp_path / "run"))
    rows = rows_of(path)
    typical, worst = 10_000 + 1_000 * np.log(2), 10_000 + 1_000 * np.log(1_000)
    assert rows["latency_typical", "median"]["estimate"] == pytest.approx(typical, rel=0.005)
    assert rows["latency_worst", "median"]["estimate"] == pytest.approx(worst, rel=0.02)
    assert rows["pdv", "median"]["estimate"] == pytest.approx(worst - 10_000, rel=0.04)
    assert rows["latency_store_and_forward", "mean"]["estimate"] == pytest.approx(11_000, rel=0.005)
    assert rows["latency_bit_forwarding", "mean"]["estimate"] == rows["latency_store_and_forward", "mean"]["estimate"]
    assert rows["tester_delay", "p50"]["estimate"] == 5_200.0
    assert rows["ipdv", "p50"]["estimate"] == pytest.approx(0, abs=60)
    assert "too_few_frames" not in names(verdict)
    assert rows["latency_typical", "median"]["n"] == 8


def test_delay_variation_of_other_trials_has_its_own_name(tmp_path: Path) -> None:
    suite = Suite("rfc8219")
    for repetition in range(3):
        suite.timed("latency", 64, repetition, np.linspace(10_000, 20_000, 12_000))
        suite.timed("pdv", 64, repetition, np.linspace(10_000, 90_000, 12_000))
    analyse(path := suite.write(tmp_path / "run"))
    rows = json.loads((path / "analysis" / "results.json").read_text())
    told = [(row["device"], row["cell"], row["quantity"], row["statistic"]) for row in rows if "pdv" in row["quantity"]]
    assert len(told) == len(set(told))
    found = rows_of(path)
    assert found["pdv", "median"]["estimate"] < found["latency_worst", "median"]["estimate"]
    assert found["pdv_test", "median"]["estimate"] == pytest.approx(80_000, rel=0.01)
    keys = [key for column in latency(ReportRun.read(path)).columns for key in column.keys]
    assert {"pdv_median_us", "pdv_test_median_us"} <= set(keys), "the report shows both"


def test_serialisation_time_on_rated_links_is_subtracted(tmp_path: Path) -> None:
    suite = Suite("rfc2544")
    for repetition in range(3):
        suite.timed("latency", 64, repetition, np.full(12_000, 20_000.0))
    path = suite.write(tmp_path / "run")
    (path / "bed.json").write_text(json.dumps({"stable": {"line_rate_bps": 100e6}}))
    analyse(path)
    rows = rows_of(path)
    assert rows["latency_bit_forwarding", "mean"]["estimate"] == pytest.approx(20_000 - 5_120)
    assert rows["latency_store_and_forward", "mean"]["estimate"] == pytest.approx(20_000 - 2 * 5_120)


def test_lost_frames_have_infinite_delay(tmp_path: Path) -> None:
    suite = Suite("rfc8219")
    suite.timed("latency", 64, 0, np.full(12_000, 9_000.0), lost=60)
    verdict = analyse(path := suite.write(tmp_path / "run"))
    rows = rows_of(path)
    assert rows["latency_typical", "median"]["estimate"] == pytest.approx(9_000.0)
    assert rows["latency_worst", "median"]["estimate"] is None
    assert sample(path, "latency_trials")["lost"].to_list() == [60]
    assert "too_few_frames" not in names(verdict)
    assert [one["value"] for one in verdict.findings if one["name"] == "rate_not_sustained"] == [60 / 12_000]


def test_short_trial_is_reported(tmp_path: Path) -> None:
    suite = Suite("rfc8219")
    suite.timed("latency", 64, 0, np.full(400, 9_000.0))
    assert "too_few_frames" in names(analyse(suite.write(tmp_path / "run")))


def test_loss_decreases_where_the_device_keeps_up(tmp_path: Path) -> None:
    suite = Suite("rfc2544")
    for repetition in range(6):
        head = suite.head("frame-loss", 64, repetition)
        for share in (1.0, 0.9, 0.8, 0.7):
            suite.step(head, Device(CAPACITY * 0.85), share * CAPACITY, 1.0)
        suite.result(head)
    analyse(path := suite.write(tmp_path / "run"))
    curve = sample(path, "loss_curve").sort("rate_share")
    assert curve["rate_share"].to_list() == [0.7, 0.8, 0.9, 1.0]
    assert curve["loss_ratio"].to_list() == pytest.approx([0, 0, 1 - 0.85 / 0.9, 0.15], abs=0.001)
    assert curve["trials"].to_list() == [6] * 4


def test_buffer_size_is_found_with_the_correction_of_rfc_9004(tmp_path: Path) -> None:
    """A buffer of 1000 frames, filled at 1 Mpps and emptied at 300 kpps, takes bursts of 1000 / 0.7 frames."""
    suite, buffer, pace = Suite("rfc2544", goals=(0.0,)), 1_000, 1e6
    longest = buffer / (1 - CAPACITY / pace)
    for repetition in range(6):
        suite.mlr(Device(CAPACITY, room=0), 64, repetition, MOST)
        head = suite.head("back-to-back", 64, repetition)
        low, high = 1, 8_000
        while high - low > 8:
            middle = (low + high) // 2
            lost = max(0, middle - int(longest))
            for _ in range(2 if lost else 1):
                suite.step(head, Device(CAPACITY), pace, 0.0, frames=middle, lost=lost)
            low, high = (low, middle) if lost else (middle, high)
        suite.result(head)
    analyse(path := suite.write(tmp_path / "run"))
    rows = rows_of(path)
    assert rows["back_to_back_frames", "mean"]["estimate"] == pytest.approx(longest, rel=0.01)
    assert rows["buffer_time_implied", "mean"]["estimate"] == pytest.approx(longest * 1e3, rel=0.01)
    assert rows["buffer_time_corrected", "mean"]["estimate"] == pytest.approx(buffer * 1e3, rel=0.01)
    frames = [rows["back_to_back_frames", one]["estimate"] for one in ("min", "mean", "max", "sd")]
    assert frames[:3] == sorted(frames[:3])
    assert frames[3] < 0.01 * longest
    assert sample(path, "bursts").height > 50
    effects = sample(path, "suite_rates").row(0, named=True)
    assert effects["finite_trial_pps"] == pytest.approx(buffer / suite.seconds, rel=0.02)
    assert effects["resolution_pps"] == pytest.approx((effects["upper_pps"] - effects["pps"]) / 12**0.5)
    assert effects["unseen_loss"] == pytest.approx(3 / effects["frames"], rel=0.01)
    assert effects["unseen_events"] == pytest.approx(3 / effects["seconds"], rel=0.01)
    assert effects["offered_pps"] == 0, "these trials are made exactly as asked"


def test_address_capacity_is_found_from_mac_learning_trials(tmp_path: Path) -> None:
    suite = Suite("rfc2889", goals=(0.0,))
    suite.mlr(Device(CAPACITY), 64, 0, MOST, "broadcast-forwarding")
    lessons = [
        {"count": n, "asked_pps": None, "sent_pps": 1e5, "learned": min(n, 8_192)} for n in (4_096, 8_192, 8_300)
    ]
    suite.result(suite.head("address-capacity", 64, 0), extra={"lessons": lessons})
    rates = [{"count": 4_096, "asked_pps": r, "sent_pps": r, "learned": 4_096} for r in (1e4, 2e4)]
    suite.result(suite.head("learning-rate", 64, 0), extra={"lessons": rates})
    why = "does not apply: these links have no rate that could be exceeded (bed.rate)"
    suite.result(suite.head("forward-pressure", 64, 0), sentence=why)
    analyse(path := suite.write(tmp_path / "run"))
    rows = rows_of(path)
    assert rows["address_capacity", "rate"]["estimate"] == 8_192
    assert rows["address_capacity", "upper"]["estimate"] == 8_300
    assert rows["learning_rate", "at_least"]["estimate"] == 2e4
    assert rows["broadcast_ndr", "rate"]["estimate"] == pytest.approx(CAPACITY, rel=0.01)
    assert sample(path, "not_measured").select("test", "why").rows() == [("forward-pressure", why)]


def test_loads_are_classified_as_the_draft_says() -> None:
    goal = Goal(0.0, 1.0, 5.0, 0.5)

    def trials(good: int, bad: int, seconds: float = 1.0) -> list[Trial]:
        return [Trial(1e5, seconds, 0.0)] * good + [Trial(1e5, seconds, 0.1)] * bad

    assert classify(trials(3, 0), goal) is True
    assert classify(trials(2, 1), goal) is None
    assert classify(trials(3, 2), goal) is True
    assert classify(trials(2, 3), goal) is False
    assert classify(trials(40, 0, 0.1), goal) is None
    assert classify(trials(0, 40, 0.1), goal) is False
    assert classify([*trials(10, 40, 0.1)], goal) is False
    assert quantile_loss(trials(3, 2), goal) == 0.0
    assert quantile_loss(trials(2, 3), goal) == 0.1
    assert quantile_loss(trials(1, 0), goal) == 1.0


def test_loss_between_lossless_loads_bounds_them() -> None:
    """Conservative, as the draft: the lower bound lies below the lowest load that failed."""
    goal = Goal(0.0, 1.0, 1.0, 0.0)
    found = relevant_bounds([Trial(1.0, 1, 0), Trial(2.0, 1, 0.1), Trial(3.0, 1, 0)], goal)
    assert (found.lower, found.upper) == (1.0, 2.0)


def test_a_loss_counts_when_a_second_trial_repeats_it() -> None:
    once, twice = Trial(1.0, 1, 0.2), [Trial(2.0, 1, 0.1), Trial(2.0, 1, 0.3)]
    kept, aside = verified([once, Trial(1.0, 1, 0.0), *twice, Trial(1.0, 1, 0.4)], 0.0)
    assert aside == [once, Trial(1.0, 1, 0.4)]
    assert len(kept) == 3


@pytest.mark.parametrize(("beds", "each"), [(6, 1), (3, 2), (1, 6), (6, 2)])
def test_intervals_over_repetitions_cover_the_mean(beds: int, each: int) -> None:
    """A thousand made-up runs: beds differ as much as repetitions on one do; of one bed these alone are in question."""
    rng = np.random.default_rng(SEED + beds * each)
    inside, runs, sessions = 0, 1000, np.repeat(np.arange(beds), each)
    for _ in range(runs):
        bed = rng.normal(0.0, 0.003 if beds > 1 else 0.0, beds)
        found = over_repetitions(CAPACITY * (1 + bed[sessions] + rng.normal(0.0, 0.003, beds * each)), list(sessions))
        inside += not found.mean.excludes(CAPACITY)
        assert found.sessions == (beds if beds > 1 else None)
    print(f"seed {SEED}: {inside / runs:.3f} of {runs} intervals held the truth")
    assert 0.93 <= inside / runs <= 0.98  # 96.7 %; a thousand runs tell it to 1.6 points


def test_equal_repetitions_and_a_single_one_have_no_interval() -> None:
    for values, sessions in (([3.0], [0]), ([3.0, 4.0], [0, 1]), ([3.0, 3.0, 3.0], [0, 1, 2]), ([3.0] * 4, [0] * 4)):
        assert over_repetitions(np.array(values), sessions).mean.low is None


def test_medians_are_of_all_trials_and_their_intervals_of_beds() -> None:
    of_one_bed = median_over(np.arange(9.0), [0] * 9)
    assert (of_one_bed.estimate, of_one_bed.low, of_one_bed.high) == (4.0, 1.0, 7.0)
    six = median_over(np.arange(12.0), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    assert (six.estimate, six.low, six.high, six.n) == (5.5, 0.5, 10.5, 12)
    assert median_over(np.arange(10.0), [0, 1] * 5).low is None, "two beds give no estimate for a third"
    lost = median_over(np.array([1.0, 2.0, 3.0, np.inf, np.inf, np.inf, np.inf]), [0] * 7)
    assert lost.estimate == np.inf


def test_shortened_search_reports_bounds_of_two_long_trials() -> None:
    goal, lenient = Goal(0.0, 1.0), Goal(0.005, 1.0)
    short = [Trial(250.0, 0.1, 0.0)]
    trials = [Trial(100.0, 1.0, 0.0), Trial(300.0, 1.0, 0.004), Trial(200.0, 1.0, 0.0), Trial(400.0, 1.0, 0.2)]
    assert loose_bounds(trials + short, goal) == Bounds(None, 300.0, None), "one trial decides nothing"
    twice = trials + trials
    assert loose_bounds(twice + short, goal) == Bounds(200.0, 300.0, 200.0, trials=2)
    assert loose_bounds(twice, lenient) == Bounds(300.0, 400.0, 300.0 * 0.996, trials=2)
    assert loose_bounds(twice[3:4], lenient) == Bounds(None, 400.0, None)
    # A bad trial at a low load hides what was kept above it: too low, never too high.
    assert loose_bounds([*twice, Trial(150.0, 1.0, 0.5)], lenient).lower == 100.0


def test_latencies_name_their_timestamp_source(tmp_path: Path) -> None:
    suite = Suite("rfc8219")
    suite.timed("latency", 64, 0, np.full(12_000, 9_000.0))
    analyse(path := suite.write(tmp_path / "run"))
    assert "kernel" in rows_of(path)["latency_typical", "median"]["source"]


@pytest.mark.parametrize(("text", "seconds"), [("1500us", 0.0015), ("1500µs", 0.0015), ("2min", 120), ("0.5 s", 0.5)])
def test_search_durations_are_parsed_like_others(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


def test_a_duration_of_a_search_without_a_unit_is_refused() -> None:
    with pytest.raises(RequestError, match="5 is no time with a unit"):
        seconds_of("5")
