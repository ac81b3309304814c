"""The system's own ping: only its arguments. Its output is not read; a capture at the B side measures it."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sojourn.bed import Bed
    from sojourn.bed.hosts import HostName
    from sojourn.plan.probes import Probing
    from sojourn.plan.trial import Trial

ICMP_HEADER = 8
TAKES_IDENTIFIER = "-e <identifier>"


def ping_argv(bed: Bed, trial: Trial[Probing], address: str, cpu: int | None) -> tuple[list[str], int | None]:
    """Return the command line of one trial, and its ICMP identifier if this ping has an option for it."""
    ping = find_ping(bed)
    identifier = 0x4000 + trial.block % 0x4000 if takes_identifier(bed, ping) else None
    pace = ["-f"] if trial.factors.interval_ns == 0 else ["-i", f"{trial.factors.interval_ns / 1e9:g}"]
    argv = [ping, "-n", "-q", "-c", str(trial.count), "-s", str(trial.factors.size - ICMP_HEADER), *pace]
    argv += ["-e", str(identifier)] if identifier is not None else []
    return [*pinned(bed, "a", cpu), *argv, address], identifier


def find_ping(bed: Bed) -> str:
    """Return host A's ping; raises MachineError where it has none."""
    return bed.backend.require_tool("a", "ping", "iputils-ping", "is one of the senders")


def pinned(bed: Bed, host: HostName, cpu: int | None) -> list[str]:
    """Return a prefix that pins a program of a host to one core, if possible."""
    return ["taskset", "-c", str(cpu)] if cpu is not None and bed.backend.find("taskset", host) else []


@lru_cache(maxsize=1)
def takes_identifier(bed: Bed, ping: str) -> bool:
    """Return whether this ping has `-e`, which iputils added in 2021."""
    process = bed.backend.start("a", [ping, "-h"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return TAKES_IDENTIFIER in process.communicate()[0]
