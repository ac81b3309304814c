"""The values of each packet of a stream: its delay, delay variation and gap; from records or histograms.

A packet counts once: its first undamaged arrival. Delays are arrival, on the sender's clock (`clocks`), minus
departure: the best timestamp there is ("actual"), or the schedule's ("intended"). A lost packet has an infinite delay,
so quantiles include it; means, spreads and variations are of the received ones. A run with histograms only has the
delays from the departure in its frames, to the width of their bins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.clocks import on_sender_clock, shared_blocks
from sojourn.analysis.sessions import Figure, beds_in, figure_of
from sojourn.analysis.streams import AT, in_order, worst_of
from sojourn.statistics.modes import foot
from sojourn.statistics.quantile import allowed, mean_by_rounds, quantile_by_rounds, sd_by_rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sojourn.analysis.run import Run
    from sojourn.statistics.interval import Interval

ACTUAL, INTENDED, ROUND_TRIP, RESPONSE = "actual", "intended", "round-trip", "response"
BETWEEN_TAPS = "between-taps"
FLAGS = ("duplicate", "reordered", "late", "corrupted", "part")
UNUSED = ("who", "receive_call_ns", "receive_call_on_sender_ns")
"""Columns of arrivals that packets do not need: there are millions of rows."""

BINNED = {"delay": ACTUAL, "ipdv": "ipdv", "inter_arrival": "inter_arrival"}
"""Quantities of `histograms` that replace packets, and their names here."""


@dataclass(frozen=True, slots=True)
class Values:
    """A quantity of the packets of one path, cell, receiver and node: finite values, and the number of each.

    `trials` numbers the trial of each value; `lost` is the number of packets that each trial lost, which count as
    infinite values for quantiles. `blocks` are the trials' blocks.
    """

    device: str
    cell: int
    port: int
    node: int
    measure: str
    values: NDArray[np.float64]
    weights: NDArray[np.float64] | None
    trials: NDArray[np.int64]
    blocks: NDArray[np.int64]
    lost: NDArray[np.int64]
    clock_bound_ns: float | None = None
    clock_error95_ns: float | None = None
    sessions: NDArray[np.int64] | None = None
    """The session of each trial; None where the run has one bed."""

    @property
    def beds(self) -> int | None:
        """The number of sessions with packets, lost ones included; None for a single session."""
        if self.sessions is None:
            return None
        told = np.union1d(self.trials, np.flatnonzero(self.lost)).astype(np.int64)
        return beds_in(self.sessions[told])

    @property
    def count(self) -> int:
        """The number of packets, the lost ones included."""
        arrived = len(self.values) if self.weights is None else int(self.weights.sum())
        return arrived + int(self.lost.sum())

    def quantile(self, p: float) -> Interval:
        """Return quantile p of all packets; lost ones are above every other."""
        values, trials, weights = self._with_lost()
        return quantile_by_rounds(values, trials, p, weights=weights)

    def allows(self, p: float) -> bool:
        """Return whether there are enough packets for quantile p."""
        return allowed(p, self.count)

    def mean(self) -> Interval:
        """Return the average of the received packets."""
        figure = self.figure()
        return mean_by_rounds(self.values, self._dense(), weights=self.weights) if figure is None else figure.mean

    def figure(self) -> Figure | None:
        """Return the mean over trials of several sessions, with its parts; None where there is one session."""
        if self.sessions is None or self.beds is None:
            return None
        weights = np.ones(len(self.values)) if self.weights is None else self.weights
        counted = np.bincount(self.trials, weights=weights, minlength=len(self.blocks))
        sums = np.bincount(self.trials, weights=weights * self.values, minlength=len(self.blocks))
        return figure_of(sums[counted > 0] / counted[counted > 0], self.sessions[counted > 0])

    def within_sessions(self) -> NDArray[np.float64]:
        """Return the values, with sessions aligned where their fastest modes begin (`modes.foot`).

        Differences between sessions then make no modes.
        """
        if self.sessions is None or self.beds is None:
            return self.values
        session, laid = self.sessions[self.trials], self.values.copy()
        for one in np.unique(session):
            laid[session == one] -= foot(self.values[session == one])
        return np.asarray(laid + np.median(self.values) - np.median(laid), dtype=np.float64)

    def sd(self) -> Interval:
        """Return the standard deviation of the received packets."""
        return sd_by_rounds(self.values, self._dense(), weights=self.weights)

    def bins(self) -> Iterator[tuple[int, int, NDArray[np.float64], NDArray[np.float64]]]:
        """Return for each trial with values its index, its block, its values and their numbers."""
        weights = np.ones(len(self.values)) if self.weights is None else self.weights
        for place, block in enumerate(self.blocks):
            here = self.trials == place
            if here.any():
                yield place, int(block), self.values[here], weights[here]

    def _dense(self) -> NDArray[np.int64]:
        """Return the clusters that have values, numbered without gaps."""
        return self._clusters(self.trials)

    def _clusters(self, trials: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the cluster of each value, from 0 without gaps: the trial, or the session where there are several."""
        clusters = trials if self.sessions is None or self.beds is None else self.sessions[trials]
        return np.unique(clusters, return_inverse=True)[1].astype(np.int64)

    def _with_lost(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64] | None]:
        losers = np.flatnonzero(self.lost).astype(np.int64)
        values = np.concatenate([self.values, np.full(len(losers), np.inf)])
        trials = np.concatenate([self.trials, losers])
        weights = None
        if self.weights is not None or len(losers):
            known = np.ones(len(self.values)) if self.weights is None else self.weights
            weights = np.concatenate([known, self.lost[losers].astype(np.float64)])
        return values, self._clusters(trials), weights


