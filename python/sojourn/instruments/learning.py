"""Run `new_addresses.py` on a host of the bed: frames with ever new source addresses, which a bridge learns."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from sojourn.bed.bounded import SilentError, TooLongError, outputs_of
from sojourn.bed.cores import program
from sojourn.bed.ssh import reading
from sojourn.errors import MachineError
from sojourn.records.decode import json_value

if TYPE_CHECKING:
    from sojourn.bed.backend import Backend
    from sojourn.bed.hosts import HostName

PROGRAM = Path(__file__).with_name("new_addresses.py")
PATIENCE_SECONDS = 60.0
LONGEST_NS = 1 << 63


def send_new_addresses(backend: Backend, host: HostName, dev: str, count: int, rate_pps: float, to: str) -> int:
    """Send from `count` addresses, at a rate or (0) the maximum rate; return the duration in nanoseconds."""
    argv = [*program(backend, host, PROGRAM), dev, str(count), str(rate_pps), to]
    process = backend.start(host, argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    longest = PATIENCE_SECONDS + (2 * count / rate_pps if rate_pps else 0.0)
    try:
        out, said = outputs_of(process, longest)
    except SilentError:
        raise MachineError(f"the program that sends frames with new addresses does not end at {dev}") from None
    except TooLongError:
        raise MachineError(f"the program that sends frames with new addresses prints without end at {dev}") from None
    if process.returncode:
        words = said.strip().splitlines() or ["it says nothing"]
        raise MachineError(f"no frames with new addresses can be sent at {dev}: {words[-1]}")
    with reading(f"host {host.upper()}"):
        elapsed_ns = int(json_value(out)["elapsed_ns"])
        if not 0 < elapsed_ns < LONGEST_NS:
            raise ValueError(f"elapsed_ns {str(elapsed_ns)[:30]}")
        return elapsed_ns
