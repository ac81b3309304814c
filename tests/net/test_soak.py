"""The emulator and the log of TCP at load for SOJOURN_SOAK seconds: memory flat, every packet accounted.

Each runs with what makes it work most a packet, and with four fifths of the packets that this machine takes: of those
that it takes for two seconds on end, on a processor of its own; the emulator once as it passes frames on, and once with
pipes. Searches of a tenth of a second find higher rates, for the port's ring holds what the emulator is behind.

`make soak` takes an hour for each; `make proof` half a minute or two, which find a leak of some ten bytes a packet.
All say by how much the process's own memory grows in an hour, with an interval. Where half an hour or more was watched,
the upper end of the interval is judged: a minute of noise is much in an hour.
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
"""From the end of the warm-up on, however long that is."""
MOST_HOURLY_BYTES = 4e6
"""By the upper end of the interval of the growth in an hour."""
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
FIRST_PPS, STEP, MOST_TRIALS, CLOSE = 200_000.0, 1.25, 40, 1.04
"""A search ends where the lowest rate that lost frames twice is so little above the highest that did not."""
KEPT_SHARE = 0.995
"""Of the frames and of the time that were asked for so much is reached."""
IPERF3_SHARE = 0.95
"""Of the rate that is asked of it so much is reached by iperf3, which makes up for no pause."""
LOADED_LOSS = 0.01
"""While the hypervisor takes a processor away, ports overflow. Each such frame is counted."""
CONTROL_FRAMES = 30
"""Of a stream: what its two ends, and their kernels' IPv6, say at most beside the frames that are counted."""
FLOWS = 8
PROBES, PROBE_SECONDS = 3, 5
CORES = sorted(os.sched_getaffinity(0))
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
    # Its pipes hold the sentences of an hour, 60 a minute at most, which are read at its end.
    with Child(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pipesize=1 << 20) as process:
        try:
            yield process
        finally:
            process.kill()


