"""The least that a run measures, by which forecasts are made, is what the loop measures without any time."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.conduct import loop
from sojourn.conduct.bench import Bench, Clock, Measure
from sojourn.plan import load_plan
from sojourn.plan.sessions import batches_of, least_measured, of_one_session, sessions_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.plan import Plan
    from sojourn.plan.trial import Trial


class Counting(Bench):
    """A bench that counts trials."""

    def __init__(self) -> None:
        self.measured: list[Trial[Any]] = []

    def measure(self, trial: Trial[Any]) -> None:
        """Count the trial."""
        self.measured.append(trial)


class NoTime(Clock):
    """A clock whose time is up."""

    def has_less_than(self, seconds: float) -> bool:
        """Return True."""
        del seconds
        return True


def without_time(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Trial[Any]], int]:
    """The trials that the loop measures although no time is left, and the number of sessions."""

    @contextmanager
    def nothing(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(now=lambda: None, if_due=lambda: None)

    @contextmanager
    def begun(*_: Any) -> Iterator[Any]:
        yield lambda _: None

    @contextmanager
    def opened(*_: Any) -> Iterator[Bench]:
        yield bench

    monkeypatch.setattr(loop, "clock_trials", nothing)
    monkeypatch.setattr(loop, "batch_of", begun)
    monkeypatch.setattr(loop, "begin_to_watch", lambda _: None)
    monkeypatch.setattr(loop, "put_in_place", lambda *_: None)
    bench, trials = Counting(), plan.expand()
    sessions = sessions_for(len(batches_of(trials)), plan.bed.sessions, plan.ask.session_batches)
    screen = SimpleNamespace(begin=lambda _: None, step=lambda: None)
    site = SimpleNamespace(bed=SimpleNamespace(turns=SimpleNamespace(by_person=False)))
    for session in range(1, sessions + 1):
        left = trials[len(bench.measured) :]
        part = SimpleNamespace(owed=of_one_session(left, sessions - session + 1), to_go=0)
        one: Any = SimpleNamespace(plan=plan, part=part, screen=screen, clock=NoTime(1), site=site)
        loop.measure_trials(one, Measure(opened, lambda *_: set()), session / sessions)
    return bench.measured, sessions


@pytest.mark.parametrize(
    ("study", "sets"),
    [
        ("one-way", ["at_most=1s"]),
        ("one-way", ["at_most=1s", "rounds=3"]),
        ("one-way", ["at_most=1s", "rounds=9"]),
        ("one-way", ["at_most=1s", "bed.sessions=1"]),
        ("bridge-latency", ["at_most=1s"]),
        ("bridge-latency", ["at_most=1s", "bed.sessions=1"]),
        ("tcplog-cost", ["at_most=1min"]),
        ("bufferbloat", ["at_most=1s"]),
    ],
)
def test_loop_without_time_measures_the_least_that_is_forecast(
    study: str, sets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = load_plan(study, quick=True, sets=sets)
    least, sessions = least_measured(plan, plan.expand())
    measured, had = without_time(plan, monkeypatch)
    assert sessions == had
    assert [trial.block for trial in measured] == [trial.block for trial in least]
    assert len(least) < len(plan.expand()) or plan.bed.sessions > 1
