"""A stranger on the same network sends forged, replayed, truncated and random frames: figures stay as they are.

Hosts `a` and `b` measure, `m` attacks as fast as it can; a switch joins them, in network namespaces of the tests' own.
The attacker shares the processors with what it attacks: what is judged is what was counted and who ended what,
not how long frames took.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.instruments import find_instrument

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = f"sojourn-attack-{os.getpid()}"
PATIENCE_SECONDS = 90
HOSTS = ("a", "b", "m")
MACS = {host: f"02:77:00:00:0a:0{number}" for number, host in enumerate(HOSTS, start=1)}
ADDRESSES = {host: f"10.78.9.{number}" for number, host in enumerate(HOSTS, start=1)}
SECONDS = {"short": 2, "long": 60}
ATTACKER = Path(__file__).with_name("attacker.py")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")
spans = pytest.mark.parametrize("seconds", [SECONDS["short"], pytest.param(SECONDS["long"], marks=pytest.mark.proof)])

Told = dict[str, Any]


def inside(host: str, *argv: str) -> list[str]:
    """A command as it runs on one of the hosts."""
    return ["ip", "netns", "exec", f"{NAME}-{host}", *argv]


def run(*argv: str) -> str:
    """A command that must not fail."""
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS).stdout


@pytest.fixture(scope="module", autouse=True)
def hosts() -> Iterator[None]:
    names = [*HOSTS, "switch"]
    for name in names:
        run("ip", "netns", "add", f"{NAME}-{name}")
    try:
        run(*inside("switch", "ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0"))
        run(*inside("switch", "ip", "link", "set", "br0", "up"))
        for host in HOSTS:
            ends = ["netns", f"{NAME}-switch", "type", "veth", "peer", "name", "eth0", "netns", f"{NAME}-{host}"]
            run("ip", "link", "add", f"s{host}", *ends)
            run(*inside("switch", "ip", "link", "set", f"s{host}", "master", "br0", "up"))
            run(*inside(host, "ip", "link", "set", "eth0", "address", MACS[host], "up"))
            run(*inside(host, "ip", "link", "set", "lo", "up"))
            run(*inside(host, "ip", "address", "add", f"{ADDRESSES[host]}/24", "dev", "eth0"))
        yield
    finally:
        for name in names:
            run("ip", "netns", "del", f"{NAME}-{name}")


@contextmanager
def attack(
    kind: str, victim: str, recorded: Path | None = None, *, as_host: str = "m", port: int = 0
) -> Iterator[Told]:
    """The attacker at work; what it sent is told when it has ended, by kind of frame."""
    request = {
        "kind": kind, "mac": MACS[victim], "to": ADDRESSES[victim], "from": ADDRESSES[as_host], "port": port,
        "recorded": str(recorded) if recorded else None,
    }  # fmt: skip
    argv = inside("m", sys.executable, str(ATTACKER), json.dumps(request))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as attacker:
        assert attacker.stdin is not None
        assert attacker.stdout is not None
        try:
            assert attacker.stdout.readline() == "attacking\n"
            sent: Told = {}
            yield sent
            attacker.stdin.close()
            sent.update(json.loads(attacker.stdout.readline()))
        finally:
            attacker.kill()


@contextmanager
def receiver(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A running `stream recv` at b."""
    argv = inside("b", find_instrument(), "stream", "recv", *words, "--json")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("receiving")
            yield process
        finally:
            process.kill()


def told_by(process: subprocess.Popen[str]) -> Told:
    """What a program tells in the end, which it comes to by itself."""
    out, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said
    told: Told = json.loads(out)
    return told


