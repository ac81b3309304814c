"""`sender_late` has one rule: of one and the same departures `sojourn probe`, `stream send` and a study say the same.

The programs by hand are tested with the same file, in `crates/probe/src/judge.rs` and `stream/findings.rs` of
`crates/instrument`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.finding import Place
from sojourn.analysis.tester import LATE_LEAST_NS, LATE_PART_OF_INTERVAL, LATE_SHARE, late_limits, late_shares
from sojourn.records import RunFolder
from sojourn.records.findings import FINDINGS
from tests.unit.synthetic_streams import StreamRun, Trial, cell

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "sender_late.json").read_text())["cases"]
by_case = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def lateness(case: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Each departure's."""
    return np.concatenate([np.full(count, late) for count, late in case["departures"]])


@by_case
def test_studies_and_manual_commands_apply_the_same_rule_for_late_departures(case: dict[str, Any]) -> None:
    errors = pl.DataFrame({"device": "direct", "cell": 7, "error_ns": lateness(case).astype(float)})
    found = late_shares(errors, late_limits([(7, case["interval_ns"])]))
    assert set(found) == ({Place("direct", 7)} if case["is_late"] else set())


@by_case
def test_study_of_streams_applies_the_rule_for_late_departures(case: dict[str, Any], tmp_path: Path) -> None:
    late = lateness(case)

    def departs(trial: Trial, rng: np.random.Generator) -> None:
        trial.departure = trial.intended + rng.permutation(late)

    cells = [cell(interval_ns=case["interval_ns"])]
    run = StreamRun(tmp_path / "run", "one-way", cells, count=len(late), alter=departs, rounds=3, visits=2).write()
    analyse(run)
    findings = {one["name"] for one in json.loads(RunFolder(run).verdict.read_text())["findings"]}
    assert ("sender_late" in findings) == case["is_late"]


@by_case
def test_study_of_probes_applies_the_rule_for_late_departures(case: dict[str, Any], synthetic: Any) -> None:
    late = lateness(case)

    def departs(block: Any, rows: Any, rng: np.random.Generator) -> None:
        del block
        later = rows["intended_ns"] + rng.permutation(late) - rows["departure_ns"]
        for name in ("send_call_ns", "departure_ns", "arrival_ns", "receive_call_ns"):
            rows[name] = rows[name] + later

    asked = {"rounds": 3, "count": len(late), "warmup": 0, "icmp_bytes": (64,), "intervals_ns": (case["interval_ns"],)}
    run = synthetic(latency_ns={"bridge": 1300.0}, alter=departs, **asked).write()
    analyse(run)
    findings = {one["name"] for one in json.loads(RunFolder(run).verdict.read_text())["findings"]}
    assert ("sender_late" in findings) == case["is_late"]


def test_rule_for_late_departures_is_the_one_stated_in_the_finding() -> None:
    said = FINDINGS["sender_late"].doc
    assert LATE_PART_OF_INTERVAL == 0.1
    assert f"More than {LATE_SHARE * 100:.0f} % of" in said
    assert f"more than a tenth of the interval and by more than {LATE_LEAST_NS / 1000:.0f} µs" in said
