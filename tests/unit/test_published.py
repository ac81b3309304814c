"""Every row of a table and every figure of the papers is some experiment's; each has a study or says why not."""

from __future__ import annotations

import csv
import json
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

from sojourn import studies as built_in
from sojourn.cli.published import plan_of, take
from sojourn.errors import RequestError
from sojourn.plan import load_plan
from sojourn.report.experiments import Experiment, Left, answer, experiments, left, papers, studies
from sojourn.report.overview import ours, write_overview
from sojourn.report.run import Run
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from pathlib import Path


def tables() -> dict[str, list[dict[str, str]]]:
    """Every published table by its name."""
    folder = resources.files("sojourn.report").joinpath("published")
    found = {}
    for file in folder.iterdir():
        if file.name.endswith(".csv"):
            with file.open(encoding="utf-8") as lines:
                found[file.name.removesuffix(".csv")] = list(csv.DictReader(lines))
    return found


def test_every_row_of_every_published_table_belongs_to_an_experiment() -> None:
    every = experiments()
    rest = left()
    wrong = [
        f"{name}: {row}"
        for name, rows in tables().items()
        for row in rows
        if any(one.table == name and one.has(row) for one in every)
        is any(one.table == name and one.has(row) for one in rest)
    ]
    assert not wrong, "a row belongs to an experiment or is listed as left over, not both"
    assert len(tables()) == 19


WHOLE = {"bridge2003_timestamping", "bridge2003_dlink_rtt", "siftr2007_disabled"}
"""Files of which one figure is made of every row."""


def test_experiment_claims_a_whole_file_only_if_its_figure_uses_all_of_it() -> None:
    assert {one.table for one in experiments() if one.table and not one.rows} == WHOLE


@pytest.mark.parametrize("one", left(), ids=lambda one: f"{one.table} {one.rows}")
def test_remaining_tables_exist_and_are_in_a_report_or_have_a_reason(one: Left) -> None:
    rows = tables()[one.table]
    assert all(any(row[key] == value for row in rows) for key, several in one.rows.items() for value in several)
    assert bool(one.study) is not bool(one.why)
    if one.study:
        assert one.table in load_plan(one.study).study.published, "its report sets the file beside ours"
        assert one.study in studies()


def test_every_table_and_figure_of_every_paper_belongs_to_an_experiment() -> None:
    named = {(one.paper, item) for one in experiments() for item in one.items}
    for name, paper in papers().items():
        missing = [item for item in paper.items if (name, item) not in named]
        assert not missing, f"{name}: {missing}"
    unknown = [
        (paper, item) for paper, item in named if not item.startswith("section") and item not in papers()[paper].items
    ]
    assert not unknown


@pytest.mark.parametrize("one", experiments(), ids=lambda one: f"{one.paper} {one.items[0]}")
def test_an_experiments_table_study_and_hypothesis_exist(one: Experiment) -> None:
    if one.table:
        rows = tables()[one.table]
        assert any(one.has(row) for row in rows)
        assert all(any(row[key] == value for row in rows) for key, several in one.rows.items() for value in several)
    if one.study:
        assert one.study in built_in.names()
        assert one.ours or one.hypothesis, "nothing of the study is shown"
        plan = plan_of(one.study, full=False, backend=None)
        assert not one.hypothesis or one.hypothesis in plan.study.hypotheses


def test_each_study_can_be_planned_quickly_and_as_published() -> None:
    for study in studies():
        for full in (False, True):
            assert plan_of(study, full=full, backend=None).expand()


def a_run(folder: Path, rows: list[dict[str, Any]], hypotheses: list[dict[str, Any]] | None = None) -> Run:
    """A run of the study of that name with these rows of results."""
    (folder / "analysis").mkdir(parents=True)
    filled = [
        {"reference": None, "unit": "ns", "ci_low": None, "ci_high": None, "statistic": "mean", **row} for row in rows
    ]
    (folder / "analysis" / "results.json").write_text(json.dumps(filled))
    verdict = {"verdict": "trusted", "sentence": "", "findings": [], "hypotheses": hypotheses or []}
    (folder / "analysis" / "verdict.json").write_text(json.dumps(verdict))
    (folder / "plan.toml").write_text('[study]\nname = "toy"\nmethod = "pairs"\n')
    (folder / "bed.json").write_text("{}")
    return Run.read(folder)


def an_experiment(**keys: Any) -> Experiment:
    return Experiment("bridge-2003", ("table 3",), "latency", "24.5 µs", study="toy", **keys)


def test_matching_result_row_is_selected_with_its_interval(tmp_path: Path) -> None:
    rows = [
        {"quantity": "device_latency", "device": "bridge", "reference": "wire", "icmp_bytes": 64, "estimate": 300.0},
        {"quantity": "device_latency", "device": "bridge", "reference": "direct", "icmp_bytes": 1480, "estimate": 9e3},
        {"quantity": "device_latency", "device": "bridge", "reference": "direct", "icmp_bytes": 64, "estimate": 1500.0,
         "ci_low": 1400.0, "ci_high": 1600.0},
    ]  # fmt: skip
    asked = {"quantity": "device_latency", "device": "bridge", "reference": "direct", "icmp_bytes": 64}
    found = answer(an_experiment(ours=asked), a_run(tmp_path / "toy", rows))
    assert ours(found) == "1.50 µs (95 % CI 1.40–1.60)"


