"""The emulating bridge, measured from outside: tcpdump at both of its sides, the interfaces' counters, ping.

Measured are its accuracy of delay and rate, its cost compared with the kernel's bridge, and whether its losses are as
configured. Its own report is shown beside. Each sample has an emulator of its own, on a core of its own (spinning) or
on none (sleeping, then spinning); sender and emulator never share a core if there are two.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench import judge, throughput
from bench.compare import Target, What, absent, alone, ratio
from bench.contest import Claim, Column, Contest
from bench.flood import watched
from bench.goals import FASTEST, NO_PIPE, ZERO_LOSS
from bench.measure import finish
from bench.ours import probe
from sojourn.bed import BedSpec, build_bed
from sojourn.errors import MachineError
from sojourn.instruments import find_instrument
from sojourn.instruments.capture import await_listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from bench.compare import Row
    from bench.experiments import Sample
    from sojourn.bed import Bed
    from sojourn.bed.model import Link

EMULATE, BRIDGE, DIRECT = "emulate", "bridge", "direct"
OWN, NONE = "a core of its own", "no core of its own"
THROUGH = "no pipe, through the program"
WITHIN = "no pipe, within the kernel"
IDLE = "an idle pipe, a core of its own"
LOSSES = "loss of 5 %, a hundred streams"
LEARNT = "no core of its own, compensation learnt"
DATA = "ether proto 0x88b6 and ether[18] == 1"
"""Data frames of our streams, without the frames that end one."""

SECONDS = 3.0
PACE_PPS = 1_000
DELAYS_MS = (1, 20)
RATES_BPS = (1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
FRAME_BYTES = 1518
FCS_BYTES = 4
PINGS = 2_000
FLOOD_FRAMES = 4_000_000
LOSS_SHARE = 0.05
LOSS_RUNS = 100
LOSS_FRAMES = 1_000

DELAY_COLUMNS = (
    Column("median_ns", "median error", "ns"),
    Column("mean_ns", "mean error", "ns"),
    Column("p99_ns", "p99 error", "ns"),
    Column("own_p50_ns", "its own: p50", "ns"),
    Column("own_p99_ns", "its own: p99", "ns"),
    Column("lost", "lost", "frames"),
)


@dataclass(frozen=True, slots=True)
class Ground:
    """The bed and the settings of a repetition."""

    bed: Bed
    scratch: Path
    sender_cpu: int
    emulator_cpu: int
    compensate: str = "0ns"
    """The delay between both captures outside the emulator: measured once, or by each emulator (auto)."""

    def link(self, device: str) -> Link:
        """The path of a device."""
        return self.bed.topology.link(device)


def rows(
    repetitions: int, seed: int, scratch: Path, tell: Callable[[str], None], only: str = ""
) -> tuple[list[Row], list[Contest]]:
    """Return the lines of the table and the contests behind them: all, or those whose names contain `only`."""
    cores = sorted(os.sched_getaffinity(0))
    contests = [*(held(delay) for delay in DELAYS_MS), crossed(), at_full_rate(), *map(rated, RATES_BPS)]
    contests = [one for one in contests if only in one.task]
    of_losses = []
    for number in range(1, repetitions + 1):
        with build_bed(BedSpec(devices=(EMULATE, BRIDGE)), f"bench{os.getpid()}e{number}") as bed:
            ground = calibrated(Ground(bed, scratch, cores[0], cores[-1]), tell)
            for one in contests:
                one.repeat(ground, seed + number, lambda what: tell(f"repetition {number}/{repetitions}: {what}"))  # type: ignore[arg-type]  # noqa: B023 - called at once
            if number == repetitions and only in LOSSES:
                of_losses = [losses(ground, tell)]
    found = [row for one in contests for row in one.rows()]
    return [*found, *of_losses, *(forwarded(repetitions, tell) if only in ZERO_LOSS else [])], contests


def calibrated(ground: Ground, tell: Callable[[str], None]) -> Ground:
    """Return the ground with its path delay: the median of a run that is used for nothing else."""
    cost = max(0, round(delayed(ground, EMULATE, 5, OWN)["median_ns"]))
    tell(f"the path costs {cost / 1e3:.2f} µs")
    return replace(ground, compensate=f"{cost}ns")


# --- delay -----------------------------------------------------------------------------------------------------------


def held(delay_ms: int) -> Contest:
    """1,000 packets a second through a constant delay; the direct link shows the delay of the captures themselves."""

    def runner(core: str) -> Callable[[Ground], Sample]:
        return lambda ground: delayed(ground, EMULATE, delay_ms, core)

    def learnt(ground: Ground) -> Sample:
        return delayed(replace(ground, compensate="auto"), EMULATE, delay_ms, NONE)

    claims = (
        Claim(OWN, "abs_median_ns", "median error, either way", "ns", Target("at most", 2_000)),
        Claim(OWN, "p99_ns", "p99 error", "ns", Target("at most", 50_000)),
        Claim(OWN, "mean_ns", "mean error", "ns", Target("at most", 18_000)),
        Claim(NONE, "p99_ns", "p99 error", "ns", Target("at most", 50_000)),
        Claim(LEARNT, "abs_median_ns", "median error, either way", "ns", Target("at most", 2_000)),
    )
    runs: dict[str, Any] = {core: runner(core) for core in (OWN, NONE)}
    runs[LEARNT] = learnt
    runs["direct link, no delay"] = lambda ground: delayed(ground, DIRECT, 0, NONE)
    return Contest(f"held for {delay_ms} ms, {PACE_PPS:,} packets/s", runs, DELAY_COLUMNS, claims)


def delayed(ground: Ground, device: str, delay_ms: int, core: str) -> Sample:
    """Send one stream, captured where it leaves A and where it reaches B."""
    link = ground.link(device)
    files = ground.scratch / "out.pcap", ground.scratch / "in.pcap"
    own: Sample = {}
    with ExitStack() as stack:
        running = None
        if device == EMULATE:
            running = stack.enter_context(emulating(ground, piped(f"delay {delay_ms}ms"), core))
        stack.enter_context(capturing(ground.bed, "a", link.a_dev, "out", files[0]))
        stack.enter_context(capturing(ground.bed, "b", link.b_dev, "in", files[1]))
        send(ground, link, ["--rate", f"{PACE_PPS}pps", "--count", str(round(PACE_PPS * SECONDS))])
        time.sleep(delay_ms / 1e3 + 0.2)
        if running is not None:
            own = own_view(running.ask())
    there, here = judge.arrivals(files[0]), judge.arrivals(files[1])
    if len(there) != len(here):
        return {"lost": float(len(there) - len(here))} | own
    # Both captures are whole and equally long, and a constant delay reorders nothing: frames are paired by their place.
    error = (here - there).astype(np.float64) - delay_ms * 1e6
    return own | {
        "median_ns": float(np.median(error)),
        "abs_median_ns": abs(float(np.median(error))),
        "mean_ns": float(error.mean()),
        "p99_ns": float(np.quantile(error, 0.99)),
        "lost": 0.0,
    }


def own_view(report: dict[str, Any]) -> Sample:
    """Return the emulator's own report on its accuracy."""
    accuracy = pipe_of(report)["accuracy"]
    return {f"own_{key}": float(accuracy[key]) for key in ("p50_ns", "p99_ns")}


