"""Maximum rate of 64-byte frames over a direct veth pair: our engines and trafgen, and the cost of a million frames.

Counted by the receiving interface, not by the sender. The frames of `packet` and trafgen end there: no socket listens,
and the kernel discards them. All others end in a receiver of ours, which must account for every frame sent; their rate
is of frames that it received one by one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.compare import Target
from bench.contest import Claim, Column, Contest
from bench.measure import finish
from sojourn.errors import MachineError
from sojourn.instruments import find_instrument

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.experiments import Ground, Sample
    from sojourn.bed import Bed

FRAMES = {"packet": 1_000_000, "xdp": 1_000_000, "live": 4_000_000, "trafgen": 1_000_000}
"""The number of frames by sender."""

OURS = {
    "packet": ("packet", None),
    "packet, received": ("packet", "packet"),
    "xdp": ("xdp", "xdp"),
    "live": ("live", "live"),
    "live, received by xdp": ("live", "xdp"),
}
"""The sending and the receiving engine."""

FRAME_BYTES = 64
COLUMNS = (
    Column("pps", "received", "1/s"),
    Column("lost_share", "lost", "share"),
    Column("unaccounted", "not accounted for", "frames"),
    Column("cpu_s_per_million", "CPU s per million", "s"),
)


def contest() -> Contest:
    """Return the contest of our engines and trafgen."""
    claims = (
        Claim("packet", "pps", "AF_PACKET beside trafgen", "1/s", Target("at least", 1.5), "trafgen"),
        Claim(
            "packet, received", "pps", "AF_PACKET, received, beside trafgen", "1/s", Target("at least", 1.0), "trafgen"
        ),
        Claim("xdp", "pps", "AF_XDP, received", "1/s", Target("at least", 1.5e6)),
        Claim("live, received by xdp", "pps", "XDP live frames, received by AF_XDP", "1/s", Target("at least", 1.5e6)),
        Claim("live", "pps", "XDP live frames beside trafgen", "1/s", Target("at least", 5.0), "trafgen"),
        *(Claim(of, "unaccounted", f"{of}: not accounted for", "frames", Target("at most", 0.0)) for of in OURS),
    )
    runs: dict[str, Callable[[Ground], Sample]] = {name: _ours(*engines) for name, engines in OURS.items()}
    return Contest("flood of 64-byte frames, direct link", {**runs, "trafgen": _trafgen}, COLUMNS, claims)


def _ours(engine: str, received_by: str | None) -> Callable[[Ground], Sample]:
    def run(ground: Ground) -> Sample:
        link = ground.bed.topology.link("direct")
        to = ["--dev", link.a_dev, "--to", link.b_mac, "--engine", engine, "--clock", "none"]
        what = ["--schedule", "flood", "--size", str(FRAME_BYTES), "--count", str(FRAMES[engine])]
        argv = [find_instrument(), "stream", "send", *to, *what, "--cpu", str(ground.prober_cpu), "--json"]
        if received_by is None:
            sample, said = _measured(ground, argv, FRAMES[engine])
            return {**sample, "unaccounted": max(0.0, float(json.loads(said)["flows"][0]["sent"]) - sample["received"])}
        receiver = _receiver(ground, received_by)
        sample, said = _measured(ground, argv, FRAMES[engine])
        report, complaints = receiver.communicate(timeout=30)
        if receiver.returncode not in (0, 4) or not report:
            raise MachineError(f"stream recv --engine {received_by}: {complaints.strip()[-200:]}")
        told = json.loads(report)
        taken = told["flows"][0]["first"] / max(sample["received"], 1.0)
        unknown = float(unaccounted(json.loads(said), told))
        return {**sample, "pps": sample["pps"] * min(taken, 1.0), "unaccounted": unknown}

    return run


def unaccounted(sent: dict[str, Any], received: dict[str, Any]) -> int:
    """Return the number of sent frames in none of the receiver's counters."""
    flow = received["flows"][0]
    told = sum(flow[name] for name in ("first", "corrupted", "local_drops", "lost"))
    return abs(int(sent["flows"][0]["sent"]) - int(told))


def _receiver(ground: Ground, engine: str) -> subprocess.Popen[str]:
    link = ground.bed.topology.link("direct")
    how = ["--dev", link.b_dev, "--engine", engine, "--for", "60s", "--json"]
    argv = [find_instrument(), "stream", "recv", *how, "--cpu", str(ground.responder_cpu)]
    process: subprocess.Popen[str] = ground.bed.backend.start(
        "b", argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(0.5)
    return process


def _trafgen(ground: Ground) -> Sample:
    link = ground.bed.topology.link("direct")
    frame = f"{{ eth(da={link.b_mac}, sa={link.a_mac}, proto=0x88b7), fill(0, 46) }}"
    argv = ["trafgen", "-o", link.a_dev, "-n", str(FRAMES["trafgen"]), "-P", "1", frame]
    return _measured(ground, argv, FRAMES["trafgen"])[0]


def _measured(ground: Ground, argv: list[str], frames: int) -> tuple[Sample, str]:
    """Measure one run: its rate at the receiving interface, its loss, its cost."""
    return watched(ground.bed, ground.bed.topology.link("direct").b_dev, argv, frames)


def watched(bed: Bed, dev: str, argv: list[str], frames: int) -> tuple[Sample, str]:
    """Run a sender of so many frames at A; return what B's interface counts, and what the sender prints."""
    watcher: subprocess.Popen[str] = bed.backend.start(
        "b", [sys.executable, "-c", WATCH, dev], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    time.sleep(WATCH_SECONDS)
    busy = machine_busy_seconds()
    done = finish(bed, "a", argv)
    busy = machine_busy_seconds() - busy
    time.sleep(WATCH_SECONDS)
    seen, _ = watcher.communicate("")
    received, rate = rate_of(json.loads(seen))
    figures = {
        "pps": rate,
        "received": float(received),
        "lost_share": 1 - min(received, frames) / frames,
        "cpu_s_per_million": busy / frames * 1e6,
    }
    return figures, done.printed


WATCH_SECONDS = 0.2
WATCH = """
import json, select, sys, time
seen = []
while not select.select([sys.stdin], [], [], 0.005)[0]:
    with open("/proc/self/net/dev") as file:
        line = next(line for line in file if line.split(":")[0].strip() == sys.argv[1])
    seen.append((time.monotonic_ns(), int(line.split(":")[1].split()[1])))
print(json.dumps(seen))
"""
"""Reads an interface's counter of received packets every 5 ms until its input ends."""


def rate_of(seen: list[tuple[int, int]]) -> tuple[int, float]:
    """Return the number of received frames, and their rate between the first tenth of them and the last."""
    at, count = np.array(seen, dtype=np.int64).T
    count -= count[0]
    total = int(count[-1])
    if total == 0:
        raise MachineError("the flood did not arrive at all")
    first, last = np.searchsorted(count, [0.1 * total, 0.9 * total])
    span = int(at[last] - at[first])
    return total, float(count[last] - count[first]) / max(span, 1) * 1e9


def machine_busy_seconds() -> float:
    """Return the CPU time of all cores for everything, the kernel's packet work included."""
    line = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, line.split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
