"""Studies of the emulator and `emulate verify` over a real bed: what they say, how long they take, what they leave.

Times are judged generously: these machines share their cores with whatever else runs. What is exact (dispositions,
sums, the replay) is judged exactly.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import sojourn
from sojourn.bed.clean import marked_processes
from sojourn.bed.state import state_folder
from sojourn.methods.emulator import verifying
from sojourn.records import read_table
from sojourn.records.log import read_log
from tests.net.busy_machine import await_that, retried, slowdown, thrice, undisturbed
from tests.net.test_kill_commands import expect_nothing_left_of, on_the_machine

if TYPE_CHECKING:
    from collections.abc import Callable
from tests.net.here import sojourn_here

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: XDP programs, and processes of other namespaces"),
]

MAIN = "import sys; from sojourn.cli import main; sys.argv[0] = 'sojourn'; main()"
PACKAGE = Path(sojourn.__file__).parent.parent
QUICK_SECONDS = 60.0
LIMIT_S = 2.0
PROGRAMS_S = 30.0
EARLY_NS = 50_000
GENEROUS = ("offset=2ms", "p50=2ms", "p999=100ms", "cdf=0.5", "rate=0.02")
IMPOSSIBLE = "p99=1ns"


FEW_PACKETS = 2
"""A verification sends 10 packets beyond the 99.9th percentile: 22 s of them. With 2, nothing else is different."""


def argv(*words: str | Path) -> list[str]:
    return [sys.executable, "-c", MAIN, *map(str, words)]


def events(folder: Path, event: str) -> list[dict[str, Any]]:
    return [entry for entry in read_log(folder / "log.jsonl") if entry["event"] == event]


def packets(folder: Path) -> pl.DataFrame:
    return read_table(folder / "records", "packets").frame


def measured(folder: Path) -> list[dict[str, Any]]:
    trials = events(folder, "stream-trial")
    return [one for one in trials if one["purpose"] == "measure" and one["kept"]]


def expect_whole(folder: Path) -> None:
    """Every trial over the emulator has its pipe, its summary, its packets; and the replay is identical."""
    paths = [one for one in measured(folder) if one["device"] == "emulate"]
    blocks = {one["block"] for one in paths}
    sets = {one["block"]: one["to"] for one in events(folder, "emulator-set") if one["pipe"] == "forward"}
    assert blocks <= sets.keys()
    assert blocks <= {one["block"] for one in events(folder, "emulator")}
    rows = packets(folder).filter(pl.col("block").is_in(list(blocks)), pl.col("direction") == "forward")
    counted = dict(rows.group_by("block").len().iter_rows())
    for trial in paths:
        sent = sum(flow["sent"] for flow in trial["sent"])
        assert counted[trial["block"]] == sent, f"block {trial['block']}"
    replays = events(folder, "emulator-replay")
    assert len(replays) == len(events(folder, "started")), "each bed's emulator has its own log"
    assert {(one["identical"], one["dispositions"], one["drawn"], one["intended"]) for one in replays} == {
        (True, 0, 0, 0)
    }


def shorter(pipes: str, rounds: int) -> pytest.MarkDecorator:
    """A study's `--quick` with few pipes and rounds; all of it in `make proof`."""
    few = ("--set", f"stream.pipe={pipes}", "--set", f"trials.rounds={rounds}", "--set", "emulate.spin=false")
    return pytest.mark.parametrize("sets", [few, pytest.param((), marks=pytest.mark.proof)], ids=["short", "whole"])


