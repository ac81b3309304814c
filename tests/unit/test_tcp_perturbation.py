"""Connections with the log and without: no difference is seen where there is none, and one that is there is found."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.run import load as load_run
from sojourn.analysis.tcp_trials import Done, trials_of
from sojourn.methods.tcp_perturbation.analyse import (
    AGAIN,
    ON,
    Seen,
    adjust,
    collapses,
    compare,
    sentence,
    smallest,
)
from sojourn.plan import load_plan
from sojourn.plan.effective import effective_toml
from sojourn.records import TABLES
from sojourn.report import write_report
from sojourn.statistics import permutation
from tests.unit.made_up_tcp import write_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROUNDS = 9
SESSIONS_SEED = 20070825
NAMES = ("snd_cwnd", "srtt_us", "delivery_rate_bps")


def wandering(rng: np.random.Generator, length: int, memory: float) -> np.ndarray:
    """Samples that depend on the ones before."""
    noise = rng.normal(0, 1, length)
    found = np.empty(length)
    value = rng.normal() / (1 - memory**2) ** 0.5
    for place in range(length):
        value = memory * value + noise[place]
        found[place] = value
    return found


def trial(rng: np.random.Generator, drift: float, shift: float) -> Seen:
    """One trial: everything wanders slowly, and more in some trials than in others."""
    level = 30 * (1 + shift) * (1 + drift) * float(np.exp(rng.normal(0, 0.03)))
    series = {name: level + wandering(rng, 80, 0.95) for name in NAMES}
    rate = float(np.mean(series["snd_cwnd"]))
    return Seen(
        series, {"throughput_bps": rate * 1e6, "retransmitted": float(rng.poisson(20)), "window_collapses": 0.0}
    )


def test_cwnd_fall_to_two_segments_counts_as_one_collapse() -> None:
    windows = np.array([1, 2, 4, 30, 30, 1, 1, 2, 4, 8, 12, 3, 2, 9, 10], dtype=float)
    assert collapses(windows) == 2, "a connection that begins with a small window has not collapsed"


def test_collapses_in_only_one_setting_are_reported_relative_to_the_usual_number() -> None:
    done, seen = cell(3, 0.0, 24)
    rng = np.random.default_rng(4)
    for one in done:
        seen[one.block].single["window_collapses"] = float(rng.poisson(2.0 if one.setting == ON else 0.2))
    compared = compare(done, seen)
    adjust(compared)
    (found,) = (one for one in compared if one.name == "window_collapses" and one.against == ON)
    assert found.differs
    assert found.level["median"] > 0, "the mean, for most trials without the log have none"
    (change,) = found.changes
    assert change.value.estimate > 1, "several times as many"
    (control,) = (one for one in compared if one.name == "window_collapses" and one.against == AGAIN)
    assert not control.differs


def test_relative_change_is_never_below_minus_100_percent() -> None:
    """Collapses on one bed of two rounds, of four beds of 3, 2, 2 and 2: with the log there are none."""
    done, seen = cell(3, 0.0, 9)
    beds = [0, 0, 0, 1, 1, 2, 2, 3, 3]
    done = [replace(one, session=beds[one.round]) for one in done]
    for one in done:
        seen[one.block].single["window_collapses"] = 2.0 * (one.setting == "off" and one.session == 1)
    (found,) = (one for one in compare(done, seen) if one.name == "window_collapses" and one.against == ON)
    assert found.level["median"] == pytest.approx(0.5), "each bed counts once"
    assert found.effects["median"].estimate == pytest.approx(-1)
    assert found.effects["median"].low == -1


def cell(seed: int, shift: float, rounds: int = ROUNDS) -> tuple[list[Done], dict[int, Seen]]:
    """Every round's three trials, with a drift of the machine that all of a round share."""
    rng = np.random.default_rng(seed)
    done: list[Done] = []
    seen: dict[int, Seen] = {}
    for turn in range(rounds):
        drift = 0.1 * np.sin(turn) + rng.normal(0, 0.05)
        for setting in ("off", AGAIN, ON):
            block = len(done)
            done.append(Done(block, "perturbation", 0, "cubic", "delay 5ms", "emulate", turn, setting, (), None, 0))
            seen[block] = trial(rng, drift, shift if setting == ON else 0.0)
    return done, seen


@pytest.mark.parametrize("seeds", [30, pytest.param(100, marks=pytest.mark.proof)])
def test_no_difference_is_seen_where_there_is_none(seeds: int, proven: Callable[..., None]) -> None:
    clean = 0
    for seed in range(seeds):
        compared = compare(*cell(seed, 0.0))
        own = [one for one in compared if one.against == ON]
        clean += min(permutation.holm([one.p for one in own])) >= 0.05
    proven("alarms", "a log that changes TCP, at 5 %", alarms=seeds - clean, of=seeds)
    assert clean / seeds >= 0.93, f"{clean} of {seeds}"


