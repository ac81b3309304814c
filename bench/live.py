"""Two taps matched while packets pass: whether `match --live` keeps up with 200,000 packets a second, and at what cost.

The taps are the two ports of the kernel's bridge. Our sender offers somewhat more than the goal. Each repetition has a
bed of its own; the sent packets are compared with the matched ones, and the taps' drops must be zero.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.compare import Row, Target, What, alone
from bench.measure import finish
from sojourn.bed import BedSpec, build_bed
from sojourn.errors import MachineError
from sojourn.instruments import find_instrument

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

    from sojourn.bed import Bed

GOAL_PPS = 200_000
OFFERED_PPS = 220_000
ENGINE = "xdp"
"""Over AF_PACKET each paced frame is a system call, and over a bridge with two taps the goal is not reached."""
FRAMES = 2_000_000
FRAME_BYTES = 64
SETTLE_SECONDS = 0.5
PATIENCE_SECONDS = 60
DROPPED = 4
"""The exit status if a tap dropped packets; the matches are reported even so."""

TASK = f"matching live at both ports of the Linux bridge, {FRAMES:,} frames of {FRAME_BYTES} bytes"


class Matched(NamedTuple):
    """The results of one repetition."""

    offered_pps: float
    matched_pps: float
    dropped_share: float
    unmatched_share: float
    ns_a_packet: float


def rows(repetitions: int, tell: Callable[[str], None]) -> list[Row]:
    """The lines of the table."""
    found = []
    for number in range(1, repetitions + 1):
        with build_bed(BedSpec(devices=("bridge",)), f"live{os.getpid()}") as bed:
            found.append(matched(bed))
        tell(f"taps: repetition {number}/{repetitions}: matched live: {found[-1]}")
    return lines(found)


def lines(found: list[Matched]) -> list[Row]:
    """Return the lines of the repetitions; the sender's own rate is beside the first."""
    figures = [
        ("packets matched a second", "1/s", [(one.matched_pps, one.offered_pps) for one in found], GOAL_PPS),
        ("dropped by the taps", "share", [(one.dropped_share,) * 2 for one in found], 0.0),
        ("sent and not matched", "share", [(one.unmatched_share,) * 2 for one in found], 0.0),
    ]
    cost = [(one.ns_a_packet,) * 2 for one in found]
    return [
        *(
            alone(What(TASK, "our sender", name, unit), pairs, Target("at least" if limit else "at most", limit))
            for name, unit, pairs, limit in figures
        ),
        alone(What(TASK, "our sender", "processor time per packet", "ns"), cost, None),
    ]


def matched(bed: Bed) -> Matched:
    """Send over the bridge while its ports are matched."""
    link = bed.topology.link("bridge")
    station = link.stations[0]
    ports = [station.left.dev, station.right.dev]
    argv = [find_instrument(), "match", *ports, "--live", "--direction", "forward", "--json"]
    process: subprocess.Popen[str] = bed.backend.start(
        link.device_host, argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        await_taps(process.stderr)
        to = ["--dev", link.a_dev, "--to", link.b_mac, "--engine", ENGINE, "--clock", "none"]
        what = [
            "--rate",
            f"{OFFERED_PPS // 1000}kpps",
            "--size",
            str(FRAME_BYTES),
            "--count",
            str(FRAMES),
            "--json",
        ]
        flow = json.loads(finish(bed, "a", [find_instrument(), "stream", "send", *to, *what]).printed)["flows"][0]
        time.sleep(SETTLE_SECONDS)
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    if process.returncode not in (0, DROPPED):
        raise MachineError(f"match --live ended with status {process.returncode}: {said.strip()[-300:]}")
    return accounted(json.loads(printed), flow)


def await_taps(said: IO[str]) -> None:
    """Wait until the taps are attached; otherwise raise MachineError with the output."""
    lines = [said.readline()]
    while "matching" not in lines[-1]:
        if not lines[-1]:
            raise MachineError(f"match --live does not begin: {''.join(lines).strip()[-300:]}")
        lines.append(said.readline())


def accounted(told: dict[str, Any], flow: dict[str, Any]) -> Matched:
    """Return the matched share of the sent packets, from the summary of the match and the sender's counters."""
    [way] = [one for one in told["pairs"][0]["directions"] if one["direction"] == "forward"]
    accounts = [tap["account"] for tap in told["live"]["taps"]]
    dropped, seen = (sum(account[name] for account in accounts) for name in ("dropped", "seen"))
    share = min(way["counts"]["matched"] / flow["sent"], 1.0)
    return Matched(
        offered_pps=flow["achieved_pps"],
        matched_pps=flow["achieved_pps"] * share,
        dropped_share=dropped / max(dropped + seen, 1),
        unmatched_share=1.0 - share,
        ns_a_packet=told["live"]["processor_time_ns"] / max(way["counts"]["matched"], 1),
    )
