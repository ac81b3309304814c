"""The same run by foreign tools and by ours over one emulated path, interleaved: their medians agree.

What is measured is bench/loads.py. The files that irtt, iperf3 and flent wrote here are read by our own importer.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pytest

import sojourn
from bench import loads
from bench.compare import What, ratio
from bench.ours import PORT
from sojourn.report.beside import read_result
from sojourn.report.beside.figure import RATE, ROUND_TRIP
from tests.net.busy_machine import retried, thrice, undisturbed

if TYPE_CHECKING:
    from pathlib import Path

NEEDED = ("iperf3", "irtt", "fping", "flent")

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name"),
    pytest.mark.skipif(
        any(shutil.which(one) is None for one in NEEDED),
        reason="no iperf3, irtt, fping or flent: scripts/setup.sh proof",
    ),
]

REPETITIONS = 8
EQUIVALENT = {"goodput_bps": 0.005, "idle_udp_ns": 0.005, "idle_icmp_ns": 0.005, "working_udp_ns": 0.02,
              "working_icmp_ns": 0.02}  # fmt: skip
"""As shares: the intervals must reach so near to 1. Idle, 0.5 % are 0.1 ms: fping's last digit, and what a user's
process needs to wake twice."""

FAR = 0.1
"""No median may be so far from the other, however wide the interval is."""


@thrice
def test_medians_agree_with_those_of_other_tools(tmp_path: Path) -> None:
    pairs = loads.measured(REPETITIONS, 20111101, tmp_path / "scratch", print, keep=tmp_path / "files")
    told = {}
    for one in loads.FIGURES:
        of = What(loads.TASK, one.peer, one.name, one.unit)
        row = told[one.key] = ratio(of, [(a[one.key], b[one.key]) for a, b in pairs], None)
        print(f"{one.peer}, {one.name}: {row.ours:.6g} {row.theirs:.6g} {one.unit}: {row.measured:.4f} times, "
              f"{row.ci_low:.4f} to {row.ci_high:.4f}")  # fmt: skip
    with undisturbed():  # a processor that is missing changes the flow: the emulator drops a burst
        for key, bound in EQUIVALENT.items():
            row = told[key]
            assert row.ci_low is not None
            assert row.ci_high is not None
            assert abs(row.measured - 1) < FAR, row
            assert row.ci_low <= 1 + bound, row
            assert row.ci_high >= 1 - bound, row
        working = told["working_icmp_ns"].theirs - told["idle_icmp_ns"].theirs
        assert 0.4 * QUEUE_NS < working < QUEUE_NS, "the path was loaded, by fping's word"
    expect_imported(tmp_path / "files", pairs[-1][1])


QUEUE_NS = 125 * 1514 * 8e9 / 50e6


def expect_imported(files: Path, theirs: loads.Sample) -> None:
    """What the importer reads of irtt's and iperf3's files is what was read of them here."""
    irtt = {(one.kind, one.of, one.statistic): one.value for one in read_result(files / "irtt.json").figures}
    assert irtt[ROUND_TRIP, "RTT", "p50"] == pytest.approx(theirs["working_udp_ns"], rel=1e-3)
    iperf3 = {(one.kind, one.of): one.value for one in read_result(files / "iperf3.json").figures}
    assert iperf3[RATE, "received"] == pytest.approx(theirs["goodput_bps"])


@retried
def test_a_file_that_flent_wrote_is_imported(tmp_path: Path) -> None:
    """flent's test of round trips alone, which takes irtt: its others need netperf, which is not in Debian's main."""
    output = tmp_path / "ping.flent.gz"
    with sojourn.lab(delay="10ms") as lab, ExitStack() as stack:
        assert list(loads.serving(lab, stack)) == [PORT, loads.IRTT_PORT]
        asked = ["flent", "ping", "-H", lab.far.address, "-l", "5", "-s", "0.1", "-o", str(output), "-D", str(tmp_path)]
        lab.near.run(asked, timeout=60, env={**os.environ, "HOME": str(tmp_path)}, cwd=tmp_path)
    [data] = tmp_path.glob("ping-*.flent.gz")
    trips = [one.value for one in read_result(data).figures if one.statistic == "p50"]
    assert trips
    with undisturbed():
        assert np.median(trips) == pytest.approx(20e6, rel=0.02)
    assert read_result(data).tool.startswith("flent 2")
