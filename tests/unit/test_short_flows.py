"""Method "short-flows": completion times that a run was made of come out of its analysis, within intervals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sojourn.analysis import analyse
from sojourn.errors import RequestError
from sojourn.plan import load_plan
from sojourn.plan.effective import effective_toml
from sojourn.records import RunFolder
from sojourn.report import write_report
from sojourn.report.contents import all_figures, all_tables
from sojourn.report.run import Run
from tests.unit.made_up_tcp import write_table
from tests.unit.test_tcp_load import framed

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
MEAN_MS = {10_000: 12.0, 100_000: 55.0, 1_000_000: 215.0}


def made_up(
    path: Path,
    *,
    missing: int = 0,
    short: int = 0,
    sessions: int = 6,
    seed: int = 1,
    also: dict[str, Any] | None = None,
) -> RunFolder:
    """A run whose transfers take an exponential time more than half of their mean; beds differ by 0.5 ms."""
    plan = load_plan("short-flows", sets=[f"bed.sessions={sessions}", "short.transfers=100"])
    folder, rng = RunFolder(path), np.random.default_rng(seed)
    folder.records.mkdir(parents=True)
    folder.plan.write_text(effective_toml(plan))
    folder.bed.write_text("{}")
    for table in ("probes", "blocks"):
        write_table(folder.records / f"{table}-000.arrow", table, framed(table, [{}]).clear())
    log: list[dict[str, Any]] = []
    for session in range(sessions):
        log.append({"event": "started", "part": session})
        bed_ms = rng.normal(0, 0.5)
        for trial in plan.expand()[: -missing or None]:
            if trial.batch * sessions // plan.short.rounds == session:
                size = trial.factors.size_bytes
                mean = MEAN_MS[size]
                took = (mean / 2 + bed_ms + rng.exponential(mean / 2, 100)) * MS
                log.append({
                    "event": "tcp-trial", "block": trial.block, "kind": trial.factors.kind, "cell": trial.cell,
                    "congestion": "cubic", "pipe": "", "path": trial.device, "round": trial.round, "setting": "off",
                    "connections": [
                        {"size_bytes": size, "received_bytes": size - short, "written_ns": 10**15,
                         "read_ns": 10**15 + int(one)} for one in took
                    ],
                })  # fmt: skip
    log += [*([also] if also else []), {"event": "finished"}]
    folder.log.write_text("".join(json.dumps(event) + "\n" for event in log))
    return folder


def judged(folder: RunFolder) -> tuple[dict[str, Any], dict[tuple[Any, ...], dict[str, Any]]]:
    analyse(folder.path)
    rows = json.loads(folder.results.read_text())
    return json.loads(folder.verdict.read_text()), {
        (row["quantity"], row["statistic"], row["payload_bytes"]): row for row in rows
    }


def test_intervals_contain_the_simulated_completion_times(tmp_path: Path) -> None:
    verdict, rows = judged(made_up(tmp_path / "run"))
    assert verdict["findings"] == []
    for size, mean in MEAN_MS.items():
        for statistic, beyond in (("p50", np.log(2)), ("p90", np.log(10)), ("mean", 1.0)):
            row = rows["completion_time", statistic, size]
            assert row["ci_low"] <= (mean / 2) * (1 + beyond) * MS <= row["ci_high"], (size, statistic, row)
            assert row["sessions"] == 6
        assert rows["transfer_rate", "mean", size]["estimate"] == pytest.approx(8e3 * size / mean, rel=0.05)
        # Two trials of 100 transfers a session: two lie beyond p99.
        assert ("completion_time", "p99", size) not in rows
    assert "A transfer of 10000 bytes over emulate takes" in verdict["sentence"]
    page = write_report(tmp_path / "run").read_text()
    assert "the handshake" in page
    run = Run.read(tmp_path / "run")
    [table] = [one for one in all_tables(run) if one.name == "completion"]
    assert len(table.rows) == 9
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert {one.name for one in all_figures(run)} == {"short_curves"}


def late_by(late_ms: float) -> dict[str, Any]:
    pipes = [{"pipe": "forward", "accuracy": {"p99_ns": late_ms * MS}}]
    return {"event": "emulator", "block": 0, "device": "emulate", "summary": {"summary": {"pipes": pipes}}}


@pytest.mark.parametrize(
    ("how", "name"),
    [
        ({"missing": 2}, "incomplete"),
        ({"short": 1}, "not_conserved"),
        ({"also": {"event": "contended", "value": 1.7, "sentence": "other programs took 1.7 cores"}}, "contended"),
        ({"also": late_by(40)}, "tester_limited"),
    ],
)
def test_each_injected_problem_is_a_finding(how: dict[str, Any], name: str, tmp_path: Path) -> None:
    verdict, _ = judged(made_up(tmp_path / "run", **how))
    assert [one["name"] for one in verdict["findings"]] == [name]


@pytest.mark.parametrize("quick", [True, False])
def test_effective_plan_parses_to_the_same_plan(quick: bool, tmp_path: Path) -> None:
    plan = load_plan("short-flows", quick=quick)
    path = tmp_path / "plan.toml"
    path.write_text(effective_toml(plan))
    again = load_plan(path)
    assert (again.sections, again.expand()) == (plan.sections, plan.expand())


def test_zero_size_is_refused() -> None:
    with pytest.raises(RequestError, match=r"short.size_bytes"):
        load_plan("short-flows", sets=["short.size_bytes=0"])
