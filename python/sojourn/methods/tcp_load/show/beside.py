"""The figures of "tcp-load" that other tools report, too: goodput of the flows, round trips and losses of probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.methods.tcp_load.show.rows import WAYS, cells_of, load_of, probe_of
from sojourn.report.beside.figure import LOSS, RATE, ROUND_TRIP, Ours

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.methods.tcp_load.show.rows import Figures
    from sojourn.report.run import Run

STATES = {"idle": "idle path", "working": "working conditions"}
STATISTICS = ("mean", "p50", "p99")
"""Of round trips, those that are read of other tools' files."""


def compared(run: Run) -> Iterator[Ours]:
    """Return the figures of every cell over every device; those of further probes are cells of their own."""
    for factors, of in cells_of(run, further=True):
        pipe = f", {factors['pipe']}" if factors.get("pipe") else ""
        where = f"{factors['device']}, {load_of(factors)} {factors['direction']}{pipe}"
        yield from _of_probes(of, f"{where}: {probe_of(factors)}")
        yield from _of_flows(of, where)


def _of_probes(of: Figures, where: str) -> Iterator[Ours]:
    for state, said in STATES.items():
        for statistic in STATISTICS:
            if row := of.get((f"rtt_{state}", statistic)):
                yield Ours(ROUND_TRIP, f"{where}, {said}", statistic, row)
        if row := of.get(("probe_loss", state)):
            yield Ours(LOSS, f"{where}, {said}", "mean", row)


def _of_flows(of: Figures, where: str) -> Iterator[Ours]:
    for way in WAYS:
        if row := of.get(("goodput", way)):
            yield Ours(RATE, f"{where}: {way}, all flows", "mean", row)
        for (quantity, statistic), row in of.items():
            if quantity == "goodput_by_dscp" and statistic.startswith(f"{way} "):
                yield Ours(RATE, f"{where}: {way}, flows of {statistic.removeprefix(f'{way} ')}", "mean", row)
