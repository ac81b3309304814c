"""What the tool itself costs, in one table: each figure before the work on it, its goal, and what was measured since.

The figures from before came with the goals, from another machine of two processors. What was tried for each is in
docs/decisions/0072 to 0075.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bench.table import cells

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.compare import Row


class Goal(NamedTuple):
    """A figure in words, what it was before, and the row that has it: its task, its name and, of several, its peer."""

    words: str
    before: str
    task: str
    name: str
    peer: str | None = None


NO_PIPE, HELD = "no pipe, a ping each millisecond", "held for 1 ms, 1,000 packets/s"
ZERO_LOSS, FASTEST = "64-byte frames at zero loss", "64-byte live frames, as fast as they go"
FLOOD, TIME = "flood of 64-byte frames, direct link", "time a packet in the kernel"
ONE, HUNDRED = (f"throughput, {flows}, packets of one segment" for flows in ("1 flow", "100 flows"))
IN_TEN, REPORT = "one packet in ten logged: change", "a report over 10,080,000 probes"
BY_IPERF = "throughput by iperf3's own figures"
CLOSED = "ICMP echo, closed loop"
GOALS = (
    Goal("emulator without a pipe, RTT over the kernel bridge's: program", "2.03×", NO_PIPE,
         "median RTT, through the program"),
    Goal("the same within the kernel (`--redirect`)", "–", NO_PIPE, "median RTT, within the kernel (--redirect)"),
    Goal("emulator without a core of its own, error at 1 ms, p99", "201 µs", HELD, "p99 error", "no core of its own"),
    Goal("emulator, packets a second without loss, over the kernel bridge's: program", "0.95–0.97×",
         ZERO_LOSS, "frames a second"),
    Goal("emulator, packets a second as fast as they go, over the kernel bridge's: within the kernel (`--redirect`)",
         "–", FASTEST, "frames a second, within the kernel (--redirect)"),
    Goal("delay of the path, learnt: median error of 1 ms", "by hand", HELD, "median error, either way",
         "no core of its own, compensation learnt"),
    Goal("log of TCP, throughput left, packets of one segment: 1 flow", "83.4 %", ONE, "every packet logged"),
    Goal("the same: 100 flows", "87.4 %", HUNDRED, "every packet logged"),
    Goal("the same by iperf3's own figures: 1 flow", "–", f"{BY_IPERF}, 1 flow, packets of one segment",
         "every packet logged"),
    Goal("the same by iperf3's own figures: 100 flows", "–", f"{BY_IPERF}, 100 flows, packets of one segment",
         "every packet logged"),
    Goal("log of TCP, time a packet: in", "320 ns", TIME, "logged, comes"),
    Goal("the same: out", "340 ns", TIME, "logged, goes"),
    Goal("the same, decimated: in", "70–80 ns", TIME, "decimated, comes"),
    Goal("the same, decimated: out", "70–80 ns", TIME, "decimated, goes"),
    Goal("log of TCP, 1 packet in 10, difference from off: 1 flow", "0.7–7.4 %", ONE, IN_TEN),
    Goal("the same: 100 flows", "0.7–7.4 %", HUNDRED, IN_TEN),
    Goal("a killed log becomes records", "0.64 M/s", "a killed log of 3 s of the sender becomes records",
         "records a second"),
    Goal("closed-loop probe, minimum RTT over `ping -f`", "1.2–1.5×", CLOSED, "minimum RTT"),
    Goal("the same without TX timestamps", "–", f"{CLOSED}, no TX timestamps", "minimum RTT"),
    Goal("AF_PACKET, sender alone, over trafgen", "1.25×", FLOOD, "AF_PACKET beside trafgen"),
    Goal("AF_PACKET, received and accounted one by one, over trafgen into nothing", "0.78–0.95×", FLOOD,
         "AF_PACKET, received, beside trafgen"),
    Goal("AF_XDP stream, every frame accounted", "0.38 M/s", FLOOD, "AF_XDP, received"),
    Goal("the same, live frames to AF_XDP", "–", FLOOD, "XDP live frames, received by AF_XDP"),
    Goal("live frames over trafgen", "4.1×", FLOOD, "XDP live frames beside trafgen"),
    Goal("searches: time a trial takes beside its traffic", "0.2–0.3 s", "a trial of a search",
         "time beside its traffic"),
    Goal("`report` of 10⁷ records: time", "21 s for 560,000", REPORT, "wall time"),
    Goal("the same: memory", "0.88 GB for 560,000", REPORT, "peak memory"),
    Goal("`sojourn report` of the demo", "9.9 s", "the report of a run as the demo's", "wall time"),
)  # fmt: skip


def beside_goals(rows: Sequence[Row]) -> Iterator[tuple[Row, tuple[str, ...]]]:
    """Yield the row of each goal and the cells of its line; a goal that these rows do not have is left out."""
    for goal in GOALS:
        for row in rows:
            if (row.task, row.name) == (goal.task, goal.name) and goal.peer in (None, row.peer):
                *_, measured, interval, target, answer = cells(row)
                yield row, (goal.words, goal.before, target, measured, interval, answer)
                break
