"""Method "tcp-windows": a path that obeys min(rate, window/RTT) gives that throughput and the RFC's metrics."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.errors import RequestError
from sojourn.methods.tcp_windows.measure import baseline_of, whole_trials, window_bytes
from sojourn.plan import load_plan
from sojourn.plan.effective import effective_toml
from sojourn.records import RunFolder
from sojourn.report import write_report
from sojourn.report.contents import all_figures, all_tables
from sojourn.report.published import published_tables
from sojourn.report.run import Run
from tests.unit.made_up_tcp import write_table
from tests.unit.test_tcp_load import framed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sojourn.methods.tcp_windows.ask import Windowed
    from sojourn.plan import Plan
    from sojourn.plan.trial import Trial

MS = 1_000_000
RTT_NS, RATE_BPS, MSS, FRAME = 20.0 * MS, 50e6, 1448, 1514
PRODUCT = RTT_NS * RATE_BPS / 8e9
ACHIEVABLE = RATE_BPS * MSS / FRAME
SETS = ("windows.rounds=6", "bed.sessions=3", "windows.window=0.5,1,2", "windows.duration=2s", "windows.start_up=1s")


@dataclass(frozen=True)
class Truth:
    """What a made-up path does."""

    slower: float = 1.0
    """Throughput over the formula's."""
    again: float = 0.02
    """Retransmitted bytes over sent ones."""
    passed: float = 0.6
    """The part of a train that comes back."""
    filled: bool = True
    """Whether what comes back of a train does so at the bottleneck's rate, not as it left."""
    missing: int = 0
    crawls: bool = False
    """Whether the second bed gets a twentieth of that throughput, and sends a fifth of its bytes again."""


def expected_bps(factors: Windowed) -> float:
    return min(ACHIEVABLE, window_bytes(factors, PRODUCT, MSS) * factors.connections * 8e9 / RTT_NS)


def made_up(path: Path, truth: Truth, study: str = "tcp-methodology", sets: Sequence[str] = SETS) -> RunFolder:
    """A whole run folder."""
    plan = load_plan(study, sets=list(sets))
    folder, rng = RunFolder(path), np.random.default_rng(1)
    folder.records.mkdir(parents=True)
    folder.plan.write_text(effective_toml(plan))
    folder.bed.write_text("{}")
    log: list[dict[str, Any]] = []
    for session in range(3):
        log.append({"event": "started", "part": session})
        made: list[list[pl.DataFrame]] = [[], [], []]
        for trial in plan.expand()[: -truth.missing or None]:
            if trial.batch * 3 // plan.windows.rounds == session:
                frames, event = made_up_trial(plan, trial, truth, rng)
                log.append(event)
                for own, frame in zip(made, frames, strict=True):
                    own.append(frame)
        for name, own in zip(("probes", "blocks", "tcp_readings"), made, strict=True):
            write_table(folder.records / f"{name}-{session:03}.arrow", name, pl.concat(own))
    log.append({"event": "finished"})
    folder.log.write_text("".join(json.dumps(event) + "\n" for event in log))
    return folder


def made_up_trial(
    plan: Plan, trial: Trial[Windowed], truth: Truth, rng: np.random.Generator
) -> tuple[tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame], dict[str, Any]]:
    """One trial: its probes, block and readings, and the log's event."""
    start, factors = 10**15 + trial.block * 30_000 * MS, trial.factors
    n = trial.count or 0
    at = start + np.arange(n) * factors.interval_ns
    rtt = RTT_NS * (2.0 if factors.what == "transfer" else 1.0) + rng.normal(0, 1e4, n)  # a buffer delay of 100 %
    arrival: list[int | None] = [int(one) for one in at + rtt]
    if factors.what == "rate":
        back = round(truth.passed * n)
        gaps = np.arange(back) * (FRAME * 8e9 / RATE_BPS if truth.filled else factors.interval_ns)
        arrival = [int(start + RTT_NS + gap) for gap in gaps] + [None] * (n - back)
    stamps = [None if one is None else "kernel" for one in arrival]
    lost = np.array([one is None for one in arrival])
    probes = {
        "block": np.full(n, trial.block), "seq": np.arange(n), "warmup": np.zeros(n, dtype=bool), "intended_ns": at,
        "send_call_ns": at, "departure_ns": at, "departure_source": ["kernel"] * n, "arrival_ns": arrival,
        "arrival_source": stamps, "receive_call_ns": arrival, "replies": (~lost).astype(int),
        "late": np.zeros(n, dtype=bool), "reordered": np.zeros(n, dtype=bool),
    }  # fmt: skip
    frame = factors.response_frame_bytes
    block = {
        "block": trial.block, "device": trial.device, "round": trial.round, "visit": 0, "cell": trial.cell,
        "via": "icmp", "kind": "icmp", "schedule": "regular", "interval_ns": factors.interval_ns, "count": n,
        "warmup": 0, "request_payload_bytes": factors.request_payload_bytes,
        "response_payload_bytes": factors.response_payload_bytes, "request_frame_bytes": frame,
        "response_frame_bytes": frame, "started_ns": start, "ended_ns": int(at[-1]), "started_raw_ns": start - 500,
        "ended_raw_ns": int(at[-1]) - 500, "clock_error_ns": 100, "sent": n, "received": int(n - lost.sum()),
        "local_drops": 0,
    }  # fmt: skip
    event = {"event": "window-trial", "block": trial.block, "cell": trial.cell, "device": trial.device,
             "round": trial.round, "factors": asdict(factors)}  # fmt: skip
    readings = framed("tcp_readings", [{}]).clear()
    if factors.what == "transfer":
        bps = truth.slower * expected_bps(factors) * (1 + rng.normal(0, 1e-3))
        crawls = truth.crawls and trial.batch * 3 // plan.windows.rounds == 1
        how = (start, bps / 20, 0.2) if crawls else (start, bps, truth.again)
        readings, more = made_up_transfer(plan, trial, how)
        event |= more
    return (framed("probes", probes), framed("blocks", [block]), readings), event


