"""Bad input: one sentence on standard error, no traceback, and the status that says whose fault it is.

2: the request is wrong. 3: this machine cannot, and the sentence says what would fix it. 4: it ran, but must not be
trusted. The links are in a network namespace of the tests' own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from sojourn.instruments import find_instrument
from tests.net.here import sojourn_here
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from pathlib import Path

NETNS = f"sojourn-bad-{os.getpid()}"
"""near0 ─ far0 are up, with 10.99.1.1 and 10.99.1.2; down0 is down; bare0 is up, but its other end is not."""

SET_UP = """
ip link set lo up
ip link add near0 type veth peer name far0
ip link add down0 type veth peer name down1
ip link add bare0 type veth peer name bare1
ip addr add 10.99.1.1/24 dev near0
ip addr add 10.99.2.1/24 dev down0
ip link set near0 up && ip link set far0 up && ip link set bare0 up
"""

PLAN = """[study]
name = "short"
[bed]
devices = ["bridge"]
[probe]
probe = ["icmp"]
payload_bytes = [56]
interval = ["1ms"]
[pairs]
rounds = 8
probes_per_block = 24
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a network namespace by name")


@pytest.fixture(scope="module")
def netns() -> object:
    subprocess.run(["ip", "netns", "add", NETNS], check=True)
    try:
        subprocess.run(["ip", "netns", "exec", NETNS, "sh", "-e", "-c", SET_UP], check=True)
        yield NETNS
    finally:
        subprocess.run(["ip", "netns", "del", NETNS], check=True)


def probe_says(*words: str) -> subprocess.CompletedProcess[str]:
    """What `sojourn probe` becomes, in the namespace."""
    argv = ["ip", "netns", "exec", NETNS, find_instrument(), "probe", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)


def refused(done: subprocess.CompletedProcess[str], status: int) -> str:
    """The one sentence, under the status that it should have."""
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.returncode == status, done.stderr
    program, _, said = done.stderr.strip().partition(": ")
    assert program in {"sojourn", "sojourn-instrument"}
    assert len(said.split()) > 2, said
    return said


MAC = "02:00:00:00:00:01"
RAW = ("raw", "--to", MAC, "--dev")


