"""`sojourn match --live` over real frames: what it matches while packets pass is what `capture` and `match` find.

A kernel bridge between two hosts. What is judged is counted; of times, that both ways tell the same.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.instruments import find_instrument
from tests.net.busy_machine import thrice, undisturbed
from tests.net.match_lab import (
    CAPTURING,
    FRAMES,
    PATIENCE_SECONDS,
    PINGS,
    PINNED,
    PORTS,
    SENDER,
    SOJOURN,
    Lab,
    built,
    by_direction,
    crossings,
    match,
)
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HERE = "10.79.14.2"
BURST = 2_000_000

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

Told = dict[str, Any]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A bridge over which nobody says anything of his own."""
    with built(tmp_path) as made:
        made.bridge()
        made.inside("a", "ping", "-c", "2", "-i", "0.2", HERE)
        for host in "ab":
            made.inside(host, "sh", "-ec", PINNED)
        yield made


class Live:
    """Packets that are matched as they pass."""

    def __init__(self, lab: Lab, *options: str) -> None:
        argv = ["ip", "netns", "exec", f"{lab.name}-box", SOJOURN, "match", *PORTS, "--live", *options]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lab.started.append(self.process)
        self.lines: list[str] = []
        self.await_line("matching left and right")

    def await_line(self, said: str) -> str:
        """The next line on standard error that has this in it; there is one each second, whatever passes."""
        assert self.process.stderr is not None
        end = time.monotonic() + PATIENCE_SECONDS
        while (line := self.process.stderr.readline()) and time.monotonic() < end:
            self.lines.append(line)
            if said in line:
                return line
        pytest.fail(f"{said!r} was not said: {self.lines[-20:]}")

    def end(self, status: int = 0) -> str:
        """Have it end, if it goes on; what it printed."""
        if status == 0 or self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        printed, problem = self.process.communicate(timeout=PATIENCE_SECONDS)
        self.lines += problem.splitlines(keepends=True)
        assert self.process.returncode == status, self.lines
        return printed


@contextmanager
def captured(lab: Lab) -> Iterator[None]:
    """The same packets, captured by taps of their own."""
    argv = [find_instrument(), "capture", *PORTS, "-o", str(lab.folder / "ours"), "--format", "records"]
    capture = lab.start("box", *argv, said=CAPTURING)
    yield
    capture.send_signal(signal.SIGINT)
    _, said = capture.communicate(timeout=PATIENCE_SECONDS)
    assert capture.returncode == 0, said


def conserved(told: Told) -> None:
    """Every frame is in one count, of the taps and of each direction."""
    for tap in told["live"]["taps"]:
        account = tap["account"]
        assert (account["conserved"], account["dropped"], account["unread"]) == (True, 0, 0), account
    assert told["live"]["late"] == 0
    for way in told["pairs"][0]["directions"]:
        counts = way["counts"]
        assert counts["seen_first"] == counts["matched"] + counts["lost"] + counts["pending"], counts
        assert counts["seen_second"] == counts["matched"] + counts["duplicated"] + counts["unexpected"], counts


def test_live_matching_equals_matching_of_captures(lab: Lab) -> None:
    before = lab.counted()
    with captured(lab):
        live = Live(lab, "--json", "-o", str(lab.folder / "live"))
        lab.talk(HERE)
        after = lab.counted()
        told = printed("match", live.end())
    assert told == json.loads((lab.folder / "live/summary.json").read_text())
    conserved(told)
    ways = by_direction(told)
    for direction, (here, there) in {"forward": PORTS, "backward": PORTS[::-1]}.items():
        counts = ways[direction]["counts"]
        assert counts["matched"] == after[here][0] - before[here][0] == after[there][1] - before[there][1], counts
        assert (counts["lost"], counts["unexpected"], counts["pending"], counts["ambiguous"]) == (0, 0, 0, 0), counts
    assert ways["forward"]["counts"]["matched"] == PINGS + FRAMES
    delays = crossings(lab.folder / "live")
    assert delays["delay_ns"].min() > 0  # type: ignore[operator]
    again = match(lab.folder, "ours/taps-left-000.arrow", "ours/taps-right-000.arrow", "-o", "again")
    same = ["direction", "number", "first_ns", "delay_ns", "length_bytes", "ambiguous"]
    assert delays.select(same).equals(crossings(lab.folder / "again").select(same))
    assert told["pairs"][0]["clocks"] == again["pairs"][0]["clocks"] == {"relation": "one"}
    # What it said meanwhile never goes back.
    said = [printed("match-live", line) for line in live.lines if line.startswith("{")]
    matched = [sum(way["matched"] for way in one["directions"]) for one in said]
    assert matched == sorted(matched)
    assert matched[-1] <= len(delays)


