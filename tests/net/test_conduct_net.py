"""The real program, interrupted, killed, out of disk, twice at once, without root and without any right.

Each run is watched from outside: its log, its folder, and what of it is left in the kernel.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sojourn
from sojourn.analysis import analyse
from sojourn.bed.clean import marked_processes
from sojourn.bed.state import state_folder
from sojourn.conduct.run import measured
from sojourn.instruments import find_instrument
from sojourn.plan import load_plan
from sojourn.records import RunFolder, read_table
from sojourn.records.log import read_log
from sojourn.records.lost import begun_trials, named, still_lost
from tests.net.busy_machine import await_that, idle_ends, retried, thrice, undisturbed
from tests.net.here import sojourn_here
from tests.net.small_memory import kill_for_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to take rights away and to mount small disks"),
]


SOJOURN = str(Path(sys.executable).with_name("sojourn"))
PACKAGE = Path(sojourn.__file__).parent.parent
SITE_PACKAGES = next(path for path in sys.path if path.endswith("site-packages"))
MAIN = "import sys; from sojourn.cli import main; sys.argv[0] = 'sojourn'; main()"
LIMIT_S = 2.0
"""Within this time after a SIGKILL everything is gone by itself, where others leave us the machine."""

ROUNDS, CELLS, PATHS, VISITS = 8, 1, 3, 2
BLOCKS = ROUNDS * CELLS * PATHS * VISITS
PLAN = f"""
[study]
name = "short"
[bed]
devices = ["bridge"]
[probe]
probe = ["icmp"]
payload_bytes = [56]
interval = ["1ms"]
[pairs]
rounds = {ROUNDS}
probes_per_block = 24
"""
SLOW = ("--no-report", "--set", 'interval=["2ms"]', *idle_ends())
"""So that a run lasts for seconds, and its middle can be met."""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def begin(*words: str | Path) -> subprocess.Popen[str]:
    """`sojourn …`, going on."""
    argv = [SOJOURN, *map(str, words)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def events(folder: Path, event: str) -> list[dict[str, Any]]:
    """The events of one kind in the run's log so far."""
    log = folder / "log.jsonl"
    lines = log.read_text().splitlines(keepends=True) if log.is_file() else []
    entries: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith("\n")]
    return [entry for entry in entries if entry["event"] == event]


def await_blocks(process: subprocess.Popen[str], folder: Path, count: int, event: str = "block") -> None:
    """Wait until so many blocks were measured, each of which is told by an event."""

    def reached() -> bool:
        if process.poll() is not None:
            pytest.fail(f"it ended before its middle: {process.communicate()}")
        return len(events(folder, event)) >= count

    await_that(reached, f"{count} blocks")


def blocks_of(folder: Path) -> list[int]:
    """Every block with all its probes, as often as it was recorded."""
    blocks = read_table(folder / "records", "blocks").frame
    probes = read_table(folder / "records", "probes").frame
    per_block = dict(probes.group_by("part", "block").len().select("block", "len").iter_rows())
    return [one["block"] for one in blocks.iter_rows(named=True) if per_block.get(one["block"], 0) >= one["count"]]


def sentence(stderr: str) -> str:
    """The last line, which says why; no traceback, and nothing like it before."""
    assert "Traceback" not in stderr, stderr
    said = stderr.strip().splitlines()
    assert said[-1].startswith("sojourn: "), stderr
    assert sum(line.startswith("sojourn: ") for line in said) == 1, stderr
    return said[-1]


def left_of(controller: int) -> list[str]:
    """What there is of the beds that a process had built."""
    found = [f"process {one.pid}" for one, mark in marked_processes() if mark.controller.pid == controller]
    found += [str(path) for path in state_folder().glob(f"*@{controller}-*")]
    runs = {mark.run for _, mark in marked_processes() if mark.controller.pid == controller}
    for mounts in Path("/proc").glob("[0-9]*/mountinfo") if runs else ():
        try:
            text = mounts.read_text()
        except OSError:
            continue
        found += [f"mount in {mounts.parent.name}" for one in runs if f"sj-{one}" in text]
    return found


