"""Round trips of request-response probes in a run of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.packets import ROUND_TRIP, Values, ordered
from sojourn.analysis.streams import kept_blocks

if TYPE_CHECKING:
    from sojourn.analysis.run import Run


def _asked(run: Run) -> pl.DataFrame:
    """Return the measured request-response probes of kept blocks, without warm-up."""
    return run.measured.filter(pl.col("block").is_in(sorted(kept_blocks(run))))


def round_trips(run: Run) -> list[Values]:
    """Return the round-trip times of every path and cell; unanswered ones are infinite."""
    found = []
    for (device, cell), rows in _asked(run).partition_by("device", "cell", as_dict=True, maintain_order=True).items():
        answered = rows.drop_nulls("rtt")
        blocks = np.unique(rows["block"].to_numpy()).astype(np.int64)
        silent = rows.filter(pl.col("rtt").is_null())["block"].to_numpy()
        if answered.height:
            one = Values(
                str(device),
                int(str(cell)),
                0,
                0,
                ROUND_TRIP,
                answered["rtt"].to_numpy().astype(np.float64),
                None,
                np.searchsorted(blocks, answered["block"].to_numpy()).astype(np.int64),
                blocks,
                np.array([(silent == block).sum() for block in blocks], dtype=np.int64),
            )
            found.append(one)
    return ordered(run, found)


def trip_summaries(run: Run) -> pl.DataFrame:
    """Return mean and median round trip of every trial."""
    rtt = pl.col("rtt")
    return (
        _asked(run)
        .with_columns(run.session)
        .group_by("device", "cell", "round", "visit", "session", "block", maintain_order=True)
        .agg(rtt.mean().alias("mean"), rtt.median().alias("p50"))
    )