@pytest.mark.parametrize("seed", range(5))
def test_a_difference_is_found_and_the_control_stays_clean(seed: int) -> None:
    compared = compare(*cell(seed, 0.5))
    own = [one for one in compared if one.against == ON and one.name in NAMES]
    assert all(one.p <= 0.01 for one in own)
    window = next(one for one in own if one.name == "snd_cwnd").effects["median"]
    assert window.low is not None
    assert window.high is not None
    assert window.low < 0.52
    assert window.high > 0.45
    control = [one.p for one in compared if one.against == AGAIN]
    assert min(permutation.holm(control)) > 0.01


def test_minimum_detectable_effect_is_found_with_the_stated_power() -> None:
    least = float(np.median([compare(*cell(seed, 0.0, 10))[0].least["median"] for seed in range(8)]))
    found = sum(compare(*cell(100 + seed, least, 10))[0].p < 0.05 for seed in range(30))
    assert 18 <= found <= 30, f"{found} of 30 at {least:.3f}"


def test_distributions_of_different_width_differ_significantly_and_equal_ones_do_not() -> None:
    rng = np.random.default_rng(1)
    plain = [rng.normal(0, 1, 200) for _ in range(10)]
    wide = [rng.normal(0, 2, 200) for _ in range(10)]
    apart = permutation.apart(wide, plain)
    assert apart.energy_p <= 2 / 2**10 + 1e-12
    assert apart.kolmogorov > 0.1
    assert permutation.apart(plain, [one.copy() for one in plain]).energy_p == 1.0
    assert permutation.least_p(10) == 2 / 2**10


def test_holm_correction_depends_on_order_and_number_of_tests() -> None:
    assert permutation.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert permutation.holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])


GAP = {"why": "the cgroup /sys/fs/cgroup/a was removed", "after_ns": 1, "before_ns": 2}


def made_up_run(path: Path, shift: float, gaps: int = 0) -> None:
    """A whole run folder of the quick study; the log of the last so many trials with it was interrupted."""
    plan = load_plan("tcplog-perturbation", quick=True)
    rng = np.random.default_rng(11)
    (path / "records").mkdir(parents=True)
    (path / "plan.toml").write_text(effective_toml(plan))
    (path / "bed.json").write_text("{}")
    rows, events = [], []
    for one in plan.expand():
        start = 1_000_000_000_000 + one.block * 3_000_000_000
        seen = trial(rng, 0.02 * one.round, shift if one.factors.setting == ON else 0.0)
        for place in range(100):
            at = start + (place + 1) * 10_000_000
            values = {name: int(seen.series[name][min(place, 79)] * 1000) for name in NAMES}
            acked = int(seen.single["throughput_bps"] / 8 * (place + 1) / 100)
            rows.append({
                "block": one.block, "connection": 0, "role": "send", "why": "time", "number": place, "socket_cookie": 1,
                "local_address": "10.0.0.1", "local_port": 1, "remote_address": "10.0.0.2", "remote_port": 2,
                "intended_ns": at, "read_before_ns": at, "read_after_ns": at, "info_bytes": 280,
                "acked_bytes": acked, "total_retrans": place // 10, **values,
            })  # fmt: skip
        connection = {"started_ns": start, "ended_ns": start + 1_010_000_000}
        events.append(
            {
                "event": "tcp-trial",
                **asdict(one.factors),
                "block": one.block,
                "cell": one.cell,
                "path": one.path,
                "round": one.round,
                "connections": [connection],
                "logged": {"records": 9, "interruption": None} if one.factors.setting == ON else None,
            }
        )
    with_log = [event for event in events if event["logged"]]
    for event in with_log[len(with_log) - gaps :]:
        event["logged"] |= {"interruption": GAP}
    (path / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in [*events, {"event": "finished"}]))
    kinds = {"int32": pl.Int32, "int64": pl.Int64, "float64": pl.Float64, "bool": pl.Boolean}
    schema = {name: kinds.get(one.type, pl.String) for name, one in TABLES["tcp_readings"].items()}
    filled = [dict.fromkeys(schema) | row for row in rows]
    write_table(path / "records" / "tcp_readings-a-000.arrow", "tcp_readings", pl.DataFrame(filled, schema=schema))


@pytest.mark.parametrize(("shift", "said"), [(0.0, "no change is detected"), (0.4, "TCP behaves differently")])
def test_run_has_a_verdict_sentence_and_a_report(tmp_path: Path, shift: float, said: str) -> None:
    made_up_run(tmp_path / "run", shift)
    verdict = analyse(tmp_path / "run")
    assert said in verdict.sentence, verdict.sentence
    assert "the control (two measurements without the log) does not differ" in verdict.sentence
    page = write_report(tmp_path / "run", vector=True).read_text()
    assert (tmp_path / "run/report/tables/effects.csv").is_file()
    assert "without it again" in page


