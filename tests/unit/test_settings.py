"""[settings] of a plan: read, refused, switched as a factor; what this machine holds is given back; what a log says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sojourn.analysis.settings import settings as found_in
from sojourn.bed import BedSpec, frequency, held, settings
from sojourn.bed.model import Topology
from sojourn.bed.settings import LocalSettings, OfThisMachine
from sojourn.conduct import create_folder
from sojourn.conduct.settings import not_restored
from sojourn.errors import MachineError, RequestError
from sojourn.plan import effective_toml, load_plan
from sojourn.plan.load import plan_from_text
from sojourn.plan.section import keys_of
from sojourn.plan.settings import SETTINGS, SettingsPlan, asked, switched
from sojourn.records.settings import Tuned, settings_of
from tests.children import Child


def test_plan_keys_and_settings_correspond() -> None:
    assert keys_of(SettingsPlan).keys() == SETTINGS.keys()


def test_plan_keeps_its_own_names_and_gives_kernel_values() -> None:
    sets = ["gro_flush_timeout=20us", "settings.napi_defer_hard_irqs=2", "busy_poll=50us", "idle_latency=0us"]
    plan = load_plan("bridge-latency", sets=sets)
    words = {"napi_defer_hard_irqs": "2", "gro_flush_timeout": "20000", "busy_poll": "50", "idle_latency": "0"}
    assert asked(plan.settings) == words
    again = plan_from_text(effective_toml(plan), "again", ())
    assert again.settings == plan.settings
    assert "[settings]" not in effective_toml(load_plan("bridge-latency"))


def test_adaptive_coalescing_is_set_before_fixed_values() -> None:
    assert list(SETTINGS)[:3] == ["adaptive_rx", "adaptive_tx", "rx_usecs"]


@pytest.mark.parametrize(
    ("study", "sets", "said"),
    [
        ("bridge-latency", ["rx_usecs=8"], r"settings.rx_usecs = 8: expected no such key: .* veths, .*--bed bed.toml"),
        ("bridge-latency", ["irq_cpus=0"], r"settings.irq_cpus = .*: expected no such key: .* interrupts of their own"),
        ("bridge-latency", ["irq_cpus=0-"], r'settings.irq_cpus = "0-": expected processors, such as "2" or "0-1,4"'),
        ("bridge-latency", ["busy_poll=1500ns"], r"settings.busy_poll = .* in whole microseconds"),
        ("bridge-latency", ["settings.ring=1"], r"unknown key settings.ring: expected settings.tx_ring"),
        ("bridge-latency", ["rx_ring=0"], r"settings.rx_ring = 0: expected a whole number from 1 to"),
        ("variance", ["variance.factors=governor"], r"variance.factors = .* a value of settings.governor"),
    ],
)
def test_impossible_settings_are_refused_with_the_possible_ones(study: str, sets: list[str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        load_plan(study, sets=sets)


def test_setting_as_a_factor_is_applied_on_some_beds_only() -> None:
    sets = ["variance.factors=layout,napi_defer_hard_irqs", "napi_defer_hard_irqs=2", "gro_flush_timeout=20us",
            "bed.sessions=24", "pairs.rounds=144"]  # fmt: skip
    plan = load_plan("variance", sets=sets)
    firsts = {trial.round: trial for trial in reversed(list(plan.expand()))}
    drawn = [switched(plan.settings, plan.ask.switch(plan, trial)) for trial in firsts.values()]
    assert {tuple(one) for one in drawn} == {
        ("napi_defer_hard_irqs", "gro_flush_timeout"), ("gro_flush_timeout",)
    }  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files in place of this machine's governors and its busy polling, and a folder for the journal."""
    for number in (0, 1):
        own = tmp_path / f"cpu/cpu{number}/cpufreq"
        own.mkdir(parents=True)
        (own / "scaling_governor").write_text("userspace\n")
    (tmp_path / "core").mkdir()
    (tmp_path / "core/busy_poll").write_text("0\n")
    monkeypatch.setattr(frequency, "CPU", tmp_path / "cpu")
    monkeypatch.setattr(settings, "NET", tmp_path / "core")
    monkeypatch.setattr(held, "state_folder", lambda: tmp_path)
    return tmp_path


def values(here: Path) -> list[str]:
    files = [*sorted(here.glob("cpu/cpu*/cpufreq/scaling_governor")), here / "core/busy_poll"]
    return [file.read_text().strip() for file in files]


FOUND, SET = ["userspace", "userspace", "0"], ["powersave", "powersave", "5"]
ASKED = {"busy_poll": "5", "governor": "powersave"}


