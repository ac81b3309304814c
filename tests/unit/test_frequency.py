"""The clock of processors: held at its highest, given back at the end, at a SIGKILL, and by the next; or refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sojourn.bed import frequency, held
from sojourn.bed.backends.local import LocalMachine
from sojourn.bed.state import boot_id, pid_namespace
from sojourn.conduct import create_folder
from sojourn.errors import MachineError
from sojourn.plan import load_plan
from tests.children import Child

FOUND, HIGHEST = "800000", "3600000"
HELD = """
import pathlib, sys, time
from sojourn.bed import frequency, held
frequency.CPU, folder = map(pathlib.Path, sys.argv[1:3])
held.state_folder = lambda: folder
held = frequency.Highest()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two processors whose clock can be set, and a folder for the journal."""
    folder = tmp_path / "cpu"
    for number in (0, 1):
        own = folder / f"cpu{number}/cpufreq"
        own.mkdir(parents=True)
        (own / "scaling_min_freq").write_text(FOUND + "\n")
        (own / "scaling_max_freq").write_text(HIGHEST + "\n")
    monkeypatch.setattr(frequency, "CPU", folder)
    monkeypatch.setattr(held, "state_folder", lambda: tmp_path)
    return folder


def least(cpus: Path) -> set[str]:
    return {path.read_text().strip() for path in cpus.glob("cpu*/cpufreq/scaling_min_freq")}


def test_cpu_frequency_is_held_at_maximum_and_restored_with_the_bed(cpus: Path) -> None:
    here = LocalMachine()
    here.keep_frequency(highest=False)
    assert least(cpus) == {FOUND}
    here.keep_frequency(highest=True)
    assert least(cpus) == {HIGHEST}
    journal = json.loads((cpus.parent / frequency.JOURNAL).read_text())
    assert set(journal["found"].values()) == {FOUND}
    with pytest.raises(MachineError, match="another run holds the clock"):
        LocalMachine().keep_frequency(highest=True)
    here.let_go()
    assert least(cpus) == {FOUND}
    assert not (cpus.parent / frequency.JOURNAL).exists()


def killed(cpus: Path) -> int:
    """A run that holds the clock is killed; its guardian's process, which may be still there."""
    argv = [sys.executable, "-c", HELD, str(cpus), str(cpus.parent)]
    with Child(argv, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "held\n"
        assert least(cpus) == {HIGHEST}
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        run.kill()
    return int(children[0])


def test_cpu_frequency_is_restored_after_a_killed_run(cpus: Path) -> None:
    killed(cpus)
    end = time.monotonic() + 20
    while (cpus.parent / frequency.JOURNAL).exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert least(cpus) == {FOUND}
    assert not (cpus.parent / frequency.JOURNAL).exists()
    assert frequency.recover() == []


def test_cpu_frequency_left_by_killed_run_and_guardian_is_restored_later(cpus: Path) -> None:
    mine = frequency.Highest()
    journal = cpus.parent / frequency.JOURNAL
    text = json.loads(journal.read_text())
    assert mine._guardian is not None
    os.kill(mine._guardian.pid, 9)
    mine._guardian.wait()
    assert frequency.recover() == [], "its run is alive"
    journal.write_text(json.dumps(text | {"started_ticks": text["started_ticks"] + 1}))
    assert frequency.recover() == ["Gave back the clock of the processors, which a dead run held."]
    assert least(cpus) == {FOUND}
    assert not journal.exists()
    mine.close()


def test_run_restores_the_cpu_frequency_after_its_guardian_was_killed(
    cpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = LocalMachine()
    here.keep_frequency(highest=True)
    assert here._highest is not None
    assert here._highest._guardian is not None
    os.kill(here._highest._guardian.pid, 9)
    here.let_go()
    assert least(cpus) == {FOUND}
    assert not (cpus.parent / frequency.JOURNAL).exists()
    mine = frequency.Highest()
    assert mine._guardian is not None
    os.kill(mine._guardian.pid, 9)
    monkeypatch.setattr(held, "_give_back", lambda found: [f"{value} to {path}" for path, value in found.items()])
    with pytest.raises(MachineError, match=f"could not be given back: write {FOUND} to .*cpu0/"):
        mine.close()
    assert (cpus.parent / frequency.JOURNAL).exists(), "the next process restores it"


def test_any_bed_restores_the_cpu_frequency_of_a_dead_run(cpus: Path) -> None:
    left(cpus, started_ticks=0)
    LocalMachine().keep_frequency(highest=False)
    assert least(cpus) == {FOUND}
    assert not (cpus.parent / frequency.JOURNAL).exists()


def test_frequency_that_cannot_be_given_back_is_not_said_to_be_removed(
    cpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = left(cpus, started_ticks=0)
    monkeypatch.setattr(held, "_give_back", lambda found: [f"{value} to {path}" for path, value in found.items()])
    done, kept = held.recovered(frequency.Highest)
    assert done == []
    assert kept[0].startswith("Could not give back the clock of the processors, which a dead run held: write ")
    assert frequency.recover() == kept
    assert journal.exists(), "the next process tries again"


def test_journal_of_another_pid_namespace_is_ignored(cpus: Path) -> None:
    journal = left(cpus, started_ticks=0, pids="pid:[1]")
    assert frequency.recover() == [], "it is unknown here whether its run is alive"
    assert journal.exists()
    assert least(cpus) == {HIGHEST}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"pid": 1}'])
def test_unreadable_journal_is_removed_and_reported(cpus: Path, text: str) -> None:
    journal = cpus.parent / frequency.JOURNAL
    journal.write_text(text)
    assert frequency.recover() == [
        f"Removed {journal}, which should say how the clock of the processors was and cannot be read."
    ]
    assert not journal.exists()
    frequency.Highest().close()


def test_journal_is_written_atomically(cpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linked: list[str] = []

    def link(draft: str, journal: Path) -> None:
        linked.append(Path(draft).read_text())
        os.rename(draft, journal)  # noqa: PTH104 - beside the link that is replaced
        Path(draft).touch()

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", link)
        mine = frequency.Highest()
    assert json.loads(linked[0])["pid"] == os.getpid()
    mine.close()
    assert [path.name for path in cpus.parent.iterdir() if path.is_file()] == [], "no draft is left"


def test_failure_to_start_the_guardian_leaves_nothing(cpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(FileNotFoundError):
        frequency.Highest()
    assert least(cpus) == {FOUND}
    assert not (cpus.parent / frequency.JOURNAL).exists()


def test_guardian_keeps_settings_held_by_another_run(cpus: Path) -> None:
    mine = frequency.Highest()
    journal = left(cpus, started_ticks=0)
    mine.close()
    assert journal.exists()
    assert least(cpus) == {HIGHEST}


def left(cpus: Path, **told: Any) -> Path:
    """What a run has left that held the clock, of this process unless another is named."""
    found = {}
    for path in cpus.glob("cpu*/cpufreq/scaling_min_freq"):
        path.write_text(HIGHEST + "\n")
        found[str(path)] = FOUND
    text = {"boot": boot_id(), "pids": pid_namespace(), "pid": os.getpid(), "found": found} | told
    journal = cpus.parent / frequency.JOURNAL
    journal.write_text(json.dumps(text))
    return journal


def test_journal_of_an_earlier_boot_restores_nothing(cpus: Path) -> None:
    found = {str(path): "1" for path in cpus.glob("cpu*/cpufreq/scaling_min_freq")}
    text = {"boot": "another", "pids": "pid:[1]", "pid": os.getpid(), "started_ticks": 0, "found": found}
    (cpus.parent / frequency.JOURNAL).write_text(json.dumps(text))
    frequency.recover()
    assert least(cpus) == {FOUND}
    assert not (cpus.parent / frequency.JOURNAL).exists()


@pytest.mark.parametrize(("backend", "why"), [("netns", "cannot be set"), ("sim", "")])
def test_plan_that_needs_frequency_control_is_refused_on_a_machine_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, why: str
) -> None:
    monkeypatch.setattr(frequency, "CPU", tmp_path / "none")
    sets = ["variance.factors=layout,frequency", f"bed.backend={backend}", "bed.sessions=24", "pairs.rounds=144"]
    plan = load_plan("variance", sets=sets)
    if not why:
        assert create_folder(plan, tmp_path / "run").plan.exists()
        return
    with pytest.raises(MachineError, match=why) as refused:
        create_folder(plan, tmp_path / "run")
    assert refused.value.status == 3
    assert not (tmp_path / "run").exists()
