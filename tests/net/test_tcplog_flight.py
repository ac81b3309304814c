"""The flight recorder over an emulated path made worse and better again: what triggers, how often, what is written.

A second log of the same host has every sample: it says how often a flow's value crossed a threshold, and when.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import polars as pl
import pytest

from sojourn.instruments import find_instrument
from tests.net.busy_machine import await_that, retried, undisturbed
from tests.net.faulty_path import faulty_bed
from tests.net.tcplog_bed import B4, PORT, TRAFFIC, Bed, Log, logging, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: programs in the kernel, and namespaces by name")

MS = 1_000_000
SPAN_MS = 400
LATE_MS = 5
"""Two logs take their samples of a packet one after the other."""

PHASE_SECONDS = 1.5
KEPT = 20


@contextmanager
def emulated(bed: Bed, control: Path, pipe: str) -> Iterator[None]:
    """The emulator between the hosts, and the end that receives."""
    words = ("--forward", pipe, "--backward", pipe, "--engine", "packet", "--control", control)
    emulator = bed.start("box", find_instrument(), "emulate", "run", "left", "right", "--json", *words)
    await_that(control.exists, "the emulator is ready")
    bed.serve()
    yield
    emulator.send_signal(2)
    assert emulator.wait(60) == 0


def recorded(bed: Bed, out: Path, words: tuple[str, ...], sender: tuple[str, ...], pipes: tuple[str, ...]) -> list[Log]:
    """The path has each of these pipes for a while; the recorder's log, and the one that has every sample."""
    control = out / "control"
    mine = ("--attach", bed.cgroup, "--cgroup", bed.cgroup / "a", "--port", str(PORT))
    with (
        emulated(bed, control, pipes[0]),
        logging(out / "all", *mine, "--sample", "both") as everything,
        logging(out / "flight", *mine, *words) as flight,
    ):
        sending = bed.start("a", sys.executable, TRAFFIC, sender[0], B4, str(PORT), *sender[1:])
        for pipe in pipes[1:]:
            time.sleep(PHASE_SECONDS)
            run(find_instrument(), "emulate", "set", "all", *pipe.split(), "--control", control)
        assert sending.wait(60) == 0
        bed.await_rest()
        logs = [flight.end(), everything.end()]
    for log in logs:
        log.expect_law()
    return logs


def crossings(log: Log, beyond: pl.Expr) -> list[int]:
    """When a value came to be beyond a threshold, by every sample but those that a recorder does not take."""
    rows = log.samples.filter(pl.col("point") != "rtt").sort("time_ns")
    rows = rows.select("time_ns", "flow", beyond=beyond.fill_null(value=False))
    came = rows.filter(pl.col("beyond") & ~pl.col("beyond").shift(1).over("flow").fill_null(value=True))
    times: list[int] = came["time_ns"].to_list()
    return times


def within(times: list[int], before_ms: float, after_ms: float) -> pl.Expr:
    """Whether a sample is of a time near one of these."""
    near = [pl.col("time_ns").is_between(at - round(before_ms * MS), at + round(after_ms * MS)) for at in times]
    return pl.any_horizontal(near)


@retried
def test_rtt_threshold_triggers_once_per_crossing(tmp_path: Path) -> None:
    words = ("--flight", f"{SPAN_MS}ms", "--flight-on", "rtt>60ms")
    pipes = ("delay 5ms", "delay 80ms", "delay 5ms", "delay 80ms")
    with faulty_bed() as bed:
        flight, everything = recorded(bed, tmp_path, words, ("pausing", "500", "20", "6"), pipes)
    assert flight.header["options"]["flight"] == f"{SPAN_MS}ms"
    crossed = crossings(everything, pl.col("srtt_us") > 60_000)
    with undisturbed():
        assert flight.footer["flight_triggers"] == {"rtt": 2}
        assert len(crossed) == 2
        odd = flight.samples.filter(~within(crossed, SPAN_MS + LATE_MS, SPAN_MS / 2 + LATE_MS))
        assert odd.is_empty(), odd.select("time_ns", "point", "srtt_us")
        there = everything.of_packets.filter(within(crossed, SPAN_MS - LATE_MS, SPAN_MS / 2 - LATE_MS)).height
        assert there <= flight.of_packets.height <= 1.1 * there + 4, "and all of what was near"
    assert flight.count("forgotten") + flight.of_packets.height == everything.of_packets.height


@retried
def test_cwnd_threshold_triggers_once_per_crossing(tmp_path: Path) -> None:
    words = ("--flight", str(KEPT), "--flight-on", "cwnd<6")
    pipes = ("rate 20Mbit/s delay 10ms queue 200", "loss 30%", "loss 0%")
    with faulty_bed() as bed:
        flight, everything = recorded(bed, tmp_path, words, ("for", "6"), pipes)
    triggers = flight.footer["flight_triggers"]
    crossed = crossings(everything, pl.col("snd_cwnd") < 6)
    with undisturbed():
        assert set(triggers) == {"cwnd"}
        assert 1 <= triggers["cwnd"] <= 20, "once a crossing, not once a packet"
        assert triggers["cwnd"] == len(crossed)
    assert not flight.samples.filter(pl.col("snd_cwnd") < 6).is_empty()
    # Those kept before, the one that shows it, and those after it.
    assert flight.samples.height <= triggers["cwnd"] * (KEPT + 1 + KEPT // 2)
    assert flight.count("forgotten") > 0


@retried
def test_a_timeout_triggers_once_and_the_span_before_it_is_written(tmp_path: Path) -> None:
    words = ("--flight", f"{SPAN_MS}ms", "--flight-on", "rto")
    with faulty_bed() as bed:
        flight, everything = recorded(
            bed, tmp_path, words, ("pausing", "500", "20", "6"), ("delay 5ms", "loss 100%", "loss 0%")
        )
    expired = everything.samples.sort("time_ns").filter(
        (pl.col("total_rto") > pl.col("total_rto").shift(1).over("flow")).fill_null(value=False)
    )
    times = expired["time_ns"].to_list()
    with undisturbed():
        assert 2 <= len(times) <= 6, "of 1.5 s without a packet: after 0.2, 0.6 and 1.4 s, at either end"
        assert flight.footer["flight_triggers"] == {"rto": len(times)}
        there = everything.of_packets.filter(within(times, SPAN_MS - LATE_MS, SPAN_MS / 2 - LATE_MS)).height
        assert there > 0
        assert there <= flight.of_packets.height <= 1.1 * there + 4, "all of what was near, and little else"
        odd = flight.samples.filter(~within(times, SPAN_MS + LATE_MS, SPAN_MS / 2 + LATE_MS))
        assert odd.is_empty(), odd.select("time_ns", "point", "total_rto")
    assert flight.count("forgotten") + flight.of_packets.height == everything.of_packets.height
