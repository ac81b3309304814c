"""The clock of processors: held at its highest, given back at the end, at a SIGKILL, and by the next; or refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sojourn.bed import frequency
from sojourn.bed.backends.local import LocalMachine
from sojourn.conduct import create_folder
from sojourn.errors import MachineError
from sojourn.plan import load_plan

FOUND, HIGHEST = "800000", "3600000"
HELD = """
import pathlib, sys, time
from sojourn.bed import frequency
frequency.CPU, folder = map(pathlib.Path, sys.argv[1:3])
frequency.state_folder = lambda: folder
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
    monkeypatch.setattr(frequency, "state_folder", lambda: tmp_path)
    return folder


def least(cpus: Path) -> set[str]:
    return {path.read_text().strip() for path in cpus.glob("cpu*/cpufreq/scaling_min_freq")}


def test_the_clock_is_held_at_its_highest_and_given_back_with_the_bed(cpus: Path) -> None:
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
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "held\n"
        assert least(cpus) == {HIGHEST}
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        run.kill()
    return int(children[0])


def test_a_killed_run_gives_the_clock_back(cpus: Path) -> None:
    killed(cpus)
    end = time.monotonic() + 20
    while (cpus.parent / frequency.JOURNAL).exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert least(cpus) == {FOUND}
    assert not (cpus.parent / frequency.JOURNAL).exists()
    assert frequency.recover() == []


def test_what_run_and_guardian_left_is_given_back_by_the_next_or_by_clean(cpus: Path) -> None:
    mine = frequency.Highest()
    journal = cpus.parent / frequency.JOURNAL
    text = json.loads(journal.read_text())
    os.kill(mine._guardian.pid, 9)
    mine._guardian.wait()
    assert frequency.recover() == [], "its run is alive"
    journal.write_text(json.dumps(text | {"started_ticks": text["started_ticks"] + 1}))
    assert frequency.recover() == ["Gave back the clock of the processors, which a dead run held."]
    assert least(cpus) == {FOUND}
    assert not journal.exists()
    mine.close()


def test_of_an_earlier_boot_nothing_is_set(cpus: Path) -> None:
    found = {str(path): "1" for path in cpus.glob("cpu*/cpufreq/scaling_min_freq")}
    text = {"boot": "another", "pid": os.getpid(), "started_ticks": 0, "found": found}
    (cpus.parent / frequency.JOURNAL).write_text(json.dumps(text))
    frequency.recover()
    assert least(cpus) == {FOUND}


@pytest.mark.parametrize(("backend", "why"), [("netns", "cannot be set"), ("sim", "")])
def test_a_plan_for_a_machine_without_such_a_clock_is_refused_before_anything_starts(
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