def things_of_the_host() -> tuple[set[str], set[str]]:
    """Names of its links and its mounts of network namespaces."""
    links = json.loads(subprocess.check_output(["ip", "-json", "link"], text=True))
    mounts = subprocess.check_output(["findmnt", "-rn", "-o", "TARGET"], text=True).split()
    named = {link["ifname"] for link in links if link["ifname"][:2] in {"a-", "b-", "d-"}}
    return named, {mount for mount in mounts if "sj-" in mount}


def test_interrupted_run_resumes_where_it_stopped(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = begin("run", plan, "--out", out, *SLOW)
    await_blocks(process, out, 6)
    process.send_signal(signal.SIGINT)
    said, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == ""
    assert f"go on with: sojourn run --resume {out}" in sentence(told)
    assert left_of(process.pid) == []
    before = blocks_of(out)
    assert len(before) in range(6, BLOCKS)

    done = sojourn_here("run", "--resume", out, "--json", "--no-report")
    assert done.returncode in {0, 4}, done.stderr
    assert f"{len(before)} of {BLOCKS} trials are recorded, {BLOCKS - len(before)} to go" in done.stderr
    assert sorted(blocks_of(out)) == list(range(BLOCKS)), "each block once"
    answer = json.loads(done.stdout)
    assert {row["n"] for row in answer["results"] if row["quantity"] == "device_latency"} >= {ROUNDS}
    findings = {one["name"] for one in json.loads((out / "analysis/verdict.json").read_text())["findings"]}
    assert not findings & {"incomplete", "truncated_record"}


@thrice
def test_killed_run_leaves_only_a_resumable_folder_and_does_not_disturb_another(plan: Path, tmp_path: Path) -> None:
    killed, other = tmp_path / "killed", tmp_path / "other"
    before = things_of_the_host()
    both = [begin("run", plan, "--json", "--out", out, *SLOW) for out in (killed, other)]
    for process, out in zip(both, (killed, other), strict=True):
        await_blocks(process, out, 8)
    both[0].kill()
    began = time.monotonic()
    both[0].communicate()
    await_that(lambda: left_of(both[0].pid) == [], "nothing left of the killed run")
    took_s = time.monotonic() - began
    cleaned = sojourn_here("bed", "clean")
    assert cleaned.returncode == 0, cleaned.stderr

    said, told = both[1].communicate(timeout=300)
    assert both[1].returncode in {0, 4}, told
    assert {row["n"] for row in json.loads(said)["results"] if row["quantity"] == "device_latency"} >= {ROUNDS}
    assert left_of(both[1].pid) == []
    assert things_of_the_host() == before

    whole = blocks_of(killed)
    assert len(whole) >= 7
    report = sojourn_here("report", killed)
    assert report.returncode == 0, report.stderr
    assert "Verdict: doubtful" in report.stdout
    assert "incomplete" in report.stdout
    assert (killed / "report/index.html").stat().st_size > 10_000
    done = sojourn_here("run", "--resume", killed, "--json", "--no-report")
    assert done.returncode in {0, 4}, done.stderr
    assert sorted(blocks_of(killed)) == list(range(BLOCKS)), "each block once"
    with undisturbed():
        assert took_s < LIMIT_S


def program_of(controller: int, word: str) -> int:
    """The instrument of a run's bed that was started with a word."""

    def found() -> list[int]:
        own = [one.pid for one, mark in marked_processes() if mark.controller.pid == controller]
        return [pid for pid in own if is_instrument(pid, word)]

    await_that(lambda: bool(found()), f"`{word}` runs")
    return found()[0]


def is_instrument(pid: int, word: str) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(b"sojourn-instrument") and word.encode() in words


UDP = (*SLOW, "--set", "probe=udp/ping-pong", "--set", "probe.timeout=200ms")


@pytest.mark.parametrize("word", ["blocks", "respond"])
@pytest.mark.parametrize("memory", [False, True])
def test_killed_process_ends_its_run_with_one_sentence_and_the_run_can_be_resumed(
    plan: Path, tmp_path: Path, word: str, memory: bool
) -> None:
    """By whoever may, or by the kernel for want of memory, in a control group of the test's own."""
    out = tmp_path / "run"
    process = begin("run", plan, "--out", out, *UDP)
    await_blocks(process, out, 6)
    pid = program_of(process.pid, word)
    try:
        kill_for_memory(pid) if memory else os.kill(pid, signal.SIGKILL)
    except BaseException:
        process.kill()
        raise
    _, told = process.communicate(timeout=60)
    assert process.returncode in {3, 4}, told
    said = sentence(told)
    assert f"sojourn run --resume {out}" in said
    assert left_of(process.pid) == []
    begun, lost = begun_and_lost(out, said)
    assert lost == begun - set(blocks_of(out)), "what began and is not whole, and nothing else"
    assert len(lost) == 1, said
    done = sojourn_here("run", "--resume", out, "--json", "--no-report")
    assert done.returncode in {0, 4}, done.stderr
    assert set(blocks_of(out)) == set(range(BLOCKS))
    assert still_lost(read_log(RunFolder(out).log)) == []
    assert "SIGKILL" in said, said


def begun_and_lost(out: Path, said: str) -> tuple[set[int], set[int]]:
    """The blocks that a run's log tells begun, and those that it tells lost, each of which the sentence names."""
    entries = read_log(RunFolder(out).log)
    lost = still_lost(entries)
    assert not lost or named(lost) in said, said
    return set(begun_trials(entries)), {one.block for one in lost}


STREAMS = (
    "trials.rounds=4", "trials.duration=200ms", "trials.grace=10ms", "trials.qualify=false", "trials.a_a=false",
    "stream.payload_bytes=46", "stream.schedule=regular", "stream.interval=50us",
)  # fmt: skip


def test_killed_stream_process_ends_the_run_and_its_trial_is_named_and_repeated(
    tmp_path: Path,
) -> None:
    out = tmp_path / "run"
    sets = [word for one in STREAMS for word in ("--set", one)]
    process = begin("run", "one-way", "--quick", "--out", out, *SLOW[:1], *sets, *idle_ends())
    await_blocks(process, out, 3, "stream-trial")
    os.kill(program_of(process.pid, "serve"), signal.SIGKILL)
    _, told = process.communicate(timeout=60)
    assert process.returncode in {3, 4}, told
    said = sentence(told)
    assert "SIGKILL" in said
    assert left_of(process.pid) == []
    begun, lost = begun_and_lost(out, said)
    assert len(lost) == 1, said
    every = {trial.block for trial in load_plan(str(out / "plan.toml")).expand()}
    whole = measured(load_plan(str(out / "plan.toml")), RunFolder(out))
    assert begun - lost == whole != set()
    assert whole < every
    done = sojourn_here("run", "--resume", out, "--json", "--no-report")
    assert done.returncode in {0, 4}, done.stderr
    assert measured(load_plan(str(out / "plan.toml")), RunFolder(out)) == every


@pytest.mark.parametrize(
    ("study", "word"),
    [
        ("rrul", "tcplog"),
        ("aqm", "emulate"),
        *(pytest.param(*one, marks=pytest.mark.proof) for one in [
            ("rrul", "capture"), ("rrul", "respond"), ("rrul", "tcp"), ("aqm", "blocks"), ("emulator-delay", "emulate"),
        ]),
    ],
)  # fmt: skip
def test_killed_process_of_any_kind_is_named_and_its_trial_is_lost(tmp_path: Path, study: str, word: str) -> None:
    """What the others say of it is a consequence: "no answer for 10 s", "nobody listens there"."""
    out = tmp_path / "run"
    event = "stream-trial" if study == "emulator-delay" else "load-trial"
    process = begin("run", study, "--quick", "--no-report", "--no-history", "--out", out, *idle_ends())
    await_blocks(process, out, 1, event)
    os.kill(program_of(process.pid, word), signal.SIGKILL)
    _, told = process.communicate(timeout=120)
    assert process.returncode in {3, 4}, told
    said = sentence(told)
    assert re.search(rf"`sojourn-instrument [a-z ]*{word}[a-z ]*`( on host [ABD])? was ended by SIGKILL", said), said
    assert f"sojourn run --resume {out}" in said
    assert left_of(process.pid) == []
    begun, lost = begun_and_lost(out, said)
    assert len(lost) == 1, said
    assert begun - lost == measured(load_plan(str(out / "plan.toml")), RunFolder(out))


def begun_and_stopped(plan: Path, out: Path, word: str) -> tuple[subprocess.Popen[str], int]:
    """A run some blocks after its beginning, one of whose processes stands still."""
    process = begin("run", plan, "--json", "--out", out, *UDP)
    await_blocks(process, out, 6)
    pid = program_of(process.pid, word)
    os.kill(pid, signal.SIGSTOP)
    return process, pid


@retried
@pytest.mark.parametrize("word", ["blocks", "respond"])
def test_stopped_process_loses_only_reported_blocks(plan: Path, tmp_path: Path, word: str) -> None:
    out = tmp_path / "run"
    process, pid = begun_and_stopped(plan, out, word)
    time.sleep(1.0)
    os.kill(pid, signal.SIGCONT)
    _, told = process.communicate(timeout=300)
    assert process.returncode in {0, 4}, told
    assert sorted(blocks_of(out)) == list(range(BLOCKS)), "each block once"
    blocks = read_table(out / "records", "blocks").frame.sort("started_ns")
    if word == "respond":  # probes of a second, in blocks of a tenth of it, and their timeouts
        lost: list[int] = (blocks["lost"] + blocks["late"]).to_list()
        assert 24 < sum(lost) <= 500
        hit = [place for place, count in enumerate(lost) if count > 0]
        with undisturbed():
            assert len(hit) <= 10
            assert hit == list(range(hit[0], hit[-1] + 1)), "they follow each other"
        assert "loss" in {one["name"] for one in analyse(out).findings}
    else:
        probes = read_table(out / "records", "probes").frame
        stood = [*(probes["departure_ns"] - probes["intended_ns"]), *blocks["started_ns"].diff().drop_nulls()]
        assert max(stood) > 900_000_000, "it left late, or its block began late"


@pytest.mark.proof
@pytest.mark.parametrize("word", ["blocks", "respond"])
def test_process_stopped_for_a_minute_loses_no_written_block(plan: Path, tmp_path: Path, word: str) -> None:
    out = tmp_path / "run"
    process, pid = begun_and_stopped(plan, out, word)
    before = blocks_of(out)
    time.sleep(60.0)
    with suppress(ProcessLookupError):  # the run may have ended it
        os.kill(pid, signal.SIGCONT)
    _, told = process.communicate(timeout=300)
    assert left_of(process.pid) == []
    kept = blocks_of(out)
    assert kept[: len(before)] == before
    if process.returncode == 3:  # no answer for so long: the run ended with a sentence
        said = sentence(told)
        assert f"sojourn run --resume {out}" in said
        assert "answer" in said, said
        begun, lost = begun_and_lost(out, said)
        assert lost == begun - set(kept), "what began and is not whole, and nothing else"
        assert len(lost) == 1, said
        done = sojourn_here("run", "--resume", out, "--json", "--no-report")
        assert done.returncode in {0, 4}, done.stderr
    else:
        assert process.returncode in {0, 4}, told
        assert "loss" in {one["name"] for one in analyse(out).findings} or word == "blocks"
    assert sorted(blocks_of(out)) == list(range(BLOCKS)), "each block once"


@pytest.mark.proof
@pytest.mark.parametrize(
    ("study", "word"), [("aqm", "emulate"), ("aqm", "tcp"), ("rrul", "tcplog"), ("rrul", "capture")]
)
def test_process_of_any_kind_that_stands_for_a_minute_costs_one_trial_at_most(
    tmp_path: Path, study: str, word: str
) -> None:
    """Its late answer is never taken for another: the run ends, or has waited."""
    out = tmp_path / "run"
    process = begin("run", study, "--quick", "--no-report", "--no-history", "--out", out, *idle_ends())
    await_blocks(process, out, 1, "load-trial")
    pid = program_of(process.pid, word)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(60.0)
    with suppress(ProcessLookupError):  # the run may have ended it
        os.kill(pid, signal.SIGCONT)
    _, told = process.communicate(timeout=300)
    assert left_of(process.pid) == []
    whole = measured(load_plan(str(out / "plan.toml")), RunFolder(out))
    if process.returncode == 3:
        said = sentence(told)
        assert f"sojourn run --resume {out}" in said
        assert "answer" in said, said
        begun, lost = begun_and_lost(out, said)
        assert len(lost) == 1, said
        assert begun - lost == whole
    else:
        assert process.returncode in {0, 4}, told
        assert whole == {trial.block for trial in load_plan(str(out / "plan.toml")).expand()}
        assert "unlogged" not in {entry["event"] for entry in read_log(RunFolder(out).log)}


@contextmanager
def small_disk(at: Path, size: str) -> Iterator[Path]:
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "sojourn-test", str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)


