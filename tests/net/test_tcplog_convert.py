"""A log of real connections in other formats, and beside a capture of the same packets.

Two namespaces of the test's own; one sends to the other over a veth. What tcpdump saw on the sender's interface and
what was logged between IP and TCP are the same packets, super-packets of segmentation offload included.
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
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from sojourn.export import Request, convert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOJOURN = str(Path(sys.executable).with_name("sojourn"))
NAME = f"sojourn-tcplog-convert-{os.getpid()}"
PATIENCE_SECONDS = 60
PORT = 5977
OURS = ["--prefix", "10.79.12.0/24", "--prefix", "fd79:12::/64", "--port", str(PORT)]
MEGABYTES = 4
SERVER = f"""
import socket
server = socket.create_server(("::", {PORT}), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
for _ in range(2):
    peer, _ = server.accept()
    with peer:
        while peer.recv(1 << 20):
            pass
"""
CLIENT = f"""
import socket, sys
for address in sys.argv[1:]:
    with socket.create_connection((address, {PORT})) as peer:
        for _ in range({MEGABYTES} * 16):
            peer.sendall(bytes(65536))
        peer.shutdown(socket.SHUT_WR)
        peer.recv(1)
"""

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces and to load programs"),
    pytest.mark.skipif(shutil.which("tcpdump") is None, reason="no tcpdump on this machine"),
]
needs_tshark = pytest.mark.skipif(
    shutil.which("tshark") is None, reason="no tshark here: scripts/setup.sh test installs it"
)


def inside(host: str, *argv: str) -> list[str]:
    """A command as it runs on one of the hosts."""
    return ["ip", "netns", "exec", f"{NAME}-{host}", *argv]


def run(*argv: str) -> str:
    """A command that must not fail."""
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}"
    return done.stdout + done.stderr


def wait_for(what: str, is_so: Callable[[], bool]) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_SECONDS} s"
        time.sleep(0.05)


def is_still(path: Path) -> bool:
    """Whether a file does not grow for a second: whoever writes it has nothing more to write."""
    before = path.stat().st_size
    time.sleep(1)
    return path.stat().st_size == before


@pytest.fixture(scope="module")
def hosts() -> Iterator[None]:
    """Two hosts with a cable, IPv4 and IPv6."""
    for host in "ab":
        run("ip", "netns", "add", f"{NAME}-{host}")
    try:
        ends = ["netns", f"{NAME}-a", "type", "veth", "peer", "name", "b0", "netns", f"{NAME}-b"]
        run("ip", "link", "add", "name", "a0", *ends)
        for number, host in enumerate("ab", start=1):
            port = f"{host}0"
            run(*inside(host, "ip", "address", "add", f"10.79.12.{number}/24", "dev", port))
            run(*inside(host, "ip", "address", "add", f"fd79:12::{number}/64", "dev", port, "nodad"))
            run(*inside(host, "ip", "link", "set", "lo", "up"))
            run(*inside(host, "ip", "link", "set", port, "up"))
        yield
    finally:
        for host in "ab":
            subprocess.run(["ip", "netns", "delete", f"{NAME}-{host}"], check=False, capture_output=True)


@pytest.fixture(scope="module")
def logged(hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log `t` and a capture `c.pcap` of the same super-packets: segmentation is left to the device."""
    return log_of_two(tmp_path_factory.mktemp("logged"))


def log_of_two(path: Path) -> Path:
    """A folder with a log `t` of two connections, one of each family, and a capture `c.pcap` of the same packets."""
    out, capture = path / "t", path / "c.pcap"
    started: list[subprocess.Popen[str]] = []

    def start(*argv: str) -> subprocess.Popen[str]:
        one = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(one)
        return one

    try:
        dump = start(
            *inside("a", "tcpdump", "-i", "a0", "--immediate-mode", "-U", "-B", "65536", "-w", str(capture), "tcp")
        )
        log = start(SOJOURN, "tcplog", "run", *OURS, "--out", str(out))
        server = start(*inside("b", sys.executable, "-c", SERVER))
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        wait_for("tcpdump", capture.is_file)
        wait_for("tcplog", lambda: (out / "header.json").is_file() or log.poll() is not None)
        assert log.poll() is None, log.communicate()
        time.sleep(0.5)
        run(*inside("a", sys.executable, "-c", CLIENT, "10.79.12.2", "fd79:12::2"))
        wait_for("the capture's last packets", lambda: is_still(capture))
        for one in (log, dump):
            one.send_signal(signal.SIGINT)
            _, told = one.communicate(timeout=PATIENCE_SECONDS)
            assert one.returncode == 0, told
    finally:
        for one in started:
            if one.poll() is None:
                one.kill()
            one.communicate()
    return path


def commented(logged: Path) -> tuple[int, int, list[int]]:
    """How many packets of the capture have a comment, of how many; and what the samples' sentence counts."""
    output = logged / "o.pcapng"
    capture = ["--capture", str(logged / "c.pcap")]
    told = run(
        SOJOURN, "tcplog", "convert", str(logged / "t"), "--to", "pcapng", *capture, "-o", str(output), "--force"
    )
    found = re.search(r"(\d+) of (\d+) TCP packets", told)
    sums = re.search(r"of (\d+) logged packets (\d+) are .*, (\d+) in segments, (\d+) are not in it", told)
    assert found, told
    assert sums, told
    logged_packets, *parts = map(int, sums.groups())
    assert logged_packets == sum(parts)
    before, after = (shown(one) for one in (logged / "c.pcap", output))
    assert before == after
    assert len(before) == int(found[2])
    assert sum(map(bool, comments_by_tshark(output))) == int(found[1])
    return int(found[1]), int(found[2]), parts


@needs_tshark
def test_every_captured_packet_has_a_comment(logged: Path) -> None:
    comments, packets, (whole, split, missing) = commented(logged)
    # The last acknowledgement of a connection may be a TIME_WAIT's, which has no control block.
    assert packets - comments <= 4
    assert split == missing == 0
    assert comments > 100
    # Both ends are on this machine: a packet leaves one and arrives at the other.
    assert whole >= 2 * comments - 8


@needs_tshark
def test_segments_of_super_packets_have_comments_too(hosts: None, tmp_path: Path) -> None:
    """Without offloads, as behind an emulator, what TCP hands down as one packet is captured as several."""
    offloads = ["tso", "off", "gso", "off"]
    run(*inside("a", "ethtool", "-K", "a0", *offloads))
    try:
        log_of_two(tmp_path)
    finally:
        run(*inside("a", "ethtool", "-K", "a0", *(word.replace("off", "on") for word in offloads)))
    comments, packets, (_, split, _) = commented(tmp_path)
    assert split > 50
    assert packets > 2 * MEGABYTES * (1 << 20) / 1500
    assert packets - comments <= 4


def comments_by_tshark(capture: Path) -> list[str]:
    """Each packet's comment, as Wireshark reads it."""
    argv = ["tshark", "-r", str(capture), "-T", "fields", "-e", "frame.comment"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()


def shown(capture: Path) -> list[str]:
    """What tcpdump says of each packet."""
    argv = ["tcpdump", "-nn", "-tt", "-r", str(capture)]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()


def test_siftr_and_tables_have_every_packet(logged: Path) -> None:
    for to in ("siftr", "siftr-1.2", "csv", "parquet", "jsonl", "qlog"):
        convert(Request(logged / "t", to, force=True))
    out = logged / "t"
    *lines, last = (out / "siftr.log").read_text().splitlines()[1:]
    foot = dict(pair.split("=", 1) for pair in last.split("\t"))
    assert len(lines) == int(foot["total_tcp_pkts"]) - int(foot["total_skipped_tcp_pkts"])
    assert {len(line.split(",")) for line in lines} == {27}
    assert {line.split(",")[13] for line in lines} <= {"4", "5", "6", "7", "8", "9", "10"}
    assert len(foot["flow_list"].split(",")) == 5
    samples = pl.read_parquet(out / "tcplog.parquet")
    totals = json.loads((out / "footer.json").read_text())["totals"]
    logged_packets = totals["in"]["logged"] + totals["out"]["logged"]
    assert samples.height == logged_packets == pl.read_csv(out / "tcplog.csv").height
    sent = samples.filter(pl.col("point") == "out").group_by("flow").agg(pl.col("payload_bytes").sum())
    assert sum(octets >= MEGABYTES << 20 for octets in sent["payload_bytes"]) == 2
    traces = json.loads((out / "tcplog.qlog").read_text())["traces"]
    assert sorted(trace["vantage_point"]["type"] for trace in traces) == ["client", "client", "server", "server"]
