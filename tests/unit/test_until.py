"""Runs that go on until their headline's interval is narrow: what ends them, what is recorded, how they resume."""

from __future__ import annotations

import io
import json
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.analysis.look import looked
from sojourn.analysis.stopping import ended
from sojourn.conduct import Interrupted, Screen, conduct, create_folder, resume
from sojourn.conduct import until as ending
from sojourn.conduct.archive import Log, asked_in
from sojourn.errors import MachineError, RequestError
from sojourn.plan import load_plan
from sojourn.records import read_table
from sojourn.records.folder import open_folder
from sojourn.records.log import read_log
from sojourn.records.lost import BEGUN
from tests.unit.in_process import sojourn
from tests.unit.test_conduct import fake  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sojourn.plan import Plan
    from sojourn.records import RunFolder

SMALL = ("rounds=4", "bed.sessions=2", "devices=bridge", "icmp_bytes=64", "probes_per_block=6", "warmup_probes=1")


def plan_until(*sets: str) -> Plan:
    every = ["bed.twins=false", "study.until=±5%", "bed.most_sessions=12", *SMALL, *sets]
    return load_plan("bridge-latency", backend="sim", sets=every)


def enough_at(sessions: int) -> Callable[[RunFolder], dict[str, Any]]:
    """An analysis that finds the interval narrow enough after so many sessions."""

    def look(folder: RunFolder) -> dict[str, Any]:
        there = len({one["part"] for one in read_log(folder.log) if one["event"] == "started"})
        told = {"sessions": there, "half": 2.0, "target": 1.0, "sentence": "1 µs ± 2", "needed": sessions}
        return told | {"enough": there >= sessions}

    return look


def measured(folder: RunFolder, plan: Plan, screen: io.StringIO | None = None) -> list[dict[str, Any]]:
    conduct(plan, folder, Screen(screen or io.StringIO()))
    return read_log(folder.log)


def beds(folder: RunFolder) -> list[int]:
    blocks = read_table(folder.records, "blocks").frame
    return sorted(blocks["part"].unique().to_list())


def test_plan_with_sequential_stopping_has_the_maximum_number_of_sessions() -> None:
    plan = plan_until("at_most=10s")
    assert (plan.bed.sessions, plan.bed.most_sessions, plan.pairs.rounds) == (12, 12, 24)
    assert plan.pairs.at_most_ns == 60_000_000_000
    assert load_plan("bridge-latency", sets=["study.until=5%"]).bed.sessions == 100
    shorter = load_plan("bridge-latency", backend="sim", sets=["bed.twins=false", *SMALL]).expand()
    assert [trial for trial in plan.expand() if trial.round < 4] == list(shorter)


