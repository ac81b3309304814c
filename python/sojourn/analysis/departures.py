"""Pacing of senders: intervals and pacing errors of each, judged by a capture at the B side.

A trial's schedule is its configured interval; only its start is fitted (by the median), so a sender that is slow on
average shows errors. Frames are matched by their ICMP sequence number: a lost frame leaves a gap, not a shift. Nothing
here uses the sender's own clock or records.

A schedule is of host A's clock. Where host B has another, its times are read on A's by the clock trials before and
behind each trial: their rate over it is what matters, for a constant offset is in the fitted start. Rows have the
errors, and intervals hold the 95 % error; of a share, it moves the limit within which departures count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from sojourn.analysis.factors import IPV4_OVERHEAD, Factors
from sojourn.analysis.finding import Place
from sojourn.analysis.host_clock import Errors, OneClock, along, clock_findings, far_clock, has_two_clocks
from sojourn.analysis.paths import WITHIN_NS, error_rows
from sojourn.analysis.rows import Row
from sojourn.analysis.run import DIRECT
from sojourn.analysis.sessions import beds_in
from sojourn.statistics.interval import Interval
from sojourn.statistics.proportion import share_by_rounds
from sojourn.statistics.quantile import mean_by_rounds, quantile_by_rounds, sd_by_rounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from sojourn.analysis.finding import Finding
    from sojourn.analysis.host_clock import Along
    from sojourn.analysis.run import Run

ICMP_HEADER = 8
ETHERNET_WITHOUT_ICMP = IPV4_OVERHEAD - ICMP_HEADER
SEQUENCES = 1 << 16
INTERVAL_WITHIN_NS = {"interval_within_1us": 1_000, "interval_within_10us": 10_000}
LIMITS_NS = {**WITHIN_NS, **INTERVAL_WITHIN_NS}
"""The quantities that are shares within a limit."""
SOURCE = "kernel, capture at the far end"


class Captured(NamedTuple):
    """One captured trial: arrivals and sequence numbers, its session and its block."""

    arrivals: NDArray[np.int64]
    sequences: NDArray[np.int64]
    session: int
    block: int


@dataclass(frozen=True, slots=True)
class Trials:
    """All trials of one tool at one size and interval: arrivals and sequence numbers of each."""

    factors: Factors
    arrivals: list[NDArray[np.int64]]
    sequences: list[NDArray[np.int64]]
    session: NDArray[np.int64]
    """The session of each trial; all equal where the run has one bed."""
    clocks: tuple[Along, ...] = ()
    """How each trial's times of B were read on A's clock; empty where both share one."""

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

    @property
    def rate95(self) -> float:
        """The largest 95 % error of a duration by two clocks, per ns of it."""
        return max((one.rate95 for one in self.clocks), default=0.0)

    @property
    def error95_ns(self) -> float:
        """The largest 95 % error of a departure against its schedule by two clocks."""
        return max((one.error95_ns for one in self.clocks), default=0.0)

    @property
    def bound_ns(self) -> float:
        """The maximum error of the same."""
        return max((one.bound_ns for one in self.clocks), default=0.0)

    def most_ns(self, duration_ns: float) -> float:
        """Return the maximum error of a duration by two clocks."""
        return min(self.bound_ns, max((one.rate_most for one in self.clocks), default=0.0) * duration_ns)

    def clusters(self, of_trial: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the cluster of each value, from 0 without gaps: the trial, or the session where there are several."""
        which = of_trial if beds_in(self.session) is None else self.session[of_trial]
        return np.unique(which, return_inverse=True)[1].astype(np.int64)


