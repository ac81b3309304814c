"""Trials and searches over simulated paths and a double of the instrument: order, repeats, bounds, every early end."""

from __future__ import annotations

import io
import json
import math
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sojourn.analysis.run import load as load_run
from sojourn.bed.model import Topology
from sojourn.conduct import Screen, conduct, create_folder, resume
from sojourn.conduct.drops import located
from sojourn.conduct.search import Bounds, LoadMissed, Reach, Terms, find, longest
from sojourn.conduct.searches import whole_searches
from sojourn.conduct.streams import whole_streams
from sojourn.conduct.tester import Outcome, is_short
from sojourn.errors import DoubtfulError, MachineError, RequestError
from sojourn.instruments import StreamInstrument
from sojourn.plan import Plan, load_plan
from sojourn.plan.trials import expand_trials
from sojourn.records import TABLES, RunFolder, read_table
from sojourn.records.folder import open_folder
from sojourn.records.log import read_log
from tests.unit.made_up_path import write_table_of

FAKE = Path(__file__).with_name("fake_instrument.py")
CAPACITY = 50_000

BED = f"""
[bed]
backend = "sim"
devices = ["bridge"]
[bed.lines.direct]
delay = {{ constant_ns = 5000 }}
[bed.lines.bridge]
delay = {{ constant_ns = 6000 }}
serialiser = {{ rate_pps = {CAPACITY}, queue_frames = 100 }}
[stream]
frame_bytes = [64]
"""

PLAN = f"""
[study]
name = "made-up"
method = "throughput"
{BED}
rate = ["1kpps", "20kpps"]
[trials]
rounds = 2
duration = "10ms"
grace = "1us"
"""

ONE_WAY = PLAN.replace("throughput", "one-way")

SEARCHES = f"""
[study]
name = "made-up"
method = "rfc2544"
{BED}
[trials]
grace = "1us"
[search]
goals = [0, 0.005]
initial_duration = "10ms"
duration = "20ms"
duration_sum = "20ms"
width = 0.01
latency_repetitions = 2
latency_duration = "20ms"
burst = "1ms"
burst_repetitions = 3
repetitions = 1
"""


@pytest.fixture(autouse=True)
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    program = tmp_path / "sojourn-instrument"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -W ignore {FAKE} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("SOJOURN_INSTRUMENT", str(program))
    schema = {name: [(one.name, one.type, one.nullable) for one in table.values()] for name, table in TABLES.items()}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    monkeypatch.setenv("FAKE_SCHEMA", str(tmp_path / "schema.json"))
    return str(program)


def plan_of(text: str, tmp_path: Path, *sets: str) -> Plan:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return load_plan(path, sets=sets)


def run(plan: Plan, tmp_path: Path) -> RunFolder:
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(io.StringIO()))
    return folder


def events(folder: RunFolder, event: str) -> list[dict[str, Any]]:
    return [entry for entry in read_log(folder.log) if entry["event"] == event]


def measured(folder: RunFolder) -> list[dict[str, Any]]:
    return [entry for entry in events(folder, "stream-trial") if entry["purpose"] == "measure"]


def test_every_trial_is_run_once_and_logged_with_its_factors(tmp_path: Path) -> None:
    plan = plan_of(PLAN, tmp_path)
    folder = run(plan, tmp_path)
    trials = expand_trials(plan)
    assert [entry["trial"] for entry in measured(folder)] == [trial.block for trial in trials]
    for entry, trial in zip(measured(folder), trials, strict=True):
        assert entry["factors"]["offered_pps"] == trial.factors.rate_pps
        assert entry["sent"][0]["asked"] == trial.count
        assert (entry["kept"], entry["missed"], entry["attempt"]) == (True, False, 1)
    assert read_log(folder.log)[-1]["event"] == "finished"
    assert set(read_table(folder.records, "streams").frame["block"]) >= {trial.block for trial in trials}


