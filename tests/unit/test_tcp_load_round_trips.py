"""Flows with round trips of their own: what each group was made to get comes out of the analysis, within intervals."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.comparison import key_of
from sojourn.methods.tcp_load.analyse.round_trips import groups_of, power_of
from sojourn.plan import load_plan
from sojourn.records.results import read_results
from sojourn.report import write_report
from sojourn.report.contents import all_figures, all_tables
from sojourn.report.run import Run
from tests.unit.in_process import sojourn
from tests.unit.made_up_tcp import write_table
from tests.unit.test_tcp_load import FEW, MS, MSS, Truth, made_up

if TYPE_CHECKING:
    from pathlib import Path

    from sojourn.records import RunFolder

HYPOTHESIS = "reno-share-by-rtt"


@dataclass(frozen=True)
class Mixed:
    """What flows of two round trips get, and what their TCP measures."""

    mix: str = "20ms+100ms"
    flows: int = 4
    power: float = 1.3
    """k, where goodput goes as R^-k with the planned round trip."""
    queue_ms: float = 30.0
    """By how much the smoothed round trips are longer."""
    differs: float = 0.03
    """By how much k differs from trial to trial; from bed to bed by half of it."""
    apart: tuple[float, float] = (1.0, 1.0)
    """How many times the planned round trip the least measured one is, of the first and of the second group."""
    again: tuple[float, float] = (0.01, 0.03)
    starved: bool = False
    """Whether the second group gets nothing in one trial."""
    seed: int = 1

    @property
    def planned_ms(self) -> list[float]:
        """Of each group."""
        return [float(one.removesuffix("ms")) for one in self.mix.split("+")]

    @property
    def working_power(self) -> float:
        """k of the round trips under load: of two groups a slope is a quotient."""
        short, long = self.planned_ms
        return self.power * math.log(long / short) / math.log((long + self.queue_ms) / (short + self.queue_ms))

    def rates(self, power: float) -> list[float]:
        """Goodputs of a flow of each group that add up to 40 Mbit/s."""
        each = [own**-power for own in self.planned_ms]
        return [40e6 * own / (sum(each) * self.flows / len(each)) for own in each]


def run_of(path: Path, of: Mixed | None = None, sets: tuple[str, ...] = ()) -> RunFolder:
    """A whole run folder."""
    of = of or Mixed()
    more = (f"load.round_trips={of.mix}", "load.direction=up", "load.congestion=reno", "load.rounds=12")
    truth = Truth(goodput_bps=(10e6,) * of.flows)
    folder = made_up(path, truth, sets=[*FEW, *more, "load.logged=0", *sets])
    rng = np.random.default_rng(of.seed)
    beds = rng.normal(0, of.differs / 2, 6)
    events = [json.loads(line) for line in folder.log.read_text().splitlines()]
    told = {one["block"]: one for one in events if one["event"] == "load-trial"}
    for block, entry in told.items():
        for flow in entry["flows"]:
            flow["connection"] = int(flow["local"].rpartition(":")[2]) - 4000
            flow["group"] = flow["connection"] % len(of.planned_ms)
            flow["round_trip_ns"] = int(of.planned_ms[flow["group"]] * MS)
        entry["power"] = of.power + rng.normal(0, of.differs) + beds[entry["round"] // 2]
        entry["starves"] = of.starved and block == 0
    for file in sorted(folder.records.glob("tcp_readings-*.arrow")):
        rows = pl.read_ipc_stream(file)
        own = [grouped(of, row, told[row["block"]]) for row in rows.select("block", "connection", "number").to_dicts()]
        made = pl.DataFrame(own, schema={name: rows.schema[name] for name in own[0]})
        write_table(file, "tcp_readings", rows.with_columns(made))
    folder.log.write_text("".join(json.dumps(one) + "\n" for one in events))
    plan = folder.plan.read_text()
    assert "hypotheses = []" in plan
    folder.plan.write_text(plan.replace("hypotheses = []", f'hypotheses = ["{HYPOTHESIS}"]', 1))
    return folder


def grouped(of: Mixed, row: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """What a reading of a flow of its group has."""
    group = row["connection"] % len(of.planned_ms)
    rate = of.rates(entry["power"])[group]
    if entry["starves"] and group == 1:
        rate = 0.0
    segments = row["number"] / 10 * rate / 8 / MSS
    planned = of.planned_ms[group] * 1000
    counted = {"acked_bytes": round(segments * MSS), "delivered": round(segments),
               "data_segs_out": round(segments * (1 + of.again[group])),
               "total_retrans": round(segments * of.again[group])}  # fmt: skip
    times = {"rtt_min_us": round(planned * of.apart[group] + 100 + 10 * row["number"] % 7),
             "srtt_us": round(planned + of.queue_ms * 1000)}  # fmt: skip
    return counted | times


def found_in(folder: RunFolder) -> tuple[dict[tuple[str, str], dict[str, Any]], dict[str, Any]]:
    analyse(folder.path)
    rows = {(row["quantity"], row["statistic"]): row for row in json.loads(folder.results.read_text())}
    return rows, json.loads(folder.verdict.read_text())


@pytest.mark.parametrize("seed", range(3))
def test_intervals_of_shares_goodputs_and_exponents_contain_the_truth(tmp_path: Path, seed: int) -> None:
    """Widths are such that a share or a power that is 10 % wrong lies outside."""
    of = Mixed(seed=seed)
    rows, verdict = found_in(run_of(tmp_path / "run", of))
    assert (verdict["verdict"], verdict["findings"]) == ("trusted", [])
    short, long = of.rates(of.power)
    expected = {
        ("share_by_rtt", "up 20ms"): short / (short + long),
        ("share_by_rtt", "up 100ms"): long / (short + long),
        ("goodput_by_rtt", "up 20ms"): short,
        ("goodput_by_rtt", "up 100ms"): long,
        ("rtt_exponent", "up planned"): of.power,
        ("rtt_exponent", "up working"): of.working_power,
    }
    for key, value in expected.items():
        row = rows[key]
        assert row["ci_low"] <= value <= row["ci_high"], (key, value, row)
        assert row["ci_high"] - row["ci_low"] < 0.18 * value, key
        assert (row["sessions"], row["round_trips"], row["n"]) == (6, of.mix, 12)
    assert rows["goodput_by_rtt", "up 20ms"]["unit"] == "bit/s"
    for group, (name, ms) in enumerate((("20ms", 20), ("100ms", 100))):
        assert rows["tcp_rtt", f"up {name} minimum"]["estimate"] == pytest.approx(ms * MS + 0.1 * MS, rel=1e-6)
        assert rows["tcp_rtt", f"up {name} working"]["estimate"] == pytest.approx((ms + 30) * MS, rel=1e-6)
        assert rows["fairness_by_rtt", f"up {name}"]["estimate"] == pytest.approx(1.0, abs=1e-6)
        expected_again = of.again[group] / (1 + of.again[group])
        assert rows["retransmitted_by_rtt", f"up {name}"]["estimate"] == pytest.approx(expected_again, rel=0.02)
    total = sum(rows["share_by_rtt", f"up {name}"]["estimate"] for name in ("20ms", "100ms"))
    assert total == pytest.approx(1)
    # All flows together: two groups of two flows, each with its share.
    assert rows["fairness", "up"]["estimate"] < 0.75
    assert rows["goodput", "up"]["estimate"] == pytest.approx(40e6, rel=1e-3)
    headline = rows["share_by_rtt", "up 100ms"]["estimate"]
    assert "Of 4 reno flows up with round trips of 20ms and 100ms over the emulator, " in verdict["sentence"]
    assert f"those with 100ms get {100 * headline:.2f} % (95 % CI " in verdict["sentence"]
    power = rows["rtt_exponent", "up working"]["estimate"]
    assert f"over 6 beds) of the goodput, which goes as R^\u2212{power:.2f} with the round" in verdict["sentence"]


def test_different_rtt_exponent_is_detected(tmp_path: Path) -> None:
    rows, _ = found_in(run_of(tmp_path / "run", Mixed(power=1.43)))
    row = rows["rtt_exponent", "up planned"]
    assert not row["ci_low"] <= 1.3 <= row["ci_high"]


def test_exponent_of_several_groups_is_a_fit() -> None:
    times = [10.0, 50.0, 250.0]
    assert power_of(times, [time**-1.5 for time in times]) == pytest.approx(1.5)
    assert power_of(times, [8.0, 8.0, 8.0]) == pytest.approx(0.0)
    assert power_of(times, [1.0, 0.0, 1.0]) is None
    assert power_of([7.0, 7.0], [1.0, 2.0]) is None
    assert power_of([1.0, math.nan], [1.0, 2.0]) is None


def test_no_exponent_is_reported_if_one_group_is_starved(tmp_path: Path) -> None:
    """A power of the other trials alone would be too small."""
    rows, verdict = found_in(run_of(tmp_path / "run", Mixed(starved=True)))
    assert not [key for key in rows if key[0] == "rtt_exponent"]
    assert rows["share_by_rtt", "up 100ms"]["n"] == 12
    assert "R^" not in verdict["sentence"]
    [outcome] = verdict["hypotheses"]
    assert (outcome["outcome"], "not tested" in outcome["sentence"]) == ("inconclusive", True)


def test_groups_with_equal_rtts_are_separate_and_have_no_exponent(tmp_path: Path) -> None:
    rows, verdict = found_in(run_of(tmp_path / "run", Mixed(mix="100ms+100ms")))
    shares = {key[1]: row["estimate"] for key, row in rows.items() if key[0] == "share_by_rtt"}
    assert shares == {"up 100ms no. 1": pytest.approx(0.5), "up 100ms no. 2": pytest.approx(0.5)}
    assert not [key for key in rows if key[0] == "rtt_exponent"]
    assert "those with" not in verdict["sentence"]


@pytest.mark.parametrize(
    ("apart", "said"),
    [
        ((1.0, 0.85), "flows up that were to have 100ms is 85.1 ms"),
        ((1.0, 1.2), "flows up that were to have 100ms is 120.1 ms"),
        ((1.2, 1.3), "flows up that were to have 100ms is 130.1 ms"),
        ((1.03, 1.05), ""),
    ],
)
def test_unplanned_rtt_is_a_finding(tmp_path: Path, apart: tuple[float, float], said: str) -> None:
    _, verdict = found_in(run_of(tmp_path / "run", Mixed(apart=apart)))
    found = {one["name"]: one for one in verdict["findings"]}
    assert set(found) == ({"round_trip_differs"} if said else set())
    if said:
        assert said in found["round_trip_differs"]["sentence"]
        assert verdict["verdict"] == "doubtful"


def test_the_hypothesis_is_about_round_trips_under_load(tmp_path: Path) -> None:
    """Goodput falls with the planned round trips to the power of 0.8, with those under load to that of 1.4."""
    _, verdict = found_in(run_of(tmp_path / "short", Mixed(power=0.8)))
    [found] = verdict["hypotheses"]
    assert "not tested" in found["sentence"], "3 s are 23 round trips of 130 ms"
    _, verdict = found_in(run_of(tmp_path / "run", Mixed(power=0.8), sets=("load.duration=6s",)))
    [found] = verdict["hypotheses"]
    assert (found["hypothesis"], found["outcome"], found["unit"]) == (HYPOTHESIS, "supported", "1")
    assert found["ci_low"] <= Mixed(power=0.8).working_power <= found["ci_high"]
    assert f"goes as R^\u2212{found['estimate']:.2f}" in found["sentence"]


def test_report_has_table_figure_and_cards_of_rtt_groups(tmp_path: Path) -> None:
    pipes = "load.pipe=rate 50Mbit/s delay 10ms queue 200,rate 50Mbit/s delay 10ms queue 200 codel"
    folder = run_of(tmp_path / "run", sets=(pipes,))
    _, verdict = found_in(folder)
    assert "those with 100ms get this share of the goodput, which goes as this power of" in verdict["sentence"]
    assert verdict["sentence"].count("over 6 beds), R^\u2212") == 2
    assert ", with tail drop; " in verdict["sentence"]
    assert ", with codel. " in verdict["sentence"]
    page = write_report(folder.path, vector=True).read_text()
    assert "Share of 100ms, codel" in page
    run = Run.read(folder.path)
    tables = {table.name: table for table in all_tables(run)}
    own = tables["by_round_trip"]
    titles = [column.title for column in own.columns]
    assert [row[titles.index("Planned")].text for row in own.rows] == ["20ms", "100ms"] * 2
    least = [row[titles.index("Least")].values[0] for row in own.rows]
    assert least == pytest.approx([20.1, 100.1] * 2)
    power = [row[titles.index("k, planned")].values[0] for row in own.rows]
    assert power == pytest.approx([1.3] * 4, abs=0.15)
    assert {row[titles.index("Round trips")].text for row in tables["flows"].rows} == {"20ms+100ms"}
    [chart] = [figure for figure in all_figures(run) if figure.name == "load_round_trips"]
    [panel] = chart.panels
    assert "4 × reno, 20ms+100ms up" in panel.title
    rows = read_results(folder.results)
    assert len({key_of(row) for row in rows}) == len(rows)
    alone = made_up(tmp_path / "alone", Truth(), sessions=3, sets=FEW)
    analyse(alone.path)
    plain = {table.name: table for table in all_tables(Run.read(alone.path))}
    assert "by_round_trip" not in plain
    assert "Round trips" not in [column.title for column in plain["flows"].columns]


def test_each_algorithm_on_a_path_has_its_own_groups() -> None:
    flows = [{"direction": "up", "turn": turn, "group": number % 2, "local": f"{turn}:{number}"}
             for turn in (0, 1) for number in range(4)]  # fmt: skip
    found = groups_of({"flows": flows, "factors": {"round_trips": "20ms+80ms"}}, "up")
    assert [one.name for one in found] == ["first 20ms", "first 80ms", "second 20ms", "second 80ms"]
    assert [one.planned_ns for one in found] == [20 * MS, 80 * MS] * 2
    assert found[2].local == {"1:0", "1:2"}
    assert not groups_of({"flows": flows, "factors": {"round_trips": "20ms+80ms"}}, "down")
    plain = [{"direction": "up", "local": "x"}]
    assert not groups_of({"flows": plain, "factors": {}}, "up")


def test_study_has_a_control_and_dry_run_names_the_rtts() -> None:
    plan = load_plan("rtt-fairness")
    factors = [one.factors for one in plan.expand()]
    assert {of.round_trips for of in factors} == {"100ms+100ms", "20ms+100ms", "100ms+300ms"}
    assert {of.congestion for of in factors} == {"reno", "cubic"}
    said = sojourn("run", "rtt-fairness", "--dry-run").stdout
    assert "round trips" in said
    assert "100ms+300ms" in said
