"""The page of the bench: figures are those of the file, each with its run; a run of a part replaces its own tasks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bench.compare import Target, What, alone, ratio
from bench.contest import Claim, Column, Contest
from bench.goals import GOALS, beside_goals
from bench.table import quantity
from scripts import write_bench

if TYPE_CHECKING:
    from pathlib import Path


def measured(date: str, *tasks: str, factor: float = 1.2) -> dict[str, Any]:
    """What a bench leaves: of each task six repetitions, ours `factor` times the peer's."""
    told = {
        "date": date,
        "commit": "abc",
        "cpu": "a processor",
        "cores": 2,
        "kernel": "6.1",
        "repetitions": 6,
        "load_1min": 0.5,
    }
    pairs = [(factor * (100 + n), 100.0 + n) for n in range(6)]
    rows = [ratio(What(task, "ping", "minimum RTT", "ns"), pairs, Target("at most", 1.1)) for task in tasks]
    return {"machine": told, "rows": [row.as_json() for row in rows], "contests": []}


def test_partial_bench_run_replaces_only_its_own_tasks() -> None:
    first = write_bench.merged(write_bench.NOTHING_YET, measured("2026-01-01", "probe", "pacing"))
    second = write_bench.merged(first, measured("2026-02-02", "pacing", factor=1.05))
    assert [run["date"] for run in second["runs"]] == ["2026-01-01", "2026-02-02"]
    by_task = {row["task"]: row for row in second["rows"]}
    assert by_task["probe"]["run"] == 0
    assert by_task["pacing"]["run"] == 1
    assert by_task["pacing"]["measured"] == pytest.approx(1.05)
    third = write_bench.merged(second, measured("2026-03-03", "probe"))
    assert [run["date"] for run in third["runs"]] == ["2026-02-02", "2026-03-03"]
    assert [(row["task"], row["run"]) for row in third["rows"]] == [("pacing", 0), ("probe", 1)]


def test_page_counts_outcomes_and_lists_unmet_targets() -> None:
    facts = write_bench.merged(write_bench.NOTHING_YET, measured("2026-01-01", "slow"))
    facts = write_bench.merged(facts, measured("2026-01-02", "fast", factor=0.9))
    text = write_bench.page(facts)
    assert "2 figures have a target: 1 meet it, 1 do not; of 0 the interval holds the limit" in text
    head, _, _ = text.partition("## All figures")
    assert "| slow | minimum RTT |" in head
    assert "| fast |" not in head
    assert "1.20×" in text
    assert "0.90×" in text


def test_goals_have_the_figure_of_before_and_the_run_that_measured_them() -> None:
    first = write_bench.merged(write_bench.NOTHING_YET, measured("2026-01-01", "other"))
    text = write_bench.page(write_bench.merged(first, measured("2026-01-02", "ICMP echo, closed loop", factor=1.05)))
    goals = text.partition("## Beside the goals")[2].partition("## Targets not met")[0]
    (line,) = [one for one in goals.splitlines() if "ping -f" in one]
    before, goal, ours, _, answer = [cell.strip() for cell in line.split("|")][3:8]
    assert line.startswith("| 2 | closed-loop probe")
    assert (before, goal, ours, answer) == ("1.2–1.5×", "at most 1.10×", "1.05×", "met")
    assert "AF_XDP" not in goals, "a goal that no run measured has no line"


def test_every_goal_is_a_figure_of_the_page() -> None:
    facts = json.loads((write_bench.ROOT / write_bench.FACTS).read_text())
    assert len([*beside_goals([write_bench.row_of(one) for one in facts["rows"]])]) == len(GOALS)


def test_comparison_medians_are_on_the_page_and_missing_ones_reported() -> None:
    contest = Contest(
        "a flood",
        {"ours": lambda _: {}, "theirs": lambda _: {}},
        (Column("pps", "frames a second", "1/s"), Column("lost", "lost", "frames")),
        (Claim("ours", "pps", "rate", "1/s", Target("at least", 1.0), "theirs"),),
        {"ours": [{"pps": 100.0 + n, "lost": 0.0} for n in range(6)], "theirs": [{"pps": 50.0} for _ in range(6)]},
    )
    told = {
        **measured("2026-01-01"),
        "contests": [contest.as_json()],
        "rows": [row.as_json() for row in contest.rows()],
    }
    facts = json.loads(json.dumps(write_bench.merged(write_bench.NOTHING_YET, told)))
    assert "samples" not in facts["contests"][0]
    text = write_bench.page(facts)
    assert "| ours | 102/s | 0 |" in text
    assert "| theirs | 50/s | – |" in text
    assert "Medians of 6 repetitions, run 1." in text


def test_stale_page_is_detected_and_rewritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs/reference").mkdir(parents=True)
    facts = write_bench.merged(write_bench.NOTHING_YET, measured("2026-01-01", "probe"))
    (tmp_path / write_bench.FACTS).write_text(json.dumps(facts))
    assert write_bench.laid_out(tmp_path, check=True) == 1
    assert write_bench.laid_out(tmp_path, check=False) == 0
    assert write_bench.laid_out(tmp_path, check=True) == 0
    assert "stale" in capsys.readouterr().out


def test_bench_row_round_trips_as_json() -> None:
    row = alone(What("t", "p", "n", "s"), [(1.0, 2.0)] * 6, Target("at most", 3))
    assert write_bench.row_of({"run": 0, **json.loads(json.dumps(row.as_json()))}) == row


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1696.7, "MiB", "1,697 MiB"),
        (0.0123, "share", "1.23 %"),
        (47_671_100, "bit/s", "47.67 Mbit/s"),
        (2345.6, "ns", "2.35 µs"),
        (1234567, "frames", "1,234,567"),
        (0.5, "1", "0.5"),
    ],
)
def test_quantities_are_formatted_for_people(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text
