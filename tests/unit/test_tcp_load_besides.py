"""Probes of several kinds at once, each with a DSCP, and flows with DSCPs: what they are made of comes out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.comparison import key_of
from sojourn.errors import RequestError
from sojourn.methods.tcp_load.measure import whole_trials
from sojourn.methods.tcp_load.show import keys
from sojourn.methods.tcp_load.show.beside import compared
from sojourn.plan import load_plan
from sojourn.plan.besides import beside_of, trial_of
from sojourn.plan.dscp import code_of, name_of
from sojourn.plan.effective import effective_toml
from sojourn.records.results import read_results
from sojourn.records.so_far import SoFar
from sojourn.report import write_report
from sojourn.report.contents import all_figures, all_tables
from sojourn.report.run import Run
from tests.unit.made_up_tcp import write_table
from tests.unit.test_tcp_load import FEW, MS, Truth, made_up

if TYPE_CHECKING:
    from pathlib import Path

    from sojourn.plan import Plan
    from sojourn.records import RunFolder

OWN = ("load.beside=udp/ping-pong BE,udp/ping-pong EF", "load.dscp=CS1,EF", "load.direction=both", "load.rounds=9")
LONGER_MS = {"udp/ping-pong BE": 1.0, "udp/ping-pong EF": -30.0}
"""What round trips of further probes take beyond those of the main ones while flows work."""


def with_besides(folder: RunFolder, plan: Plan) -> None:
    """Give every trial of a made-up run its further probes, which share its main ones' chance, and its flows marks."""
    trials = plan.expand()
    planned = len(trials), 1 + max(trial.cell for trial in trials)
    of = {trial.block: trial for trial in trials}
    events = [json.loads(line) for line in folder.log.read_text().splitlines()]
    begun: dict[int, int] = {}
    for entry in (one for one in events if one["event"] == "load-trial"):
        begun[entry["block"]] = min(flow["started_ns"] for flow in entry["flows"])
        entry["probes"] = []
        for turn, words in enumerate(plan.load.beside, start=1):
            own = beside_of(words)
            assert own is not None
            block = trial_of(of[entry["block"]], own, turn, planned, plan.bed.mtu)
            told = {"block": block.block, "cell": block.cell, "probe": own.probe, "dscp": name_of(own.dscp)}
            entry["probes"].append(told)
        for flow in entry["flows"]:
            flow["dscp"] = ("CS1", "EF")[int(flow["local"].rpartition(":")[2]) - 4000]
    folder.log.write_text("".join(json.dumps(one) + "\n" for one in events))
    start = pl.col("block").replace_strict(begun, return_dtype=pl.Int64)
    for turn, words in enumerate(plan.load.beside, start=1):
        longer = pl.when(pl.col("departure_ns") >= start).then(round(LONGER_MS[words] * MS)).otherwise(0)
        for path in sorted(folder.records.glob("probes-0*.arrow")):
            probes = pl.read_ipc_stream(path)
            probes = probes.with_columns(arrival_ns=pl.col("arrival_ns") + longer)
            write_table(path.with_name(f"probes-beside{turn}-{path.name[-9:]}"), "probes", moved(probes, turn, planned))
            blocks = pl.read_ipc_stream(path.with_name(path.name.replace("probes", "blocks")))
            blocks = moved(blocks, turn, planned).with_columns(
                cell=(pl.col("cell") + turn * planned[1]).cast(pl.Int32), via=pl.lit("udp"), kind=pl.lit("ping-pong")
            )
            write_table(path.with_name(f"blocks-beside{turn}-{path.name[-9:]}"), "blocks", blocks)


def moved(rows: pl.DataFrame, turn: int, planned: tuple[int, int]) -> pl.DataFrame:
    return rows.with_columns((pl.col("block") + turn * planned[0]).cast(pl.Int32))


def run_of(path: Path, **truth: Any) -> tuple[RunFolder, Plan]:
    sets = [*FEW, *OWN]
    folder = made_up(path, Truth(**truth), sessions=3, sets=sets)
    plan = load_plan(folder.plan)
    with_besides(folder, plan)
    return folder, plan


