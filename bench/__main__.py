"""`python -m bench`: our instruments and their peers on one bed, interleaved, with a table of targets met and not met.

Exit status 0 whatever the figures are: performance is measured here, not tested. 3 when it could not run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from bench import (
    analysis,
    emulator,
    flood,
    goals,
    growth,
    hosts,
    live,
    loads,
    long_run,
    matching,
    pacing,
    searching,
    soak,
    table,
    taps,
    tcplog,
    throughput,
    watching,
)
from bench.experiments import Experiment, Ground, Sample, experiments
from bench.generators import listening
from bench.peers import sockperf_server
from scripts.proof_figures import commit
from sojourn.bed import BedSpec, build_bed
from sojourn.bed.machine import stable
from sojourn.errors import MachineError, SojournError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.compare import Row
    from bench.contest import Contest
    from sojourn.bed import Bed

BUILD = Path(__file__).resolve().parents[1] / "build"
LONGEST_SECONDS = 170.0
"""For the probe's part; the streams' part has a time of its own."""

PARTS = (
    "probe",
    "pacing",
    "flood",
    "throughput",
    "emulator",
    "tcplog",
    "matching",
    "taps",
    "analysis",
    "resume",
    "loads",
    "searching",
    "hosts",
)
SOAK = "soak"


def main() -> int:
    """Run, print, write build/bench.json and build/bench.md."""
    asked = arguments()
    progress = Console(stderr=True, highlight=False)
    try:
        rows, contests, repetitions = bench(asked, progress)
    except SojournError as error:
        print(f"bench: {error}", file=sys.stderr)
        return error.status
    facts = {**machine(), "device": asked.device, "repetitions": repetitions, "seed": asked.seed}
    kept = {"machine": facts, "rows": [row.as_json() for row in rows], "contests": [one.as_json() for one in contests]}
    BUILD.mkdir(exist_ok=True)
    (BUILD / "bench.json").write_text(json.dumps(kept, indent=1))
    beside = [line for _, line in goals.beside_goals(rows)]
    (BUILD / "bench.md").write_text(table.markdown(rows, contests, facts, beside))
    table.show(rows, contests, facts, beside)
    return 0


def arguments() -> argparse.Namespace:
    """What is asked on the command line."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=6, help="of each; 6 is the least with a 95 %% interval")
    parser.add_argument("--device", default="bridge", help="what stands in the path (default: bridge)")
    parser.add_argument("--part", choices=(*PARTS, SOAK), action="append", help="only this part; may be repeated")
    parser.add_argument("--soak-seconds", type=float, default=3600.0, help="of the part soak, which runs only if asked")
    parser.add_argument("--only", default="", help="of probe and emulator: only tasks that contain this")
    parser.add_argument("--packets", type=int, action="append", help="of the part matching: a data set of so many")
    parser.add_argument(
        "--engine", choices=growth.ENGINES, action="append", help="of the part matching: what matches it"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the order in which things run")
    return parser.parse_args()


def bench(asked: argparse.Namespace, progress: Console) -> tuple[list[Row], list[Contest], int]:
    """The rows of the table, the contests behind them, and how many repetitions there was time for."""
    parts = asked.part or PARTS
    rows: list[Row] = []
    contests: list[Contest] = []
    done = asked.repetitions
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as scratch:
        if {"probe", "pacing", "flood"} & {*parts}:
            rows, contests, done = beside_peers(parts, asked, Path(scratch), progress)
        if "emulator" in parts:
            more, held = emulator.rows(asked.repetitions, asked.seed, Path(scratch), progress.print, asked.only)
            rows, contests = [*rows, *more], [*contests, *held]
        for part in parts:
            rows += rows_of(part, asked, Path(scratch), progress.print)
    return rows, contests, done


def rows_of(part: str, asked: argparse.Namespace, scratch: Path, tell: Callable[[str], None]) -> list[Row]:
    """The rows of a part that has a bed of its own, or none; none of the other parts."""
    cores, repetitions = sorted(os.sched_getaffinity(0)), asked.repetitions
    measured: dict[str, Callable[[], list[Row]]] = {
        "throughput": lambda: throughput.rows(asked.device, tell),
        "tcplog": lambda: tcplog.rows(repetitions, asked.seed, scratch, tell),
        "matching": lambda: [
            *matching.rows(repetitions, scratch, tell),
            *growth.rows(asked.packets or growth.SIZES, asked.engine or growth.USUAL, tell),
        ],
        "taps": lambda: [*taps.rows(repetitions, asked.seed, scratch, tell), *live.rows(repetitions, tell)],
        "analysis": lambda: analysis.rows(repetitions, scratch, tell),
        "searching": lambda: searching.rows(repetitions, scratch, tell),
        "hosts": lambda: hosts.rows(repetitions, asked.seed, scratch, tell),
        "resume": lambda: long_run.rows(repetitions, scratch, tell),
        "loads": lambda: [
            *watching.rows(repetitions, asked.seed, scratch, tell),
            *loads.rows(repetitions, asked.seed, scratch, tell),
        ],
        SOAK: lambda: soak.rows(asked.soak_seconds, scratch, (cores[0], cores[-1]), tell),
    }
    return measured[part]() if part in measured else []


def beside_peers(
    parts: Sequence[str], asked: argparse.Namespace, scratch: Path, progress: Console
) -> tuple[list[Row], list[Contest], int]:
    """The parts probe, pacing and flood, each repetition over a bed of its own; and how many the probe had time for."""
    contests = [*(pacing.contests() if "pacing" in parts else []), *([flood.contest()] if "flood" in parts else [])]
    chosen = [one for one in experiments() if asked.only in one.task]
    pairs: dict[Experiment, list[tuple[Sample, Sample]]] = {one: [] for one in chosen if "probe" in parts}
    spec = BedSpec(devices=() if asked.device == "direct" else (asked.device,))
    spent, done = 0.0, 0
    for number in range(1, asked.repetitions + 1):
        has_time = not done or spent + spent / done <= LONGEST_SECONDS
        tell = partial(say, progress, f"repetition {number}/{asked.repetitions}")
        with build_bed(spec, f"bench{os.getpid()}r{number}") as bed:
            ground = lay_ground(bed, asked.device, scratch)
            if has_time:
                spent, done = spent + probed(ground, pairs, asked.seed + number, tell), number
            if contests:
                with listening(ground):
                    for one in contests:
                        one.repeat(ground, asked.seed + number, tell)
    rows = [figure.row(one.task, one.peer, pairs[one]) for one in pairs for figure in one.figures]
    return [*rows, *(row for one in contests for row in one.rows())], contests, done


def say(progress: Console, repetition: str, words: str) -> None:
    """Say what is measured."""
    progress.print(f"{repetition}: {words}", style="dim")


def probed(
    ground: Ground, pairs: dict[Experiment, list[tuple[Sample, Sample]]], seed: int, tell: Callable[[str], None]
) -> float:
    """Measure our probe and each peer once, in random order; return how long that took, in seconds."""
    started = time.monotonic()
    for one, mine_first in shuffled(list(pairs), seed):
        tell(f"{one.task} · {one.peer}")
        pairs[one].append(measured(one, ground, mine_first=mine_first))
    return time.monotonic() - started


def measured(one: Experiment, ground: Ground, *, mine_first: bool) -> tuple[Sample, Sample]:
    """One repetition: both sides, one straight after the other."""
    if mine_first:
        mine = one.ours(ground)
        return mine, one.theirs(ground)
    theirs = one.theirs(ground)
    return one.ours(ground), theirs


def shuffled(chosen: list[Experiment], seed: int) -> Iterator[tuple[Experiment, bool]]:
    """Each experiment once, in random order, and which side goes first."""
    order = random.Random(seed)
    for one in order.sample(chosen, len(chosen)):
        yield one, order.random() < 0.5


def lay_ground(bed: Bed, device: str, scratch: Path) -> Ground:
    """The peer's server up, and cores shared out: the first for who asks, the last for who answers."""
    link = bed.topology.link(device)
    server = bed.backend.start("b", sockperf_server(link.b_ip4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1.0)
    if server.poll() is not None:
        raise MachineError("the sockperf server does not start: apt-get install sockperf")
    cores = sorted(os.sched_getaffinity(0))
    return Ground(bed, link, scratch, server, prober_cpu=cores[0], responder_cpu=cores[-1])


def machine() -> dict[str, object]:
    """What these figures are about."""
    sockperf = said(["sockperf", "--version"])
    ping = said(["ping", "-V"])
    told = stable()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(BUILD.parent),
        "cpu": told["cpu"]["model"],
        "kernel": platform.release(),
        "cores": len(os.sched_getaffinity(0)),
        "load_1min": os.getloadavg()[0],
        "ping": ping,
        "sockperf": sockperf,
    }


def said(argv: list[str]) -> str:
    """The first line that a program says; nothing where it is not here, or fails."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0] if lines and done.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main())
