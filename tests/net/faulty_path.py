"""A transfer over a path with one known fault, and what the instruments recorded of it: TCP, the emulator, two taps.

Two hosts with our emulator between them, in namespaces; a log of TCP's state of both hosts, the emulator's log, and one
sender. Which fault there is, and where in time it is at work, is known. Nothing is judged here.
"""

from __future__ import annotations

import random
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn.instruments import find_instrument
from tests.net.busy_machine import await_that
from tests.net.tcplog_bed import A4, A6, B4, B6, PORT, TRAFFIC, Bed, line_of, logging, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAULTS = ("queue", "loss", "slow", "policer", "receiver", "application", "standing")
"""A queue too short for the path, a lossy link, a lossy one of 1 Mbit/s, a policer, a receiver that reads slowly, a
sender that pauses, and a long queue without management."""

SECONDS = 4
SLOW_SECONDS = 8
SLOW_FAULTS = ("queue", "loss", "policer", "receiver", "application", "standing")
"""The same over a link of 1 Mbit/s, where a frame takes 12 ms and a transfer has a few hundred of them."""

RECEIVE_BUFFER = 4_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """A fault with its figures, drawn by a seed."""

    fault: str
    pipe: str
    sender: tuple[str, ...]
    receiver: tuple[str, ...] = ("serve",)
    congestion: str = "cubic"


def case_of(fault: str, seed: int) -> Case:
    """Another path for each seed: its rate and delay, and how large the fault is."""
    draw = random.Random(f"{fault} {seed}")
    rate, delay_ms = draw.choice((10, 15, 20)), draw.choice((10, 15, 20))
    path = f"rate {rate}Mbit/s delay {delay_ms}ms"
    held = rate * 1e6 * 2 * delay_ms / 1e3 / 8 / 1514
    congestion = draw.choice(("cubic", "reno"))
    sending = ("for", str(SECONDS))
    if fault == "queue":
        limit = max(3, round(held / draw.choice((6, 8, 10))))
        return Case(fault, f"{path} queue {limit}", sending, congestion=congestion)
    if fault in {"loss", "slow"}:
        # Of 1 Mbit/s: a segment takes 12 ms, and with so many losses the window leaves the link idle half of the time.
        share = draw.choice((1, 2, 3) if fault == "loss" else (7, 8, 9))
        pipe = f"{path} queue {round(2 * held)}" if fault == "loss" else "rate 1Mbit/s delay 40ms queue 100"
        return Case(fault, f"{pipe} loss {share}%", sending, congestion=congestion)
    if fault == "policer":
        burst = draw.choice((16, 24, 32))
        return Case(fault, f"{path} queue 1 burst {burst}KB", sending, congestion=congestion)
    if fault == "receiver":
        read = round(rate * 1e6 / 8 / draw.choice((4, 6)))
        return Case(fault, f"{path} queue 400", sending, ("slowly", str(read)), congestion)
    if fault == "application":
        pausing = ("pausing", str(draw.choice((20_000, 60_000))), "250", str(SECONDS))
        return Case(fault, f"{path} queue 400", pausing, congestion=congestion)
    return Case(fault, f"{path} queue {round(held * draw.choice((4, 6)))}", sending, congestion="reno")


def slow_case_of(fault: str, seed: int) -> Case:
    """A path of 1 Mbit/s and 80 to 160 ms, which holds 7 to 13 packets, for each seed."""
    draw = random.Random(f"slow {fault} {seed}")
    delay_ms = draw.choice((40, 60, 80))
    path = f"rate 1Mbit/s delay {delay_ms}ms"
    held = 1e6 * 2 * delay_ms / 1e3 / 8 / 1514
    congestion = draw.choice(("cubic", "reno"))
    sending = ("for", str(SLOW_SECONDS))
    if fault == "queue":
        limit = max(2, round(held / draw.choice((4, 5))))
        return Case(fault, f"{path} queue {limit}", sending, congestion=congestion)
    if fault == "loss":
        # By Mathis the window is 1.2/sqrt(loss) segments: less than the path holds.
        return Case(fault, f"{path} queue 100 loss {draw.choice((6, 8, 10))}%", sending, congestion=congestion)
    if fault == "policer":
        return Case(fault, f"{path} queue 1 burst {draw.choice((8, 12, 16))}KB", sending, congestion=congestion)
    if fault == "receiver":
        read = round(1e6 / 8 / draw.choice((4, 6)))
        return Case(fault, f"{path} queue 100", sending, ("slowly", str(read)), congestion)
    if fault == "application":
        pausing = ("pausing", str(draw.choice((4_000, 8_000))), "500", str(SLOW_SECONDS))
        return Case(fault, f"{path} queue 100", pausing, congestion=congestion)
    return Case(fault, f"{path} queue {round(held * draw.choice((4, 6)))}", sending, congestion="reno")


