"""The same study over network namespaces and over SSH to hosts on this machine: do both say the same of a bridge?

The hosts are sshd's of OpenSSH in namespaces of their own (tests/net/real_hosts.py) with this machine's clock; the
device is a Linux bridge between veths in both arms. The study pins its programs to the same processors in both, so
their difference is what SSH and the keeper on each host change of a measurement. It should be none.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.compare import Row, Target, What, alone, ratio
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


class Found(NamedTuple):
    """What one run says of one size, in ns."""

    added: float
    """The mean latency that the bridge adds."""
    control: float
    """The end of the A/A control's interval that is farther from 0."""


Run = dict[int, Found]
"""By the size of ICMP's message."""


def rows(repetitions: int, seed: int, scratch: Path, tell: Callable[[str], None]) -> list[Row]:
    """The lines of the table."""
    order, pairs = random.Random(seed), []
    for number in range(1, repetitions + 1):
        tell(f"hosts: repetition {number}/{repetitions}")
        pairs.append(both(scratch / f"hosts-{number}", ssh_first=order.random() < 0.5))
    found = []
    for size in SIZES:
        task = f"what a bridge adds to {size} B of ICMP, hosts over SSH"
        own = [(ssh[size], net[size]) for ssh, net in pairs]
        apart = [(abs(a.added - b.added) / max(a.control, b.control), 0.0) for a, b in own]
        found += [
            ratio(What(task, "namespaces", "mean latency", "ns"), [(a.added, b.added) for a, b in own], None),
            alone(What(task, "none", "difference over the control's interval", "1"), apart, Target("at most", 1.0)),
        ]
    return found


def both(scratch: Path, *, ssh_first: bool) -> tuple[Run, Run]:
    """One repetition: over SSH and over namespaces, one straight after the other."""
    if ssh_first:
        ssh = over_ssh(scratch)
        return ssh, studied(scratch / "netns")
    net = studied(scratch / "netns")
    return over_ssh(scratch), net


def over_ssh(scratch: Path) -> Run:
    """The study on hosts that are reached by SSH alone."""
    with Hosts(scratch / "hosts", own_boots=False) as hosts:
        return studied(scratch / "ssh", hosts.command(), ["--bed", str(hosts.bed())])


def studied(out: Path, before: Sequence[str] = (), more: Sequence[str] = ()) -> Run:
    """One run of the study; `before` stands before its command."""
    sets = [word for key, value in SETS.items() for word in ("--set", f"{key}={value}")]
    argv = [*before, SOJOURN, "run", "bridge-latency", "--quick", *more, *sets, "--out", str(out)]
    argv += ["--no-report", "--no-history"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    if done.returncode not in (0, DOUBTFUL):
        raise MachineError(f"the study failed: {done.stderr.strip()[-300:]}")
    results: list[dict[str, Any]] = json.loads((out / "analysis/results.json").read_text())
    rows = {
        (row["device"], row["icmp_bytes"]): row
        for row in results
        if (row["quantity"], row["statistic"], row["reference"]) == ("device_latency", "mean", "direct")
    }
    return {size: Found(rows["bridge", size]["estimate"], farther(rows["a/a", size])) for size in SIZES}


def farther(row: dict[str, Any]) -> float:
    """The end of an interval that is farther from 0."""
    return float(max(abs(row["ci_low"]), abs(row["ci_high"])))
