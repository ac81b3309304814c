"""Makes rows of the bench from what a guest measured beside its own kernel's netem, pktgen and fq (`peers`).

Leaves build/kernels/bench.json, as `make bench` leaves build/bench.json, for scripts/write_bench.py. QEMU computes
a guest's processor, so its times say nothing of hardware: only ratios of ours to theirs within one run are told.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import struct
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.compare import Row, What, ratio
from scripts.proof_figures import ROOT, commit
from sojourn.bed.machine import stable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

DELAY_NS = 5_000_000
RATES = (1_000, 10_000)
NANOSECONDS_MAGIC = 0xA1B23C4D
ETHERNET_BYTES, SEQUENCE_IN_ICMP = 14, 6
LEAST_FRAMES = 100
"""A run of which the captures have fewer has no figure."""
LEAST_SAMPLES = 3


class NoReadingError(Exception):
    """A run that left too little to judge."""


# --- readings --------------------------------------------------------------------------------------------------------


def frames(file: Path) -> Iterator[tuple[int, bytes]]:
    """Time in nanoseconds and head of each frame of a capture by tcpdump, which may be cut off."""
    data = gzip.decompress(file.read_bytes())
    if len(data) < 24 or struct.unpack_from("<I", data)[0] != NANOSECONDS_MAGIC:
        raise NoReadingError(f"{file.name}: no capture in nanoseconds")
    at = 24
    while at + 16 <= len(data):
        seconds, nanoseconds, kept, _ = struct.unpack_from("<IIII", data, at)
        head = data[at + 16 : at + 16 + kept]
        if len(head) < kept:
            return
        yield seconds * 1_000_000_000 + nanoseconds, head
        at += 16 + kept


def requests(file: Path) -> dict[int, int]:
    """When each echo request passed, by its sequence number."""
    found = {}
    for at_ns, head in frames(file):
        icmp = ETHERNET_BYTES + 4 * (head[ETHERNET_BYTES] & 0xF)
        if len(head) >= icmp + 8:
            found[struct.unpack_from(">H", head, icmp + SEQUENCE_IN_ICMP)[0]] = at_ns
    return found


def delay_errors(folder: Path, name: str) -> dict[str, float]:
    """How far the delay between both captures is from what was asked, of each request that both ends saw."""
    near, far = (requests(folder / f"{name}.{end}.pcap.gz") for end in ("near", "far"))
    both = sorted(near.keys() & far.keys())
    if len(both) < LEAST_FRAMES:
        raise NoReadingError(f"{name}: both ends saw {len(both)} requests")
    return _middle_and_tail(np.array([far[number] - near[number] - DELAY_NS for number in both], dtype=np.float64))


def gap_errors(folder: Path, name: str, rate: int) -> dict[str, float]:
    """How far the gaps at the far end are from the schedule's, the first and last twentieth of the run left out."""
    stamps = np.array([at_ns for at_ns, _ in frames(folder / f"{name}.pcap.gz")], dtype=np.int64)
    edge = len(stamps) // 20
    kept = stamps[edge : len(stamps) - edge]
    if len(kept) < LEAST_FRAMES:
        raise NoReadingError(f"{name}: the far end saw {len(stamps)} packets")
    return _middle_and_tail(np.diff(kept).astype(np.float64) - 1e9 / rate)


def _middle_and_tail(errors: NDArray[np.float64]) -> dict[str, float]:
    size = np.maximum(np.abs(errors), 1.0)  # a nanosecond is the captures' resolution: a ratio of nothing is none
    return {"median": float(np.median(size)), "p99": float(np.quantile(size, 0.99))}


def frames_a_second(folder: Path, name: str) -> dict[str, float]:
    """The rate at the far interface between the first and the last sample in which its counter had moved.

    The samples at both ends are left out: frames began and ended somewhere within them.
    """
    lines = (folder / f"{name}.counts").read_text().split("\n")
    samples = [(float(at), int(count)) for at, count in (line.split() for line in lines if line.count(" ") == 1)]
    moved = [place for place in range(1, len(samples)) if samples[place][1] - samples[place - 1][1] > LEAST_FRAMES]
    inner = samples[moved[0] : moved[-1]] if moved else []
    if len(inner) < LEAST_SAMPLES:
        raise NoReadingError(f"{name}: the counter moved in {len(moved)} samples")
    (began, before), (ended, after) = inner[0], inner[-1]
    return {"rate": (after - before) / (ended - began)}


