"""The same study over network namespaces and over SSH to hosts on this machine: do both say the same of a bridge?

The hosts are sshd's of OpenSSH in namespaces of their own (tests/net/real_hosts.py) with this machine's clock; the
device is a Linux bridge between veths on either bed, and prober and responder have the same processors. So a difference
is what SSH and the keeper on each host change of a measurement: there should be none. Each repetition measures over
namespaces twice: the control, for two beds of one kind differ, too.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.compare import Row, Target, What, alone
from sojourn.errors import MachineError
from tests.net.real_hosts import Hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SOJOURN = str(Path(sys.executable).with_name("sojourn"))
SIZES = (64, 1480)
SETS = {"bed.devices": "bridge", "bed.sessions": "6", "bed.twins": "false", "pairs.rounds": "48",
        "probe.icmp_bytes": ",".join(map(str, SIZES))}  # fmt: skip
LONGEST_SECONDS = 300
DOUBTFUL = 4
SSH, NETNS, AGAIN = "ssh", "netns", "again"

Added = dict[int, float]
"""The mean latency that the bridge adds, by the size of ICMP's message: ns."""


def rows(repetitions: int, seed: int, scratch: Path, tell: Callable[[str], None]) -> list[Row]:
    """The lines of the table."""
    order, found = random.Random(seed), []
    for number in range(1, repetitions + 1):
        tell(f"hosts: repetition {number}/{repetitions}")
        own = scratch / f"hosts-{number}"
        runs: dict[str, Added] = {}
        for name in order.sample((SSH, NETNS, AGAIN), 3):
            runs[name] = over_ssh(own) if name == SSH else studied(own / name)
        found.append(runs)
    return [row for size in SIZES for row in compared(size, found)]


def compared(size: int, found: Sequence[dict[str, Added]]) -> list[Row]:
    """What a size's latency differs by over SSH, and its control, whose interval is the target of the former."""
    task = f"what a bridge adds to {size} B of ICMP"
    control = alone(
        What(task, "namespaces", "namespaces again: difference", "ns"),
        [(runs[AGAIN][size] - runs[NETNS][size], 0.0) for runs in found],
        None,
    )
    apart = [runs[SSH][size] - runs[NETNS][size] for runs in found]
    sign = 1.0 if sum(apart) >= 0 else -1.0  # a target has one side
    ends = [abs(end) for end in (control.ci_low, control.ci_high) if end is not None]
    over = alone(
        What(task, "namespaces", "hosts over SSH: difference, as a positive value", "ns"),
        [(sign * one, 0.0) for one in apart],
        Target("at most", max(ends)) if ends else None,
    )
    return [over, control]


def over_ssh(scratch: Path) -> Added:
    """The study on hosts that are reached by SSH alone."""
    with Hosts(scratch / "hosts", own_boots=False) as hosts:
        return studied(scratch / SSH, hosts.command(), ["--bed", str(hosts.bed())])


def studied(out: Path, before: Sequence[str] = (), more: Sequence[str] = ()) -> Added:
    """One run of the study; `before` stands before its command."""
    cores = sorted(os.sched_getaffinity(0))
    asked = SETS | {"host.prober_cpu": str(cores[0]), "host.responder_cpu": str(cores[-1])}
    sets = [word for key, value in asked.items() for word in ("--set", f"{key}={value}")]
    argv = [*before, SOJOURN, "run", "bridge-latency", "--quick", *more, *sets, "--out", str(out)]
    argv += ["--no-report", "--no-history"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise MachineError(f"the study took longer than {LONGEST_SECONDS} s") from None
    if done.returncode not in (0, DOUBTFUL):
        raise MachineError(f"the study failed: {done.stderr.strip()[-300:]}")
    results: list[dict[str, Any]] = json.loads((out / "analysis/results.json").read_text())
    means = ("bridge", "device_latency", "mean", "direct")
    return {
        row["icmp_bytes"]: row["estimate"]
        for row in results
        if (row["device"], row["quantity"], row["statistic"], row["reference"]) == means
    }