@shorter('["delay 1ms", "delay 25ms"]', 2)
@thrice
def test_the_study_of_delays_measures_each_of_them(sets: tuple[str, ...], tmp_path: Path) -> None:
    longest_s = 2 * QUICK_SECONDS * slowdown()
    began = time.monotonic()
    done = sojourn_here("run", "emulator-delay", "--quick", "--out", "out", "--no-report", *sets, cwd=tmp_path)
    took = time.monotonic() - began
    assert done.returncode in {0, 4}, done.stderr
    folder = tmp_path / "out"
    expect_whole(folder)
    assert took < longest_s
    rows = packets(folder).filter(
        pl.col("disposition") == "sent", pl.col("direction") == "forward", pl.col("block") >= 0
    )
    for trial in measured(folder):
        if trial["device"] != "emulate":
            continue
        of = rows.filter(pl.col("block") == trial["block"])
        wanted = int(float(trial["factors"]["pipe"].removeprefix("delay ").removesuffix("ms")) * 1e6)
        intended = of["intended_ns"] - of["arrival_ns"]
        assert set(intended.to_list()) == {wanted}
        received = trial["received"][0]
        assert received["lost"] == 0
        with undisturbed():
            assert abs((of["departure_ns"] - of["arrival_ns"]).median() - wanted) < 1e6  # type: ignore[operator]
        # It sends as much earlier as sending took before, so that a frame is there on time, and not just called for.
        assert received["delay_ns"]["min"] > wanted - EARLY_NS


@shorter('["loss 7%", "loss 95%"]', 1)
@retried
def test_study_of_losses_measures_the_configured_losses(sets: tuple[str, ...], tmp_path: Path) -> None:
    done = sojourn_here("run", "emulator-loss", "--quick", "--out", "out", "--no-report", *sets, cwd=tmp_path)
    assert done.returncode in {0, 4}, done.stderr
    folder = tmp_path / "out"
    expect_whole(folder)
    rows = packets(folder).filter(pl.col("direction") == "forward")
    for trial in measured(folder):
        sent, received = sum(flow["sent"] for flow in trial["sent"]), trial["received"][0]["first"]
        if trial["device"] == "emulate":
            lost = rows.filter(pl.col("block") == trial["block"], pl.col("cause") == "before").height
            with undisturbed():  # what a busy machine delays beyond the grace period is neither received nor lost
                assert sent - received == lost, f"block {trial['block']}"
        else:
            with undisturbed():  # a receiver that was held up may drop
                assert sent == received


@pytest.mark.parametrize(
    "tail_packets",
    [FEW_PACKETS, pytest.param(verifying.TAIL_PACKETS, marks=pytest.mark.proof)],
    ids=["short", "whole"],
)
@retried
def test_verify_prints_configured_and_measured_values_and_fails_impossible_limits(
    tail_packets: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "TAIL_PACKETS", tail_packets)
    limits = [word for limit in (*GENEROUS, IMPOSSIBLE) for word in ("--limit", limit)]
    done = sojourn_here("emulate", "verify", "--delay", "1ms", "--quick", "--out", "out", *limits, cwd=tmp_path)
    assert done.returncode == 4, done.stdout + done.stderr
    expect_whole(tmp_path / "out")
    verdict = json.loads((tmp_path / "out/analysis/verdict.json").read_text())
    failed = {check["check"] for check in verdict["checks"] if check["verdict"] == "fail"}
    assert "departure, p99" in failed, verdict["checks"]
    with undisturbed():
        assert failed <= {"departure, p99", "delay, p99"}, done.stdout
    assert "pass" in {check["verdict"] for check in verdict["checks"]}
    assert "oracle replay" in done.stdout
    assert "asked: emulate verify delay 1ms --quick" in (tmp_path / "out/plan.toml").read_text()


