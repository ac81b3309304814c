"""Matching ten times as many packets takes ten times the processor time, and no more memory."""

from __future__ import annotations

import pytest

from bench.growth import ENGINES, series

SIZES = (1_000_000, 10_000_000)
MORE_MIB = 64
"""What an allocator may keep, and batches that wait where readers are ahead."""


@pytest.mark.proof
@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "spark"])
def test_time_grows_with_packets_and_memory_does_not(engine: str) -> None:
    least, largest = series(engine, SIZES, print)
    assert largest.peak_mib < least.peak_mib + MORE_MIB, (least, largest)
    # Less than ten times: a program's start is in both.
    assert largest.processor_seconds < 12 * least.processor_seconds, (least, largest)


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "spark"])
def test_growth_benchmark_matches_all_its_packets(engine: str) -> None:
    """A small number of packets through all that the bench does; what it tells is checked there against the truth."""
    [found] = series(engine, [70_000], print)
    assert (found.packets, found.processor_seconds > 0, found.peak_mib > 10) == (70_000, True, True)
