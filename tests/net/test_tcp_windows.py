"""Study "tcp-methodology" on real frames: throughput is window over round trip up to the rate, and the rate beyond."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING

import pytest

from sojourn.analysis import analyse
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.conduct.run import measured
from sojourn.plan import load_plan
from tests.net.busy_machine import thrice, undisturbed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")]

MS = 1_000_000
RATE_BPS, RTT_NS = 20e6, 20 * MS
MSS, FRAME = 1448, 1514
"""User data of a segment with timestamps; its frame without FCS."""

PRODUCT = RTT_NS * RATE_BPS / 8e9
SETS = (
    "emulate.words=rate 20Mbit/s delay 10ms queue 200", "emulate.spin=false", "host.fifo=false", "bed.sessions=1",
    "windows.window=0.5,2", "windows.connections=1,2", "windows.idle=300ms", "windows.train=200ms",
    "windows.start_up=500ms", "windows.duration=1s", "windows.rounds=2", "windows.at_most=2min",
)  # fmt: skip


@thrice
def test_throughput_is_window_limited_below_the_bdp_and_rate_limited_above(tmp_path: Path) -> None:
    plan = load_plan("tcp-methodology", sets=SETS)
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(io.StringIO()))
    assert measured(plan, folder) == {trial.block for trial in plan.expand()}, "a resumed run would lack blocks"
    analyse(folder.path)
    assert "incomplete" not in {one["name"] for one in json.loads(folder.verdict.read_text())["findings"]}
    rows = {
        (row["quantity"], row.get("flows"), row.get("window")): row["estimate"]
        for row in json.loads(folder.results.read_text())
    }
    print({key: value for key, value in rows.items() if key[0] != "predicted"})
    assert rows["baseline_rtt", None, None] >= RTT_NS
    for flows in (1, 2):
        half, twice = ({name: rows[name, flows, window] for name in OF_WINDOWS} for window in (0.5, 2))
        # The receivers hold the sender to the window that was asked for, pairs of segments of it each.
        assert half["window_bytes"] <= 0.5 * rows["bandwidth_delay_product", None, None] + flows * MSS
        assert 0 < half["efficiency"] <= 1
        with undisturbed():
            assert rows["bottleneck_rate", None, None] == pytest.approx(RATE_BPS, rel=0.02)
            assert rows["bandwidth_delay_product", None, None] == pytest.approx(PRODUCT, rel=0.05)
            # No window is acknowledged sooner than a round trip later; the readings' edges cut a burst of one in 50.
            assert 0.85 * RATE_BPS / 2 <= half["throughput"] <= 1.02 * half["window_bytes"] * 8e9 / RTT_NS
            assert half["window_limited"] >= 0.8
            assert half["buffer_delay"] <= 0.2
            assert twice["throughput"] == pytest.approx(RATE_BPS * MSS / FRAME, rel=0.05)
            assert twice["buffer_delay"] >= 0.4


OF_WINDOWS = ("throughput", "window_bytes", "window_limited", "efficiency", "buffer_delay")
