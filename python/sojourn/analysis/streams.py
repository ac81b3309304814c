"""What all methods of streams share: trials, their counts, and the quantities and samples made of them.

The unit is the trial: one stream sent once over one path. Every interval is over trials (Hodges-Lehmann with the
exact signed-rank interval from six trials on, Student's from three, none below), never over packets. Quantiles are of
all packets of a cell, lost ones with infinite delay; their intervals are Woodruff's with the trial as the cluster
(`statistics.quantile`), from four trials on. Differences pair trials of one round, each the mean of its visits.

Of a run of several sessions (`sessions`: so many) intervals are over sessions: means, rates and differences are
arithmetic means, judged by Student's t or REML (`analysis.sessions`); shares and quantiles have the session as their
cluster. Beside the mean of one_way_delay, rtt, response_latency, throughput_pps, and the sd of delay_spread, stand
within_bed, next_run and between_beds (a standard deviation); beside device_latency within_bed and next_run, and
between_beds (sd) as a quantity of its own.

Quantities (rows of results.json; statistic; unit). `port` is the receiver, `node` the responder, `against` the cell of
the same path that was subtracted ("load=0.0", "load_via=beside", "to=unicast", "receivers=0", "senders=1").

- all of them (throughput and loss without delays and variations: a flood's queue is always full):
    - one_way_delay (from the actual departure), one_way_delay_intended; min mean p50 p90 p99 p99.9 max sd [ns]
    - pdv (RFC 5481: above the trial's least); p50 p99 p99.9 [ns]
    - ipdv (RFC 3393: of consecutive numbers); p1 p50 p99 [ns]
    - inter_arrival; mean p50 p99 sd [ns]
    - loss_ratio, duplicated, reordered, late, corrupted, local_drops (of the frames sent; Korn and Graubard's
      intervals); ratio [1]
    - offered_pps, received_pps, achieved_ratio (offered over configured); mean [1/s, 1]
    - pacing_error, pacing_within_1us, pacing_within_10us; as for probes [ns, 1]
    - device_latency (reference direct, wire: from pairs of trials; one way, not halved); mean pooled [ns]
    - one_way_delay_shift (reference direct, wire: of medians); p50 [ns]
    - resolution (of the bed, from the A/A control); pooled [ns]
    - instance_difference (the second link of a bed less its first, over all cells: of mean delays, of throughput by the
      received rate as a share, of loss by the loss ratio; device direct: the A/A control); pooled [ns, 1]
    - between_instances (what single links or devices of a kind differ by, within a bed); sd [ns, 1]
- one-way:
    - queue_growth (seconds of delay per second of trial; 0: stable); trend [s/s]
    - queue_stable (share of trials); ratio [1]
    - min_frame_interval (the shortest tried one whose queue was stable); sustained [ns]
    - min_frame_interval (the same where the sender did not keep the next shorter one); at_most [ns]
    - min_frame_interval (the next shorter one that was tried: the truth lies between, a bracket without a level);
      next_tried [ns]
    - min_frame_interval (mean arrival interval of what was asked for too much); saturated [ns]
    - min_frame_interval (null, and `source` says why, where no line rate is known); calculated [ns]
- throughput:
    - throughput_pps, throughput_bps (frame with FCS), l1_bps (20 B more), user_bps (user data only); mean at_least
      [1/s bit/s]
    - inter_frame_time; mean [ns]
    - inter_frame_intercept, inter_frame_slope (of a + b x frame size); fit [ns, ns/byte]
    - min_frame_interval (of a flood over rated links); saturated calculated [ns]
    - tester_zero_loss_pps (device direct; the tester zero-loss rate, from its qualification); mean [1/s]
- loss:
    - as throughput, without the fitted line
    - loss_run, gap_run (packets lost, packets received in a row); mean max [1]
    - loss_shift, throughput_pps_shift against "to=unicast" (an unknown address minus a known one); mean [1, 1/s]
- fan-in:
    - delay_spread (of the delays within a trial, first sender); sd iqr p99-p1 [ns]
    - throughput_pps, throughput_bps (all senders together); mean at_least [1/s bit/s]
    - fairness (Jain's index of the senders' received rates; 1: equal); jain [1]
    - delay_by_phase (of the first of two regular senders, by the time since the other's last departure, as a share of
      its interval: at_0.025 is the bin around 2.5 %; only where the phase took every value); at_... [ns]
    - phase_effect (the first bin, just behind the other's frames, less those from half an interval on); behind [ns]
    - phase_height (over a rated link that both share: of the saw tooth, expected is a frame's time on it); fit [ns]
- multicast:
    - response_latency (per node, from the request's departure to the response's arrival, on one clock); as delays [ns]
    - rtt (of probes to one host); as delays [ns]
    - peak (of a node: the median of its responses in a trial); p50 [ns]
    - peak_spacing (between successive peaks of the nodes); mean; calculated: at the line rate [ns]
    - one_way_delay_shift, response_latency_shift against "to=unicast", "receivers=0"; mean p50 [ns]
- background:
    - rtt (request-response), one_way_delay at each load and via; as delays [ns]
    - one_way_delay_shift, rtt_shift against "load=0.0" (the device's and the machine's part), against
      "load_via=beside" (the device's alone); mean p50 [ns]
    - modes (of the distribution of one_way_delay, or of rtt for a closed loop); count, without interval [1]

"at_least" in place of "mean": the value is within 10 % of the tester zero-loss rate, so the tester was the limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from sojourn.analysis.clocks import shared_blocks
from sojourn.analysis.sessions import beds_in, figure_of
from sojourn.statistics.interval import Interval, student_t
from sojourn.statistics.proportion import korn_graubard
from sojourn.statistics.signed_rank import hodges_lehmann, least_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from sojourn.analysis.run import Run

LOAD_FLOWS = 101
"""Flows from this number on are background load: they share the block of the trial that they load."""

L1_OVERHEAD = 20
"""Preamble, start of frame and the least gap: what a frame takes on the wire besides itself."""

AT = ("block", "flow", "port")
SENT = {
    "asked": "asked",
    "sent": "sent",
    "refused": "refused",
    "unsent": "unsent",
    "rate_pps": "asked_pps",
    "intended_pps": "intended_pps",
    "achieved_pps": "offered_pps",
    "first_ns": "sent_first_ns",
    "last_ns": "sent_last_ns",
    "started_ns": "started_ns",
    "schedule": "schedule",
}
"""Columns of a sender's row of `streams`, and their names in a row with the receiver's columns."""

COUNTS = ("first", "duplicated", "reordered", "late", "corrupted", "unexpected", "local_drops", "lost", "excess")


class At(NamedTuple):
    """A round of a session, in the order of time."""

    session: int
    round: int


Differences = dict[At, float]


@dataclass(frozen=True, slots=True)
class Series:
    """One number per trial of one path in one cell, in the order of rounds and visits."""

    device: str
    cell: int
    rounds: NDArray[np.int64]
    sessions: NDArray[np.int64]
    values: NDArray[np.float64]

    def by_round(self) -> Differences:
        """Return the mean of each round's visits; a round that lacks a visit, or was split over two beds, has none."""
        finite = np.isfinite(self.values)
        rounds, sessions = self.rounds[finite], self.sessions[finite]
        return {
            at: float(self.values[finite][(rounds == at.round) & (sessions == at.session)].mean())
            for at in whole_rounds(sessions, rounds, max(np.bincount(self.rounds).tolist(), default=0))
        }


