"""Poisson departures: one rule for streams and probes, its false alarms, its power, and its place in the report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.finding import Place
from sojourn.analysis.poisson import MISFIT_LEVEL, Fitted
from sojourn.report.contents import all_tables
from sojourn.report.run import Run as ReportRun
from sojourn.statistics import anderson
from sojourn.statistics.anderson import exponential
from tests.unit.synthetic_streams import Trial, cell
from tests.unit.test_streams import found, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEED = 20260101


@pytest.mark.parametrize("n", [8, 40, 1000])
def test_exponential_gaps_fail_at_the_stated_level(n: int) -> None:
    rng = np.random.default_rng(SEED + n)
    fits = [exponential(rng.exponential(1e6, n)) for _ in range(4000)]
    for level in (0.01, 0.05, 0.2):
        share = float(np.mean([fit.p < level for fit in fits if fit is not None]))
        print(f"seed {SEED + n}: {share:.4f} of p are below {level}")
        assert 0.75 * level <= share <= 1.25 * level


@pytest.mark.parametrize(
    ("a2_modified", "p"), [(0.816, 0.20), (0.916, 0.15), (1.062, 0.10), (1.321, 0.05), (1.591, 0.025), (1.959, 0.01)]
)
def test_p_value_equals_the_table_of_stephens(a2_modified: float, p: float) -> None:
    assert anderson._exponential_p(a2_modified) == pytest.approx(p, rel=0.06)


def test_regular_gaps_fail_and_too_few_are_not_tested() -> None:
    rng = np.random.default_rng(SEED)
    regular = exponential(1e6 + rng.normal(0, 1e4, 40))
    assert regular is not None
    assert regular.p < 1e-6
    assert exponential(rng.exponential(1e6, 7)) is None


def of_cell(failed: int, trials: int) -> Fitted:
    return Fitted(Place("direct", 0), trials, failed, 2.0, 0.001)


def test_one_test_uses_its_level_and_many_are_corrected_for_their_number() -> None:
    """Of one stream, as by hand: p < 0.01. Of twenty good trials one in five runs has a failure, which says nothing."""
    assert of_cell(1, 1).chance == pytest.approx(MISFIT_LEVEL)
    assert of_cell(1, 20).chance > 0.1
    assert of_cell(4, 20).chance < MISFIT_LEVEL
    assert of_cell(0, 20).chance == 1


def poisson(keep: float) -> Callable[[Any, Any, Any], None]:
    """Departures at exponential times, or at times that are half exponential and half regular."""

    def alter(block: dict[str, Any], probes: dict[str, Any], rng: np.random.Generator) -> None:
        block["schedule"] = "poisson"
        gaps = keep * rng.exponential(block["interval_ns"], len(probes["seq"])) + (1 - keep) * block["interval_ns"]
        at = block["started_ns"] + np.cumsum(gaps).astype(np.int64)
        moved = at - probes["intended_ns"]
        for name in ("intended_ns", "send_call_ns", "departure_ns", "arrival_ns", "receive_call_ns"):
            probes[name] = probes[name] + moved

    return alter


@pytest.mark.parametrize(("keep", "is_found"), [(1.0, False), (0.5, True)])
def test_non_poisson_probes_are_a_finding(synthetic: Callable[..., Any], keep: float, is_found: bool) -> None:
    path: Path = synthetic(rounds=12, icmp_bytes=(64,), alter=poisson(keep)).write()
    analyse(path)
    names = {one["name"] for one in json.loads((path / "analysis/verdict.json").read_text())["findings"]}
    assert ("poisson_misfit" in names) == is_found
    [table] = [one for one in all_tables(ReportRun.read(path)) if one.name == "poisson_fit"]
    assert [row[1].text for row in table.rows] == ["direct", "bridge", "a/a"]
    assert all(row[2].text == "24" for row in table.rows)
    assert all((int(row[3].text) > 3) == is_found for row in table.rows)
    assert all((float(row[-1].text) <= MISFIT_LEVEL) == is_found for row in table.rows)


def without_stamps(block: dict[str, Any], probes: dict[str, Any], rng: np.random.Generator) -> None:
    """A true Poisson process whose driver holds frames for long, and stamps one that follows another closely never."""
    poisson(1.0)(block, probes, rng)
    gaps = np.diff(probes["intended_ns"], prepend=probes["intended_ns"][0])
    has_stamp = gaps > block["interval_ns"] / 2
    probes["send_call_ns"] = np.array(probes["intended_ns"])
    held = np.where(has_stamp, 3 * block["interval_ns"], 0)
    probes["departure_ns"] = probes["send_call_ns"] + held
    for name in ("arrival_ns", "receive_call_ns"):
        probes[name] = probes[name] + 3 * block["interval_ns"]
    probes["departure_source"] = ["kernel" if one else "user" for one in has_stamp]


def refused(block: dict[str, Any], probes: dict[str, Any], rng: np.random.Generator) -> None:
    """What is left where our own machine refuses each second probe: times between departures are sums of two."""
    poisson(1.0)(block, probes, rng)
    gaps = rng.exponential(block["interval_ns"], (2, len(probes["seq"]))).sum(axis=0)
    moved = block["started_ns"] + np.cumsum(gaps).astype(np.int64) - probes["intended_ns"]
    for name in ("intended_ns", "send_call_ns", "departure_ns", "arrival_ns", "receive_call_ns"):
        probes[name] = probes[name] + moved
    block["local_drops"] = len(probes["seq"])
    block["count"] = block["sent"] + block["local_drops"]


def replies_dropped(block: dict[str, Any], probes: dict[str, Any], rng: np.random.Generator) -> None:
    """A true Poisson process whose replies our own machine drops now and then: all departures are known."""
    poisson(1.0)(block, probes, rng)
    block["local_drops"] = 3


@pytest.mark.parametrize(("alter", "tested"), [(without_stamps, 24), (refused, 0), (replies_dropped, 24)])
def test_incomplete_departures_are_not_tested_as_if_complete(
    synthetic: Callable[..., Any], alter: Callable[..., None], tested: int
) -> None:
    path: Path = synthetic(rounds=12, icmp_bytes=(64,), alter=alter).write()
    analyse(path)
    names = {one["name"] for one in json.loads((path / "analysis/verdict.json").read_text())["findings"]}
    assert "poisson_misfit" not in names
    tables = [one for one in all_tables(ReportRun.read(path)) if one.name == "poisson_fit"]
    assert [row[2].text for table in tables for row in table.rows] == ([str(tested)] * 3 if tested else [])


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_streams_use_the_same_poisson_test_and_table(tmp_path: Path, share: float) -> None:
    """One trial of a path fails, as one of a good run may; or every second one does."""
    alone = iter([True])

    def alter(trial: Trial, rng: np.random.Generator) -> None:
        is_bad = rng.random() < share if share else next(alone, False)
        trial.fit_p = 0.004 if is_bad else 0.3

    rows = run(tmp_path, "one-way", [cell(schedule="poisson")], alter=alter, rounds=8)
    assert ("poisson_misfit" in found(tmp_path)) == bool(share)
    trials = {row["n"] for row in rows if row["quantity"] == "poisson_fit"}
    assert trials == {16}
    [table] = [one for one in all_tables(ReportRun.read(tmp_path / "run")) if one.name == "poisson_fit"]
    assert sum(int(row[3].text) for row in table.rows) == 1 or share


def test_a_run_without_a_poisson_schedule_has_no_such_table(synthetic: Callable[..., Any]) -> None:
    path: Path = synthetic(rounds=8, icmp_bytes=(64,)).write()
    analyse(path)
    assert "poisson_fit" not in {one.name for one in all_tables(ReportRun.read(path))}
