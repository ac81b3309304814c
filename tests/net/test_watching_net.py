"""What watching costs, in short: a flow with every instrument on, and one with all but one off, over real frames."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from bench import loads, watching
from sojourn.errors import MachineError
from tests.net.busy_machine import retried, undisturbed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

CAPACITY_BPS = 50e6 * 1448 / 1514


@retried
def test_flow_is_measured_with_and_without_the_watching_instrument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "WORKING_SECONDS", 3)
    monkeypatch.setattr(loads, "START_UP_SECONDS", 1)
    [(on, off)] = watching.measured(1, 1, tmp_path, print)
    print(on, off)
    for sample in (on, off):
        assert 0 < sample["goodput_bps"] <= 1.02 * CAPACITY_BPS
        assert 20e6 <= sample["idle_ns"] <= sample["working_p95_ns"]
        with undisturbed():
            assert sample["goodput_bps"] > 0.7 * CAPACITY_BPS
    assert list(tmp_path.iterdir()) == [], "records are left"
    # What is watched is seen: an instrument that saw nothing would have cost nothing.
    for name in ("TCP's log", "the near tap", "the far tap"):
        (tmp_path / "udp").mkdir(exist_ok=True)
        seen = json.dumps({"records": 1, "taps": [{"account": {"accepted": 1}}]})
        blind = json.dumps({"records": 0, "taps": [{"account": {"accepted": 0}}]})
        told = dict.fromkeys(("TCP's log", "the near tap", "the far tap"), seen) | {name: blind}
        with pytest.raises(MachineError, match=f"{name}.* saw nothing of the flow"):
            watching.require_seen(tmp_path, told)


def test_failed_instrument_gives_no_cost_figure() -> None:
    process = subprocess.Popen(
        ["sh", "-c", "echo no >&2; exit 3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(MachineError, match="the far tap ended with status 3: no"):
        watching.finished("the far tap", process)
