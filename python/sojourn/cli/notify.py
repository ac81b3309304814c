"""Notices: the user's command gets the end of a run, and its first doubtful finding, as JSON.

The command has its caller's rights, also under sudo, and a time limit. Whatever it does, the run ends as it would have
without it. Reports nothing of a run that its verdict does not have.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from sojourn.caller import sudo_caller
from sojourn.errors import DENIED, MachineError, SojournError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WITHIN_S = 30.0
"""The time limit of a command; then it is killed, with its process group."""

TOLD = ("name", "severity", "where", "sentence")
"""The reported fields of a finding."""

INTERRUPTED = 130

FAULT = 1
"""The exit status of a program that ends by an unexpected exception."""


@dataclass
class Notices:
    """The notices of one run, and the command that gets them; none without a command."""

    command: str | None
    folder: Path
    has_doubted: bool = False

    @property
    def on_doubt(self) -> Any:
        """The callback for a doubtful finding; None if no notices are requested."""
        return None if self.command is None else self.doubt

    def doubt(self, finding: dict[str, Any]) -> None:
        """Report the run's first doubtful finding, while it is in progress."""
        if not self.has_doubted:
            self.has_doubted = True
            self._tell({"event": "doubtful", "finding": finding})

    @contextmanager
    def of_the_end(self) -> Iterator[None]:
        """Report how the run ends, however it does."""
        try:
            yield
        except SojournError as error:
            outcome = "interrupted" if error.status == INTERRUPTED else "failed"
            self._tell(ended(outcome, error.status, message=str(error)))
            raise
        except typer.Exit as end:
            self._tell(ended("finished", end.exit_code) | verdict_of(self.folder))
            raise
        except KeyboardInterrupt:
            self._tell(ended("interrupted", INTERRUPTED, message="interrupted while it was analysed"))
            raise
        except BrokenPipeError:
            self._tell(ended("finished", 0) | verdict_of(self.folder))
            raise
        except Exception as error:
            is_denied = isinstance(error, OSError) and error.errno in DENIED
            status = MachineError.status if is_denied else FAULT
            self._tell(ended("failed", status, message=f"{type(error).__name__}: {error}"))
            raise
        self._tell(ended("finished", 0) | verdict_of(self.folder))

    def _tell(self, what: dict[str, Any]) -> None:
        if self.command is not None:
            told = {"run": str(self.folder.resolve())} | what
            if failure := run_command(self.command, json.dumps(told) + "\n"):
                print(f"sojourn: --notify {self.command}: {failure}", file=sys.stderr)


def ended(outcome: str, status: int, message: str | None = None) -> dict[str, Any]:
    """Return how a run ended: its outcome, exit status, and the printed sentence if it failed."""
    said = {"event": "ended", "outcome": outcome, "status": status}
    return said if message is None else said | {"message": message}


def verdict_of(folder: Path) -> dict[str, Any]:
    """Return the verdict of an analysed run, with its sentence, headline and doubtful findings."""
    from sojourn.records import RunFolder
    from sojourn.records.results import read_verdict

    try:
        verdict = read_verdict(RunFolder(folder).verdict)
    except SojournError:
        return {}
    doubts = [one for one in verdict.get("findings", []) if one.get("severity") != "note"]
    told = {key: verdict.get(key) for key in ("verdict", "sentence")}
    return told | {"doubtful": [{key: one.get(key) for key in TOLD} for one in doubts]}


def run_command(command: str, told: str, within_s: float = WITHIN_S) -> str:
    """Run a command as the calling user, with this text on its standard input; return why it failed, or nothing.

    Its output goes to our standard error, because our output may be JSON.
    """
    argv, env = ["/bin/sh", "-c", command], dict(os.environ)
    if (caller := sudo_caller()) is not None:
        argv, env = caller.command(argv), caller.environment(os.environ)
    try:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=2, env=env, text=True, start_new_session=True)
    except OSError as error:
        return f"cannot be started ({error.strerror})"
    try:
        process.communicate(told, timeout=within_s)
    except subprocess.TimeoutExpired:
        return f"killed after {within_s:g} s"
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return f"ended with status {process.returncode}" if process.returncode else ""