# --- what it costs ---------------------------------------------------------------------------------------------------


def crossed() -> Contest:
    """Round trips with no pipe, within the kernel (`--redirect`) and not, and with an idle one, beside the bridge."""
    runs: dict[str, Any] = {
        "kernel bridge": lambda ground: pinged(ground, BRIDGE, NONE),
        OWN: lambda ground: pinged(ground, EMULATE, OWN, "--redirect"),
        NONE: lambda ground: pinged(ground, EMULATE, NONE, "--redirect"),
        THROUGH: lambda ground: pinged(ground, EMULATE, OWN),
        IDLE: lambda ground: pinged(ground, EMULATE, OWN, *piped("")),
    }
    columns = (Column("p50_ns", "median RTT", "ns"), Column("p99_ns", "p99 RTT", "ns"))
    bridge, most = "kernel bridge", Target("at most", 1.5)
    claims = (
        Claim(OWN, "p50_ns", "median RTT, within the kernel (--redirect)", "ns", most, bridge),
        Claim(THROUGH, "p50_ns", "median RTT, through the program", "ns", most, bridge),
        Claim(IDLE, "p50_ns", "median RTT, through an idle pipe", "ns", most, bridge),
    )
    return Contest(NO_PIPE, runs, columns, claims)


def pinged(ground: Ground, device: str, core: str, *options: str) -> Sample:
    """Run our probe, spinning as ping does."""
    with ExitStack() as stack:
        if device == EMULATE:
            stack.enter_context(emulating(ground, options, core))
        place = ["-c", str(PINGS), "-i", "1ms", "--cpu", str(ground.sender_cpu), "--wait", "sleep-then-spin"]
        done = probe(ground.bed, ground.scratch / "pings", ["icmp", ground.link(device).b_ip4], place)
    figures = done.figures("best")
    return {key: figures[key] for key in ("p50_ns", "p99_ns")}


