"""One interface of a machine, emulated: addresses and routes stay, and all is as it was, however the command ends."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sojourn.cli.kept import KEPT
from sojourn.confine import CAPABILITIES
from sojourn.labs.uplink import KEEPER
from tests.children import Child
from tests.net.attacked import NAME, PATIENCE_SECONDS, inside, link, run, switched_hosts
from tests.net.busy_machine import await_that

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

SOJOURN = str(Path(sys.executable).with_name("sojourn"))
UPLINK = "wan0"
NEAR, FAR = "10.79.0.1", "10.79.0.2"
ENDS_SECONDS = 3.0
DELAYED = ("--take-over", "--forward", "delay 20ms", "--backward", "delay 10ms")


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    """A machine (switch) whose interface `wan0` leads to another one (a)."""
    with switched_hosts():
        link("switch", UPLINK, "a", "eth1")
        run(*inside("switch", "ip", "link", "set", UPLINK, "mtu", "1400"))
        run(*inside("a", "ip", "link", "set", "eth1", "mtu", "1400"))
        run(*inside("switch", "ip", "address", "add", f"{NEAR}/24", "dev", UPLINK))
        run(*inside("a", "ip", "address", "add", f"{FAR}/24", "dev", "eth1"))
        run(*inside("switch", "ip", "link", "set", UPLINK, "up"))
        run(*inside("a", "ip", "link", "set", "eth1", "up"))
        run(*inside("switch", "ip", "route", "add", "198.51.100.0/24", "via", FAR))
        yield


def everything() -> str:
    """What the machine's interfaces, addresses, routes and programs are; of programs and neighbours no numbers."""
    commands = (["ip", "link"], ["ip", "address"], ["ip", "route"], ["tc", "qdisc"])
    said = "\n".join(run(*inside("switch", *command)) for command in commands)
    return re.sub(r" ?((valid|preferred)_lft \S+|tentative)", "", said)


def shortest_ms(count: int = 5) -> float:
    """The shortest of some round trips."""
    said = run(*inside("switch", "ping", "-n", "-c", str(count), "-i", "0.1", "-W", "2", FAR))
    return min(float(one) for one in re.findall(r"time=([\d.]+)", said))