def made_up_transfer(
    plan: Plan, trial: Trial[Windowed], how: tuple[int, float, float]
) -> tuple[pl.DataFrame, dict[str, Any]]:
    """The readings of a transfer, and what the log has of its connections."""
    (start, bps, again), count = how, trial.factors.connections
    window = window_bytes(trial.factors, PRODUCT, MSS)
    each, lasts = bps / count, plan.windows.start_up_ns + plan.windows.duration_ns
    rows = []
    for connection in range(count):
        for number in range(lasts // (100 * MS) + 1):
            when, acked = start + number * 100 * MS, each / 8 * number / 10
            rows.append({
                "block": trial.block, "connection": connection, "role": "send", "why": "time", "number": number,
                "socket_cookie": "1", "local_address": "10.0.0.1", "local_port": 4000 + connection,
                "remote_address": "x", "remote_port": 1, "intended_ns": when, "read_before_ns": when,
                "read_after_ns": when, "info_bytes": 280, "options": 7, "mss_bytes": MSS, "acked_bytes": round(acked),
                "delivered": round(acked / MSS), "data_segs_out": round(acked / MSS), "total_retrans": 0,
                "snd_wnd_bytes": window, "receiver_limited_us": number * 75_000,
                "sent_bytes": round(acked / (1 - again)), "retransmitted_bytes": round(again * acked / (1 - again)),
            })  # fmt: skip
    connections = [
        {"local": f"10.0.0.1:{4000 + one}", "started_ns": start, "ended_ns": start + lasts,
         "moved_bytes": round(each / 8e9 * lasts)} for one in range(count)
    ]  # fmt: skip
    return framed("tcp_readings", rows), {"window_bytes": window, "connections": connections}


def judged(folder: RunFolder) -> tuple[dict[str, Any], dict[tuple[Any, ...], dict[str, Any]]]:
    analyse(folder.path)
    rows = json.loads(folder.results.read_text())
    return json.loads(folder.verdict.read_text()), {
        (row["quantity"], row.get("flows"), row.get("window")): row for row in rows
    }


def test_formulas_of_rfc_6349_are_confirmed_on_a_conforming_path(tmp_path: Path) -> None:
    folder = made_up(tmp_path / "run", Truth())
    verdict, rows = judged(folder)
    assert verdict["findings"] == []
    assert [one["outcome"] for one in verdict["hypotheses"]] == ["supported"]
    for quantity, truth in (("baseline_rtt", RTT_NS), ("bottleneck_rate", RATE_BPS),
                            ("bandwidth_delay_product", PRODUCT)):  # fmt: skip
        assert rows[quantity, None, None]["estimate"] == pytest.approx(truth, rel=1e-3)
    factors = {one.factors for one in load_plan("tcp-methodology", sets=list(SETS)).expand()}
    for one in (one for one in factors if one.what == "transfer"):
        own = {quantity: row for (quantity, flows, window), row in rows.items()
               if (flows, window) == (one.connections, one.window)}  # fmt: skip
        truth = expected_bps(one)
        assert own["throughput"]["ci_low"] <= truth <= own["throughput"]["ci_high"]
        assert own["throughput"]["sessions"] == 3
        assert own["predicted"]["estimate"] == pytest.approx(truth, rel=1e-3)
        assert own["transfer_time_ratio"]["estimate"] == pytest.approx(ACHIEVABLE / truth, rel=3e-3)
        assert own["efficiency"]["estimate"] == pytest.approx(0.98, abs=1e-4)
        assert own["buffer_delay"]["estimate"] == pytest.approx(1.0, abs=1e-2)
        assert own["window_limited"]["estimate"] == pytest.approx(0.75, abs=1e-6)
    # A half of the product gives half of the rate: the window is what limits.
    assert rows["throughput", 1, 0.5]["estimate"] == pytest.approx(25e6, rel=0.02)
    assert "1 connection with a window of 1 BDP gets 47.8 Mbit/s" in verdict["sentence"]
    page = write_report(folder.path).read_text()
    assert "Metrics of RFC 6349" in page
    run = Run.read(folder.path)
    tables = {one.name: one for one in all_tables(run)}
    assert [len(tables[name].rows) for name in ("baseline", "windows", "metrics")] == [1, 6, 6]
    for name in ("baseline", "windows", "metrics"):
        assert {len(row) for row in tables[name].rows} == {len(tables[name].columns)}
    assert {one.name for one in all_figures(run)} == {"windows"}


def test_published_rtts_through_dummynet_are_shown_beside_ours(tmp_path: Path) -> None:
    """Theirs of a delay of 10 ms was 19.61 ms, so the same window gets more over it: 20 / 19.61."""
    pipe = "windows.pipe=rate 50Mbit/s delay 10ms queue 200"
    folder = made_up(tmp_path / "run", Truth(), "dummynet-tcp", [*SETS, pipe])
    _, rows = judged(folder)
    [table] = published_tables(Run.read(folder.path)).tables
    each = {row[0].values[0]: dict(zip((one.keys[0] for one in table.columns), row, strict=True)) for row in table.rows}
    own: dict[str, Any] = {name: entry.values[0] for name, entry in each["10"].items()}
    assert own["published_excess_us"] == pytest.approx(-390)
    assert own["our_rtt_ms"] == pytest.approx(20, rel=1e-3)
    assert own["our_excess_us"] == pytest.approx(0, abs=20)
    assert own["our_mbit_per_s"] == pytest.approx(25, rel=0.02)
    assert own["our_mbit_per_s"] == rows["throughput", 1, 0.5]["estimate"] / 1e6
    assert own["published_mbit_per_s"] / own["our_formula_mbit_per_s"] == pytest.approx(20 / 19.61, rel=1e-3)
    assert each["25"]["our_rtt_ms"].values[0] is None


def test_throughput_over_several_delays_is_drawn_beside_formula_and_paper(tmp_path: Path) -> None:
    pipes = [f"rate 50Mbit/s delay {delay} queue 200" for delay in ("10ms", "25ms")]
    asked = f"windows.pipe={json.dumps(pipes)}"
    folder = made_up(tmp_path / "run", Truth(), "dummynet-tcp", [*SETS, asked])
    judged(folder)
    run = Run.read(folder.path)
    [drawn] = [one for one in all_figures(run) if one.name == "delays"]
    assert drawn.devices == ("emulate", "formula", "published")
    assert [one.title for one in drawn.panels] == ["window: 0.5 BDP, connections: 1"]
    points = {(row["device"], row["x"]): row for data in drawn.panels[0].page()["datasets"].values() for row in data}
    assert {name for name, _ in points} == {"emulate", "formula", "published"}
    ours, formula, theirs = (points[name, 10.0] for name in ("emulate", "formula", "published"))
    assert ours["y"] == pytest.approx(25, rel=0.02)
    assert ours["low"] < ours["y"] < ours["high"]
    assert theirs["y"] / formula["y"] == pytest.approx(20 / 19.61, rel=1e-3)
    assert theirs["low"] is None, "the paper has no interval"


def test_throughput_a_tenth_below_the_formula_rejects_the_hypothesis(tmp_path: Path) -> None:
    verdict, _ = judged(made_up(tmp_path / "run", Truth(slower=0.9)))
    assert [one["outcome"] for one in verdict["hypotheses"]] == ["rejected"]


def test_no_interval_has_a_rate_below_zero_or_a_share_above_one(tmp_path: Path) -> None:
    _, rows = judged(made_up(tmp_path / "run", Truth(crawls=True)))
    assert rows["throughput", 1, 1]["ci_low"] == 0
    assert rows["efficiency", 1, 1]["ci_high"] == 1


def test_queue_larger_than_a_whole_train_is_no_finding(tmp_path: Path) -> None:
    verdict, rows = judged(made_up(tmp_path / "run", Truth(passed=1.0)))
    assert verdict["findings"] == []
    assert rows["bottleneck_rate", None, None]["estimate"] == pytest.approx(RATE_BPS, rel=1e-3)


@pytest.mark.parametrize(
    ("truth", "name"), [(Truth(passed=1.0, filled=False), "path_not_filled"), (Truth(missing=2), "incomplete")]
)
def test_each_injected_problem_is_a_finding(truth: Truth, name: str, tmp_path: Path) -> None:
    verdict, _ = judged(made_up(tmp_path / "run", truth))
    assert name in {one["name"] for one in verdict["findings"]}


def test_bdp_is_computed_from_the_summary_of_the_prober() -> None:
    rtt, train, *_ = load_plan("tcp-methodology").expand()
    assert baseline_of(rtt.factors, {"rtt": {"mean_ns": RTT_NS}}) == RTT_NS
    told = {"first_arrival_ns": 10**15, "last_arrival_ns": 10**15 + 242_240_000, "received": 1001}
    assert baseline_of(train.factors, told) == pytest.approx(RATE_BPS)


def test_windows_are_even_numbers_of_segments() -> None:
    for one in (one.factors for one in load_plan("tcp-methodology").expand() if one.purpose == "measure"):
        each = window_bytes(one, PRODUCT, MSS)
        assert each % (2 * MSS) == 0
        assert abs(each - one.window * PRODUCT / one.connections) <= MSS


def with_both_ends(folder: RunFolder) -> None:
    """Split the readings into those of both hosts, as a run records them."""
    for path in list(folder.records.glob("tcp_readings-*")):
        sent = pl.read_ipc_stream(path).with_columns(pl.col("role").cast(pl.String))
        for host, role in (("a", "send"), ("b", "receive")):
            name = path.name.replace("readings-", f"readings-{host}-")
            write_table(path.with_name(name), "tcp_readings", sent.with_columns(role=pl.lit(role)))
        path.unlink()


@pytest.mark.parametrize("how", ["not recorded", "lost"])
def test_incomplete_round_is_repeated_with_its_baseline(how: str, tmp_path: Path) -> None:
    """The bed that goes on with it has no baseline yet, and one of its own."""
    folder = made_up(tmp_path / "run", Truth())
    plan = load_plan("tcp-methodology", sets=list(SETS))
    with_both_ends(folder)
    trials = plan.expand()
    assert whole_trials(folder, plan) == {one.block for one in trials}
    gone = next(one for one in trials if one.round == 1 and one.purpose == "measure")
    lines = folder.log.read_text().splitlines()
    if how == "lost":
        lines.append(json.dumps(lost_event(gone)))
    else:
        lines = [line for line in lines if f'"block": {gone.block},' not in line]
    folder.log.write_text("\n".join(lines) + "\n")
    assert whole_trials(folder, plan) == {one.block for one in trials if one.round != 1}


def lost_event(trial: Trial[Windowed]) -> dict[str, Any]:
    own = {"block": trial.block, "round": trial.round, "path": trial.device, "cell": trial.cell}
    return {"event": "lost", "part": 0, "why": "a cable was pulled", "trials": [own]}


def test_lost_trial_is_excluded_from_figures(tmp_path: Path) -> None:
    folder = made_up(tmp_path / "run", Truth())
    trials = load_plan("tcp-methodology", sets=list(SETS)).expand()
    gone = next(one for one in trials if one.round == 1 and one.factors.window == 1 and one.factors.connections == 1)
    with folder.log.open("a") as log:
        log.write(json.dumps(lost_event(gone)) + "\n")
    verdict, rows = judged(folder)
    # Of two trials a session; the one that is left of its session has no scatter, and is left out.
    assert rows["throughput", 1, 1.0]["n"] == 4
    assert "incomplete" in {one["name"] for one in verdict["findings"]}


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("study", ["tcp-methodology", "dummynet-tcp"])
def test_effective_plan_parses_to_the_same_plan(study: str, quick: bool, tmp_path: Path) -> None:
    plan = load_plan(study, quick=quick)
    path = tmp_path / "plan.toml"
    path.write_text(effective_toml(plan))
    again = load_plan(path)
    assert (again.sections, again.expand()) == (plan.sections, plan.expand())


@pytest.mark.parametrize(
    ("asked", "said"),
    [("windows.window=0", "windows.window"), ("windows.train=5ms", "windows.train"),
     ("probe.interval=10ms,20ms", "one value"), ("bed.backend=sim", "needs a kernel's TCP")],
)  # fmt: skip
def test_invalid_plans_are_refused(asked: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        load_plan("tcp-methodology", sets=[asked])
