"""Many connections of one application: more than a shell's limit of open files, and not one after another.

The most that a study may ask for, a thousand, share one queue in `make proof`.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

import sojourn
from sojourn.analysis import analyse
from sojourn.binary import find_instrument
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.plan import load_plan
from sojourn.records import read_table
from sojourn.records.log import read_log
from tests.net.busy_machine import retried, undisturbed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

CONNECTIONS = 64
ROUND_TRIP_S = 0.1
FEW_FILES = ["prlimit", "--nofile=40:4096", find_instrument(), "tcp"]


@retried
def test_connections_start_together_beyond_the_file_limit_of_a_shell() -> None:
    count = ["--connections", str(CONNECTIONS), "--json"]
    with sojourn.lab(delay="50ms") as lab:
        at = f"{lab.far.address}:5999"
        receiver = lab.far.popen([*FEW_FILES, "receive", at, *count], stdout=subprocess.PIPE, text=True)
        lab.far.wait_for_port(seconds=10)
        began = time.monotonic()
        sender = lab.near.popen(
            [*FEW_FILES, "send", at, *count, "--for", "500ms", "--read-every", "100ms"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        out, _ = sender.communicate(timeout=60)
        took_s = time.monotonic() - began
        receiver.communicate(timeout=60)
    assert (sender.returncode, receiver.returncode) == (0, 0)
    ended = [json.loads(line)["connection"] for line in out.splitlines()]
    assert sorted(one["connection"] for one in ended) == list(range(CONNECTIONS))
    assert all(one["problem"] is None and one["moved_bytes"] > 0 for one in ended)
    with undisturbed():
        assert took_s < CONNECTIONS * ROUND_TRIP_S, "one after another they take this, and what they send comes on top"


RATE_BPS, FLOWS = 200e6, 1000
SETS = (
    f"emulate.words=rate {RATE_BPS / 1e6:.0f}Mbit/s delay 10ms queue 1000", f"load.flows={FLOWS}", "load.direction=up",
    "bed.sessions=1", "load.rounds=2", "load.start_up=4s", "load.duration=5s", "load.at_most=3min",
)  # fmt: skip


@pytest.mark.proof
@pytest.mark.alone
def test_a_thousand_flows_share_a_queue_and_each_is_accounted_for(tmp_path: Path) -> None:
    plan = load_plan("bufferbloat", sets=SETS)
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(io.StringIO()))
    analyse(folder.path)
    rows = {(row["quantity"], row["statistic"]): row["estimate"] for row in json.loads(folder.results.read_text())}
    findings = {one["name"] for one in json.loads(folder.verdict.read_text())["findings"]}
    assert not findings & {"incomplete", "impossible"}, findings
    trials = [one for one in read_log(folder.log) if one.get("event") == "load-trial"]
    assert trials
    assert all(len({flow["local"] for flow in one["flows"]}) == FLOWS for one in trials)
    capacity = RATE_BPS * 1448 / 1514
    assert 0.8 * capacity <= rows["goodput", "up"] <= 1.01 * capacity
    spread = [rows["goodput_of_flow", f"up {name}"] for name in ("least", "median", "most")]
    assert spread == sorted(spread)
    assert 0 < rows["fairness", "up"] <= 1
    readings = read_table(folder.records, "tcp_readings").frame.unique(["block", "local_address", "local_port"])
    assert readings.height >= FLOWS * len(trials)
