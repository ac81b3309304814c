"""fan-in-total: senders on links of their own fill the sum of those, or the link they share, and share it fairly.

Frames count while all senders' frames arrive: from the last one's first to the first one's last. The margin of the
total is 1 %, that of a sender's share 5 % of an equal one. In ethernet-tests-2000 (table 4.2) six senders of 100 Mbit/s
gave 72.93 MB/s (6.03 times one of them) and eight no more, for the receiver could take no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.hypotheses import Outcome, against, inconclusive
from sojourn.analysis.links.cables import cables_of
from sojourn.analysis.stream_rows import per_path
from sojourn.analysis.streams import L1_OVERHEAD, over_trials
from sojourn.analysis.wording import percent
from sojourn.statistics.line import Deviations
from sojourn.statistics.signed_rank import hodges_lehmann

if TYPE_CHECKING:
    from sojourn.analysis.links.cables import Cables
    from sojourn.analysis.run import Run

TOTAL = 0.01
SHARE = 0.05
FILLS = 0.99
"""A sender that offers less than this of its link's rate does not fill it."""


def evaluate(name: str, run: Run, flows: pl.DataFrame, packets: pl.DataFrame) -> list[Outcome]:
    """Of every flood over a path with rated links."""
    cables = cables_of(run)
    rates = _rates(flows, packets)
    found = [
        _evaluate(name, run, here, cables[device])
        for (device, cell), _, here in per_path(run, rates)
        if device in cables and run.cells[cell].schedule == "flood"
    ]
    return found or [inconclusive(name, "no path with rated links was flooded")]


def _rates(flows: pl.DataFrame, packets: pl.DataFrame) -> pl.DataFrame:
    """The flows with `pps`: each one's rate while all flows of its trial arrive; over its own time if none was kept."""
    at, arrival = ["block", "flow", "port"], pl.col("arrival_ns")
    ends = packets.group_by(at).agg(arrival.min().alias("first"), arrival.max().alias("last"))
    common = ends.group_by("block", "port").agg(pl.col("first").max().alias("from"), pl.col("last").min().alias("to"))
    within = packets.join(common, on=["block", "port"]).filter(arrival.is_between(pl.col("from"), pl.col("to")))
    span = (arrival.max() - arrival.min()).cast(pl.Float64)
    rate = within.group_by(at).agg(pl.when(span > 0).then((pl.len() - 1) * 1e9 / span).alias("pps"))
    return flows.join(rate, on=at, how="left").with_columns(
        pl.coalesce("pps", "received_pps", pl.lit(0.0)).alias("pps")
    )


def _evaluate(name: str, run: Run, flows: pl.DataFrame, cables: Cables) -> Outcome:
    device, factors = str(flows["device"][0]), run.cells[int(flows["cell"][0])]
    senders, size = factors.senders or 1, factors.frame_bytes or 0
    bits = 8.0 * (size + L1_OVERHEAD)
    trials = flows.group_by("block", maintain_order=True).agg(pl.col("pps").sum())
    shown, expected = over_trials(bits * trials["pps"].to_numpy()), cables.through_bps(senders)
    own = cables.rates[0]
    offered = bits * float(np.nanmin(flows["offered_pps"].to_numpy().astype(np.float64)))
    said = (
        f"{senders} sender{'s' if senders > 1 else ''} of {size} B frames through {device} fill "
        f"{shown.estimate / 1e6:.2f} Mbit/s of the wire, and their links carry {expected / 1e6:.2f} "
        f"(± {percent(TOTAL)})"
    )
    outcome, fair = against(shown, expected, TOTAL * expected), shares(flows)
    if offered < FILLS * (own if own is not None else expected / senders):
        outcome, said = "inconclusive", f"{said}; a sender offered only {offered / 1e6:.2f} Mbit/s"
    elif senders > 1:
        outcome, said = _both(outcome, fair), f"{said}; no share is off an equal one by more than {_most(fair)}"
    return Outcome(name, outcome, said, device, None, fair, TOTAL * expected, shown, "bit/s", expected)


def shares(flows: pl.DataFrame) -> Deviations:
    """How far each sender's share of the total is off an equal one, over trials: intervals that hold together."""
    total = pl.col("pps").sum().over("block")
    off = flows.filter(total > 0).with_columns(off=pl.col("pps") * pl.len().over("block") / total - 1)
    level = 1 - 0.05 / max(1, off["flow"].n_unique())
    each = off.partition_by("flow", maintain_order=True)
    return Deviations([hodges_lehmann(one["off"].to_numpy(), level) for one in each], None)


def _both(total: str, fair: Deviations) -> str:
    """The outcome of both: rejected where one of them is, supported where both are."""
    outcome = "supported" if fair.lie_within(SHARE) else "rejected" if fair.beyond(SHARE) else "inconclusive"
    return (
        "rejected"
        if "rejected" in (total, outcome)
        else "supported"
        if total == outcome == "supported"
        else "inconclusive"
    )


def _most(fair: Deviations) -> str:
    return f"{percent(abs(fair.largest.estimate))} (± {percent(SHARE)})" if fair.each else "what is not known"
