"""A stranger on the same network attacks who asks and who answers: probes over ICMP, UDP, Ethernet frames and STAMP.

The attacker knows addresses, ports and identifiers, and replays an earlier session; it knows no session key. It also
says by ICMP that requests were not delivered. At the
highest rate it takes processors and queues from what it attacks: then what is judged is what was counted and who ended
what. At a lower one losses and times are as without it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from sojourn.instruments import find_instrument
from tests.children import Child
from tests.net.attacked import (
    ADDRESSES,
    MACS,
    PATIENCE_SECONDS,
    SECONDS,
    Told,
    attack,
    inside,
    recording,
    switched_hosts,
    udp_port_of,
)
from tests.net.busy_machine import retried, undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

PER_SECOND = 500
PAUSE_SECONDS = 0.05
"""Between some 900 frames at each end, where losses and times are judged."""

# What asks at a, and what answers at b.
WAYS: dict[str, tuple[list[str], list[str]]] = {
    "icmp": (["probe", "icmp", ADDRESSES["b"]], []),
    "udp": (["probe", "udp", f"{ADDRESSES['b']}:7707"], ["probe", "respond", "--udp", "7707"]),
    "raw": (["probe", "raw", "--dev", "eth0", "--to", MACS["b"]], ["probe", "respond", "--raw", "eth0"]),
    "stamp": (["stamp", "send", f"{ADDRESSES['b']}:862"], ["stamp", "reflect", "--port", "862"]),
}
PORTS = {"udp": 7707, "stamp": 862}


@pytest.fixture(scope="module", autouse=True)
def hosts() -> Iterator[None]:
    # Else the switch would take the attacker, which sends with b's addresses, for b.
    with switched_hosts(learning=False):
        yield


PAUSES = {"highest-rate": 0, "paced": PAUSE_SECONDS}
SHORT = {("icmp", "paced"), ("udp", "highest-rate"), ("raw", "highest-rate"), ("stamp", "paced")}
"""Each way once and each rate twice; every way at every rate, and for longer, in `make proof`."""
CASES = [
    pytest.param(way, seconds, PAUSES[rate], id=f"{way}-{seconds}-{rate}",
                 marks=() if span == "short" and (way, rate) in SHORT else pytest.mark.proof)
    for way in WAYS for rate in PAUSES for span, seconds in SECONDS.items()
]  # fmt: skip


@retried
@pytest.mark.parametrize(("way", "seconds", "pause"), CASES)
def test_attack_does_not_change_counts_or_times_of_probes(way: str, seconds: int, pause: float, tmp_path: Path) -> None:
    counted: Told = {}
    with answering(way, counted):
        with recording("b", tmp_path / "requests.pcap"), recording("a", tmp_path / "replies.pcap"):
            alone = ended(asking(way, 1))
        # The attack begins while it measures, and ends after it.
        prober = asking(way, seconds + 2)
        with attacks(way, prober, tmp_path, pause) as attacked:
            assert prober.poll() is None, "it measures while it is attacked"
            told = ended(prober)
    print(f"{way}: {attacked} sent; {told['unexpected']} of them unexpected to who asks, {counted} to who answers")
    assert alone["unexpected"] == 0, alone
    assert told["sent"] + told["local_drops"] == PER_SECOND * (seconds + 2)
    assert told["sent"] == told["received"] + told["lost"]
    # STAMP without a key is guessed, too: a time within 10 us of now and one of 2,000 numbers. One in 40 million
    # guesses hits, so no test of this length sees it (SECURITY.md).
    assert told["duplicated"] == 0, "no forged reply was believed: it would have come beside the true one"
    assert all(sum(sent.values()) > 500 * seconds for sent in attacked), attacked
    assert told["unexpected"] > 100, told
    if way != "icmp":
        assert counted["answered"] >= told["received"]
        assert counted["unexpected"] > 100, counted
    if way == "stamp":
        assert all(sent["guessed"] > 100 for sent in attacked), attacked
    if way != "raw":
        assert attacked[1]["errors"] > 100, "ICMP errors of every code end no prober"
    with undisturbed():
        assert alone["lost"] == 0, alone
        assert all(sent["replayed"] > 0 for sent in attacked), attacked
        assert told["received"] > 0.5 * told["sent"], "answers came in spite of it"
        if pause:
            assert told["loss_ratio_ci95"][0] <= 0.01, told
            assert told["rtt"]["p50_ns"] < 5 * alone["rtt"]["p50_ns"] + 500_000, (told["rtt"], alone["rtt"])


@contextmanager
def answering(way: str, counted: Told) -> Iterator[None]:
    """Who answers at b, where it is not the kernel; what it counted is there at the end."""
    words = WAYS[way][1]
    if not words:
        yield
        return
    argv = inside("b", find_instrument(), *words, "--json", "--until-eof")
    with Child(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "ready"
        yield
        process.stdin.close()
        counted.update(json.loads(process.stdout.readline()))
    assert process.returncode == 0


def asking(way: str, seconds: int) -> subprocess.Popen[str]:
    words = [*WAYS[way][0], "-c", str(PER_SECOND * seconds), "-i", f"{1000 // PER_SECOND}ms", "--json"]
    return subprocess.Popen(inside("a", find_instrument(), *words), stdout=subprocess.PIPE, text=True)


def ended(prober: subprocess.Popen[str]) -> Told:
    """What it says in the end, which it comes to by itself."""
    out, _ = prober.communicate(timeout=PATIENCE_SECONDS)
    assert prober.returncode in {0, 4}, out
    told: Told = json.loads(out)
    return told


@contextmanager
def attacks(way: str, prober: subprocess.Popen[str], recorded: Path, pause: float) -> Iterator[list[Told]]:
    """Two attackers at m: of who answers, with whatever sender, and of who asks, as if they were who answers."""
    common: Told = {"carrier": way, "pause_seconds": pause}
    port, own_port, identifier = PORTS.get(way, 0), 0, None
    if port:
        own_port = udp_port_of(prober.pid)
    if way == "icmp":
        identifier = identifier_in_use()
    errors = {"with_errors": way != "raw"}
    as_b = {**common, **errors, "from_port": port, "identifier": identifier, "own_mac": MACS["b"]}
    with ExitStack() as both:
        yield [
            both.enter_context(attack("probe", "b", recorded / "requests.pcap", port=port, **common)),
            both.enter_context(attack("probe", "a", recorded / "replies.pcap", as_host="b", port=own_port, **as_b)),
        ]


def identifier_in_use() -> int:
    """The identifier of the echo requests that leave a now."""
    words = ["tcpdump", "-n", "-c", "1", "-i", "eth0", "icmp[icmptype] = icmp-echo"]
    done = subprocess.run(inside("a", *words), capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    found = re.search(r"echo request, id (\d+),", done.stdout)
    assert found, done.stdout
    return int(found[1])
