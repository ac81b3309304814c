"""What is written of a run is its owner's alone, and belongs to who called sudo; no link leads elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from sojourn.cli.private import private_files, private_run
from sojourn.conduct.archive import Log
from sojourn.errors import RequestError
from sojourn.records.whole_file import write_whole
from tests.unit.in_process import sojourn

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
    """Records, log, analysis, report: of the run, and of a report that is made again; also in an empty folder."""
    run, before = tmp_path / "runs/one", os.umask(0o022)
    run.mkdir(parents=True)
    run.chmod(0o777)
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


@pytest.mark.parametrize(("mode", "then"), [(0o755, 0o700), (0o777, 0o700), (0o1777, 0o1777)])
def test_an_empty_folder_becomes_private_before_anything_is_written_in_it(tmp_path: Path, mode: int, then: int) -> None:
    """A sticky one is where several users work: /tmp of a container is empty, too."""
    run = tmp_path / "run"
    run.mkdir()
    run.chmod(mode)
    with private_run(run):
        assert modes(run) == {then}
    assert modes(run) == {then}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_volume_and_a_folder_below_the_root_keep_their_modes(tmp_path: Path) -> None:
    volume, below = tmp_path / "volume", Path(f"/sojourn-test-{os.getpid()}")
    volume.mkdir()
    below.mkdir(mode=0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "none", volume], check=True)
    try:
        for folder in (volume, below):
            with private_run(folder):
                assert modes(folder) == {0o755}
    finally:
        subprocess.run(["umount", volume], check=True)
        below.rmdir()


def test_a_folder_with_content_keeps_its_mode_and_is_refused_if_every_user_can_write_in_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "records").mkdir(parents=True)
    for mode in (0o755, 0o1777) if os.geteuid() else (0o755,):
        run.chmod(mode)
        with private_run(run):
            assert run.stat().st_mode & 0o7777 == mode
    run.chmod(0o777)
    with pytest.raises(RequestError, match=r"chmod (-R )?go-w"), private_run(run):
        pass


def test_an_empty_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    run.mkdir(mode=0o755)
    if os.geteuid() == 0:
        os.chown(run, DAEMON, DAEMON)
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    with pytest.raises(RequestError, match="belongs to another user, who can replace what is written"):
        private_run(run).__enter__()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders of root's")
def test_an_empty_folder_that_root_has_lent_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a volume with a group of its own."""
    run = tmp_path / "run"
    run.mkdir()
    run.chmod(0o2775)
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    with private_run(run):
        assert modes(run) == {0o2775}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root exchanges users")
def test_root_closes_no_folder_of_its_own_for_its_caller(callers: Path) -> None:
    """The caller could not reach its own files in it; and who has exchanged its folder for a link closes no other."""
    run, theirs = callers / "run", callers / "theirs"
    for folder in (run, theirs):
        folder.mkdir()
        folder.chmod(0o755)
    with private_run(run):
        assert modes(run) == {0o755}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_empty_folder_of_roots_caller_becomes_private(callers: Path) -> None:
    run = callers / "run"
    run.mkdir()
    run.chmod(0o777)
    os.chown(run, DAEMON, DAEMON)
    with private_run(run):
        assert (run.stat().st_uid, modes(run)) == (0, {0o700})
    assert (owners(run), modes(run)) == ({DAEMON}, {0o700})


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
@pytest.mark.parametrize("by_sudo", [False, True])
def test_root_does_not_write_in_the_folder_of_another_user(
    callers: Path, monkeypatch: pytest.MonkeyPatch, *, by_sudo: bool
) -> None:
    run = callers_run(callers)
    if by_sudo:
        monkeypatch.setenv("SUDO_UID", str(DAEMON + 1))
    else:
        monkeypatch.delenv("SUDO_UID")
    for named in (run, run / "plan.toml"):
        with pytest.raises(RequestError, match=r"belongs to another user.*cp -r --no-preserve=own"), private_run(named):
            pass
    refused = sojourn("run", "--resume", str(run))
    assert (refused.returncode, "belongs to another user" in refused.stderr) == (2, True)
    assert owners(run) == {DAEMON}


