"""Temporary folders: removed with their block, and by `sojourn bed clean` where their process was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed import clean
from sojourn.bed.frequency import Highest
from sojourn.bed.state import Process
from sojourn.devices.xdp import SCRATCH
from sojourn.labs import emulation
from sojourn.records.scratch import _NAME, left, scratch
from tests.children import Child
from tests.unit.in_process import sojourn
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_PYTHON = """
import sys, time
from sojourn.records.scratch import scratch
with scratch("warm-up") as folder:
    (folder / "file").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""
OF_SHELL = f'{SCRATCH}; echo "$folder"; exec sleep 60'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary ones, and nothing else that could be cleaned."""
    own = tmp_path / "temporary"
    for folder in (own, tmp_path / "state"):
        folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    monkeypatch.setattr("sojourn.records.scratch.SHARED", own)
    monkeypatch.setattr(clean, "state_folder", lambda: tmp_path / "state")
    monkeypatch.setenv("TMPDIR", str(own))
    monkeypatch.setattr(clean, "marked_processes", list)
    monkeypatch.setattr(clean, "states", lambda _: [])
    monkeypatch.setattr("sojourn.bed.cgroups.left", list)
    monkeypatch.setattr("sojourn.bed.netem_left.remove_left", lambda: ([], []))
    monkeypatch.setattr("sojourn.bed.held.recovered", lambda _: ([], []))
    return own


def test_folder_names_its_process_and_goes_with_its_block(here: Path) -> None:
    own = Process.of(os.getpid())
    with scratch("match") as folder:
        assert folder.parent == here
        assert folder.name.startswith("sojourn-match-")
        assert list(left()) == [(folder, own.pid, own.started_ticks)]
        assert clean.clean().sentences() == ["Nothing to clean."]
        assert folder.is_dir()
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("argv", [[sys.executable, "-c", OF_PYTHON], ["sh", "-c", OF_SHELL]], ids=["python", "shell"])
def test_folder_of_a_killed_process_is_removed_and_that_of_a_live_one_is_not(here: Path, argv: list[str]) -> None:
    with Child(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = here / process.stdout.readline().strip().rpartition("/")[2]
        assert [(path, pid) for path, pid, _ in left()] == [(folder, process.pid)]
        assert clean.clean().removed == []
        assert folder.is_dir()
        process.kill()
        process.wait()
    assert clean.clean().removed == [f"Removed the temporary folder {folder} of a dead process."]
    assert list(here.iterdir()) == []


def test_other_folders_stay(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scratch("clock") as folder:
        _, what, pids, pid, ticks, _ = folder.name.split("-")
    dead = f"sojourn-{what}-{pids}-{pid}-{int(ticks, 16) + 1:x}-abcdefgh"
    names = (
        f"sojourn-{what}-{int(pids, 16) ^ 1:x}-{pid}-1-abcdefgh",
        "sojourn-clock-abcdefgh",
        "sojourn-0",
        f"{dead}/own",
        "other",
    )
    for name in names:
        (here / name).mkdir(parents=True)
    (here / f"{dead}x").symlink_to(here / "other")
    (here / f"{dead}y").touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 4711)
        assert list(left()) == []
    assert clean.clean().removed == [f"Removed the temporary folder {here / dead} of a dead process."]
    assert sorted(path.name for path in here.iterdir()) == sorted([*names[:3], "other", f"{dead}x", f"{dead}y"])


def test_folder_of_a_killed_printing_is_found_wherever_root_has_its_temporary_folders(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root prints in /tmp, as another user in a folder of that user."""
    assert here != tmp_path
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr("sojourn.records.scratch.SHARED", shared)
    with scratch("print", shared) as folder:
        assert [path for path, _, _ in left()] == ([folder] if os.getuid() == 0 else [])


def test_control_socket_fits_below_a_long_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the longest process ID, and a start 400 days after the boot, its path has the 107 characters it may have."""
    words = [*["0"] * 19, str(400 * 86_400 * 100), "0"]
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"1 (x) {' '.join(words)}")
    monkeypatch.setattr(Path, "readlink", lambda _: "pid:[4026531836]")
    monkeypatch.setattr(os, "getpid", lambda: 4_194_303)
    made: list[str] = []

    @contextmanager
    def folder(prefix: str, **_: object) -> Iterator[str]:
        made.append(prefix + "x" * 8)
        yield made[0]

    monkeypatch.setattr(tempfile, "TemporaryDirectory", folder)
    monkeypatch.setattr(emulation, "require_understood", lambda *_: None)
    monkeypatch.setattr(emulation, "find_instrument", lambda: "x")

    def argv(_: str, __: list[str], control: str, ___: object) -> list[str]:
        assert len("/" + "t" * 59 + "/" + control) <= 107
        raise KeyboardInterrupt

    monkeypatch.setattr(emulation, "emulate_argv", argv)
    with pytest.raises(KeyboardInterrupt), emulation.emulate("a", "b"):
        pass
    assert _NAME.fullmatch(made[0])


def test_what_cannot_be_given_back_is_left_and_ends_with_status_3(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "Could not give back the clock of the processors, which a dead run held: write 1 to x."

    def recovered(of: type[Any]) -> tuple[list[str], list[str]]:
        return ([], [told]) if of is Highest else (["Gave back settings of this machine, which a dead run held."], [])

    monkeypatch.setattr("sojourn.bed.held.recovered", recovered)
    done = sojourn("bed", "clean", "--json")
    assert done.returncode == 3
    found = printed("bed-clean", done.stdout)
    assert (len(found["removed"]), found["live"], found["left"]) == (1, [], [told])
    monkeypatch.setattr("sojourn.bed.held.recovered", lambda _: ([], []))
    assert sojourn("bed", "clean").returncode == 0
    assert here.is_dir()