def packets_of(run: Run, flows: pl.DataFrame) -> pl.DataFrame:
    """Return one row per packet received undamaged at a receiver of `flows`, with both delays and the clock's errors.

    Columns: device, cell, round, visit, session, block, flow, port, node, seq, departure_ns, intended_ns, arrival_ns
    (the receiver's clock), delay_ns, intended_delay_ns, clock_bound_ns, clock_error95_ns, clock_shared,
    departure_source, arrival_source.
    """
    whole = run.arrivals.lazy().filter(~pl.col("duplicate") & ~pl.col("corrupted") & (pl.col("node") == 0))
    here = whole.join(flows.lazy().select(AT), on=list(AT), how="semi").drop(FLAGS).collect()
    converted = on_sender_clock(here, run.clock_lines, run.streams).drop(UNUSED)
    return _placed(_with_departures(converted, run.sends), flows)


def answers_of(run: Run, flows: pl.DataFrame) -> pl.DataFrame:
    """Return one row per unicast answer to a packet, as `packets_of`: both timestamps are of the sender's own clock."""
    answers = run.arrivals.filter(~pl.col("duplicate") & ~pl.col("corrupted") & (pl.col("node") > 0))
    here = answers.join(flows.select("block", "flow").unique(), on=["block", "flow"], how="semi")
    converted = on_sender_clock(here, run.clock_lines, run.streams)
    return _placed(_with_departures(converted, run.sends), flows, by_port=False)


def _with_departures(arrivals: pl.DataFrame, sends: pl.DataFrame) -> pl.DataFrame:
    """Add each departure: from the sender's record, or else from the frame."""
    left = sends.select("block", "flow", "seq", "departure_ns", "departure_source").unique(["block", "flow", "seq"])
    arrival = pl.col("arrival_on_sender_ns")
    return (
        arrivals.join(left, on=["block", "flow", "seq"], how="left")
        .with_columns(pl.col("departure_ns").fill_null(pl.col("sent_ns")), pl.col("departure_source").fill_null("user"))
        .with_columns(
            delay_ns=(arrival - pl.col("departure_ns")).cast(pl.Float64),
            intended_delay_ns=(arrival - pl.col("intended_ns")).cast(pl.Float64),
        )
    )


def _placed(packets: pl.DataFrame, flows: pl.DataFrame, *, by_port: bool = True) -> pl.DataFrame:
    at = list(AT) if by_port else ["block", "flow"]
    places = flows.select(*at, "device", "cell", "round", "visit", "session").unique(at)
    placed = packets.drop("sent_ns").join(places, on=at, how="inner")
    return placed.sort("block", "flow", "port", "node", "seq")


def delay_values(packets: pl.DataFrame, flows: pl.DataFrame, measure: str = ACTUAL) -> Iterator[Values]:
    """Return the delays of every path, cell and receiver, with each trial's losses."""
    column = "intended_delay_ns" if measure == INTENDED else "delay_ns"
    lost = flows.group_by("block", "port").agg(pl.col("lost").sum())
    for one in values_of(packets.drop_nulls(column), column, measure):
        yield _with_losses(one, lost.filter(pl.col("port") == one.port), flows)


def _with_losses(one: Values, lost: pl.DataFrame, flows: pl.DataFrame) -> Values:
    """Add the losses of the trials, and the trials that lost everything."""
    here = (flows["device"] == one.device) & (flows["cell"] == one.cell) & (flows["port"] == one.port)
    blocks = np.unique(flows.filter(here)["block"].to_numpy())
    counts = dict(lost.select("block", "lost").iter_rows())
    place = np.searchsorted(blocks, one.blocks)
    return replace(
        one,
        trials=place[one.trials].astype(np.int64),
        blocks=blocks.astype(np.int64),
        lost=np.array([counts.get(int(block), 0) for block in blocks], dtype=np.int64),
    )


def answer_values(answers: pl.DataFrame, flows: pl.DataFrame) -> Iterator[Values]:
    """Return the answer latencies of every node; an unanswered request has an infinite one."""
    sent = dict(flows.group_by("block").agg(pl.col("sent").max()).iter_rows())
    for one in values_of(answers.drop_nulls("delay_ns"), "delay_ns", RESPONSE):
        came = np.bincount(one.trials, minlength=len(one.blocks))
        silent = [max(0, sent[int(block)] - int(count)) for block, count in zip(one.blocks, came, strict=True)]
        yield replace(one, lost=np.array(silent, dtype=np.int64))


