"""The orchestrator over simulated lines and a double of the instrument: what is recorded, every way to end early."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import re
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed.backend import Usage
from sojourn.bed.backends.local import LocalMachine
from sojourn.conduct import Interrupted, Screen, conduct, create_folder, resume
from sojourn.conduct.archive import Log, asked_in
from sojourn.conduct.blocks import probed_blocks
from sojourn.conduct.bound import require_same
from sojourn.conduct.cores import cores_of
from sojourn.conduct.draw import Draw
from sojourn.conduct.neighbours import contention
from sojourn.conduct.remaining import next_bed, next_part, recorded_parts, run_seed
from sojourn.conduct.run import held_by_any
from sojourn.errors import DoubtfulError, MachineError, RequestError
from sojourn.instruments import blocks
from sojourn.plan import Plan, load_plan
from sojourn.plan.types import DRAWN
from sojourn.records import TABLES, RunFolder, read_table
from sojourn.records.folder import open_folder
from sojourn.records.log import read_log
from sojourn.records.lost import lost_trials
from sojourn.records.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable

FAKE = Path(__file__).with_name("fake_instrument.py")
ONE_BED = ("bed.sessions=1", "bed.twins=false")
SMALL = ("rounds=2", "devices=bridge", "icmp_bytes=64", "probes_per_block=6", "warmup_probes=1", *ONE_BED)


@pytest.fixture(autouse=True)
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sojourn-instrument"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -W ignore {FAKE} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("SOJOURN_INSTRUMENT", str(program))
    schema = {name: [(one.name, one.type, one.nullable) for one in table.values()] for name, table in TABLES.items()}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    monkeypatch.setenv("FAKE_SCHEMA", str(tmp_path / "schema.json"))


def small(*sets: str) -> Plan:
    return load_plan("bridge-latency", quick=True, backend="sim", sets=[*SMALL, *sets])


def silent() -> Screen:
    return Screen(io.StringIO())


def events(folder: RunFolder) -> list[str]:
    return [entry["event"] for entry in read_log(folder.log)]


def recorded(folder: RunFolder) -> list[int]:
    blocks: list[int] = read_table(folder.records, "blocks").frame["block"].to_list()
    return blocks


def test_run_records_every_block_and_logs_its_end(tmp_path: Path) -> None:
    plan = small()
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, silent())
    assert recorded(folder) == [block.block for block in plan.expand()]
    assert events(folder)[0] == "started"
    assert events(folder)[-1] == "finished"
    log = read_log(folder.log)
    assert all(one["monotonic_raw_ns"] <= two["monotonic_raw_ns"] for one, two in itertools.pairwise(log))
    assert log[0]["blocks"] == 12
    bed = json.loads(folder.bed.read_text())
    assert bed["parts"][0].keys() == {"part", "before", "after"}
    assert bed["lines"].keys() == {"direct", "wire", "bridge"}


def test_requests_to_the_instrument_follow_the_plan(tmp_path: Path) -> None:
    plan = small()
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, silent())
    blocks = read_table(folder.records, "blocks").frame.to_dicts()
    for asked, block in zip(blocks, plan.expand(), strict=True):
        assert (asked["device"], asked["round"], asked["visit"]) == (block.device, block.round, block.visit)
        assert (asked["count"], asked["warmup"], asked["interval_ns"]) == (6, 1, 250_000)
        assert asked["request_payload_bytes"] == 56


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("FAKE_DIE_AT", "5", "the fan fell off"),
        ("FAKE_ERROR_AT", "5:3:write probes-000.arrow: No space left on device", "No space left on device"),
    ],
)
def test_instrument_death_is_one_sentence_and_the_run_can_be_resumed(
    variable: str, value: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = small()
    folder = create_folder(plan, tmp_path / "run")
    monkeypatch.setenv(variable, value)
    with pytest.raises(MachineError, match=said) as caught:
        conduct(plan, folder, silent())
    assert f"sojourn run --resume {folder.path}" in str(caught.value)
    assert recorded(folder) == [0, 1, 2, 3, 4]
    assert events(folder)[-1] == "failed"
    monkeypatch.delenv(variable)
    resume(open_folder(folder.path), silent())
    assert sorted(recorded(folder)) == [block.block for block in plan.expand()]
    assert next_part(folder) == 2
    assert events(folder)[-1] == "finished"
    resume(open_folder(folder.path), silent())
    assert next_part(folder) == 2  # nothing was owed, so nothing was measured


def test_resume_removes_results_of_the_incomplete_run_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = small()
    folder = create_folder(plan, tmp_path / "run")
    monkeypatch.setenv("FAKE_DIE_AT", "5")
    with pytest.raises(MachineError):
        conduct(plan, folder, silent())
    folder.analysis.write_text("no folder")
    with pytest.raises(MachineError, match=r"analysis cannot be removed: Not a directory: remove it; .*; go on with"):
        resume(open_folder(folder.path), silent())
    folder.analysis.unlink()
    folder.samples.mkdir(parents=True)
    for made in (folder.results, folder.verdict):
        made.write_text("{}")
    with pytest.raises(MachineError):
        resume(open_folder(folder.path), silent())
    assert not folder.analysis.exists(), "it is gone before the end"
    monkeypatch.delenv("FAKE_DIE_AT")
    resume(open_folder(folder.path), silent())
    assert events(folder)[-1] == "finished"
    folder.analysis.mkdir()
    folder.verdict.write_text("{}")
    resume(open_folder(folder.path), silent())
    assert folder.verdict.exists(), "nothing was measured: it is of the whole run"


def test_instrument_that_hangs_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = small()
    folder = create_folder(plan, tmp_path / "run")
    monkeypatch.setenv("FAKE_STOP_AT", "5")
    allowed = blocks.longest_seconds  # of the other blocks: a busy machine may take it
    monkeypatch.setattr(
        blocks, "longest_seconds", lambda request: allowed(request) - (27 if request["block"] == 5 else 0)
    )
    with pytest.raises(MachineError, match=r"does not answer for [34] s: is the machine overloaded") as caught:
        conduct(plan, folder, silent())
    assert f"sojourn run --resume {folder.path}" in str(caught.value)
    assert recorded(folder) == [0, 1, 2, 3, 4]
    monkeypatch.delenv("FAKE_STOP_AT")
    resume(open_folder(folder.path), silent())
    assert sorted(recorded(folder)) == [block.block for block in plan.expand()]


def test_a_run_of_an_earlier_version_is_resumed(tmp_path: Path) -> None:
    plan = small("probe.schedule=closed-loop", "study.hypotheses=constant-plus-per-byte")
    folder = create_folder(plan, tmp_path / "run")
    folder.plan.write_text(
        folder.plan.read_text().replace("\nhypotheses = ", "\nlaws = ").replace('"closed-loop"', '"as-answered"')
    )
    assert "\nlaws = " in folder.plan.read_text()
    assert '"as-answered"' in folder.plan.read_text()
    resume(folder, silent())
    assert recorded(folder) == [block.block for block in plan.expand()]


def test_a_wrong_request_keeps_its_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ERROR_AT", "0:2:count: expected 1 to 10")
    plan = small()
    with pytest.raises(RequestError, match="count: expected 1 to 10"):
        conduct(plan, create_folder(plan, tmp_path / "run"), silent())


def test_truncated_record_is_measured_again(tmp_path: Path) -> None:
    plan = small()
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, silent())
    path = folder.records / "probes-000.arrow"
    octets = path.read_bytes()
    path.write_bytes(octets[: len(octets) * 2 // 3])
    done = probed_blocks(folder)
    assert 0 < len(done) < 12
    resume(folder, silent())
    assert probed_blocks(folder) == set(range(12))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_run_cleanly_and_prints_how_to_resume(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_BLOCK_SECONDS", "0.2")
    plan = small()
    folder = create_folder(plan, tmp_path / "run")
    threading.Thread(target=send_when_blocks_are_there, args=(folder, number), daemon=True).start()
    with pytest.raises(
        Interrupted, match=r"interrupted; what was measured is in .*run; go on with: sojourn run --resume"
    ):
        conduct(plan, folder, silent())
    assert 0 < len(recorded(folder)) < 12
    assert events(folder)[-1] == "interrupted"
    (part,) = json.loads(folder.bed.read_text())["parts"]
    assert (part["part"], part["after"]) == (0, None)
    assert part["before"]["load_average"]


def send_when_blocks_are_there(folder: RunFolder, number: signal.Signals) -> None:
    while "block" not in events(folder):
        time.sleep(0.02)
    os.kill(os.getpid(), number)


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = small()
    folder = create_folder(plan, tmp_path / "run")
    full = Path("/dev/full").open("a", encoding="utf-8")  # noqa: SIM115 - the log closes it
    monkeypatch.setattr("sojourn.conduct.archive.continued", lambda _: full)
    with pytest.raises(DoubtfulError, match=r"the disk of .* is full: make room, then go on with"):
        conduct(plan, folder, silent())


def test_existing_folder_is_never_overwritten(tmp_path: Path) -> None:
    plan = small()
    (tmp_path / "empty").mkdir()
    create_folder(plan, tmp_path / "empty")
    with pytest.raises(RequestError, match="exists and is not an empty folder"):
        create_folder(plan, tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    with pytest.raises(RequestError, match="exists and is not an empty folder"):
        create_folder(plan, tmp_path / "file")
    with pytest.raises(MachineError, match="cannot be made \\(Not a directory\\)"):
        create_folder(plan, tmp_path / "file" / "below")
    with pytest.raises(RequestError, match="is no run folder"):
        open_folder(tmp_path)


def test_missing_instrument_is_reported_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOJOURN_INSTRUMENT", str(tmp_path / "nowhere"))
    plan = small()
    with pytest.raises(MachineError, match=r"SOJOURN_INSTRUMENT=.* is no program"):
        conduct(plan, create_folder(plan, tmp_path / "run"), silent())


def test_program_that_is_not_an_instrument_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOJOURN_INSTRUMENT", "/bin/echo")
    plan = small()
    with pytest.raises(MachineError, match="gave an invalid answer"):
        conduct(plan, create_folder(plan, tmp_path / "run"), silent())


def test_log_continues_after_a_truncated_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"event": "started"}\n{"event": "blo')
    with Log(path) as log:
        log("again", n=1)
    assert [entry["event"] for entry in read_log(path)] == ["started", "again"]


def test_prober_and_responder_get_different_valid_cores() -> None:
    usable = sorted(os.sched_getaffinity(0))
    chosen = cores_of(replace(load_plan("bridge-latency").host, prober_cpu=None), usable)
    assert {chosen.prober, chosen.responder} <= set(usable)
    assert chosen.prober != chosen.responder or len(usable) == 1
    with pytest.raises(RequestError, match=r"host\.prober_cpu = 4095: expected one of the cores"):
        cores_of(replace(load_plan("bridge-latency").host, prober_cpu=4095), usable)
    drawn = {cores_of(load_plan("bridge-latency").host, [0, 1, 2], random.Random(seed)) for seed in range(20)}
    assert drawn == {(1, 2), (2, 1)}
    own = replace(load_plan("bridge-latency").host, responder_cpu=2)
    assert all(cores_of(own, [0, 1, 2, 3], random.Random(seed)).prober != 2 for seed in range(20))
    with LocalMachine().without(usable[0]):
        assert usable[0] not in os.sched_getaffinity(0) or len(usable) == 1
    assert sorted(os.sched_getaffinity(0)) == usable


def test_progress_off_a_terminal_is_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    stream = io.StringIO()
    screen = Screen(stream)
    screen.begin(100)
    for _ in range(60):
        now += 0.125
        screen.step()
    screen.end()
    assert stream.getvalue() == "measured 40 of 100 trials in 5 s, about 8 s left\n"


def test_run_ended_by_time_keeps_its_complete_rounds(tmp_path: Path) -> None:
    plan = small("rounds=20", "at_most=1ms")
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, silent())
    assert load_plan(folder.plan).pairs.rounds == 8
    assert recorded(folder) == [block.block for block in load_plan(folder.plan).expand()]
    assert "time-is-up" in events(folder)
    assert events(folder)[-1] == "finished"
    asked = asked_in(folder.plan)
    assert asked[:2] == ["--quick", "--bed sim"]
    assert asked[-1] == "pairs.rounds = 20; the time of pairs.at_most was up after 8"


def test_each_session_has_its_own_bed_and_share_of_the_rounds(tmp_path: Path) -> None:
    plan = small("rounds=7", "bed.sessions=3", "bed.twins=true")
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, silent())
    blocks = read_table(folder.records, "blocks").frame
    assert sorted(blocks["block"]) == [block.block for block in plan.expand()]
    by_part = {
        part: sorted(rows["round"].unique()) for (part,), rows in blocks.partition_by("part", as_dict=True).items()
    }
    assert by_part == {0: [0, 1, 2], 1: [3, 4], 2: [5, 6]}
    assert set(blocks["device"]) == {"direct", "a/a", "bridge", "bridge/2"}
    log = read_log(folder.log)
    assert [one["event"] for one in log].count("finished") == 1
    assert log[-1]["event"] == "finished"
    assert len({one["draw"]["environment_bytes"] for one in log if one["event"] == "started"}) == 3
    assert not [one for one in log if one["event"] == "bed-changed"]
    assert [one["part"] for one in json.loads(folder.bed.read_text())["parts"]] == [0, 1, 2]


def test_time_limit_is_divided_among_the_sessions(tmp_path: Path) -> None:
    plan = small("rounds=20", "at_most=1ms", "bed.sessions=4")
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, silent())
    blocks = read_table(folder.records, "blocks").frame
    assert sorted(blocks.unique(["part", "round"])["part"]) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert load_plan(folder.plan).pairs.rounds == 8


@pytest.mark.parametrize(("rounds", "beds"), [(1, 1), (3, 1), (5, 2), (12, 3)])
def test_each_session_has_two_rounds_at_least(tmp_path: Path, rounds: int, beds: int) -> None:
    plan = small(f"rounds={rounds}", "bed.sessions=3")
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, silent())
    by_part = read_table(folder.records, "blocks").frame.unique(["part", "round"])["part"].value_counts()["count"]
    assert len(by_part) == beds
    assert min(by_part) >= min(2, rounds)


def test_missing_sessions_are_measured_on_new_beds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = small("rounds=6", "bed.sessions=3")
    folder = create_folder(plan, tmp_path / "run")
    monkeypatch.setenv("FAKE_DIE_AT", "14")
    with pytest.raises(MachineError, match="fan fell off"):
        conduct(plan, folder, silent())
    monkeypatch.delenv("FAKE_DIE_AT")
    resume(folder, silent())
    blocks = read_table(folder.records, "blocks").frame
    assert set(blocks["block"]) == {block.block for block in plan.expand()}
    assert set(blocks["part"]) == {0, 1, 2}
    assert events(folder)[-1] == "finished"


@pytest.mark.parametrize(("key", "study"), [("bed.sessions=2", "tcplog-truth"), ("bed.twins=true", "aqm")])
def test_method_without_support_for_beds_or_second_instances_refuses_them(key: str, study: str) -> None:
    with pytest.raises(RequestError, match=rf"{key.partition('=')[0]}.* for"):
        load_plan(study, sets=[key])


def test_failed_write_keeps_the_previous_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_whole(path, "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "old"
    assert list(tmp_path.glob(".*")) == []


def test_cpu_time_of_others_is_distinguished_from_ours() -> None:
    before = LocalMachine().usage()
    spin = "import time\nwhile time.process_time() < 0.5: pass"
    own = subprocess.Popen([sys.executable, "-c", spin])
    own.wait()
    after = LocalMachine().usage()
    assert after.ours - before.ours > 0.3
    quiet = Usage(0.0, 10.0, 0.0, 5.0)
    assert contention(quiet, Usage(10.0, 20.0, 0.0, 14.5)).others_cores == pytest.approx(0.05)
    assert not contention(quiet, Usage(10.0, 20.0, 0.0, 14.5)).is_worth_telling
    assert contention(quiet, Usage(10.0, 25.0, 0.0, 5.0)).sentence.startswith("other programs took 1.5 of")
    assert contention(quiet, Usage(10.0, 15.0, 0.5, 10.0)).is_worth_telling


HELD = 'bed.hold=["layout", "addresses", "processes", "cores", "order"]'


def test_held_factors_are_drawn_once_and_others_for_each_bed(tmp_path: Path) -> None:
    plain, held = (small("rounds=6", "bed.sessions=3", *more) for more in ((), (HELD,)))
    drawn = {}
    for name, plan in (("plain", plain), ("held", held)):
        folder = create_folder(plan, tmp_path / name)
        conduct(plan, folder, silent())
        drawn[name] = [one["draw"] for one in read_log(folder.log) if one["event"] == "started"]
    kept = ("layout", "addresses", "environment_bytes")
    assert [len({draw[key] for draw in drawn["plain"]}) for key in kept] == [3, 3, 3]
    assert [len({draw[key] for draw in drawn["held"]}) for key in kept] == [1, 1, 1]
    assert {tuple(draw["held"]) for draw in drawn["held"]} == {("layout", "addresses", "processes", "cores", "order")}
    assert len({draw["seed"] for draw in drawn["held"]}) == 3


def test_each_factor_can_be_held_separately() -> None:
    told = {what: [Draw(seed, 99, (what,)) for seed in range(8)] for what in (*DRAWN, "")}
    values: dict[str, Callable[[Draw], object]] = {
        "layout": lambda draw: draw.layout,
        "addresses": lambda draw: draw.addresses,
        "processes": lambda draw: draw.environment_bytes,
        "cores": lambda draw: tuple(draw.cores.sample(range(8), 8)),
    }
    for held, draws in told.items():
        for what, value in values.items():
            assert (len({value(draw) for draw in draws}) == 1) == (what == held), (what, held)
    assert {held for held, draws in told.items() if draws[0].command(["x"]) != ["x"]} == {"aslr"}


def test_held_order_of_paths_is_the_same_in_all_rounds() -> None:
    def orders(*sets: str) -> set[tuple[str, ...]]:
        plan = small("rounds=12", "bed.sessions=3", "devices=wire,bridge", *sets)
        by_round = itertools.groupby(plan.expand(), key=lambda trial: (trial.round, trial.visit))
        return {tuple(trial.device for trial in several) for (_, visit), several in by_round if visit == 0}

    assert len(orders()) > 3
    assert len(orders('bed.hold=["order"]')) == 1


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (['bed.hold=["moon"]', "bed.sessions=3"], 'each "layout" or "addresses" or "processes"'),
        (['bed.hold=["layouts"]', "bed.sessions=3"], 'did you mean "layout"'),
        (['bed.hold=["layout"]'], "bed.sessions = 1: expected 2 or more, because bed.hold is set"),
    ],
)
def test_factors_that_cannot_be_held_are_refused(sets: list[str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        small(*sets)


def test_held_factors_of_all_beds_are_known_before_the_first_measurement() -> None:
    plan = load_plan("variance", quick=True, backend="sim")
    trials = plan.expand()
    of_first = frozenset(plan.ask.hold(plan, trials[0]))
    assert of_first < held_by_any(plan, trials) == frozenset(plan.variance.factors)
    assert held_by_any(small('bed.hold=["aslr"]', "bed.sessions=3", "rounds=6"), small().expand()) == {"aslr"}
    assert held_by_any(small(), small().expand()) == frozenset()


def test_simulated_bed_cannot_hold_the_address_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its times are none of the machine's, so it needs no setarch."""
    monkeypatch.setattr("sojourn.conduct.draw.FIXED", ("there-is-no-such-program",))
    plan = small('bed.hold=["aslr"]', "bed.sessions=3", "rounds=6")
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, silent())
    assert "finished" in events(folder)