@needs_root
@pytest.mark.usefixtures("netns")
@pytest.mark.parametrize(
    ("probe", "status", "words"),
    [
        ((*RAW, "nosuch0"), 2, ["nosuch0", "no such interface", "ip link"]),
        (("icmp", "10.99.1.2", "--dev", "nosuch0"), 2, ["nosuch0", "no such interface"]),
        (("udp", "10.99.1.2", "--dev", "nosuch0"), 2, ["nosuch0", "no such interface"]),
        (("respond", "--raw", "nosuch0"), 2, ["nosuch0", "no such interface"]),
        ((*RAW, "down0"), 3, ["down0", "down", "ip link set dev down0 up"]),
        (("icmp", "10.99.2.2", "--dev", "down0"), 3, ["ip link set dev down0 up"]),
        (("udp", "10.99.2.2", "--dev", "down0"), 3, ["ip link set dev down0 up"]),
        ((*RAW, "bare0"), 3, ["bare0", "no carrier"]),
        ((*RAW, "near0", "--payload-bytes", "1501"), 2, ["1501", "MTU"]),
        ((*RAW, "near0", "-c", "0"), 2, ["count"]),
        (("raw", "--dev", "near0", "--to", "banana"), 2, ["banana", "MAC"]),
        (("icmp", "somewhere"), 2, ["somewhere"]),
        (("icmp", "127.0.0.1", "-i", "10"), 2, ["10", "ms"]),
        (("icmp", "127.0.0.1", "-i", "10parsec"), 2, ["10parsec", "ms"]),
        (("icmp", "127.0.0.1", "--payload-bytes", "70000"), 2, ["70000"]),
        (("icmp", "127.0.0.1", "--cpu", "4095"), 2, ["--cpu 4095"]),
        (("icmq", "127.0.0.1"), 2, ["icmq"]),
        (("udp", "127.0.0.1:9"), 4, ["127.0.0.1:9", "nobody listens", "probe respond"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_invalid_probe_is_refused_in_one_sentence(probe: tuple[str, ...], status: int, words: list[str]) -> None:
    count = () if "-c" in probe or probe[0] == "respond" else ("-c", "5")
    done = probe_says(*probe, *count)
    said = refused(done, status)
    assert all(word in said for word in words), said
    assert done.stdout == ""


@needs_root
@pytest.mark.usefixtures("netns")
@pytest.mark.parametrize("probe", [("icmp", "10.99.1.77"), ("udp", "10.99.1.77"), (*RAW, "near0")], ids=lambda p: p[0])
def test_silent_peer_is_reported_as_total_loss_with_status_4(probe: tuple[str, ...]) -> None:
    done = probe_says(*probe, "-c", "5", "-i", "1ms", "--timeout", "50ms", "--json")
    assert "answered none of 5 probes" in refused(done, 4)
    answer = printed("probe", done.stdout)
    assert (answer["sent"], answer["received"], answer["lost"]) == (5, 0, 5)


@pytest.mark.parametrize(
    ("was", "now", "line", "words"),
    [
        ("rounds = 8", "roundz = 8", 10, ["unknown key pairs.roundz", "expected pairs.rounds"]),
        ("[pairs]", "[pears]", 10, ["unknown key pears.rounds", "expected pairs.rounds"]),
        ('["1ms"]', '["1 parsec"]', 8, ["probe.interval", "1 parsec", "expected", '"1ms"']),
        ('["1ms"]', "[1]", 8, ["probe.interval", "expected", "unit"]),
        ("rounds = 8", "rounds = -8", 10, ["pairs.rounds = -8", "expected", "from 1"]),
        ("rounds = 8", 'rounds = "many"', 10, ["pairs.rounds", "expected", "whole number"]),
        ("[56]", "[70000]", 7, ["probe.payload_bytes", "70000", "expected"]),
        ('["bridge"]', '["brigde"]', 4, ["bed.devices", "brigde", '"bridge"']),
        ('["bridge"]', '["bridge*5"]', 4, ["bed.devices", "bridge*5", "2 to 4"]),
        ('["icmp"]', '["imcp"]', 6, ["probe.probe", "imcp", "expected"]),
        ("[56]", "[56", None, ["not TOML", "line 8"]),
    ],
)
def test_a_plan_is_refused_with_file_line_key_and_what_was_expected(
    was: str, now: str, line: int | None, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert was in PLAN
    (tmp_path / "mine.toml").write_text(PLAN.replace(was, now, 1))
    done = sojourn_here("run", "mine.toml")
    said = refused(done, 2)
    assert said.startswith(f"mine.toml, line {line}: " if line else "mine.toml, line "), said
    assert all(word in said for word in words), said
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"], "nothing is made before the plan is right"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["run", "bridge-latencey"], ["bridge-latencey", "did you mean bridge-latency?"]),
        (["run", "nowhere.toml"], ["nowhere.toml", "No such file"]),
        (["run", "frame-size", "--set", "devices=brigde"], ["--set devices=brigde", '"bridge"']),
        (["run", "frame-size", "--set", "rounds"], ["--set rounds", "expected key=value"]),
        (["run", "frame-size", "--set", "prober_cpu=4095"], ["host.prober_cpu = 4095", "expected one of the cores"]),
        (["run", "frame-size", "--out", "full"], ["full exists and is not an empty folder", "--resume"]),
        (["run", "--resume", "full"], ["full is no run folder"]),
        (["report", "full"], ["full is no run folder", "plan.toml"]),
        (["compare", "full", "full"], ["full is no run folder"]),
        (["report"], ["missing argument", "sojourn report --help"]),
        (["measure"], ["no such command", "sojourn --help"]),
    ],
    ids=" ".join,
)
def test_invalid_request_is_refused_in_one_sentence(
    asked: list[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("precious")
    done = sojourn_here(*asked)
    said = refused(done, 2)
    assert all(word in said for word in words), said
    assert done.stdout == ""
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["full", "full/mine"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run over simulated lines."""
    folder = tmp_path_factory.mktemp("bad")
    words = ("run", "bridge-latency", "--bed", "sim", "--quick", "--set", "rounds=12", "--out", "run", "--no-report")
    done = sojourn_here(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_truncated_record_is_reported_up_to_the_damage(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    record = run / "records/probes-000.arrow"
    with record.open("r+b") as file:
        file.truncate(record.stat().st_size * 2 // 3)
    done = sojourn_here("report", "run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    answer = printed("run", done.stdout)
    assert answer["verdict"] == "doubtful"
    told = {one["name"]: one["sentence"] for one in json.loads((run / "analysis/verdict.json").read_text())["findings"]}
    assert "probes-000.arrow" in told["truncated_record"]
    assert "incomplete" in told
    assert [row for row in answer["results"] if row["quantity"] == "device_latency" and row["estimate"] is not None]


@pytest.mark.parametrize("kept", [0, 3, 700], ids=lambda kept: f"{kept} bytes")
def test_record_truncated_to_almost_nothing_is_reported(finished: Path, tmp_path: Path, kept: int) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    for record in (run / "records").iterdir():
        with record.open("r+b") as file:
            file.truncate(kept)
    done = sojourn_here("report", "run", cwd=tmp_path)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in {0, 4}, done.stderr
    assert "nothing was measured" in " ".join(done.stdout.split())
