"""Files that say which beds there are: those of killed controllers that held their bed themselves go with the next."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

from sojourn.bed import state
from sojourn.bed.state import Mark, Process, StateFile, boot_id, pid_namespace, remove_left
from tests.children import Child

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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