def test_simulated_delay_can_depend_on_one_drawn_factor() -> None:
    of = [[Draw(seed, 99, held).offset_ns("a", 100.0, "cores") for seed in range(4)] for held in ((), ("cores",))]
    assert (len(set(of[0])), len(set(of[1]))) == (4, 1)


def test_resumed_run_keeps_the_held_factors_of_its_first_beds(tmp_path: Path) -> None:
    log = tmp_path / "run" / "log.jsonl"
    log.parent.mkdir()
    log.write_text(json.dumps({"event": "started", "part": 4, "bed": 1, "draw": {"run_seed": 7}}) + "\n")
    folder = RunFolder(log.parent)
    assert (run_seed(folder), next_bed(folder, 5)) == (7, 2)


def test_held_address_space_is_not_randomised() -> None:
    shown = {
        held: subprocess.run(
            Draw(1, 2, held).command(["cat", "/proc/self/personality"]), check=False, capture_output=True, text=True
        )
        for held in ((), ("aslr",))
    }
    if "failed to set personality" in shown["aslr",].stderr:
        pytest.skip("this machine lets nobody hold an address space")
    random_at_will, held = (int(one.stdout, 16) & 0x0040000 for one in shown.values())
    assert (random_at_will, held) == (0, 0x0040000)


