"""Devices that differ by a known time, compared over real frames: a bridge whose ports hold each frame, in the kernel.

Nine runs with a bridge that holds frames for no time (its program runs all the same), one with a bridge that holds each
for 0.5 µs. `sojourn compare` says of no two of the nine that one is better, and that the tenth is slower, and by how
much. So many runs, for runs on one machine differ by more than their intervals: the history learns by how much.
"""

from __future__ import annotations

import json
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.net.busy_machine import thrice, undisturbed
from tests.net.here import sojourn_here

if TYPE_CHECKING:
    from collections.abc import Sequence

ALIKE = 9
"""The history knows how far runs differ from seven others on."""

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


def measured(name: str, box_folder: Path, hold_ns: int) -> Path:
    """A run over a bridge that holds frames for this time, and its folder.

    The box is made anew in one place: in another it would be another bed, of which the history knows nothing.
    """
    box_folder.mkdir(exist_ok=True)
    compiler = ["clang", "-O2", "-Wall", "-Werror", "-target", "bpf", f"-DHOLD_NS={hold_ns}ULL"]
    headers = subprocess.check_output(["gcc", "-print-multiarch"], text=True).strip()
    subprocess.run(
        [*compiler, f"-I/usr/include/{headers}", "-c", str(SOURCE), "-o", str(box_folder / "hold.o")], check=True
    )
    box = box_folder / "hold.sh"
    box.write_text(BOX)
    box.chmod(0o755)
    asked = ["--quick", "--no-report", "--set", "probe.icmp_bytes=64", "--set", "sessions=5", "--device", str(box)]
    run = box_folder.with_name(name)
    done = sojourn_here("run", "bridge-latency", *asked, "--out", run)
    assert done.returncode in (0, 4), done.stderr
    return run


def over_wire(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The row of the device's mean latency over the wire."""
    wanted = ("box:hold", "wire", "device_latency", "mean")
    (found,) = (
        row for row in rows if tuple(row[key] for key in ("device", "reference", "quantity", "statistic")) == wanted
    )
    return found


def compared(one: Path, two: Path) -> str:
    """What `compare` answers of the device's mean latency over the wire."""
    done = sojourn_here("compare", one, two, "--json")
    assert done.returncode in (0, 1, 4), done.stderr
    row = over_wire(json.loads(done.stdout)["results"])
    print(json.dumps(row))
    assert row["between_runs"] is not None, "the history knows how far runs differ"
    return str(row["answer"])


@pytest.mark.proof  # ten runs of five beds each
@thrice
def test_half_a_microsecond_is_detected_and_equal_devices_do_not_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOJOURN_DATA", str(tmp_path / "history"))
    alike = [measured(f"alike{number}", tmp_path / "box", 0) for number in range(ALIKE)]
    slower = measured("slower", tmp_path / "box", HOLD_NS)
    figures = [over_wire(json.loads((run / "analysis/results.json").read_text())) for run in [*alike, slower]]
    for figure in figures:
        print(f"{figure['estimate']:.0f} ns, {figure['ci_low']:.0f} to {figure['ci_high']:.0f}")
    answers = [compared(one, two) for one, two in pairwise(alike)]
    with undisturbed():  # intervals of 95 %
        assert sum(answer in {"worse", "better"} for answer in answers) <= 1, answers
        assert compared(alike[-1], slower) == "worse"
        assert compared(slower, alike[-1]) == "better"
        mean = sum(figure["estimate"] for figure in figures[:-1]) / ALIKE
        half = (figures[-1]["ci_high"] - figures[-1]["ci_low"]) / 2
        assert HOLD_NS - half <= figures[-1]["estimate"] - mean <= HOLD_NS + READING_NS + half
