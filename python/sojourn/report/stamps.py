"""The clocks and the sources of the timestamps of a run, in words."""

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
    """Return the clock of a run's times, and the sources of the timestamps of these quantities, as far as recorded."""
    stamped = run.results.filter(pl.col("quantity").is_in(quantities))
    sources = [name for name in SOURCES if any(name in one for one in _distinct(stamped, "source"))]
    clock = "; ".join(map(_clock, _distinct(run.results, "clock"))) or "not recorded"
    return clock, " and ".join(SOURCES[name] for name in sources)


def _clock(name: str) -> str:
    """Return a recorded clock in words; the relation of two clocks stays in the words of the analysis."""
    first, _, rest = name.partition(" of ")
    return CLOCKS.get(first, first) + (f" (of {rest})" if rest else "")


def _distinct(rows: pl.DataFrame, column: str) -> list[str]:
    return sorted({str(one) for one in rows[column].drop_nulls() if one})
