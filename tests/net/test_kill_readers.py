"""SIGKILL at random moments of commands that read files or show a page: what they read stays as it was.

The result of a killed command is whole or is not there; the same command afterwards gives what it gives undisturbed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from sojourn.instruments import find_instrument
from tests.net.busy_machine import await_that
from tests.net.tcplog_bed import MAIN
from tests.unit.printed_json import printed_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

NAME = f"sojourn-readers-{os.getpid()}"
KILLS = pytest.mark.parametrize("kills", [1, pytest.param(15, marks=pytest.mark.proof)])
FRAMES = 40_000
SET_UP = f"""
for host in a b; do ip netns add {NAME}-$host; ip -n {NAME}-$host link set lo up; done
for n in 0 1; do
    ip link add port$n netns {NAME}-a type veth peer name far$n netns {NAME}-b
    ip -n {NAME}-a link set port$n up
    ip -n {NAME}-b link set far$n up
done
ip -n {NAME}-b link set far1 address 02:77:00:00:0d:01
"""


def moments() -> random.Random:
    """When to kill; the seed is printed and can be given again."""
    seed = int(os.environ.get("SOJOURN_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    return random.Random(seed)


def inside(host: str, *argv: str) -> list[str]:
    return ["nsenter", f"--net=/run/netns/{NAME}-{host}", *argv]


def said(*words: str, status: int = 0) -> str:
    """What the instrument prints when nobody kills it."""
    done = subprocess.run([find_instrument(), *words], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == status, done.stderr
    return done.stdout


@contextmanager
def hosts() -> Iterator[None]:
    try:
        subprocess.run(["sh", "-e", "-c", SET_UP], check=True, capture_output=True, text=True)
        yield
    finally:
        for host in "ab":
            subprocess.run(["ip", "netns", "del", f"{NAME}-{host}"], check=False)


def write_capture(path: Path, delay_ns: int) -> None:
    """A pcap of UDP packets, each a millisecond after the one before it."""
    header = bytes.fromhex("020000000002020000000001080045000030") + bytes.fromhex("00004000401100000a0000010a000002")
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65_535, 1))
        for number in range(FRAMES):
            at = 1_700_000_000 * 10**9 + number * 10**6 + delay_ns
            frame = header + struct.pack(">HHHHI", 7, 9, 28, 0, number) + bytes(16)
            file.write(struct.pack("<IIII", at // 10**9, at % 10**9, len(frame), len(frame)) + frame)


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    write_capture(folder / "a.pcap", 0)
    write_capture(folder / "b.pcap", 50_000)
    return folder


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of an emulator that was killed while frames passed."""
    folder = tmp_path_factory.mktemp("emulated") / "log"
    words = ["emulate", "run", "port0", "port1", "--engine", "packet", "--forward", "delay 1ms", "--log", str(folder),
             "--control", str(folder.with_name("control.sock"))]  # fmt: skip
    with hosts():
        emulator = subprocess.Popen(inside("a", find_instrument(), *words), stdout=subprocess.PIPE, text=True)
        try:
            await_that(lambda: any(folder.glob("*")), "the emulator has begun its log")
            to = [
                "stream",
                "send",
                "--dev",
                "far0",
                "--to",
                "02:77:00:00:0d:01",
                "--rate",
                "10kpps",
                "--duration",
                "3s",
            ]
            subprocess.run(inside("b", find_instrument(), *to), check=True, capture_output=True, timeout=120)
        finally:
            emulator.kill()
            emulator.communicate(timeout=60)
    return folder


def killed(argv: list[str], after_seconds: float) -> bool:
    """Start a command and kill it; whether it was at work still."""
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(after_seconds)
    was_at_work = process.poll() is None
    process.kill()
    _, told = process.communicate(timeout=60)
    assert was_at_work or process.returncode == 0, told.decode()
    return was_at_work


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@KILLS
def test_killed_match_leaves_captures_intact_and_no_partial_summary(
    kills: int, captures: Path, tmp_path: Path, proven: Callable[..., None]
) -> None:
    words = ["match", str(captures / "a.pcap"), str(captures / "b.pcap"), "--same-clock", "--json", "-o"]
    began = time.monotonic()
    whole = json.loads(said(*words, str(tmp_path / "whole")))
    took, before = time.monotonic() - began, content(captures)
    assert whole["pairs"][0]["directions"][0]["counts"]["matched"] == FRAMES
    random_moments, at_work = moments(), 0
    for number in range(kills):
        out = tmp_path / str(number)
        at_work += killed([find_instrument(), *words, str(out)], random_moments.uniform(0, took))
        assert content(captures) == before
        summary = out / "summary.json"
        # It is made first and written last: as long as it is empty, what is beside it is not finished.
        left = summary.read_text() if summary.exists() else ""
        assert not left or json.loads(left) == whole
    assert json.loads(said(*words, str(tmp_path / "again"))) == whole
    print(f"{at_work} of {kills} were killed at work")
    proven("kills", "`match` of captures", kills=kills)


@KILLS
def test_a_killed_offline_emulation_leaves_its_input(
    kills: int, captures: Path, tmp_path: Path, proven: Callable[..., None]
) -> None:
    words = ["emulate", "offline", str(captures / "a.pcap"), "--delay", "20ms", "--loss", "1%", "--seed", "5", "-o"]
    began = time.monotonic()
    said(*words, str(tmp_path / "whole.pcapng"))
    took, before = time.monotonic() - began, content(captures)
    whole = (tmp_path / "whole.pcapng").read_bytes()
    random_moments = moments()
    for number in range(kills):
        out = tmp_path / f"{number}.pcapng"
        killed([find_instrument(), *words, str(out)], random_moments.uniform(0, took))
        assert content(captures) == before
        said(*words, str(out))
        assert out.read_bytes() == whole, "despite what the killed process left"
    proven("kills", "`emulate offline`", kills=kills)


