"""The system's own ping: arguments only. Its output is not read; a capture at the far end judges it."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING

from sojourn.errors import MachineError

if TYPE_CHECKING:
    from sojourn.plan.probes import Probing
    from sojourn.plan.trial import Trial

ICMP_HEADER = 8
TAKES_IDENTIFIER = "-e <identifier>"


def ping_argv(trial: Trial[Probing], address: str, cpu: int | None) -> tuple[list[str], int | None]:
    """The command line of one trial, and the ICMP identifier that it will carry where this ping lets us choose it."""
    ping = shutil.which("ping")
    if ping is None:
        raise MachineError("there is no ping here: apt-get install iputils-ping")
    identifier = 0x4000 + trial.block % 0x4000 if takes_identifier(ping) else None
    pace = ["-f"] if trial.factors.interval_ns == 0 else ["-i", f"{trial.factors.interval_ns / 1e9:g}"]
    argv = [ping, "-n", "-q", "-c", str(trial.count), "-s", str(trial.factors.size - ICMP_HEADER), *pace]
    argv += ["-e", str(identifier)] if identifier is not None else []
    return [*pinned(cpu), *argv, address], identifier


def pinned(cpu: int | None) -> list[str]:
    """A prefix that keeps a program on one core, where the machine can."""
    return ["taskset", "-c", str(cpu)] if cpu is not None and shutil.which("taskset") else []


@cache
def takes_identifier(ping: str) -> bool:
    """Whether this ping has `-e`, which iputils got in 2021."""
    usage = subprocess.run([ping, "-h"], capture_output=True, text=True, check=False)
    return TAKES_IDENTIFIER in usage.stdout + usage.stderr
