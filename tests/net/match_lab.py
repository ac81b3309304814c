"""Two hosts and a box between them, for tests of `sojourn match`: what the box is, who talks, and who captures.

What comes of it the tests judge.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from tests.net.busy_machine import await_standstill, await_that
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Iterator

SOJOURN = str(Path(sys.executable).with_name("sojourn"))
PATIENCE_SECONDS = 60
PINGS = 300
FRAMES = 2_000
PORTS = ("left", "right")
Places = tuple[tuple[str, str], tuple[str, str]]
IN_THE_BOX: Places = (("box", "left"), ("box", "right"))
AT_THE_HOSTS: Places = (("a", "eth1"), ("b", "eth1"))
CAPTURING = "capturing"
WIRESHARKS = ("dumpcap", "tshark")
SAYS = {"dumpcap": "File: ", "tshark": "Capturing on"}
LONGEST_BYTES = 2048

PINNED = """
ip -4 neigh show dev eth1 | while read address _ mac _; do
    ip neigh replace "$address" lladdr "$mac" dev eth1 nud permanent
done
"""

SENDER = """
import socket, sys, time
from tests.unit.printed_json import printed
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for number in range(int(sys.argv[2])):
        sender.sendto(number.to_bytes(4) + bytes(number % 1400), (sys.argv[1], 9))
        time.sleep(1e-4)
