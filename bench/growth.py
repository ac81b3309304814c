"""Matching of more and more packets: what the engines take, and whether time grows with them and memory does not.

A made-up data set of two taps, a packet a microsecond, one in a thousand lost. The report is checked against it.
Times are of the whole `sojourn match`, its start and the reading of Parquet included.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.compare import Row, What, alone
from bench.matching import DELAY_NS, WINDOW, records
from sojourn.errors import MachineError
from sojourn.records.reader import arrow_schema
from sojourn.records.taps import write_packets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIZES = (1_000_000, 10_000_000)
USUAL = ("one", "local")
LOST_ONE_IN = 1_000
ABOUT = {"interface": "", "host": "", "key": "bridge", "most_octets": "", "clock_id": "77", "dropped": "0"}
ENGINES = {"one": ["--engine", "one"], "local": ["--engine", "local"], "spark": ["--engine", "spark"]}

WATCH = """
import ctypes, json, os, resource, subprocess, sys, time
PR_SET_CHILD_SUBREAPER = 36
def tree(top):
    # The memory of a process and all below it, each page once: Pss.
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    children.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(name))
            except OSError:
                pass
    total, left = 0, [top]
    while left:
        pid = left.pop()
        left += children.get(pid, [])
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                total += next((int(line.split()[1]) for line in file if line.startswith("Pss:")), 0)
        except OSError:
            pass
    return total
peak, begun = 0, time.monotonic()
# Spark's virtual machine outlives who started it: it becomes a child of ours, and its processor time is counted.
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
with open(sys.argv[1], "wb") as told:
    process = subprocess.Popen(sys.argv[2:], stdout=told)
    while process.poll() is None:
        peak = max(peak, tree(process.pid))
        time.sleep(0.05)
took = time.monotonic() - begun
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([took, used.ru_utime + used.ru_stime, peak]))
sys.exit(process.returncode)
"""


class Taken(NamedTuple):
    """The cost of an engine for this many packets: time, processor time and memory of all its processes."""

    packets: int
    seconds: float
    processor_seconds: float
    peak_mib: float


def write_data_set(data: Path, packets: int) -> list[Path]:
    """Write two taps of a box that loses one packet in a thousand."""
    schema, folders = arrow_schema("taps", "bench"), []
    for tap, later in (("a", 0), ("b", DELAY_NS)):
        folders.append(data / "run=bench" / f"tap={tap}")
        folders[-1].mkdir(parents=True)
        # A file for each 60 million packets.
        rows = records(schema, packets, later, LOST_ONE_IN)
        write_packets(rows, folders[-1], {**ABOUT, "tap": tap, "clock": "TAI"}, 60_000_000_000)
    return folders


def taken(engine: str, taps: Sequence[Path], packets: int, scratch: Path) -> Taken:
    """Match, and check the report."""
    sojourn = str(Path(sys.executable).with_name("sojourn"))
    output, told = scratch / "out", scratch / "told.json"
    # The engine spark always writes rows.
    more = ["-o", str(output)] if engine == "spark" else []
    argv = [sojourn, "match", *map(str, taps), "--window", WINDOW, "--json", *ENGINES[engine], *more]
    done = subprocess.run([sys.executable, "-c", WATCH, str(told), *argv], stdout=subprocess.PIPE, check=False)
    shutil.rmtree(output, ignore_errors=True)
    if done.returncode != 0:
        raise MachineError(f"{' '.join(argv)} ended with status {done.returncode}")
    counts = json.loads(told.read_text())["pairs"][0]["directions"][0]["counts"]
    lost = packets // LOST_ONE_IN
    found = (counts["matched"], counts["lost"] + counts["pending"])
    if found != (packets - lost, lost):
        raise MachineError(f"engine {engine}: {counts} of {packets} packets of which {lost} were lost")
    seconds, processor, peak_kib = json.loads(done.stdout)
    return Taken(packets, seconds, processor, peak_kib / 1024)


def series(engine: str, sizes: Sequence[int], tell: Callable[[str], None]) -> list[Taken]:
    """Return the cost of an engine for each of these numbers of packets; one data set at a time is on the disk."""
    found = []
    for packets in sizes:
        with tempfile.TemporaryDirectory(
            prefix="sojourn-growth-", dir=os.environ.get("SOJOURN_BENCH_FOLDER")
        ) as folder:
            begun = time.monotonic()
            taps = write_data_set(Path(folder) / "data", packets)
            tell(f"growth: {packets:,} packets written in {time.monotonic() - begun:.0f} s")
            found.append(taken(engine, taps, packets, Path(folder)))
        tell(f"growth: engine {engine}: {found[-1]}")
    return found


def rows(sizes: Sequence[int], engines: Sequence[str], tell: Callable[[str], None]) -> list[Row]:
    """Return the lines of the table: cost of 10⁹ packets from the largest number, and growth of time and memory."""
    lines = []
    for engine in engines:
        found = series(engine, sizes, tell)
        task = f"matching {found[0].packets:,} to {found[-1].packets:,} packets of a data set, engine {engine}"
        first, last = found[0], found[-1]
        scale = 1e9 / last.packets
        figures = {
            ("time for 10⁹ packets", "s"): last.seconds * scale,
            ("processor time for 10⁹ packets", "s"): last.processor_seconds * scale,
            ("peak memory of all processes", "MiB"): last.peak_mib,
        }
        if len(found) > 1:
            grown = last.packets / first.packets
            figures["processor time a packet, largest beside least", "1"] = (
                last.processor_seconds / first.processor_seconds / grown
            )
            figures["peak memory, largest beside least", "1"] = last.peak_mib / first.peak_mib
        lines += [alone(What(task, "–", name, unit), [(value, value)], None) for (name, unit), value in figures.items()]
    return lines
