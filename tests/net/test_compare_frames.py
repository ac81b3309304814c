"""Devices that differ by a known time, compared over real frames: a bridge whose ports hold each frame, in the kernel.

Three runs: two with a bridge that holds frames for no time (its program runs all the same), one with a bridge that
holds each for 0.5 µs. The first two are alike; `sojourn compare` finds that the third is slower, and by how much.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.net.busy_machine import thrice, undisturbed
from tests.net.here import sojourn_here

if TYPE_CHECKING:
    from collections.abc import Sequence

HOLD_NS = 500
READING_NS = 120
"""A frame is held for at most one reading of the clock more, on a machine with a slow one."""

SOURCE = Path(__file__).with_name("hold.bpf.c")
BOX = """#!/bin/sh
set -eu
ip link add br0 type bridge forward_delay 0
for port in $SOJOURN_LEFT $SOJOURN_RIGHT; do
    ip link set $port master br0
    tc qdisc add dev $port clsact
    tc filter add dev $port ingress bpf direct-action object-file hold.o section tc
done
ip link set br0 up
"""


def measured(folder: Path, hold_ns: int) -> Path:
    """A run over a bridge that holds frames for this time, and its folder."""
    folder.mkdir()
    compiler = ["clang", "-O2", "-Wall", "-Werror", "-target", "bpf", f"-DHOLD_NS={hold_ns}ULL"]
    headers = subprocess.check_output(["gcc", "-print-multiarch"], text=True).strip()
    subprocess.run(
        [*compiler, f"-I/usr/include/{headers}", "-c", str(SOURCE), "-o", str(folder / "hold.o")], check=True
    )
    box = folder / "hold.sh"
    box.write_text(BOX)
    box.chmod(0o755)
    asked = ["--quick", "--no-history", "--no-report", "--set", "probe.icmp_bytes=64", "--device", str(box)]
    done = sojourn_here("run", "bridge-latency", *asked, "--out", folder / "run")
    assert done.returncode in (0, 4), done.stderr
    return folder / "run"


def over_wire(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The row of the device's mean latency over the wire."""
    wanted = ("box:hold", "wire", "device_latency", "mean")
    (found,) = (
        row for row in rows if tuple(row[key] for key in ("device", "reference", "quantity", "statistic")) == wanted
    )
    return found


def compared(one: Path, two: Path) -> str:
    """What `compare` answers of the device's mean latency over the wire."""
    done = sojourn_here("compare", one, two, "--no-history", "--json")
    assert done.returncode in (0, 1, 4), done.stderr
    row = over_wire(json.loads(done.stdout)["results"])
    print(json.dumps(row))
    return str(row["answer"])


@pytest.mark.proof  # three runs of eight beds each
@thrice
def test_half_a_microsecond_more_is_found_and_two_devices_alike_are_not_called_different(tmp_path: Path) -> None:
    first, alike, slower = (
        measured(tmp_path / name, hold_ns) for name, hold_ns in (("first", 0), ("alike", 0), ("slower", HOLD_NS))
    )
    figures = [over_wire(json.loads((run / "analysis/results.json").read_text())) for run in (first, alike, slower)]
    for figure in figures:
        print(f"{figure['estimate']:.0f} ns, {figure['ci_low']:.0f} to {figure['ci_high']:.0f}")
    with undisturbed():  # intervals of 95 %
        assert compared(first, slower) == "worse"
        assert compared(slower, first) == "better"
        assert compared(first, alike) not in {"worse", "better"}
        before, _, after = figures
        halves = [(one["ci_high"] - one["ci_low"]) / 2 for one in (before, after)]
        sure = sum(half**2 for half in halves) ** 0.5
        assert HOLD_NS - sure <= after["estimate"] - before["estimate"] <= HOLD_NS + READING_NS + sure
