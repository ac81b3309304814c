"""Our taps, tcpdump and dumpcap: the captured share of a flood, and the latency that each adds to a bridge.

Ours is the packet ring; the BPF tap, also ours, is compared as another peer. The flood has our sender's maximum rate: a
capture that drops none of it has that rate, which is not its own limit; a second flood has a steady rate. All have the
same buffer memory, and write every frame to the same disk. Round trips are between the kernel's timestamps of ICMP
probes over five bridges of one kind, four of which have a capture on one port.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.compare import Row, Target, What, alone, ratio
from bench.measure import finish
from bench.ours import probe
from sojourn.bed import BedSpec, build_bed
from sojourn.errors import MachineError
from sojourn.instruments import find_instrument

if TYPE_CHECKING:
    from collections.abc import Callable

    from sojourn.bed import Bed

PEERS = ("bpf", "tcpdump", "dumpcap")
OURS = "capture"
TAPS = {OURS: "ring", "bpf": "bpf"}
"""Our captures, and the copying method of each."""
FRAMES = 1_000_000
FRAME_BYTES = 64
WAITING_MIB = 64
PROBES = 4_000
STEADY_RATE_PPS = 200_000
FLOOD_TASK = f"capturing a flood of {FRAMES:,} frames of {FRAME_BYTES} bytes, {WAITING_MIB} MiB of buffer"
STEADY_TASK = f"capturing {STEADY_RATE_PPS:,} frames of {FRAME_BYTES} bytes a second, {WAITING_MIB} MiB of buffer"
PATH_TASK = "ICMP over the Linux bridge with a capture on one port"
SETTLE_SECONDS = 1.5
"""Blocks are passed to libpcap at most a second after their first frame."""


class Program(NamedTuple):
    """A capture program: its command line, and its output when it has started."""

    argv: list[str]
    says: str


class Flood(NamedTuple):
    """The result of a capture of a flood."""

    captured_pps: float
    dropped_share: float
    cpu_s_per_million: float


def rows(repetitions: int, seed: int, scratch: Path, tell: Callable[[str], None]) -> list[Row]:
    """The lines of the table."""
    order = random.Random(seed)
    tools = (OURS, *PEERS)
    floods: dict[str, list[Flood]] = {name: [] for name in tools}
    steady: dict[str, list[Flood]] = {name: [] for name in tools}
    medians: dict[str, list[float]] = {name: [] for name in ("bridge", *tools)}
    devices = ("bridge", *(f"bridge:{name}" for name in tools))
    for number in range(1, repetitions + 1):
        with build_bed(BedSpec(devices=devices), f"taps{os.getpid()}n{number}") as bed:
            for name in order.sample(tools, len(tools)):
                tell(f"taps: repetition {number}/{repetitions}: a flood captured by {name}")
                floods[name].append(flooded(bed, name, scratch, ["--schedule", "flood"]))
            for name in order.sample(tools, len(tools)):
                tell(f"taps: repetition {number}/{repetitions}: {STEADY_RATE_PPS:,} frames a second captured by {name}")
                steady[name].append(flooded(bed, name, scratch, ["--rate", f"{STEADY_RATE_PPS}pps"]))
            for name in order.sample(list(medians), len(medians)):
                tell(f"taps: repetition {number}/{repetitions}: round trips, {name}")
                medians[name].append(round_trip_ns(bed, name, scratch))
    return [*flood_rows(floods), *steady_rows(steady), *path_rows(medians)]


def flood_rows(floods: dict[str, list[Flood]]) -> list[Row]:
    """Return the lines for the floods."""
    lines = []
    for peer in PEERS:
        pairs = list(zip(floods[OURS], floods[peer], strict=True))
        rates = [(ours.captured_pps, theirs.captured_pps) for ours, theirs in pairs]
        costs = [(ours.cpu_s_per_million, theirs.cpu_s_per_million) for ours, theirs in pairs]
        drops = [(ours.dropped_share, theirs.dropped_share) for ours, theirs in pairs]
        lines += [
            ratio(What(FLOOD_TASK, peer, "frames captured a second", "1/s"), rates, Target("at least", 1.0)),
            alone(What(FLOOD_TASK, peer, "dropped", "share"), drops, Target("at most", 0.0)),
            ratio(What(FLOOD_TASK, peer, "CPU s per million frames", "s"), costs, Target("at most", 1.0)),
        ]
    return lines


def steady_rows(steady: dict[str, list[Flood]]) -> list[Row]:
    """Return the lines for the steady rate."""
    lines = []
    for peer in PEERS:
        pairs = list(zip(steady[OURS], steady[peer], strict=True))
        drops = [(ours.dropped_share, theirs.dropped_share) for ours, theirs in pairs]
        costs = [(ours.cpu_s_per_million, theirs.cpu_s_per_million) for ours, theirs in pairs]
        lines += [
            alone(What(STEADY_TASK, peer, "dropped", "share"), drops, Target("at most", 0.0)),
            ratio(What(STEADY_TASK, peer, "CPU s per million frames", "s"), costs, None),
        ]
    return lines


def path_rows(medians: dict[str, list[float]]) -> list[Row]:
    """Return the latency that captures add, relative to each repetition's plain bridge, and the round trips."""
    added = {
        name: [with_it - plain for with_it, plain in zip(medians[name], medians["bridge"], strict=True)]
        for name in (OURS, *PEERS)
    }
    lines = []
    for peer in PEERS:
        both = list(zip(added[OURS], added[peer], strict=True))
        trips = list(zip(medians[OURS], medians[peer], strict=True))
        lines += [
            alone(What(PATH_TASK, peer, "added to the median round trip", "ns"), both, None),
            ratio(What(PATH_TASK, peer, "median round trip", "ns"), trips, Target("at most", 1.0)),
        ]
    return lines


