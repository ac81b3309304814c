"""What is written of a run is its owner's alone, and belongs to who called sudo; no link leads elsewhere."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sojourn.cli.private import private_files, private_run
from sojourn.errors import RequestError
from sojourn.records.whole_file import write_whole
from tests.unit.in_process import sojourn

if TYPE_CHECKING:
    from pathlib import Path

DAEMON = 1


def modes(folder: Path) -> set[int]:
    """The modes of the folder's files and folders, its own included."""
    return {path.stat().st_mode & 0o7777 for path in (folder, *folder.rglob("*"))}


def test_files_in_a_private_block_are_private_and_later_ones_as_before(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with private_files():
            (tmp_path / "run" / "records").mkdir(parents=True)
            (tmp_path / "run" / "plan.toml").write_text("x")
            write_whole(tmp_path / "run" / "bed.json", "{}")
        (tmp_path / "later").write_text("x")
    finally:
        os.umask(before)
    assert modes(tmp_path / "run") == {0o700, 0o600}
    assert (tmp_path / "later").stat().st_mode & 0o7777 == 0o644
    assert not list((tmp_path / "run").glob(".*")), "no draft is left"


def test_a_run_and_all_that_is_made_of_it_is_private(tmp_path: Path) -> None:
    """Records, log, analysis, report: of the run, and of a report that is made again."""
    run, before = tmp_path / "runs/one", os.umask(0o022)
    sets = ("pairs.rounds=2", "bed.sessions=1", "probe.payload_bytes=[64]", 'probe.probe=["udp/ping-pong"]')
    words = [word for one in sets for word in ("--set", one)]
    try:
        ran = sojourn("run", "bridge-latency", "--bed", "sim", "--no-history", *words, "--out", str(run))
        assert ran.returncode in {0, 4}, ran.stderr
        assert modes(run) == {0o700, 0o600}
        again = sojourn("report", str(run))
        assert again.returncode in {0, 4}, again.stderr
    finally:
        os.umask(before)
    assert {"report", "analysis", "records", "log.jsonl"} <= {path.name for path in run.iterdir()}
    assert (run / "report/index.html").is_file()
    assert modes(run) == {0o700, 0o600}


def test_draft_file_does_not_follow_a_symbolic_link(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    for name in (".bed.json.draft", ".bed.json.part"):
        (tmp_path / name).symlink_to(theirs)
    write_whole(tmp_path / "bed.json", "{}")
    assert theirs.read_text() == "theirs"
    assert (tmp_path / "bed.json").read_text() == "{}"


@pytest.fixture
def callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of who calls sudo."""
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, DAEMON, DAEMON)
    monkeypatch.setenv("SUDO_UID", str(DAEMON))
    monkeypatch.setenv("SUDO_GID", str(DAEMON))
    return home


def owners(folder: Path) -> set[int]:
    """Whose the folder is, and all that is in it."""
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


def callers_run(home: Path) -> Path:
    """A finished run of the caller's."""
    run = home / "runs" / "one"
    (run / "records").mkdir(parents=True)
    (run / "plan.toml").write_text("x")
    for path in (home / "runs", run, run / "records", run / "plan.toml"):
        os.chown(path, DAEMON, DAEMON)
    return run


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@as_root
def test_under_sudo_a_new_run_belongs_to_the_calling_user_however_it_ends(callers: Path) -> None:
    run = callers / "runs" / "one"
    with pytest.raises(KeyboardInterrupt), private_run(run):  # noqa: PT012 -- what is made before the end counts
        (run / "records").mkdir(parents=True)
        (run / "plan.toml").write_text("x")
        assert owners(run) == {0}
        raise KeyboardInterrupt
    assert owners(callers / "runs") == {DAEMON}


@as_root
def test_under_sudo_a_run_belongs_to_root_while_root_writes(callers: Path) -> None:
    run = callers_run(callers)
    with private_run(run):
        assert {folder.stat().st_uid for folder in (run, run / "records")} == {0}
        (run / "report").mkdir()
    assert owners(run) == {DAEMON}


@as_root
def test_foreign_folders_keep_their_owner(callers: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "etc"
    theirs.mkdir()
    (theirs / "shadow").write_text("x")
    with private_run(theirs):
        (theirs / "report").mkdir()
    assert owners(theirs) == {0}
    (callers / "link").symlink_to(theirs)
    with private_run(callers / "link"):
        pass
    assert owners(theirs) == {0}


@as_root
@pytest.mark.parametrize("kind", ["symbolic", "hard", "root's"])
def test_root_neither_follows_nor_chowns_planted_files_in_a_run(callers: Path, tmp_path: Path, kind: str) -> None:
    run = callers_run(callers)
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    if kind == "symbolic":
        (run / "report").symlink_to(theirs)
    elif kind == "hard":
        (run / "report").hardlink_to(theirs)
    else:
        (run / "report").write_text("root's")
    with pytest.raises(RequestError, match=r"one/report is a link or another user's"), private_run(run):
        pass
    assert theirs.stat().st_uid == 0
    assert {run.stat().st_uid, (run / "records").stat().st_uid} == {DAEMON}, "as before"
    assert kind != "root's" or (run / "report").stat().st_uid == 0


@as_root
@pytest.mark.parametrize("words", [["report"], ["run", "--resume"], ["run", "published", "--out"]])
def test_mistyped_folder_keeps_its_owner(callers: Path, tmp_path: Path, words: list[str]) -> None:
    theirs = tmp_path / "etc"
    theirs.mkdir()
    (theirs / "shadow").write_text("x")
    assert sojourn(*words, str(theirs)).returncode == 2
    assert owners(theirs) == {0}
    assert owners(callers) == {DAEMON}


def test_without_sudo_no_owner_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    with private_run(tmp_path):
        pass
    assert tmp_path.stat().st_uid == os.geteuid()