"""
"""UDP of many sizes, to nobody who listens: what matters is that it passes."""

Told = dict[str, Any]


class Lab:
    """`a` and `b`, and a box between them with the ports `left` and `right`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"sojourn-match-{uuid.uuid4().hex[:6]}"
        self.started: list[subprocess.Popen[str]] = []

    def build(self) -> None:
        """Namespaces and cables, without a word of their own."""
        for host in ("a", "box", "b"):
            run("ip", "netns", "add", f"{self.name}-{host}")
            for what in ("all", "default"):
                self.inside(host, "sysctl", "-qw", f"net.ipv6.conf.{what}.disable_ipv6=1")
        for host, port in (("a", "left"), ("b", "right")):
            ends = ["netns", f"{self.name}-{host}", "type", "veth", "peer", "name", port, "netns", f"{self.name}-box"]
            run("ip", "link", "add", "eth1", *ends)
            self.inside(host, "ip", "link", "set", "eth1", "up")
            self.inside("box", "ip", "link", "set", port, "up")
            for where, dev in ((host, "eth1"), ("box", port)):
                # On a busy machine the kernel would ask for an address again after 5 s: between capture and count.
                self.inside(where, "sysctl", "-qw", f"net.ipv4.neigh.{dev}.delay_first_probe_time=600")
        await_that(self.is_up, "both ports of the box are operational")

    def is_up(self) -> bool:
        """Whether both ports of the box are operational, which the kernel tells up to a second after their carrier."""
        links = json.loads(self.inside("box", "ip", "-j", "link"))
        return {link.get("ifname") for link in links if link.get("operstate") == "UP"} >= set(PORTS)

    def bridge(self) -> None:
        """The box is a bridge."""
        self.inside("box", "ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0", "stp_state", "0")
        for port in PORTS:
            self.inside("box", "ip", "link", "set", port, "master", "br0")
        self.inside("box", "ip", "link", "set", "br0", "up")
        self.address("10.79.14.1", "10.79.14.2")

    def route(self) -> None:
        """The box is a router."""
        for port, host, net in (("left", "a", 14), ("right", "b", 15)):
            self.inside("box", "ip", "address", "add", f"10.79.{net}.254/24", "dev", port)
            self.inside(host, "ip", "address", "add", f"10.79.{net}.{1 + (host == 'b')}/24", "dev", "eth1")
            self.inside(host, "ip", "route", "add", "default", "via", f"10.79.{net}.254")
        self.inside("box", "sysctl", "-qw", "net.ipv4.ip_forward=1")

    def masquerade(self) -> None:
        """The router gives what goes to `b` its own address, and ports by chance."""
        for words in (
            "add table ip nat",
            "add chain ip nat out { type nat hook postrouting priority 100 ; }",
            "add rule ip nat out oifname right masquerade random",
        ):
            self.inside("box", "nft", words)

    def address(self, of_a: str, of_b: str) -> None:
        """Addresses in one network."""
        for host, address in (("a", of_a), ("b", of_b)):
            self.inside(host, "ip", "address", "add", f"{address}/24", "dev", "eth1")

    def remove(self) -> None:
        """Take all of it away."""
        for started in self.started:
            if started.poll() is None:
                started.kill()
                started.communicate()
        for host in ("a", "box", "b"):
            run("ip", "netns", "del", f"{self.name}-{host}")

    def inside(self, host: str, *argv: str) -> str:
        """Run a command at a host, which must not fail."""
        return run("ip", "netns", "exec", f"{self.name}-{host}", *argv)

    def start(self, host: str, *argv: str, said: str) -> subprocess.Popen[str]:
        """Start a command at a host, and wait until it says something."""
        words = ["ip", "netns", "exec", f"{self.name}-{host}", *argv]
        started = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        self.started.append(started)
        assert started.stderr is not None
        lines = [started.stderr.readline()]
        while said not in lines[-1]:
            assert lines[-1], f"{argv} ended: {lines}"
            lines.append(started.stderr.readline())
        return started

    def counted(self) -> dict[str, tuple[int, int]]:
        """Packets that each port of the box received and sent, by the kernel, when it is quiet."""

        def read() -> dict[str, tuple[int, int]]:
            links = {port: json.loads(self.inside("box", "ip", "-s", "-j", "link", "show", port))[0] for port in PORTS}
            stats = {port: link["stats64"] for port, link in links.items()}
            return {port: (of["rx"]["packets"], of["tx"]["packets"]) for port, of in stats.items()}

        counted: dict[str, tuple[int, int]] = await_standstill(read)
        return counted

    @contextmanager
    def wiresharks(self) -> Iterator[None]:
        """Have dumpcap and tshark capture both ports of the box, into a pcapng each."""
        options = ["-B", "16", "-s", str(LONGEST_BYTES)]
        captures = []
        for tool in WIRESHARKS:
            for port in PORTS:
                file = self.folder / f"{tool}-{port}.pcapng"
                file.touch()
                argv = [tool, "-q", "-i", port, *options, "-w", str(file)]
                captures.append((self.start("box", *argv, said=SAYS[tool]), file))
        await_that(lambda: all(file.stat().st_size for _, file in captures), "dumpcap and tshark capture")
        yield
        await_standstill(lambda: [file.stat().st_size for _, file in captures], 1.0)
        for capture, _ in captures:
            capture.send_signal(signal.SIGINT)
        for capture, _ in captures:
            _, said = capture.communicate(timeout=PATIENCE_SECONDS)
            assert capture.returncode == 0, said

    @contextmanager
    def captured(self, places: Places = IN_THE_BOX) -> Iterator[None]:
        """Have tcpdump at both sides of the box, which must drop nothing."""
        # In its immediate mode a slot of the buffer is as long as the longest packet that is asked for.
        options = ["--time-stamp-precision", "nano", "-B", "16384", "-s", str(LONGEST_BYTES), "-U", "--immediate-mode"]
        options += ["-Z", "root"]
        files = [self.folder / f"{port}.pcap" for port in PORTS]
        captures = [
            self.start(host, "tcpdump", "-i", dev, *options, "-w", str(file), said="listening on")
            for (host, dev), file in zip(places, files, strict=True)
        ]
        yield
        await_standstill(lambda: [file.stat().st_size for file in files], 1.0)
        for capture in captures:
            capture.send_signal(signal.SIGINT)
            _, said = capture.communicate(timeout=PATIENCE_SECONDS)
            assert "0 packets dropped by kernel" in said, said

    def talk(self, to: str) -> str:
        """Echoes, and UDP of many sizes to nobody who listens, which is answered by errors; what ping says."""
        pinged = self.inside("a", "ping", "-q", "-c", str(PINGS), "-i", "0.005", to)
        self.inside("a", sys.executable, "-c", SENDER, to, str(FRAMES))
        return pinged


@contextmanager
def built(folder: Path) -> Iterator[Lab]:
    """A lab as long as a test lasts."""
    made = Lab(folder)
    try:
        made.build()
        yield made
    finally:
        made.remove()


def by_direction(told: Told) -> dict[str, Told]:
    """What was found in each direction."""
    [pair] = told["pairs"]
    return {way["direction"]: way for way in pair["directions"]}


def crossings(folder: Path) -> pl.DataFrame:
    """The packets that were matched, as each direction saw them enter."""
    rows = pl.read_ipc_stream(folder / "crossings-match-000.arrow")
    return rows.with_columns(pl.col("direction").cast(pl.String)).sort("direction", "number")


def match(folder: Path, *words: str) -> Told:
    """What `sojourn match` says."""
    done = subprocess.run(
        [SOJOURN, "match", *words, "--json"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    told: Told = printed("match", done.stdout)
    return told


def run(*argv: str) -> str:
    """A command that must not fail."""
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}"
    return done.stdout
