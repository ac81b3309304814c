"""How a device's latency on the way of requests differs from the mean of both ways, at the headline's cell.

Known where the other end stamps a request's arrival and its own reply (its process does, a kernel that answers ICMP
does not) and both ends read one clock. Both stamps are taken in the same way on both paths of a pair, so what they add
cancels in the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.rows import Row
from sojourn.analysis.sessions import figure_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.analysis.pairs import Rounds
    from sojourn.analysis.run import Run

ONE_CLOCK = ("netns", "sim")
"""Backends whose hosts share a clock."""


def asymmetry_rows(run: Run, rounds: Rounds, of: Row | None) -> list[Row]:
    """`latency_asymmetry`: request less the mean of request and reply, ns, of the row's device, reference and cell."""
    if of is None or of.reference is None or run.plan.get("bed", {}).get("backend") not in ONE_CLOCK:
        return []
    stamped = run.measured.filter(pl.col("cell") == of.cell).drop_nulls(
        ["rtt", "responder_arrival_ns", "responder_departure_ns"]
    )
    width = len(rounds.session)
    device, reference = (_by_round(stamped, path, width) for path in (of.device, of.reference))
    is_pair = ~np.isnan(rounds.one_way(of.device, of.reference)[rounds.cells.index(of.cell or 0)])
    found = figure_of(np.where(is_pair, device - reference, np.nan), rounds.session)
    if not found.mean.n:
        return []
    row = Row(of.device, "latency_asymmetry", "mean", found.mean, "ns", of.reference, of.factors, of.cell, of.probes)
    row.sessions = found.sessions
    return [row]


def _by_round(stamped: pl.DataFrame, device: str, width: int) -> NDArray[np.float64]:
    """Half of request less reply in each round, the mean of its blocks; NaN where there is none."""
    request = pl.col("responder_arrival_ns") - pl.col("departure_ns")
    reply = pl.col("arrival_ns") - pl.col("responder_departure_ns")
    blocks = (
        stamped.filter(pl.col("device") == device)
        .group_by("round", "block")
        .agg(((request - reply) / 2).mean().alias("x"))
    )
    found = np.full(width, np.nan)
    for round_, value in blocks.group_by("round").agg(pl.col("x").mean()).iter_rows():
        if 0 <= round_ < width:
            found[round_] = value
    return found