# --- rows ------------------------------------------------------------------------------------------------------------


def rows(folder: Path, kernel: str) -> tuple[list[Row], list[str]]:
    """All rows, and what is wrong with runs that gave none."""
    missing = (folder / "missing").read_text().split()
    made: list[Row] = []
    wrong: list[str] = []

    def add(task: str, peer: str, module: str, runs: tuple[str, str], read: Any, figures: dict[str, str]) -> None:
        task = f"in a guest, Linux {kernel}: {task}"
        if module in missing:
            made.append(_without(What(task, f"{peer}, which this kernel lacks", "not measured", "")))
            return
        pairs = [pair for number in repetitions(folder, runs[1]) if (pair := _pair(runs, number, read, wrong))]
        unit = "1/s" if "rate" in figures else "ns"
        for key, words in figures.items():
            if pairs:
                made.append(
                    ratio(What(task, peer, words, unit), [(ours[key], theirs[key]) for ours, theirs in pairs], None)
                )

    errors = {"median": "median", "p99": "p99"}
    for ours, words in (("ours", "as it sleeps by default"), ("ours-spin", "--spin")):
        figures = {key: f"error of the delay, {words}: {name}" for key, name in errors.items()}
        runs = (f"delay.{ours}", "delay.netem")
        add("a delay of 5 ms", "netem", "sch_netem", runs, lambda name: delay_errors(folder, name), figures)
    figures = {"rate": "live frames, received"}
    runs = ("flood.ours", "flood.pktgen")
    add("64-byte frames", "pktgen", "pktgen", runs, lambda name: frames_a_second(folder, name), figures)
    for rate in RATES:
        figures = {key: f"error of a gap: {name}" for key, name in errors.items()}
        runs = (f"pacing-{rate}.ours", f"pacing-{rate}.fq")

        def read(name: str, rate: int = rate) -> dict[str, float]:
            return gap_errors(folder, name, rate)

        add(f"{rate:,} packets/s", "fq (iperf3 --fq-rate)", "sch_fq", runs, read, figures)
    return made, wrong


def repetitions(folder: Path, run: str) -> list[int]:
    """The numbers of a run's repetitions, by what it left."""
    names = [path.name.removeprefix(f"{run}.").split(".")[0] for path in folder.glob(f"{run}.*")]
    return sorted({int(name) for name in names})


def _pair(runs: tuple[str, str], number: int, read: Any, wrong: list[str]) -> tuple[Any, Any] | None:
    """Both readings of a repetition; where one is missing, the repetition counts for neither."""
    try:
        ours, theirs = (read(f"{run}.{number}") for run in runs)
    except (NoReadingError, OSError, EOFError) as why:
        wrong.append(str(why))
        return None
    return ours, theirs


def _without(what: What) -> Row:
    """A row that says that there is no peer."""
    nothing = math.nan
    return Row(
        *what,
        nothing,
        nothing,
        is_ratio=True,
        measured=nothing,
        ci_low=None,
        ci_high=None,
        level=nothing,
        n=0,
        target=None,
    )


# --- the file --------------------------------------------------------------------------------------------------------


def main(argv: list[str]) -> int:
    """Write bench.json and print its rows; 1 where a run left nothing to judge."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument("kernel")
    asked = parser.parse_args(argv)
    out = asked.work / asked.kernel / "out"
    made, wrong = rows(out / "peers", asked.kernel)
    machine = {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(ROOT),
        "cpu": f"QEMU without KVM on {stable()['cpu']['model']}",
        "kernel": (out / "release").read_text().strip(),
        "cores": 2,
        "load_1min": os.getloadavg()[0],
        "device": "direct",
        "repetitions": max((row.n for row in made), default=0),
    }
    kept = {"machine": machine, "rows": [row.as_json() for row in made], "contests": []}
    (asked.work / "bench.json").write_text(json.dumps(kept, indent=1))
    for row in made:
        ends = "no interval" if row.ci_low is None else f"{row.ci_low:.3g} to {row.ci_high:.3g}"
        both = f"{row.ours:.4g} beside {row.peer}'s {row.theirs:.4g}"
        print(f"{row.task}: {row.name}: {both}: {row.measured:.3g} times ({ends}; n = {row.n})")
    for why in wrong:
        print(f"beside: no reading: {why}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
