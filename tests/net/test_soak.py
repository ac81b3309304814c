"""The emulator and the log of TCP at load for SOJOURN_SOAK seconds: memory flat, every packet accounted.

Each runs twice: with what makes it work most a packet, and with four fifths of the packets that this machine takes.

`make soak` takes an hour for each; `make proof` half a minute or two, which find a leak of a few bytes a packet.
All say by how much the memory grows in an hour, with an interval. Where half an hour or more was watched, it is judged
that it grows by no more, and that the interval is narrow enough to tell: a minute of noise is much in an hour.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from sojourn.conduct.tcp_hosts import OFFLOADS
from sojourn.instruments import find_instrument
from sojourn.statistics.interval import student_quantile
from tests.children import Child
from tests.net.busy_machine import await_that
from tests.net.tcplog_bed import B4, PORT, TRAFFIC, WAYS, Bed, Log, logging, made_bed, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS = float(os.environ.get("SOJOURN_SOAK", "120"))

pytestmark = [
    pytest.mark.proof,
    pytest.mark.alone,
    pytest.mark.timeout(SECONDS + 1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name"),
]

WARM_SHARE = 0.25
"""Of the time: until then tables, queues and buffers may grow to what the load needs."""
MOST_LINGERING_BYTES = 16e6
"""A log remembers 16,384 flows after their last word."""
MOST_GROWTH_BYTES = 2e6
"""From the end of the warm-up on, however long that is, and in an hour."""
LONG_SECONDS = 1800
PARTS = 10
"""The readings of the steady time are averaged over so many parts: neighbouring readings are alike."""
LOG_LIMIT_BYTES = 50e6
"""Reached while it warms up: what of the log waits for the disk is no growth, and would hide some."""
RATE_PPS = 20_000
LOAD_SHARE = 0.8
"""Of the highest rate that this machine takes."""
LOADED_SECONDS = SECONDS if SECONDS >= LONG_SECONDS else SECONDS / 4
TRIAL_SECONDS = 2.0
TRIAL_LOSS = 1e-3
"""A rate at which fewer frames are lost is taken."""
FIRST_PPS, STEP, MOST_TRIALS = 200_000.0, 1.25, 12
LOADED_LOSS = 0.01
"""While the hypervisor takes a processor away, ports overflow. Each such frame is counted."""
CONTROL_FRAMES = 100
"""What the two ends of a stream, and their kernels' IPv6, say beside the frames that are counted."""
FLOWS = 8
PROBE_SECONDS = 5
NAME = f"sojourn-soak-{os.getpid()}"

SET_UP = f"""
for host in a b m; do ip netns add {NAME}-$host; ip -n {NAME}-$host link set lo up; done
ip link add eth0 netns {NAME}-a type veth peer name left netns {NAME}-m
ip link add eth0 netns {NAME}-b type veth peer name right netns {NAME}-m
for port in left right; do ip -n {NAME}-m link set $port up; done
ip -n {NAME}-a link set eth0 address 02:77:00:00:0d:01 up
ip -n {NAME}-b link set eth0 address 02:77:00:00:0d:02 up
"""


@pytest.fixture
def hosts() -> Iterator[None]:
    try:
        subprocess.run(["sh", "-e", "-c", SET_UP], check=True, capture_output=True, text=True)
        yield
    finally:
        for host in "abm":
            subprocess.run(["ip", "netns", "del", f"{NAME}-{host}"], check=False)