def uplink(*words: str) -> Child[str]:
    """The command, once frames go their way over the emulator."""
    child = Child(
        inside("switch", SOJOURN, "uplink", UPLINK, *words, "--json"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    ready = child.stdout.readline()
    assert ready, child.stderr.read() if child.stderr else ""
    assert json.loads(ready)["event"] == "ready"
    return child


def bounded(process: int) -> set[int]:
    """The capabilities that programs which a process starts may have."""
    found = re.search(r"^CapBnd:\s*(\w+)$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    assert found is not None
    return {number for number in range(64) if int(found[1], 16) >> number & 1}


def wait_until_restored(before: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while everything() != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert everything() == before


def test_uplink_is_emulated_and_the_machine_is_restored() -> None:
    before = everything()
    with uplink(*DELAYED) as child:
        assert bounded(child.pid) == {CAPABILITIES[name] for name in KEPT["uplink"]}
        during = run(*inside("switch", "ip", "address", "show", "dev", UPLINK))
        assert f"{NEAR}/24" in during
        assert "198.51.100.0/24" in run(*inside("switch", "ip", "route"))
        assert 30 <= shortest_ms() < 40
        # Super-frames and unfinished checksums of the machine's own TCP.
        with Child(inside("a", "iperf3", "-s", "-1"), stdout=subprocess.DEVNULL):
            deadline = time.monotonic() + PATIENCE_SECONDS
            while "5201" not in run(*inside("a", "ss", "-lnt")) and time.monotonic() < deadline:
                time.sleep(0.05)
            words = ["iperf3", "-c", FAR, "-t", "2", "--json"]
            ended = json.loads(run(*inside("switch", *words)))["end"]
        assert ended["sum_received"]["bytes"] > 1_000_000
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode == 0
    report = json.loads(out.splitlines()[-1])["report"]
    forward, backward = report["pipes"]
    assert forward["sent"] > 700, "segments, none of them longer than the interface's MTU"
    assert backward["sent"] > 100
    assert all(pipe["arrived"] == pipe["sent"] + sum(pipe["lost"].values()) for pipe in report["pipes"])
    wait_until_restored(before)
    assert shortest_ms() < 10


@pytest.mark.parametrize("whom", ["sojourn", "emulator", "cable"])
def test_uplink_emulation_is_removed_whichever_process_is_killed(whom: str) -> None:
    before = everything()
    with uplink(*DELAYED) as child:
        assert shortest_ms(2) >= 30
        if whom == "sojourn":
            child.kill()
        elif whom == "emulator":
            run("pkill", "-KILL", "-P", str(child.pid))
        else:
            name = re.search(r"sj\d+-in", run(*inside("switch", "ip", "link")))
            assert name is not None
            run(*inside("switch", "ip", "link", "del", name[0]))
        _, said = child.communicate(timeout=PATIENCE_SECONDS)
    wait_until_restored(before)
    assert shortest_ms() < 10
    if whom == "cable":
        assert child.returncode == 4, said
    assert child.returncode != 0


@pytest.mark.parametrize("kills", [1, pytest.param(15, marks=pytest.mark.proof)])
def test_uplink_killed_at_any_moment_leaves_the_machine_as_it_was(kills: int, proven: Callable[..., None]) -> None:
    """The command itself, or what it has started but the keeper, while it sets up and while it emulates."""
    seed = int(os.environ.get("SOJOURN_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    moments, before, others = random.Random(seed), everything(), processes()
    began = time.monotonic()
    with uplink(*DELAYED) as child:
        took = time.monotonic() - began
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=PATIENCE_SECONDS)
    at_work = 0
    for number in range(kills):
        argv = inside("switch", SOJOURN, "uplink", UPLINK, *DELAYED, "--json")
        with Child(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            time.sleep(moments.uniform(0, 2 * took))
            assert child.poll() is None, "it ended by itself"
            at_work += everything() != before
            for pid in started_by(child.pid) if number % 2 else ():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                child.wait(ENDS_SECONDS if number % 2 else 0)  # it ends because of that, or what was killed had ended
            child.kill()
            child.wait(PATIENCE_SECONDS)
            assert child.returncode != 0
        wait_until_restored(before)
        await_that(lambda: processes() == others, "no process of it is left")
    assert shortest_ms() < 10
    assert kills == 1 or at_work > kills // 3, "killed while the interface had cables or programs"
    proven("kills", "`sojourn uplink`", kills=kills)


def test_a_cable_that_is_made_after_the_command_was_killed_is_removed(tmp_path: Path) -> None:
    """Its `ip` outlives it: the keeper waits for that, too."""
    before = everything()
    slow = tmp_path / "ip"
    true = subprocess.run(["sh", "-c", "command -v ip"], capture_output=True, text=True, check=True).stdout.strip()
    slow.write_text(f'#!/bin/sh\ncase "$*" in *"type veth"*) sleep 1;; esac\nexec {true} "$@"\n')
    slow.chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    argv = inside("switch", SOJOURN, "uplink", UPLINK, *DELAYED)
    with Child(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env) as child:
        await_that(lambda: any(b"veth" in words_of(pid) for pid in started_by(child.pid)), "a cable is being made")
        cable = next(pid for pid in started_by(child.pid) if b"veth" in words_of(pid))
        child.kill()
        child.wait(PATIENCE_SECONDS)
    assert words_of(cable), "the cable is made after the command's death"
    await_that(lambda: not words_of(cable), "the cable is made")
    wait_until_restored(before)
    time.sleep(0.3)
    assert everything() == before


def words_of(pid: int) -> bytes:
    """The command line of a process; nothing if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def started_by(command: int) -> list[int]:
    """What the command has started, without the keeper of its cables, which removes them."""
    told = subprocess.run(["pgrep", "-P", str(command)], capture_output=True, text=True, check=False).stdout
    words = {pid: words_of(pid) for pid in map(int, told.split())}
    of_command = words_of(command)  # what has not yet become another program may become the keeper
    return [pid for pid, one in words.items() if one != of_command and KEEPER.encode() not in one]


def processes() -> set[int]:
    """All that run on the machine."""
    return {int(pid) for pid in run("ip", "netns", "pids", f"{NAME}-switch").split()}


def test_one_interface_has_one_emulator() -> None:
    with uplink(*DELAYED, "--for", "30s") as child:
        second = refused(UPLINK, *DELAYED)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=PATIENCE_SECONDS)
    assert second == (2, "sojourn: another `sojourn uplink` emulates wan0: end it first")


def refused(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        inside("switch", SOJOURN, "uplink", *words), capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--delay", "20ms"], "name an interface first: `sojourn uplink eth0 --delay 20ms`"),
        ([UPLINK], f"{UPLINK} has the address {NEAR}/24: this machine uses it; --take-over emulates it all the same"),
        (["nosuch"], "there is no interface nosuch: this machine has "),
        (["lo", "--take-over"], "lo carries no Ethernet frames: name an interface that leads to a network"),
        (["sa", "--take-over"], "sa belongs to br0, which takes its frames: name br0, or two ports for "),
        ([UPLINK, "--take-over", "--delay", "20"], "pipe forward: delay: 20 has no unit that I know; write 20ms, "),
        ([UPLINK, "--take-over", "--redirect"], "--redirect is not for an uplink: `sojourn emulate` has it, "),
    ],
)
def test_impossible_requests_are_refused_in_one_sentence(words: list[str], sentence: str) -> None:
    before = everything()
    status, said = refused(*words)
    assert (status, said[: len(sentence) + 9]) == (2, f"sojourn: {sentence}")
    assert everything() == before
