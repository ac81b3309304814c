"""The cost of a log, from records whose truth is known: ratios, skips, nanoseconds, hypotheses, doubts."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.conduct.meter import timeouts
from sojourn.methods.tcp_cost.analyse import judged
from sojourn.methods.tcp_cost.analyse.budget import _link, _throughput
from sojourn.methods.tcp_cost.analyse.collapses import sign_p
from sojourn.methods.tcp_cost.analyse.ratios import cells_of
from sojourn.plan import load_plan
from sojourn.report.contents import all_tables
from sojourn.report.run import Run as ReportRun
from sojourn.statistics.interval import Interval
from tests.unit import vega_lite
from tests.unit.made_up_costs import DECIMATED_NS, NS, Machine, write

if TYPE_CHECKING:
    from pathlib import Path

SEED = 20_261_123
LEFT = {1: 0.9, 2: 0.95, "placebo": 0.9}
FEW = ["flows=1,10", "path=gso"]


def test_order_within_pairs_is_random_and_then_reversed() -> None:
    slices = load_plan("tcplog-cost").expand()
    with_log = [one for one in slices if one.factors.setting.mode != "off" and one.factors.mode != "off"]
    for cell in {one.cell for one in with_log}:
        visits = {one.round: one.visit for one in with_log if one.cell == cell}
        assert all(visits[one] != visits[one + 1] for one in range(0, 12, 2))
    assert [one.block for one in slices] == list(range(len(slices)))
    transfers = [(one.batch, one.factors.setting.path, one.factors.setting.flows) for one in slices]
    assert len(set(transfers)) == len({transfer for transfer, _, _ in transfers})


def found(folder: Any, name: str) -> pl.DataFrame:
    return pl.read_parquet(folder.samples / f"{name}.parquet")


def test_known_cost_is_found_despite_drift(tmp_path: Path) -> None:
    machine = Machine(noise=0.03, drift=0.6, wave=0.1, left=LEFT)
    folder = write(tmp_path / "run", machine, FEW)
    verdict = analyse(folder.path)
    ratios = found(folder, "cost_ratios")
    for row in ratios.filter(pl.col("mode") == "on").iter_rows(named=True):
        truth = machine.left.get(row["packets_per_log"], 1.0)
        assert abs(row["ratio"] / truth - 1) < 0.04
    assert {one.name for one in found_findings(verdict)} == {"drift"}
    assert verdict.verdict == "trusted"
    traffic = found(folder, "cost_traffic")
    assert (traffic["resolved"] < 0.06).all()
    answers = {answer["hypothesis"]: answer["outcome"] for answer in verdict.hypotheses}
    assert answers["detail-costs"] == "supported"
    assert answers["nothing-skipped"] == "supported"
    rows = json.loads(folder.results.read_text())
    assert {"path", "flows", "where", "packets_per_log"} <= set(rows[0])
    assert "every packet logged" in verdict.sentence


@pytest.mark.parametrize(
    ("left", "noise", "outcome"),
    [
        ({1: 0.9}, 0.02, "supported"),
        ({1: 0.985}, 0.002, "rejected"),
        ({1: 0.98}, 0.03, "inconclusive"),
        ({1: 1.0}, 0.002, "rejected"),
        ({1: 1.1}, 0.002, "rejected"),
        ({1: 1.0}, 0.3, "inconclusive"),
    ],
)
def test_hypothesis_detail_costs_uses_one_margin(
    tmp_path: Path, left: dict[Any, float], noise: float, outcome: str
) -> None:
    """A cost of 1.5 % was supported by one rule and rejected by another."""
    verdict = analyse(write(tmp_path / "run", Machine(noise=noise, left=left), FEW).path)
    found = next(one for one in verdict.hypotheses if one["hypothesis"] == "detail-costs")
    assert found["outcome"] == outcome, found["sentence"]


@pytest.mark.parametrize("hypothesis", ["disabled-is-free", "placebo-explains"])
@pytest.mark.parametrize(
    ("own", "noise", "outcome"),
    [(1.0, 0.002, "supported"), (0.9, 0.01, "rejected"), (1.1, 0.01, "rejected"), (1.0, 0.3, "inconclusive")],
)
def test_hypotheses_of_the_controls_are_evaluated(
    tmp_path: Path, hypothesis: str, own: float, noise: float, outcome: str
) -> None:
    """`own` is what is left with the log disabled, and what logging leaves of what the placebo leaves."""
    left = {"disabled-is-free": {1: 0.9, "disabled": own}, "placebo-explains": {1: 0.9 * own, "placebo": 0.9}}
    controls = f"controls={hypothesis.split('-', maxsplit=1)[0]}"
    verdict = analyse(write(tmp_path / "run", Machine(noise=noise, left=left[hypothesis]), [*FEW, controls]).path)
    found = next(one for one in verdict.hypotheses if one["hypothesis"] == hypothesis)
    assert found["outcome"] == outcome, found["sentence"]


def test_valid_control_raises_a_finding_in_one_percent_of_runs() -> None:
    """Of all its tests together; a difference of 3 % in one traffic of four, at a noise of 2 %, is always found."""
    rng, runs, pairs = np.random.default_rng(SEED), 1500, 24

    def doubted(off: float) -> float:
        alarms = 0
        for _ in range(runs if off == 1 else 200):
            ratio = np.exp(0.02 * 2**0.5 * rng.standard_normal(4 * pairs))
            ratio[:pairs] *= off
            paths = np.repeat(["gso", "gso", "mtu", "mtu"], pairs)
            flows = np.tile(np.repeat([1, 10], pairs), 2)
            table = pl.DataFrame(
                {"path": paths, "flows": flows, "setting": "off", "bps": ratio, "off_bps": 1.0, "session": 0}
            )
            alarms += bool(list(judged._a_a(cast("Any", SimpleNamespace(pairs=table)))))
        return alarms / (runs if off == 1 else 200)

    good, bad = doubted(1.0), doubted(1.03)
    print(f"seed {SEED}: {good:.4f} of good runs, {bad:.3f} of bad ones")
    assert good <= 0.016
    assert bad >= 0.9


def test_zero_skips_in_few_slices_are_inconclusive() -> None:
    def cells(slices: int, skipped: int = 0) -> list[Any]:
        ratio = Interval(1.0, 0.99, 1.01, 0.95, slices)
        return [
            SimpleNamespace(
                pairs=slices, packets=10_000, skipped=skipped, skipped_per_mbps=1.0, ratio=ratio, flows=1, path="gso"
            )
        ]

    outcomes = [judged._nothing_skipped("nothing-skipped", cells(*told)).outcome for told in ((58,), (59,), (59, 1))]
    assert outcomes == ["inconclusive", "supported", "rejected"]


@pytest.mark.parametrize(
    ("collapses", "told"),
    [
        ({"on": 0.6, "off": 0.6}, ""),
        ({"on": 2.0, "off": 0.1}, "with the log"),
        ({"on": 0.1, "off": 2.0}, "without the log"),
        ({"on": 0.6, "off": 0.6, "placebo": 4.0, "disabled": 0.01}, ""),
    ],
)
def test_more_window_collapses_in_one_setting_are_counted_and_found(
    tmp_path: Path, collapses: dict[str, float], told: str
) -> None:
    folder = write(tmp_path / "run", Machine(noise=0.02, collapses=collapses, seed=SEED), FEW)
    verdict = analyse(folder.path)
    said = [one.sentence for one in found_findings(verdict) if one.name == "windows_collapse"]
    assert bool(said) == bool(told)
    assert all(f"collapse more often {told}" in one for one in said), said
    on = found(folder, "cost_collapses").filter((pl.col("setting") == "on") & pl.col("path").is_not_null())
    [both] = found(folder, "cost_collapses").filter((pl.col("setting") == "on") & pl.col("path").is_null()).to_dicts()
    assert both["collapses"] == on["collapses"].sum()
    assert both["share_low"] <= 1 - np.exp(-collapses["on"]) <= both["share_high"]
    assert on.height == found(folder, "cost_ratios").filter(pl.col("mode") == "on").height
    for arm, mode in (("", "on"), ("off_", "off")):
        share = 1 - np.exp(-collapses[mode])
        low, high, pairs = on[f"{arm}share_low"].to_numpy(), on[f"{arm}share_high"].to_numpy(), on["pairs"].to_numpy()
        assert ((low <= share) & (share <= high)).mean() >= 0.75, on
        expected = collapses[mode] * pairs.sum()
        assert abs(int(on[f"{arm}collapses"].sum()) - expected) < 5 * expected**0.5
    [table] = [one for one in all_tables(ReportRun.read(folder.path)) if one.name == "cost_collapses"]
    assert len(table.rows) == found(folder, "cost_collapses").height


def test_false_finding_of_more_collapses_occurs_in_at_most_one_percent_of_runs() -> None:
    rng = np.random.default_rng(SEED)
    split = [rng.binomial(20, 0.5) for _ in range(20_000)]
    assert np.mean([sign_p(int(one), 20 - int(one)) <= 0.01 for one in split]) <= 0.011
    assert sign_p(20, 0) < 1e-5
    assert sign_p(0, 0) == 1


def test_expiries_of_the_retransmission_timer_are_read() -> None:
    text = "TcpExt: SyncookiesSent TCPTimeouts TCPSpuriousRTOs\nTcpExt: 0 7 1\nIpExt: InOctets\nIpExt: 3\n"
    assert timeouts(text) == 7


def found_findings(verdict: Any) -> list[Any]:
    return [SimpleNamespace(**one) for one in verdict.findings]


def test_program_time_is_corrected_by_that_of_the_null_program(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", Machine(), FEW)
    analyse(folder.path)
    pooled = found(folder, "cost_programs").filter(pl.col("path").is_null())
    by = {(row["what"], row["direction"]): row for row in pooled.iter_rows(named=True)}
    for way in ("in", "out"):
        assert by["logged", way]["ns"] == pytest.approx(NS["on"][way], rel=0.03)
        assert by["decimated", way]["ns"] == pytest.approx(DECIMATED_NS, rel=0.05)
        assert by["logged", way]["ns_low"] <= by["logged", way]["ns"] <= by["logged", way]["ns_high"]
        assert by["logged", way]["empty_ns"] == pytest.approx(60, abs=1)


@pytest.mark.parametrize(("at_once", "transfers"), [(2, 12), (4, 6), (6, 4)])
def test_program_time_has_an_interval_over_transfers_or_states_how_many_are_needed(
    tmp_path: Path, at_once: int, transfers: int
) -> None:
    from sojourn.methods.tcp_cost.show import keys
    from sojourn.methods.tcp_cost.show.tables import programs
    from sojourn.report.run import Run

    folder = write(tmp_path / "run", Machine(), [*FEW, f"at_once={at_once}"])
    analyse(folder.path)
    pooled = found(folder, "cost_programs").filter(pl.col("path").is_null())
    assert (pooled["transfers"] == transfers).all()
    run = Run.read(folder.path)
    told = [row[4].text for row in programs(run).rows]
    short = f"too few transfers for an interval: {transfers} of 6"
    few = [one for one in told if one == short]
    assert bool(few) == (transfers < 6)
    assert all("too few" in one for one in told) == (transfers < 6), "of one traffic there are half as many"
    assert pooled["ns_low"].is_null().all() == (transfers < 6)
    lines = [line for key in keys(run) for line in key.lines]
    assert (short in lines) == (transfers < 6)
    assert not any(line.endswith("\u2013") for line in lines)


def test_the_quick_run_has_enough_transfers_for_an_interval() -> None:
    plan = load_plan("tcplog-cost", quick=True)
    assert len({one.batch for one in plan.expand()}) >= 6


def test_skips_are_reported_by_reason_and_in_the_published_form(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", Machine(noise=0.0, bps=1e9, skipped=2), FEW)
    verdict = analyse(folder.path)
    assert {answer["hypothesis"]: answer["outcome"] for answer in verdict.hypotheses}["nothing-skipped"] == "rejected"
    skips = found(folder, "cost_skips")
    assert set(skips["reason"]) == {"full"}
    logged = found(folder, "cost_ratios").filter(pl.col("mode") == "on")
    # Two in 0.19 s are 632 a minute, at 1000 Mbit/s.
    assert logged["skipped_per_mbps"][0] == pytest.approx(2 / 0.19 * 60 / 1000, rel=0.01)
    assert "packets were skipped" in verdict.sentence


def test_differing_control_makes_the_run_doubtful(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", Machine(noise=0.005), FEW)
    table = folder.records / "tcp_slices-000.arrow"
    import pyarrow as pa

    with pa.OSFile(str(table), "rb") as file:
        rows = pl.from_arrow(pa.ipc.open_stream(file).read_all())
    assert isinstance(rows, pl.DataFrame)
    chosen = (pl.col("setting") == "off") & (pl.col("visit") == pl.col("repetition") % 2)
    skewed = rows.with_columns(
        received_bytes=pl.when(chosen).then(pl.col("received_bytes") // 2).otherwise("received_bytes")
    )
    with pa.OSFile(str(table), "wb") as file, pa.ipc.new_stream(file, skewed.to_arrow().schema) as stream:
        stream.write_table(skewed.to_arrow())
    verdict = analyse(folder.path)
    assert verdict.verdict == "doubtful"
    assert "a_a_nonzero" in {one["name"] for one in verdict.findings}


@pytest.mark.parametrize("sets", [FEW, ["flows=1,2", "where_flows=2", "path=gso,mtu", "controls=placebo"]])
def test_cell_without_any_measurement_is_the_finding_incomplete(tmp_path: Path, sets: list[str]) -> None:
    import pyarrow as pa

    folder = write(tmp_path / "run", Machine(), sets)
    assert "incomplete" not in {one["name"] for one in analyse(folder.path).findings}
    table = folder.records / "tcp_slices-000.arrow"
    with pa.OSFile(str(table), "rb") as file:
        rows = pl.from_arrow(pa.ipc.open_stream(file).read_all())
    assert isinstance(rows, pl.DataFrame)
    kept = rows.filter(pl.col("cell") != 3).to_arrow()
    with pa.OSFile(str(table), "wb") as file, pa.ipc.new_stream(file, kept.schema) as stream:
        stream.write_table(kept)
    found = {one["name"]: one for one in analyse(folder.path).findings}
    assert found["incomplete"]["value"] == load_plan("tcplog-cost", sets=sets).costs.repetitions


def test_empty_run_is_invalid_and_reports_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", Machine(), FEW)
    for path in folder.records.iterdir():
        path.unlink()
    assert analyse(folder.path).verdict == "invalid"


def test_report_of_costs_is_written_with_valid_figures(tmp_path: Path) -> None:

    from sojourn.report import write_report
    from sojourn.report.contents import all_figures
    from sojourn.report.published import published_tables
    from sojourn.report.run import Run

    folder = write(tmp_path / "run", Machine(left=LEFT, skipped=1), ["flows=1,10"])
    analyse(folder.path)
    page = write_report(folder.path, vector=True).read_text()
    assert "every packet logged" in page
    run = Run.read(folder.path)
    figures = {figure.name: figure for figure in all_figures(run)}
    assert {"cost_over_detail", "cost_over_where", "cost_controls", "cost_programs", "cost_skipped"} <= set(figures)
    for figure in figures.values():
        for panel in figure.panels:
            vega_lite.check(panel.page())
    published = {table.name: table for table in published_tables(run).tables}
    headlines = published["published_siftr2007_headlines"]
    assert any(row[0].text == "ours, gso" for row in headlines.rows)
    assert headlines.rows[0][4].text == "32"
    baseline = published["published_siftr2007_baseline"]
    assert [row[0].text for row in baseline.rows] == ["1", "2", "5", "10", "50", "100"]
    assert baseline.rows[5][3].text == "0.971"


def test_cost_that_differs_between_beds_has_an_interval_over_beds(tmp_path: Path) -> None:
    """What logging leaves differs by 6 % from bed to bed, which the pairs of one bed do not show."""
    held, widths = [], []
    for seed in range(20):
        machine = Machine(noise=0.02, left={1: 0.7}, bed_sd=0.06, seed=seed)
        sets = ["flows=1", "path=gso", "where=sender", "controls=disabled", "packets_per_log=1,100", "bed.sessions=6"]
        analyse(write(tmp_path / f"{seed}", machine, sets).path)
        rows = json.loads((tmp_path / f"{seed}" / "analysis" / "results.json").read_text())
        of_detail = {row["statistic"]: row for row in rows
                     if row["quantity"] == "throughput_ratio" and row["packets_per_log"] == 1}  # fmt: skip
        found, within = of_detail["typical"], of_detail["within_bed"]
        assert (found["sessions"], found["n"]) == (6, 12)
        held.append(found["ci_low"] <= 0.7 <= found["ci_high"])
        widths.append((found["ci_high"] - found["ci_low"]) / (within["ci_high"] - within["ci_low"]))
        assert of_detail["between_beds"]["ci_low"] <= 0.06 * 3
        took = next(row for row in rows if row["quantity"] == "program_time" and row["device"] == "logged")
        assert took["sessions"] == 6
    assert sum(held) >= 17, held
    assert np.median(widths) > 2
    verdict = json.loads((tmp_path / "0" / "analysis" / "verdict.json").read_text())
    assert "over 6 beds" in verdict["sentence"]


def test_number_of_beds_leaves_two_pairs_of_each_cell_per_bed() -> None:
    assert load_plan("tcplog-cost", sets=["repetitions=8", "bed.sessions=5"]).bed.sessions == 4
    assert load_plan("tcplog-cost", sets=["repetitions=3"]).bed.sessions == 1


def pairs_of(beds: list[int], flows: int, seed: int) -> pl.DataFrame:
    """So many pairs with every packet logged on each bed; the last bed leaves 30 % less."""
    rng = np.random.default_rng(seed)
    session = np.repeat(np.arange(len(beds)), beds)
    left = np.exp(0.01 * rng.standard_normal(len(session))) * np.where(session == len(beds) - 1, 0.665, 0.95)
    alike = {"path": "gso", "flows": flows, "where": "sender", "setting": "on", "packets_per_log": 1, "in_force_s": 0.1}
    ones = dict.fromkeys(("off_bps", "seconds", "off_seconds", "cpu_s", "off_cpu_s", "logger_cpu_s"), 1.0)
    counts = dict.fromkeys(("skipped", "logged", "packets_in", "packets_out"), 0)
    return pl.DataFrame({"session": session, "bps": left}).with_columns(
        *(pl.lit(value).alias(name) for name, value in (alike | ones | counts).items())
    )


@pytest.mark.parametrize("flows", [(1,), (1, 10)])
def test_sentence_and_budget_count_the_same_beds_as_the_row(flows: tuple[int, ...]) -> None:
    """A bed that was cut to one pair has no scatter of its own; it moved the sentence, and not the row."""
    tables = [pairs_of([4, 4, 4, 2, 1], one, SEED + one) for one in flows]
    cells = cells_of(cast("Any", SimpleNamespace(pairs=pl.concat(tables))))
    assert {cell.sessions for cell in cells} == {4}
    row = judged.combined([judged.alone(cell) for cell in cells])
    assert row is not None
    assert row.low is not None
    assert 0.92 < row.low < row.estimate < 0.98
    if len(cells) == 1:
        assert row == cells[0].ratio
    assert "over 4 beds" in judged.sentence(cells, [])
    stated = _throughput(cells, "gso", _link([]))
    assert (stated.row.sessions, stated.row.value) == (4, row)
    assert stated.budget is not None
    assert stated.budget.effective_degrees == pytest.approx(3)


@pytest.mark.parametrize(("other", "differ"), [(0.8, True), (0.96, False)])
def test_different_costs_per_number_of_flows_are_a_range_not_a_mean(other: float, differ: bool) -> None:
    tables = [pairs_of([4, 4, 4, 4], one, SEED + one) for one in (1, 100)]
    first, second = cells_of(cast("Any", SimpleNamespace(pairs=pl.concat(tables))))
    first, second = (
        replace(cell, ratio=Interval(left, left - 0.02, left + 0.02, 0.95, 16))
        for cell, left in ((first, 0.95), (second, other))
    )
    said = judged.sentence([first, second], [])
    assert ("averaged over all numbers of flows" in said) is not differ, said
    assert ("with 100 flows to " in said and "with 1 flow of that" in said) is differ, said


def test_combined_estimate_weights_beds_by_size() -> None:
    """Two cells alike have the mean that each has by itself."""
    one = cells_of(cast("Any", SimpleNamespace(pairs=pairs_of([6, 6, 2, 2], 1, SEED))))[0]
    both = judged.combined([judged.alone(one), judged.alone(one)])
    assert both is not None
    assert both.estimate == pytest.approx(one.ratio.estimate, rel=2e-3)
