"""Budgets of delays, emulators, rates and the cost of a log: known components are found, and U holds the truth."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.budget import Stated, counted
from sojourn.analysis.factors import Factors
from sojourn.analysis.rate_budget import received_budget, search_budget
from sojourn.analysis.rows import Row
from sojourn.analysis.run import load as load_run
from sojourn.analysis.stream_budget import clocks, scatter_of
from sojourn.statistics.budget import Component, combine
from sojourn.statistics.interval import Interval, student_quantile
from tests.unit.made_up_costs import Machine
from tests.unit.made_up_costs import write as write_costs
from tests.unit.made_up_emulator import Cell, Made, constant, stays
from tests.unit.synthetic_streams import StreamRun, Trial, cell

if TYPE_CHECKING:
    from pathlib import Path

Told = dict[str, Any]
COVERS = (0.93, 0.97)


def budgets_of(folder: Path) -> list[Told]:
    analyse(folder)
    return list(json.loads((folder / "analysis" / "budgets.json").read_text()))


def parts_of(budget: Told) -> dict[str, Told]:
    return {one["name"]: one for one in budget["components"]}


def two_clocks(ahead_ns: int) -> Told:
    """A receiver whose clock is ahead, and exchanges that tell it to a maximum error of 900 ns and 80 ns at 95 %."""

    def apart(trial: Trial, _: np.random.Generator) -> None:
        trial.delay = trial.delay + ahead_ns

    def lines(trial: Trial) -> list[Told]:
        start = int(trial.intended[0])
        return [{"block": trial.block, "peer": "b", "shared": False, "from_ns": start, "to_ns": start + 10**10,
                 "reference_ns": start, "offset_ns": float(ahead_ns), "skew_ppb": 0.0, "bound_ns": 900.0,
                 "error95_ns": 80.0, "clock_id": 8, "skew_bound_ppb": 0.0, "skew95_ppb": 0.0,
                 "exchanges": 64}]  # fmt: skip

    return {"alter": apart, "lines": lines, "shared": False}


def test_two_clocks_add_scatter_and_an_unmeasured_asymmetry(tmp_path: Path) -> None:
    (one,) = budgets_of(StreamRun(tmp_path / "run", "one-way", [cell()], **two_clocks(250_000_000)).write())
    parts = parts_of(one)
    assert parts["offset of the clocks"]["contribution"] == pytest.approx(160 / 1.959964, rel=1e-5)
    assert parts["asymmetry of the exchanges, slews"]["contribution"] == pytest.approx((1800 - 160) / 3**0.5)
    assert one["expanded"] > 2 * one["interval_half_width"]
    assert parts["resolution of timestamps"]["contribution"] == pytest.approx(2 / 12**0.5)


def test_one_clock_has_no_offset(tmp_path: Path) -> None:
    (one,) = budgets_of(StreamRun(tmp_path / "run", "one-way", [cell()]).write())
    assert parts_of(one)["offset of the clocks"]["state"] == "cancels"
    assert one["expanded"] == pytest.approx(one["interval_half_width"], rel=1e-3)
    assert abs(one["estimate"] - 1500) < one["expanded"]


def row_of(estimate: float, half: float, n: int, unit: str = "ns", **more: Any) -> Row:
    return Row(
        "bridge", "x", "mean", Interval(estimate, estimate - half, estimate + half, 0.95, n), unit, None, Factors(),
        **more,
    )  # fmt: skip


@pytest.mark.parametrize("runs", [2000, pytest.param(20000, marks=pytest.mark.proof)])
@pytest.mark.parametrize(("trials", "bound", "error95"), [(8, 120.0, 80.0), (16, 60.0, 40.0), (6, 90.0, 30.0)])
def test_budget_of_a_delay_by_two_clocks_covers_the_truth(trials: int, bound: float, error95: float, runs: int) -> None:
    """Scatter of trials, an offset that is normal, and an asymmetry anywhere within what the bound leaves."""
    rng = np.random.default_rng(trials)
    delays = rng.normal(0, 100, (runs, trials))
    means, reach = delays.mean(axis=1), student_quantile(trials - 1, 0.95) * delays.std(axis=1, ddof=1) / trials**0.5
    means = means + rng.normal(0, error95 / 1.959964, runs) + rng.uniform(error95 - bound, bound - error95, runs)
    held = 0
    for mean, half in zip(means, reach, strict=True):
        row = row_of(mean, half, trials, clock_bound_ns=bound, clock_error95_ns=error95)
        budget = Stated("x", row, (*scatter_of([], row, "trials"), *clocks(row))).budget
        assert budget is not None
        held += abs(mean) <= budget.expanded
    print(f"{trials} trials, bound {bound}, error {error95}: {held / runs:.4f}")
    assert COVERS[0] <= held / runs <= COVERS[1]


def test_the_error_of_an_emulated_delay_counts_trials_of_both_paths(tmp_path: Path) -> None:
    made = Made([Cell("delay 20ms", constant(20 * 10**6), stays(20 * 10**6), packets=400)], rounds=6, path_ns=4_000)
    (one,) = budgets_of(made.write(tmp_path / "run"))
    parts = parts_of(one)
    emulated, direct = (parts[f"scatter of trials over the {path}"] for path in ("emulator", "direct link"))
    assert (emulated["sensitivity"], direct["sensitivity"]) == (1.0, -1.0)
    assert emulated["degrees_of_freedom"] == direct["degrees_of_freedom"]
    assert abs(one["estimate"] - 4_000 - 2_000) < one["expanded"]
    assert "4.1 µs of the figure" in parts["path outside the emulator"]["source"]
    assert "can differ by 10.0 µs" in parts["rate of the clock"]["source"]


@pytest.mark.parametrize("runs", [4000, pytest.param(40000, marks=pytest.mark.proof)])
@pytest.mark.parametrize(("trials", "floor"), [(4, 30.0), (8, 100.0), (8, 10.0)])
def test_budget_of_the_difference_of_two_paths_covers_the_truth(trials: int, floor: float, runs: int) -> None:
    """Trials that scatter by 100 ns over the emulator and by `floor` over the direct link."""
    rng = np.random.default_rng(int(floor))
    own, direct = rng.normal(0, 100, (runs, trials)), rng.normal(0, floor, (runs, trials))
    difference = own.mean(axis=1) - direct.mean(axis=1)
    errors = [one.std(axis=1, ddof=1) / trials**0.5 for one in (own, direct)]
    held = sum(
        abs(d) <= combine([Component("a", "A", a, "ns", degrees=trials - 1),
                           Component("b", "A", b, "ns", sensitivity=-1.0, degrees=trials - 1)]).expanded
        for d, a, b in zip(difference, *errors, strict=True)
    )  # fmt: skip
    print(f"{trials} trials, floor {floor}: {held / runs:.4f}")
    assert COVERS[0] <= held / runs <= COVERS[1]


RATE: Told = {
    "goal": 0.0, "algorithm": "mlr", "upper_pps": 300_900.0, "offered_off": 1e-4, "trials": 5, "frames": 10**6,
    "unseen_loss": 3e-6,
}  # fmt: skip


@pytest.fixture(scope="module")
def some_run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load_run(StreamRun(tmp_path_factory.mktemp("some") / "run", "throughput", [cell()], rounds=3).write())


def test_search_bracket_is_a_component_and_decision_risk_is_not(some_run: Any) -> None:
    stated = search_budget(some_run, [], row_of(300_000.0, 500.0, 7, "1/s"), RATE)
    found = {one.name: one for one in stated.entries}
    bracket, offered = found["bracket of the search"].component, found["offered rate"].component
    assert bracket is not None
    assert offered is not None
    assert bracket.contribution == pytest.approx(900 / 3**0.5)
    assert offered.contribution == pytest.approx(30 / 3**0.5)
    assert found["risk of the loss decision"].state == "outside"
    assert stated.budget is not None
    assert stated.budget.expanded > 900


@pytest.mark.parametrize("runs", [2000, pytest.param(20000, marks=pytest.mark.proof)])
@pytest.mark.parametrize("width", [200.0, 400.0])
def test_budget_of_a_search_covers_the_sustainable_rate(some_run: Any, width: float, runs: int) -> None:
    """Repetitions that scatter by 1,000/s about a lower bound, above which the truth lies anywhere in the bracket."""
    rng = np.random.default_rng(int(width))
    lowers, above = rng.normal(300_000, 1000, (runs, 7)), rng.uniform(0, width, runs)
    held = 0
    for mine, more in zip(lowers, above, strict=True):
        half = student_quantile(6, 0.95) * mine.std(ddof=1) / 7**0.5
        row = row_of(float(mine.mean()), half, 7, "1/s")
        sample = RATE | {"upper_pps": row.value.estimate + width, "offered_off": 0.0}
        budget = search_budget(some_run, [], row, sample).budget
        assert budget is not None
        held += abs(row.value.estimate - 300_000 - more) <= budget.expanded
    print(f"bracket {width}: {held / runs:.4f}")
    assert COVERS[0] <= held / runs <= COVERS[1]


def test_budget_of_a_tester_limited_rate_lists_the_limit_as_unknown(some_run: Any) -> None:
    row = row_of(1e6, 1e3, 8, "1/s")
    row.statistic = "at_least"
    found = {one.name: one for one in received_budget(some_run, [], row).entries}
    assert found["limit of the tester"].state == "unknown"


def test_the_cost_of_a_log_has_a_component_for_each_number_of_flows(tmp_path: Path) -> None:
    folder = write_costs(tmp_path / "run", Machine(noise=0.03, left={1: 0.9}), ["flows=1,10", "path=gso"])
    ratio, received, sent = budgets_of(folder.path)
    parts = parts_of(ratio)
    assert parts["scatter of pairs, 1 flow"]["sensitivity"] == pytest.approx(ratio["estimate"] / 2)
    assert abs(ratio["estimate"] - 0.9) <= ratio["expanded"]
    assert ratio["expanded"] <= ratio["interval_half_width"]
    assert "cells" in ratio["interval_of"]
    for one, truth in ((received, 190.0), (sent, 290.0)):
        assert abs(one["estimate"] - truth) <= max(one["expanded"], 5.0)
        assert parts_of(one)["clock of the kernel's statistics"]["state"] == "cancels"


def test_a_component_of_a_logarithm_is_scaled_by_the_ratio() -> None:
    """d exp(x) = exp(x) dx: 10 % of a ratio of 0.5 is 0.05."""
    row = row_of(0.5, 0.1, 8, "1")
    stated = Stated("x", row, (counted(Component("pairs", "A", 0.1, "1", "student-t", 0.5, 7), ""),))
    assert stated.budget is not None
    assert stated.budget.combined == pytest.approx(0.05)
