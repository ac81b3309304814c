"""Method "tcp-load": what a run was made of comes out of its analysis, within intervals, and what is wrong is found."""

from __future__ import annotations

import io
import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.rows import LoadSetting, Row
from sojourn.conduct import Screen
from sojourn.errors import RequestError
from sojourn.methods.tcp_load.analyse import grade_of, grade_said, sentence
from sojourn.methods.tcp_load.analyse.naming import short_names
from sojourn.methods.tcp_load.analyse.tcp_says import LIMITS
from sojourn.methods.tcp_load.analyse.trials import responsiveness
from sojourn.methods.tcp_load.measure import start_log_of_both, whole_trials
from sojourn.methods.tcp_load.show import keys
from sojourn.plan import load_plan
from sojourn.plan.effective import effective_toml
from sojourn.plan.load import plan_from_text
from sojourn.records import TABLES, RunFolder, read_table
from sojourn.records.earlier import plan_text
from sojourn.report import write_report
from sojourn.report.contents import all_figures, all_tables
from sojourn.report.run import Run
from sojourn.statistics.interval import Interval
from tests.unit.made_up_tcp import write_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sojourn.methods.tcp_load.ask import Loaded
    from sojourn.plan import Plan
    from sojourn.plan.trial import Trial

MS = 1_000_000
MSS, FRAME = 1448, 1514
ADDRESS = {"down": "10.0.0.2", "up": "10.0.0.1"}
"""Of who sends."""

KINDS = {"int32": pl.Int32, "int64": pl.Int64, "float64": pl.Float64, "bool": pl.Boolean}
FEW = ("load.rounds=6", "load.duration=3s", "load.idle=1s")


@dataclass(frozen=True)
class Truth:
    """What a made-up path does to round trips and flows."""

    idle_ms: float = 20.0
    bloat_ms: tuple[float, float] = (41.0, 43.0)
    """Down and up."""
    goodput_bps: tuple[float, ...] = (30e6, 17e6)
    """Of each flow."""
    rate_bps: float = 50e6
    again: float = 0.01
    unanswered: float = 0.0
    late_ns: float = 10_000.0
    stood_ns: float = 20_000.0
    """For how long the emulator stood still, at most."""
    beds_differ_ms: float = 1.0
    missing: int = 0
    vanished: int = 0
    """Packets that arrived at a pipe of the emulator and are in no other of its counters."""
    early: float = 1.0
    """How many times the bloat of the working conditions there is before these."""
    timeouts: int = 2
    """A second, of each flow."""
    needless: float = 0.004
    """Spurious retransmissions, of the segments that were new."""
    returned: float = 0.02
    """Marked segments, of those that were delivered."""
    limits: tuple[float, float, float, float, float] = (0.3, 0.2, 0.15, 0.1, 0.25)
    """Shares of the time: the congestion window, the receiver, the send buffer, the application, pacing."""
    standing_ms: tuple[float, float] = (9.0, 2.0)
    """Of the queues forward and backward in the working conditions; ten times as much before them."""
    longest_ms: float = 0.0
    """By how much the last probe of each trial takes longer."""
    few_answers: bool = False
    """Whether of the probes of the first trial under working conditions thirty are answered, and late."""
    unsent: float = 0.0
    """Of the probes of the first trial, the last."""
    random_loss: float = 0.0
    """The probability of a loss on the path."""
    fair_after_s: float | None = None
    """Where two algorithms share a path: when the flow that joins has as much as the first; before it has a tenth."""

    def more_of_the_pipe(self) -> dict[str, Any]:
        """What else the emulator was set to, where packets are lost at random."""
        if not self.random_loss:
            return {}
        return {
            "delay": {"constant": int(self.idle_ms * MS / 2)},
            "queue": {"limit": {"slots": 200}},
            "before": {"loss": [{"independent": {"probability": self.random_loss}}]},
        }


