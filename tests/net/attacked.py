"""Hosts `a` and `b`, which measure, and `m`, which attacks, joined by a switch: network namespaces of the tests' own.

What the attacker sends is in `attacker.py`; what must come of it, in `test_attack.py`, `test_attack_probes.py`
and `test_attack_emulator.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.children import Child

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = f"sojourn-attack-{os.getpid()}"
PATIENCE_SECONDS = 90
HOSTS = ("a", "b", "m")
MACS = {host: f"02:77:00:00:0a:0{number}" for number, host in enumerate(HOSTS, start=1)}
ADDRESSES = {host: f"10.78.9.{number}" for number, host in enumerate(HOSTS, start=1)}
SECONDS = {"short": 2, "long": 60}
DRAINED_SECONDS = 0.3
ATTACKER = Path(__file__).with_name("attacker.py")

Told = dict[str, Any]

WIDEST = 5
"""How many times as wide as without it an interval may be under attack.

Two quiet runs of a study of streams differed by up to 3.8 in it, on a machine of two cores with a load of 16, and two
of a study of an emulator by 10, on a quiet one: so the wider of them counts.
"""


class Figure(NamedTuple):
    """A figure with its interval."""

    estimate: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half the width of its interval."""
        return (self.high - self.low) / 2

    def agrees(self, *quiet: Figure) -> bool:
        """Whether one under attack differs from each of the quiet ones by no more than both intervals together, and is
        not much less certain.

        Else an attack that only widens the interval would be taken for none.
        """
        is_near = all(abs(self.estimate - one.estimate) <= (self.half**2 + one.half**2) ** 0.5 for one in quiet)
        return is_near and self.half <= WIDEST * max(one.half for one in quiet)


def inside(host: str, *argv: str) -> list[str]:
    """A command as it runs on one of the hosts."""
    return ["ip", "netns", "exec", f"{NAME}-{host}", *argv]


def run(*argv: str) -> str:
    """A command that must not fail."""
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS).stdout


@contextmanager
def switched_hosts(*, learning: bool = True) -> Iterator[None]:
    """The three hosts; `learning`: whether the switch takes the attacker's frames for those of whom they name."""
    names = [*HOSTS, "switch"]
    for name in names:
        run("ip", "netns", "add", f"{NAME}-{name}")
    try:
        run(*inside("switch", "ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0"))
        run(*inside("switch", "ip", "link", "set", "br0", "up"))
        for host in HOSTS:
            link("switch", f"s{host}", host, "eth0")
            run(*inside("switch", "ip", "link", "set", f"s{host}", "master", "br0", "up"))
            run(*inside(host, "ip", "link", "set", "eth0", "address", MACS[host], "up"))
            run(*inside(host, "ip", "link", "set", "lo", "up"))
            run(*inside(host, "ip", "address", "add", f"{ADDRESSES[host]}/24", "dev", "eth0"))
        run(
            *inside(
                "switch", "ip", "link", "set", "sm", "type", "bridge_slave", "learning", "on" if learning else "off"
            )
        )
        yield
    finally:
        for name in names:
            run("ip", "netns", "del", f"{NAME}-{name}")


def link(host: str, port: str, far_host: str, far_port: str) -> None:
    """A cable between two of the hosts."""
    ends = ["netns", f"{NAME}-{host}", "type", "veth", "peer", "name", far_port, "netns", f"{NAME}-{far_host}"]
    run("ip", "link", "add", port, *ends)


@contextmanager
def attack(
    kind: str, victim: str, recorded: Path | None = None, *, as_host: str = "m", port: int = 0, **more: Any
) -> Iterator[Told]:
    """The attacker at work on m; what it sent is reported when it has ended, by kind of frame."""
    request = {
        "kind": kind, "dev": "eth0", "mac": MACS[victim], "to": ADDRESSES[victim], "from": ADDRESSES[as_host],
        "port": port, "from_port": 7707 if as_host == "b" else 40_000, "recorded": str(recorded) if recorded else None,
    } | more  # fmt: skip
    with attacker(inside("m"), [request]) as sent:
        yield sent


@contextmanager
def recording(host: str, file: Path) -> Iterator[None]:
    """A capture of what comes to a host: what leaves past a queueing discipline, as raw probes do, no capture sees."""
    words = ["tcpdump", "-i", "eth0", "-Q", "in", "-w", str(file), "-U", "not arp and not ip6"]
    with Child(inside(host, *words), stderr=subprocess.PIPE, text=True) as listener:
        assert listener.stderr is not None
        try:
            while "listening on" not in listener.stderr.readline():
                assert listener.poll() is None
            yield
            time.sleep(DRAINED_SECONDS)  # what its ring still holds is written
        finally:
            listener.terminate()


@contextmanager
def attacker(enter: list[str], requests: list[Told]) -> Iterator[Told]:
    """The attacker at work, where `enter` brings it."""
    argv = [*enter, sys.executable, "-I", str(ATTACKER), *map(json.dumps, requests)]
    with Child(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "attacking\n"
            sent: Told = {}
            try:
                yield sent
            finally:  # also where another attacker of the same bed came too late
                process.stdin.close()
                sent.update(json.loads(process.stdout.readline()))
        finally:
            process.kill()


def is_ours(controller: int) -> bool:
    """Whether a bed is of this process or of one that it started: others may measure on the machine meanwhile."""
    parent = Path("/proc", str(controller), "stat").read_text().rpartition(")")[2].split()[1]
    return os.getpid() in {controller, int(parent)}


def udp_port_of(pid: int) -> int:
    """The UDP port that a program on host a talks from."""
    for _ in range(100):
        shown = run(*inside("a", "ss", "-Hunap"))
        for line in shown.splitlines():
            if f"pid={pid}," in line:
                return int(line.split()[3].rsplit(":", 1)[1])
        time.sleep(0.02)
    raise AssertionError("the program's socket is not there")