def test_loss_is_reported_while_the_taps_are_open(lab: Lab) -> None:
    live = Live(lab, "--window", "200ms")
    lab.inside("a", "ping", "-q", "-c", "30", "-i", "0.005", HERE)
    for port in PORTS:
        lab.inside("box", "bridge", "link", "set", "dev", port, "isolated", "on")
    argv = ["ping", "-q", "-c", "20", "-i", "0.005", "-W", "1", HERE]
    subprocess.run(["ip", "netns", "exec", f"{lab.name}-a", *argv], check=False, capture_output=True, timeout=60)
    # Nothing passes after them: that their window is over the clock says.
    line = live.await_line("20 lost")
    assert "left → right: 30 matched, 20 lost, 0 reordered, 0 ambiguous, delay p50 " in line, line
    assert "right → left: 30 matched, 0 lost" in line, line
    printed = live.end()
    assert "seen first   50 = 30 matched + 20 lost + 0 pending at the end" in printed, printed
    assert "it may have ended earlier" not in printed, printed
    assert "50 in, 30 out, 0 dropped by this capture; timestamps: kernel" in printed, printed


def test_live_matching_ends_at_its_count_with_all_packets_matched(lab: Lab) -> None:
    live = Live(lab, "--count", "200", "--filter", "icmp", "--json")
    lab.inside("a", "ping", "-f", "-q", "-c", "300", HERE)
    lab.inside("a", "python3", "-c", SENDER, HERE, "10")
    told = printed("match", live.process.communicate(timeout=PATIENCE_SECONDS)[0])
    assert (live.process.returncode, told["live"]["why"]) == (0, "count")
    assert sum(tap["packets"] for tap in told["taps"]) >= 200
    conserved(told)
    for way in told["pairs"][0]["directions"]:
        counts = way["counts"]
        assert (counts["lost"], counts["unexpected"]) == (0, 0), counts
        assert 50 <= counts["matched"] <= 300, counts


def test_packets_dropped_by_a_tap_are_not_counted_as_lost(lab: Lab) -> None:
    live = Live(lab, "--ring", "1MiB", "--json", "-o", str(lab.folder / "live"))
    live.process.send_signal(signal.SIGSTOP)
    for _ in range(2):
        lab.inside("a", "python3", "-c", SENDER, HERE, str(FRAMES))
    live.process.send_signal(signal.SIGCONT)
    told = printed("match", live.end(status=4))
    dropped = [tap["dropped_by_capture"] for tap in told["taps"]]
    assert min(dropped) > 0, dropped
    assert dropped == [tap["account"]["dropped"] for tap in told["live"]["taps"]]
    assert all(tap["account"]["conserved"] for tap in told["live"]["taps"])
    assert f"the tap at left dropped {dropped[0]:,} of " in live.lines[-1], live.lines
    assert "they look lost or unexpected; give --ring more" in live.lines[-1], live.lines
    assert json.loads((lab.folder / "live/summary.json").read_text()) == told
    assert "local_drops" in {found["name"] for found in told["live"]["findings"]}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["left", "nowhere", "--live"], "no such interface"),
        (["left", "left", "--live"], "left: named twice"),
        (["left", "right", "--live", "--filter", "udp porrt 53"], "syntax error"),
        (["left", "right", "--live", "--engine", "local"], "cannot be used with"),
        (["left", "right", "--live", "--ring", "1KiB"], "expected 1 MiB to 1 GiB"),
        (["left", "right", "--for", "1s"], "--live"),
        (["left", "right"], "there is no such file"),
    ],
)
def test_wrong_requests_are_refused_in_one_sentence(lab: Lab, words: list[str], sentence: str) -> None:
    argv = ["ip", "netns", "exec", f"{lab.name}-box", SOJOURN, "match", *words, "-o", str(lab.folder / "out")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert sentence in done.stderr
    assert not (lab.folder / "out").exists()


@pytest.mark.proof
@thrice
def test_200_000_packets_a_second_are_matched_live_with_none_dropped(tmp_path: Path) -> None:
    with built(tmp_path) as lab:
        lab.bridge()
        lab.inside("box", "bridge", "fdb", "replace", "02:00:00:00:00:77", "dev", "right", "master", "static")
        live = Live(lab, "--json", "-o", str(lab.folder / "live"))
        flood = ["--schedule", "flood", "--count", str(BURST), "--size", "64"]
        send = [find_instrument(), "stream", "send", "--dev", "eth1", "--to", "02:00:00:00:00:77", *flood]
        lab.inside("a", *send)
        told = printed("match", live.end())
    conserved(told)
    counts = by_direction(told)["forward"]["counts"]
    times = pl.read_ipc_stream(lab.folder / "live/crossings-match-000.arrow")["first_ns"]
    rate = (len(times) - 1) / (times.max() - times.min()) * 1e9  # type: ignore[operator]
    used = told["live"]["processor_time_ns"] / counts["matched"]
    print(f"{rate:.0f} packets a second at both taps, {used:.0f} ns of a processor for each")
    assert counts["matched"] == counts["seen_first"] == len(times)
    assert counts["matched"] >= BURST
    with undisturbed():
        assert rate >= 200_000