def over_trials(values: NDArray[np.float64], level: float = 0.95, session: NDArray[np.int64] | None = None) -> Interval:
    """Return the location of a number per trial: Hodges-Lehmann, or Student's where trials are few.

    Of trials of several sessions it is the mean, with an interval over sessions (`sessions.figure_of`).
    """
    known = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(known)
    if session is not None and beds_in(session[finite]):
        return figure_of(known[finite], session[finite], level).mean
    known = known[finite]
    return hodges_lehmann(known, level) if len(known) >= least_pairs(level) else student_t(known, level)


def over_column(trials: pl.DataFrame, column: str | pl.Expr, level: float = 0.95) -> Interval:
    """Return `over_trials` of a column, or of an expression over columns; nulls are left out."""
    values, session = of_trials(trials, column)
    return over_trials(values, level, session)


def of_trials(trials: pl.DataFrame, column: str | pl.Expr) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return a column of trials without its nulls, and the session of each value."""
    value = pl.col(column) if isinstance(column, str) else column
    known = trials.select(value.cast(pl.Float64).alias("value"), "session").drop_nulls()
    return known["value"].to_numpy(), known["session"].to_numpy().astype(np.int64)


def share_of(trials: pl.DataFrame, counted: NDArray[np.float64], of: NDArray[np.float64]) -> Interval:
    """Return the share of all that is counted, by Korn and Graubard: clusters are trials, or sessions if several."""
    session = trials["session"].to_numpy()
    if beds_in(session):
        which = np.unique(session, return_inverse=True)[1]
        counted, of = (np.bincount(which, weights=one).astype(np.float64) for one in (counted, of))
    return korn_graubard(counted, of)


def sessions_of(trials: pl.DataFrame) -> int | None:
    """Return the number of sessions of trials; None where the run has one bed."""
    return beds_in(trials["session"].to_numpy().astype(np.int64))


def kept_blocks(run: Run) -> set[int]:
    """Return the blocks that count: not a trial that was repeated because its sender missed the load."""
    told = {block for block, event in run.trial_events.items() if event.get("kept", True)}
    return told if run.trial_events else set(run.streams["block"].to_list())


def flows_of(run: Run) -> pl.DataFrame:
    """Return one row per trial, flow and receiving port: configured, sent and received frames and rates.

    Only measured trials that count; `received_pps` is over the time from the first frame to the last.
    """
    measured = run.streams.filter(
        (pl.col("purpose") == "measure")
        & (pl.col("flow") < LOAD_FLOWS)
        & pl.col("block").is_in(sorted(kept_blocks(run)))
    )
    measured = measured.with_columns(run.session)
    return _known_late(run, _joined(measured, receivers(measured))).sort(*AT)


def _known_late(run: Run, flows: pl.DataFrame) -> pl.DataFrame:
    """Set lateness to null where the receiver, which counts it, had another clock, or sees only bytes of TCP."""
    shared = sorted(shared_blocks(run.clock_lines, run.streams))
    is_known = pl.col("block").is_in(shared) & (pl.col("via") != "tcp")
    return flows.with_columns(late=pl.when(is_known).then(pl.col("late")))


def receivers(streams: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of receivers of data; receivers of answers are on the sender's host, and named after it."""
    return streams.filter((pl.col("role") == "receive") & ~pl.col("who").str.starts_with("a"))