def test_each_kind_of_probe_has_its_own_rows(tmp_path: Path) -> None:
    folder, plan = run_of(tmp_path / "run")
    analyse(folder.path)
    verdict = json.loads(folder.verdict.read_text())
    assert (verdict["verdict"], verdict["findings"]) == ("trusted", [])
    rows = json.loads(folder.results.read_text())
    found = {(row["quantity"], row["statistic"], row["probe"], row.get("dscp")): row for row in rows}
    main = found["rtt_increase", "mean", "icmp", None]
    assert main["ci_low"] <= 43 * MS <= main["ci_high"]
    for words, longer in LONGER_MS.items():
        probe, _, mark = words.partition(" ")
        own = found["rtt_increase", "mean", probe, mark]
        assert own["estimate"] == pytest.approx(main["estimate"] + longer * MS, abs=1)
        assert (own["n"], own["sessions"], own["cell"] > main["cell"]) == (9, 3, True)
        idle = found["rtt_idle", "mean", probe, mark]["estimate"]
        assert idle == pytest.approx(found["rtt_idle", "mean", "icmp", None]["estimate"], abs=1)
        assert ("rtt_working", "p50", probe, mark) in found
        assert ("goodput", "up", probe, mark) not in found
    # The grade is of the main probes alone.
    heads = [row for row in rows if row["quantity"] == "latency_under_load"]
    assert {row["probe"] for row in heads} == {"icmp"}
    for way in ("down", "up"):  # 30 and 17 Mbit/s, by the flows' ports
        assert found["goodput_by_dscp", f"{way} CS1", "icmp", None]["estimate"] == pytest.approx(30e6, rel=1e-3)
        assert found["goodput_by_dscp", f"{way} EF", "icmp", None]["estimate"] == pytest.approx(17e6, rel=1e-3)
        spread = [found["goodput_of_flow", f"{way} {name}", "icmp", None] for name in ("least", "median", "most")]
        for row, truth in zip(spread, (17e6, 23.5e6, 30e6), strict=True):
            assert row["estimate"] == pytest.approx(truth, rel=1e-3)
            assert (row["n"], row["sessions"]) == (9, 3)
    assert len(plan.load.beside) == 2


def test_report_distinguishes_the_probes(tmp_path: Path) -> None:
    folder, _ = run_of(tmp_path / "run")
    analyse(folder.path)
    write_report(folder.path)
    run = Run.read(folder.path)
    tables = {table.name: table for table in all_tables(run)}
    said = [row[5].text for row in tables["round_trips"].rows]
    assert list(dict.fromkeys(said)) == ["icmp", "udp/ping-pong, BE", "udp/ping-pong, EF"]
    assert len(tables["flows"].rows) == 2
    assert [[entry.text for entry in row[5:8]] for row in tables["marked"].rows] == [
        ["down", "CS1", "30"], ["down", "EF", "17"], ["up", "CS1", "30"], ["up", "EF", "17"]]  # fmt: skip
    figures = {figure.name: figure for figure in all_figures(run)}
    titles = [panel.title for panel in figures["load_timeline"].panels]
    assert any("udp/ping-pong, EF" in title for title in titles)
    assert [key.what for key in keys(run)] == ["Latency under load", "Goodput down", "Goodput up"]


def test_run_compared_with_itself_shows_no_difference(tmp_path: Path) -> None:
    """Series of one kind with several DSCPs are different figures."""
    folder, _ = run_of(tmp_path / "run")
    analyse(folder.path)
    rows = read_results(folder.results)
    assert len({key_of(row) for row in rows}) == len(rows)


def test_missing_additional_probe_series_is_reported(tmp_path: Path) -> None:
    folder, _ = run_of(tmp_path / "run")
    for kind in ("probes", "blocks"):
        (folder.records / f"{kind}-beside2-001.arrow").unlink()
    analyse(folder.path)
    verdict = json.loads(folder.verdict.read_text())
    assert verdict["verdict"] != "trusted"
    assert "incomplete" in json.dumps(verdict)


def test_a_trial_with_further_probes_counts_once() -> None:
    so_far = SoFar()
    so_far.take({"event": "started", "blocks": 2})
    for number in range(2):
        so_far.take({"event": "block", "block": number, "device": "emulate", "sent": 10})
        so_far.take({"event": "beside-block", "block": 2 + number, "device": "emulate", "sent": 10})
        so_far.take({"event": "load-trial", "block": number, "device": "emulate"})
    assert (len(so_far.done), so_far.paths["emulate"].sent) == (2, 20)


