"""The delay of the path outside the emulator, and the delay errors if it were compensated (`--compensate`).

A frame is under way before its arrival is timestamped, and after the kernel is called to send it. That time is the
one-way delay minus the direct path's median and minus the time from arrival to departure in the emulator's log; it
contains neither the configured delay nor the emulator's lateness. Its median in one half of the trials is subtracted
from the errors of the other half, so that the accuracy reported is not that of a fit to the same data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.checks import number
from sojourn.analysis.factors import spell_interval
from sojourn.analysis.wording import micro
from sojourn.methods.emulator.analyse.seen import parts_of
from sojourn.statistics.quantile import quantile_by_rounds

if TYPE_CHECKING:
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.methods.emulator.analyse.seen import Seen
    from sojourn.statistics.interval import Interval

LEAST = 200
"""A result needs at least this many packets."""


def crossed(seen: Seen) -> pl.DataFrame:
    """Return the stream's packets with `path_ns`, and with `error_ns` minus the path delay of the other half of the
    trials."""
    rows = seen.outside if seen.is_timed and seen.has_log and "seq" in seen.log.columns else pl.DataFrame()
    if rows.height < LEAST:
        return pl.DataFrame()
    keys = ["block", "flow", "seq"]
    within = (pl.col("departure_ns") - pl.col("arrival_ns")).cast(pl.Float64).alias("within_ns")
    own = seen.sent.filter(pl.col("copy_of").is_null()).drop_nulls(["seq", "departure_ns"])
    told = own.select("block", pl.col("flow_of_stream").alias("flow"), "seq", within).unique(keys)
    found = rows.join(told, on=keys, how="inner", maintain_order="left").with_columns(
        path_ns=pl.col("over_ns") - pl.col("within_ns")
    )
    blocks = found["block"].unique().sort().to_list()
    if found.height < LEAST or len(blocks) < 2:
        return pl.DataFrame()
    is_odd = pl.col("block").is_in(blocks[1::2])
    halves = [found.filter(~is_odd), found.filter(is_odd)]
    medians = [float(np.median(half["path_ns"].to_numpy())) for half in halves]
    return pl.concat(
        half.with_columns(error_ns=pl.col("error_ns") - other)
        for half, other in zip(halves, reversed(medians), strict=True)
    )


def delay_of(rows: pl.DataFrame) -> Interval:
    """Return the median of the path's delay."""
    return quantile_by_rounds(rows["path_ns"].to_numpy(), parts_of(rows), 0.5, 0.95)


def sentence(run: Run, rows: list[Row]) -> str:
    """Return the compensation to configure, and the errors with it, of the plan's first cell that has them."""
    known = [row for row in rows if row.quantity == "path_delay" and row.value.low is not None]
    if not known:
        return ""
    first = min(known, key=lambda row: row.cell if row.cell is not None else -1)
    found = first.value.estimate
    if already := number((run.plan.get("emulate") or {}).get("compensate") or 0.0):
        return f"; beyond the {micro(already)} that are compensated, the path outside the emulator takes {micro(found)}"
    if round(found, -2) <= 0 or not first.value.excludes(0):
        known_to = f"{micro(first.value.low or 0.0)} to {micro(first.value.high or 0.0)}"
        said = "; the path outside the emulator does not take significantly longer than the direct one"
        return f"{said} (95 % CI {known_to})"
    off = {
        row.statistic: row.value.estimate
        for row in rows
        if (row.device, row.cell, row.quantity) == (first.device, first.cell, "emulation_error_compensated")
    }
    elsewhere = _elsewhere(known, first)
    said = f"; the path outside the emulator takes {micro(found)} longer than the direct one{elsewhere}: "
    said += f"with --compensate {found / 1e3:.1f}us the median delay error would be {micro(off['p50'])}"
    return said + (f" and its 99th percentile {micro(off['p99'])}" if "p99" in off else "")


def _elsewhere(known: list[Row], first: Row) -> str:
    """Return the time between packets of the figure, and the largest path delay at others."""
    pace = first.factors.interval_ns
    most = max(known, key=lambda row: row.value.estimate)
    if most.factors.interval_ns in (pace, None) or pace is None:
        return ""
    others = f"up to {micro(most.value.estimate)} at {spell_interval(most.factors.interval_ns or 0)}"
    return f" for packets {spell_interval(pace)} apart ({others})"