@pytest.mark.parametrize("how", ["FAKE_MISS_FIRST", "FAKE_STALL_FIRST"])
def test_trial_with_missed_load_is_repeated_as_a_new_attempt(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(how, "1")
    folder = run(plan_of(PLAN, tmp_path), tmp_path)
    first, second = measured(folder)[:2]
    assert (first["trial"], first["attempt"], first["missed"], first["kept"]) == (0, 1, True, False)
    assert (second["trial"], second["attempt"], second["missed"], second["kept"]) == (0, 2, False, True)
    assert second["block"] >= 2_000_000


def test_last_attempt_at_a_load_always_missed_is_kept_and_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MISS_ABOVE", "10000")
    plan = plan_of(PLAN, tmp_path)
    folder = run(plan, tmp_path)
    fast = [entry for entry in measured(folder) if entry["factors"]["offered_pps"] == 20_000]
    assert len(fast) == 3 * sum(trial.factors.rate_pps == 20_000 for trial in expand_trials(plan))
    assert all(entry["missed"] and entry["kept"] == (entry["attempt"] == 3) for entry in fast)
    assert whole_streams(folder) == {trial.block for trial in expand_trials(plan)}


@pytest.mark.parametrize(
    ("variable", "value", "error", "said"),
    [
        ("FAKE_DIE_AT", "3", MachineError, "the fan fell off"),
        ("FAKE_ERROR_AT", "3:4:the clock stepped", DoubtfulError, "the clock stepped"),
    ],
)
def test_run_can_be_resumed_after_a_process_died(
    variable: str, value: str, error: type[Exception], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(PLAN, tmp_path)
    monkeypatch.setenv(variable, value)
    with pytest.raises(error, match=said) as caught:
        run(plan, tmp_path)
    assert "sojourn run --resume" in str(caught.value)
    monkeypatch.delenv(variable)
    folder = open_folder(tmp_path / "run")
    assert whole_streams(folder) == {0, 1, 2}
    resume(folder, Screen(io.StringIO()))
    assert sorted(entry["trial"] for entry in measured(folder)) == [trial.block for trial in expand_trials(plan)]


def test_trial_with_records_of_only_one_end_is_incomplete(tmp_path: Path) -> None:
    """Of both ends a background load beside it may have been."""
    folder = RunFolder(tmp_path)
    folder.records.mkdir()
    told = [{"event": "stream-trial", "trial": block, "block": block, "kept": True} for block in (0, 1)]
    folder.log.write_text("".join(f"{json.dumps(one)}\n" for one in told))
    load = [{"block": 1, "purpose": "load", "role": "send"}, {"block": 1, "purpose": "load", "role": "receive"}]
    sent = [{"block": block, "purpose": "measure", "role": "send"} for block in (0, 1)]
    write_table_of(folder.records / "streams-a-000.arrow", [*sent, load[0]], "streams")
    write_table_of(folder.records / "streams-b2-000.arrow", load[1:], "streams")
    assert whole_streams(folder) == set()
    write_table_of(folder.records / "streams-b-000.arrow", [sent[0] | {"role": "receive"}], "streams")
    assert whole_streams(folder) == {0}


def test_each_session_of_streams_has_its_own_bed_and_processes(tmp_path: Path) -> None:
    plan = plan_of(ONE_WAY, tmp_path, "trials.rounds=7", "bed.sessions=3")
    folder = run(plan, tmp_path)
    streams = read_table(folder.records, "streams").frame.filter(pl.col("purpose") == "measure")
    by_part = {
        part: sorted(rows["round"].unique()) for (part,), rows in streams.partition_by("part", as_dict=True).items()
    }
    assert by_part == {0: [0, 1, 2], 1: [3, 4], 2: [5, 6]}
    assert len(events(folder, "ready")) == 3
    assert len({one["draw"]["seed"] for one in events(folder, "started")}) == 3
    assert len(events(folder, "finished")) == 1


def test_missing_streams_are_measured_on_new_beds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(ONE_WAY, tmp_path, "trials.rounds=6", "bed.sessions=3")
    monkeypatch.setenv("FAKE_DIE_AT", "12")
    with pytest.raises(MachineError, match="fan fell off"):
        run(plan, tmp_path)
    monkeypatch.delenv("FAKE_DIE_AT")
    folder = open_folder(tmp_path / "run")
    assert 0 < len(whole_streams(folder)) < len(plan.expand())
    resume(folder, Screen(io.StringIO()))
    assert sorted(one["trial"] for one in measured(folder)) == [trial.block for trial in plan.expand()]
    assert set(read_table(folder.records, "streams").frame["part"]) >= {0, 1, 2}
    assert load_run(folder.path).sessions == 3


def test_run_ended_by_time_keeps_its_complete_rounds(tmp_path: Path) -> None:
    folder = run(plan_of(PLAN, tmp_path, "trials.rounds=6", "trials.at_most=1ms"), tmp_path)
    assert load_plan(folder.plan).trials.rounds == 2
    assert events(folder, "time-is-up")[0]["asked"] == 6


def test_frames_drained_after_the_sender_ended_do_not_count_for_the_rate() -> None:
    second = 10**9
    sent = [{"sent": 4001, "first_ns": 0, "last_ns": second}]
    received = [{"first": 1001, "first_ns": second // 10, "last_ns": 21 * second // 10, "local_drops": 0, "port": 0}]
    trial: Any = None
    held = Outcome(trial, sent, received, missed=False, rate_pps=None)
    assert held.carried_pps == pytest.approx(1001 / (2 * 1001 / 1000))  # 1001 frames, 2 ms apart
    short = [{"first": 1001, "first_ns": 0, "last_ns": second // 2, "local_drops": 1000, "port": 0}]
    dropped = Outcome(trial, sent, short, missed=False, rate_pps=None)
    assert dropped.carried_pps == pytest.approx(2001 / (second * 4001 / 4000 / 1e9))


def test_relative_rate_refers_to_the_throughput_of_the_same_path(tmp_path: Path) -> None:
    folder = run(plan_of(PLAN, tmp_path, 'stream.rate=["50%"]'), tmp_path)
    (found,) = {entry["pps"] for entry in events(folder, "path-throughput") if entry["device"] == "bridge"}
    assert found == pytest.approx(CAPACITY, rel=0.01)
    rates = {entry["factors"]["offered_pps"] for entry in measured(folder) if entry["device"] == "bridge"}
    assert rates == {found / 2}


@pytest.mark.parametrize("algorithm", ["mlrsearch", "binary"])
def test_search_finds_the_rate_of_the_link(algorithm: str, tmp_path: Path) -> None:
    plan = plan_of(SEARCHES, tmp_path, f"search.algorithm={algorithm}", "search.tests=throughput")
    folder = run(plan, tmp_path)
    results = {one["goal"]: one for one in events(folder, "search-result")}
    assert results.keys() == {0, 0.005}
    for goal, one in results.items():
        assert one["lower_pps"] <= CAPACITY / (1 - goal) * 1.001
        assert one["upper_pps"] > CAPACITY
        assert (one["upper_pps"] - one["lower_pps"]) / one["upper_pps"] < 0.011
        assert not one["tester_limited"]
        assert one["tester_pps"] == pytest.approx(1e6, rel=0.01)
    steps = events(folder, "search-step")
    assert set(results[0]["trials"]) == {step["block"] for step in steps}
    assert {step["search"] for step in steps} == {0}
    assert whole_searches(folder, plan) == {search.block for search in plan.expand()}


def test_suite_measures_latency_at_the_found_throughput(tmp_path: Path) -> None:
    folder = run(plan_of(SEARCHES, tmp_path), tmp_path)
    results = {one["test"]: one for one in events(folder, "search-result") if one["goal"] in (None, 0)}
    assert results.keys() == {"throughput", "latency", "frame-loss", "back-to-back"}
    throughput = results["throughput"]["lower_pps"]
    assert results["latency"]["lower_pps"] == throughput
    assert len(results["latency"]["extra"]["delays_ns"]) == 2
    steps = results["frame-loss"]["extra"]["steps"]
    assert [step["share"] for step in steps[:3]] == [1.0, 0.9, 0.8]
    assert steps[0]["loss_ratio"] == pytest.approx(1 - CAPACITY / 1e6, abs=0.001)
    assert len([one for one in events(folder, "search-result") if one["test"] == "back-to-back"]) == 3, "whole searches"
    burst = results["back-to-back"]["extra"]
    assert burst["corrected_frames"] == pytest.approx(burst["frames"] * (1 - throughput / burst["burst_pps"]))


def test_nothing_is_measured_at_the_rate_of_another_goal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lossy = [Bounds(0.0, None, 100.0, sentence="frames are lost at every load that was tried"),
             Bounds(0.005, 40_000.0, 50_000.0)]  # fmt: skip
    monkeypatch.setattr("sojourn.conduct.searches.find", lambda *_: lossy)
    folder = run(plan_of(SEARCHES, tmp_path, 'search.tests=["throughput", "latency"]'), tmp_path)
    (latency,) = (one for one in events(folder, "search-result") if one["test"] == "latency")
    assert latency["lower_pps"] is None
    assert latency["sentence"] == "there is no throughput at 64 bytes to measure latency at"


def test_a_tester_that_ends_first_is_named_as_the_limit(tmp_path: Path) -> None:
    text = SEARCHES.replace(f"serialiser = {{ rate_pps = {CAPACITY}, queue_frames = 100 }}", "")
    folder = run(plan_of(text, tmp_path, "search.tests=throughput"), tmp_path)
    assert all(one["tester_limited"] and one["upper_pps"] is None for one in events(folder, "search-result"))


def test_path_without_replies_is_reported_and_not_searched(tmp_path: Path) -> None:
    text = SEARCHES.replace(f"rate_pps = {CAPACITY}", "rate_pps = 1")
    folder = run(plan_of(text, tmp_path, "search.tests=throughput"), tmp_path)
    (result,) = events(folder, "search-result")
    assert result["sentence"].startswith("bridge is dead: of 100 frames at 500 packets/s")
    assert result["lower_pps"] is None


def test_interrupted_search_is_repeated_and_a_finished_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(SEARCHES, tmp_path, "search.tests=throughput", "search.repetitions=2")
    monkeypatch.setenv("FAKE_ERROR_AT", "2000012:3:the disk is full")
    folder = create_folder(plan, tmp_path / "run")
    with pytest.raises(MachineError, match="the disk is full"):
        conduct(plan, folder, Screen(io.StringIO()))
    monkeypatch.delenv("FAKE_ERROR_AT")
    resume(folder, Screen(io.StringIO()))
    assert whole_searches(folder, plan) == {0, 1}
    assert len(events(folder, "search-result")) == 4, "one for each goal of each"
    blocks = [entry["block"] for entry in events(folder, "stream-trial")]
    assert len(blocks) == len(set(blocks)), "a block's number is unique in a run"


def test_a_search_whose_records_did_not_come_is_not_whole(tmp_path: Path) -> None:
    """Its result is in the log when it ends; frames and exchanges of clocks are at the ends until they are fetched."""
    plan = plan_of(SEARCHES, tmp_path, 'search.tests=["throughput", "latency"]')
    folder = run(plan, tmp_path)
    assert whole_searches(folder, plan) == {one.block for one in plan.expand()}
    [records] = folder.records.glob("streams-*.arrow")
    rows = read_table(folder.records, "streams").frame.drop("part", "who")
    last = events(folder, "search-result")[-1]["trials"][-1]
    write_table_of(records, rows.filter(pl.col("block") != last).to_dicts(), "streams")
    assert whole_searches(folder, plan) == set()


def test_each_repetition_uses_one_bed_and_the_rate_found_on_it(tmp_path: Path) -> None:
    plan = plan_of(
        SEARCHES, tmp_path, "search.repetitions=3", "bed.sessions=3", 'search.tests=["throughput", "latency"]'
    )
    folder = run(plan, tmp_path)
    part, found = 0, []
    for entry in read_log(folder.log):
        part = entry["part"] if entry["event"] == "started" else part
        if entry["event"] == "search-result" and entry["goal"] in (None, 0):
            found.append((part, entry["test"], entry["repetition"], entry["lower_pps"]))
    assert [one[:3] for one in found] == [(n, test, n) for n in range(3) for test in ("throughput", "latency")]
    assert all(at[3] == of[3] for of, at in zip(found[::2], found[1::2], strict=True))
    assert len({entry["draw"]["seed"] for entry in events(folder, "started")}) == 3


def test_interrupted_repetition_is_repeated_completely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its latency is measured at the throughput of the same bed."""
    plan = plan_of(SEARCHES, tmp_path, 'search.tests=["throughput", "latency"]', "search.repetitions=2")
    first = [one.block for one in plan.expand() if one.round == 0]
    folder = run(plan, tmp_path)
    log = [json.loads(line) for line in folder.log.read_text().splitlines()]
    last = max(
        at for at, entry in enumerate(log) if entry["event"] == "search-result" and entry["test"] == "throughput"
    )
    folder.log.write_text("".join(json.dumps(entry) + "\n" for entry in log[: last + 1]))
    assert whole_searches(folder, plan) == set(first)
    resume(folder, Screen(io.StringIO()))
    assert whole_searches(folder, plan) == {one.block for one in plan.expand()}
    again = [one for one in events(folder, "search-result") if one["test"] == "latency" and one["repetition"] == 1]
    assert [one["lower_pps"] is not None for one in again] == [True]


def test_trials_are_never_shorter_than_the_minimum_of_the_plan(tmp_path: Path) -> None:
    folder = run(plan_of(SEARCHES, tmp_path, 'search.at_most="1ms"', "search.initial_duration=5ms"), tmp_path)
    steps = [one for one in events(folder, "search-step") if one["test"] == "frame-loss"]
    assert steps
    assert min(one["duration_s"] for one in steps) >= 0.005


@dataclass(frozen=True)
class Trial:
    """A trial of a device that carries so much and no more, but for accidents."""

    frames_sent: int
    lost: int
    short: bool = False
    frames_asked: int = 0

    @property
    def frames_due(self) -> int:
        return self.frames_asked if self.short else self.frames_sent

    @property
    def loss_ratio(self) -> float:
        return self.lost / self.frames_sent


class Device:
    """A device with a known throughput; every n-th trial it loses one frame by accident."""

    def __init__(self, pps: float, *, accident_every: int = 0, tester_pps: float = math.inf) -> None:
        self.pps, self.every, self.tester_pps, self.trials = pps, accident_every, tester_pps, 0

    def __call__(self, rate_pps: float, seconds: float, *, verifies: bool = False) -> Trial:
        del verifies
        self.trials += 1
        if rate_pps > self.tester_pps:
            raise LoadMissed(rate_pps, self.tester_pps)
        sent = max(2, round(rate_pps * seconds))
        accident = self.every > 0 and self.trials % self.every == 0
        return Trial(sent, max(int(accident), math.ceil(sent * (1 - self.pps / rate_pps))))


def terms(*goals: float, **changed: Any) -> Terms:
    base = {"width": 0.005, "initial_seconds": 1.0, "final_seconds": 10.0, "sum_seconds": 10.0, "exceed_ratio": 0.5,
            "verify_loss": True, "at_most_seconds": 60.0}  # fmt: skip
    return Terms(goals=goals, **(base | changed))


def only(found: list[Bounds]) -> Bounds:
    (one,) = found
    return one


@pytest.mark.parametrize("algorithm", ["mlrsearch", "binary"])
@pytest.mark.parametrize("truth", [3_000.0, 77_777.0, 900_000.0])
def test_search_bounds_contain_the_truth(algorithm: str, truth: float) -> None:
    ndr, pdr = find(algorithm, Device(truth), 1e6, terms(0, 0.005))
    for one, highest in ((ndr, truth), (pdr, truth / 0.995)):
        assert one.lower_pps is not None
        assert one.upper_pps is not None
        assert one.lower_pps <= highest * 1.0001
        assert one.upper_pps >= highest * 0.9999
        assert one.lower_pps >= 0.994 * one.upper_pps
    assert pdr.conditional_pps == pytest.approx(truth, rel=0.006)


def test_accidental_loss_does_not_mislead_a_search_that_verifies_losses() -> None:
    verified = only(find("binary", Device(50_000, accident_every=5), 1e5, terms(0)))
    assert verified.lower_pps == pytest.approx(50_000, rel=0.006)
    taken_in = only(find("binary", Device(50_000, accident_every=5), 1e5, terms(0, verify_loss=False)))
    assert taken_in.lower_pps is not None
    assert taken_in.lower_pps < 0.99 * 50_000


@pytest.mark.parametrize("algorithm", ["mlrsearch", "binary"])
def test_load_above_the_limit_of_the_tester_is_lowered_and_not_evaluated(algorithm: str) -> None:
    found = only(find(algorithm, Device(1e9, tester_pps=97_000), 1e5, terms(0)))
    assert found.lower_pps is not None
    assert 90_000 < found.lower_pps <= 97_000
    assert found.ceiling_pps == pytest.approx(found.lower_pps)
    refused = only(find(algorithm, Device(1e9, tester_pps=0), 1e5, terms(0)))
    assert refused.lower_pps is None
    assert "stop other programs on this machine" in str(refused.sentence)


class Tiring(Device):
    """A device behind a tester that evenly sends no more than it can, and says so."""

    def __call__(self, rate_pps: float, seconds: float, *, verifies: bool = False) -> Trial:
        made = min(rate_pps, self.tester_pps)
        self.trials += 1
        sent = max(2, round(made * seconds))
        lost = max(0, math.ceil(sent * (1 - self.pps / made)))
        return Trial(sent, lost, short=made < rate_pps, frames_asked=round(rate_pps * seconds))


@pytest.mark.parametrize("algorithm", ["mlrsearch", "binary"])
def test_short_load_with_loss_is_an_upper_bound_and_one_without_is_no_lower_bound(algorithm: str) -> None:
    devices = only(find(algorithm, Tiring(50_000, tester_pps=80_000), 1e6, terms(0)))
    assert devices.lower_pps is not None
    assert devices.upper_pps is not None
    assert devices.lower_pps <= 50_000.1
    assert devices.upper_pps >= 50_000
    assert devices.upper_pps == pytest.approx(devices.lower_pps, rel=0.006)
    testers = only(find(algorithm, Tiring(1e9, tester_pps=80_000), 1e6, terms(0)))
    assert testers.lower_pps == pytest.approx(80_000, rel=0.006)
    assert testers.upper_pps is None
    assert "the tester cannot send" in str(testers.sentence)


@pytest.mark.parametrize(
    ("late", "short"),
    [({"p50": 5e6, "p99": 9.9e6, "max": 1e7}, True), ({"p50": 10, "p99": 10, "max": 1e7}, False), (None, True)],
)
def test_steadily_slow_sender_misses_its_load_and_a_paused_one_does_not(
    late: dict[str, float] | None, short: bool
) -> None:
    flow = {"intended_pps": 100.0, "achieved_pps": 90.0, "pacing_error_ns": late}
    assert is_short([flow]) is short
    assert not is_short([flow | {"achieved_pps": 99.9}])


def test_drops_at_both_ends_of_a_veth_are_counted_once() -> None:
    link = Topology.of(("bridge",), 1, 1, bypass=False).link("bridge")
    none = {"rx_packets": 0, "rx_dropped": 0, "tx_packets": 0, "tx_dropped": 0}
    counted = {port.dev: dict(none) for port in link.ports}
    near, far = link.cables
    counted[near.left.dev]["tx_dropped"] = 5
    counted[near.right.dev]["rx_dropped"] = 12
    assert located(link, counted) == {near.right.dev: {"ring": 5, "backlog": 7}}
    assert located(link, {}) == {}
    assert far.right.dev == link.b_dev


@pytest.mark.parametrize("algorithm", ["mlrsearch", "binary"])
def test_a_device_that_loses_at_any_load_has_no_throughput(algorithm: str) -> None:
    found = only(find(algorithm, Device(50_000, accident_every=1), 1e5, terms(0)))
    assert found.lower_pps is None
    assert found.sentence == "frames are lost at every load that was tried"


@pytest.mark.parametrize("algorithm", ["mlrsearch", "binary"])
@pytest.mark.parametrize("truth", [3_000.0, 77_777.0, 900_000.0])
def test_zero_loss_rate_rests_on_several_trials_without_loss(algorithm: str, truth: float) -> None:
    tried: dict[float, list[int]] = {}
    device = Device(truth, accident_every=37)

    def measure(rate_pps: float, seconds: float, *, verifies: bool = False) -> Trial:
        outcome = device(rate_pps, seconds, verifies=verifies)
        if seconds == 10.0:
            tried.setdefault(rate_pps, []).append(outcome.lost)
        return outcome

    asked = terms(0, sum_seconds=30.0, verify_loss=False, at_most_seconds=1e3)
    found = only(find(algorithm, measure, 1e6, asked))
    assert asked.trials == 3
    assert found.lower_pps is not None
    at = next(several for load, several in tried.items() if math.isclose(load, found.lower_pps, rel_tol=1e-9))
    assert (len(at), sum(at)) == (3, 0)
    assert found.lower_pps <= truth


@pytest.mark.parametrize("algorithm", ["mlrsearch", "binary"])
def test_a_device_that_loses_one_frame_in_ten_thousand_has_no_zero_loss_rate(algorithm: str) -> None:
    """All trials have more frames than that: it is reported, and no rate is made up."""

    def measure(rate_pps: float, seconds: float, *, verifies: bool = False) -> Trial:
        del verifies
        sent = round(rate_pps * seconds)
        return Trial(sent, sent // 10_000)

    ndr, pdr = find(algorithm, measure, 1e8, terms(0, 0.005, sum_seconds=20.0))
    assert ndr.lower_pps is None
    assert ndr.upper_pps is not None
    assert ndr.upper_pps < 1e8 * 1.1e-4, "down to the minimum load of a search"
    assert pdr.lower_pps == 1e8


def test_search_out_of_time_reports_bounds_of_two_long_trials() -> None:
    reach = Reach(final_seconds=10.0)
    for load, seconds, lost, short in (
        (100.0, 10.0, 0, False),
        (90.0, 1.0, 1, False),
        (85.0, 10.0, 0, True),
        (80.0, 1.0, 0, False),
        (80.0, 10.0, 0, False),
        (70.0, 10.0, 0, False),
    ):
        reach.note(load, seconds, Trial(100, lost, short=short))
    once = reach.loosely(Bounds(0.0, None, None))
    assert (once.lower_pps, once.upper_pps) == (None, 90.0), "one long trial decides nothing, nor does a short one"
    reach.note(70.0, 10.0, Trial(100, 0))
    twice = reach.loosely(Bounds(0.0, None, None))
    assert (twice.lower_pps, twice.upper_pps) == (70.0, 90.0)


@pytest.mark.parametrize("algorithm", ["mlrsearch", "binary"])
def test_search_out_of_time_reports_its_current_bounds(algorithm: str) -> None:
    found = only(find(algorithm, Device(50_000), 1e5, terms(0, at_most_seconds=1e-9)))
    assert found.lower_pps is None or found.lower_pps < 50_000
    assert "time was up" in str(found.sentence)


def test_burst_search_finds_the_longest_burst_within_the_limit() -> None:
    tried: list[int] = []

    def holds(count: int) -> bool:
        tried.append(count)
        return count <= 1000

    assert longest(holds, 100_000, 0.0) == (1000, 1001)
    assert max(tried) == 1024
    assert longest(lambda count: True, 500, 0.01) == (500, None)
    assert longest(lambda count: False, 500, 0.01) == (0, 1)


def started(fake: str, tmp_path: Path) -> StreamInstrument:
    def start(argv: list[str], **popen: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(argv, **popen)

    return StreamInstrument(start, [fake, "stream", "serve", "--record", str(tmp_path), "--name", "a"])


def test_several_ends_send_simultaneously(fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_BLOCK_SECONDS", "0.3")
    (tmp_path / "b").mkdir()
    first, second = started(fake, tmp_path), started(fake, tmp_path / "b")
    flow = {"flow": 1, "rate_pps": 100.0, "count": 10}
    for end in (first, second):
        end.send({"block": 1, "flows": [flow]})
    assert [end.sent(lambda: None)["flows"][0]["sent"] for end in (first, second)] == [10, 10]
    assert first.receive({"block": 2, "ports": [{"port": 0}]})["ports"] == [{"port": 0}]
    said = first.finish_receiving(2, [{"flow": 1, "sent": 7, "port": None}], lambda: None)
    assert said["flows"][0]["first"] == 7
    for end in (first, second):
        assert end.finish() == []


def test_error_of_a_request_is_raised_and_the_process_continues(
    fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ERROR_AT", "5:2:rate: 10 Gbit/s over a link of 1 Gbit/s")
    end = started(fake, tmp_path)
    flow = {"flow": 1, "rate_pps": 100.0, "count": 10}
    end.send({"block": 5, "flows": [flow]})
    with pytest.raises(RequestError, match="10 Gbit/s over"):
        end.sent(lambda: None)
    end.send({"block": 6, "flows": [flow]})
    assert end.sent(lambda: None)["block"] == 6
    end.finish()


def test_process_death_is_reported_with_its_last_message(
    fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DIE_AT", "5")
    end = started(fake, tmp_path)
    end.send({"block": 5, "flows": [{"flow": 1, "rate_pps": 100.0, "count": 10}]})
    with pytest.raises(MachineError, match="the fan fell off"):
        end.sent(lambda: None)
    end.kill()