def test_number_of_a_part_without_records_is_not_reused(tmp_path: Path) -> None:
    folder = create_folder(small(), tmp_path / "run")
    with Log(folder.log) as log:
        log("started", part=0)
        log("begun", part=0, trial=0)
        log("failed")
    assert recorded_parts(folder) == set()
    assert next_part(folder) == 1
    resume(open_folder(folder.path), silent())
    assert events(folder)[-1] == "finished"
    (lost,) = lost_trials(read_log(folder.log))
    assert (lost.block, lost.part, lost.again) == (0, 0, True)


def begun_only(tmp_path: Path) -> RunFolder:
    """A run of which one trial has begun."""
    folder = create_folder(small(), tmp_path / "run")
    with Log(folder.log) as log:
        log("started", part=0)
        log("begun", part=0, trial=0)
    return folder


def test_run_whose_hosts_are_in_use_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the one that holds them."""
    folder = begun_only(tmp_path)
    before = folder.log.read_bytes()

    def refuse(*_: object) -> None:
        raise MachineError("host A is held by run 1")

    monkeypatch.setattr(LocalMachine, "hold", refuse)
    with pytest.raises(MachineError, match="held by run 1; go on with"):
        resume(open_folder(folder.path), silent())
    assert folder.log.read_bytes() == before


def test_finished_run_is_not_modified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder may be read-only."""
    folder = create_folder(small(), tmp_path / "run")
    conduct(small(), folder, silent())

    def refuse(path: Path) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr("sojourn.conduct.run.Log", refuse)
    resume(open_folder(folder.path), silent())