@contextmanager
def running(host: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """An instrument on a host."""
    argv = ["nsenter", f"--net=/run/netns/{NAME}-{host}", find_instrument(), *words]
    with Child(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def resident_bytes(pid: int) -> int:
    """Memory of a process that is its own and in use: anonymous pages, without files that the kernel caches."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024


def watch_memory(pid: int, goes_on: Callable[[], bool], seconds: float = SECONDS) -> list[int]:
    """The memory of a process, a hundred times or so while something goes on for so long."""
    seen = []
    while goes_on():
        seen.append(resident_bytes(pid))
        time.sleep(max(0.2, seconds / 100))
    return seen


class Growth(NamedTuple):
    """The line through the memory of the steady time."""

    rise_bytes: float
    """Over that time."""
    per_hour: float
    half: float
    """Half the width of the 95 % interval of `per_hour`."""

    def __str__(self) -> str:
        return (
            f"the line rises by {self.rise_bytes / 1e6:.2f} MB, which is {self.per_hour / 1e6:.2f} ± "
            f"{self.half / 1e6:.2f} MB an hour"
        )


def growth_of(steady: np.ndarray, seconds: float) -> Growth:
    """The growth of readings that are spread evenly over so many seconds."""
    means = np.array([part.mean() for part in np.array_split(steady, PARTS)])
    hours = (np.arange(PARTS) + 0.5) / PARTS * seconds / 3600
    slope, left = float(np.polyfit(hours, means, 1)[0]), means - np.polyval(np.polyfit(hours, means, 1), hours)
    error = float(np.sqrt((left**2).sum() / (PARTS - 2) / ((hours - hours.mean()) ** 2).sum()))
    return Growth(slope * seconds / 3600, slope, student_quantile(PARTS - 2, 0.95) * error)


def expect_flat(seen: list[int], buffers: float = 0, seconds: float = SECONDS) -> Growth:
    """From the end of the warm-up on, the line through the memory rises by no more than buffers may."""
    steady = np.array(seen[int(len(seen) * WARM_SHARE) :], dtype=np.float64)
    assert steady.size >= 4 * PARTS, f"only {steady.size} readings"
    growth = growth_of(steady, seconds * (1 - WARM_SHARE))
    print(f"memory {steady[0] / 1e6:.1f} to {steady[-1] / 1e6:.1f} MB, {growth}")
    assert growth.rise_bytes < MOST_GROWTH_BYTES + buffers, f"{steady[0]:.0f} to {steady[-1]:.0f} bytes"
    if seconds >= LONG_SECONDS:
        # Of an hour, means of 270 s whose scatter is 0.6 MB give an interval of ± 2 MB an hour.
        assert growth.half < MOST_GROWTH_BYTES, f"its interval is too wide to tell: {growth}"
        assert growth.per_hour - growth.half < MOST_GROWTH_BYTES, str(growth)
    return growth


@pytest.mark.usefixtures("hosts")
def test_an_emulator_at_load_keeps_its_memory_and_accounts_for_every_packet(
    tmp_path: Path, proven: Callable[..., None]
) -> None:
    pipe = "loss 1% rate 200Mbit/s queue 100KB delay 5ms jitter 1ms"
    words = [
        "--forward",
        pipe,
        "--backward",
        pipe,
        "--log",
        str(tmp_path),
        "--log-limit",
        f"{LOG_LIMIT_BYTES:.0f}B",
        "--json",
    ]
    to_b = ["--dev", "eth0", "--to", "02:77:00:00:0d:02"]
    rate = ["--rate", f"{RATE_PPS}pps", "--schedule", "poisson", "--duration", f"{SECONDS}s"]
    with (
        running("m", "emulate", "run", "left", "right", "--name", "soak", *words) as emulator,
        running("b", "stream", "recv", "--dev", "eth0", "--for", f"{SECONDS + 60}s", "--json") as receiver,
    ):
        assert emulator.stdout is not None
        assert json.loads(emulator.stdout.readline())["event"] == "ready"
        assert receiver.stderr is not None
        assert receiver.stderr.readline().startswith("receiving")
        with running("a", "stream", "send", *to_b, *rate, "--json") as sender:
            seen = watch_memory(emulator.pid, lambda: sender.poll() is None)
            out, said = sender.communicate()
        assert sender.returncode == 0, said
        (sent,) = json.loads(out)["flows"]
        out, said = receiver.communicate(timeout=60)
        assert receiver.returncode == 0, said
        (got,) = json.loads(out)["flows"]
        emulator.send_signal(signal.SIGINT)
        told, said = emulator.communicate(timeout=120)
        assert emulator.returncode == 0, said
    report = json.loads(told.splitlines()[-1])["report"]
    growth = expect_flat(seen)
    expect_every_packet(report)
    counts = {name: got[name] for name in ("sent", "first", "lost", "local_drops", "corrupted")}
    print(f"packets of the stream: {counts}; rows of the log: {report['log']}")
    assert sent["sent"] == got["sent"] == got["first"] + got["lost"] + got["local_drops"] + got["corrupted"]
    assert got["lost"] / got["sent"] == pytest.approx(0.01, rel=0.2)
    # The log has ended at its limit, and the path has not.
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1.1 * LOG_LIMIT_BYTES
    proven("soak", "emulator with a log", seconds=SECONDS, packets=sent["sent"], rise_bytes=growth.rise_bytes,
           bytes_per_hour=growth.per_hour, half_bytes_per_hour=growth.half)  # fmt: skip


class Delivered(NamedTuple):
    """What came of a stream of live frames."""

    sent: int
    first: int
    lost: int


def send_live(rate_pps: float, seconds: float, watch: Callable[[subprocess.Popen[str]], None]) -> Delivered:
    """From a to b, through what is between them."""
    to_b = ["--dev", "eth0", "--to", "02:77:00:00:0d:02", "--engine", "live", "--clock", "none"]
    rate = ["--rate", f"{rate_pps:.0f}pps", "--duration", f"{seconds}s", "--json"]
    listen = ["--dev", "eth0", "--engine", "live", "--for", f"{seconds + 60}s", "--json"]
    with running("b", "stream", "recv", *listen) as receiver:
        assert receiver.stderr is not None
        assert receiver.stderr.readline().startswith("receiving")
        with running("a", "stream", "send", *to_b, *rate) as sender:
            watch(sender)
            out, said = sender.communicate()
        assert sender.returncode == 0, said
        (sent,) = json.loads(out)["flows"]
        out, said = receiver.communicate(timeout=60)
    assert out, f"the receiver ended with status {receiver.returncode}: {said}"
    (got,) = json.loads(out)["flows"]
    assert sent["sent"] == got["sent"] == got["first"] + got["lost"] + got["local_drops"] + got["corrupted"]
    assert got["local_drops"] == got["corrupted"] == 0
    return Delivered(sent["sent"], got["first"], got["lost"])


def highest_rate_pps() -> tuple[float, int, int]:
    """The highest rate of a coarse search that loses next to nothing; how many frames it sent and had delivered."""
    rate, best, sent, first = FIRST_PPS, 0.0, 0, 0
    for _ in range(MOST_TRIALS):
        done = send_live(rate, TRIAL_SECONDS, lambda _: None)
        sent, first = sent + done.sent, first + done.first
        if done.lost <= TRIAL_LOSS * done.sent:
            best, rate = rate, rate * STEP
        elif best:
            break
        else:
            rate /= STEP
    assert best, "every rate lost frames"
    return best, sent, first


@pytest.mark.usefixtures("hosts")
def test_an_emulator_at_four_fifths_of_its_rate_keeps_its_memory_and_accounts_for_every_packet(
    proven: Callable[..., None],
) -> None:
    seen: list[int] = []
    with running("m", "emulate", "run", "left", "right", "--name", "soak", "--json") as emulator:
        assert emulator.stdout is not None
        assert json.loads(emulator.stdout.readline())["event"] == "ready"

        def watch(sender: subprocess.Popen[str]) -> None:
            seen.extend(watch_memory(emulator.pid, lambda: sender.poll() is None, LOADED_SECONDS))

        highest, sent, first = highest_rate_pps()
        done = send_live(LOAD_SHARE * highest, LOADED_SECONDS, watch)
        emulator.send_signal(signal.SIGINT)
        told, said = emulator.communicate(timeout=120)
        assert emulator.returncode == 0, said
    report = json.loads(told.splitlines()[-1])["report"]
    growth = expect_flat(seen, seconds=LOADED_SECONDS)
    print(f"{LOAD_SHARE:.0%} of {highest:.0f} frames/s; {done}; ports: {report['ports']}")
    ways = ((report["ports"], "forward"), (report["ports"][::-1], "backward"))
    for (come, go), way in ways:
        assert come["received"] == report["unmatched"][way] == go["sent"] + go["refused"]
    left, right = report["ports"]
    assert report["memory"]["held_bytes"] == 0
    # What the sender sent came in or was lost at the port; what went out came to the receiver.
    assert 0 <= left["received"] + left["local_drops"] - (sent + done.sent) < CONTROL_FRAMES
    assert 0 <= right["sent"] - (first + done.first) < CONTROL_FRAMES
    assert done.lost <= LOADED_LOSS * done.sent, done
    proven("soak", "emulator at four fifths of its rate", seconds=LOADED_SECONDS, packets=done.sent,
           rise_bytes=growth.rise_bytes, bytes_per_hour=growth.per_hour,
           half_bytes_per_hour=growth.half)  # fmt: skip


def expect_every_packet(report: dict[str, Any]) -> None:
    """What came into a port left by the other, or is counted by why it did not; nothing is held any more."""
    ways = {"forward": report["ports"], "backward": report["ports"][::-1]}
    pipes = {pipe["name"]: pipe for pipe in report["pipes"]}
    for way, (come, go) in ways.items():
        pipe = pipes[way]
        assert report["unmatched"][way] == 0
        assert come["received"] == pipe["arrived"] == pipe["sent"] + sum(pipe["lost"].values())
        assert pipe["held"] == 0
        assert go["sent"] + go["refused"] == pipe["sent"]
    assert report["memory"]["held_bytes"] == 0
    assert report["said"] == []


def test_leak_is_detected_and_its_rate_lies_within_the_interval() -> None:
    """What is judged can fail: 10 bytes a packet, at the rate of the soak, in two minutes of noise."""
    rng, seconds = np.random.default_rng(1), 90.0
    noise = rng.normal(0, 50e3, 75) + np.repeat(rng.normal(0, 100e3, 15), 5)
    still = growth_of(80e6 + noise, seconds)
    assert abs(still.per_hour) <= still.half
    leak = 10 * RATE_PPS
    grown = growth_of(80e6 + noise + leak * np.linspace(0, seconds, 75), seconds)
    assert grown.rise_bytes > MOST_GROWTH_BYTES
    assert abs(grown.per_hour - 3600 * leak) <= grown.half + 0.02 * 3600 * leak


def test_an_hour_is_judged_by_its_rate_and_by_how_well_that_is_known() -> None:
    rng, hour = np.random.default_rng(1), 3600.0

    def readings(noise: float, bytes_per_hour: float) -> list[int]:
        times = np.linspace(0, hour, 100)
        return [int(one) for one in 80e6 + rng.normal(0, noise, times.size) + bytes_per_hour * times / hour]

    assert expect_flat(readings(200e3, 0), MOST_LINGERING_BYTES, hour).half < MOST_GROWTH_BYTES / 4
    for noise, bytes_per_hour, why in ((200e3, 4e6, "which is"), (6e6, 0, "too wide to tell")):
        with pytest.raises(AssertionError, match=why):
            expect_flat(readings(noise, bytes_per_hour), MOST_LINGERING_BYTES, hour)


def test_tcp_log_at_load_has_bounded_memory_and_accounts_for_every_packet(
    tmp_path: Path, proven: Callable[..., None]
) -> None:
    """Short connections by the thousand make and forget flows; long ones fill the rings."""
    with made_bed() as bed:
        bed.serve()
        with logging(tmp_path / "t", "--attach", bed.cgroup, "--ppl", "100") as logger:
            until = time.monotonic() + SECONDS
            load = subprocess.Popen(
                bed.inside("a", sys.executable, "-c", LOAD, str(TRAFFIC), B4, str(PORT), str(SECONDS)),
                stdout=subprocess.DEVNULL,
            )
            seen = watch_memory(logger.process.pid, lambda: load.poll() is None)
            assert load.wait() == 0
            assert time.monotonic() >= until - 1
            bed.await_rest()
            logger.end()
        log = Log(tmp_path / "t")
    log.expect_law()
    growth = expect_flat(seen, MOST_LINGERING_BYTES)
    assert log.flows.height > SECONDS
    print(f"{log.count('seen')} packets of {log.flows.height} flows, each in one count")
    proven("soak", "log of TCP's state", seconds=SECONDS, packets=log.count("seen"), rise_bytes=growth.rise_bytes,
           bytes_per_hour=growth.per_hour, half_bytes_per_hour=growth.half)  # fmt: skip


def test_a_log_at_four_fifths_of_its_rate_keeps_its_memory_and_accounts_for_every_packet(
    tmp_path: Path, proven: Callable[..., None]
) -> None:
    """A record of each packet at both ends of its way, without offloads; of the records the oldest are removed."""
    words = ["--attach", "CGROUP", "--ppl", "1", "--rotate-size", "50MB", "--budget", "400MB", "--remove-oldest"]
    with made_bed() as bed:
        for host in "ab":
            run(*bed.inside(host, "ethtool", "-K", "p0", *OFFLOADS["mtu"].split()))
        bed.start("b", "iperf3", "-s", "-B", B4)
        await_that(lambda: B4 in run(*bed.inside("b", "ss", "-ltnH")).stdout, "a server of iperf3")
        words[1] = str(bed.cgroup)
        with logging(tmp_path / "t", *words) as logger:
            fastest = sent_by_iperf3(bed, PROBE_SECONDS, [])
            load = iperf3(bed, LOADED_SECONDS, ["-b", f"{LOAD_SHARE * fastest / FLOWS:.0f}"])
            seen = watch_memory(logger.process.pid, lambda: load.poll() is None, LOADED_SECONDS)
            out, said = load.communicate()
            assert load.returncode == 0, said
            bed.await_rest()
            logger.process.send_signal(signal.SIGINT)
            _, said = logger.process.communicate(timeout=120)
            assert logger.process.returncode == 0, said
    footer = json.loads((tmp_path / "t" / "footer.json").read_text())
    growth = expect_flat(seen, MOST_LINGERING_BYTES, LOADED_SECONDS)
    assert footer["conserved"] is True, footer
    totals = in_all(footer["totals"])
    assert totals["seen"] == sum(count for name, count in totals.items() if name != "seen"), totals
    told = json.loads(out)["end"]["sum_sent"]
    print(f"{LOAD_SHARE:.0%} of {fastest / 1e9:.2f} Gbit/s, reached {told['bits_per_second'] / 1e9:.2f}; {totals}")
    print(f"{totals['seen'] / (PROBE_SECONDS + LOADED_SECONDS):.0f} packets/s at both ends")
    assert totals["full"] + totals["broken"] <= LOADED_LOSS * totals["seen"], totals
    proven("soak", "log of TCP's state at four fifths of its rate", seconds=LOADED_SECONDS, packets=totals["seen"],
           rise_bytes=growth.rise_bytes, bytes_per_hour=growth.per_hour,
           half_bytes_per_hour=growth.half)  # fmt: skip


def in_all(ways: dict[str, dict[str, int]]) -> dict[str, int]:
    """The dispositions of both directions together."""
    return {name: sum(ways[way][name] for way in WAYS) for name in ways["in"]}


def iperf3(bed: Bed, seconds: float, words: list[str]) -> subprocess.Popen[str]:
    """A client, which runs."""
    client = ["iperf3", "-c", B4, "-P", str(FLOWS), "-t", f"{seconds:.0f}", "-i", "0", "-J", *words]
    return subprocess.Popen(bed.inside("a", *client), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def sent_by_iperf3(bed: Bed, seconds: float, words: list[str]) -> float:
    """What a client sends in bit/s."""
    client = iperf3(bed, seconds, words)
    out, said = client.communicate(timeout=seconds + 60)
    assert client.returncode == 0, said
    return float(json.loads(out)["end"]["sum_sent"]["bits_per_second"])


LOAD = """
import subprocess, sys, time
traffic, address, port, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
until = time.monotonic() + seconds
while time.monotonic() < until:
    subprocess.run([sys.executable, traffic, "short", address, port, "200", "4", "1"], check=True)
    bulk = subprocess.Popen([sys.executable, traffic, "send", address, port, "4", "20000000"], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    bulk.stdout.readline()
    bulk.communicate("close\\n")
"""
