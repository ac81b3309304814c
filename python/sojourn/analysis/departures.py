"""Pacing of senders: intervals and pacing errors of each, judged by a capture at the B side.

A trial's schedule is its configured interval; only its start is fitted (by the median), so a sender that is slow on
average shows errors. Frames are matched by their ICMP sequence number: a lost frame leaves a gap, not a shift. Nothing
here uses the sender's own clock or records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.factors import IPV4_OVERHEAD, Factors
from sojourn.analysis.paths import error_rows
from sojourn.analysis.rows import Row
from sojourn.analysis.run import DIRECT
from sojourn.analysis.sessions import beds_in
from sojourn.statistics.interval import Interval
from sojourn.statistics.proportion import share_by_rounds
from sojourn.statistics.quantile import mean_by_rounds, quantile_by_rounds, sd_by_rounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.analysis.run import Run

    Captured = tuple[NDArray[np.int64], NDArray[np.int64], int]

ICMP_HEADER = 8
ETHERNET_WITHOUT_ICMP = IPV4_OVERHEAD - ICMP_HEADER
SEQUENCES = 1 << 16
SOURCE = "kernel, capture at the far end"


@dataclass(frozen=True, slots=True)
class Trials:
    """All trials of one tool at one size and interval: arrivals and sequence numbers of each."""

    factors: Factors
    arrivals: list[NDArray[np.int64]]
    sequences: list[NDArray[np.int64]]
    session: NDArray[np.int64]
    """The session of each trial; all equal where the run has one bed."""

    @property
    def interval_ns(self) -> int:
        """The configured interval; 0 for a flood."""
        return self.factors.interval_ns or 0

    def gaps(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the intervals between arrivals, and the trial of each."""
        return _joined([np.diff(one).astype(np.float64) for one in self.arrivals])

    def errors(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the pacing errors, actual minus scheduled, and the trial of each."""
        return _joined(
            [schedule_errors(at, seq, self.interval_ns) for at, seq in zip(self.arrivals, self.sequences, strict=True)]
        )

    def rates(self) -> NDArray[np.float64]:
        """Return the frames per second of each trial."""
        return np.array([(len(one) - 1) / (float(one[-1] - one[0]) / 1e9) for one in self.arrivals if len(one) > 1])

    def with_rates(self) -> NDArray[np.int64]:
        """Return the trials that have a rate."""
        return np.flatnonzero([len(one) > 1 for one in self.arrivals]).astype(np.int64)

    def clusters(self, of_trial: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the cluster of each value, from 0 without gaps: the trial, or the session where there are several."""
        which = of_trial if beds_in(self.session) is None else self.session[of_trial]
        return np.unique(which, return_inverse=True)[1].astype(np.int64)


def schedule_errors(arrivals: NDArray[np.int64], sequences: NDArray[np.int64], interval_ns: int) -> NDArray[np.float64]:
    """Return arrivals minus the schedule, whose start is fitted by the median."""
    behind = (arrivals - arrivals[0]) - (sequences - sequences[0]) * interval_ns
    return np.asarray(behind - np.median(behind), dtype=np.float64)


def trials_of(run: Run) -> list[Trials]:
    """Return the trials in both the log and the capture, grouped by tool, size and interval."""
    groups = {key: several for key, several in _seen(run).items() if several}
    return [
        Trials(
            _factors(*key),
            [at for at, _, _ in several],
            [seq for _, seq, _ in several],
            np.array([session for _, _, session in several], dtype=np.int64),
        )
        for key, several in groups.items()
    ]


def missing_trials(run: Run, rounds: int) -> int:
    """Return how many of the planned trials have no captured frames."""
    return sum(max(0, rounds - len(several)) for several in _seen(run).values())


def _seen(run: Run) -> dict[tuple[str, int, int], list[Captured]]:
    """Return arrivals, sequence numbers and session of each captured trial, by tool, size and interval; groups may be
    empty."""
    frames = run.captures.partition_by("block", as_dict=True)
    groups: dict[tuple[str, int, int], list[Captured]] = {}
    for trial in {event["block"]: event for event in run.log if event.get("event") == "trial"}.values():
        several = groups.setdefault((str(trial["tool"]), int(trial["icmp_bytes"]), int(trial["interval_ns"])), [])
        seen = frames.get((trial["block"],))
        if seen is not None and seen.height > 1:
            several.append((*_in_order(seen, trial), int(seen["part"][0]) if run.sessions > 1 else 0))
    return groups


def departure_rows(trials: list[Trials]) -> list[Row]:
    """Return intervals, rate and pacing errors of every group of trials."""
    rows = []
    for one in trials:
        gaps, of_gaps = one.gaps()
        of_trial, of_rates = one.clusters(of_gaps), one.clusters(one.with_rates())
        like = Row(DIRECT, "", "", Interval(0.0, None, None, 0.95, len(one.arrivals)), "", factors=one.factors)
        like.sessions = beds_in(one.session)
        figures = [
            ("departure_interval", "mean", mean_by_rounds(gaps, of_trial), "ns"),
            ("departure_interval", "p50", quantile_by_rounds(gaps, of_trial, 0.5), "ns"),
            ("departure_interval", "sd", sd_by_rounds(gaps, of_trial), "ns"),
            ("departure_rate", "mean", mean_by_rounds(one.rates(), of_rates), "1/s"),
        ]
        rows += [
            Row(
                DIRECT,
                quantity,
                statistic,
                value,
                unit,
                factors=one.factors,
                probes=len(gaps) + len(one.arrivals),
                sessions=like.sessions,
            )
            for quantity, statistic, value, unit in figures
        ]
        if one.interval_ns:
            errors, of_errors = one.errors()
            rows += error_rows(like, np.abs(errors), one.clusters(of_errors))
            rows += _interval_shares(one, np.abs(gaps - one.interval_ns), of_trial)
    for row in rows:
        row.clock, row.source = "TAI", SOURCE
    return rows


def _interval_shares(trials: Trials, errors: NDArray[np.float64], of_trial: NDArray[np.int64]) -> list[Row]:
    """Return the shares of single intervals near the configured one, to which a constant lag makes no difference."""
    rows = []
    for quantity, bound in (("interval_within_1us", 1_000), ("interval_within_10us", 10_000)):
        share = share_by_rounds(errors <= bound, of_trial)
        rows.append(Row(DIRECT, quantity, "ratio", share, "1", factors=trials.factors, probes=len(errors)))
        rows[-1].sessions = beds_in(trials.session)
    return rows


def _in_order(seen: pl.DataFrame, trial: dict[str, Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the trial's own frames by arrival, and their sequence numbers beyond 16 bits."""
    identifier = trial.get("icmp_id")
    if identifier is None:
        identifier = seen["icmp_id"].mode().max()
    own = seen.filter(pl.col("icmp_id") == identifier).sort("arrival_ns")
    own = seen.sort("arrival_ns") if own.height < 2 else own
    sequences = own["icmp_seq"].to_numpy().astype(np.int64)
    steps = np.diff(sequences, prepend=sequences[:1])
    steps = (steps + SEQUENCES // 2) % SEQUENCES - SEQUENCES // 2
    return own["arrival_ns"].to_numpy(), sequences[0] + np.cumsum(steps)


def _factors(tool: str, icmp_bytes: int, interval_ns: int) -> Factors:
    payload, frame = icmp_bytes - ICMP_HEADER, max(64, icmp_bytes + ETHERNET_WITHOUT_ICMP)
    schedule = "regular" if interval_ns else "closed-loop"
    return Factors(tool, schedule, icmp_bytes, payload, payload, frame, frame, interval_ns)


def _joined(several: list[NDArray[np.float64]]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    of_trial = np.repeat(np.arange(len(several)), [len(one) for one in several])
    return np.concatenate(several), of_trial.astype(np.int64)