def test_run_is_not_resumed_on_another_bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = create_folder(small(), tmp_path / "run")
    monkeypatch.setenv("FAKE_DIE_AT", "5")
    with pytest.raises(MachineError):
        conduct(small(), folder, silent())
    monkeypatch.delenv("FAKE_DIE_AT")
    had = recorded(folder)
    program = Path(os.environ["SOJOURN_INSTRUMENT"])
    program.write_text(program.read_text() + "# another build\n")
    with pytest.raises(
        RequestError, match=r"run was begun on another bed \(the instrument is not the one that it was\)"
    ):
        resume(open_folder(folder.path), silent())
    assert recorded(folder) == had
    program.write_text(program.read_text().removesuffix("# another build\n"))
    resume(open_folder(folder.path), silent())
    assert events(folder)[-1] == "finished"


PATHS: dict[str, Any] = {"direct": {"a": ["eth1"], "b": ["eth1"]}, "bridge": {"a": ["eth2"], "b": ["eth2", "eth3"]}}
BED = {"version": "1.0", "instrument": "aa", "hosts": {"a": "11", "device": "22"}, "paths": PATHS}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"hosts": {"a": "33", "device": "22"}}, "host A is another machine"),
        ({"hosts": {"a": "11", "device": "33"}}, "host device is another machine"),
        ({"paths": {**PATHS, "direct": {"a": ["eth7"], "b": ["eth1"]}}},
         "the ports of host A, of path direct were eth1 and are eth7"),
        ({"paths": {**PATHS, "bridge": {"a": ["eth2"], "b": ["eth3", "eth2"]}}},
         "the ports of host B, of path bridge were eth2, eth3 and are eth3, eth2"),
        ({"paths": {"direct": PATHS["direct"]}}, "path bridge is gone"),
        ({"version": "1.1", "instrument": "bb"}, "Sojourn was 1.0, is 1.1"),
        ({"version": "1.1"}, "Sojourn was 1.0, is 1.1"),
        ({"instrument": "bb"}, "the instrument is not the one that it was"),
        ({"hosts": {"a": "33"}, "instrument": "bb"},
         "host A is another machine; the instrument is not the one that it was"),
    ],
)  # fmt: skip
def test_error_names_the_difference_between_beds(other: dict[str, Any], said: str) -> None:
    require_same(BED, BED, Path("run"))
    require_same({}, BED, Path("run"))
    earlier = {"direct": {"a": "eth1", "b": "eth1", "left": None}}  # a run of a version with one port at an end
    now = {"direct": {"a": ["eth1"], "b": ["eth1"], "left": []}}
    require_same(BED | {"paths": earlier}, BED | {"paths": now}, Path("run"))
    further = {"direct": PATHS["direct"], "bridge": {"a": ["eth2", "eth4"], "b": ["eth2"]}, "route": PATHS["bridge"]}
    require_same(BED, BED | {"paths": further}, Path("run"))
    with pytest.raises(
        RequestError, match=re.escape(f"run was begun on another bed ({said}): go on with it there")
    ) as refused:
        require_same(BED, BED | other, Path("run"))
    assert refused.value.status == 2
