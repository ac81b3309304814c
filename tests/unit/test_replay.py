"""An instrument that does not come to its end is ended, and told of in a sentence."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

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


def test_hanging_replay_is_killed(endless: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "REPLAY_SECONDS", 0.05)
    started: list[subprocess.Popen[str]] = []

    def start(argv: list[str], **popen: object) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(argv, **popen))  # type: ignore[call-overload]
        return started[0]

    with pytest.raises(MachineError, match="did not end within"):
        emulator.replay(start, endless, tmp_path, "idle", 0)
    assert started[0].returncode == -9


def test_hanging_emulate_explain_is_reported(endless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "ANSWER_SECONDS", 0.05)
    with pytest.raises(MachineError, match="emulate explain' did not end within"):
        emulator.explain(endless, [])
