"""What the path costs beside the emulator, and how exactly packets would come with that taken off (`--path-cost`).

A frame is on its way before its arrival is stamped and after the kernel was called to send it. That is the one-way
delay less the direct path's median and less the time from arrival to departure by the emulator's log: neither what was
asked nor how late it was is in it. What it comes to in half of the trials is taken off the errors of the others, so
that the exactness that is told is none that a fit has made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.checks import number
from sojourn.analysis.wording import micro
from sojourn.methods.emulator.analyse.seen import parts_of
from sojourn.statistics.quantile import quantile_by_rounds

if TYPE_CHECKING:
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.methods.emulator.analyse.seen import Seen
    from sojourn.statistics.interval import Interval

LEAST = 200
"""Packets of a figure."""


def crossed(seen: Seen) -> pl.DataFrame:
    """The stream's packets with `path_ns`, and with `error_ns` from outside once the path of other trials is off it."""
    rows = seen.outside if seen.is_timed and seen.has_log and "seq" in seen.log.columns else pl.DataFrame()
    if rows.height < LEAST:
        return pl.DataFrame()
    keys = ["block", "flow", "seq"]
    within = (pl.col("departure_ns") - pl.col("arrival_ns")).cast(pl.Float64).alias("within_ns")
    own = seen.sent.filter(pl.col("copy_of").is_null()).drop_nulls(["seq", "departure_ns"])
    told = own.select("block", pl.col("flow_of_stream").alias("flow"), "seq", within).unique(keys)
    found = rows.join(told, on=keys, how="inner", maintain_order="left").with_columns(
        path_ns=pl.col("delay_ns") - pl.col("within_ns") - pl.lit(seen.floor_p50_ns)
    )
    blocks = found["block"].unique().sort().to_list()
    if found.height < LEAST or len(blocks) < 2:
        return pl.DataFrame()
    is_odd = pl.col("block").is_in(blocks[1::2])
    halves = [found.filter(~is_odd), found.filter(is_odd)]
    costs = [float(np.median(half["path_ns"].to_numpy())) for half in halves]
    return pl.concat(
        half.with_columns(error_ns=pl.col("error_ns") - other)
        for half, other in zip(halves, reversed(costs), strict=True)
    )


def cost_of(rows: pl.DataFrame) -> Interval:
    """The median of what the path took."""
    return quantile_by_rounds(rows["path_ns"].to_numpy(), parts_of(rows), 0.5, 0.95)


def sentence(run: Run, rows: list[Row]) -> str:
    """What to write, and what it makes of the errors: of the cell whose path is known best."""
    known = [row for row in rows if row.quantity == "path_cost" and row.value.low is not None]
    if not known:
        return ""
    best = min(known, key=lambda row: float(row.value.high or 0) - float(row.value.low or 0))
    found = best.value.estimate
    if already := number((run.plan.get("emulate") or {}).get("path_cost") or 0.0):
        return f"; beside the {micro(already)} that are taken off the path takes {micro(found)}"
    if round(found, -2) <= 0:
        return "; the path itself takes no more than the direct one"
    off = {
        row.statistic: row.value.estimate
        for row in rows
        if (row.device, row.cell, row.quantity) == (best.device, best.cell, "emulation_error_less_path")
    }
    said = f"; the path itself takes {micro(found)} more than the direct one: "
    said += f"with --path-cost {found / 1e3:.1f}us delays would be off by {micro(off['p50'])} in the median"
    return said + (f" and {micro(off['p99'])} in the 99th percentile" if "p99" in off else "")
