"""Plans with trials over TCP: their cells and order, what is refused, and that the effective plan says the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from sojourn.errors import RequestError
from sojourn.plan import Plan, load_plan
from sojourn.plan.effective import effective_toml
from sojourn.plan.tcp import AGAIN, OFF, ON

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("study", ["tcplog-truth", "tcplog-perturbation"])
@pytest.mark.parametrize("quick", [True, False])
def test_effective_plan_parses_to_the_same_plan(study: str, quick: bool, tmp_path: Path) -> None:
    plan = load_plan(study, quick=quick)
    path = tmp_path / "plan.toml"
    path.write_text(effective_toml(plan))
    again = load_plan(path)
    assert again.sections == plan.sections
    assert again.expand() == plan.expand()


def kinds(plan: Plan) -> Counter[str]:
    return Counter({trial.cell: trial.factors.kind for trial in plan.expand()}.values())


def test_study_tcplog_truth_has_message_law_and_bulk_trials() -> None:
    plan = load_plan("tcplog-truth")
    assert kinds(plan) == {"messages": 4, "law": 2, "direct": 1}
    assert len(plan.expand()) == 7 * plan.truth.repetitions
    assert set(plan.ask.pipes(plan)) == {trial.factors.pipe for trial in plan.expand() if trial.factors.pipe}
    without = load_plan("tcplog-truth", sets=["truth.direct_bytes=0", 'truth.reno_pipe=""'])
    assert kinds(without) == {"messages": 4, "law": 1}


def test_each_round_of_a_perturbation_has_every_path_in_another_order() -> None:
    plan = load_plan("tcplog-perturbation", quick=True)
    trials = plan.expand()
    rounds = [[one.factors.setting for one in trials if one.round == turn] for turn in range(plan.perturbation.rounds)]
    assert all(sorted(settings) == sorted((OFF, AGAIN, ON)) for settings in rounds)
    assert len({tuple(settings) for settings in rounds}) > 2
    assert [one.block for one in trials] == list(range(len(trials)))


@pytest.mark.parametrize("study", ["tcplog-truth", "tcplog-perturbation"])
def test_the_quick_form_takes_a_minute(study: str) -> None:
    plan = load_plan(study, quick=True)
    assert plan.ask.estimate(plan, plan.expand()).measuring_ns < 55e9


@pytest.mark.parametrize(
    ("study", "words", "said"),
    [
        ("tcplog-truth", "bed.devices=bridge", 'expected \\["emulate"\\] for tcp-truth'),
        ("tcplog-perturbation", "perturbation.skip=10s", "less than perturbation.duration"),
        ("tcplog-truth", "perturbation.rounds=3", "no meaning"),
    ],
)
def test_invalid_plans_are_refused(study: str, words: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        load_plan(study, sets=[words])
