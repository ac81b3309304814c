"""fan-in-total: senders fill the sum of their own links, or the link they share, and share it equally.

Frames count from the last sender's first arrival to the first sender's last. The total may be off by 1 %, a sender's
share by 5 % of an equal one. In ethernet-tests-2000 (table 4.2) six senders of 100 Mbit/s reached 72.93 MB/s (6.03
times one of them) and eight no more, because the receiver was the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.hypotheses import Outcome, against, inconclusive
from sojourn.analysis.links.cables import cables_of
from sojourn.analysis.sessions import middle
from sojourn.analysis.stream_rows import per_path
from sojourn.analysis.streams import L1_OVERHEAD, of_trials, over_column
from sojourn.analysis.wording import percent
from sojourn.statistics.line import Deviations

if TYPE_CHECKING:
    from sojourn.analysis.links.cables import Cables
    from sojourn.analysis.run import Run

TOTAL = 0.01
SHARE = 0.05
FILLS = 0.99
"""A sender that offers less than this share of its link's rate does not fill it."""


def evaluate(name: str, run: Run, flows: pl.DataFrame, packets: pl.DataFrame) -> list[Outcome]:
    """Return the outcomes for every flood over a path with rated links."""
    cables = cables_of(run)
    rates = _rates(flows, packets)
    found = [
        _evaluate(name, run, here, cables[device])
        for (device, cell), _, here in per_path(run, rates)
        if device in cables and run.cells[cell].schedule == "flood"
    ]
    return found or [inconclusive(name, "no path with rated links was flooded")]


def _rates(flows: pl.DataFrame, packets: pl.DataFrame) -> pl.DataFrame:
    """Add `pps`: the rate of each flow while all flows of its trial arrive; else over its own time."""
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
    trials = flows.group_by("block", maintain_order=True).agg(pl.col("pps").sum(), pl.col("session").first())
    shown, expected = over_column(trials, bits * pl.col("pps")), cables.through_bps(senders)
    own = cables.rates[0]
    offered = bits * float(np.nanmin(flows["offered_pps"].to_numpy().astype(np.float64)))
    said = (
        f"{senders} sender{'s' if senders > 1 else ''} of {size} B frames through {device} "
        f"fill{'' if senders > 1 else 's'} {shown.estimate / 1e6:.2f} Mbit/s on the wire"
        f"{' while all of them send' if senders > 1 else ''}; the links carry "
        f"{expected / 1e6:.2f} (± {percent(TOTAL)})"
    )
    outcome, fair = against(shown, expected, TOTAL * expected), shares(flows)
    if offered < FILLS * (own if own is not None else expected / senders):
        outcome, said = "inconclusive", f"{said}; a sender offered only {offered / 1e6:.2f} Mbit/s"
    elif senders > 1:
        outcome, said = _both(outcome, fair), f"{said}; {_most(fair)}"
    return Outcome(name, outcome, said, device, None, fair, TOTAL * expected, shown, "bit/s", expected)


def shares(flows: pl.DataFrame) -> Deviations:
    """Return each sender's share of the total relative to an equal one, minus 1, over trials: simultaneous
    intervals."""
    total = pl.col("pps").sum().over("block")
    off = flows.filter(total > 0).with_columns(off=pl.col("pps") * pl.len().over("block") / total - 1)
    level = 1 - 0.05 / max(1, off["flow"].n_unique())
    each = off.partition_by("flow", maintain_order=True)
    return Deviations([middle(*of_trials(one, "off"), level) for one in each], None)


def _both(total: str, fair: Deviations) -> str:
    """Return the outcome of both: rejected if one of them is, supported if both are."""
    outcome = "supported" if fair.lie_within(SHARE) else "rejected" if fair.beyond(SHARE) else "inconclusive"
    return (
        "rejected"
        if "rejected" in (total, outcome)
        else "supported"
        if total == outcome == "supported"
        else "inconclusive"
    )


def _most(fair: Deviations) -> str:
    if not fair.each:
        return "the senders' shares are not known"
    most = percent(abs(fair.largest.estimate))
    return f"a sender's share differs from an equal one by at most {most} (± {percent(SHARE)})"
