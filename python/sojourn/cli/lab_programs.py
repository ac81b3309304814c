"""Programs of a laboratory, on this terminal, as whoever called `sojourn lab`, by sudo or without."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sojourn.caller import sudo_caller

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

    from sojourn.labs.end import End


def shell() -> list[str]:
    """The caller's own shell."""
    return [as_told(os.environ).get("SHELL") or "sh"]


def as_told(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of whoever called this, by sudo or without."""
    user = sudo_caller()
    return dict(env) if user is None else user.environment(env)


def as_caller(argv: Sequence[str]) -> list[str]:
    """The command that becomes `argv` as whoever called this, by sudo or without."""
    user = sudo_caller()
    return list(argv) if user is None else user.command(argv)


def start(end: End, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
    """Start a command as the caller, on this terminal."""
    given = {"stdin": None, "start_new_session": False, "env": as_told(os.environ)} | popen
    return end.popen(as_caller(argv), **given)
