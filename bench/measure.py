"""One program run to its end in the bed: its output, duration and CPU time.

CPU time is the kernel's for that one process and its threads (wait4), so a peer's and ours are counted alike.
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.bed import Bed
    from sojourn.bed.hosts import HostName


@dataclass(frozen=True, slots=True)
class Finished:
    """A program that has ended successfully."""

    printed: str
    elapsed_ns: int
    cpu_ns: int


def finish(bed: Bed, host: HostName, argv: Sequence[str]) -> Finished:
    """Run a program on a host to its end; raise MachineError with its own output when it fails."""
    started = time.monotonic_ns()
    process = bed.backend.start(host, list(argv), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if process.returncode != 0:
        raise MachineError(f"'{' '.join(argv)}' ended with status {process.returncode}: {printed.strip()[-300:]}")
    return Finished(printed, time.monotonic_ns() - started, round((usage.ru_utime + usage.ru_stime) * 1e9))