@KILLS
def test_killed_replay_or_recovery_of_an_emulator_log_can_be_repeated(
    kills: int, emulated: Path, tmp_path: Path, proven: Callable[..., None]
) -> None:
    before = content(emulated)
    began = time.monotonic()
    replayed = said("emulate", "replay", str(emulated), "--json")
    told = printed_lines(
        "emulate-recover", said("emulate", "recover", str(emulated), "-o", str(tmp_path / "whole"), "--json")
    )
    assert sum(one["packets"] for one in told) > 1000
    took, whole = time.monotonic() - began, content(tmp_path / "whole")
    random_moments = moments()
    for number in range(kills):
        out = tmp_path / str(number)
        killed([find_instrument(), "emulate", "replay", str(emulated)], random_moments.uniform(0, took))
        killed(
            [find_instrument(), "emulate", "recover", str(emulated), "-o", str(out)], random_moments.uniform(0, took)
        )
        assert content(emulated) == before
        shutil.rmtree(out, ignore_errors=True)
        said("emulate", "recover", str(emulated), "-o", str(out))
        assert content(out) == whole
    assert said("emulate", "replay", str(emulated), "--json") == replayed
    proven("kills", "`emulate replay` and `recover`", kills=2 * kills)


@KILLS
def test_a_killed_watch_leaves_no_process_and_no_port(kills: int, tmp_path: Path, proven: Callable[..., None]) -> None:
    random_moments = moments()
    for _ in range(kills):
        argv = [sys.executable, "-c", MAIN, "watch", str(tmp_path), "--json"]
        watch = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        assert watch.stdout is not None
        port = int(json.loads(watch.stdout.readline())["address"].split(":")[2].split("/")[0])
        assert listens(port)
        time.sleep(random_moments.uniform(0, 0.6))
        assert watch.poll() is None
        watch.kill()
        watch.communicate(timeout=60)
        await_that(lambda: not session_of(watch.pid), "no process of the page is left")  # noqa: B023 - called at once
        assert not listens(port)
    assert list(tmp_path.iterdir()) == []
    proven("kills", "`sojourn watch`", kills=kills)


def listens(port: int) -> bool:
    told = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], check=True, capture_output=True, text=True).stdout
    return bool(told.strip())


def session_of(leader: int) -> bool:
    """Whether a process of this session is left."""
    return subprocess.run(["pgrep", "-s", str(leader)], check=False, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def cut_short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of simulated connections whose program was killed."""
    out = tmp_path_factory.mktemp("tcplog") / "t"
    words = ["tcplog", "run", "--simulated", "20", "--duration", "60s", "--out", str(out)]
    assert killed([find_instrument(), *words], 3.0)
    (out / "control.sock").unlink()  # no file that can be copied
    return out


@KILLS
def test_killed_recovery_of_a_tcp_log_can_be_repeated(
    kills: int, cut_short: Path, tmp_path: Path, proven: Callable[..., None]
) -> None:
    shutil.copytree(cut_short, tmp_path / "whole")
    began = time.monotonic()
    said("tcplog", "recover", str(tmp_path / "whole"))
    took, whole = time.monotonic() - began, content(tmp_path / "whole")
    assert any(name.endswith(".arrow") for name in whole)
    random_moments = moments()
    for number in range(kills):
        out = tmp_path / str(number)
        shutil.copytree(cut_short, out)
        at_work = killed([find_instrument(), "tcplog", "recover", str(out)], random_moments.uniform(0, took))
        if at_work and any(out.glob("*.tcplog")):  # its spools are what it removes last
            said("tcplog", "recover", str(out))
        assert content(out) == whole
    proven("kills", "`tcplog recover`", kills=kills)


# What is made of a log of TCP, each as one file: words before the log, and those behind it.
MADE_OF_A_LOG = {
    "timeline": (["timeline"], ["--to", "csv"]),
    "convert": (["tcplog", "convert"], ["--to", "csv"]),
    "plot": (["tcplog", "plot"], []),
}


@KILLS
@pytest.mark.parametrize("command", MADE_OF_A_LOG)
def test_a_killed_timeline_conversion_or_plot_leaves_the_previous_or_the_new_file(
    command: str, kills: int, cut_short: Path, tmp_path: Path, proven: Callable[..., None]
) -> None:
    log, file = tmp_path / "log", tmp_path / "made" / ("out.html" if command == "plot" else "out")
    shutil.copytree(cut_short, log)
    said("tcplog", "recover", str(log))
    file.parent.mkdir()
    first, last = MADE_OF_A_LOG[command]
    argv = [sys.executable, "-c", MAIN, *first, str(log), *last, "-o", str(file), "--force"]
    for _ in range(2):  # the second finds its files in memory, as those that are killed do
        began = time.monotonic()
        subprocess.run(argv, check=True, capture_output=True, timeout=300)
        took = time.monotonic() - began
    new, old, before = file.read_bytes(), b"before", content(log)
    random_moments, at_work = moments(), 0
    for _ in range(kills):
        file.write_bytes(old)
        at_work += killed(argv, random_moments.uniform(0, took))
        assert file.read_bytes() in (old, new)
        assert [path.name for path in file.parent.iterdir()] == [file.name], "no draft is left"
        assert content(log) == before
    subprocess.run(argv, check=True, capture_output=True, timeout=300)
    assert file.read_bytes() == new
    print(f"{at_work} of {kills} were killed at work")
    proven("kills", "`timeline`, `tcplog convert` and `plot`", kills=kills)
