"""Traffic beside the flows of a load: what it was made of comes out by name, and no figure of the flows has it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.comparison import key_of
from sojourn.conduct.backgrounds import is_recorded
from sojourn.errors import RequestError
from sojourn.plan import load_plan
from sojourn.plan.backgrounds import read, sources_of
from sojourn.plan.effective import effective_toml
from sojourn.records.results import read_results
from sojourn.report import write_report
from sojourn.report.contents import all_figures, all_tables
from sojourn.report.run import Run
from tests.unit.in_process import sojourn
from tests.unit.made_up_tcp import write_table
from tests.unit.test_tcp_load import FEW, FRAME, MS, MSS, Truth, framed, made_up

if TYPE_CHECKING:
    from pathlib import Path

    from sojourn.records import RunFolder

S = 1000 * MS
WORDS = "udp 8Mbit/s + tcp 2 reno + web 3 x 50kB every 500ms down"
OWN = (*FEW, f"load.background={WORDS}", "load.direction=up")
PAYLOAD, UDP_FRAME = 1472, 1514


@dataclass(frozen=True)
class Beside:
    """What the background is made of."""

    packets: int = 660
    """Of UDP a second, from when the flows begin."""
    every: int = 200
    """One packet in so many is lost."""
    flow_bps: tuple[float, float] = (5e6, 2e6)
    """Of its long flows."""
    again: float = 0.03
    took_ms: float = 140.0
    """A transfer."""
    delay_ms: float = 15.0
    """A packet of UDP, one way; one in fifty takes three times as long."""
    one_clock: bool = True
    size: int = 50_000
    ends_early_s: float = 0.0
    achieved: float = 1.0
    truth: Truth = field(default_factory=lambda: Truth(rate_bps=80e6))

    @property
    def arrived(self) -> float:
        """Packets of UDP a second."""
        return self.packets * (1 - 1 / self.every)


def run_of(path: Path, of: Beside | None = None) -> RunFolder:
    """A whole run folder whose trials have a background."""
    of = of or Beside()
    folder = made_up(path, of.truth, sessions=3, sets=OWN)
    plan = load_plan(folder.plan)
    planned, lasts = len(plan.expand()), plan.load.start_up_ns + plan.load.duration_ns
    events = [json.loads(line) for line in folder.log.read_text().splitlines()]
    told = {one["block"]: one for one in events if one["event"] == "load-trial"}
    for file in sorted(folder.records.glob("tcp_readings-*.arrow")):
        blocks = pl.read_ipc_stream(file)["block"].unique().to_list()
        made = [of_trial(of, told[block], planned, lasts) for block in sorted(blocks)]
        for name in ("arrivals", "tcp_readings"):
            rows = [row for tables in made for row in tables[name]]
            write_table(folder.records / f"{name}-bg0-{file.name[-9:]}", name, framed(name, rows))
    folder.log.write_text("".join(json.dumps(one) + "\n" for one in events))
    return folder


def of_trial(of: Beside, entry: dict[str, Any], planned: int, lasts: int) -> dict[str, list[dict[str, Any]]]:
    """The records of a trial's background; what the log says of it goes into the trial's entry."""
    udp, tcp, web = (entry["block"] + turn * planned for turn in (1, 2, 3))
    begun = min(flow["started_ns"] for flow in entry["flows"])
    end = begun + lasts - round(of.ends_early_s * S)
    sent = of.packets * lasts // S
    lost = [seq for seq in range(sent) if seq % of.every == 0]
    arrivals = [
        {"block": udp, "flow": 1, "seq": seq, "sent_ns": (at := begun + seq * S // of.packets),
         "arrival_ns": at + round(of.delay_ms * MS) * (1 if seq % 50 else 3), "duplicate": False}
        for seq in range(sent) if seq % of.every
    ]  # fmt: skip
    readings: list[dict[str, Any]] = []
    long, short = [], []
    for number, bps in enumerate(of.flow_bps):
        long.append({"local": f"10.0.0.1:{7000 + number}", "started_ns": begun, "ended_ns": end + S, "moved_bytes": 1})
        for turn in range(lasts // (100 * MS) + 1):
            segments = bps / 8 * turn / 10 / MSS
            readings.append(reading(tcp, 7000 + number, begun + turn * 100 * MS, "time") | counted(of, segments))
    for number in range(3 * -(-lasts // (500 * MS))):
        at = begun + number // 3 * 500 * MS
        short.append({"local": f"10.0.0.2:{8000 + number}", "started_ns": at, "moved_bytes": of.size,
                      "ended_ns": at + round(of.took_ms * MS)})  # fmt: skip
        ends = (("begin", 0.0), ("end", of.size / MSS))
        readings += [reading(web, 8000 + number, at, why) | counted(of, segments) for why, segments in ends]
    pace = {"asked_pps": of.packets, "achieved_pps": of.achieved * of.packets, "refused": 0, "local_drops": 0,
            "one_clock": of.one_clock}  # fmt: skip
    entry["background"] = [
        {"name": "udp 8Mbit/s", "kind": "udp", "direction": "up", "block": udp, "started_ns": begun,
         "ended_ns": begun + lasts, "sent": sent, "received": sent - len(lost), "lost": len(lost),
         "frame_bytes": UDP_FRAME, "payload_bytes": PAYLOAD} | pace,
        {"name": "tcp 2 reno", "kind": "tcp", "direction": "up", "block": tcp,
         "flows": [one | {"ended_ns": end} for one in long]},
        {"name": "web 3 x 50kB every 500ms down", "kind": "web", "direction": "down", "block": web, "flows": short},
    ]  # fmt: skip
    return {"arrivals": arrivals, "tcp_readings": readings}


def reading(block: int, port: int, at: int, why: str) -> dict[str, Any]:
    address = "10.0.0.2" if port >= 8000 else "10.0.0.1"
    return {"block": block, "connection": port % 1000, "role": "send", "why": why, "number": 0, "socket_cookie": "1",
            "local_address": address, "local_port": port, "remote_address": "x", "remote_port": 1, "intended_ns": at,
            "read_before_ns": at, "read_after_ns": at, "info_bytes": 280, "options": 7, "mss_bytes": MSS}  # fmt: skip


def counted(of: Beside, segments: float) -> dict[str, Any]:
    return {"acked_bytes": round(segments * MSS), "delivered": round(segments),
            "data_segs_out": round(segments * (1 + of.again)), "total_retrans": round(segments * of.again)}  # fmt: skip


def found_in(folder: RunFolder) -> tuple[dict[tuple[str, str], dict[str, Any]], dict[str, Any]]:
    analyse(folder.path)
    rows = {(row["quantity"], row["statistic"]): row for row in json.loads(folder.results.read_text())}
    return rows, json.loads(folder.verdict.read_text())


def test_background_traffic_is_reported_separately_from_the_flows(tmp_path: Path) -> None:
    """Each figure within 2 % of its truth: one that is 10 % wrong fails."""
    of = Beside()
    rows, verdict = found_in(run_of(tmp_path / "run", of))
    assert (verdict["verdict"], verdict["findings"]) == ("trusted", [])
    udp, tcp, web = "up udp 8Mbit/s", "up tcp 2 reno", "down web 3 x 50kB every 500ms down"
    expected = {
        ("background_goodput", udp): 8 * PAYLOAD * of.arrived,
        ("background_utilisation", udp): 8 * UDP_FRAME * of.arrived / 80e6,
        ("background_lost", udp): 1 / of.every,
        ("background_goodput", tcp): 7e6,
        ("background_utilisation", tcp): 7e6 * FRAME / MSS / 80e6,
        ("background_retransmitted", tcp): 0.03 / 1.03,
        ("background_goodput", web): 8 * 3 * 50_000 * 2,
        ("background_utilisation", web): 8 * 3 * 50_000 * 2 * FRAME / MSS / 80e6,
        ("background_completion", f"{web} mean"): of.took_ms * MS,
        ("background_delay", f"{udp} p50"): of.delay_ms * MS,
        ("background_delay", f"{udp} p90"): of.delay_ms * MS,
        ("background_delay", f"{udp} p99"): 3 * of.delay_ms * MS,
    }
    for key, value in expected.items():
        assert rows[key]["estimate"] == pytest.approx(value, rel=0.02), key
        assert (rows[key]["sessions"], rows[key]["background"]) == (3, WORDS)
    assert rows["background_goodput", udp]["unit"] == "bit/s"
    # The flows are what they are without a background.
    alone, _ = found_in(made_up(tmp_path / "alone", of.truth, sessions=3, sets=[*FEW, "load.direction=up"]))
    for quantity in ("goodput", "utilisation", "retransmitted", "fairness", "timeouts"):
        assert rows[quantity, "up"]["estimate"] == alone[quantity, "up"]["estimate"], quantity
    assert rows["goodput", "up"]["estimate"] == pytest.approx(47e6, rel=1e-3)
    assert alone["goodput", "up"]["background"] is None
    assert "beside udp 8Mbit/s + tcp 2 reno" in verdict["sentence"]


@pytest.mark.parametrize("wrong", [Beside(packets=726), Beside(flow_bps=(5.5e6, 2.2e6)), Beside(size=55_000)])
def test_background_rate_10_percent_higher_is_detected(tmp_path: Path, wrong: Beside) -> None:
    plain, _ = found_in(run_of(tmp_path / "run"))
    more, _ = found_in(run_of(tmp_path / "more", wrong))
    keys = [key for key in plain if key[0] == "background_goodput"]
    grown = [more[key]["estimate"] / plain[key]["estimate"] for key in keys]
    assert sorted(grown) == pytest.approx([1, 1, 1.1], rel=0.01)
    assert more["goodput", "up"]["estimate"] == plain["goodput", "up"]["estimate"]


def test_background_delay_10_percent_longer_is_detected_with_one_clock_only(tmp_path: Path) -> None:
    key = ("background_delay", "up udp 8Mbit/s p50")
    longer, _ = found_in(run_of(tmp_path / "longer", Beside(delay_ms=16.5)))
    assert longer[key]["estimate"] == pytest.approx(16.5 * MS, rel=1e-3)
    apart, _ = found_in(run_of(tmp_path / "apart", Beside(one_clock=False)))
    assert "background_delay" not in {quantity for quantity, _ in apart}
    assert ("background_goodput", "up udp 8Mbit/s") in apart


def test_utilisation_counts_flows_and_background(tmp_path: Path) -> None:
    """47 of 66 Mbit/s are no full path; with 15 beside them they are. And no link carries more than its rate."""
    _, filled = found_in(run_of(tmp_path / "filled", Beside(truth=Truth(rate_bps=66e6))))
    assert "path_not_filled" not in json.dumps(filled["findings"])
    truth = Truth(rate_bps=66e6)
    _, alone = found_in(made_up(tmp_path / "alone", truth, sessions=3, sets=[*FEW, "load.direction=up"]))
    assert "path_not_filled" in json.dumps(alone["findings"])
    _, beyond = found_in(run_of(tmp_path / "beyond", Beside(truth=Truth(rate_bps=60e6))))
    assert "impossible" in json.dumps(beyond["findings"])


@pytest.mark.parametrize(
    ("of", "name", "said"),
    [
        (Beside(every=10), "not_conserved", "neither received nor among the emulator's losses"),
        (Beside(achieved=0.9), "tester_limited", "the background was 10 % less than what was asked for"),
        (Beside(ends_early_s=1.5), "tester_limited", "the background was 25 % less than what was asked for"),
    ],
)
def test_wrong_background_rate_is_reported(tmp_path: Path, of: Beside, name: str, said: str) -> None:
    _, verdict = found_in(run_of(tmp_path / "run", of))
    found = {one["name"]: one["sentence"] for one in verdict["findings"]}
    assert said in found[name]


def test_report_has_a_table_of_the_background(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run")
    analyse(folder.path)
    write_report(folder.path)
    run = Run.read(folder.path)
    tables = {table.name: table for table in all_tables(run)}
    own = tables["background"]
    titles = [column.title for column in own.columns]
    assert "Background" in titles
    assert "Scenario" not in titles
    part, goodput = titles.index("Part of it"), titles.index("Goodput")
    assert {"A transfer takes", "A packet takes, median"} <= set(titles)
    assert [row[part].text for row in own.rows] == ["web 3 x 50kB every 500ms down", "udp 8Mbit/s", "tcp 2 reno"]
    assert [row[goodput].values[0] for row in own.rows] == pytest.approx([2.4, 7.73, 7.0], rel=0.01)
    assert any("beside udp 8Mbit/s" in panel.title for figure in all_figures(run) for panel in figure.panels)
    alone = made_up(tmp_path / "alone", Truth(), sessions=3, sets=FEW)
    analyse(alone.path)
    plain = {table.name: table for table in all_tables(Run.read(alone.path))}
    assert "background" not in plain
    assert "Background" not in [column.title for column in plain["flows"].columns]
    rows = read_results(folder.results)
    assert len({key_of(row) for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("none", "none"),
        ("udp 10Mbit/s", "udp 10Mbit/s"),
        ("udp  2.5Mbit/s burst 20 both+tcp 4", "udp 2.5Mbit/s burst 20 both + tcp 4"),
        ("tcp 4 reno up", "tcp 4 reno up"),
        ("web 10 x 100kB every 1s", "web 10 x 100kB every 1s"),
        ("udp 1Mbit/s down + udp 1Mbit/s up", "udp 1Mbit/s down + udp 1Mbit/s up"),
        ("udp 1Mbit/s + udp 1Mbit/s up", None),
        ("stream 100pps", "stream 100pps"),
        ("stream  1kpps EF both", "stream 1kpps EF both"),
        ("stream 50pps CS1 down + stream 50pps EF down", "stream 50pps CS1 down + stream 50pps EF down"),
        ("stream 100pps down + stream 100pps both", None),
        ("stream 100pps BE + stream 100pps", None),
        ("stream 100pps 46 up", "stream 100pps EF up"),
        ("stream 100pps XX", None),
        ("stream 1Mbit/s", None),
        ("stream 0pps", None),
        ("udp 10pps", None),
        ("udp 0Mbit/s", None),
        ("tcp 0", None),
        ("tcp 1001", None),
        ("web 10 x 100kB", None),
        ("web 1 x 1B every 1us", None),
        ("udp 1Mbit/s + ", None),
        ("none + tcp 1", None),
        ("tcp 1 + tcp 2 + tcp 3 + tcp 4 + tcp 5", None),
        (7, None),
    ],
)
def test_background_syntax_is_parsed(words: Any, kept: str | None) -> None:
    assert read(words) == kept


def test_background_amounts_are_computed() -> None:
    udp, tcp, web, stream = sources_of("udp 12.112Mbit/s + tcp 4 + web 10 x 100kB every 300ms + stream 200pps EF") or ()
    assert (stream.rate_pps(1500), stream.amount(2 * S, 1500), stream.dscp) == (200.0, 400, 46)
    assert (stream.payload_bytes(1500), stream.frame_bytes(1500), udp.frame_bytes(1500)) == (46, 88, 1514)
    assert (udp.rate_pps(1500), udp.amount(2 * S, 1500)) == (1000.0, 2000)
    assert (tcp.amount(2 * S, 1500), web.amount(S, 1500)) == (4, 40)
    assert (udp.ways("both"), tcp.ways("down")) == (("up", "down"), ("down",))


def test_scenarios_are_cells_of_the_study_of_queues() -> None:
    plan = load_plan("aqm")
    factors = {(of.scenario, of.flows, of.congestion, of.background) for of in (one.factors for one in plan.expand())}
    assert ("unresponsive 5.3", 4, "reno", "udp 24Mbit/s") in factors
    assert ("mild 8.2", 1, "reno", "") in factors
    assert len(factors) == len(plan.load.scenario) == 8
    assert len({one.cell for one in plan.expand()}) == 8 * len(plan.load.pipe)
    assert "scenario = []" in effective_toml(load_plan("aqm", quick=True))


@pytest.mark.parametrize(
    ("study", "sets", "said"),
    [
        ("bufferbloat", ["load.background=udp 10"], "load.background"),
        ("bufferbloat", ["load.background=udp 10Gbit/s"], "at most 1000000 packets"),
        ("bufferbloat", ["load.background=web 200 x 1kB every 1s"], "at most 1000 transfers"),
        ("bufferbloat", ["load.scenario=a: 1 reno,a: 2 reno"], "names that differ"),
        ("bufferbloat", ["load.scenario=a: 1 reno beside udp"], "load.scenario"),
        ("aqm", ["flows=2"], "a scenario has its own"),
    ],
)
def test_invalid_background_is_refused(study: str, sets: list[str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        load_plan(study, sets=sets)


def test_a_trial_whose_background_is_not_recorded_is_measured_again() -> None:
    trial = {"background": [{"kind": "udp", "block": 7, "direction": "up"},
                            {"kind": "tcp", "block": 8, "direction": "down", "flows": [1, 2]}]}  # fmt: skip
    assert is_recorded(trial, Counter({(8, "b", "send"): 2}), {7})
    assert not is_recorded(trial, Counter({(8, "b", "send"): 1}), {7})
    assert not is_recorded(trial, Counter({(8, "b", "send"): 2}), {8})
    assert is_recorded({}, Counter(), set())


def test_dry_run_shows_what_distinguishes_its_cells() -> None:
    """Three lines of 4 flows of Reno over one queue were alike."""
    said = sojourn("run", "aqm", "--dry-run").stdout
    assert "mild 8.2" in said
    assert "background" in said
    assert "scenario" not in sojourn("run", "bufferbloat", "--dry-run").stdout
