"""Pacing: generators at 1,000, 10,000 and 100,000 packets a second, measured by a capture at the B side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import judge
from bench.compare import Target
from bench.contest import Claim, Column, Contest
from bench.generators import GENERATORS, OURS, Asked
from bench.measure import finish
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.experiments import Ground, Sample
    from bench.generators import Generator

RATES = (1_000, 10_000, 100_000)
SECONDS = 2.0
"""iperf3 and sockperf run for whole seconds."""

COLUMNS = (
    Column("within_1us", "within ±1 µs", "share"),
    Column("within_10us", "within ±10 µs", "share"),
    Column("p99_ns", "p99 error", "ns"),
    Column("achieved", "achieved", "1/s"),
)


def contests() -> list[Contest]:
    """Return a contest for each rate; the targets are for the middle one."""
    return [contest(rate) for rate in RATES]


def contest(rate: int) -> Contest:
    """Every generator at one rate."""
    asked = Asked(rate, SECONDS)
    claims = (
        Claim(OURS, "within_1us", "departures within ±1 µs", "share", Target("at least", 0.85)),
        Claim(OURS, "within_10us", "departures within ±10 µs", "share", Target("at least", 0.95)),
        Claim(OURS, "rate_error", "achieved rate, off by", "share", Target("at most", 0.001)),
    )
    runs = {one.name: runner(one, asked) for one in GENERATORS}
    return Contest(f"{rate:,} packets/s", runs, COLUMNS, claims if rate == 10_000 else ())


def runner(generator: Generator, asked: Asked) -> Callable[[Ground], Sample]:
    """One run of one generator."""

    def run(ground: Ground) -> Sample:
        file = ground.scratch / "pacing.pcap"
        with judge.watch(ground.bed, ground.link.b_dev, generator.port, file):
            finish(ground.bed, "a", generator.argv(ground, asked))
        return judged(file, asked)

    return run


def judged(file: Path, asked: Asked) -> Sample:
    """Return the figures of a run; one that sent almost nothing is within no bound."""
    stamps = judge.arrivals(file)
    try:
        found = judge.Departures.of(stamps, round(1e9 / asked.rate))
    except MachineError:
        return {"within_1us": 0.0, "within_10us": 0.0, "achieved": len(stamps) / asked.seconds}
    return {
        "within_1us": found.within_1us,
        "within_10us": found.within_10us,
        "p99_ns": found.p99_ns,
        "achieved": found.rate,
        "rate_error": abs(found.rate / asked.rate - 1),
    }