def test_a_trial_without_a_further_series_is_measured_again(tmp_path: Path) -> None:
    folder, plan = run_of(tmp_path / "run")
    (tmp_path / "run/records/probes-beside2-001.arrow").unlink()
    for path in folder.records.glob("tcp_readings-*.arrow"):
        rows = pl.read_ipc_stream(path)
        for host, others in (("a", "b"), ("b", "a")):
            sends = rows.filter(pl.col("local_address") == ("10.0.0.1" if host == "a" else "10.0.0.2"))
            write_table(path.with_name(f"tcp_readings-{host}-{path.name[-9:]}"), "tcp_readings", sends)
            received = sends.with_columns(role=pl.lit("receive"))
            write_table(path.with_name(f"tcp_readings-{others}9-{path.name[-9:]}"), "tcp_readings", received)
        path.unlink()
    whole = whole_trials(folder, plan)
    assert {trial.batch * 3 // 9 for trial in plan.expand() if trial.block in whole} == {0, 2}


def test_each_dscp_stands_beside_flents(tmp_path: Path) -> None:
    folder, _ = run_of(tmp_path / "run")
    analyse(folder.path)
    rows = {(row["quantity"], row["statistic"], row.get("dscp")): row for row in read_results(folder.results)}
    found = {(one.of.partition(": ")[2], one.statistic): one for one in compared(Run.read(folder.path))}
    assert {words for words, _ in found} == {
        *(f"{way}, {which}" for way in ("down", "up") for which in ("all flows", "flows of CS1", "flows of EF")),
        *(
            f"{probe}, {state}"
            for probe in ("icmp", "udp/ping-pong, BE", "udp/ping-pong, EF")
            for state in ("idle path", "working conditions")
        ),
    }
    for way in ("down", "up"):
        for mark, truth in (("CS1", 30e6), ("EF", 17e6)):
            assert found[f"{way}, flows of {mark}", "mean"].row["estimate"] == pytest.approx(truth, rel=1e-3)
        assert found[f"{way}, all flows", "mean"].row["estimate"] == pytest.approx(47e6, rel=1e-3)
    for mark in ("BE", "EF"):
        own = found[f"udp/ping-pong, {mark}, working conditions", "p50"]
        assert (own.kind, own.row) == ("round-trip time", rows["rtt_working", "p50", mark])


def test_dscp_names_are_parsed() -> None:
    names = ("BE", "LE", "CS1", "AF11", "AF42", "CS5", "EF", "63")
    assert [code_of(name) for name in names] == [0, 1, 8, 10, 36, 40, 46, 63]
    assert [name_of(code) for code in (0, 1, 8, 10, 36, 40, 46, 63)] == list(names)
    assert [code_of(word) for word in ("CS0", "64", "ef", "AF44", "-1", "")] == [0, None, None, None, None, None]


def test_rrul_is_marked_as_flent_does() -> None:
    plan = load_plan("rrul")
    assert plan.load.dscp == (0, 8, 40, 46)
    assert plan.load.beside == ("udp/ping-pong BE", "udp/ping-pong CS1", "udp/ping-pong EF")
    assert 'dscp = ["BE", "CS1", "CS5", "EF"]' in effective_toml(plan)
    assert beside_of("icmp") == beside_of("icmp CS0") == beside_of("icmp BE")


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ("load.beside=tcp EF", "load.beside"),
        ("load.beside=icmp XX", "load.beside"),
        ("load.dscp=EF,64", "load.dscp"),
        ("load.beside=raw/ping-pong EF", "load.beside"),
    ],
)
def test_invalid_probes_and_dscps_are_refused(sets: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        load_plan("bufferbloat", sets=[sets])


def test_additional_udp_probes_need_room_for_their_header() -> None:
    with pytest.raises(RequestError, match="32 bytes of user data, as the other probes have: udp/ping-pong has 40 to"):
        load_plan("bufferbloat", sets=["probe.icmp_bytes=40", "load.beside=udp/ping-pong EF"])
