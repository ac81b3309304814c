"""Study "capture-cost" on real frames: captures run on their bridges, and are compared with the plain one."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING

import pytest

from sojourn.analysis import analyse
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.plan import load_plan

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

DEVICES = "bed.devices=bridge,bridge:capture,bridge:bpf,bridge:tcpdump,bridge:dumpcap"
SETS = (DEVICES, "bed.sessions=2", "pairs.rounds=16", "probe.interval=250us", "probe.icmp_bytes=64", "pairs.at_most=6s")


def test_each_capture_runs_and_is_compared_with_the_plain_bridge(tmp_path: Path) -> None:
    plan = load_plan("capture-cost", quick=True, sets=SETS)
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(io.StringIO()))
    analyse(folder.path)
    rows, verdict = (json.loads(one.read_text()) for one in (folder.results, folder.verdict))
    over = {row["device"]: row for row in rows if row["reference"] == "bridge" and row["statistic"] == "mean"}
    assert set(over) == {"bridge:capture", "bridge:bpf", "bridge:tcpdump", "bridge:dumpcap"}
    assert all(row["n"] >= 8 and row["sessions"] == 2 for row in over.values())
    assert "to the Linux bridge" in verdict["sentence"]
    assert all(f"{tool} adds" in verdict["sentence"] for tool in ("tcpdump", "dumpcap"))
    objects = json.loads(folder.bed.read_text())["objects"]
    assert {tuple(objects[device]["notes"]) for device in over} == {("The capture ran.",)}