def at_full_rate() -> Contest:
    """Frames a second that come out of each where live frames go in as fast as they can.

    The sender does the work of the bridge and of the redirect, so it waits for them and nothing is lost. The program
    has a core of its own beside the sender, which does not wait for it: no equal of the bridge, so without a target.
    """
    runs: dict[str, Any] = {
        "kernel bridge": lambda ground: flooded(ground, BRIDGE),
        WITHIN: lambda ground: flooded(ground, EMULATE, "--redirect"),
        THROUGH: lambda ground: flooded(ground, EMULATE),
    }
    columns = (Column("pps", "forwarded", "1/s"), Column("lost_share", "lost", "share"))
    bridge, least = "kernel bridge", Target("at least", 1.0)
    claims = (
        Claim(THROUGH, "pps", "frames a second, through the program on a core of its own", "1/s", None, bridge),
        Claim(WITHIN, "pps", "frames a second, within the kernel (--redirect)", "1/s", least, bridge),
    )
    return Contest(FASTEST, runs, columns, claims)


def flooded(ground: Ground, device: str, *options: str) -> Sample:
    """Send live frames as fast as they go; the far interface's counter has what comes out."""
    link = ground.link(device)
    port = link.stations[0].left.dev
    argv = [find_instrument(), "stream", "send", "--dev", link.a_dev, "--to", link.b_mac, "--clock", "none"]
    argv += ["--engine", "live", "--schedule", "flood", "--size", "64", "--count", str(FLOOD_FRAMES)]
    with ExitStack() as stack:
        # A veth takes live frames where its other end has NAPI.
        ground.bed.backend.run("d", ["ethtool", "-K", port, "gro", "on"])
        stack.callback(ground.bed.backend.run, "d", ["ethtool", "-K", port, "gro", "off"])
        if device == EMULATE:
            stack.enter_context(emulating(ground, options, OWN))
        return watched(ground.bed, link.b_dev, [*argv, "--cpu", str(ground.sender_cpu)], FLOOD_FRAMES)[0]


def forwarded(repetitions: int, tell: Callable[[str], None]) -> list[Row]:
    """Search the zero-loss rate of both in each run, over a bed of its own, through the program."""
    pairs, limited = [], 0
    for number in range(1, repetitions + 1):
        tell(f"repetition {number}/{repetitions}: frames a second at zero loss, emulator and kernel bridge")
        results = throughput.searched(f"{EMULATE},{BRIDGE}", (64,), repetitions=1, sessions=1, seed=number)
        mine, theirs = (zero_loss(results, device) for device in (EMULATE, BRIDGE))
        if mine.is_found and theirs.is_found and mine.rate > 0 < theirs.rate:
            pairs.append((mine.rate, theirs.rate))
        else:
            limited += 1
    if limited:
        tell(f"without {limited} pairs of searches that the tester limited, or that found none")
    what = What(ZERO_LOSS, "kernel bridge", "frames a second", "1/s")
    target = Target("at least", 1.0)
    return [ratio(what, pairs, target) if pairs else absent(what, target, is_ratio=True)]