def test_bounds_of_a_ratio_follow_from_both_intervals(tmp_path: Path) -> None:
    rows = [
        {"quantity": "rtt", "device": "bridge", "estimate": 30.0, "ci_low": 27.0, "ci_high": 33.0},
        {"quantity": "rtt", "device": "direct", "estimate": 10.0, "ci_low": 9.0, "ci_high": 11.0},
    ]
    one = an_experiment(ours={"quantity": "rtt", "device": "bridge"}, over={"quantity": "rtt", "device": "direct"})
    found = answer(one, a_run(tmp_path / "toy", rows)).shown
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert (found.value, round(found.low, 9), round(found.high, 9)) == (3.0, round(27 / 11, 9), round(33 / 9, 9))


def test_hypotheses_are_counted_by_their_outcomes(tmp_path: Path) -> None:
    told = [{"hypothesis": "md1", "outcome": one} for one in ("supported", "supported", "inconclusive")]
    found = answer(an_experiment(hypothesis="md1"), a_run(tmp_path / "toy", [], told))
    assert found.words == "md1: 2 supported, 1 inconclusive"


def test_missing_results_are_listed_with_their_reason(tmp_path: Path) -> None:
    one = an_experiment(ours={"quantity": "rtt"})
    assert answer(one, None, "no root").words == "not measured: no root"
    assert answer(one, a_run(tmp_path / "toy", [])).words == "this run leaves it out"


def test_results_omitted_by_the_quick_run_are_listed_with_their_reason(tmp_path: Path) -> None:
    one = an_experiment(ours={"quantity": "rtt"}, quick="it takes hours")
    assert answer(one, a_run(tmp_path / "toy", [])).words == "this run leaves it out; it takes hours"
    told = answer(an_experiment(hypothesis="md1", quick="it takes hours"), a_run(tmp_path / "other", []))
    assert told.words == "md1: not tested; it takes hours"
    there = [{"quantity": "rtt", "device": "bridge", "estimate": 1.0}]
    assert "hours" not in answer(one, a_run(tmp_path / "whole", there)).words
    assert [one.items for one in experiments() if one.quick] == [("section V.B",), ("figure 11", "figure 12")]


def test_the_page_has_every_experiment_and_links_its_run(tmp_path: Path) -> None:
    a_run(tmp_path / "bridge-latency", [{"quantity": "device_latency", "device": "bridge", "reference": "direct",
                                         "icmp_bytes": 64, "estimate": 1500.0}])  # fmt: skip
    answers = write_overview(tmp_path, {"ping-wait": "no ping here"})
    page = (tmp_path / "index.html").read_text()
    assert len(answers) == len(experiments())
    assert page.count("<tr>") == len(answers) + len(papers())
    assert 'href="bridge-latency/report/index.html"' in page
    assert "no ping here" in page
    plain = printed("run-published", (tmp_path / "published.json").read_text())
    assert [one["ours"]["value"] for one in plain if one["items"] == ["table 3"] and one["paper"] == "bridge-2003"] == [
        1.5
    ]


def test_unrelated_folder_is_refused(tmp_path: Path) -> None:
    quick: dict[str, object] = {"full": False, "bed": None}
    take(tmp_path / "new", studies(), quick)
    take(tmp_path / "new", studies(), quick)
    with pytest.raises(RequestError, match="other options"):
        take(tmp_path / "new", studies(), {"full": True, "bed": None})
    (tmp_path / "new" / "thesis.tex").touch()
    with pytest.raises(RequestError, match=r"thesis\.tex"):
        take(tmp_path / "new", studies(), quick)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").touch()
    with pytest.raises(RequestError, match="not from"):
        take(tmp_path / "mine", studies(), quick)


def test_nearest_probe_interval_is_used_and_stated(tmp_path: Path) -> None:
    rows = [
        {"quantity": "rtt", "device": "bridge", "estimate": value, "interval_ns": interval}
        for value, interval in ((10.0, 250_000), (20.0, 10_000_000))
    ]
    one = an_experiment(ours={"quantity": "rtt", "device": "bridge", "near_interval_ns": 20_000_000})
    found = answer(one, a_run(tmp_path / "toy", rows))
    assert found.shown is not None
    assert found.shown.value == 0.02
    assert found.words == "ours a packet each 10 ms, theirs 20 ms"
    exact = an_experiment(ours={"quantity": "rtt", "device": "bridge", "near_interval_ns": 10_000_000})
    assert answer(exact, a_run(tmp_path / "again", rows)).words == ""
