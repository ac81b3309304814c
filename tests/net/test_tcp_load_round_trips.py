"""Flows with round trips of their own on real frames: each group has that which it was given, behind one queue."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING

import pytest

from sojourn.analysis import analyse
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.plan import load_plan
from sojourn.records.log import read_log
from tests.net.busy_machine import retried, undisturbed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

MS = 1e6
RATE_BPS = 20e6
SETS = (
    "emulate.words=rate 20Mbit/s delay 10ms queue 40", "emulate.spin=false", "bed.sessions=1", "load.rounds=3",
    "load.logged=0", "load.direction=up", "load.flows=4", "load.congestion=reno", "load.round_trips=10ms+80ms",
    "load.idle=500ms", "load.start_up=2s", "load.duration=4s", "load.pause=50ms", "host.fifo=false",
)  # fmt: skip


@retried
def test_each_group_has_its_rtt_and_the_longer_rtt_gets_less(tmp_path: Path) -> None:
    plan = load_plan("bufferbloat", sets=SETS)
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(io.StringIO()))
    analyse(folder.path)
    rows = {(row["quantity"], row["statistic"]): row["estimate"] for row in json.loads(folder.results.read_text())}
    findings = {one["name"] for one in json.loads(folder.verdict.read_text())["findings"]}
    print({key: value for key, value in rows.items() if "rtt" in key[0]}, rows["goodput", "up"], findings)
    assert not findings & {"incomplete", "impossible", "not_conserved"}

    # Nothing is quicker than it was told to be; the first handshakes find no queue.
    short, long = (rows["tcp_rtt", f"up {name} minimum"] for name in ("10ms", "80ms"))
    assert short >= 10 * MS
    assert long >= 80 * MS
    with undisturbed():
        assert "round_trip_differs" not in findings
        assert short <= 11 * MS
        assert long <= 82 * MS
    # Both wait in the same queue: what it adds is alike, and at most 40 full frames of 0.6 ms.
    waits = [rows["tcp_rtt", f"up {name} working"] - base
             for name, base in (("10ms", 10 * MS), ("80ms", 80 * MS))]  # fmt: skip
    with undisturbed():
        assert min(waits) > 0
        assert max(waits) <= 40 * 1514 * 8e9 / RATE_BPS + 3 * MS
        assert abs(waits[0] - waits[1]) <= 8 * MS
    # The probes have the delay of the pipe, as nobody gave them another.
    with undisturbed():
        assert 20 * MS <= rows["rtt_idle", "p50"] <= 22 * MS

    shares = [rows["share_by_rtt", f"up {name}"] for name in ("10ms", "80ms")]
    assert sum(shares) == pytest.approx(1)
    with undisturbed():
        assert shares[1] < 0.4
        assert rows["rtt_exponent", "up working"] > 0
    told = [entry for entry in read_log(folder.log) if entry["event"] == "load-trial"]
    ends = {(flow["local"].rpartition(":")[2], flow["group"]) for entry in told for flow in entry["flows"]}
    assert ends == {("2000", 0), ("2001", 0), ("2002", 1), ("2003", 1)}
