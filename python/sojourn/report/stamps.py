"""Which clocks and stamps a run's times are from, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from sojourn.report.run import Run

CLOCKS = {
    "TAI": "CLOCK_TAI of the host, in nanoseconds; a comparison with CLOCK_MONOTONIC_RAW detects steps of it",
    "simulated": "the simulation's own clock, in nanoseconds",
}
SOURCES = {
    "hardware": "the network card",
    "kernel": "the kernel",
    "user": "the program itself",
    "simulated": "the simulation",
    "bpf": "a program of traffic control (BPF)",
}


def clock_and_stamps(run: Run, *quantities: str) -> tuple[str, str]:
    """The clock of a run's times, and who stamped what these quantities are made from, as far as it was recorded."""
    stamped = run.results.filter(pl.col("quantity").is_in(quantities))
    sources = [name for name in SOURCES if any(name in one for one in _distinct(stamped, "source"))]
    clock = "; ".join(map(_clock, _distinct(run.results, "clock"))) or "not recorded"
    return clock, " and ".join(SOURCES[name] for name in sources)


def _clock(name: str) -> str:
    """A recorded clock in words; how two were brought together stays as the analysis says it."""
    first, _, rest = name.partition(" of ")
    return CLOCKS.get(first, first) + (f" (of {rest})" if rest else "")


def _distinct(rows: pl.DataFrame, column: str) -> list[str]:
    return sorted({str(one) for one in rows[column].drop_nulls() if one})
