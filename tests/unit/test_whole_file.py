"""Files that commands make where others may write too: no link is written through, and what is there is whole."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from sojourn.cli import clock
from sojourn.cli.cases import Case, Outcome, write_junit
from sojourn.errors import RequestError
from sojourn.export import Request, convert
from sojourn.records import whole_file as whole
from sojourn.records.whole_file import whole_file, write_whole
from sojourn.report.tcplog import draw
from tests.unit.made_up_tcp import Log, MadeFlow
from tests.unit.test_cli_clock import lines

if TYPE_CHECKING:
    from pathlib import Path

DAEMON = 1
COMMANDS = {
    "tcplog convert": "out.csv",
    "tcplog plot": "out.svg",
    "clock --plot": "clocks.svg",
    "compare --junit": "junit.xml",
}


def umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def make(command: str, tmp_path: Path, target: Path) -> None:
    """Let a command write its file at `target`."""
    log = tmp_path / "log"
    if command == "compare --junit":
        write_junit([Case("figures", "rtt", Outcome.PASSED)], target)
        return
    if command == "clock --plot":
        log.mkdir()
        lines().write_ipc_stream(log / "clock_lines-clock-000.arrow")
        clock.draw(log, target)
        return
    Log((MadeFlow(rounds=10),)).write(log)
    if command == "tcplog plot":
        draw(log, target)
    else:
        convert(Request(log, "csv", target, force=True))


@pytest.mark.parametrize("command", COMMANDS)
def test_symbolic_link_at_a_predictable_path_is_not_written_through(tmp_path: Path, command: str) -> None:
    theirs, public = tmp_path / "theirs", tmp_path / "public"
    theirs.write_text("theirs")
    public.mkdir()
    target = public / COMMANDS[command]
    for name in (
        f".{target.name}.part",
        f".{target.name}.draft",
        f"{target.name}.part",
        f"{target.name}.{os.getpid()}",
    ):
        (public / name).symlink_to(theirs)
    make(command, tmp_path, target)
    assert theirs.read_text() == "theirs"
    assert target.stat().st_size > 100
    mode = 0o666 & ~umask() if command == "compare --junit" else 0o600
    assert stat.S_IMODE(target.stat().st_mode) == mode, "junit.xml is for other programs"
    assert len(list(public.iterdir())) == 5, "no draft is left"


@pytest.mark.parametrize("command", ["tcplog plot", "clock --plot", "compare --junit"])
def test_symbolic_link_at_the_place_of_the_file_is_replaced(tmp_path: Path, command: str) -> None:
    theirs, target = tmp_path / "theirs", tmp_path / COMMANDS[command]
    theirs.write_text("theirs")
    target.symlink_to(theirs)
    make(command, tmp_path, target)
    assert theirs.read_text() == "theirs"
    assert not target.is_symlink()


@pytest.mark.parametrize("name", ["junit.xml", "/dev/fd"])
def test_junit_is_written_through_a_pipe(tmp_path: Path, name: str) -> None:
    """`--junit /dev/stdout | program` and `--junit >(program)`: root would replace the link in /dev."""
    if name == "junit.xml":
        os.mkfifo(tmp_path / name)
        reader = os.open(tmp_path / name, os.O_RDONLY | os.O_NONBLOCK)
        writer, target = None, tmp_path / name
    else:
        reader, writer = os.pipe()
        target = type(tmp_path)(name) / str(writer)
    try:
        make("compare --junit", tmp_path, target)
        assert b"<testsuites" in os.read(reader, 1 << 16)
    finally:
        for descriptor in filter(None, (reader, writer)):
            os.close(descriptor)
    assert name == "/dev/fd" or stat.S_ISFIFO(target.lstat().st_mode)


@pytest.mark.parametrize("redirected", [True, False])
def test_link_in_dev_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, redirected: bool) -> None:
    """As root, `clock --plot /dev/stdout` put a file in the place of that link."""
    monkeypatch.setattr(whole, "DEVICES", tmp_path)
    target = tmp_path / "stdout"
    target.symlink_to(tmp_path / "file" if redirected else "/dev/null")
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="no ordinary file"):
        write_whole(target, "x")
    make("compare --junit", tmp_path, target)
    assert target.is_symlink()
    assert not redirected or b"<testsuites" in (tmp_path / "file").read_bytes()


@pytest.mark.parametrize("there", [True, False])
def test_conversion_refuses_a_symbolic_link_also_a_dangling_one(tmp_path: Path, *, there: bool) -> None:
    theirs, target = tmp_path / "theirs", tmp_path / "out.csv"
    if there:
        theirs.write_text("theirs")
    target.symlink_to(theirs)
    with pytest.raises(RequestError, match="no ordinary file"):
        make("tcplog convert", tmp_path, target)
    assert theirs.exists() == there


def test_symbolic_link_created_during_writing_is_replaced(tmp_path: Path) -> None:
    theirs, target = tmp_path / "theirs", tmp_path / "out"
    theirs.write_text("theirs")
    with whole_file(target) as file:
        file.write(b"ours")
        target.symlink_to(theirs)
    assert (theirs.read_text(), target.read_text(), target.is_symlink()) == ("theirs", "ours", False)


def test_content_is_synced_before_the_rename_and_the_rename_before_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    done: list[str] = []
    sync, rename = os.fsync, type(target).replace

    def synced(descriptor: int) -> None:
        kind = os.fstat(descriptor)
        done.append("folder" if stat.S_ISDIR(kind.st_mode) else f"file of {kind.st_size}")
        sync(descriptor)

    def renamed(path: Path, to: Path) -> Path:
        done.append("rename")
        return rename(path, to)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(type(target), "replace", renamed)
    write_whole(target, "ours")
    assert done == ["file of 4", "rename", "folder"]


def test_failure_keeps_the_old_file_and_leaves_no_draft(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("before")
    with pytest.raises(OSError, match="full"), whole_file(target) as file:  # noqa: PT012 -- what is written before counts
        file.write(b"half")
        raise OSError("full")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert target.read_text() == "before"


def test_special_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RequestError, match="no ordinary file"):
        write_whole(tmp_path / "pipe", "x")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_under_sudo_a_file_belongs_to_the_calling_user_if_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", str(DAEMON))
    monkeypatch.setenv("SUDO_GID", str(DAEMON))
    for name, mode, owner, theirs in (
        ("home", 0o700, DAEMON, True),
        ("tmp", 0o1777, 0, True),
        ("etc", 0o755, 0, False),
    ):
        folder = tmp_path / name
        folder.mkdir()
        folder.chmod(mode)
        os.chown(folder, owner, owner)
        write_whole(folder / "out", "x")
        assert ((folder / "out").stat().st_uid == DAEMON) == theirs, name
