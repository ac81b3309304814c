"""Time per packet in the log's kernel programs, from the kernel's statistics, minus that of null programs.

The statistics read a clock before and after every run. The null program has the same overhead, so the difference is the
log's own time. A slice with a setting and the slice with the null programs of the same turn give one difference. Turns
of one transfer (one iperf3, one loading of the programs, one location in memory) are correlated: half of the variance
is between transfers. So a transfer counts as one value, the mean of its turns, and the interval is over transfers. In a
run of several sessions a session counts as one value, the mean of its transfers, and the interval is Student's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.samples import Sample, shared
from sojourn.analysis.sessions import beds_in, by_session
from sojourn.methods.tcp_cost.analyse.ratios import with_ends
from sojourn.statistics.interval import student_t
from sojourn.statistics.sessions import LEAST_SESSIONS
from sojourn.statistics.signed_rank import hodges_lehmann, least_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.methods.tcp_cost.analyse.seen import Seen
    from sojourn.statistics.interval import Interval

DECIMATED_FROM = 1_000_000
"""At a sampling of 1 in at least this many packets, a slice has almost no records: its packets are decimated."""

LEAST_RUNS = 1000
"""Slices with fewer runs are excluded."""

LEVEL = 0.95

WHAT = ("logged", "decimated", "disabled", "empty", "placebo")
TURN = ("session", "transfer", "repetition", "path", "flows", "direction")
PROGRAMS = Sample(
    "The time per packet in the log's kernel programs; null factors: over all.",
    {
        **shared("path flows"),
        "host": (pl.String, "The host on which they ran."),
        "direction": (pl.String, "The direction of the packets: in, out."),
        "what": (pl.String, "What was in force: logged, decimated (almost no records), disabled, placebo."),
        **with_ends(ns="The time, minus that of the null programs of the same turn"),
        "gross_ns": (pl.Float64, "The time, with that of reading the clock."),
        "empty_ns": (pl.Float64, "The time of the null programs."),
        "runs": (pl.Int64, "How often the programs ran: once a packet."),
        "slices": (pl.Int64, "Slices."),
        "transfers": (pl.Int64, "Transfers, or beds where there are several: the unit of the interval."),
        "transfers_needed": (pl.Int64, "The least number of them for an interval."),
    },
)


@dataclass(frozen=True, slots=True)
class Spent:
    """The time per packet; without path, flows or host it is over all of them."""

    direction: str
    what: str
    """logged, decimated, disabled."""
    ns: Interval
    gross_ns: float
    empty_ns: float
    runs: int
    slices: int
    transfers: int
    """The number of beds, where there are several."""
    transfers_needed: int
    """The minimum number for an interval."""
    path: str | None = None
    flows: int | None = None
    host: str | None = None
    sessions: int | None = None
    """The number of beds; None where the run has one."""


def spent(seen: Seen) -> list[Spent]:
    """Return the times over all traffic first, then by traffic, then by traffic and host."""
    rows = with_what(seen)
    if rows.is_empty():
        return []
    found = list(_by(differences(rows, []), []))
    found += _by(differences(rows, []), ["path", "flows"])
    return found + list(_by(differences(rows, ["host"]), ["path", "flows", "host"]))


def with_what(seen: Seen) -> pl.DataFrame:
    """Return the programs that packets run, with `what` was in force in their slices."""
    if seen.programs.is_empty():
        return seen.programs
    on = pl.col("mode") == "on"
    decimated = pl.when(on & (pl.col("packets_per_log") >= DECIMATED_FROM)).then(pl.lit("decimated"))
    return seen.programs.drop_nulls("direction").with_columns(
        what=decimated.when(on).then(pl.lit("logged")).otherwise("mode")
    )


def differences(rows: pl.DataFrame, more: list[str]) -> pl.DataFrame:
    """Return for each turn the time per packet minus that of the null program of the same turn."""
    by = [*TURN, *more]
    mean = rows.group_by(*by, "what", maintain_order=True).agg(pl.col("runs").sum(), pl.col("cpu_time_ns").sum())
    mean = mean.filter(pl.col("runs") >= LEAST_RUNS).with_columns(each=pl.col("cpu_time_ns") / pl.col("runs"))
    empty = mean.filter(pl.col("what") == "empty").select(*by, empty="each")
    return mean.filter(pl.col("what") != "empty").join(empty, on=by).with_columns(net=pl.col("each") - pl.col("empty"))


def _by(rows: pl.DataFrame, factors: list[str]) -> Iterator[Spent]:
    ranked = rows.sort(*factors, pl.col("what").cast(pl.Enum(WHAT)), "direction")
    for several in ranked.partition_by(*factors, "what", "direction", maintain_order=True):
        first = several.row(0, named=True)
        each = several.group_by("transfer", maintain_order=True).agg(pl.col("net").mean(), pl.col("session").first())
        transfers, session = each["net"].to_numpy(), each["session"].to_numpy().astype(np.int64)
        beds = beds_in(session)
        yield Spent(
            direction=first["direction"],
            what=first["what"],
            ns=hodges_lehmann(transfers, LEVEL) if beds is None else student_t(by_session(transfers, session), LEVEL),
            gross_ns=float(several["cpu_time_ns"].sum()) / float(several["runs"].sum()),
            empty_ns=float(several["empty"].mean()),  # type: ignore[arg-type]
            runs=int(several["runs"].sum()),
            slices=several.height,
            transfers=len(transfers) if beds is None else beds,
            transfers_needed=least_pairs(LEVEL) if beds is None else LEAST_SESSIONS,
            sessions=beds,
            **{name: first[name] for name in factors},
        )
