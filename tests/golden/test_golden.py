"""A run folder recorded once on simulated lines, and the analysis it had then: a figure that moves must be meant to.

After a change that is meant to: `SOJOURN_GOLDEN=write pytest tests/golden`, and read the difference before committing.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sojourn.analysis import analyse
from sojourn.records import RunFolder

HERE = Path(__file__).parent
EXPECTED = HERE / "bridge-latency.json"


@pytest.fixture
def recorded(tmp_path: Path) -> RunFolder:
    with tarfile.open(HERE / "bridge-latency.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return RunFolder(tmp_path / "bridge-latency")


def test_old_records_still_say_what_they_said(recorded: RunFolder) -> None:
    verdict = analyse(recorded.path).tidy()
    found = {"verdict": verdict, "results": json.loads(recorded.results.read_text())}
    if os.environ.get("SOJOURN_GOLDEN") == "write":
        EXPECTED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    same(json.loads(EXPECTED.read_text()), found, "")


def same(expected: Any, found: Any, where: str) -> None:
    """Equal in every part; numbers to nine figures, for libraries may round otherwise."""
    if isinstance(expected, dict):
        assert expected.keys() == found.keys(), where
        for key in expected:
            same(expected[key], found[key], f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(expected) == len(found), where
        for place, (one, other) in enumerate(zip(expected, found, strict=True)):
            same(one, other, f"{where}[{place}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9), where
    else:
        assert expected == found, where


def test_the_recorded_truth_is_found(recorded: RunFolder) -> None:
    """The lines that were simulated added 1300 ns and 0.4 ns per byte each way."""
    analyse(recorded.path)
    rows = json.loads(recorded.results.read_text())
    fits = {row["quantity"]: row for row in rows if row["device"] == "bridge" and row["reference"] == "direct"}
    assert fits["latency_intercept"]["ci_low"] <= 1300 <= fits["latency_intercept"]["ci_high"]
    assert fits["latency_slope"]["ci_low"] <= 0.4 <= fits["latency_slope"]["ci_high"]