def send(seconds: float, *words: str) -> Told:
    """`stream send` from a, told."""
    own = ["stream", "send", *words, "--rate", "1kpps", "--duration", f"{seconds}s", "--json"]
    done = subprocess.run(
        inside("a", find_instrument(), *own), capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    told: Told = json.loads(done.stdout)
    return told


WAYS = {
    "udp": (("--udp", ADDRESSES["b"]), ("--udp",)),
    "packet": (("--dev", "eth0", "--to", MACS["b"]), ("--dev", "eth0")),
    "xdp": (("--dev", "eth0", "--to", MACS["b"]), ("--dev", "eth0", "--engine", "xdp")),
    "live": (("--dev", "eth0", "--to", MACS["b"]), ("--dev", "eth0", "--engine", "live")),
}


@pytest.mark.parametrize("way", WAYS)
@spans
def test_a_stream_by_hand_is_counted_as_without_the_attack(way: str, seconds: int, tmp_path: Path) -> None:
    there, here = WAYS[way]
    recorded = tmp_path / "frames.pcap"
    listener = subprocess.Popen(
        inside("b", "tcpdump", "-i", "eth0", "-w", str(recorded), "-U", "ether src " + MACS["a"]),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert listener.stderr is not None
    while "listening on" not in listener.stderr.readline():
        assert listener.poll() is None
    # Programs at the interface take frames before a capture sees them.
    with receiver(*(WAYS["packet"][1] if way in ("live", "xdp") else here)) as process:
        send(0.3, *there)
        before = told_by(process)
    listener.terminate()
    listener.communicate()
    (alone,) = before["flows"]
    with receiver(*here, "--record", str(tmp_path / "records")) as process, attack("stream", "b", recorded) as attacked:
        sent = send(seconds, *there)
        told = told_by(process)
    (flow,) = told["flows"]
    (out,) = sent["flows"]
    assert flow["sent"] == out["sent"] == 1000 * seconds - out["refused"], "it ended with its own sender's word"
    assert flow["first"] + flow["corrupted"] + flow["local_drops"] + flow["lost"] == flow["sent"]
    assert (flow["corrupted"], flow["duplicated"], flow["excess"]) == (0, 0, 0)
    # Frames that our own queues had no room for, in the flood, are told as ours; on the way none is lost.
    assert flow["first"] + flow["local_drops"] >= 0.99 * flow["sent"], flow
    assert flow["loss_ratio_ci95"][0] <= alone["lost"] / alone["sent"] + 0.01
    clock = flow["one_way_delay"]["clock"]
    assert (clock["source"], clock["bound_ns"]) == ("shared", 0)
    unexpected = told["ports"][0]["unexpected_of"]
    assert sum(attacked.values()) > 1000 * seconds, attacked
    assert sum(unexpected.values()) == told["ports"][0]["unexpected"] > 1000, unexpected
    for kind in ("packets", "ends", "exchanges", "greetings", "foreign"):
        assert unexpected[kind] > 0, unexpected
    assert "unexpected_frames" in {found["name"] for found in told["findings"]}
    streams = pl.read_ipc_stream(tmp_path / "records" / "streams-b-000.arrow")
    kinds = ["packets", "exchanges", "ends", "greetings"]
    assert streams.select(f"unexpected_{kind}" for kind in kinds).row(0) == tuple(unexpected[kind] for kind in kinds)
    print(f"{way}: {attacked} sent, {unexpected} counted")


def test_an_attack_that_began_before_the_stream_takes_no_flow() -> None:
    with receiver("--udp") as process, attack("stream", "b"):
        time.sleep(0.5)
        sent = send(0.5, "--udp", ADDRESSES["b"])
        told = told_by(process)
    assert told["flows"][0]["first"] + told["flows"][0]["local_drops"] >= 0.99 * sent["flows"][0]["sent"]


def test_a_second_sender_is_refused_and_changes_nothing() -> None:
    with receiver("--udp") as process:
        words = ["stream", "send", "--udp", ADDRESSES["b"], "--rate", "1kpps", "--count", "1500", "--json"]
        with subprocess.Popen(inside("a", find_instrument(), *words), stdout=subprocess.PIPE, text=True) as first:
            time.sleep(1.0)
            second = subprocess.run(inside("m", find_instrument(), *words), capture_output=True, text=True, check=False)
            (out,) = json.loads(first.communicate(timeout=PATIENCE_SECONDS)[0])["flows"]
        told = told_by(process)
    assert second.returncode == 4, second.stdout
    assert "another sender's frames as flow 1" in second.stderr
    assert "--flow" in second.stderr
    (flow,) = told["flows"]
    assert (flow["sent"], flow["first"], flow["duplicated"]) == (out["sent"], 1500, 0)
    assert told["ports"][0]["unexpected_of"]["greetings"] == 1


@spans
def test_a_clock_is_known_as_without_the_attack(seconds: int) -> None:
    ahead = 1_500_000_000
    argv = inside("b", find_instrument(), "probe", "respond", "--json", "--until-eof", f"--pretend-clock={ahead},0")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as responder:
        assert responder.stdin is not None
        assert responder.stdout is not None
        ready = json.loads(responder.stdout.readline())
        words = [ADDRESSES["b"], "--json", "--for", f"{seconds}s", "--interval", "2ms"]
        with subprocess.Popen(
            inside("a", find_instrument(), "clock", *words), stdout=subprocess.PIPE, text=True
        ) as clock:
            time.sleep(0.3)
            port = udp_port_of(clock.pid)
            # It knows both ports, and sends as if it were the responder.
            with attack("probe", "a", as_host="b", port=port) as forged, attack("probe", "b", port=7707) as asked:
                out, _ = clock.communicate(timeout=PATIENCE_SECONDS)
        assert clock.returncode == 0
        responder.stdin.close()
        counted = json.loads(responder.stdout.readlines()[-1])
    (peer,) = json.loads(out.splitlines()[-1])["peers"]
    now = peer["now"]
    wrong_by = abs(now["offset_ns"] - ahead)
    assert ready["pretended_clock"]["offset_ns"] == ahead
    assert not peer["shared"]
    assert wrong_by <= now["bound_ns"], now
    assert len(peer["steps"]) == 0, peer
    assert peer["exchanges"] + peer["lost"] == 500 * seconds
    assert peer["exchanges"] > 0.5 * 500 * seconds, "answers came in spite of it"
    assert sum(forged.values()) > 1000
    assert sum(asked.values()) > 1000
    print(f"clock: {forged} and {asked} sent, {counted} counted, wrong by {wrong_by} ns of {now}")


def udp_port_of(pid: int) -> int:
    """The UDP port that a program on host a talks from."""
    for _ in range(100):
        shown = run(*inside("a", "ss", "-Hunp"))
        for line in shown.splitlines():
            if f"pid={pid}," in line:
                return int(line.split()[3].rsplit(":", 1)[1])
        time.sleep(0.02)
    raise AssertionError("the clock's socket is not there")
