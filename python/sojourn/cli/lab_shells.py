"""A shell at both ends of a laboratory: side by side in tmux, else at the near end, with how to enter the far one."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from typing import TYPE_CHECKING, Any

from sojourn.caller import sudo_caller
from sojourn.cli.lab_programs import as_caller, as_told, shell, start

if TYPE_CHECKING:
    import subprocess

    from sojourn.labs.end import End
    from sojourn.labs.lab import Lab


def shells(made: Lab) -> subprocess.Popen[Any]:
    """Start them; the laboratory ends with the returned process."""
    if tmux := usable_tmux():
        options: dict[str, Any] = {"stdin": None, "start_new_session": False, "env": _without_tmux(as_told(os.environ))}
        return made.backend.beside(tmux_argv([tmux, "-S", made.backend.socket("tmux")], made.near, made.far), **options)
    print(banner(made.near, made.far), file=sys.stderr)
    return start(made.near, shell())


def usable_tmux() -> str | None:
    """Return the path of tmux, if it may be used; not under sudo.

    To enter both ends it would have to run as root, and a user who may run only `sojourn lab` as root would control it.
    """
    return shutil.which("tmux") if sudo_caller() is None else None


def banner(near: End, far: End) -> str:
    """Return what the user must know if there is one terminal."""
    return f"this end is {near.address}, {the_other(far)}\n`exit` here ends all of it."


def the_other(far: End) -> str:
    """Return the far end's address, and how another terminal gets a shell there."""
    sudo = ["sudo"] if sudo_caller() else []
    return f"the other end {far.address}; for a shell there, from another terminal: {shlex.join([*sudo, *enter(far)])}"


def enter(end: End) -> list[str]:
    """Return the command with which another terminal gets a shell at an end."""
    told = [f"{name}={value}" for name, value in end.environment.items()]
    return [*end.backend.entrance(end.host), *as_caller(["env", *told, *shell()])]


def tmux_argv(tmux: list[str], near: End, far: End) -> list[str]:
    """Return the command for both ends side by side, on a tmux server of its own; a further pane is at the near end."""
    words = [*tmux, "new-session", "-s", "lab", shlex.join(enter(near)), ";"]
    words += ["split-window", "-h", shlex.join(enter(far)), ";"]
    # Panes are identified by their place only; one that is added later is at the near end.
    title = f" #{{?#{{==:#{{pane_index}},1}},far {far.address},near {near.address}}} "
    settings = {"pane-border-status": "top", "pane-border-format": title, "default-command": shlex.join(enter(near))}
    for name, value in settings.items():
        words += ["set-option", "-g", name, value, ";"]
    return [*words, "select-pane", "-L"]


def _without_tmux(env: dict[str, str]) -> dict[str, str]:
    """Return the environment without tmux's variables, with which tmux refuses to start within itself."""
    return {name: value for name, value in env.items() if name not in {"TMUX", "TMUX_PANE"}}
