"""The delay between the taps packet by packet over the run, and the time on a link that is subtracted on request.

Nothing is subtracted unless the plan has `taps.subtract_serialisation`. The time of a frame on a link of that rate,
with FCS, preamble and start delimiter, is subtracted from its delay, as by `sojourn match --subtract-serialisation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.analysis.samples import Sample, shared, thinned
from sojourn.analysis.streams import elapsed_s
from sojourn.units import rate

if TYPE_CHECKING:
    from sojourn.analysis.run import Run


TAP_TIMELINE = Sample(
    "A packet that crossed the device; thinned, the slowest kept.",
    {**shared("device cell block elapsed_s"), "delay_ns": (pl.Float64, "The delay between the taps.")},
    with_factors=True,
)


def subtracted_rate(run: Run) -> int | None:
    """Return the rate of the link whose serialisation is subtracted, in bit/s."""
    words = run.plan.get("taps", {}).get("subtract_serialisation")
    found = rate(str(words)) if words else None
    return int(found[1]) if found else None


def timeline(run: Run, packets: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """Return every k-th packet, and the slowest of those left out between them.

    The taps' clock may differ from that of the ends: times count from the begin of the packet's trial.
    """
    began = flows.unique("block").with_columns(began_s=elapsed_s(run, "started_ns")).select("block", "began_s")
    within = (pl.col("first_ns") - pl.col("first_ns").min().over("block")).cast(pl.Float64) / 1e9
    known = packets.join(began, on="block", how="inner").with_columns(elapsed_s=pl.col("began_s") + within)
    kept = thinned(known.sort("block", "first_ns", maintain_order=True), "delay_ns")
    return TAP_TIMELINE.of(kept)
