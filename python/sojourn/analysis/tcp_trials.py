"""The TCP trials in the run's log, the records of each by flow, and the trials whose log has a gap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.analysis.finding import Finding
from sojourn.analysis.wording import counted
from sojourn.records import read_table
from sojourn.records.lost import in_parts, lost_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sojourn.analysis.run import Run

LOG = "log"
"""The purpose of trials of flows under load that have the log of TCP's state."""

WRAPPING = ("total_retrans", "data_segs_out", "delivered", "delivered_ce", "dsack_dups")
"""The counters of TCP_INFO readings that analyses subtract and that have 32 bits in the kernel."""


@dataclass(frozen=True, slots=True)
class Done:
    """One trial."""

    block: int
    kind: str
    cell: int
    congestion: str
    pipe: str
    path: str
    round: int
    setting: str
    connections: Sequence[dict[str, Any]]
    logged: dict[str, Any] | None
    capture_dropped: int
    session: int = 0
    """The part that measured it; 0 where the run has one bed."""

    @property
    def label(self) -> str:
        """The cell in words: "reno, delay 5ms loss 0.2%"."""
        return f"{self.congestion}, {self.pipe or self.path}"


def trials_of(run: Run, kind: str | None = None) -> list[Done]:
    """Return the trials of a kind in the order of their blocks; of a block that was measured again, the last.

    Trials whose log has a gap are left out: their missing records are neither a fault nor an effect of the log.
    """
    told = _told(run)
    session = _sessions(run)
    return [
        Done(
            **{
                name: entry[name]
                for name in ("block", "kind", "cell", "congestion", "pipe", "path", "round", "setting")
            },
            connections=entry["connections"],
            logged=entry.get("logged"),
            capture_dropped=int(entry.get("capture_dropped") or 0),
            session=session.get(entry["block"], 0),
        )
        for _, entry in sorted(told.items())
        if (kind is None or entry["kind"] == kind) and _gap(entry) is None
    ]


def interrupted(run: Run) -> Iterator[Finding]:
    """Return a finding for trials whose log programs were detached or replaced, or whose cgroup was removed."""
    several = [gap for _, entry in sorted(_told(run).items()) if (gap := _gap(entry)) is not None]
    several += [entry for entry in run.log if entry.get("event") == "log-interrupted"]
    if several:
        sentence = f"the log of TCP's state has a gap in {counted(len(several), 'trial')}: {several[0]['why']}"
        yield Finding("log_interrupted", sentence, float(len(several)))


def unlogged(run: Run) -> Iterator[Finding]:
    """Return a finding where trials with the log are left out, or are without it, and why."""
    reasons = dict.fromkeys(str(entry["why"]) for entry in run.log if entry.get("event") == "unlogged")
    if reasons:
        yield Finding("log_left_out", f"trials are without the log of TCP's state: {'; '.join(reasons)}")


def told_by(run: Run, purpose: str) -> dict[int, dict[str, Any]]:
    """Return the log's entries of the load trials of a purpose, by block; earlier versions measured all of them."""
    told = {int(entry["block"]): entry for entry in run.log if entry.get("event") == "load-trial"}
    return {block: entry for block, entry in told.items() if entry.get("purpose", "measure") == purpose}


def figured(run: Run) -> Run:
    """Return the run without the logged trials: no figure includes them, nor their disturbances."""
    logged = [block for entry in told_by(run, LOG).values()
              for block in (entry["block"], *(one["block"] for one in entry.get("probes", ())))]  # fmt: skip
    if not logged:
        return run
    left = ~pl.col("block").is_in(logged)
    return replace(run, blocks=run.blocks.filter(left), probes=run.probes.filter(left))


def _told(run: Run) -> dict[int, dict[str, Any]]:
    lost = lost_blocks(run.log)
    return {entry["block"]: entry for part, entry in in_parts(run.log, "tcp-trial")
            if (entry["block"], part) not in lost}  # fmt: skip


def _gap(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Return why and when the log of a trial was interrupted; logs of earlier versions do not state it."""
    return (entry.get("logged") or {}).get("interruption")


def _sessions(run: Run) -> dict[int, int]:
    """Return the part during which each trial was logged, of a run of several sessions."""
    told = in_parts(run.log, "tcp-trial") if run.sessions > 1 else ()
    return {entry["block"]: part for part, entry in told}


def by_cell(several: Sequence[Done]) -> list[list[Done]]:
    """Return the trials of each cell, in the order of the cells."""
    found: dict[int, list[Done]] = {}
    for one in several:
        found.setdefault(one.cell, []).append(one)
    return [found[cell] for cell in sorted(found)]


def of_block(records: Path, name: str, block: int, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Return the rows of one block, from its last writer."""
    frame = read_table(records, name, {block}, columns).frame
    if frame.is_empty():
        return frame
    if "who" in frame.columns and frame["who"].n_unique() > 1:  # a block that was measured again
        newest = frame["who"].unique().sort(descending=False).to_list()
        ours = [one for one in newest if one.startswith("a")]
        frame = frame.filter(pl.col("who") == max(ours, key=lambda one: (len(one), one))) if ours else frame
    return frame.filter(pl.col("part") == pl.col("part").max())


def samples_of(records: Path, block: int, columns: Sequence[str]) -> pl.DataFrame:
    """Return the samples of a block in the order of time, with the socket cookie of their flow."""
    wanted = dict.fromkeys(["block", "flow", "cpu", "number", "time_ns", "point", *columns])
    samples = of_block(records, "tcp_samples", block, list(wanted))
    flows = of_block(records, "tcp_flows", block, ["block", "flow", "socket_cookie", "local_port", "remote_port"])
    joined = samples.join(flows.select("flow", "socket_cookie", "local_port", "remote_port"), on="flow", how="left")
    return joined.sort("time_ns", "number", maintain_order=True)


def readings_of(records: Path, block: int, role: str = "send") -> pl.DataFrame:
    """Return the application's readings in a block, in order."""
    frame = read_table(records, "tcp_readings", {block}).frame
    frame = frame.filter(pl.col("role") == role)
    frame = frame.filter(pl.col("part") == pl.col("part").max()) if frame.height else frame
    return frame.sort("connection", "number")


def unwrapped(readings: pl.DataFrame) -> pl.DataFrame:
    """Return readings of which 32-bit counters of segments are extended where they wrap.

    Segments of 1,448 bytes wrap them after 6.2 TB of a connection.
    """
    key, half = ("block", "part", "who", "role", "connection"), 2**31
    return readings.with_columns(
        (
            pl.col(name).first() + ((pl.col(name).diff().fill_null(0) + half) % (2 * half) - half).cum_sum()
        ).over(key, order_by="read_after_ns")
        for name in WRAPPING
        if name in readings.columns
    )  # fmt: skip


def arrived(readings: pl.DataFrame) -> pl.Series:
    """Return the bytes of user data that acknowledgements report as received: all before a point, and SACKed ones after
    it.

    The cumulative acknowledgement alone jumps when a hole is filled, by data received long before: over a short time a
    flow would seem to exceed its link's rate.
    """
    behind = pl.col("sacked_out").fill_null(0) * pl.col("mss_bytes").fill_null(0)
    return readings.select(pl.col("acked_bytes") + behind).to_series()