def variation_values(packets: pl.DataFrame) -> Iterator[Values]:
    """Return IPDV of packets with consecutive numbers (RFC 3393) and PDV above the trial's least delay (RFC 5481)."""
    within = ("block", "flow", "port", "node")
    known = packets.drop_nulls("delay_ns")
    steps = known.with_columns(
        step=pl.col("seq").diff().over(within), ipdv=pl.col("delay_ns").diff().over(within)
    ).filter(pl.col("step") == 1)
    yield from values_of(steps, "ipdv", "ipdv")
    above = known.with_columns(pdv=pl.col("delay_ns") - pl.col("delay_ns").min().over(within))
    yield from values_of(above, "pdv", "pdv")


def gap_values(packets: pl.DataFrame) -> Iterator[Values]:
    """Return the times between arrivals, of each flow, on the receiver's own clock."""
    within = ("block", "flow", "port", "node")
    gaps = packets.sort(*within, "arrival_ns").with_columns(
        gap=pl.col("arrival_ns").diff().over(within).cast(pl.Float64)
    )
    yield from values_of(gaps.drop_nulls("gap"), "gap", "inter_arrival")


def values_of(packets: pl.DataFrame, column: str, measure: str) -> Iterator[Values]:
    """Return a column of packets by path, cell, receiver and node."""
    groups = packets.partition_by("device", "cell", "port", "node", as_dict=True, maintain_order=True)
    for (device, cell, port, node), rows in groups.items():
        blocks, trials = np.unique(rows["block"].to_numpy(), return_inverse=True)
        yield Values(
            str(device),
            int(str(cell)),
            int(str(port)),
            int(str(node)),
            measure,
            rows[column].to_numpy().astype(np.float64),
            rows["weight"].to_numpy().astype(np.float64) if "weight" in rows.columns else None,
            trials.astype(np.int64),
            blocks.astype(np.int64),
            np.zeros(len(blocks), dtype=np.int64),
            worst_of(rows, "clock_bound_ns"),
            worst_of(rows, "clock_error95_ns"),
        )


def binned_values(run: Run, flows: pl.DataFrame) -> Iterator[Values]:
    """Return the values that runs without packet records counted in bins: each bin's middle, with its count.

    Binned delays between two clocks cannot be converted to one clock afterwards: they are left out.
    """
    wanted = run.histograms.filter((pl.col("role") == "receive") & pl.col("quantity").is_in(list(BINNED)))
    bins = _without_packets(wanted, run.arrivals).join(flows.select(*AT, "device", "cell"), on=list(AT), how="inner")
    middle = (pl.col("low") + pl.col("high")).cast(pl.Float64) / 2
    placed = bins.with_columns(middle=middle, weight=pl.col("count").cast(pl.Float64), node=pl.lit(0))
    lost = flows.group_by("block", "port").agg(pl.col("lost").sum())
    shared = sorted(shared_blocks(run.clock_lines, run.streams))
    placed = placed.filter((pl.col("quantity") != "delay") | pl.col("block").is_in(shared)).with_columns(
        clock_bound_ns=pl.lit(0.0), clock_error95_ns=pl.lit(0.0)
    )
    for (quantity,), rows in placed.partition_by("quantity", as_dict=True, maintain_order=True).items():
        measure = BINNED[str(quantity)]
        for one in values_of(rows, "middle", measure):
            if measure == ACTUAL:
                yield _with_losses(one, lost.filter(pl.col("port") == one.port), flows)
            else:
                yield one


def _without_packets(bins: pl.DataFrame, arrivals: pl.DataFrame) -> pl.DataFrame:
    return bins.join(arrivals.select("block").unique(), on="block", how="anti")


def runs_of(run: Run, flows: pl.DataFrame) -> pl.DataFrame:
    """Return the counted lengths of losses and of the gaps between: device, cell, port, run, low, high, count."""
    kinds = {"loss_run": "loss", "gap_run": "gap"}
    counted = run.histograms.filter(pl.col("quantity").is_in(list(kinds)) & (pl.col("role") == "receive"))
    return (
        counted.join(flows.select(*AT, "device", "cell"), on=list(AT), how="inner")
        .with_columns(run=pl.col("quantity").replace(kinds))
        .group_by("device", "cell", "port", "run", "low", "high")
        .agg(pl.col("count").sum())
        .sort("device", "cell", "port", "run", "low")
    )


def ordered(run: Run, values: list[Values]) -> list[Values]:
    """Return the values in the order of the tables, with the sessions of their trials where the run has several."""
    if run.sessions > 1:
        values = [replace(one, sessions=run.sessions_of(one.blocks)) for one in values]
    places = {at: place for place, at in enumerate(in_order(run, [(one.device, one.cell) for one in values]))}
    return sorted(values, key=lambda one: (places[one.device, one.cell], one.port, one.node))
