"""Files that say which beds there are: those of killed controllers that held their bed themselves go with the next."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed import HostSpec, clean, netem_left, real_hosts, state
from sojourn.bed import ssh as lines
from sojourn.bed.backends import ssh
from sojourn.bed.state import Mark, Process, StateFile, boot_id, pid_namespace, remove_left
from sojourn.errors import MachineError
from tests.children import Child

if TYPE_CHECKING:
    from collections.abc import Callable


def ended() -> Process:
    """A process that was there and is gone."""
    with Child(["cat"], stdin=subprocess.PIPE) as one:
        return Process.of(one.pid)


def left(folder: Path, controller: Process, holder: Process, run: str, boot: str) -> Path:
    """The state file of a bed, with a socket beside it."""
    mark = Mark(run, controller)
    path = folder / f"sojourn-bed-{mark}.json"
    text = {"mark": str(mark), "boot": boot, "pids": pid_namespace(), "holder": vars(holder)}
    path.write_text(json.dumps(text))
    (folder / f"{path.stem}.ssh-a.sock").touch()
    return path


def test_state_files_of_killed_controllers_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "state_folder", lambda: tmp_path)
    gone, ours = ended(), Process.of(os.getpid())
    left(tmp_path, gone, gone, "killed", boot_id())
    stay = [
        left(tmp_path, gone, gone, "of-another-machine", "0"),
        left(tmp_path, gone, ended(), "of-namespaces", boot_id()),
        left(tmp_path, ours, ours, "going-on", boot_id()),
    ]
    (tmp_path / "sojourn-bed-nonsense.json").write_text("{}")
    StateFile("another").write(ours)
    remove_left()
    found = {path.name for path in tmp_path.iterdir()}
    assert found == {
        *(path.name for path in stay),
        *(f"{path.stem}.ssh-a.sock" for path in stay),
        "sojourn-bed-nonsense.json",
        f"sojourn-bed-{Mark('another', ours)}.json",
    }


@pytest.mark.parametrize("remove", [remove_left, clean.clean], ids=["the next bed", "bed clean"])
def test_old_drafts_of_state_files_are_removed(
    remove: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "state_folder", lambda: tmp_path)
    monkeypatch.setattr(clean, "state_folder", lambda: tmp_path)
    for name in ("marked_processes", "_clean_cgroups"):
        monkeypatch.setattr(clean, name, lambda *_: [])
    monkeypatch.setattr("sojourn.bed.held.recovered", lambda _: ([], []))
    monkeypatch.setattr("sojourn.records.scratch.left", lambda: iter(()))
    monkeypatch.setattr(netem_left, "remove_left", lambda: ([], []))
    old, new, other = (tmp_path / name for name in ("sojourn-bed-x@1-2.draft", "sojourn-bed-y@3-4.draft", "x.draft"))
    for draft in (old, new, other):
        draft.touch()
    for draft in (old, other):
        os.utime(draft, (time.time() - 100, time.time() - 100))
    remove()
    assert sorted(tmp_path.iterdir()) == [new, other], "one that is being written is not touched"


class Touched:
    """A connection of which nothing but the socket exists."""

    def __init__(self, name: str, _: HostSpec, socket: str) -> None:
        self.name = name
        Path(socket).touch()

    def close(self) -> None:
        """Leave the socket, as at a SIGKILL."""


def interfaces_of(spec: HostSpec) -> object:
    return real_hosts.first_file({"a": spec, "b": spec})


def check_of(spec: HostSpec) -> object:
    return list(real_hosts._host("a", spec, []))


def cores_of(spec: HostSpec) -> object:
    return ssh._common_cores.__wrapped__((("a", spec),))


@pytest.mark.parametrize("look", [interfaces_of, check_of, cores_of])
def test_socket_of_a_look_at_a_host_is_named_by_a_state_file(
    look: Callable[[HostSpec], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it is removed after a SIGKILL. Nothing said whose it was, and it stayed."""
    seen: list[tuple[str, str]] = []

    def looked(_: object) -> None:
        [(path, one)] = state.states()
        assert one is not None
        assert one.holder == one.mark.controller == Process.of(os.getpid())
        seen.extend((socket.name, path.stem) for socket in tmp_path.glob("*.sock"))
        raise MachineError("it does not answer")

    monkeypatch.setattr(state, "state_folder", lambda: tmp_path)
    monkeypatch.setattr(lines, "Line", Touched)
    for module in (real_hosts, ssh):
        monkeypatch.setattr(module, "look", looked)
    with suppress(MachineError):
        look(HostSpec("a.lab"))
    [(socket, stem)] = seen
    assert socket == f"{stem}.ssh.sock"
    assert list(tmp_path.iterdir()) == []


def test_parents_that_proc_hides_end_no_cleaning(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hidepid=2 those of other users, such as root's sshd, cannot be seen: it ended in a traceback."""
    read = Path.read_text

    def hidden(self: Path, *given: Any, **named: Any) -> str:
        if self == Path(f"/proc/{os.getppid()}/stat"):
            raise FileNotFoundError(self)
        return read(self, *given, **named)

    monkeypatch.setattr(Path, "read_text", hidden)
    assert clean._this_process_and_its_parents() == {os.getpid(), os.getppid()}