@pytest.mark.parametrize("gaps", [0, 1, 2])
def test_trial_whose_log_has_a_gap_is_excluded_and_reported(tmp_path: Path, gaps: int) -> None:
    made_up_run(tmp_path / "run", 0.0, gaps)
    verdict = analyse(tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert len(trials_of(run)) == len(load_plan("tcplog-perturbation", quick=True).expand()) - gaps
    found = [one for one in verdict.findings if one["name"] == "log_interrupted"]
    assert [(one["severity"], one["value"]) for one in found] == [("doubtful", gaps)] * (gaps > 0)
    assert all(GAP["why"] in one["sentence"] for one in found)


def test_many_tests_detect_only_larger_effects() -> None:
    differences = np.random.default_rng(3).normal(0, 1, 24)
    alone, among = smallest(differences), smallest(differences, 20)
    assert among == pytest.approx(alone * (3.420 + 0.858) / (2.069 + 0.858), rel=0.02)
    least = [compare(*cell(5, 0.0), questions)[0].least["median"] for questions in (1, 20)]
    assert least[1] > least[0]


def test_false_differences_are_rare_and_never_have_an_interval_with_zero() -> None:
    seeds, said = 100, 0
    for seed in range(seeds):
        compared = compare(*cell(1000 + seed, 0.0))
        adjust(compared)
        changes = [one for it in compared if it.against == ON for one in it.changes]
        assert all(one.value.excludes(0) for one in changes)
        said += "behaves differently" in sentence(compared)
    print(f"{said} of {seeds} runs without a difference say that there is one")
    assert said / seeds <= 0.08


@pytest.mark.parametrize("shift", [0.5, -0.4])
def test_true_difference_is_reported_with_an_interval_without_zero(shift: float) -> None:
    for seed in range(10):
        compared = compare(*cell(seed, shift))
        adjust(compared)
        said = sentence(compared)
        assert "TCP behaves differently" in said, said
        change = min((one for it in compared if it.against == ON for one in it.changes), key=lambda one: one.q)
        assert change.value.excludes(0)
        assert (change.value.estimate > 0) == (shift > 0)


def test_different_distribution_without_changed_figures_is_not_a_change() -> None:
    """Twice the spread about the same median: the 95th percentiles are held alike, so that no figure changes."""
    done, seen = cell(4, 0.0)
    rng = np.random.default_rng(12)
    plain, wide = (
        np.concatenate([np.full(10, 20.0), np.linspace(30 - spread, 30 + spread, 80), np.full(10, 40.0)])
        for spread in (1, 8)
    )
    for one in done:
        series = wide if one.setting == ON else plain
        seen[one.block] = Seen(
            {name: series + rng.normal(0, 0.05) for name in NAMES},
            {
                "throughput_bps": 30e6 + rng.normal(0, 1e5),
                "retransmitted": 20.0 + rng.normal(0, 0.1),
                "window_collapses": 0.0,
            },
        )
    compared = compare(done, seen)
    adjust(compared)
    assert any(one.differs for one in compared if one.against == ON)
    said = sentence(compared)
    assert "behaves differently" not in said
    assert "no change of a figure is significant, though the distribution of the" in said, said


def test_change_that_differs_between_beds_has_an_interval_over_beds(monkeypatch: pytest.MonkeyPatch) -> None:
    """On each bed the log changes windows by another amount, 0 on average: rounds alone would report it."""
    monkeypatch.setattr(permutation, "DRAWN", 200)  # chances are not looked at here, and take most of the time
    rng = np.random.default_rng(SESSIONS_SEED)
    alarms = {"rounds": 0, "beds": 0}
    runs, beds = 60, 5
    for run in range(runs):
        done: list[Done] = []
        seen: dict[int, Seen] = {}
        for bed, shift in enumerate(rng.normal(0, 0.2, beds)):
            own, found = cell(1000 * run + bed, float(shift), 4)
            for one in own:
                block = len(done)
                done.append(replace(one, block=block, round=4 * bed + one.round, session=bed))
                seen[block] = found[one.block]
        for what, several in (("beds", done), ("rounds", [replace(one, session=0) for one in done])):
            compared = [one for one in compare(several, seen) if one.against == ON and one.name == "snd_cwnd"]
            alarms[what] += compared[0].effects["median"].excludes(0)
            assert compared[0].sessions == (beds if what == "beds" else None)
    print(f"seed {SESSIONS_SEED}: {alarms} of {runs} runs")
    assert alarms["beds"] <= 0.12 * runs
    assert alarms["rounds"] > 0.25 * runs