@pytest.mark.parametrize(
    ("study", "sets", "said"),
    [
        ("bridge-latency", ["study.until=5"], "study.until = 5: expected half the width of an interval"),
        ("bridge-latency", ["bed.most_sessions=20"], "study.until or study.budget beside it"),
        ("rfc2544", ["study.budget=2h"], "none for rfc2544, whose rounds are not divided over sessions"),
        (
            "bridge-latency",
            ["study.until=5%", "sessions=1", "rounds=2000"],
            "bed.most_sessions = 100: expected at most 50 with 2000 pairs.rounds a session",
        ),
        ("loss", ["study.until=±5%"], "none for loss, which has no one headline figure"),
        ("rfc2544", ["study.until=±5%"], "none for rfc2544"),
    ],
)
def test_a_plan_that_cannot_end_by_an_interval_is_refused(study: str, sets: list[str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        load_plan(study, sets=sets)


def test_narrow_interval_ends_the_run_and_its_plan_states_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "look", enough_at(3))
    folder, told = create_folder(plan_until(), tmp_path / "run"), io.StringIO()
    log = measured(folder, plan_until(), told)
    assert beds(folder) == [0, 1, 2]
    assert [one["ends"] for one in log if one["event"] == "looked"] == [None, None, "interval"]
    (stopped,) = [one for one in log if one["event"] == "stopped"]
    assert (stopped["by"], stopped["sessions"], stopped["rounds"], stopped["asked"]) == ("interval", 3, 6, 24)
    assert log[-1]["event"] == "finished"
    again = load_plan(folder.plan)
    assert (again.study.until, again.bed.sessions, again.pairs.rounds) == ("±5%", 3, 6)
    assert sorted(read_table(folder.records, "blocks").frame["block"]) == [one.block for one in again.expand()]
    assert "ended after 6 in 3: its headline's interval was narrow enough" in asked_in(folder.plan)[-1]
    assert "1 session in" in told.getvalue()
    assert "about 2 more sessions" in told.getvalue()
    before = folder.log.read_bytes()
    resume(open_folder(folder.path), Screen(io.StringIO()))
    assert folder.log.read_bytes() == before


def test_a_budget_alone_measures_as_many_sessions_as_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each session takes 1,000 s more than it does: three fit into 3,500 s, and nobody looks at what they say."""
    monkeypatch.setattr(ending, "look", lambda folder: pytest.fail(f"{folder.path} is looked at"))
    sets = ["bed.twins=false", "study.budget=3500s", "bed.most_sessions=12", *SMALL]
    plan = load_plan("bridge-latency", backend="sim", sets=sets)
    assert (plan.bed.sessions, plan.pairs.rounds) == (12, 24)
    after = ending.Until.after_session

    def later(until: ending.Until, done: int, parts: int) -> ending.End | None:
        until._began -= 1000.0
        return after(until, done, parts)

    monkeypatch.setattr(ending.Until, "after_session", later)
    folder, told = create_folder(plan, tmp_path / "run"), io.StringIO()
    log = measured(folder, plan, told)
    assert beds(folder) == [0, 1, 2]
    assert "1 session in 17 min; 2 more sessions fit into the budget" in told.getvalue()
    (stopped,) = [one for one in log if one["event"] == "stopped"]
    assert (stopped["by"], stopped["sessions"], log[-1]["event"]) == ("budget", 3, "finished")
    again = load_plan(folder.plan)
    assert (again.bed.sessions, again.pairs.rounds) == (3, 6)
    of_run: Any = SimpleNamespace(log=log, study={})
    assert list(ended(of_run)) == [], "it ended as it was asked to"
    before = folder.log.read_bytes()
    resume(open_folder(folder.path), Screen(io.StringIO()))
    assert folder.log.read_bytes() == before


def test_a_budget_ends_the_run_before_a_session_that_would_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 25 s each, two sessions fit into 60 s; so they do where the run was interrupted after the first one."""
    monkeypatch.setattr(ending, "look", enough_at(100))
    plan = plan_until("study.budget=60s")
    folder, screen = create_folder(plan, tmp_path / "run"), io.StringIO()
    with Log(folder.log) as log:
        several = ending.Until(plan, folder, log, Screen(screen))
        several._began -= 25
        assert several.after_session(18, 1) is None
        resumed = ending.Until(plan, folder, log, Screen(screen))
        for run in (several, resumed):
            run._began -= 25
            assert run.after_session(36, 2) == "budget"
    assert [round(one["spent_s"]) for one in read_log(folder.log)] == [25, 50, 50]
    assert "beyond bed.most_sessions = 12, beyond the budget, of which 35 s is left" in screen.getvalue()


def test_run_ends_at_the_last_session_if_the_interval_stays_wide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "look", enough_at(100))
    plan = plan_until("bed.most_sessions=3")
    folder = create_folder(plan, tmp_path / "run")
    log = measured(folder, plan)
    assert [one["ends"] for one in log if one["event"] == "looked"] == [None, None, "sessions"]
    assert beds(folder) == [0, 1, 2]
    assert load_plan(folder.plan).pairs.rounds == 6


