"""Commands of iproute2 and nftables on this machine itself, for what is done to its own ports.

A bed runs its commands by its backend, on any host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

from sojourn.bed.ssh import reading
from sojourn.binary import search_path
from sojourn.errors import MachineError
from sojourn.records.decode import json_value

SECONDS = 10.0
"""The time limit of each command."""
inherited: list[int] = []
"""Descriptors that each command inherits: of a lock that is held until the last of them has ended."""


def tables(argv: list[str], *needed: str) -> list[dict[str, Any]]:
    """Return the tables that a command prints as JSON, without empty ones; each must have the `needed` keys."""
    with reading(f"'{' '.join(argv)}'", "iproute2"):
        found = [dict(one) for one in json_value(run(argv) or "[]") if one]
        for one in found:
            if lacking := [name for name in needed if name not in one]:
                raise ValueError(f"without {lacking[0]}")
        return found


def run(argv: list[str], text: str = "") -> str:
    """Return the output of a command with `text` as its input; raises MachineError if it fails."""
    env = {**os.environ, "PATH": search_path()}
    program = shutil.which(argv[0], path=search_path()) or argv[0]
    try:
        done = subprocess.run(
            [program, *argv[1:]], input=text, capture_output=True, text=True, errors="replace", timeout=SECONDS,
            check=False, env=env, pass_fds=inherited,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise MachineError(f"'{' '.join(argv)}' did not end within {SECONDS:.0f} s") from None
    if done.returncode != 0:
        said = " / ".join((done.stderr or done.stdout).strip().splitlines()[:2]) or f"status {done.returncode}"
        raise MachineError(f"'{' '.join(argv)}' failed: {said}")
    return done.stdout