def _joined(streams: pl.DataFrame, received: pl.DataFrame) -> pl.DataFrame:
    sent = streams.filter(pl.col("role") == "send").select(
        "block", "flow", *(pl.col(k).alias(v) for k, v in SENT.items())
    )
    at = ("device", "round", "visit", "cell", "session", "frame_bytes", "payload_bytes", "via")
    times = ("first_ns", "last_ns")
    span = (pl.col("last_ns") - pl.col("first_ns")).cast(pl.Float64)
    rate = pl.when((pl.col("first") > 1) & (span > 0)).then((pl.col("first") - 1) * 1e9 / span)
    return received.select(*AT, *at, *COUNTS, *times).join(sent, on=["block", "flow"]).with_columns(received_pps=rate)


def trials_of(flows: pl.DataFrame) -> pl.DataFrame:
    """Return one row per trial and receiving port, its flows together: counts are sums, rates are of all of them."""
    received = pl.col("first").sum() - 1
    span = (pl.col("last_ns").max() - pl.col("first_ns").min()).cast(pl.Float64)
    counts = [one for one in COUNTS if one != "late"]
    columns = ("asked", "sent", "refused", "unsent", *counts, "intended_pps", "offered_pps")
    late = pl.when(pl.col("late").is_not_null().all()).then(pl.col("late").sum()).alias("late")
    alike = ("device", "round", "visit", "cell", "session", "frame_bytes", "payload_bytes", "schedule", "started_ns")
    return (
        flows.group_by("block", "port", maintain_order=True)
        .agg(
            *(pl.col(one).first() for one in alike),
            *(pl.col(one).sum() for one in columns),
            late,
            pl.when((received > 0) & (span > 0)).then(received * 1e9 / span).alias("received_pps"),
            pl.len().alias("flows"),
        )
        .with_columns(
            loss_ratio=pl.col("lost") / pl.col("sent"), achieved_ratio=pl.col("offered_pps") / pl.col("intended_pps")
        )
    )