@as_root
@pytest.mark.parametrize("by_sudo", [False, True])
def test_link_to_a_run_of_another_user_is_refused(
    callers: Path, monkeypatch: pytest.MonkeyPatch, *, by_sudo: bool
) -> None:
    """Also root's own link, and under sudo the caller's to the caller's run: whoever owns one can lead it elsewhere."""
    if not by_sudo:
        monkeypatch.delenv("SUDO_UID")
    run = callers_run(callers)
    for owner, target in ((0, run), (DAEMON, run), (DAEMON, callers), (0, callers / "nowhere")):
        link = callers / "link"
        link.symlink_to(target)
        os.chown(link, owner, owner, follow_symlinks=False)
        with pytest.raises(RequestError, match="link is a link"), private_run(link):
            pass
        link.unlink()


@as_root
@pytest.mark.parametrize("by_sudo", [False, True])
@pytest.mark.parametrize("kind", ["symbolic", "hard", "another's", "another's folder"])
def test_planted_link_in_a_run_of_root_is_refused(
    callers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, *, by_sudo: bool
) -> None:
    """As `cp -r` by root leaves it, from a run of somebody else."""
    if not by_sudo:
        monkeypatch.delenv("SUDO_UID")
    run, theirs = tmp_path / "run", tmp_path / "theirs"
    (run / "records").mkdir(parents=True)
    theirs.write_text("theirs")
    log = run / "records" / "log.jsonl"
    if kind == "symbolic":
        log.symlink_to(theirs)
    elif kind == "hard":
        log.hardlink_to(theirs)
    elif kind == "another's":
        log.write_text("x")
        os.chown(log, DAEMON + 1, DAEMON)
    else:
        log.mkdir()
        os.chown(log, DAEMON, DAEMON)
    (tmp_path / "link").symlink_to(run)
    for named in (run, tmp_path / "link"):
        with pytest.raises(RequestError, match=r"log.jsonl is a link or another user's"), private_run(named):
            pass


@as_root
def test_run_that_was_killed_while_root_had_taken_it_goes_on(callers: Path) -> None:
    run = callers_run(callers)
    for folder in (run, run / "records"):
        os.chown(folder, 0, 0)
    with private_run(run):
        (run / "log.jsonl").write_text("x")
    assert (run / "plan.toml").stat().st_uid == DAEMON


@as_root
@pytest.mark.parametrize("by", ["hand-over", "taking"])
def test_run_that_was_killed_half_way_to_or_from_its_caller_goes_on(callers: Path, by: str) -> None:
    """The caller cannot enter it, and root refused it."""
    run = callers_run(callers)
    run.chmod(0o700)
    os.chown(run, 0, 0)
    (run / "log.jsonl").touch(mode=0o600)
    if by == "hand-over":
        os.chown(run / "log.jsonl", DAEMON, DAEMON)
    assert (run / "records").stat().st_uid == DAEMON
    with private_run(run):
        assert {run.stat().st_uid, (run / "records").stat().st_uid} == {0}
    (run / "records" / "planted").symlink_to("/etc")
    with pytest.raises(RequestError, match="remove it, or copy the run without links"), private_run(run):
        pass


@as_root
@pytest.mark.parametrize("kind", ["open to all", "without a plan", "another's"])
def test_folder_of_root_that_has_some_of_the_callers_is_not_taken(callers: Path, kind: str) -> None:
    """Such as /home."""
    run = callers_run(callers)
    run.chmod(0o755 if kind == "open to all" else 0o700)
    os.chown(run, 0, 0)
    if kind == "without a plan":
        (run / "plan.toml").unlink()
    if kind == "another's":
        os.chown(run / "plan.toml", DAEMON + 1, 0)
    with pytest.raises(RequestError, match="is a link or another user's"), private_run(run):
        pass
    assert (run / "records").stat().st_uid == DAEMON