def test_settings_of_this_machine_are_held_and_restored(here: Path) -> None:
    backend: Any = None
    mine = LocalSettings(backend, Topology.of_spec(BedSpec()), ASKED)
    assert values(here) == SET
    assert [(one.value, one.before, one.in_force) for one in mine.tuned] == [
        ("busy_poll", "0", "5"),
        ("governor-0", "userspace", "powersave"),
        ("governor-1", "userspace", "powersave"),
    ]
    with pytest.raises(MachineError, match="another run holds settings of this machine"):
        LocalSettings(backend, Topology.of_spec(BedSpec()), ASKED)
    (here / "core/busy_poll").write_text("7\n")
    mine.look()
    assert mine.tuned[0].ended == "7"
    mine.close()
    assert values(here) == FOUND
    assert [one.restored for one in mine.tuned] == ["0", "userspace", "userspace"]
    assert not (here / OfThisMachine.journal).exists()
    mine.close()


HELD = """
import pathlib, sys, time
from sojourn.bed import BedSpec, frequency, held, settings
from sojourn.bed.model import Topology
here = pathlib.Path(sys.argv[1])
frequency.CPU, settings.NET, held.state_folder = here / "cpu", here / "core", lambda: here
mine = settings.LocalSettings(None, Topology.of_spec(BedSpec()), {"governor": "powersave", "busy_poll": "5"})
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("guardian_too", [False, True])
def test_settings_are_restored_after_a_killed_run(here: Path, guardian_too: bool) -> None:
    with Child([sys.executable, "-c", HELD, str(here)], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "held\n"
        assert values(here) == SET
        if guardian_too:
            children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
            for child in children:
                os.kill(int(child), 9)
        run.kill()
    if guardian_too:
        assert values(here) == SET
        assert settings.recover() == ["Gave back settings of this machine, which a dead run held."]
    end = time.monotonic() + 20
    while (here / OfThisMachine.journal).exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert values(here) == FOUND
    assert not (here / OfThisMachine.journal).exists()
    assert settings.recover() == []


def test_unsupported_settings_are_refused_before_a_folder_is_created(here: Path) -> None:
    plan = load_plan("bridge-latency", sets=["settings.busy_read=50us"])
    said = r"settings.busy_read: this machine has no busy polling \(net.core\): leave it out, or take a kernel with"
    with pytest.raises(RequestError, match=said):
        create_folder(plan, here / "run")
    assert not (here / "run").exists()


def row(**more: Any) -> dict[str, Any]:
    return {"host": "a", "port": "eth1", "setting": "rx_usecs", "value": "rx_usecs", "asked": "8", "before": "3",
            "in_force": "8", "ended": "8", "restored": "3"} | more  # fmt: skip


IRQ = {"setting": "irq_cpus", "value": "irq-31"}
IDLE = {"host": "machine", "port": "", "setting": "idle_latency", "value": "idle_latency", "asked": "5"}


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (row(), {}),
        (row(restored=None), {}),
        (row(restored="gone"), {}),
        (row(**IRQ, asked="0-1,3", in_force="0,1,3", ended="0,1,3"), {}),
        (row(**IDLE, in_force="0", ended="0"), {}),
        (row(**IDLE, in_force="2000000000", ended="2000000000"),
         {"setting_not_taken": "idle_latency of this machine is 2000000000, and 5 was asked"}),
        (row(in_force="6", ended="6"), {"setting_not_taken": "rx_usecs of eth1 of host A is 6, and 8 was asked"}),
        (row(ended="9"),
         {"setting_changed": "rx_usecs of eth1 of host A was 8 at first, and 9 when the session ended"}),
        (row(restored="8"),
         {"setting_not_restored": "rx_usecs of eth1 of host A was 3 before the run, and is 8 after it"}),
    ],
)  # fmt: skip
def test_unapplied_or_unrestored_settings_are_findings(told: dict[str, Any], found: dict[str, str]) -> None:
    log = [{"event": "settings-set", "part": 0, "rows": [row(ended=None, restored=None)]},
           {"event": "settings-restored", "part": 0, "rows": [told]}]  # fmt: skip
    assert len(settings_of(log)) == 1
    run: Any = type("R", (), {"log": log, "bed": {}})()
    assert {one.name: one.sentence for one in found_in(run)} == found


def test_setting_that_could_not_be_restored_is_reported_at_the_end() -> None:
    tuned = Tuned("a", "eth1", "rx_ring", "rx_ring", "512", "256", "512", "512", "512")
    assert not_restored(tuned) == "rx_ring of eth1 of host A was 256, and is 512 after the run: set it by hand"
    tuned.restored = "256"
    assert not_restored(tuned) is None