def series(trials: pl.DataFrame, column: str | pl.Expr) -> dict[tuple[str, int], Series]:
    """Return a number of every trial, by path and cell; nulls are left out."""
    value = pl.col(column) if isinstance(column, str) else column
    named = trials.select("device", "cell", "round", "visit", "session", value.cast(pl.Float64).alias("value"))
    rows = named.drop_nulls().sort("device", "cell", "round", "visit")
    groups = rows.partition_by("device", "cell", as_dict=True, maintain_order=True)
    return {
        (str(device), int(str(cell))): Series(
            str(device),
            int(str(cell)),
            rows["round"].to_numpy().astype(np.int64),
            rows["session"].to_numpy().astype(np.int64),
            rows["value"].to_numpy(),
        )
        for (device, cell), rows in groups.items()
    }


def differences(of: Series | None, less: Series | None) -> Differences:
    """Return one difference for each round that both have, each side the mean of its visits.

    A round that began on one bed and ended on another has none.
    """
    if of is None or less is None:
        return {}
    first, second = of.by_round(), less.by_round()
    return {at: first[at] - second[at] for at in sorted(first.keys() & second.keys())}


def across(rows: Sequence[Differences]) -> Differences:
    """Return the mean over several rows of differences, for each round that all of them have."""
    rounds = sorted(set.intersection(*(set(row) for row in rows))) if rows else []
    return {at: float(np.mean([row[at] for row in rows])) for at in rounds}


def values_of(pairs: Differences) -> NDArray[np.float64]:
    """Return the differences without their rounds."""
    return np.array(list(pairs.values()), dtype=np.float64)


def sessions_of_pairs(pairs: Differences) -> NDArray[np.int64]:
    """Return the session of each difference."""
    return np.array([at.session for at in pairs], dtype=np.int64)


def over_pairs(pairs: Differences, level: float = 0.95) -> Interval:
    """Return `over_trials` of differences."""
    return over_trials(values_of(pairs), level, sessions_of_pairs(pairs))


def whole_rounds(sessions: NDArray[np.int64], rounds: NDArray[np.int64], visits: int) -> list[At]:
    """Return the rounds of these trials of one path and cell that have all their visits on one bed."""
    found, counts = np.unique(np.stack([sessions, rounds]), axis=1, return_counts=True)
    return [At(int(session), int(at)) for (session, at), n in zip(found.T, counts, strict=True) if n == visits]


def elapsed_s(run: Run, column: str) -> pl.Expr:
    """Return the seconds since the first stream of the run; `column` is of the sender's clock, and so is the begin."""
    clock = pl.col("clock_id").fill_null(0)
    sent = run.streams.filter(pl.col("role") == "send", pl.col("purpose") == "measure")
    start = run.streams.filter(clock.is_in(sent.select(clock).to_series().unique().to_list()))["started_ns"].min()
    return (pl.col(column) - pl.lit(start, dtype=pl.Int64)).cast(pl.Float64) / 1e9


def in_order(run: Run, found: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return paths and cells in the order of the tables: by cell, then paths in the plan's order."""
    paths = {device: place for place, device in enumerate(run.devices)}
    return sorted(set(found), key=lambda at: (at[1], paths.get(at[0], len(paths))))


def worst_of(rows: pl.DataFrame, column: str) -> float | None:
    """Return the largest number of a column; None where there is none."""
    worst = rows[column].max() if column in rows.columns else None
    return float(worst) if isinstance(worst, int | float) else None