def flooded(bed: Bed, name: str, scratch: Path, schedule: list[str]) -> Flood:
    """Have a program capture frames with a schedule at the B side of the direct link."""
    link = bed.topology.link("direct")
    file = scratch / f"{name}.pcapng"
    file.unlink(missing_ok=True)
    program = programs(link.b_dev, file)[name]
    process: subprocess.Popen[str] = bed.backend.start(
        "b", program.argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    try:
        said = [process.stdout.readline()]
        while program.says not in said[-1]:
            if not said[-1]:
                raise MachineError(f"{name} does not capture: {''.join(said).strip()[-300:]}")
            said.append(process.stdout.readline())
        time.sleep(SETTLE_SECONDS)
        to = ["--dev", link.a_dev, "--to", link.b_mac, "--engine", "packet", "--clock", "none"]
        what = [*schedule, "--size", str(FRAME_BYTES), "--count", str(FRAMES), "--json"]
        flow = json.loads(finish(bed, "a", [find_instrument(), "stream", "send", *to, *what]).printed)["flows"][0]
        time.sleep(SETTLE_SECONDS)
        process.send_signal(signal.SIGINT)
        told = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
    seen, dropped = counted(name, told)
    cpu = usage.ru_utime + usage.ru_stime
    share = min(seen, flow["sent"]) / flow["sent"]
    return Flood(flow["achieved_pps"] * share, dropped / max(seen + dropped, 1), cpu / max(seen, 1) * 1e6)


def programs(dev: str, file: Path) -> dict[str, Program]:
    """Return how each program captures an interface into a file."""
    folder = file.with_suffix("")
    for old in folder.glob("*"):
        old.unlink()
    file.touch()
    ours = ["capture", dev, "-o", str(folder), "--format", "pcapng", "--ring", f"{WAITING_MIB}MiB", "--json"]
    captures = {name: Program([find_instrument(), *ours, "--tap", kind], "capturing") for name, kind in TAPS.items()}
    kib = str(WAITING_MIB * 1024)
    return {
        **captures,
        "tcpdump": Program(["tcpdump", "-i", dev, "-n", "-Z", "root", "-B", kib, "-w", str(file)], "listening on"),
        "dumpcap": Program(["dumpcap", "-q", "-i", dev, "-B", str(WAITING_MIB), "-w", str(file)], "File: "),
    }


def counted(name: str, told: str) -> tuple[int, int]:
    """Return the captured and the dropped frames in a program's output."""
    if name in TAPS:
        begins = told.find("{\n")
        if begins >= 0:
            account = json.JSONDecoder().raw_decode(told[begins:])[0]["taps"][0]["account"]
            return account["seen"], account["dropped"]
    patterns = {
        "tcpdump": r"(\d+) packets? captured[\s\S]*?(\d+) packets? dropped by kernel",
        "dumpcap": r"received/dropped on interface .*: (\d+)/(\d+)",
    }
    found = re.search(patterns[name], told) if name in patterns else None
    if found is None:
        raise MachineError(f"{name} does not say what it captured: {told.strip()[-300:]}")
    return int(found[1]), int(found[2])


def round_trip_ns(bed: Bed, name: str, scratch: Path) -> float:
    """Return the median round trip over a bridge, plain or with a capture."""
    link = bed.topology.link("bridge" if name == "bridge" else f"bridge:{name}")
    options = ["-c", str(PROBES), "-i", "250us"]
    found = probe(bed, scratch / "round-trips", ["icmp", link.b_ip4], options).figures("best")["p50_ns"]
    if name != "bridge" and not is_capturing(name, Path("/proc")):
        raise MachineError(f"{name} does not run on its bridge any more: its round trips would be a plain bridge's")
    return found


def is_capturing(name: str, proc: Path) -> bool:
    """Return whether the capture of a bridge of this bed (devices/bridge_capture.sh) still runs."""
    ours = {one: f"\0--tap\0{kind}\0".encode() for one, kind in TAPS.items()}
    argv = {**ours, "tcpdump": b"tcpdump\0-i\0", "dumpcap": b"dumpcap\0-q\0"}[name]
    for path in proc.glob("[0-9]*/cmdline"):
        with suppress(OSError):
            told = path.read_bytes()
            if argv in told and b"\x00128\0" in told:
                return True
    return False
