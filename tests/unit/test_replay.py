"""An instrument that does not come to its end is ended, and told of in a sentence."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.errors import MachineError
from sojourn.instruments import emulator

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def endless(tmp_path: Path) -> str:
    """An instrument that says nothing and does not end."""
    path = tmp_path / "instrument"
    path.write_text("#!/bin/sh\nexec sleep 60\n")
    path.chmod(0o755)
    return str(path)


def start(argv: list[str], **popen: Any) -> subprocess.Popen[Any]:
    return subprocess.Popen(argv, **popen)


def test_hanging_replay_is_killed(endless: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "REPLAY_SECONDS", 0.05)
    started: list[subprocess.Popen[str]] = []

    def start(argv: list[str], **popen: object) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(argv, **popen))  # type: ignore[call-overload]
        return started[0]

    with pytest.raises(MachineError, match="did not end within"):
        emulator.replay(start, endless, tmp_path, "idle", 0)
    assert started[0].returncode == -9


def test_replay_that_prints_without_end_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "instrument"
    path.write_text("#!/bin/sh\nexec cat /dev/zero\n")
    path.chmod(0o755)
    with pytest.raises(MachineError, match=r"prints without end \(more than 67108864 bytes\)"):
        emulator.replay(start, str(path), tmp_path, "idle", 0)


def test_hanging_emulate_explain_is_reported(endless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "ANSWER_SECONDS", 0.05)
    with pytest.raises(MachineError, match="emulate explain' did not end within"):
        emulator.explain(endless, [])
