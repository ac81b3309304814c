"""Cgroups of hosts: programs of each end run in their own, and nothing is left of them however a bed ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sojourn
from sojourn.bed import BedSpec, build_bed, cgroups
from sojourn.bed.cgroups import unified_root
from sojourn.bed.clean import clean
from sojourn.errors import MachineError
from tests.net.busy_machine import await_that

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE = Path(sojourn.__file__).parent.parent
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="cgroups of hosts need root"),
]

CONTROLLER = textwrap.dedent("""
    import sys, time
    from sojourn.bed import BedSpec, build_bed
    with build_bed(BedSpec(cgroups=True), sys.argv[1]) as bed:
        bed.backend.start("a", ["sh", "-c", "sleep 100 & sleep 100"])
        print(bed.backend.cgroup("a"), flush=True)
        time.sleep(100)
""")


@pytest.fixture
def run() -> str:
    """A run id that nobody else has."""
    return f"test-{uuid.uuid4().hex[:10]}"


def left_of(run: str) -> list[str]:
    """The cgroups of a run."""
    return [folder.name for folder, mark in cgroups.left() if mark.run == run]


def test_programs_of_each_host_are_in_its_cgroup_and_others_in_none(run: str) -> None:
    with build_bed(BedSpec(cgroups=True), run) as bed:
        for host in ("a", "b"):
            folder = Path(bed.backend.cgroup(host))
            process = bed.backend.start(host, ["sleep", "100"])
            await_that(partial(is_member, folder, process.pid), "the program in its cgroup")
            assert "usage_usec" in (folder / "cpu.stat").read_text()
        beside = bed.backend.beside(["sleep", "100"])
        time.sleep(0.1)
        assert run not in Path(f"/proc/{beside.pid}/cgroup").read_text()
        assert run not in bed.backend.run("d", ["cat", "/proc/self/cgroup"])
        assert left_of(run)
    assert left_of(run) == []


def test_bed_without_requested_cgroups_creates_none(run: str) -> None:
    with build_bed(BedSpec(), run) as bed:
        assert left_of(run) == []
        with pytest.raises(MachineError, match="has no cgroup"):
            bed.backend.cgroup("a")


def none_mounted() -> Path:
    """A machine without the unified hierarchy."""
    return unified_root(b"")


@pytest.mark.parametrize(
    ("root", "why"), [(none_mounted, "no unified cgroup hierarchy"), (lambda: Path("/sys"), "cannot be made")]
)
def test_bed_is_built_without_cgroups_where_impossible_and_states_the_reason(
    root: Callable[[], Path], why: str, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "unified_root", root)
    with build_bed(BedSpec(cgroups=True), run) as bed:
        assert not bed.backend.unprivileged
        assert any(why in one for one in bed.backend.missing)
        assert bed.backend.run("a", ["echo", "here"]).strip() == "here"
        with pytest.raises(MachineError, match=why):
            bed.backend.cgroup("a")


def test_a_killed_controller_leaves_no_cgroup(run: str) -> None:
    controller = begun(run)
    controller.kill()
    controller.wait()
    await_that(lambda: left_of(run) == [], "no cgroup")


@pytest.mark.alone
def test_clean_removes_the_cgroups_of_a_run_whose_keeper_was_killed_too(run: str) -> None:
    controller = begun(run)
    found = subprocess.run(
        ["pgrep", "-P", str(controller.pid), "-f", "cat >/dev/null"], capture_output=True, text=True, check=False
    )
    for holder in found.stdout.split():
        os.kill(int(holder), signal.SIGKILL)
    controller.kill()
    controller.wait()
    time.sleep(0.2)
    assert left_of(run)
    said = clean().sentences()
    assert left_of(run) == []
    assert any("cgroups" in one and run in one for one in said)


def begun(run: str) -> subprocess.Popen[str]:
    """A controller whose bed stands."""
    env = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    argv = [sys.executable, "-c", CONTROLLER, run]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    process.stdout.close()
    assert folder.is_dir()
    return process


def is_member(folder: Path, pid: int) -> bool:
    """Whether a process is in a cgroup."""
    return str(pid) in (folder / "cgroup.procs").read_text().split()
