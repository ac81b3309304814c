"""Notices: what a command gets of a run's end and of its first doubt, as whom it runs, and that it ends nothing."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import typer

from sojourn.cli.notify import Notices, run_command
from sojourn.conduct import Interrupted
from sojourn.errors import MachineError


def told(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def notices(tmp_path: Path) -> Notices:
    (tmp_path / "run" / "analysis").mkdir(parents=True)
    findings = [
        {"name": "unsteady", "severity": "doubtful", "where": "bridge", "sentence": "it changed", "value": 1.0},
        {"name": "drift", "severity": "note", "where": "bridge", "sentence": "it drifts", "value": 1.0},
    ]
    verdict = {"verdict": "doubtful", "sentence": "The bridge adds 1 µs", "findings": findings}
    (tmp_path / "run" / "analysis" / "verdict.json").write_text(json.dumps(verdict))
    return Notices(f"cat >> {tmp_path}/told", tmp_path / "run")


def test_notification_of_the_end_contains_the_verdict(notices: Notices, tmp_path: Path) -> None:
    with notices.of_the_end():
        pass
    (one,) = told(tmp_path / "told")
    assert one == {
        "run": str(tmp_path / "run"),
        "event": "ended",
        "outcome": "finished",
        "status": 0,
        "verdict": "doubtful",
        "sentence": "The bridge adds 1 µs",
        "doubtful": [{"name": "unsteady", "severity": "doubtful", "where": "bridge", "sentence": "it changed"}],
    }


@pytest.mark.parametrize(
    ("error", "outcome", "status"),
    [
        (MachineError("the fan fell off"), "failed", 3),
        (Interrupted("interrupted; go on with"), "interrupted", 130),
        (KeyboardInterrupt(), "interrupted", 130),
        (OSError(errno.ENOSPC, "no space"), "failed", 3),
        (ValueError("nobody thought of this"), "failed", 1),
    ],
)
def test_notification_of_an_early_end_contains_no_old_verdict(
    notices: Notices, tmp_path: Path, error: BaseException, outcome: str, status: int
) -> None:
    with pytest.raises(type(error)), notices.of_the_end():
        raise error
    (one,) = told(tmp_path / "told")
    assert (one["event"], one["outcome"], one["status"]) == ("ended", outcome, status)
    assert str(error) in one["message"]
    assert "verdict" not in one


def test_a_run_that_must_not_be_trusted_is_finished_with_status_4(notices: Notices, tmp_path: Path) -> None:
    with pytest.raises(typer.Exit), notices.of_the_end():
        raise typer.Exit(4)
    assert [(one["outcome"], one["status"]) for one in told(tmp_path / "told")] == [("finished", 4)]


def test_only_the_first_doubt_is_notified(notices: Notices, tmp_path: Path) -> None:
    for name in ("unsteady", "tester_limited"):
        notices.on_doubt({"name": name})
    assert [(one["event"], one["finding"]["name"]) for one in told(tmp_path / "told")] == [("doubtful", "unsteady")]
    assert Notices(None, tmp_path).on_doubt is None


@pytest.mark.parametrize(
    ("command", "said"),
    [("false", "ended with status 1"), ("no-such-program-here", "ended with status 127"), ("exec <&-", "")],
)
def test_failing_notification_command_does_not_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, said: str
) -> None:
    with Notices(command, tmp_path).of_the_end():
        pass
    assert said in capsys.readouterr().err


def test_hanging_notification_command_is_killed_with_its_children(tmp_path: Path) -> None:
    began = time.monotonic()
    assert run_command(f"sleep 300 & echo $! > {tmp_path}/pid; wait", "", within_s=2) == "killed after 2 s"
    assert time.monotonic() - began < 60
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 20
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(child)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is called by sudo")
def test_under_sudo_the_command_has_the_rights_of_the_calling_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    assert run_command("id -u; grep CapEff /proc/self/status; echo ${SUDO_UID:-none}", "") == ""
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.split() == ["65534", "CapEff:", "0000000000000000", "none"]
