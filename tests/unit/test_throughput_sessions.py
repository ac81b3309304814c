"""Throughput over several beds, on simulated lines: the sentence has the mean's interval, and lines are over beds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.analysis import analyse
from sojourn.analysis.wording import fixed
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.plan import load_plan

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], str]:
    sets = ["bed.sessions=3", "trials.rounds=6", "trials.duration=5ms", "stream.payload_bytes=46,1500"]
    plan = load_plan("throughput", sets=sets, backend="sim")
    folder = create_folder(plan, tmp_path_factory.mktemp("throughput") / "run")
    conduct(plan, folder, Screen())
    analyse(folder.path)
    verdict: Path = folder.verdict
    return json.loads(folder.results.read_text()), json.loads(verdict.read_text())["sentence"]


def the(rows: list[dict[str, Any]], quantity: str, statistic: str) -> dict[str, Any]:
    wanted = {"device": "bridge", "quantity": quantity, "statistic": statistic}
    return next(row for row in rows if all(row[key] == value for key, value in wanted.items()))


def test_the_sentence_has_the_interval_of_the_mean_over_beds(rows: tuple[list[dict[str, Any]], str]) -> None:
    results, sentence = rows
    mean, next_run = (the(results, "throughput_pps", one) for one in ("mean", "next_run"))
    assert mean["sessions"] == 3
    assert next_run["ci_high"] > mean["ci_high"]
    assert f"delivers {fixed(mean['estimate'], 0)}" in sentence
    assert fixed(next_run["ci_high"], 0) not in sentence


def test_fit_over_sizes_has_an_interval_over_beds(rows: tuple[list[dict[str, Any]], str]) -> None:
    slope = the(rows[0], "inter_frame_slope", "fit")
    assert slope["n"] == 3
    assert slope["ci_low"] <= 0 <= slope["ci_high"] or abs(slope["estimate"]) < 1  # 400,000 a second at every size
