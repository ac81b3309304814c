"""Captures on both ports of a box, matched: a bridge, a router, a translator, a relay of known holds.

Every packet that the ports counted is in one count. tcpdump's captures, ours and our records give the same delays. No
delay contradicts the round trips that ping saw, and a relay's holds are found packet by packet.

Two hosts and a box between them, of the test's own. Times are bounded by physics, for the machine may be busy.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from sojourn.instruments import find_instrument
from tests.children import Child
from tests.net.match_lab import (
    AT_THE_HOSTS,
    CAPTURING,
    FRAMES,
    PATIENCE_SECONDS,
    PINGS,
    PINNED,
    PORTS,
    WIRESHARKS,
    Lab,
    built,
    by_direction,
    crossings,
    match,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
RELAY = ROOT / "target/debug/sojourn-test-relay"
HOLD_ERROR_NS = 20_000

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with built(tmp_path) as made:
        yield made


def test_every_packet_through_a_bridge_is_accounted_for(lab: Lab) -> None:
    lab.bridge()
    # Addresses are asked for before, and never again.
    lab.inside("a", "ping", "-c", "2", "-i", "0.2", "10.79.14.2")
    for host in "ab":
        lab.inside(host, "sh", "-ec", PINNED)
    before = lab.counted()
    ours = lab.start(
        "box", find_instrument(), "capture", *PORTS, "-o", str(lab.folder / "ours"), "--for", "60s", said=CAPTURING
    )
    with lab.wiresharks(), lab.captured():
        pinged = lab.talk("10.79.14.2")
    ours.send_signal(signal.SIGINT)
    _, said = ours.communicate(timeout=PATIENCE_SECONDS)
    assert ours.returncode == 0, said
    after = lab.counted()
    passed = {port: [after[port][way] - before[port][way] for way in (0, 1)] for port in PORTS}

    told = match(lab.folder, "left.pcap", "right.pcap", "--same-clock", "-o", "out")
    taps = {tap["name"].removesuffix(".pcap"): tap["packets"] for tap in told["taps"]}
    assert taps == {port: sum(counts) for port, counts in passed.items()}
    ways = by_direction(told)
    for direction, (here, there) in {"forward": PORTS, "backward": PORTS[::-1]}.items():
        counts = ways[direction]["counts"]
        assert counts["seen_first"] == passed[here][0], (direction, counts, passed)
        assert counts["seen_second"] == passed[there][1], (direction, counts, passed)
        assert counts["matched"] == counts["seen_first"] == counts["seen_second"], (direction, counts)
        assert (counts["reordered"], counts["ambiguous"]) == (0, 0), counts
    assert ways["forward"]["counts"]["matched"] >= PINGS + FRAMES
    assert ways["backward"]["counts"]["matched"] >= PINGS
    # A round trip goes through the box twice.
    found = re.search(r"= ([\d.]+)/[\d.]+/([\d.]+)/", pinged)
    assert found, pinged
    least, most = (float(value) * 1e6 for value in found.groups())
    assert 0 < ways["forward"]["delay"]["min_ns"] + ways["backward"]["delay"]["min_ns"] < least
    assert ways["forward"]["delay"]["p50_ns"]["value"] < most
    delays = crossings(lab.folder / "out")
    assert len(delays) == sum(way["counts"]["matched"] for way in ways.values())
    assert delays["delay_ns"].min() >= 0  # type: ignore[operator]
    assert (lab.folder / "out/summary.json").stat().st_mode & 0o777 == 0o600
    # Captures of the same packets by other programs: of all of them, with the same delays.
    for tool in WIRESHARKS:
        match(lab.folder, f"{tool}-left.pcapng", f"{tool}-right.pcapng", "--same-clock", "-o", tool)
    match(lab.folder, "ours/left.pcapng", "ours/right.pcapng", "--same-clock", "-o", "again")
    told = match(lab.folder, "ours/taps-left-000.arrow", "ours/taps-right-000.arrow", "-o", "records")
    assert told["pairs"][0]["clocks"]["relation"] == "one", "our taps say that one kernel keeps their time"
    for other in ("again", "records", *WIRESHARKS):
        assert crossings(lab.folder / other)["delay_ns"].to_list() == delays["delay_ns"].to_list(), other


@pytest.mark.parametrize("key", ["router", "nat"])
def test_packets_rewritten_by_a_router_or_nat_are_matched(lab: Lab, key: str) -> None:
    lab.route()
    if key == "nat":
        lab.masquerade()
    before = lab.counted()
    with lab.captured():
        lab.talk("10.79.15.2")
    after = lab.counted()
    told = match(lab.folder, "left.pcap", "right.pcap", "--same-clock", "--key", key)
    ways = by_direction(told)
    for way in ways.values():
        counts = way["counts"]
        assert counts["matched"] == counts["seen_first"] == counts["seen_second"], (way["direction"], counts)
        assert counts["ambiguous"] == 0, counts
    assert ways["forward"]["counts"]["matched"] == PINGS + FRAMES
    assert ways["backward"]["counts"]["matched"] > PINGS, "errors came back"
    # What remains is ARP.
    for tap in told["taps"]:
        port = tap["name"].removesuffix(".pcap")
        assert tap["packets"] == sum(after[port]) - sum(before[port])
        assert 0 < tap["without_key"] == tap["packets"] - tap["with_digest"] < 10
    # By another key the same packets are strangers.
    other = match(lab.folder, "left.pcap", "right.pcap", "--same-clock", "--key", "bridge")
    assert sum(way["counts"]["matched"] for way in by_direction(other).values()) == 0


@pytest.mark.parametrize(
    "holds",
    [
        pytest.param((200_000, 200_000), id="symmetric", marks=pytest.mark.proof),
        pytest.param((400_000, 50_000), id="asymmetric"),
    ],
)
@pytest.mark.usefixtures("relay_binary")
@pytest.mark.alone  # the relay keeps its times where it has the processor
def test_delays_of_a_relay_are_found_packet_by_packet(lab: Lab, holds: tuple[int, int]) -> None:
    lab.address("10.79.14.1", "10.79.14.2")
    path = f"--path=left,right,{holds[0]},{holds[1]}"
    argv = ["ip", "netns", "exec", f"{lab.name}-box", str(RELAY), "--log", str(lab.folder / "relay.csv"), path]
    with Child(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as relay:
        assert relay.stdout is not None
        assert "ready" in relay.stdout.readline()
        lab.inside("a", "ping", "-c", "2", "-i", "0.2", "10.79.14.2")
        # What the relay sends goes past the kernel's taps in the box.
        with lab.captured(AT_THE_HOSTS):
            lab.talk("10.79.14.2")
        assert relay.stdin is not None
        relay.stdin.close()
        assert relay.wait(PATIENCE_SECONDS) == 0
    told = match(lab.folder, "left.pcap", "right.pcap", "--same-clock", "-o", "out")
    truth = pl.read_csv(lab.folder / "relay.csv").with_columns(held=pl.col("left_ns") - pl.col("arrived_ns"))
    found = crossings(lab.folder / "out")
    for direction, hold in zip(("forward", "backward"), holds, strict=True):
        counts = by_direction(told)[direction]["counts"]
        assert counts["matched"] == counts["seen_first"] == counts["seen_second"], counts
        delays = found.filter(direction=direction)["delay_ns"]
        assert (delays >= hold).all(), "nothing leaves before its time"
        # The relay's log begins before the captures: their packets are its last.
        held = truth.filter(direction=direction)["held"].tail(len(delays))
        off = (delays - held).abs().to_numpy()
        # Two veths are between its stamps and tcpdump's, and there the processor may be taken away.
        assert np.quantile(off, 0.9) < HOLD_ERROR_NS, np.quantile(off, [0.5, 0.9, 0.99])
