"""The slices of a run: pairs with both of their slices, and the slices measured with the kernel's statistics.

Repeated slices are removed: a resumed run measures an interrupted pair again, and the later part counts. Slices that
the log reports as lost do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from sojourn.analysis.run import without_lost

if TYPE_CHECKING:
    from sojourn.analysis.run import Run

CELL = ("path", "flows", "where", "setting", "packets_per_log")
TRAFFIC = ("path", "flows")


@dataclass(frozen=True)
class Seen:
    """`slices` are those of pairs, with bps; `pairs` has one row each; `programs` are those of the kernel's
    statistics."""

    slices: pl.DataFrame
    pairs: pl.DataFrame
    programs: pl.DataFrame


def seen_of(run: Run) -> Seen:
    """Return the run's records."""
    rows = _latest(without_lost(run.table("tcp_slices").frame, run.log), ["block"])
    seconds = (pl.col("ended_ns") - pl.col("started_ns")) / 1e9
    rows = rows.with_columns(
        run.session,
        seconds=seconds,
        bps=8 * pl.col("received_bytes") / seconds,
        cpu_s=pl.sum_horizontal("cpu_sender_s", "cpu_receiver_s", "logger_cpu_s"),
    )
    slices = rows.filter(pl.col("pair") >= 0)
    costs = _latest(without_lost(run.table("tcp_costs").frame, run.log), ["block", "host", "program"])
    asked = rows.select("block", "session", "transfer", "repetition", "mode", "packets_per_log", *TRAFFIC)
    return Seen(slices, pairs_of(slices), costs.join(asked, on="block"))


def pairs_of(slices: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each pair whose slices both had traffic: with the setting in force, and without.

    In the A/A control both are without the log: alternately the first and the second one takes the setting's place.
    """
    control = pl.col("setting") == "off"
    treated = pl.when(control).then(pl.col("visit") == pl.col("repetition") % 2).otherwise(pl.col("mode") != "off")
    told = slices.with_columns(treated=treated).filter(pl.col("received_bytes") > 0)
    kept = ["pair", "session", "repetition", "transfer", "cell", *CELL]
    with_it = told.filter("treated").select(
        *kept, "visit", "started_ns", "seconds", "bps", "cpu_s", "logger_cpu_s", "retransmitted", "timeouts",
        "in_force_s",
        "logged", "skipped", "packets_in", "packets_out",
    )  # fmt: skip
    without = told.filter(~pl.col("treated")).select(
        "pair",
        off_timeouts="timeouts",
        off_bps="bps",
        off_cpu_s="cpu_s",
        off_seconds="seconds",
        off_started_ns="started_ns",
    )
    return with_it.join(without, on="pair").sort("started_ns")


def _latest(rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    return rows.sort("part").unique(by, keep="last", maintain_order=True)
