"""Captures by tcpdump on both ports of a kernel bridge, matched.

Every packet that the ports counted is in one count, and no delay contradicts the round trips that ping saw.

Two hosts and a box between them, of the test's own. Times are bounded by physics only, for the machine may be busy.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.net.busy_machine import await_standstill

if TYPE_CHECKING:
    from collections.abc import Iterator

SOJOURN = str(Path(sys.executable).with_name("sojourn"))
PATIENCE_SECONDS = 60
PINGS = 300
FRAMES = 2_000

SENDER = """
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for number in range(int(sys.argv[2])):
        sender.sendto(number.to_bytes(4) + bytes(number % 1400), (sys.argv[1], 9))
        time.sleep(1e-4)
"""
"""UDP of many sizes, to nobody who listens: what matters is that it passes."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

Told = dict[str, Any]


class Lab:
    """`a` and `b`, and a box that bridges them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"sojourn-match-{uuid.uuid4().hex[:6]}"
        self.captures: list[subprocess.Popen[str]] = []

    def build(self) -> None:
        """Namespaces, cables, a bridge without a word of its own."""
        for host in ("a", "box", "b"):
            run("ip", "netns", "add", f"{self.name}-{host}")
            for what in ("all", "default"):
                self.inside(host, "sysctl", "-qw", f"net.ipv6.conf.{what}.disable_ipv6=1")
        self.inside("box", "ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0", "stp_state", "0")
        for number, (host, port) in enumerate((("a", "left"), ("b", "right")), start=1):
            ends = ["netns", f"{self.name}-{host}", "type", "veth", "peer", "name", port, "netns", f"{self.name}-box"]
            run("ip", "link", "add", "eth1", *ends)
            self.inside(host, "ip", "link", "set", "eth1", "up")
            self.inside(host, "ip", "address", "add", f"10.79.14.{number}/24", "dev", "eth1")
            self.inside("box", "ip", "link", "set", port, "master", "br0", "up")
        self.inside("box", "ip", "link", "set", "br0", "up")

    def remove(self) -> None:
        """Take all of it away."""
        for capture in self.captures:
            if capture.poll() is None:
                capture.kill()
                capture.wait()
        for host in ("a", "box", "b"):
            run("ip", "netns", "del", f"{self.name}-{host}")

    def inside(self, host: str, *argv: str) -> str:
        """Run a command at a host, which must not fail."""
        return run("ip", "netns", "exec", f"{self.name}-{host}", *argv)

    def counted(self, port: str) -> tuple[int, int]:
        """Packets that a port of the box received and sent, by the kernel."""
        [link] = json.loads(self.inside("box", "ip", "-s", "-j", "link", "show", port))
        return link["stats64"]["rx"]["packets"], link["stats64"]["tx"]["packets"]

    def capture(self, port: str) -> None:
        """Start tcpdump at a port of the box."""
        argv = ["tcpdump", "-i", port, "--time-stamp-precision", "nano", "-B", "16384", "-U", "--immediate-mode"]
        argv = ["ip", "netns", "exec", f"{self.name}-box", *argv, "-Z", "root", "-w", str(self.folder / f"{port}.pcap")]
        capture = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
        self.captures.append(capture)
        assert capture.stderr is not None
        while "listening on" not in (line := capture.stderr.readline()):
            assert line, f"tcpdump at {port} ended"

    def end_captures(self) -> None:
        """End tcpdump when it has written all, and it must have dropped nothing."""
        await_standstill(lambda: [path.stat().st_size for path in sorted(self.folder.glob("*.pcap"))], 1.0)
        for capture in self.captures:
            capture.send_signal(signal.SIGINT)
            _, said = capture.communicate(timeout=PATIENCE_SECONDS)
            assert "0 packets dropped by kernel" in said, said


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    try:
        made.build()
        yield made
    finally:
        made.remove()


def test_every_packet_through_a_bridge_is_accounted_for(lab: Lab) -> None:
    # Addresses are asked for before, and asked for again much later.
    lab.inside("a", "ping", "-c", "2", "-i", "0.2", "10.79.14.2")
    ports = ("left", "right")
    await_standstill(lambda: [lab.counted(port) for port in ports])
    before = {port: lab.counted(port) for port in ports}
    for port in ports:
        lab.capture(port)
    pinged = lab.inside("a", "ping", "-q", "-c", str(PINGS), "-i", "0.005", "10.79.14.2")
    lab.inside("b", sys.executable, "-c", SENDER, "10.79.14.1", str(FRAMES))
    await_standstill(lambda: [lab.counted(port) for port in ports])
    lab.end_captures()
    after = {port: lab.counted(port) for port in ports}
    passed = {port: [after[port][way] - before[port][way] for way in (0, 1)] for port in ports}

    told = match(lab.folder, "left.pcap", "right.pcap", "--same-clock", "-o", "out")
    [pair] = told["pairs"]
    ways = {found["direction"]: found for found in pair["directions"]}
    taps = {tap["name"].removesuffix(".pcap"): tap["packets"] for tap in told["taps"]}
    assert taps == {port: sum(counts) for port, counts in passed.items()}
    for direction, (here, there) in {"forward": ports, "backward": ports[::-1]}.items():
        counts = ways[direction]["counts"]
        assert counts["seen_first"] == passed[here][0], (direction, counts, passed)
        assert counts["seen_second"] == passed[there][1], (direction, counts, passed)
        assert counts["matched"] == counts["seen_first"] == counts["seen_second"], (direction, counts)
        assert counts["reordered"] == 0, counts
        assert counts["ambiguous"] == 0, counts
    assert ways["forward"]["counts"]["matched"] >= PINGS
    assert ways["backward"]["counts"]["matched"] >= PINGS + FRAMES
    # A round trip goes through the box twice.
    found = re.search(r"= ([\d.]+)/[\d.]+/([\d.]+)/", pinged)
    assert found, pinged
    least, most = (float(value) * 1e6 for value in found.groups())
    assert 0 < ways["forward"]["delay"]["min_ns"] + ways["backward"]["delay"]["min_ns"] < least
    assert ways["forward"]["delay"]["p50_ns"]["value"] < most
    rows = pa.ipc.open_stream((lab.folder / "out/crossings-match-000.arrow").read_bytes()).read_all()
    assert len(rows) == sum(way["counts"]["matched"] for way in ways.values())
    assert rows["delay_ns"].to_numpy().min() >= 0
    assert (lab.folder / "out/summary.json").stat().st_mode & 0o777 == 0o600


def match(folder: Path, *words: str) -> Told:
    """What `sojourn match` says."""
    done = subprocess.run(
        [SOJOURN, "match", *words, "--json"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    told: Told = json.loads(done.stdout)
    return told


def run(*argv: str) -> str:
    """A command that must not fail."""
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}"
    return done.stdout