@as_root
@pytest.mark.parametrize("place", ["run", "records", "plan.toml"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
@pytest.mark.parametrize("owner", [0, DAEMON])
def test_run_that_others_can_write_is_refused(callers: Path, place: str, mode: int, owner: int) -> None:
    run = callers_run(callers)
    for path in (run, *run.rglob("*")):
        os.chown(path, owner, owner)
    changed = run if place == "run" else run / place
    changed.chmod(changed.stat().st_mode | mode)
    with pytest.raises(RequestError, match=r"can be written by other users.*chmod -R go-w"), private_run(run):
        pass
    assert owners(run) == {owner}
    changed.chmod(changed.stat().st_mode & ~0o022)
    with private_run(run):
        pass


@as_root
@pytest.mark.parametrize("kind", ["another's folder", "another's link", "chain", "world", "group"])
def test_run_below_what_others_can_exchange_is_refused(callers: Path, tmp_path: Path, kind: str) -> None:
    """Who can exchange a folder or a link above a run can lead root elsewhere after it has looked."""
    run, above = callers_run(callers), tmp_path / "above"
    above.mkdir()
    named = above / "run"
    if kind == "another's folder":
        os.chown(above, DAEMON + 1, DAEMON + 1)
    elif kind == "another's link":
        (above / "link").symlink_to(run.parent)
        os.chown(above / "link", DAEMON + 1, DAEMON + 1, follow_symlinks=False)
        named = above / "link" / run.name
    elif kind == "chain":
        (above / "theirs").mkdir()
        (above / "theirs/second").symlink_to(run.parent)
        os.chown(above / "theirs", DAEMON + 1, DAEMON + 1)
        (above / "first").symlink_to("theirs/../theirs/second")
        named = above / "first" / run.name
    else:
        os.chown(above, 0, DAEMON + 1)
        above.chmod(0o777 if kind == "world" else 0o775)
    if not named.exists():
        run.rename(named)
    with pytest.raises(RequestError, match=r"can be changed by other users.*cp -r --no-pres"), private_run(named):
        pass


@as_root
def test_root_without_a_caller_writes_in_its_run_below_a_folder_of_another_user(tmp_path: Path) -> None:
    """As in a container, where the working folder is that of a user outside."""
    run, theirs = tmp_path / "theirs/run", tmp_path / "theirs"
    run.mkdir(parents=True, mode=0o700)
    os.chown(theirs, DAEMON + 1, DAEMON + 1)
    with private_run(run):
        (run / "written").touch()
    assert owners(run) == {0}


@as_root
def test_run_below_shared_folders_and_own_links_is_written(callers: Path, tmp_path: Path) -> None:
    """As /tmp, a home of a group that is the user's alone, and links of the caller's and root's."""
    run, shared = callers_run(callers), tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    callers.chmod(0o775)
    (shared / "link").symlink_to("../home/runs/.")
    os.chown(shared / "link", DAEMON, DAEMON, follow_symlinks=False)
    for named in (run, shared / "link" / "one"):
        with private_run(named):
            pass
    run.rename(shared / "one")
    with private_run(shared / "one"):
        pass


def test_log_is_continued_but_not_through_a_link(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    (tmp_path / "log.jsonl").symlink_to(theirs)
    with pytest.raises(RequestError, match="is a link"):
        Log(tmp_path / "log.jsonl")
    assert theirs.read_text() == "theirs"
    for cut in ("", "{}\n", '{}\n{"ev'):
        own = tmp_path / "own.jsonl"
        own.write_text(cut)
        with Log(own) as log:
            log("finished")
        *before, last = own.read_text().splitlines()
        assert before == cut.splitlines()
        assert json.loads(last)["event"] == "finished"


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