def test_interrupted_run_resumes_with_the_same_stopping_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_until()
    folder = create_folder(plan, tmp_path / "run")
    monkeypatch.setattr(ending, "look", enough_at(4))
    monkeypatch.setenv("FAKE_DIE_AT", "20")
    with pytest.raises(MachineError, match="fan fell off"):
        conduct(plan, folder, Screen(io.StringIO()))
    monkeypatch.delenv("FAKE_DIE_AT")
    resume(open_folder(folder.path), Screen(io.StringIO()))
    log = read_log(folder.log)
    assert [one["by"] for one in log if one["event"] == "stopped"] == ["interval"]
    again = load_plan(folder.plan)
    assert beds(folder) == [0, 1, 2, 3]
    assert set(read_table(folder.records, "blocks").frame["block"]) == {one.block for one in again.expand()}


def test_run_killed_at_its_end_measures_no_further_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last look has ended it; the plan was not written yet."""
    plan = plan_until()
    folder = create_folder(plan, tmp_path / "run")
    monkeypatch.setattr(ending, "look", enough_at(3))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    stop = ending.Until.stop
    monkeypatch.setattr(ending.Until, "stop", killed)
    with pytest.raises(Interrupted, match="go on with"):
        conduct(plan, folder, Screen(io.StringIO()))
    monkeypatch.setattr(ending.Until, "stop", stop)
    monkeypatch.setattr(ending, "look", killed)
    resume(open_folder(folder.path), Screen(io.StringIO()))
    assert beds(folder) == [0, 1, 2]
    assert load_plan(folder.plan).bed.sessions == 3
    assert read_log(folder.log)[-1]["event"] == "finished"


def test_lost_block_does_not_shorten_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is owed, and of an early round; the run had three sessions of two rounds."""
    plan = plan_until()
    folder, trials = create_folder(plan, tmp_path / "run"), list(plan.expand())
    monkeypatch.setattr(ending, "recorded_parts", lambda _: [0, 1, 2])
    with Log(folder.log) as log:
        for one in trials:
            if one.round < 6:
                log(BEGUN, trial=one.block, part=one.round // 2)
        owed = [trials[0], *(one for one in trials if one.round >= 6)]
        ending.Until(plan, folder, log, Screen(io.StringIO())).stop("interval", owed, 0)
    again = load_plan(folder.plan)
    assert (again.pairs.rounds, again.bed.sessions) == (6, 3)


def test_a_width_in_another_unit_than_the_headline_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "look", lambda _: {"refused": "the headline is in %"})
    plan = plan_until()
    with pytest.raises(RequestError, match="the headline is in %"):
        conduct(plan, create_folder(plan, tmp_path / "run"), Screen(io.StringIO()))


