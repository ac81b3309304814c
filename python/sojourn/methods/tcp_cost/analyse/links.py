"""The difference of the throughput without the log between two direct links of a bed: the effect of the instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.analysis.instances import instance_rows, taken_in_turns
from sojourn.analysis.run import DIRECT

if TYPE_CHECKING:
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.methods.tcp_cost.analyse.seen import Seen


def link_rows(run: Run, seen: Seen) -> list[Row]:
    """Return the rows; none where every transfer used the same link."""
    links = {int(one["transfer"]): int(one["link"]) for one in run.log if one.get("event") == "transfer"}
    seconds = [number for number, link in links.items() if link == 2]
    if not seconds:
        return []
    each = (
        seen.slices.filter(pl.col("mode") == "off", pl.col("bps") > 0)
        .group_by("session", "transfer", "path", "flows", maintain_order=True)
        .agg(pl.col("bps").mean().alias("value"))
        .with_columns(pl.col("transfer").is_in(seconds).alias("second"), group=pl.format("{} {}", "path", "flows"))
    )
    found = taken_in_turns(each)
    if not len(found.pairs[0]):
        return []
    return instance_rows(run, {DIRECT: found.pairs}, "1", "throughput without the log", found.beds_each)
