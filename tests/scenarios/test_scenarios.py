"""Truth in, number out: every TOML file here is a plan on simulated lines, and what the analysis must say of it.

A file has `[scenario]` (what it is about, how many seeds), `[plan...]` (a plan as users write it), `[[truth]]` (result
rows picked by their factors, with the true value, the allowed error, and whether the interval must hold the truth) and
`[expect]` (verdict, findings, answers). Each seed runs the whole chain: plan, instrument in simulated time, records,
analysis. Of the intervals of all seeds, at most as many may miss the truth as 5 % of misses make likely.
"""

from __future__ import annotations

import html
import json
import math
import re
import tomllib
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tomlkit
from scipy import special

from sojourn.analysis import analyse
from sojourn.conduct import conduct
from sojourn.conduct.archive import create_folder
from sojourn.conduct.progress import Screen
from sojourn.methods.pairs.show import keys
from sojourn.plan import load_plan
from sojourn.report import write_report
from sojourn.report.run import Run
from sojourn.report.tables import shown_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sojourn.records import RunFolder

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("*.toml"))
UNLIKELY = 1e-3

Row = dict[str, Any]


@cache
def scenario(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / f"{name}.toml").read_text())


def runs(name: str, scratch: Path, most: int = 100) -> Iterator[tuple[list[Row], dict[str, Any]]]:
    """Results and verdict of every seed, or of so many."""
    for seed in range(min(most, scenario(name)["scenario"].get("seeds", 1))):
        folder = measured(name, seed, scratch)
        analyse(folder.path)
        yield json.loads(folder.results.read_text()), json.loads(folder.verdict.read_text())


def measured(name: str, seed: int, scratch: Path) -> RunFolder:
    plan_file = scratch / f"{name}-{seed}.toml"
    plan_file.write_text(seeded(tomlkit.loads((HERE / f"{name}.toml").read_text())["plan"].unwrap(), name, seed))
    plan = load_plan(plan_file, backend="sim")
    folder = create_folder(plan, scratch / f"{name}-{seed}")
    conduct(plan, folder, Screen(StringIO()))
    return folder


def seeded(plan: dict[str, Any], name: str, seed: int) -> str:
    """The plan with this repetition's seeds; without any, scenarios would share their luck."""
    plan.setdefault("study", {}).update(name=name, method="pairs")
    plan.setdefault("pairs", {})["seed"] = 1000 + seed
    for number, line in enumerate(plan["bed"]["lines"].values()):
        line["seed"] = 100 * seed + number
    return tomlkit.dumps(plan)


def pick(rows: list[Row], wanted: Row) -> Row:
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    assert len(found) == 1, f"{len(found)} rows for {wanted}"
    return found[0]


def tolerable_misses(intervals: int) -> int:
    """The most misses among so many 95 % intervals that do not happen by chance less than once in a thousand."""
    return next(k for k in range(intervals + 1) if 1 - special.bdtr(k, intervals, 0.05) < UNLIKELY)


@pytest.mark.parametrize("seeds", [1, pytest.param(100, marks=pytest.mark.proof)])
@pytest.mark.parametrize("name", NAMES)
def test_reported_intervals_contain_the_simulated_truth(
    name: str, seeds: int, tmp_path: Path, proven: Callable[..., None]
) -> None:
    told, truths, expect = scenario(name)["scenario"], scenario(name)["truth"], scenario(name).get("expect", {})
    misses = intervals = 0
    for rows, verdict in runs(name, tmp_path, seeds):
        for truth in truths:
            row = pick(rows, truth["row"])
            print(
                f"{name}: {truth['row']}: {row['estimate']} [{row['ci_low']}, {row['ci_high']}], true {truth['value']}"
            )
            assert abs(row["estimate"] - truth["value"]) <= truth.get("within", math.inf), f"{told['what']}: {row}"
            if truth.get("covers", True):
                intervals += 1
                misses += not row["ci_low"] <= truth["value"] <= row["ci_high"]
        hold(verdict, expect)
    print(f"{name}: {misses} of {intervals} intervals miss the truth")
    proven("truths", "latency, loss, rates and clocks of simulated paths", held=intervals - misses, of=intervals)
    assert misses <= tolerable_misses(intervals)