def test_the_dry_run_says_what_ends_the_run() -> None:
    shown = sojourn("run", "bridge-latency", "--until", "±5%", "--budget", "1h", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "at most ±5%, after 100 sessions at most" in " ".join(shown.stdout.split())
    assert "At most" in shown.stdout
    refused = sojourn("run", "--resume", "nowhere", "--until", "±5%")
    assert refused.returncode == 2
    assert "leave out --until" in refused.stderr


def test_doubts_during_a_run_are_notified_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the plan asks for no interval; the first alone: then nobody looks, which takes seconds each time."""
    finding = {"name": "unsteady", "severity": "doubtful", "where": "bridge", "sentence": "it changed"}
    looked: list[object] = []

    def look(folder: RunFolder) -> dict[str, Any]:
        looked.append(folder)
        return {"doubtful": [finding]}

    monkeypatch.setattr(ending, "look", look)
    plan = load_plan("bridge-latency", backend="sim", sets=["bed.twins=false", *SMALL, "rounds=6", "bed.sessions=3"])
    told: list[dict[str, Any]] = []
    conduct(plan, create_folder(plan, tmp_path / "run"), Screen(io.StringIO(), on_doubt=told.append))
    assert (len(looked), told) == (1, [finding])
    with Log(tmp_path / "log") as log:
        ending.Until(plan, open_folder(tmp_path / "run"), log, Screen(io.StringIO())).after_session(12, 1)
    assert len(looked) == 1


def test_failed_interim_analysis_reports_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = create_folder(plan_until(), tmp_path / "run")

    def failed(*_: object, **__: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess([], 1, b"", b"Traceback\nImportError: no module named x\n")

    monkeypatch.setattr(subprocess, "run", failed)
    assert ending.look(folder) == {"problem": "the records could not be looked at: ImportError: no module named x"}


def study_of(*log: dict[str, Any]) -> list[tuple[str, str]]:
    """The findings of a run with this log."""
    run: Any = SimpleNamespace(log=log, study={"until": "±5%"})
    return [(one.name, one.sentence) for one in ended(run)]


def test_the_report_says_what_ended_the_run() -> None:
    looks = [{"event": "looked", "sessions": n, "half": 9.0 - 0.5 * n, "target": 4.5} for n in range(8, 12)]
    at = {"event": "stopped", "rounds": 22, "asked": 200, "sessions": 11}
    ((name, said),) = study_of(*looks, at | {"by": "interval"})
    assert name == "stopped_by_interval"
    assert "after 11 sessions" in said
    assert "from 8 sessions on, was narrow enough first after 9, and again after at least 2 more" in said
    ((name, said),) = study_of(*looks[:1], at | {"by": "budget", "sessions": 8})
    assert name == "target_not_reached"
    assert "no time was left; the headline's interval is 1.1 times as wide as requested (±5%)" in said
    ((_, said),) = study_of({"event": "looked", "sessions": 7, "half": 3.0, "target": 4.0}, at | {"by": "budget"})
    assert (
        "0.75 times as wide as requested (±5%), but only one after 8 sessions or more counts, and after 2 more"
    ) in said
    assert study_of(*looks) == []
    assert "no more sessions were allowed" in study_of(at | {"by": "sessions"})[0][1]


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> None:
    """The instrument itself, in place of its double."""
    monkeypatch.delenv("SOJOURN_INSTRUMENT")


@pytest.mark.usefixtures("real")
def test_a_simulated_run_ends_by_the_interval_of_its_own_headline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions that hardly differ: the interval is narrow from the first look that counts, so there are ten.

    The look that ends the run is by the program, those before it within this process: a program starts for a second.
    """
    by_program = ending.look

    def look(folder: RunFolder) -> dict[str, Any]:
        told = looked(folder.path)
        return by_program(folder) if told.get("enough") else told

    monkeypatch.setattr(ending, "look", look)
    sets = [word for key in (*SMALL, "interval=250us", "bed.twins=false") for word in ("--set", key)]
    done = sojourn("run", "bridge-latency", "--bed", "sim", *sets, "--until", "±50%",
                   "--out", "run", "--no-history", "--no-report", "--json", cwd=tmp_path)  # fmt: skip
    assert done.returncode in {0, 4}, done.stderr
    log = read_log(tmp_path / "run" / "log.jsonl")
    looks = [one for one in log if one["event"] == "looked"]
    assert [one["sessions"] for one in looks if "sessions" in one] == list(range(3, 11))
    assert [one["ends"] for one in looks] == [None] * 9 + ["interval"]
    verdict = json.loads((tmp_path / "run/analysis/verdict.json").read_text())
    assert verdict["pairs"]["sessions"] == 10
    estimate, low, high = (verdict["pairs"][name] for name in ("estimate", "ci_low", "ci_high"))
    half = max(high - estimate, estimate - low)
    assert half == pytest.approx(looks[-1]["half"])
    assert half <= 0.5 * verdict["pairs"]["estimate"]
    assert "stopped_by_interval" in [one["name"] for one in verdict["findings"]]
