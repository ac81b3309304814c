"""One emulator for an hour: does it lose packets, grow, or get later? Runs only on request (`--part soak`)."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.compare import Target, What, alone
from bench.emulator import EMULATE, NONE, Ground, Running, emulating, pipe_of, piped
from sojourn.bed import BedSpec, build_bed
from sojourn.errors import MachineError
from sojourn.instruments import find_instrument

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.compare import Row

WORDS = "delay 20ms jitter 2ms distribution normal loss 1% rate 100Mbit/s"
PACE_PPS = 1_000
LOOK_SECONDS = 10.0
GROWTH = 0.05
LATE = 0.01


def rows(seconds: float, scratch: Path, cores: tuple[int, int], tell: Callable[[str], None]) -> list[Row]:
    """Return the results, read every ten seconds."""
    with build_bed(BedSpec(devices=(EMULATE,)), "soak") as bed:
        ground = Ground(bed, scratch, *cores)
        with emulating(ground, piped(WORDS), NONE) as running:
            looks = watch(ground, running, seconds, tell)
            time.sleep(0.5)
            last = pipe_of(running.ask())
    return [*judged(looks), line("packets in no count", "1", [float(unaccounted(last))], Target("at most", 0.0))]


def watch(ground: Ground, running: Running, seconds: float, tell: Callable[[str], None]) -> list[dict[str, float]]:
    """Send a stream for this long, and read the emulator's state meanwhile."""
    link = ground.link(EMULATE)
    to = ["--dev", link.a_dev, "--to", link.b_mac, "--clock", "none", "--cpu", str(ground.sender_cpu)]
    what = ["--rate", f"{PACE_PPS}pps", "--duration", f"{seconds:.0f}s"]
    argv = [find_instrument(), "stream", "send", *to, *what]
    sender = ground.bed.backend.start("a", argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    looks = []
    while sender.poll() is None:
        time.sleep(min(LOOK_SECONDS, max(seconds / 20, 1.0)))
        looks.append(look(running))
        tell(f"{looks[-1]['sent']:,.0f} packets left, p99 {looks[-1]['p99_ns'] / 1e3:.1f} µs")
    if sender.returncode != 0:
        raise MachineError(f"the sender of the soak ended with status {sender.returncode}")
    return looks


def look(running: Running) -> dict[str, float]:
    """Return memory and accuracy now."""
    pipe = pipe_of(running.ask())
    accuracy: dict[str, Any] = pipe["accuracy"]
    return {
        "rss": resident_bytes(running.process.pid),
        "sent": float(pipe["sent"]),
        "late": float(accuracy["late"]),
        "p50_ns": float(accuracy["p50_ns"]),
        "p99_ns": float(accuracy["p99_ns"]),
    }


def resident_bytes(pid: int) -> float:
    """Return the resident memory of the process, or of its child if that is larger."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    every = [pid, *map(int, children)]
    pages = [int(Path(f"/proc/{one}/statm").read_text(encoding="ascii").split()[1]) for one in every]
    return max(pages) * 4096.0


def judged(looks: list[dict[str, float]]) -> list[Row]:
    """Return the growth from the first quarter to the last, and the share of late packets."""
    quarter = max(1, len(looks) // 4)
    first, last = (float(np.median([one["rss"] for one in part])) for part in (looks[:quarter], looks[-quarter:]))
    final = looks[-1]
    return [
        line("memory, last quarter over the first, more by", "share", [last / first - 1], Target("at most", GROWTH)),
        line("packets late", "share", [final["late"] / max(final["sent"], 1.0)], Target("at most", LATE)),
        line("p50 of the pacing error", "ns", [final["p50_ns"]], None),
        line("p99 of the pacing error", "ns", [final["p99_ns"]], None),
        line("packets that left", "1", [final["sent"]], None),
    ]


def unaccounted(pipe: dict[str, Any]) -> int:
    """Return how many arrived packets are in no count, or in two."""
    gone = int(pipe["sent"]) + int(pipe["held"]) + sum(map(int, pipe["lost"].values()))
    return abs(int(pipe["arrived"]) + int(pipe["duplicated"]) - gone)


def line(name: str, unit: str, values: list[float], target: Target | None) -> Row:
    """A line of the table."""
    return alone(What("soak", "itself", name, unit), [(value, value) for value in values], target)