def resident_bytes(pid: int) -> int:
    """Memory of a process that is its own and in use: anonymous and shared pages, without files that are cached."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return 1024 * sum(int(status.partition(f"{kind}:")[2].split()[0]) for kind in ("RssAnon", "RssShmem"))


class Seen(NamedTuple):
    """A reading of the memory."""

    seconds: float
    """Since the first one."""
    size: int


def watch_memory(pid: int, goes_on: Callable[[], bool], seconds: float = SECONDS) -> list[Seen]:
    """The memory of a process, a hundred times or so while something goes on, which must last for so long."""
    seen, started = [], time.monotonic()
    while goes_on():
        seen.append(Seen(time.monotonic() - started, resident_bytes(pid)))
        time.sleep(max(0.2, seconds / 100))
    lasted = time.monotonic() - started
    assert lasted >= KEPT_SHARE * seconds, f"what loads it ended after {lasted:.0f} s"
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


def growth_of(steady: list[Seen]) -> Growth:
    """The growth over readings."""
    at, sizes = np.array([one.seconds for one in steady]), np.array([one.size for one in steady], dtype=np.float64)
    means, hours = (np.array([part.mean() for part in np.array_split(one, PARTS)]) for one in (sizes, at / 3600))
    slope, left = float(np.polyfit(hours, means, 1)[0]), means - np.polyval(np.polyfit(hours, means, 1), hours)
    error = float(np.sqrt((left**2).sum() / (PARTS - 2) / ((hours - hours.mean()) ** 2).sum()))
    return Growth(slope * (at[-1] - at[0]) / 3600, slope, student_quantile(PARTS - 2, 0.95) * error)


def expect_flat(seen: list[Seen], buffers: float = 0) -> Growth:
    """From the end of the warm-up on, the line through the memory rises by no more than buffers may."""
    steady = seen[int(len(seen) * WARM_SHARE) :]
    assert len(steady) >= 4 * PARTS, f"only {len(steady)} readings"
    growth = growth_of(steady)
    print(f"memory {steady[0].size / 1e6:.1f} to {steady[-1].size / 1e6:.1f} MB, {growth}")
    assert growth.rise_bytes < MOST_GROWTH_BYTES + buffers, str(growth)
    if seen[-1].seconds >= KEPT_SHARE * LONG_SECONDS:
        # Of an hour, means of 270 s whose scatter is 0.6 MB give an interval of ± 2 MB an hour.
        assert growth.per_hour + growth.half < MOST_HOURLY_BYTES, f"it grows, or cannot be told: {growth}"
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
    # Without exchanges of times, so that a port counts little else than the stream.
    to_b = ["--dev", "eth0", "--to", "02:77:00:00:0d:02", "--clock", "none"]
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
    assert report["said"] == []
    counts = {name: got[name] for name in ("sent", "first", "lost", "local_drops", "corrupted")}
    print(f"packets of the stream: {counts}; rows of the log: {report['log']}")
    assert sent["sent"] == got["sent"] == got["first"] + got["lost"] + got["local_drops"] + got["corrupted"]
    assert got["lost"] / got["sent"] == pytest.approx(0.01, rel=0.2)
    expect_same_frames(report["ports"], [Delivered(sent["sent"], got["first"], got["lost"])])
    # The log has ended at its limit, and the path has not.
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1.1 * LOG_LIMIT_BYTES
    proven("soak", "emulator with a log", seconds=SECONDS, packets=sent["sent"], rise_bytes=growth.rise_bytes,
           bytes_per_hour=growth.per_hour, half_bytes_per_hour=growth.half)  # fmt: skip


class Delivered(NamedTuple):
    """What came of a stream; its receiver drops nothing."""

    sent: int
    first: int
    lost: int


def send_live(rate_pps: float, seconds: float, watch: Callable[[subprocess.Popen[str]], None]) -> Delivered:
    """From a to b, through what is between them, all of it by the first processor."""
    core = ["--cpu", str(CORES[0])]
    to_b = ["--dev", "eth0", "--to", "02:77:00:00:0d:02", "--engine", "live", "--clock", "none", *core]
    rate = ["--rate", f"{rate_pps:.0f}pps", "--duration", f"{seconds}s", "--json"]
    listen = ["--dev", "eth0", "--engine", "live", "--for", f"{seconds + 60}s", "--json", *core]
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
    assert sent["sent"] == got["sent"] == got["first"] + got["lost"]  # live frames are counted before any socket
    return Delivered(sent["sent"], got["first"], got["lost"])


def highest_rate_pps() -> tuple[float, list[Delivered]]:
    """The highest rate, as it was reached, that loses next to nothing; and what was sent to find it."""
    done: list[Delivered] = []
    best, worst, rate = 0.0, float("inf"), FIRST_PPS
    while worst > CLOSE * best:
        assert len(done) < MOST_TRIALS, "the search has no end"
        for _ in range(2):  # the hypervisor may take a processor away in one of them
            done.append(send_live(rate, TRIAL_SECONDS, lambda _: None))
            if done[-1].lost <= TRIAL_LOSS * done[-1].sent:
                break
        if done[-1].lost > TRIAL_LOSS * done[-1].sent:
            worst = rate
        else:
            best = max(best, done[-1].sent / TRIAL_SECONDS)
            if best < KEPT_SHARE * rate:
                break  # the sender is at its end
        rate = STEP * rate if worst == float("inf") else (best + worst) / 2 if best else rate / STEP
    return best, done


LOADED_PIPE = "loss 0.01% rate 10Gbit/s queue 200KB delay 2ms"
"""It delays, loses, serves and queues each frame, and lets the port decide what rate is taken."""
FRAMES_BYTES = 32e6
"""For frames that pipes hold: in use once a pause of the machine has let so many wait."""


@pytest.mark.usefixtures("hosts")
@pytest.mark.parametrize("pipe", ["", LOADED_PIPE], ids=["passing", "pipes"])
def test_an_emulator_at_four_fifths_of_its_rate_keeps_its_memory_and_accounts_for_every_packet(
    pipe: str, proven: Callable[..., None]
) -> None:
    seen: list[Seen] = []
    words = ["--name", "soak", "--json", "--cpu", str(CORES[-1])]
    if pipe:
        words += ["--forward", pipe, "--backward", pipe, "--memory", f"{FRAMES_BYTES:.0f}B"]
    with running("m", "emulate", "run", "left", "right", *words) as emulator:
        assert emulator.stdout is not None
        assert json.loads(emulator.stdout.readline())["event"] == "ready"

        def watch(sender: subprocess.Popen[str]) -> None:
            seen.extend(watch_memory(emulator.pid, lambda: sender.poll() is None, LOADED_SECONDS))

        highest, streams = highest_rate_pps()
        rate = LOAD_SHARE * highest
        done = send_live(rate, LOADED_SECONDS, watch)
        emulator.send_signal(signal.SIGINT)
        told, said = emulator.communicate(timeout=120)
        assert emulator.returncode == 0, said
    report = json.loads(told.splitlines()[-1])["report"]
    growth = expect_flat(seen, FRAMES_BYTES if pipe else 0)
    print(f"{LOAD_SHARE:.0%} of {highest:.0f} frames/s; {done}; ports: {report['ports']}")
    if pipe:
        expect_every_packet(report)
    else:
        for (come, go), way in ((report["ports"], "forward"), (report["ports"][::-1], "backward")):
            assert come["received"] == report["unmatched"][way] == go["sent"] + go["refused"]
    assert report["memory"]["held_bytes"] == 0
    expect_same_frames(report["ports"], [*streams, done])
    assert done.sent >= KEPT_SHARE * rate * LOADED_SECONDS, f"{done} of {rate:.0f} a second"
    print(f"{done.first / done.sent:.2%} delivered, the others counted as dropped")
    assert done.lost <= LOADED_LOSS * done.sent, done
    what = "emulator with pipes" if pipe else "emulator"
    proven("soak", f"{what} at four fifths of its rate", seconds=LOADED_SECONDS, packets=done.sent,
           rise_bytes=growth.rise_bytes, bytes_per_hour=growth.per_hour,
           half_bytes_per_hour=growth.half)  # fmt: skip


def expect_same_frames(ports: list[dict[str, Any]], streams: list[Delivered]) -> None:
    """What was sent came in or was dropped at the port; what went out came to the receiver, or had no room there."""
    (left, right), control = ports, CONTROL_FRAMES * len(streams)
    assert 0 <= left["received"] + left["local_drops"] - sum(one.sent for one in streams) <= control
    assert 0 <= right["sent"] - sum(one.first for one in streams) <= control + right["local_drops"]


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


def test_leak_is_detected_and_its_rate_lies_within_the_interval() -> None:
    """What is judged can fail: 10 bytes a packet, at the rate of the soak, in two minutes of noise."""
    rng, seconds = np.random.default_rng(1), 90.0
    noise = rng.normal(0, 50e3, 75) + np.repeat(rng.normal(0, 100e3, 15), 5)
    at = np.linspace(0, seconds, 75)

    def readings(leak: float) -> list[Seen]:
        return [Seen(*one) for one in zip(at, 80e6 + noise + leak * at, strict=True)]

    still = growth_of(readings(0))
    assert abs(still.per_hour) <= still.half
    leak = 10 * RATE_PPS
    grown = growth_of(readings(leak))
    assert grown.rise_bytes > MOST_GROWTH_BYTES
    assert abs(grown.per_hour - 3600 * leak) <= grown.half + 0.02 * 3600 * leak


def test_an_hour_is_judged_by_its_rate_and_by_how_well_that_is_known() -> None:
    rng, hour = np.random.default_rng(1), 3600.0

    def readings(noise: float, bytes_per_hour: float) -> list[Seen]:
        times = np.linspace(0, hour, 100)
        sizes = 80e6 + rng.normal(0, noise, times.size) + bytes_per_hour * times / hour
        return [Seen(*one) for one in zip(times, sizes, strict=True)]

    assert expect_flat(readings(200e3, 0), MOST_LINGERING_BYTES).half < MOST_GROWTH_BYTES / 4
    for noise, bytes_per_hour in ((200e3, 4e6), (6e6, 0)):
        with pytest.raises(AssertionError, match="it grows, or cannot be told"):
            expect_flat(readings(noise, bytes_per_hour), MOST_LINGERING_BYTES)


def test_a_load_that_ends_early_is_an_error() -> None:
    with pytest.raises(AssertionError, match="what loads it ended after 0 s"):
        watch_memory(os.getpid(), lambda: False, 10.0)


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
        bed.start("b", "iperf3", "-s", "-i", "0", "-B", B4)  # a line a second would fill its pipe within minutes
        await_that(lambda: B4 in run(*bed.inside("b", "ss", "-ltnH")).stdout, "a server of iperf3")
        words[1] = str(bed.cgroup)
        before = [bed.snmp(host) for host in "ab"]
        with logging(tmp_path / "t", *words) as logger:
            fastest = max(sent_by_iperf3(bed, PROBE_SECONDS, []) for _ in range(PROBES))
            load = iperf3(bed, LOADED_SECONDS, ["-b", f"{LOAD_SHARE * fastest / FLOWS:.0f}"])
            seen = watch_memory(logger.process.pid, lambda: load.poll() is None, LOADED_SECONDS)
            out, said = load.communicate()
            assert load.returncode == 0, said
            bed.await_rest()
            after = [bed.snmp(host) for host in "ab"]
            logger.process.send_signal(signal.SIGINT)
            _, said = logger.process.communicate(timeout=120)
            assert logger.process.returncode == 0, said
    footer = json.loads((tmp_path / "t" / "footer.json").read_text())
    growth = expect_flat(seen, MOST_LINGERING_BYTES)
    assert footer["conserved"] is True, footer
    totals = in_all(footer["totals"])
    assert totals["seen"] == sum(count for name, count in totals.items() if name != "seen"), totals
    told = json.loads(out)["end"]["sum_sent"]
    print(f"{LOAD_SHARE:.0%} of {fastest / 1e9:.2f} Gbit/s, reached {told['bits_per_second'] / 1e9:.2f}; {totals}")
    print(f"{totals['seen'] / (PROBES * PROBE_SECONDS + LOADED_SECONDS):.0f} packets/s at both ends")
    assert told["bits_per_second"] >= IPERF3_SHARE * LOAD_SHARE * fastest
    # The kernel counts received packets, too; what it sends it counts by segments, and cuts them after the hook.
    received = sum((now["InSegs"] - then["InSegs"]) % 2**32 for then, now in zip(before, after, strict=True))
    assert footer["totals"]["in"]["seen"] == received, footer["totals"]
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
