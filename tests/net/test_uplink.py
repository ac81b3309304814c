"""One interface of a machine, emulated: addresses and routes stay, and all is as it was, however the command ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.children import Child
from tests.net.attacked import PATIENCE_SECONDS, inside, link, run, switched_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

SOJOURN = str(Path(sys.executable).with_name("sojourn"))
UPLINK = "wan0"
NEAR, FAR = "10.79.0.1", "10.79.0.2"
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


def wait_until_restored(before: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while everything() != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert everything() == before


def test_uplink_is_emulated_and_the_machine_is_restored() -> None:
    before = everything()
    with uplink(*DELAYED) as child:
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