def schedule_errors(arrivals: NDArray[np.int64], sequences: NDArray[np.int64], interval_ns: int) -> NDArray[np.float64]:
    """Return arrivals minus the schedule, whose start is fitted by the median."""
    behind = (arrivals - arrivals[0]) - (sequences - sequences[0]) * interval_ns
    return np.asarray(behind - np.median(behind), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Judged:
    """A run whose captured times are on A's clock, and how they were read there."""

    run: Run
    clocks: Mapping[int, Along]
    """By block; empty where both hosts share one clock."""
    joined: OneClock

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong with the clocks."""
        return clock_findings(self.joined, {Place(DIRECT): self.clocks}, None, delays=False)


def on_clock_of_a(run: Run) -> Judged:
    """Return the run with the captured times on A's clock, and without the trials where that is not known."""
    if not has_two_clocks(run):
        return Judged(run, {}, OneClock(run))
    clock, found, unknown = far_clock(run), [run.captures.clear()], []
    clocks: dict[int, Along] = {}
    for (block, part), frames in run.captures.partition_by("block", "part", as_dict=True, maintain_order=True).items():
        times, lines = frames["arrival_ns"].to_numpy(), clock.parts.get(int(str(part)))
        own = None if lines is None else along(lines, int(times.min()), int(times.max()))
        if own is None:
            unknown.append(Place(DIRECT))
            continue
        clocks[int(str(block))] = own
        found.append(frames.with_columns(pl.Series("arrival_ns", own.read(times), dtype=pl.Int64)))
    run = replace(run, captures=pl.concat(found))
    errors = {block: Errors(own.bound_ns, own.error95_ns, own.one_sided) for block, own in clocks.items()}
    return Judged(run, clocks, OneClock(run, is_joined=True, clock=clock, errors=errors, unknown=tuple(unknown)))


def trials_of(run: Run, clocks: Mapping[int, Along] | None = None) -> list[Trials]:
    """Return the trials in both the log and the capture, grouped by tool, size and interval."""
    clocks = clocks or {}
    groups = {key: several for key, several in _seen(run).items() if several}
    return [
        Trials(
            _factors(*key),
            [one.arrivals for one in several],
            [one.sequences for one in several],
            np.array([one.session for one in several], dtype=np.int64),
            tuple(clocks[one.block] for one in several if one.block in clocks),
        )
        for key, several in groups.items()
    ]


def missing_trials(run: Run, rounds: int) -> int:
    """Return how many of the planned trials have no captured frames."""
    return sum(max(0, rounds - len(several)) for several in _seen(run).values())


def _seen(run: Run) -> dict[tuple[str, int, int], list[Captured]]:
    """Return each captured trial, by tool, size and interval; groups may be empty."""
    frames = run.captures.partition_by("block", as_dict=True)
    groups: dict[tuple[str, int, int], list[Captured]] = {}
    for trial in {event["block"]: event for event in run.log if event.get("event") == "trial"}.values():
        several = groups.setdefault((str(trial["tool"]), int(trial["icmp_bytes"]), int(trial["interval_ns"])), [])
        seen = frames.get((trial["block"],))
        if seen is not None and seen.height > 1:
            session = int(seen["part"][0]) if run.sessions > 1 else 0
            several.append(Captured(*_in_order(seen, trial), session, int(trial["block"])))
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
        interval_ns = one.interval_ns or float(gaps.mean())
        of_interval = (one.rate95 * interval_ns, one.most_ns(interval_ns))
        _state(rows[-len(figures) :], one, of_interval)
        if one.interval_ns:
            errors, of_errors = one.errors()
            of_pacing = error_rows(like, np.abs(errors), one.clusters(of_errors))
            _state(of_pacing, one, (one.error95_ns, one.bound_ns), np.abs(errors), one.clusters(of_errors))
            of_shares = _interval_shares(one, np.abs(gaps - one.interval_ns), of_trial)
            _state(of_shares, one, of_interval, np.abs(gaps - one.interval_ns), of_trial)
            rows += of_pacing + of_shares
    for row in rows:
        row.clock, row.source = "TAI", SOURCE
    return rows


def _state(
    rows: list[Row],
    trials: Trials,
    of_clocks: tuple[float, float],
    errors: NDArray[np.float64] | None = None,
    clusters: NDArray[np.int64] | None = None,
) -> None:
    """Set the errors of two clocks on rows, and widen their intervals by them; does nothing where both share one.

    `of_clocks`: the 95 % and the maximum error of what the rows are of; `errors`: what shares among them are of.
    """
    if not trials.clocks:
        return
    error95_ns, most_ns = of_clocks
    for row in rows:
        if row.unit == "ns":
            row.between_clocks(max(most_ns, error95_ns), error95_ns)
        elif row.unit == "1/s":
            row.scatter, row.value = row.value, row.value.widened(row.value.estimate * trials.rate95)
        elif row.quantity in LIMITS_NS and errors is not None and clusters is not None:
            limit = LIMITS_NS[row.quantity]
            low, high = (share_by_rounds(errors <= limit + by, clusters) for by in (-error95_ns, error95_ns))
            row.scatter, row.value = row.value, replace(row.value, low=low.low, high=high.high)


def _interval_shares(trials: Trials, errors: NDArray[np.float64], of_trial: NDArray[np.int64]) -> list[Row]:
    """Return the shares of single intervals near the configured one, to which a constant lag makes no difference."""
    rows = []
    for quantity, bound in INTERVAL_WITHIN_NS.items():
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