class ZeroLoss(NamedTuple):
    """The highest rate without loss of a device; if the tester's limit is lower, a rate that the device carries."""

    rate: float
    is_found: bool


def zero_loss(results: list[dict[str, Any]], device: str) -> ZeroLoss:
    """Return the search's result for a device; raises MachineError if there is none."""
    for statistic in ("rate", "at_least"):
        found = throughput.pick(results, device, 64, "ndr", statistic)
        if found:
            return ZeroLoss(float(found["estimate"]), statistic == "rate")
    raise MachineError(f"the search found no rate at which the {device} loses nothing")


# --- rate ------------------------------------------------------------------------------------------------------------


def rated(rate_bps: int) -> Contest:
    """Send a burst of full frames through a link, and measure their intervals behind it."""
    columns = (Column("error", "rate, off by", "share"), Column("frames", "frames", "1"))
    claims = (Claim(OWN, "error", "rate, off by", "share", Target("at most", 0.001)),)
    runs: dict[str, Any] = {OWN: lambda ground: paced(ground, rate_bps)}
    return Contest(f"rate of {rate_bps / 1e6:,.0f} Mbit/s", runs, columns, claims)


def paced(ground: Ground, rate_bps: int) -> Sample:
    """Send more than the link carries for a while; the first and the last received frame give its rate.

    A sender that was halted so long that the queue was empty leaves no figure of the link.
    """
    link, files = ground.link(EMULATE), (ground.scratch / "rate-out.pcap", ground.scratch / "rate-in.pcap")
    frame_bits = (FRAME_BYTES - FCS_BYTES) * 8
    count = min(20_000, max(60, round(rate_bps * 1.5 / frame_bits)))
    words = f"rate {rate_bps}bit/s queue {count + 10}"
    with (
        emulating(ground, piped(words), OWN),
        capturing(ground.bed, "a", link.a_dev, "out", files[0]),
        capturing(ground.bed, "b", link.b_dev, "in", files[1]),
    ):
        pps = 1.3 * rate_bps / frame_bits
        send(ground, link, ["--rate", f"{pps:.0f}pps", "--count", str(count), "--size", str(FRAME_BYTES)])
        time.sleep(count * frame_bits / rate_bps + 0.3)
    left, came = judge.arrivals(files[0]), judge.arrivals(files[1])
    kept = came[len(came) // 10 :]
    if len(kept) < 40:
        raise MachineError(f"only {len(came)} of {count} frames came through a link of {rate_bps} bit/s")
    if not is_backlogged(left, frame_bits / rate_bps * 1e9):
        return {"frames": float(len(came))}
    measured = (len(kept) - 1) * frame_bits / float(kept[-1] - kept[0]) * 1e9
    return {"error": abs(measured / rate_bps - 1), "frames": float(len(came))}


def is_backlogged(left: NDArray[np.int64], each_ns: float) -> bool:
    """Return whether a link that takes so long for each frame was never idle after the first tenth of them."""
    lead, first = left - np.arange(len(left)) * each_ns, len(left) // 10
    return bool(lead[first:].max() <= lead[:first].max())


# --- loss ------------------------------------------------------------------------------------------------------------


def losses(ground: Ground, tell: Callable[[str], None]) -> Row:
    """In how many of a hundred streams the loss that was asked lies in the 95 % interval of what was lost."""
    from sojourn.statistics.proportion import clopper_pearson

    link, hits = ground.link(EMULATE), []
    tell(f"{LOSS_RUNS} streams at a loss of {LOSS_SHARE:.0%}")
    with emulating(ground, piped(f"loss {LOSS_SHARE:.0%}"), OWN):
        for _ in range(LOSS_RUNS):
            before = counted(ground, link)
            send(ground, link, ["--rate", "20kpps", "--count", str(LOSS_FRAMES)])
            sent, came = (after - first for after, first in zip(counted(ground, link), before, strict=True))
            found = clopper_pearson(sent - came, sent)
            assert found.low is not None
            assert found.high is not None
            hits.append(float(found.low <= LOSS_SHARE <= found.high))
    share = float(np.mean(hits))
    what = What(LOSSES, "itself", "truth within the 95 % interval", "share")
    return alone(what, [(share, share)], Target("at least", 0.88))


def counted(ground: Ground, link: Link) -> tuple[int, int]:
    """Return the frames sent by A's interface and received by B's, which carry nothing else."""
    time.sleep(0.02)
    counters = ground.bed.counters(EMULATE)
    return counters[link.a_dev]["tx_packets"], counters[link.b_dev]["rx_packets"]


# --- parts -----------------------------------------------------------------------------------------------------------


def send(ground: Ground, link: Link, what: list[str]) -> None:
    """One regular stream from A to B."""
    # Without the qdisc no capture would see them leave.
    to = ["--dev", link.a_dev, "--to", link.b_mac, "--through-qdisc", "--clock", "none"]
    to += ["--cpu", str(ground.sender_cpu)]
    finish(ground.bed, "a", [find_instrument(), "stream", "send", *to, "--schedule", "regular", *what])


class Running:
    """An emulator that is ready."""

    def __init__(self, ground: Ground, options: Sequence[str], core: str) -> None:
        station = ground.link(EMULATE).stations[0]
        place = ["--cpu", str(ground.emulator_cpu), "--spin"] if core == OWN else []
        argv = [find_instrument(), "emulate", "run", station.left.dev, station.right.dev, "--json", *place, *options]
        argv += ["--compensate", ground.compensate]
        self.control = ground.scratch / "emulate.sock"
        self.process: subprocess.Popen[str] = ground.bed.backend.start(
            "d", [*argv, "--control", str(self.control)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        if '"ready"' not in self.process.stdout.readline():
            raise MachineError(f"the emulator does not start: {self.process.communicate()[1].strip()[-300:]}")

    def ask(self) -> dict[str, Any]:
        """Return its report so far."""

        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(self.control))
            line.sendall(b'{"do":"show"}\n')
            answer: dict[str, Any] = json.loads(line.makefile().readline())
        found: dict[str, Any] = answer["report"]
        return found

    def stop(self) -> None:
        """End it."""
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=20)


@contextmanager
def emulating(ground: Ground, options: Sequence[str], core: str) -> Iterator[Running]:
    """An emulator for the time of a block of code."""
    running = Running(ground, options, core)
    try:
        yield running
    finally:
        running.stop()


def piped(words: str) -> tuple[str, str]:
    """Return the options of a pipe in the forward direction."""
    return "--forward", words


def pipe_of(report: dict[str, Any]) -> dict[str, Any]:
    """The forward pipe of a report."""
    found: dict[str, Any] = next(pipe for pipe in report["pipes"] if pipe["name"] == "forward")
    return found


@contextmanager
def capturing(bed: Bed, host: Any, dev: str, way: str, file: Path) -> Iterator[None]:
    """tcpdump of our stream's data frames at one side."""
    options = ["-i", dev, "-n", "-p", "-s", "64", "-B", "16384", "-Q", way, "--time-stamp-precision=nano", "-w", "-"]
    with file.open("wb") as output:
        process = bed.backend.start(host, ["tcpdump", *options, DATA], stdout=output, stderr=subprocess.PIPE)
    await_listening(process)
    try:
        yield
        time.sleep(judge.GRACE_SECONDS)
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
    judge.expect_whole(said)
