"""What is written of a run is its owner's alone, and belongs to who called sudo; no link leads elsewhere."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sojourn.cli.private import hand_over, handed_over, private_files
from sojourn.conduct.archive import rewrite

if TYPE_CHECKING:
    from pathlib import Path

DAEMON = 1


def modes(folder: Path) -> set[int]:
    """The modes of the folder's files and folders, its own included."""
    return {path.stat().st_mode & 0o7777 for path in (folder, *folder.rglob("*"))}


def test_files_are_their_owners_alone_meanwhile_and_others_are_as_before(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with private_files():
            (tmp_path / "run" / "records").mkdir(parents=True)
            (tmp_path / "run" / "plan.toml").write_text("x")
            rewrite(tmp_path / "run" / "bed.json", "{}")
        (tmp_path / "later").write_text("x")
    finally:
        os.umask(before)
    assert modes(tmp_path / "run") == {0o700, 0o600}
    assert (tmp_path / "later").stat().st_mode & 0o7777 == 0o644
    assert not list((tmp_path / "run").glob(".*")), "no draft is left"


def test_a_draft_follows_no_link_that_lies_in_its_place(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    for name in (".bed.json.draft", ".bed.json.part"):
        (tmp_path / name).symlink_to(theirs)
    rewrite(tmp_path / "bed.json", "{}")
    assert theirs.read_text() == "theirs"
    assert (tmp_path / "bed.json").read_text() == "{}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_run_under_sudo_is_the_callers_however_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    run = home / "runs" / "one"
    (run / "records").mkdir(parents=True)
    (run / "plan.toml").write_text("x")
    kept = tmp_path / "kept"
    kept.write_text("root's")
    (run / "link").symlink_to(kept)
    os.chown(home, DAEMON, DAEMON)
    monkeypatch.setenv("SUDO_UID", str(DAEMON))
    monkeypatch.setenv("SUDO_GID", str(DAEMON))
    with pytest.raises(KeyboardInterrupt), handed_over(run):
        raise KeyboardInterrupt
    for path in (run, run / "records", run / "plan.toml", home / "runs"):
        assert (path.stat().st_uid, path.stat().st_gid) == (DAEMON, DAEMON), path
    assert (run / "link").lstat().st_uid == DAEMON
    assert kept.stat().st_uid == 0, "no link is followed"


def test_without_sudo_nothing_changes_hands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    hand_over(tmp_path)
    assert tmp_path.stat().st_uid == os.geteuid()
