"""Budgets of headline figures: every method states them, they add up, and U holds the truth that was simulated."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.budget import Stated, clock_rate, counted, scatter, standard_error, unknown
from sojourn.analysis.rows import Row
from sojourn.analysis.sessions import figure_of
from sojourn.cli.boots import with_boots
from sojourn.history import entry_of, find_history
from sojourn.methods import load, packages
from sojourn.methods.pairs.show.directions import directions
from sojourn.records import RunFolder
from sojourn.records.budgets import BUDGETS, COMPONENTS
from sojourn.records.results import COLUMNS
from sojourn.report import write_report
from sojourn.report.budgets import budget_tables, in_a_line, read_budgets, significant
from sojourn.report.run import Run
from sojourn.statistics.budget import rectangular
from sojourn.statistics.interval import Interval, student_quantile
from tests.unit.many_runs import mean_and_error_rows

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTED = "its headline is a share of what was counted: its interval is one of counts, which is not symmetric about it"
WITHOUT_HEADLINE = {
    "anomalies": "its headline is which rules a delay follows, each found by a test",
    "departures": COUNTED,
    "loss": COUNTED,
    "model": "its headline is how far a prediction is from what was measured, and no quantity of the device",
    "short-flows": "its headline is a completion time over one path, scattered between beds: nothing is subtracted",
    "tcp-perturbation": "its headline is the outcome of tests, with intervals adjusted because this figure was "
    "selected as significant by them",
    "tcp-truth": "its headline is how many of many checks agree",
    "tcp-windows": "its headline is what was counted over one path, scattered between beds: nothing is subtracted",
    "variance": "its headline is standard deviations, whose intervals are not symmetric about them",
}
"""Methods without a budget, and why."""


@pytest.mark.parametrize("method", sorted(packages()))
def test_every_method_states_the_budget_of_its_headline(method: str) -> None:
    states = hasattr(load(method, "analyse"), "budgets")
    assert states != (method in WITHOUT_HEADLINE), WITHOUT_HEADLINE.get(method, "no budget, and no reason why")


def test_the_page_names_every_method_without_a_budget() -> None:
    page = (Path(__file__).parents[2] / "docs/concepts/uncertainty.md").read_text()
    section = page.partition("## Methods without a budget")[2].partition("\n## ")[0]
    assert set(WITHOUT_HEADLINE) == set(re.findall(r"`([\w-]+)`", section))


def latency(value: Interval, sessions: int | None = None) -> Row:
    return Row("bridge", "device_latency", "mean", value, "ns", "wire", sessions=sessions)


def test_missing_scatter_of_one_part_leaves_no_expanded_uncertainty() -> None:
    """One part that is not known makes the whole unknown, however well another is."""
    row = latency(Interval(260.0, 190.0, 330.0, 0.95, 12))
    known = scatter("scatter of one path", row, 12, "trials")
    lacking = scatter("scatter of the other", latency(Interval(1.0, None, None, 0.95, 2)), 2, "trials")
    assert Stated("x", row, (known, unknown("boots", "one boot"))).budget is not None
    assert Stated("x", row, (known, lacking)).budget is None


def test_an_infinite_interval_has_no_standard_error() -> None:
    """A lost packet makes a delay infinite, and its uncertainty was printed as ± 0."""
    assert standard_error(Interval(260.0, 190.0, np.inf, 0.95, 12), 12) is None
    assert Stated("x", latency(Interval(1.0, 0.5, np.inf, 0.95, 12)), ()).budget is None


def test_expanded_uncertainty_of_scatter_alone_is_the_interval_of_the_row() -> None:
    row = latency(Interval(260.0, 190.0, 330.0, 0.95, 136), sessions=8)
    stated = Stated("x", row, (scatter("scatter between beds", row, 8, "beds"),))
    assert stated.budget is not None
    assert stated.budget.expanded == pytest.approx(70.0)
    assert stated.budget.effective_degrees == pytest.approx(7)


def test_component_included_in_another_is_listed_and_not_counted() -> None:
    row = latency(Interval(260.0, 190.0, 330.0, 0.95, 136), sessions=8)
    beds = scatter("scatter between beds", row, 8, "beds")
    clock = rectangular("clock", 30.0, "ns")
    stated = Stated("x", row, (beds, counted(clock, "c"), unknown("boots", "one boot")))
    tidy = stated.tidy()
    u = 70 / student_quantile(7, 0.95)
    assert tidy["combined"] == pytest.approx((u**2 + 30**2 / 3) ** 0.5)
    assert [one["share"] for one in tidy["components"]] == [
        pytest.approx(u**2 / (u**2 + 300)), pytest.approx(300 / (u**2 + 300)), None,
    ]  # fmt: skip
    assert tidy["interval_half_width"] == pytest.approx(70.0)


def test_without_scatter_there_is_no_expanded_uncertainty() -> None:
    row = latency(Interval(260.0, None, None, 0.95, 2))
    stated = Stated("x", row, (scatter("scatter", row, 2, "two pairs"), clock_rate(260.0)))
    assert stated.budget is None
    assert stated.tidy()["expanded"] is None
    assert standard_error(row.value, 2) is None


def test_the_file_has_the_declared_names(synthetic: Callable[..., Any]) -> None:
    for budget in budgets_of(synthetic(rounds=8).write()):
        assert list(budget) == list(BUDGETS)
        assert {name for part in budget["components"] for name in part} == set(COMPONENTS)
        assert {"device", "reference", "quantity", "statistic", "cell", "port"} <= COLUMNS.keys()


def budgets_of(folder: Path) -> list[dict[str, Any]]:
    analyse(folder)
    return list(json.loads((folder / "analysis" / "budgets.json").read_text()))


def components(budget: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in budget["components"]}


def test_run_on_one_bed_lists_scatter_between_beds_as_unknown(synthetic: Callable[..., Any]) -> None:
    (budget,) = budgets_of(synthetic(rounds=12).write())
    parts = components(budget)
    assert parts["scatter within the bed"]["degrees_of_freedom"] == 11
    assert {name for name, part in parts.items() if part["state"] == "unknown"} == {
        "between beds", "instance of link and device", "asymmetry of request and reply", "between boots and days",
    }  # fmt: skip
    assert budget["not_covered"] == ["reboots and other days", "another bed", "request or reply by itself"]
    assert abs(budget["estimate"] - 1300 - 0.4 * 102) < budget["expanded"]


ROUNDS = 16


def split(folder: Path, beds: int) -> Path:
    """The same run with each bed's records in files of their own, as sessions write them."""
    records = folder / "records"
    with pa.ipc.open_stream((records / "blocks-000.arrow").read_bytes()) as blocks:
        bed_of = {row["block"]: row["round"] * beds // ROUNDS for row in blocks.read_all().to_pylist()}
    for name in ("blocks", "probes"):
        with pa.ipc.open_stream((records / f"{name}-000.arrow").read_bytes()) as stream:
            batches, schema = list(stream), stream.schema
        for bed in range(beds):
            with pa.ipc.new_stream(str(records / f"{name}-{bed:03}.arrow"), schema) as out:
                for batch in batches:
                    if bed_of[batch.column("block")[0].as_py()] == bed:
                        out.write_batch(batch)
    return folder


def in_beds(beds: int, asymmetry_ns: float = 0.0, clock: str = "TAI", step: int = 1) -> dict[str, Any]:
    """What a run of several beds has, in which the request takes this much more of the bridge's latency."""
    links = np.random.default_rng(7).normal(0, 100, beds)

    def alter(block: dict[str, Any], probes: dict[str, Any], rng: np.random.Generator) -> None:
        more = 2 * links[block["round"] * beds // ROUNDS] if block["device"] == "bridge" else 0.0
        arrival = np.asarray(probes["arrival_ns"]) + round(more)
        departure = np.asarray(probes["departure_ns"])
        probes["arrival_ns"] = (arrival // step * step).tolist()
        probes["departure_ns"] = (departure // step * step).tolist()
        half = (arrival - departure) / 2 + (asymmetry_ns if block["device"] == "bridge" else 0.0)
        there = departure + half.round().astype(np.int64)
        probes["responder_arrival_ns"] = there.tolist()
        probes["responder_departure_ns"] = there.tolist()

    return {"rounds": ROUNDS, "icmp_bytes": (64,), "alter": alter, "bed_extra": f"sessions = {beds}", "clock": clock}


def test_the_asymmetry_of_request_and_reply_is_found_and_is_beside_the_figure(synthetic: Callable[..., Any]) -> None:
    folder = split(synthetic(**in_beds(8, asymmetry_ns=250.0)).write(), 8)
    (budget,) = budgets_of(folder)
    found = components(budget)["asymmetry of request and reply"]
    assert (found["state"], found["share"]) == ("outside", None)
    assert re.search(r"the request takes 0\.25 µs \(± 0\.0\d+ µs\) more", found["source"])
    assert budget["not_covered"] == ["reboots and other days"]
    rows = json.loads((folder / "analysis" / "results.json").read_text())
    (row,) = [one for one in rows if one["quantity"] == "latency_asymmetry"]
    assert row["estimate"] == pytest.approx(250.0, abs=1.0)
    whole, request, reply = (
        next(one for one in rows if (one["quantity"], one["device"], one["statistic"]) == (name, "bridge", "mean"))
        for name in ("device_latency", "latency_request", "latency_reply")
    )
    assert request["estimate"] - whole["estimate"] == pytest.approx(250.0, abs=1.0)
    assert whole["estimate"] - reply["estimate"] == pytest.approx(250.0, abs=1.0)
    assert {(one["unit"], one["clock"], one["sessions"]) for one in (request, reply)} == {("ns", "TAI", 8)}
    assert (request["source"], reply["source"]) == (
        "departure simulated, arrival responder", "departure responder's program, arrival simulated",
    )  # fmt: skip
    assert request["ci_low"] < request["estimate"] < request["ci_high"]
    told = json.loads((folder / "analysis" / "verdict.json").read_text())
    (finding,) = [one for one in told["findings"] if one["name"] == "directions_differ"]
    assert finding["severity"] == "note"
    assert re.search(r"the request takes 0\.25 µs \(99.9 % CI .*\) more than the mean", finding["sentence"])
    assert "half a round trip is the latency of neither" in told["sentence"]


def test_equal_directions_are_reported_without_a_finding(synthetic: Callable[..., Any]) -> None:
    folder = split(synthetic(**in_beds(8)).write(), 8)
    analyse(folder)
    told = json.loads((folder / "analysis" / "verdict.json").read_text())
    assert "directions_differ" not in {one["name"] for one in told["findings"]}
    assert re.search(r"the request takes .*, the reply .*, which do not differ significantly", told["sentence"])
    table = directions(Run.read(folder))
    assert {row[0].text for row in table.rows} == {"bridge", "a/a"}
    said = [entry.text for entry in table.rows[0]]
    assert "departure simulated, arrival responder" in said
    assert len(said) == len(table.columns)
    assert "TAI" in said


def test_run_on_several_beds_counts_beds_and_lists_included_components(synthetic: Callable[..., Any]) -> None:
    (budget,) = budgets_of(split(synthetic(**in_beds(8)).write(), 8))
    parts = components(budget)
    assert parts["scatter between beds"]["degrees_of_freedom"] == 7
    assert parts["scatter within a bed"]["state"] == "contained"
    assert parts["scatter within a bed"]["contribution"] < parts["scatter between beds"]["contribution"]
    assert budget["expanded"] == pytest.approx(budget["interval_half_width"], rel=1e-3)
    # Read by a clock that nobody compared with a standard: 500 ppm of the figure, rectangular.
    assert parts["rate of the clock"]["contribution"] == pytest.approx(5e-4 / 3**0.5 * budget["estimate"])


def test_a_coarse_clock_is_a_component(synthetic: Callable[..., Any]) -> None:
    (budget,) = budgets_of(split(synthetic(**in_beds(8, step=1000)).write(), 8))
    found = components(budget)["resolution of timestamps"]
    assert found["standard_uncertainty"] == pytest.approx(1000 / 12**0.5)
    assert budget["expanded"] > 2 * budget["interval_half_width"]


def test_printed_budget_shows_the_figure_its_components_and_the_unknown_ones(synthetic: Callable[..., Any]) -> None:
    folder = split(synthetic(**in_beds(8)).write(), 8)
    analyse(folder)
    write_report(folder)
    run = Run.read(folder)
    (one,) = read_budgets(run)
    with_numbers, without = budget_tables(run)
    assert [row[0].text for row in with_numbers.rows][-4:] == [
        "Combined, u_c", "Effective ν", "Coverage factor, k", "Expanded, U",
    ]  # fmt: skip
    assert with_numbers.rows[0][0].text == "Scatter between beds"
    assert "is this U" in with_numbers.note
    assert {row[1].text for row in without.rows} == {"in another", "cancels", "not of this figure", "not known"}
    page = (folder / "report" / "index.html").read_text()
    assert '<h2 id="uncertainty">Uncertainty</h2>' in page
    assert (folder / "report" / "tables" / "budget_1.csv").is_file()
    assert "Not in U: reboots and other days" in in_a_line(one)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(29.41, "29"), (0.2887, "0.29"), (0.00028868, "0.00029"), (1.2e-7, "1.2·10⁻⁷"), (213.0, "210"), (0.0, "0"),
     (99.6, "100"), (9.96, "10")],
)  # fmt: skip
def test_uncertainties_have_two_significant_digits(value: float, shown: str) -> None:
    assert significant(value) == shown


def covers(runs: int, beds: int, tau: float, sigma: float, pairs: int, half: float, seed: int) -> float:
    """The share of runs whose U holds the truth: effects of beds, scatter of pairs, and an offset within ± `half`."""
    rng = np.random.default_rng(seed)
    effects = rng.normal(0, tau, (runs, beds))
    scattered = rng.normal(0, sigma, (runs, beds, pairs)) + effects[:, :, None]
    values, errors = scattered.mean(axis=2), scattered.std(axis=2, ddof=1) / pairs**0.5
    found = mean_and_error_rows(values, errors, np.full(beds, pairs, dtype=np.int64))
    offset = rng.uniform(-half, half, runs)
    reach = student_quantile(beds - 1, 0.95)
    held = 0
    for mean, error, off in zip(found[:, 0], found[:, 1], offset, strict=True):
        estimate = mean + off
        row = latency(Interval(estimate, estimate - reach * error, estimate + reach * error, 0.95, beds), beds)
        entries = (scatter("beds", row, beds, ""), counted(rectangular("offset", half, "ns"), ""))
        budget = Stated("x", row, entries).budget
        assert budget is not None
        held += abs(estimate) <= budget.expanded
    return held / runs


@pytest.mark.parametrize(
    "runs", [2000, pytest.param(20000, marks=pytest.mark.proof)]
)  # two thousand: 93 to 97 % within three standard deviations
@pytest.mark.parametrize(("beds", "half"), [(6, 0.0), (8, 20.0), (10, 60.0), (20, 40.0)])
def test_expanded_uncertainty_covers_the_truth(beds: int, half: float, runs: int, proven: Callable[..., None]) -> None:
    share = covers(runs, beds, tau=60.0, sigma=300.0, pairs=17, half=half, seed=beds)
    print(f"{beds} beds, offset within ± {half}: {share:.4f}")
    proven("coverage", "expanded uncertainty of a budget", held=share * runs, of=runs)
    assert 0.93 <= share <= 0.97


def test_the_standard_uncertainty_is_that_of_the_sessions() -> None:
    rng = np.random.default_rng(3)
    half = rng.normal(100, 30, (4, 17)) + rng.normal(0, 20, (4, 1))
    d = np.concatenate([half, 200 - half])  # without skewness
    error = d.mean(axis=1).std(ddof=1) / 8**0.5
    found = figure_of(d.ravel(), np.repeat(np.arange(8), 17))
    assert standard_error(found.mean, 8) == pytest.approx(error)
    d[0] += 500.0
    error = d.mean(axis=1).std(ddof=1) / 8**0.5
    skewed = figure_of(d.ravel(), np.repeat(np.arange(8), 17))
    assert standard_error(skewed.mean, 8) == pytest.approx(2 * error), "the longer side, twice as far as Student's"


def test_history_of_six_boots_or_more_widens_the_headline(
    synthetic: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOJOURN_DATA", str(tmp_path / "data"))
    folder = RunFolder(split(synthetic(**in_beds(8), bed={"hash": "c0ffee"}).write(), 8))
    (budget,) = budgets_of(folder.path)
    own = entry_of(folder)
    rng = np.random.default_rng(5)
    history = find_history()
    for boot in range(8):
        moved = [replace(one, estimate=one.estimate + rng.normal(0, 1000)) for one in own.figures]
        again = replace(own, run=f"run-{boot}", boot=f"boot-{boot}", began_ns=boot, figures=tuple(moved))
        history.append(again)
        if boot == 4:
            assert with_boots(folder) == ""
    said = with_boots(folder)
    assert "over 8 in the history" in said
    reach = float(said.split("±\u00a0")[1].split(" µs")[0]) * 1000
    assert reach > 4 * budget["expanded"]