def test_a_full_disk_is_one_sentence_and_what_was_recorded_stays_readable(plan: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "320k") as disk:
        process = begin("run", plan, "--out", disk / "run", "--set", "probes_per_block=400")
        shown, told = process.communicate(timeout=300)
        assert process.returncode == 4, told
        assert shown == ""
        said = sentence(told)
        assert "full" in said or "No space left" in said, said
        assert f"sojourn run --resume {disk / 'run'}" in said
        shutil.copytree(disk / "run", tmp_path / "saved")
    probes = read_table(tmp_path / "saved/records", "probes").frame
    assert probes.height >= 400
    analyse(tmp_path / "saved")
    assert "incomplete" in (tmp_path / "saved/analysis/verdict.json").read_text()


def without(tool: str, folder: Path) -> Path:
    """A folder of every program in /usr/bin but one."""
    folder.mkdir()
    for program in Path("/usr/bin").iterdir():
        if program.name != tool:
            (folder / program.name).symlink_to(program)
    return folder


@pytest.mark.parametrize(
    ("sets", "is_refused"),
    [
        (("--set", "bed.sessions=2", "--set", 'bed.hold=["aslr"]'), True),
        (("--set", "bed.sessions=2", "--set", 'bed.hold=["layout"]'), False),
    ],
)
def test_holding_the_address_space_layout_needs_setarch(
    plan: Path, sets: Sequence[str], is_refused: bool, tmp_path: Path
) -> None:
    """Nothing is started, and the bed is gone; what needs no setarch is measured without it."""
    argv = [SOJOURN, "run", plan, "--out", tmp_path / "run", "--no-report", *sets]
    env = os.environ | {"PATH": str(without("setarch", tmp_path / "bin"))}
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False, env=env, timeout=300)
    if not is_refused:
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 3, done.stderr
    assert '"aslr" cannot be held on host A' in done.stderr
    assert "util-linux" in done.stderr
    assert [one["event"] for one in read_log(tmp_path / "run/log.jsonl")] == ["started", "bed", "failed"]
    assert not list((tmp_path / "run/records").glob("*"))