@contextmanager
def faulty_bed(family: int = 4, offloads: str = "off") -> Iterator[Bed]:
    """Hosts a and b, and a box between them with a port to each.

    `offloads` "off": segments leave and arrive one by one; "gro": b's kernel joins what arrives within 3 ms; "gso":
    what TCP hands down leaves as it is, so that the box gets super-packets of up to 64 KB.
    """
    bed = Bed()
    try:
        for host in ("a", "b", "box"):
            bed.host(host)
        for host, port, addresses in (("a", "left", (A4, A6)), ("b", "right", (B4, B6))):
            ends = ["netns", f"{bed.name}-box", "type", "veth", "peer", "name", "p0", "netns", f"{bed.name}-{host}"]
            run("ip", "link", "add", "name", port, *ends)
            for where, device in ((host, "p0"), ("box", port)):
                inside = ("ip", "netns", "exec", f"{bed.name}-{where}")
                features = () if offloads == "gso" else ("tso", "gso", "gro")
                if features:
                    run(*inside, "ethtool", "-K", device, *(word for name in features for word in (name, "off")))
                is_quiet = family == 4 or where == "box"
                run(*inside, "sysctl", "-q", "-w", f"net.ipv6.conf.{device}.disable_ipv6={int(is_quiet)}")
            if family == 4:
                bed.ip(host, "address", "add", f"{addresses[0]}/24", "dev", "p0")
            else:
                bed.ip(host, "address", "add", f"{addresses[1]}/64", "dev", "p0", "nodad")
            bed.ip(host, "link", "set", "p0", "up")
            bed.ip("box", "link", "set", port, "up")
        if offloads == "gro":
            join_what_arrives(bed, "b")
        yield bed
    finally:
        bed.remove()


def join_what_arrives(bed: Bed, host: str) -> None:
    """GRO, which waits for more: else the kernel has no two packets to join at these rates."""
    inside = ("ip", "netns", "exec", f"{bed.name}-{host}")
    run(*inside, "ethtool", "-K", "p0", "gro", "on")
    for name, value in (("napi_defer_hard_irqs", 10), ("gro_flush_timeout", 3_000_000)):
        run(*inside, "sh", "-c", f"echo {value} > /sys/class/net/p0/{name}")


def recorded(bed: Bed, case: Case, out: Path, seed: int) -> None:
    """Run the transfer; `out/t` is the log of TCP, `out/e` the emulator's, `out/tap-a` and `out/tap-b` are captures."""
    out.mkdir()
    (out / "e").mkdir()
    emulate: list[str | Path] = [
        find_instrument(),
        "emulate",
        "run",
        "left",
        "right",
        "--json",
        "--control",
        out / "control",
    ]
    pipes: list[str | Path] = ["--forward", case.pipe, "--backward", case.pipe.split(" queue")[0], "--seed", str(seed)]
    emulator = bed.start("box", *emulate, *pipes, "--engine", "packet", "--log", out / "e")
    await_that((out / "control").exists, "the emulator is ready")
    shape = ("--headers", "--format", "pcapng")
    taps = [
        bed.start(host, find_instrument(), "capture", "p0", "-o", out / f"tap-{host}", *shape, "--json")
        for host in "ab"
    ]
    await_that(lambda: len(list(out.glob("tap-*/*.pcapng"))) == 2, "the taps are there")
    # A large one: that the receiver waits for a processor is no fault of this path.
    receiving = ("env", f"RECEIVE_BUFFER={RECEIVE_BUFFER}", sys.executable)
    server = bed.start("b", *receiving, TRAFFIC, case.receiver[0], B4, str(PORT), *case.receiver[1:])
    assert line_of(server) == "ready"
    with logging(out / "t", "--attach", bed.cgroup, "--port", str(PORT)) as logger:
        sending = ("env", f"CONGESTION={case.congestion}", sys.executable)
        sender = bed.start("a", *sending, TRAFFIC, case.sender[0], B4, str(PORT), *case.sender[1:])
        assert sender.wait(60) == 0
        logger.end()
    for one in (*taps, emulator):
        one.send_signal(2)
        assert one.wait(60) == 0
    server.kill()
    server.wait(60)
