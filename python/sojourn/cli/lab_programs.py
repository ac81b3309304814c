"""Programs of a laboratory, on this terminal, run as the user who called `sojourn lab`, by sudo or directly."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sojourn.caller import sudo_caller

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

    from sojourn.labs.end import End


def shell() -> list[str]:
    """Return the caller's own shell."""
    return [as_told(os.environ).get("SHELL") or "sh"]


def as_told(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the calling user, by sudo or directly."""
    user = sudo_caller()
    return dict(env) if user is None else user.environment(env)


def as_caller(argv: Sequence[str]) -> list[str]:
    """Return the command that becomes `argv` as the calling user, by sudo or directly."""
    user = sudo_caller()
    return list(argv) if user is None else user.command(argv)


def start(end: End, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
    """Start a command as the caller, on this terminal."""
    given = {"stdin": None, "start_new_session": False, "env": as_told(os.environ)} | popen
    return end.popen(as_caller(argv), **given)