def nobody(python: str) -> list[str]:
    return ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--", python]


@pytest.fixture(scope="module")
def as_nobody() -> list[str]:
    """`sojourn` as a user without rights, by a Python that this user can run."""
    env = {"PYTHONPATH": f"{PACKAGE}:{SITE_PACKAGES}"}
    for python in (sys.executable, "/usr/bin/python3"):
        check = [*nobody(python), "-c", "import sojourn.cli.commands, sojourn.analysis, sojourn.report"]
        if subprocess.run(check, capture_output=True, check=False, env=os.environ | env).returncode == 0:
            return [*nobody(python), "-c", MAIN]
    pytest.skip("the user nobody can run no Python that has what Sojourn needs")


def run_as(prefix: Sequence[str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {
        "PYTHONPATH": f"{PACKAGE}:{SITE_PACKAGES}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SOJOURN_INSTRUMENT": find_instrument(),
        "HOME": "/nonexistent",
    }
    argv = [*prefix, *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=env, cwd="/", timeout=300)


def test_a_user_without_root_has_a_bed_and_is_told_what_is_missing(as_nobody: list[str], tmp_path: Path) -> None:
    folder = Path("/tmp") / f"sojourn-nobody-{os.getpid()}"  # pytest's own folder is closed to others
    folder.mkdir()
    try:
        shutil.chown(folder, "nobody")
        (folder / "plan.toml").write_text(PLAN)
        done = run_as(as_nobody, "run", folder / "plan.toml", "--out", folder / "run", "--json", "--no-report")
        if done.returncode == 3 and "namespace" in done.stderr:
            pytest.skip(f"this kernel gives plain users no namespaces: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["verdict"] in {"trusted", "doubtful"}
        [bed] = events(folder / "run", "bed")
        assert bed["unprivileged"]
        assert any("SCHED_FIFO" in one for one in bed["missing"])
        assert "SCHED_FIFO" in done.stderr, "it is printed, too"
    finally:
        shutil.rmtree(folder)


def test_inaccessible_folder_is_one_sentence(as_nobody: list[str], tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for words in (("run", "frame-size", "--out", closed / "x"), ("report", closed / "x")):
        done = run_as(as_nobody, *words)
        assert done.returncode == 3, done.stderr
        assert "Permission denied" in sentence(done.stderr)


def test_without_any_right_it_is_one_sentence_and_status_3(plan: Path, tmp_path: Path) -> None:
    """A user namespace in which no other can be made, and whose root has lost every capability."""
    closed = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all -- $0 $@"
    argv = ["unshare", "--user", "--map-root-user", "sh", "-c", closed]
    tried = subprocess.run([*argv, "unshare", "--user", "true"], capture_output=True, text=True, check=False)
    if tried.returncode == 0 or "unshare failed" not in tried.stderr:
        pytest.skip(f"rights cannot be taken away here: {tried.stderr}")
    done = run_as([*argv, SOJOURN], "run", plan, "--out", tmp_path / "run")
    assert done.returncode == 3, done.stderr
    assert done.stdout == ""
    said = sentence(done.stderr)
    assert "namespace" in said
    assert "sysctl -w user.max_user_namespaces=" in said or "run as root" in said
    doctor = run_as([*argv, SOJOURN], "doctor", "--json")
    assert doctor.returncode == 3
    lacking = {one["name"] for one in json.loads(doctor.stdout)["checks"] if one["needed"] and one["status"] != "ok"}
    assert "network namespaces" in lacking


@pytest.mark.parametrize("lacking", ["NET_ADMIN", "NET_RAW"])
def test_root_without_a_capability_is_told_which_before_anything_is_built(lacking: str, tmp_path: Path) -> None:
    """As in a container: root may make network namespaces there, and no links in them."""
    argv = ["setpriv", f"--bounding-set=-{lacking.lower()}", "--inh-caps=-all", "--", SOJOURN]
    done = run_as(argv, "run", "bridge-latency", "--quick", "--out", tmp_path / "run")
    assert done.returncode == 3, done.stderr
    said = f"root lacks CAP_{lacking} here, as in a container: start the container with --cap-add {lacking}, or measure"
    assert said in sentence(done.stderr)
    doctor = run_as(argv, "doctor", "--json")
    assert doctor.returncode == 3
    [found] = [one for one in json.loads(doctor.stdout)["checks"] if one["name"] == "network namespaces"]
    assert (found["status"], found["found"]) == ("missing", said.partition(": ")[0])
    assert found["fix"] == said.partition(": ")[2] + " outside of it"