@pytest.mark.alone  # it looks at all programs that the kernel holds
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("emulate", "verify", "delay 1parsec"), "1parsec"),
        (("emulate", "verify", "--rate", "10Mbit/s", "--loss", "200%"), "200"),
        (("emulate", "verify", "none.toml"), "none.toml"),
        (("run", "emulator-delay", "--quick", "--set", 'stream.pipe=["delay 1ms", "dealy 2ms"]'), "dealy"),
    ],
)
def test_invalid_configuration_is_refused_in_one_sentence_and_leaves_nothing(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    before = programs()
    done = sojourn_here(*words, "--out", "out", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("sojourn: ")]
    assert len(told) == 1
    assert said in told[0]
    assert "Traceback" not in done.stderr
    expect_no_program_beside(before)


NEXT_PROGRAM, BPF = 11, {"x86_64": 321, "aarch64": 280}[os.uname().machine]


def programs() -> set[int]:
    """Every program that the kernel holds, whoever loaded it."""
    kernel, found = ctypes.CDLL(None, use_errno=True), set[int]()
    attribute = (ctypes.c_uint32 * 32)()
    while kernel.syscall(BPF, NEXT_PROGRAM, attribute, 12) == 0:
        found.add(attribute[1])
        attribute[0] = attribute[1]
    return found


def expect_no_program_beside(before: set[int]) -> None:
    """The kernel frees programs some time after their last holder; those of others come and go."""
    deadline = time.monotonic() + PROGRAMS_S
    ours = programs() - before
    while ours := ours & programs():
        assert time.monotonic() < deadline, f"programs {ours}"
        time.sleep(0.05)


def left_of(controller: int) -> list[str]:
    found = [f"process {one.pid}" for one, mark in marked_processes() if mark.controller.pid == controller]
    return found + [str(path) for path in state_folder().glob(f"*@{controller}-*")]


@pytest.mark.parametrize("kills", [1, pytest.param(4, marks=pytest.mark.proof)])
@thrice
def test_a_killed_run_leaves_nothing(kills: int, tmp_path: Path, proven: Callable[..., None]) -> None:
    seed = int(os.environ.get("SOJOURN_SEED", random.SystemRandom().randrange(2**32)))
    moments = random.Random(seed)
    before, kept = programs(), on_the_machine()
    for attempt in range(kills):
        out = tmp_path / f"out{attempt}"
        process = subprocess.Popen(
            argv("run", "emulator-delay", "--quick", "--out", out, "--no-report"),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while not (out / "log.jsonl").is_file() or not events(out, "emulator-ready"):
            assert process.poll() is None, f"seed {seed}"
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert any(path.suffix == ".sock" for path in state_folder().glob(f"*@{process.pid}-*"))
        time.sleep(moments.uniform(0, 3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        killed = time.monotonic()
        await_that(partial(is_gone, process.pid), f"nothing left; seed {seed}")
        with undisturbed():
            assert time.monotonic() - killed < 2 * LIMIT_S, f"seed {seed}"
        expect_nothing_left_of(process.pid, kept)
        expect_no_program_beside(before)
    proven("kills", "runs of a study with an emulator", kills=kills)


def is_gone(controller: int) -> bool:
    return not left_of(controller)


RATED = """
[study]
name = "rated"
method = "pairs"
[bed]
devices = ["bridge", "bridge:mixed"]
link_rate = "10Mbit/s"
link_delay = "500us"
[bed.links."bridge:mixed"]
rate = ["10Mbit/s", "100Mbit/s"]
[probe]
probe = ["raw/ping-pong"]
payload_bytes = [46, 1500]
schedule = ["closed-loop"]
[pairs]
rounds = 4
probes_per_block = 14
warmup_probes = 2
at_most = "40s"
"""


@thrice
def test_latency_grows_by_8_over_r_on_each_rated_hop(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(RATED)
    done = sojourn_here("run", "plan.toml", "--out", "out", "--no-report", cwd=tmp_path)
    assert done.returncode in {0, 4}, done.stderr
    probes = read_table(tmp_path / "out/records", "probes").frame
    blocks = read_table(tmp_path / "out/records", "blocks").frame
    joined = probes.filter(pl.col("replies") > 0, ~pl.col("warmup")).join(
        blocks.select("part", "block", "device", "request_payload_bytes"), on=["part", "block"]
    )
    slow, fast = 8e9 / 10e6, 8e9 / 100e6
    wanted = {"direct": slow, "bridge": 2 * slow, "bridge:mixed": slow + fast}
    for device, slope in wanted.items():
        of = joined.filter(pl.col("device") == device).with_columns(rtt=pl.col("arrival_ns") - pl.col("departure_ns"))
        medians = dict(of.group_by("request_payload_bytes").agg(pl.col("rtt").median()).iter_rows())
        found = (medians[1500] - medians[46]) / 2 / (1500 - 46)
        with undisturbed():
            assert found == pytest.approx(slope, rel=0.05), device
