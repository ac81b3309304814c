"""Study "anomalies" on real frames: every series is whole, and what was found is said of each path."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING

import pytest

from sojourn.analysis import analyse
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.plan import load_plan
from tests.net.busy_machine import retried, sleeping_ends, undisturbed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")


@retried
def test_anomaly_search_covers_every_series_over_a_bridge(tmp_path: Path) -> None:
    sets = ["pairs.probes_per_block=2500", "pairs.warmup_probes=50", "probe.interval=500us", *sleeping_ends()]
    plan = load_plan("anomalies", quick=True, sets=sets)
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(io.StringIO()))
    analyse(folder.path)
    verdict = json.loads(folder.verdict.read_text())
    assert "incomplete" not in {one["name"] for one in verdict["findings"]}
    assert "4 series were searched" in verdict["sentence"]
    rows = json.loads(folder.results.read_text())
    counted = {row["device"]: row["probes"] for row in rows if (row["quantity"], row["statistic"]) == ("rtt", "mean")}
    with undisturbed():  # a probe that no reply came back to in time does not count
        assert counted == {"direct": 2 * 2450, "bridge": 2 * 2450}
