"""A stranger on either side of a running emulator sends frames of every sort: it emulates as without them.

What is measured has a pipe of its own, what the stranger sends another one. It sends as fast as it can, and shares the
processors with the emulator: what is judged is what was counted, and that no frame leaves before its time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from sojourn.instruments import find_instrument
from tests.children import Child
from tests.net.attacked import PATIENCE_SECONDS, SECONDS, Told, attacker, inside, link, run, switched_hosts
from tests.net.busy_machine import retried, undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

MACS = {"a": "02:77:00:00:0a:11", "b": "02:77:00:00:0a:12"}
PORTS = {"a": "left", "b": "right"}
DELAY_NS, LOSS = 5_000_000, 0.1
PIPES = """
[[pipe]]
name = "measured"
delay = "5ms"
loss = "10%"

[[pipe]]
name = "others"
delay = "1ms"

[[rule]]
direction = "forward"
ethertype = "0x88b6"
pipe = "measured"

[[rule]]
pipe = "others"
"""
EARLIEST_NS = 2_000
"""How long before its time a frame may leave: by the error of a timestamp."""
LATEST_NS = 1_000_000
"""How late half of the frames may be at most, their way included: it is some microseconds on two busy cores."""
MOST_CONTROL = 200
"""Frames of a stream that are none of its packets: greetings, exchanges of clocks, its end."""


@pytest.fixture(scope="module", autouse=True)
def hosts() -> Iterator[None]:
    with switched_hosts():
        for host, port in PORTS.items():
            link("switch", port, host, "eth1")
            run(*inside("switch", "ip", "link", "set", port, "up"))
            run(*inside(host, "ip", "link", "set", "eth1", "address", MACS[host], "up"))
        yield


@retried
@pytest.mark.parametrize("seconds", [SECONDS["short"], pytest.param(SECONDS["long"], marks=pytest.mark.proof)])
@pytest.mark.parametrize("engine", ["xdp", "packet"])
def test_attack_does_not_change_the_emulation(engine: str, seconds: int, tmp_path: Path) -> None:
    config = tmp_path / "pipes.toml"
    config.write_text(PIPES)
    words = ["emulate", "run", *PORTS.values(), "--config", str(config), "--engine", engine, "--json"]
    words += ["--control", "none"]
    with Child(inside("switch", find_instrument(), *words), stdout=subprocess.PIPE, text=True) as emulator:
        try:
            assert emulator.stdout is not None
            assert json.loads(emulator.stdout.readline())["event"] == "ready"
            with ExitStack() as both:
                ways = (("a", "b"), ("b", "a"))
                attacked = [both.enter_context(attacker(inside(near), [request(near, far)])) for near, far in ways]
                sent, received = streamed(seconds)
            emulator.send_signal(signal.SIGINT)
            out, _ = emulator.communicate(timeout=PATIENCE_SECONDS)
        finally:
            emulator.kill()
    assert emulator.returncode == 0, out
    report = json.loads(out.splitlines()[-1])["report"]
    print(f"{engine}: {attacked} sent, {report['pipes']}, {report['ports']}")
    assert all(sum(one.values()) > 1000 * seconds for one in attacked), attacked
    expect_conserved(report)
    measured = report["pipes"][0]
    expect_emulated(measured, received)
    left, right = report["ports"]
    with undisturbed():
        # What the queue of the left port had no room for never came to the emulator.
        assert measured["arrived"] + left["local_drops"] >= 0.9 * sent["sent"], (measured, left)
        assert received["first"] + received["local_drops"] + right["refused"] >= 0.9 * measured["sent"] - MOST_CONTROL
        assert received["one_way_delay"]["from_send_call"]["p50_ns"] < DELAY_NS + LATEST_NS, received


def request(near: str, far: str) -> Told:
    """What the attacker at one host is asked for: whatever frames to the other."""
    return {
        "kind": "any", "dev": "eth1", "mac": MACS[far], "to": "10.78.10.2", "from": "10.78.10.1", "from_port": 4000,
        "own_mac": MACS[near],
    }  # fmt: skip


def streamed(seconds: int) -> tuple[Told, Told]:
    """A stream from a to b, as its sender and its receiver counted it."""
    words = ["stream", "recv", "--dev", "eth1", "--for", f"{seconds + 30}s", "--json"]
    argv = inside("b", find_instrument(), *words)
    with Child(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as receiver:
        try:
            assert receiver.stderr is not None
            assert receiver.stderr.readline().startswith("receiving")
            there = ["--dev", "eth1", "--to", MACS["b"], "--rate", "1kpps", "--duration", f"{seconds}s", "--json"]
            sent = json.loads(run(*inside("a", find_instrument(), "stream", "send", *there)))
            out, said = receiver.communicate(timeout=PATIENCE_SECONDS)
        finally:
            receiver.kill()
    assert receiver.returncode == 0, said
    return sent["flows"][0], json.loads(out)["flows"][0]


def expect_conserved(report: Told) -> None:
    """Every frame that came in is in one count, in each pipe and at the ports."""
    for pipe in report["pipes"]:
        assert pipe["held"] == 0, pipe
        assert pipe["arrived"] + pipe["duplicated"] == pipe["sent"] + sum(pipe["lost"].values()), pipe
        assert pipe["corrupted"] == 0, pipe
    arrived = sum(pipe["arrived"] for pipe in report["pipes"]) + sum(report["unmatched"].values())
    assert arrived == sum(port["received"] for port in report["ports"]), report
    assert report["pipes"][1]["arrived"] > 1000, "the attack came through"


def expect_emulated(measured: Told, received: Told) -> None:
    """The pipe of the stream lost its share, by chance alone, and nothing left it early or came twice."""
    drawn = measured["arrived"] - measured["lost"]["memory"]  # chance takes its share of what there was memory for
    spread = (LOSS * (1 - LOSS) / drawn) ** 0.5
    assert abs(measured["lost"]["before"] / drawn - LOSS) < 4 * spread, measured
    counted = ("before", "port", "memory", "ended")  # by chance, or where the attack left no room or time
    assert sum(measured["lost"].values()) == sum(measured["lost"][cause] for cause in counted), measured
    assert (received["corrupted"], received["duplicated"], received["excess"]) == (0, 0, 0)
    assert received["first"] <= measured["sent"]
    with undisturbed():  # the attack can leave none of five frames that tell the end
        assert received["one_way_delay"] is not None, received
    assert received["one_way_delay"]["from_send_call"]["min_ns"] >= DELAY_NS - EARLIEST_NS, received
