"""Run folders that were recorded once, and the numbers that their analysis had then: one that moves must be meant to.

Of each figure its estimate, interval and count are kept, of each finding, hypothesis and check its outcome; sentences
are not. After a change that is meant to: `SOJOURN_GOLDEN=write pytest tests/golden`, and read the difference
before committing.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.comparison import key_of
from sojourn.records import RunFolder
from sojourn.records.results import TIDY

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).parent
RUNS = (
    "bridge-latency",
    "bridge-latency-real",
    "throughput",
    "emulator-delay",
    "rfc2544",
    "tcplog-cost",
    "rrul",
    "short-flows",
)
"""Pairs on simulated lines; on real ones pairs, a stream, an emulator, searches; of TCP a log, a load, short flows."""


@pytest.fixture
def recorded(tmp_path: Path, request: pytest.FixtureRequest) -> RunFolder:
    name = getattr(request, "param", "bridge-latency")
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return RunFolder(tmp_path / name)


@pytest.mark.parametrize("recorded", RUNS, indirect=True)
def test_analysis_of_archived_records_gives_the_same_numbers(recorded: RunFolder) -> None:
    verdict = analyse(recorded.path).tidy()
    found = numbers(verdict, json.loads(recorded.results.read_text()))
    expected = HERE / f"{recorded.path.name}.json"
    if os.environ.get("SOJOURN_GOLDEN") == "write":
        expected.write_text(compact(found))
    same(json.loads(expected.read_text()), found, "")


def numbers(verdict: dict[str, Any], rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What is kept of an analysis, by name."""
    results: dict[str, Any] = {}
    for row in rows:
        name = " ".join(str(one) for one in key_of(row) if one is not None)
        assert name not in results, f"two figures are called {name}"
        results[name] = [row["estimate"], row["ci_low"], row["ci_high"], row["n"], row["unit"]]
    return {
        "verdict": verdict["verdict"],
        "findings": {f"{one['name']} {one['severity']}": one["value"] for one in verdict["findings"]},
        "hypotheses": [[one["hypothesis"], one["outcome"], one.get("device")] for one in verdict["hypotheses"]],
        "checks": [[one["check"], one["cell"], one["measured"], one["verdict"]] for one in verdict["checks"]],
        "results": results,
    }


def compact(found: dict[str, Any]) -> str:
    """JSON with a line for each figure."""
    figures = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in found["results"].items())
    rest = "".join(f' "{name}": {json.dumps(value)},\n' for name, value in found.items() if name != "results")
    return f'{{\n{rest} "results": {{\n{figures}\n }}\n}}\n'


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


def test_results_of_all_archived_runs_have_one_schema(tmp_path: Path) -> None:
    """One schema over all studies: polars' strict concatenation, which refuses other columns, orders or types."""
    tables = []
    for name in RUNS:
        with tarfile.open(HERE / f"{name}.tar.xz") as archive:
            archive.extractall(tmp_path, filter="data")
        analyse(tmp_path / name)
        tables.append(pl.read_parquet(tmp_path / name / "analysis/results.parquet").with_columns(run=pl.lit(name)))
    together = pl.concat(tables, how="vertical")
    assert together.height == sum(table.height for table in tables)
    assert set(together["run"]) == set(RUNS)
    assert together.drop("run").schema == pl.Schema(TIDY)
    assert {path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz")} == set(RUNS)


def test_analysis_of_simulated_records_gives_the_truth(recorded: RunFolder) -> None:
    """The lines that were simulated added 1300 ns and 0.4 ns per byte each way."""
    analyse(recorded.path)
    rows = json.loads(recorded.results.read_text())
    fits = {row["quantity"]: row for row in rows if row["device"] == "bridge" and row["reference"] == "direct"}
    assert fits["latency_intercept"]["ci_low"] <= 1300 <= fits["latency_intercept"]["ci_high"]
    assert fits["latency_slope"]["ci_low"] <= 0.4 <= fits["latency_slope"]["ci_high"]