def hold(verdict: dict[str, Any], expect: dict[str, Any]) -> None:
    found = {one["name"]: one for one in verdict["findings"]}
    assert set(expect.get("findings", [])) <= found.keys(), verdict
    assert found.keys() <= {*expect.get("findings", []), *expect.get("perhaps", [])}, verdict
    assert verdict["verdict"] == expect.get("verdict", "trusted"), verdict
    for name, value in expect.get("values", {}).items():
        assert found[name]["value"] == pytest.approx(value)
    tested = verdict["hypotheses"]
    for name, outcome in expect.get("hypotheses", {}).items():
        assert {one["outcome"] for one in tested if one["hypothesis"] == name} == {outcome}, tested


NOT_OF_A_DEVICE = {
    "pacing_error", "pacing_within_1us", "pacing_within_10us", "late", "resolution",
    "rtt_intended", "rtt_user",
}  # fmt: skip
"""Of the tester itself, or another view of `rtt`: tests/unit/test_analysis.py."""
BY_STALLS = {"rtt", "rtt_shift"}
"""Held below, by a device that stands still."""


def test_every_quantity_of_a_device_is_tested_by_a_scenario(tmp_path: Path) -> None:
    held = {truth["row"]["quantity"] for name in NAMES for truth in scenario(name)["truth"]}
    reported = {row["quantity"] for name in ("latency", "per-byte") for row in next(runs(name, tmp_path, 1))[0]}
    assert reported - NOT_OF_A_DEVICE - BY_STALLS <= held
    assert {"device_latency", "latency_slope", "loss"} <= reported


def rtt(rows: list[Row], statistic: str, quantity: str = "rtt") -> float:
    row = pick(rows, {"device": "bridge", "quantity": quantity, "statistic": statistic})
    return float(row["estimate"])


def test_stall_of_one_second_is_visible_only_to_open_loop_probes(tmp_path: Path) -> None:
    """The same device stands still for a second once; a closed loop waits with it and asks but once meanwhile."""
    (opened, _), (closed, _) = next(runs("stall-open-loop", tmp_path)), next(runs("stall-closed-loop", tmp_path))
    assert rtt(opened, "p90") == pytest.approx(0.5e9, rel=0.05)
    assert rtt(opened, "p99") == pytest.approx(0.95e9, rel=0.05)
    assert rtt(closed, "p99") < 0.1e6
    assert rtt(closed, "max") > 0.9e9


def test_mean_and_median_of_a_skewed_device_are_both_shown_by_name(tmp_path: Path) -> None:
    folder = measured("skewed", 0, tmp_path)
    analyse(folder.path)
    rows = json.loads(folder.results.read_text())
    mean, median = shown(rows, "device_latency", "mean"), shown(rows, "rtt_shift", "p50")
    (latency,) = (one for one in keys(Run.read(folder.path)) if one.what.startswith("bridge over direct, mean"))
    assert f"{latency.value} {latency.unit}" == mean
    assert any(f"the median round trip is longer by {median} (" in line for line in latency.lines), latency
    write_report(folder.path)
    page = html.unescape(re.sub(r"<[^>]*>", "", (folder.report / "index.html").read_text())).replace("\u00a0", " ")
    assert "bridge over direct, mean" in page
    assert f"the median round trip is longer by {median}" in page


def shown(rows: list[Row], quantity: str, statistic: str) -> str:
    """A figure of the bridge over the direct link as a report has it."""
    told = shown_of(
        pick(rows, {"device": "bridge", "reference": "direct", "quantity": quantity, "statistic": statistic})
    )
    return f"{told.text} {told.unit}"