def made_up(path: Path, truth: Truth, sessions: int = 6, seed: int = 1, sets: Sequence[str] = ()) -> RunFolder:
    """A whole run folder."""
    several = any(one.startswith("load.congestion=") and "+" in one for one in sets)
    sets = [*sets, f"bed.sessions={sessions}", f"load.flows={1 if several else len(truth.goodput_bps)}"]
    plan = load_plan("bufferbloat", sets=sets)
    folder, rng = RunFolder(path), np.random.default_rng(seed)
    folder.records.mkdir(parents=True)
    folder.plan.write_text(effective_toml(plan))
    folder.bed.write_text("{}")
    trials = plan.expand()[: -truth.missing or None]
    log: list[dict[str, Any]] = []
    for session in range(sessions):
        bed_ms = rng.normal(0, truth.beds_differ_ms)
        own = [trial for trial in trials if trial.batch * sessions // plan.load.rounds == session]
        tables: dict[str, list[pl.DataFrame]] = {"probes": [], "blocks": [], "tcp_readings": []}
        log.append({"event": "started", "part": session})
        for trial in own:
            made, events = made_up_trial(plan, trial, truth, bed_ms, rng)
            log += events
            for name, rows in made.items():
                tables[name].append(rows)
        for name, frames in tables.items():
            write_table(folder.records / f"{name}-{session:03}.arrow", name, pl.concat(frames))
    log.append({"event": "finished"})
    folder.log.write_text("".join(json.dumps(event) + "\n" for event in log))
    return folder


def made_up_trial(
    plan: Plan, trial: Trial[Loaded], truth: Truth, bed_ms: float, rng: np.random.Generator
) -> tuple[dict[str, pl.DataFrame], list[dict[str, Any]]]:
    """One trial: its tables, and what the log says of it."""
    start = 1_000_000_000_000 + trial.block * 30_000_000_000
    begun, down = start + plan.load.idle_ns, trial.factors.direction == "down"
    bloat = truth.bloat_ms[0 if down else 1] + bed_ms + rng.normal(0, 0.3)
    bloat *= 5 if trial.purpose == "log" else 1  # its figures are nobody's
    apart = np.random.default_rng(trial.block)
    moved, stands = apart.normal(0, 0.01), np.array(truth.standing_ms) + apart.normal(0, 0.1, 2)
    n, interval = trial.count or 0, trial.factors.interval_ns
    n = round(n * (1 - truth.unsent)) if trial.block == 0 else n
    at = start + np.arange(n) * interval
    joins = plan.load.join_ns if len(trial.factors.algorithms) > 1 else 0
    times = np.where(at < begun + joins + plan.load.start_up_ns, truth.early, 1.0)
    rtt = truth.idle_ms + rng.gamma(2, 0.01, n) + np.where(at >= begun, times * bloat + rng.normal(0, 2, n), 0.0)
    lost = (at >= begun) & (rng.random(n) < truth.unanswered)
    rtt[-1] += truth.longest_ms
    if truth.few_answers and trial.block == 0:
        lost[:-30] |= at[:-30] >= begun
        rtt[-30:] += 500.0
    arrival = [None if gone else int(when + ms * MS) for when, ms, gone in zip(at, rtt, lost, strict=True)]
    stamps = [None if gone else "kernel" for gone in lost]
    probes = {
        "block": np.full(n, trial.block), "seq": np.arange(n), "warmup": np.zeros(n, dtype=bool), "intended_ns": at,
        "send_call_ns": at, "departure_ns": at, "departure_source": ["kernel"] * n, "arrival_ns": arrival,
        "arrival_source": stamps, "receive_call_ns": arrival, "replies": (~lost).astype(int),
        "late": np.zeros(n, dtype=bool), "reordered": np.zeros(n, dtype=bool),
    }  # fmt: skip
    block = {
        "block": trial.block, "device": trial.device, "round": trial.round, "visit": 0, "cell": trial.cell,
        "via": "icmp", "kind": "icmp", "schedule": "regular", "interval_ns": interval, "count": n, "warmup": 0,
        "request_payload_bytes": 56, "response_payload_bytes": 56, "request_frame_bytes": 102,
        "response_frame_bytes": 102, "started_ns": start, "ended_ns": int(at[-1]), "started_raw_ns": start - 500,
        "ended_raw_ns": int(at[-1]) - 500, "clock_error_ns": 100, "sent": n, "received": int(n - lost.sum()),
        "local_drops": 0,
    }  # fmt: skip
    ways = ("down", "up") if trial.factors.direction == "both" else (trial.factors.direction,)
    readings = []
    for way, (flow, bps) in product(ways, enumerate(truth.goodput_bps)):
        late = joins if flow else 0
        for number in range((joins - late + plan.load.start_up_ns + plan.load.duration_ns) // (100 * MS)):
            when = begun + late + number * 100 * MS
            acked = bps / 8 * number / 10
            if truth.fair_after_s is not None:
                acked = acked_of(truth, flow, (when - begun - joins) / 1e9)
            segments = acked / MSS
            readings.append({
                "block": trial.block, "connection": flow, "role": "send", "why": "time", "number": number,
                "socket_cookie": "1", "local_address": ADDRESS[way], "local_port": 4000 + flow, "remote_address": "x",
                "remote_port": 1, "intended_ns": when, "read_before_ns": when, "read_after_ns": when,
                "info_bytes": 280, "options": 7, "mss_bytes": MSS, "acked_bytes": round(acked),
                "delivered": round(segments), "data_segs_out": round(segments * (1 + truth.again)),
                "total_retrans": round(segments * truth.again),
            } | said_by_tcp(truth, number, segments, moved))  # fmt: skip
    flows = [
        {
            "direction": way,
            "local": f"{ADDRESS[way]}:{4000 + flow}",
            "turn": flow if joins else 0,
            "started_ns": begun + (joins if flow else 0),
        }
        for way, flow in product(ways, range(len(truth.goodput_bps)))
    ]
    factors = asdict(trial.factors)
    pipes = [
        {"name": name, "accuracy": {"p99_ns": truth.late_ns, "max_ns": truth.stood_ns},
         "arrived": 1000, "duplicated": 0, "sent": 945,
         "marked": 10, "held": 0, "lost": {"before": 5, "full": dropped, "managed": 50 - dropped - truth.vanished},
         "queueing_delay": {"count": 945, "mean_ns": ms * MS, "p99_ns": 2 * ms * MS},
         "least_waits": least_waits(start, begun + joins + plan.load.start_up_ns, at[-1], standing)}
        for (name, ms, dropped), standing in zip((("forward", 12, 30), ("backward", 3, 10)), stands,
                                                 strict=True)
    ]  # fmt: skip
    events: list[dict[str, Any]] = [
        {"event": "emulator-set", "block": trial.block, "device": trial.device, "pipe": pipe, "words": "",
         "to": {"link": {"rate_bps": truth.rate_bps, "overhead_bytes": 0}} | truth.more_of_the_pipe()}
        for pipe in ("forward", "backward")
    ]  # fmt: skip
    events += [
        {"event": "emulator", "block": trial.block, "device": trial.device, "summary": {"summary": {"pipes": pipes}}},
        {"event": "load-trial", "block": trial.block, "cell": trial.cell, "device": trial.device, "round": trial.round,
         "purpose": trial.purpose, "factors": factors, "flows": flows,
         "logged": {"records": 4711} if trial.purpose == "log" else None},
    ]  # fmt: skip
    made = {"probes": framed("probes", probes), "blocks": framed("blocks", [block]),
            "tcp_readings": framed("tcp_readings", readings)}  # fmt: skip
    return made, events


def said_by_tcp(truth: Truth, number: int, segments: float, moved: float) -> dict[str, Any]:
    """The further counters of a reading, 100 ms behind the one before it.

    Of ten readings as many have a full window as it limits the time, and as many nothing to send.
    """
    window, receiver, buffer, application, _ = truth.limits
    is_full = (number % 10) < round(10 * window)
    is_dry = (number % 10) >= 10 - round(10 * application)
    elapsed_us = number * 100_000
    return {
        "total_rto": truth.timeouts * number // 10, "dsack_dups": round(segments * truth.needless),
        "delivered_ce": round(segments * truth.returned), "snd_ssthresh": 20 + (number // 4) % 2,
        "busy_us": round(elapsed_us * (1 - application)), "receiver_limited_us": round(elapsed_us * (receiver + moved)),
        "buffer_limited_us": round(elapsed_us * (buffer - moved)), "packets_out": 12, "sacked_out": 2, "lost_out": 1,
        "retrans_out": 1, "snd_cwnd": 10 if is_full else 11, "ca_state": 0, "not_sent_bytes": 0 if is_dry else 100_000,
    }  # fmt: skip


def least_waits(start: int, working: int, end: int, standing_ms: float) -> dict[str, Any]:
    """The least waits of windows of 100 ms; every third window of the working conditions has no packet."""
    windows = range(start // (100 * MS), int(end) // (100 * MS))
    least = [round(standing_ms * MS * (1 if at * 100 * MS >= working else 10)) for at in windows]
    told = [None if at % 3 == 0 else wait for at, wait in zip(windows, least, strict=True)]
    return {"window_ns": 100 * MS, "from_ns": windows[0] * 100 * MS, "least_ns": told}


def acked_of(truth: Truth, flow: int, since_s: float) -> float:
    """Bytes so long after the second flow joined: it has a tenth, then, from one moment on, a half."""
    total, fair = sum(truth.goodput_bps) / 8, float(truth.fair_after_s or 0)
    before, after = min(since_s, fair), max(since_s - fair, 0.0)
    if flow:
        return total * (0.1 * before + 0.5 * after)
    return total * (3.0 + min(before, 0.0) + 0.9 * max(before, 0.0) + 0.5 * after)


def framed(table: str, rows: Any) -> pl.DataFrame:
    """Rows, or columns, with every column that the table has."""
    schema = {name: KINDS.get(one.type, pl.String) for name, one in TABLES[table].items()}
    known = pl.DataFrame(rows, schema_overrides={name: schema[name] for name in schema if name in columns_of(rows)})
    missing = [pl.lit(filler(one), schema[one.name]).alias(one.name) for one in TABLES[table].values()
               if one.name not in known.columns]  # fmt: skip
    return known.with_columns(missing).select(list(schema))


def columns_of(rows: Any) -> set[str]:
    return set(rows) if isinstance(rows, dict) else set(rows[0])


def filler(column: Any) -> Any:
    """What stands where the analysis does not look."""
    if column.nullable:
        return None
    return {"bool": False, "int32": 0, "int64": 0, "float64": 0.0}.get(column.type, "x")


def judged(
    folder: RunFolder,
) -> tuple[dict[str, Any], dict[str, dict[str, Any]], dict[tuple[str, ...], dict[str, Any]]]:
    """The verdict, its findings by name, and the rows by quantity, statistic and direction."""
    analyse(folder.path)
    verdict = json.loads(folder.verdict.read_text())
    rows: dict[tuple[str, ...], dict[str, Any]] = {
        (row["quantity"], row["statistic"], row["direction"]): row for row in json.loads(folder.results.read_text())
    }
    return verdict, {one["name"]: one for one in verdict["findings"]}, rows


@pytest.mark.parametrize("seed", range(3))
def test_intervals_contain_the_simulated_values(tmp_path: Path, seed: int) -> None:
    truth = Truth()
    verdict, findings, rows = judged(made_up(tmp_path / "run", truth, seed=seed))
    assert (verdict["verdict"], set(findings)) == ("trusted", set())
    for key, expected in (
        (("latency_under_load", "mean", "down and up"), 42 * MS),
        (("rtt_increase", "mean", "down"), 41 * MS),
        (("rtt_increase", "p50", "up"), 43 * MS),
        (("rtt_working", "p50", "down"), (20 + 41.017) * MS),
    ):
        row = rows[key]
        assert row["ci_low"] <= expected <= row["ci_high"], (key, row)
        assert row["ci_high"] - row["ci_low"] < 6 * MS
        assert (row["sessions"], row["unit"]) == (6, "ns")
    for way in ("down", "up"):
        assert rows["goodput", way, way]["estimate"] == pytest.approx(47e6, rel=1e-4)
        assert rows["utilisation", way, way]["estimate"] == pytest.approx(47e6 * FRAME / MSS / 50e6, rel=1e-4)
        assert rows["retransmitted", way, way]["estimate"] == pytest.approx(0.01 / 1.01, rel=5e-3)  # counters are whole
        assert rows["fairness", way, way]["estimate"] == pytest.approx(47**2 / (2 * (30**2 + 17**2)), rel=1e-4)
        assert rows["probe_loss", "working", way]["estimate"] == 0
    for way, ms in (("up", 12), ("down", 3)):  # up passes the pipe forward
        assert rows["queueing_delay", f"{way} mean", way]["estimate"] == ms * MS
        assert rows["queueing_delay", f"{way} p99", way]["estimate"] == 2 * ms * MS
        assert rows["dropped", way, way]["estimate"] == pytest.approx(0.05)  # not what was lost before the queue
        assert rows["marked", way, way]["estimate"] == pytest.approx(0.01)
    assert ("queueing_delay", "up mean", "down") not in rows
    says_what_tcp_said(truth, rows)
    minute = rows["responsiveness", "working", "down"]
    assert minute["estimate"] == pytest.approx(60e3 / (61.02 - 0.2), rel=0.02)  # the slowest 5 % are cut
    assert "grade B" in verdict["sentence"]
    assert "goodput 47.0 Mbit/s down, 47.0 Mbit/s up" in verdict["sentence"]
    budget = json.loads((tmp_path / "run/analysis/budgets.json").read_text())[0]
    head = rows["latency_under_load", "mean", "down and up"]
    reach = max(head["ci_high"] - head["estimate"], head["estimate"] - head["ci_low"])
    assert budget["expanded"] == pytest.approx(reach, rel=0.01)


def says_what_tcp_said(truth: Truth, rows: dict[tuple[str, ...], dict[str, Any]]) -> None:
    """Each figure within 4 % of what it was made of: a tenth would be seen. 10 s have 100 readings, or 9.9 s."""
    for way, standing_ms, lost in (("up", truth.standing_ms[0], 55), ("down", truth.standing_ms[1], 55)):
        expected = {
            ("timeouts", way): 2 * (truth.timeouts * 129 // 10 - truth.timeouts * 30 // 10),
            ("spurious", way): truth.needless / 1.01,
            ("ecn_echoed", way): truth.returned,
            ("ssthresh_changes", way): 2 * 25,
            ("standing_queue", way): standing_ms * MS,
            ("losses", f"{way} emulator"): lost,
            ("losses", f"{way} retransmitted"): 12.9 * 47e6 / 8 / MSS * truth.again,
            ("losses", f"{way} spurious"): 12.9 * 47e6 / 8 / MSS * truth.needless,
        } | {("limited", f"{way} {name}"): share for name, share in zip(LIMITS, truth.limits, strict=True)}
        for (quantity, statistic), value in expected.items():
            row = rows[quantity, statistic, way]
            assert row["estimate"] == pytest.approx(value, rel=0.04), (quantity, statistic, row["estimate"], value)
            assert row["sessions"] == 6
        for key in (("limited", f"{way} receiver"), ("standing_queue", way)):  # the others are the same in each trial
            row = rows[*key, way]
            assert row["ci_low"] <= expected[key] <= row["ci_high"]
            assert row["ci_high"] - row["ci_low"] < 0.25 * expected[key]


def test_missing_kernel_counter_gives_no_figure(tmp_path: Path) -> None:
    """Never 0: the kernel of before has no counter of timeouts, and none of the clocks."""
    folder = made_up(tmp_path / "run", Truth(), sessions=3, sets=FEW)
    for path in folder.records.glob("tcp_readings-*.arrow"):
        rows = pl.read_ipc_stream(path)
        none = [pl.lit(None, rows.schema[name]).alias(name) for name in ("total_rto", "busy_us", "dsack_dups")]
        write_table(path, "tcp_readings", rows.with_columns(none))
    _, findings, told = judged(folder)
    assert not findings
    quantities = {quantity for quantity, *_ in told}
    assert not quantities & {"timeouts", "limited", "spurious"}
    assert {"goodput", "ecn_echoed", "losses"} <= quantities


@pytest.mark.parametrize(
    ("low", "said"),
    [
        (-1.0, "no increase of the round trip over the Linux bridge was found: 3"),
        (1.0, "a round trip over the Linux bridge takes 3"),
    ],
)
def test_longer_rtt_is_reported_only_if_significant(low: float, said: str) -> None:
    value = Interval(3 * MS, low * MS, (6 - low) * MS, 0.95, 8)
    own = LoadSetting(4, "up", "cubic")
    row = Row("bridge", "latency_under_load", "mean", value, "ns", setting=own, sessions=8)
    found = sentence([row], row)
    assert found.startswith(f"Under load (4 cubic flows up), {said}"), found
    assert (", an interval that holds zero; grade" in found) == (low < 0)
    assert "over 8 beds" in found
    assert "; grade A+" in found


def test_the_report_has_the_grade_with_its_rule_and_every_figure(tmp_path: Path) -> None:
    folder = made_up(tmp_path / "run", Truth(), sets=FEW)
    analyse(folder.path)
    page = write_report(folder.path, vector=True).read_text()
    assert "dslreports.com/faq/17930" in page
    assert "draft-ietf-ippm-responsiveness" in page
    run = Run.read(folder.path)
    tables = {table.name: table for table in all_tables(run)}
    assert {"grades", "round_trips", "flows", "limits", "losses"} <= set(tables)
    assert "For 55.0 packets that the emulator lost in a trial (down), TCP retransmitted" in tables["losses"].note
    [head, *_] = tables["limits"].rows
    assert [round(float(entry.text)) for entry in head[10::2]] == [30, 20, 15, 10, 25]
    assert [len(table.rows) for table in (tables["grades"], tables["flows"])] == [1, 2]
    for table in tables.values():
        assert {len(row) for row in table.rows} <= {len(table.columns)}, table.name
    assert {"load_timeline", "load_quantiles"} <= {figure.name for figure in all_figures(run)}


def test_queues_are_compared_by_goodput_and_delay(tmp_path: Path) -> None:
    pipes = "load.pipe=rate 50Mbit/s delay 10ms queue 200,rate 50Mbit/s delay 10ms queue 200 codel"
    folder = made_up(tmp_path / "run", Truth(), sets=[*FEW, pipes, "load.direction=up"])
    verdict, _, _ = judged(folder)
    write_report(folder.path)
    run = Run.read(folder.path)
    tables = {table.name: table for table in all_tables(run)}
    assert [row[6].text for row in tables["queues"].rows] == ["12", "12"]
    [chart] = [figure for figure in all_figures(run) if figure.name == "load_queues"]
    [panel] = chart.panels
    names, hues = _hues(panel.file())
    assert names == ["tail drop", "codel"]
    assert len(set(hues)) == 2, "two queues have one colour"
    assert "47.0 Mbit/s at 12" in verdict["sentence"]
    assert " with tail drop; 47.0 Mbit/s at 12" in verdict["sentence"]
    assert " with codel" in verdict["sentence"]
    titles = [key.what for key in keys(run)]
    assert titles[:2] == ["Latency under load, tail drop", "Latency under load, codel"]
    assert titles[2:] == ["Goodput up, tail drop", "Goodput up, codel"]


def test_a_grid_of_pipes_is_drawn_as_maps(tmp_path: Path) -> None:
    """Two rates by three queues; without one of the six pipes there is no grid."""
    pipes = [f"rate {rate}Mbit/s delay 10ms queue {slots}" for rate in (50, 80) for slots in (20, 50, 200)]
    sets = [*FEW, "load.direction=up", "load.logged=0", "load.pipe=" + ",".join(pipes)]
    folder = made_up(tmp_path / "run", Truth(), sets=sets)
    events = [json.loads(line) for line in folder.log.read_text().splitlines()]
    words = {one["block"]: one["factors"]["pipe"] for one in events if one["event"] == "load-trial"}
    for one in events:
        if one["event"] == "emulator-set":
            _, rate, _, _, _, slots = words[one["block"]].split()
            one["to"] = {"link": {"rate_bps": 1e6 * float(rate.removesuffix("Mbit/s")), "overhead_bytes": 0},
                         "delay": {"constant": 10 * MS, "jitter": None}, "before": {"loss": []},
                         "queue": {"limit": {"bytes": None, "slots": int(slots)}, "aqm": None}}  # fmt: skip
    folder.log.write_text("".join(json.dumps(one) + "\n" for one in events))
    analyse(folder.path)
    write_report(folder.path, vector=True)
    figures = {figure.name: figure for figure in all_figures(Run.read(folder.path))}
    assert [panel.title for panel in figures["load_grid"].panels] == [
        "Latency under load (ms)", "Goodput (Mbit/s)", "Utilisation (%)"]  # fmt: skip
    used = figures["load_grid"].panels[2].file()
    [fields] = used["datasets"].values()
    assert {(one["x"], one["y"]): one["said"] for one in fields} == {
        (slots, rate): f"{47e6 * FRAME / MSS / rate / 1e4:.0f}" for rate in (50, 80) for slots in (20, 50, 200)
    }
    kept = [one for one in events if one["event"] != "emulator-set" or words[one["block"]] != pipes[-1]]
    folder.log.write_text("".join(json.dumps(one) + "\n" for one in kept))
    analyse(folder.path)
    assert "load_grid" not in {figure.name for figure in all_figures(Run.read(folder.path))}


def _hues(chart: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The domain and the colours of a chart's first scale of colours."""
    [scale, *_] = [layer["encoding"]["color"]["scale"] for layer in chart["layer"]]
    return scale["domain"], scale["range"][: len(scale["domain"])]


@pytest.mark.parametrize(
    ("pipes", "names"),
    [
        ([f"rate 1M queue 9{more}" for more in ("", " codel", " type fq_codel")], ["tail drop", "codel", "fq_codel"]),
        (["rate 1M queue 9 codel", "rate 1M queue 9 codel target 1ms"], None),
        (["rate 1M queue 9", "rate 1M queue 90"], ["queue 9", "queue 90"]),
        (["delay 1ms", "loss 1%"], None),
        (["delay 1ms"], None),
    ],
)  # fmt: skip
def test_pipes_are_labelled_by_their_differences(pipes: list[str], names: list[str] | None) -> None:
    assert short_names(pipes) == dict(zip(pipes, names or pipes, strict=True))


def test_flows_of_both_directions_are_reported_separately(tmp_path: Path) -> None:
    sets = [*FEW, "load.direction=both", "load.rounds=9"]
    verdict, findings, rows = judged(made_up(tmp_path / "run", Truth(), sessions=3, sets=sets))
    assert not findings
    for way in ("down", "up"):
        assert rows["goodput", way, "both"]["estimate"] == pytest.approx(47e6, rel=1e-3)
        assert rows["fairness", way, "both"]["estimate"] == pytest.approx(47**2 / (2 * (30**2 + 17**2)), rel=1e-3)
    row = rows["latency_under_load", "mean", "both"]
    assert row["ci_low"] <= 43 * MS <= row["ci_high"]
    assert "each way at once" in verdict["sentence"]


WRONG: dict[str, tuple[Truth, str]] = {
    "path_not_filled": (Truth(goodput_bps=(30e6,)), "used 63 % of the configured rate"),
    "impossible": (Truth(goodput_bps=(52e6,)), "used 109 % of the configured rate"),
    "loss": (Truth(unanswered=0.1), "of the probes had no answer"),
    "tester_limited": (Truth(late_ns=30.0 * MS), "left 30.0 ms or more after their time"),
    "not_conserved": (Truth(vanished=4), "1000 packets arrived at pipe forward of emulator None"),
    "incomplete": (Truth(missing=3), "3 planned blocks are missing"),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_injected_problem_is_a_finding(name: str, tmp_path: Path) -> None:
    truth, said = WRONG[name]
    _, findings, _ = judged(made_up(tmp_path / "run", truth, sessions=3, sets=[*FEW, "load.rounds=12"]))
    assert set(findings) == {name}
    assert said in findings[name]["sentence"]


def test_a_path_is_not_to_be_filled_where_random_loss_limits_the_flow(tmp_path: Path) -> None:
    sets = [*FEW, "load.rounds=12", "load.direction=up", "load.congestion=reno", "study.hypotheses=mathis"]
    truth = Truth(goodput_bps=(5e6,), random_loss=0.01)
    _, findings, rows = judged(made_up(tmp_path / "run", truth, sessions=3, sets=sets))
    assert "mathis_ratio" in {quantity for quantity, *_ in rows}, rows.keys()
    assert "path_not_filled" not in findings


def test_paused_host_is_reported_and_no_impossible_rate(tmp_path: Path) -> None:
    truth = Truth(goodput_bps=(52e6,), longest_ms=400.0)
    _, findings, _ = judged(made_up(tmp_path / "run", truth, sessions=3, sets=[*FEW, "load.rounds=12"]))
    assert "impossible" not in findings
    assert "a host paused" in findings["tester_limited"]["sentence"]


@pytest.mark.parametrize(("unsent", "said"), [(0.03, None), (0.1, "23 % of the planned probes did not leave")])
def test_probes_that_end_before_the_flows_are_reported(unsent: float, said: str | None, tmp_path: Path) -> None:
    _, findings, _ = judged(made_up(tmp_path / "run", Truth(unsent=unsent), sessions=3, sets=[*FEW, "load.rounds=12"]))
    assert said is None or said in findings["tester_limited"]["sentence"]
    assert bool(findings) == bool(said)


def test_long_queue_is_not_reported_as_a_pause(tmp_path: Path) -> None:
    """A round trip of half a second more, all the while: no link carries more than its rate for that."""
    truth = Truth(goodput_bps=(49.7e6,), bloat_ms=(500.0, 500.0))
    _, findings, _ = judged(made_up(tmp_path / "run", truth, sessions=3, sets=[*FEW, "load.rounds=12"]))
    assert "a trial used 104 %" in findings["impossible"]["sentence"]


def test_percentile_available_in_only_some_trials_is_omitted(tmp_path: Path) -> None:
    """The median of all held a trial of few, late answers, and lay above the 90th percentile of the others."""
    truth = Truth(few_answers=True)
    _, findings, rows = judged(made_up(tmp_path / "run", truth, sessions=3, sets=[*FEW, "load.rounds=12"]))
    assert "impossible" not in findings
    told = {(said, way) for quantity, said, way in rows if quantity == "rtt_working"}
    assert {way for said, way in told if said == "p50"} == {"down", "up"}
    assert len([1 for said, _ in told if said == "p90"]) == 1, "of the direction whose trials all have it"


def test_stalled_emulator_is_reported_as_late_not_as_impossible_rate(tmp_path: Path) -> None:
    truth = Truth(goodput_bps=(52e6,), stood_ns=400.0 * MS)
    _, findings, _ = judged(made_up(tmp_path / "run", truth, sessions=3, sets=[*FEW, "load.rounds=12"]))
    assert set(findings) == {"tester_limited"}
    assert "paused, and what it held came afterwards: a trial used 109 %" in findings["tester_limited"]["sentence"]


def test_two_beds_give_a_figure_without_an_interval(tmp_path: Path) -> None:
    _, findings, rows = judged(made_up(tmp_path / "run", Truth(), sessions=2, sets=FEW))
    assert "2 beds are too few for an interval over beds" in findings["too_few_pairs"]["sentence"]
    assert rows["latency_under_load", "mean", "down and up"]["ci_low"] is None


def test_utilisation_needs_a_known_rate(tmp_path: Path) -> None:
    folder = made_up(tmp_path / "run", Truth(), sessions=3, sets=FEW)
    kept = [line for line in folder.log.read_text().splitlines() if '"emulator-set"' not in line]
    folder.log.write_text("\n".join(kept))
    _, findings, rows = judged(folder)
    assert not findings
    assert not any(quantity == "utilisation" for quantity, *_ in rows)


@pytest.mark.parametrize(
    ("ms", "grade"), [(0, "A+"), (4.9, "A+"), (5, "A"), (30, "B"), (60, "C"), (200, "D"), (400, "F"), (9000, "F")]
)
def test_grade_equals_that_of_dslreports(ms: float, grade: str) -> None:
    assert grade_of(ms * MS) == grade


def test_an_interval_over_a_threshold_has_both_grades() -> None:
    value = Interval(58.0 * MS, 50.0 * MS, 66.0 * MS, 0.95, 9)
    assert grade_said(value) == "B (B to C)"
    assert grade_said(replace(value, high=59.0 * MS)) == "B"


def test_round_trips_per_minute_exclude_the_slowest_5_percent() -> None:
    assert responsiveness(np.full(100, 20.0 * MS)) == pytest.approx(3000)
    assert responsiveness(np.r_[np.full(95, 20.0 * MS), np.full(5, 3e9)]) == pytest.approx(3000)


@pytest.mark.parametrize(
    "study", ["bufferbloat", "rrul", "coexistence", "aqm", "rtt-fairness", "tcp-hypotheses", "cubic-region"]
)
@pytest.mark.parametrize("quick", [True, False])
def test_effective_plan_parses_to_the_same_plan(study: str, quick: bool, tmp_path: Path) -> None:
    plan = load_plan(study, quick=quick)
    path = tmp_path / "plan.toml"
    path.write_text(effective_toml(plan))
    again = load_plan(path)
    assert again.sections == plan.sections
    assert again.expand() == plan.expand()


def test_trials_with_the_log_follow_the_first_round_of_each_cell(tmp_path: Path) -> None:
    """Of the others nothing changes, neither their seeds nor their order: they are those of a run without the log."""
    plan = load_plan("bufferbloat", sets=["load.logged=2", "load.rounds=3"])
    trials = plan.expand()
    assert [trial.block for trial in trials] == list(range(len(trials)))
    logged = [trial for trial in trials if trial.purpose == "log"]
    assert [(trial.cell, trial.visit, trial.batch) for trial in logged] == [(0, 1, 0), (1, 1, 0), (0, 2, 0), (1, 2, 0)]
    assert {trial.block for trial in logged} == {2, 3, 4, 5}
    without = load_plan("bufferbloat", sets=["load.logged=0", "load.rounds=3"])
    alike = [(trial.seed, trial.cell, trial.round, trial.purpose) for trial in without.expand()]
    assert [(one.seed, one.cell, one.round, one.purpose) for one in trials if one.purpose != "log"] == alike
    assert (plan.ask.logs_some(plan), without.ask.logs_some(without)) == (True, False)
    # The name that a pipe has in studies of streams means the pipe here, too.
    assert load_plan("rrul", sets=["stream.pipe=rate 50Mbit/s delay 10ms"]).load.pipe == ("rate 50Mbit/s delay 10ms",)


def test_trials_with_the_log_are_excluded_from_figures(tmp_path: Path) -> None:
    """Their round trips grow five times as much; a figure with them would be half as large again."""
    folder = made_up(tmp_path / "run", Truth(), sets=["load.logged=2"])
    verdict, findings, rows = judged(folder)
    assert (verdict["verdict"], set(findings)) == ("trusted", set())
    head = rows["latency_under_load", "mean", "down and up"]
    assert head["ci_low"] <= 42 * MS <= head["ci_high"]
    assert head["n"] == 12
    found = pl.read_parquet(folder.path / "analysis/samples/load_logged.parquet")
    assert found["block"].to_list() == [2, 3, 4, 5]
    assert found["records"].to_list() == [4711] * 4


def test_a_bed_without_the_log_of_tcp_says_so(tmp_path: Path) -> None:
    """Its trials are left out there: neither the screen nor the report said it."""
    log: list[dict[str, Any]] = []
    screen = io.StringIO()

    def told(logged: int) -> None:
        plan = load_plan("bufferbloat", sets=[f"load.logged={logged}"])
        plan = replace(plan, bed=replace(plan.bed, backend="ssh"))
        assert not [trial for trial in plan.expand() if trial.purpose == "log"]
        part = SimpleNamespace(number=0, owed=plan.expand())
        session = SimpleNamespace(
            plan=plan, part=part, screen=Screen(screen), log=lambda event, **entry: log.append({"event": event} | entry)
        )
        with ExitStack() as stack:
            assert start_log_of_both(cast("Any", session), stack) is None

    told(logged=0)
    assert (log, screen.getvalue()) == ([], "")
    told(logged=1)
    [entry] = log
    assert entry["event"] == "unlogged"
    assert entry["why"].endswith("the hosts of this bed (ssh) have kernels of their own")
    assert screen.getvalue() == f"no log of TCP's state: {entry['why']}\n"

    folder = made_up(tmp_path / "run", Truth(), sets=["load.logged=0"])
    with folder.log.open("a") as file:
        file.writelines(json.dumps(entry | {"part": part}) + "\n" for part in range(2))
    verdict, findings, _ = judged(folder)
    assert (verdict["verdict"], set(findings)) == ("trusted", {"log_left_out"})
    assert findings["log_left_out"]["sentence"].startswith("trials are without the log of TCP's state: trials with it")


MIX = (*FEW, "load.congestion=cubic+reno", "load.direction=up", "load.join=2s", "load.duration=6s", "load.rounds=9")


@pytest.mark.parametrize("fair_after_s", [3.0, None])
def test_algorithms_that_share_a_path_have_shares_and_a_time_of_convergence(
    fair_after_s: float | None, tmp_path: Path
) -> None:
    """A tenth until the start-up's end, then a half; or a tenth all the while, which is never fair."""
    late = 1e9 if fair_after_s is None else fair_after_s
    verdict, _, rows = judged(made_up(tmp_path / "run", Truth(fair_after_s=late), sessions=3, sets=MIX))
    share, fair = ("50", "share it fairly 3.8 s after that") if fair_after_s else ("10", "shared it fairly in no trial")
    assert f"reno gets {share} % of the goodput" in verdict["sentence"]
    assert f"; both {fair}. Under load" in verdict["sentence"]
    congestion = {row["congestion"] for row in rows.values()}
    assert congestion == {"cubic+reno"}
    first, second = (rows["share", f"up {turn}", "up"] for turn in ("first", "second"))
    assert first["estimate"] + second["estimate"] == pytest.approx(1)
    # The start-up of 3 s ends when the shares change.
    assert second["estimate"] == pytest.approx(0.5 if fair_after_s is not None else 0.1, abs=2e-3)
    fairness = 1 / (2 * (first["estimate"] ** 2 + second["estimate"] ** 2))
    assert rows["fairness", "up", "up"]["estimate"] == pytest.approx(fairness, rel=1e-3)
    assert rows["converged", "up", "up"]["estimate"] == float(fair_after_s is not None)
    assert (("convergence", "up", "up") in rows) is (fair_after_s is not None)
    if fair_after_s is not None:
        # Jain's index of a share x of one second's goodput is 0.95 at x = 0.385: 71 % of the second behind the 3 s.
        assert rows["convergence", "up", "up"]["estimate"] == pytest.approx((fair_after_s + 0.72) * 1e9, abs=0.1e9)
    write_report(tmp_path / "run")
    tables = {table.name: table for table in all_tables(Run.read(tmp_path / "run"))}
    assert [row[6].text for row in tables["shares"].rows] == ["cubic", "reno"]
    assert keys(Run.read(tmp_path / "run"))[0].what == "Share of reno, joining cubic"


def test_working_rtts_start_after_the_last_flow_joined_in_figures_and_tables(tmp_path: Path) -> None:
    """Until the joining's start-up is over, the queue is five times as long: no distribution may have that in it."""
    truth = Truth(fair_after_s=3.0, early=5.0)
    _, _, rows = judged(made_up(tmp_path / "run", truth, sessions=3, sets=MIX))
    of_trials = rows["rtt_working", "p50", "up"]["estimate"]
    found = pl.read_parquet(tmp_path / "run/analysis/samples/load_quantiles.parquet")
    working = found.filter(state="working")["rtt_ns"]
    assert working.max() < 1.5 * of_trials
    assert working.max() > of_trials > found.filter(state="idle")["rtt_ns"].max()
    write_report(tmp_path / "run")
    captions = {figure.name: figure.caption for figure in all_figures(Run.read(tmp_path / "run"))}
    assert "join 2 s after the first, and working conditions begin 3 s after" in captions["load_timeline"]


@pytest.mark.parametrize("left", [0, 1])
def test_flow_without_readings_gives_no_shares(left: int, tmp_path: Path) -> None:
    """The file of the application that joined is missing, or was cut after one reading of each trial."""
    folder = made_up(tmp_path / "run", Truth(fair_after_s=3.0), sessions=3, sets=MIX)
    for path in folder.records.glob("tcp_readings-*.arrow"):
        rows = pl.read_ipc_stream(path)
        kept = rows.filter((pl.col("connection") == 0) | (pl.col("number") < left))
        write_table(path, "tcp_readings", kept)
    _, _, found = judged(folder)
    quantities = {quantity for quantity, *_ in found}
    assert not quantities & {"share", "goodput", "convergence", "converged"}
    assert found["rtt_working", "mean", "up"]["n"] == 9


@pytest.mark.parametrize("words", ["cubic+", "+reno", "a+b+c+d+e"])
def test_invalid_mix_of_algorithms_is_refused(words: str) -> None:
    with pytest.raises(RequestError, match=r"load.congestion"):
        load_plan("bufferbloat", sets=[f"load.congestion={words}"])


def test_only_emulators_have_pipes() -> None:
    sets = ["bed.devices=wire,emulate", "load.pipe=rate 20Mbit/s,rate 50Mbit/s", "load.direction=both", "flows=1,4"]
    trials = load_plan("bufferbloat", sets=sets).expand()
    met = {(trial.device, trial.factors.pipe, trial.factors.flows) for trial in trials}
    pipes = ("rate 20Mbit/s", "rate 50Mbit/s")
    assert met == {("wire", "", n) for n in (1, 4)} | {("emulate", pipe, n) for pipe in pipes for n in (1, 4)}
    assert len({(trial.cell, trial.factors) for trial in trials}) == len({trial.cell for trial in trials}) == 6


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (
            ["bed.devices=bridge", "load.pipe=rate 1Mbit/s"],
            'load.pipe = .*: expected a device "emulate" in bed.devices',
        ),
        (["probe.schedule=closed-loop"], '"regular" or "poisson"'),
        (["load.duration=100ms"], "20 times probe.interval or more"),
        (["load.direction=sideways"], 'load.direction = "sideways": expected'),
        (["bed.backend=sim"], "needs a kernel's TCP"),
    ],
)
def test_invalid_plans_are_refused(sets: list[str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        load_plan("bufferbloat", sets=sets)


def test_a_path_without_a_device_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(effective_toml(load_plan("bufferbloat")).replace('devices = ["emulate"]', "devices = []"))
    with pytest.raises(RequestError, match="at least one device"):
        load_plan(path)


def test_a_trial_is_whole_with_the_readings_of_every_end(tmp_path: Path) -> None:
    """In both directions each host sends and receives: the records of one host look complete."""
    sets = ("load.rounds=1", "load.direction=both", "load.logged=0", "load.duration=3s", "load.idle=1s")
    folder = made_up(tmp_path / "run", Truth(goodput_bps=(1e7, 2e7)), 1, sets=sets)
    plan = load_plan("bufferbloat", sets=[*sets, "load.flows=2"])
    (path,) = folder.records.glob("tcp_readings-*")
    read = read_table(folder.records, "tcp_readings").frame.select(TABLES["tcp_readings"].keys())
    path.unlink()
    assert {trial.block for trial in plan.expand()} == set(read["block"])
    one = read.unique(["block", "connection"])
    for host in "ab":
        assert whole_trials(folder, plan) == set()
        both = pl.concat([one.with_columns(role=pl.lit(role)) for role in ("send", "receive")])
        write_table(folder.records / f"tcp_readings-{host}-000.arrow", "tcp_readings", both)
    assert whole_trials(folder, plan) == set(read["block"])
    few = both.filter((pl.col("connection") == 0) | (pl.col("role") == "send"))
    write_table(folder.records / "tcp_readings-b-000.arrow", "tcp_readings", few)
    assert whole_trials(folder, plan) == set()


def test_resumed_run_of_an_earlier_version_has_no_logged_trials() -> None:
    plan = load_plan("bufferbloat", sets=["load.logged=0", "load.rounds=3"])
    text = effective_toml(plan)
    old = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("logged ="))
    assert old != text
    assert plan_from_text(plan_text(old), "plan.toml", ()).expand() == plan.expand()
    today = load_plan("bufferbloat", sets=["load.logged=2", "load.rounds=3"])
    assert plan_from_text(plan_text(effective_toml(today)), "plan.toml", ()).expand() == today.expand()
