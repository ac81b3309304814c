"""Arrivals on the sender's clock, and how wrong they may be: no one-way figure without its clock error.

A line maps the receiver's clock to the sender's, `t_sender = t_receiver - offset(t_receiver)`, between two times; a
step of either clock ends one line and begins the next. Every converted time carries a bound that always holds and a
95 % error that assumes nearly symmetric ways (both are the line's own). Beyond its ends a line is stretched, and both
grow with the distance, by what the line says of its own slope; between two lines, where a step lies somewhere, the
bound also spans what the two say. Two ends that share one clock are recognised by its identity (or a line that says
so): offset, bound and error are zero, and said to be. Ends that share none and have no line have no one-way delay at
all: null, and a finding. Of several receivers of one block each is read by the lines of its own clock.

It reads what `clock_lines`, `streams` and `arrivals` hold; it does not estimate clocks (the instrument does).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from scipy import special

from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.wording import micro
from sojourn.records.clock_trials import CLOCK_TRIAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from sojourn.analysis.run import Run

SKEW_MOST = 400e-6
DRIFT_MOST = 0.5e-15
"""What the instrument takes for granted (`Limits` of crates/clock): two skews of 200 ppm at most, 0.5 ppm/s of drift,
per ns and per ns². A line whose `skew_bound` is above that was estimated with slews in it."""

DRIFT_95 = 0.02e-15
"""By how much a skew drifts in 19 of 20 cases, per ns²: crystals that warm up change by 0.02 ppm/s."""

CONVERTED = {
    "arrival_on_sender_ns": pl.Int64,
    "receive_call_on_sender_ns": pl.Int64,
    "clock_bound_ns": pl.Float64,
    "clock_error95_ns": pl.Float64,
    "clock_shared": pl.Boolean,
}
"""The columns that `on_sender_clock` adds."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of one pair of clocks in rising order: how to read the receiver's clock on the sender's."""

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    reference: NDArray[np.int64]
    offset: NDArray[np.float64]
    skew: NDArray[np.float64]
    bound: NDArray[np.float64]
    error95: NDArray[np.float64]
    skew_bound: NDArray[np.float64]
    skew95: NDArray[np.float64]
    exchanges: NDArray[np.int64]

    def convert(self, times: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Times of the receiver's clock on the sender's, each with its bound and its 95 % error."""
        times = np.asarray(times, dtype=np.int64)
        nearest = self._nearest(times)
        beyond = np.maximum(np.maximum(self.begin[nearest] - times, times - self.end[nearest]), 0).astype(np.float64)
        offset = self.offset_at(nearest, times)
        unsure = (beyond > 0) | self._lived_twice(nearest, times)
        apart = np.where(unsure, self._disagreement(times, offset), 0.0)
        bound = self.bound[nearest] + self.grown_ns(nearest, beyond)
        unknown = self.error95[nearest] >= self.bound[nearest]
        error95 = np.where(unknown, bound, np.minimum(self._error95_at(nearest, times, beyond), bound))
        return times - np.rint(offset).astype(np.int64), bound + apart, error95 + apart

    def grown_ns(self, line: NDArray[np.int64], beyond: NDArray[np.float64]) -> NDArray[np.float64]:
        """By how much a line's bound grows so far beyond its end."""
        free = self.skew_bound[line] * beyond + DRIFT_MOST * beyond**2 / 2
        return np.asarray(np.minimum(free, np.maximum(SKEW_MOST, self.skew_bound[line]) * beyond), dtype=np.float64)

    def _error95_at(
        self, line: NDArray[np.int64], times: NDArray[np.int64], beyond: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """What is said of a line is a mean over it: less at its reference, more at its ends and beyond.

        Offset and skew have errors of their own: their sum has the degrees of freedom of Welch and Satterthwaite
        (GUM, G.4.1). The instrument (`crates/clock`) computes the same to 1 %. Runs of earlier versions, whose lines of
        16 to 47 exchanges had more groups, are read as if they had today's.
        """
        slope, half = self.skew95[line], (self.end[line] - self.begin[line]) / 2
        at_reference = np.maximum(self.error95[line] ** 2 - (slope * half) ** 2 / 3, 0)
        away = (slope * (times - self.reference[line])) ** 2
        both = at_reference + away
        degrees = np.clip(self.exchanges[line] // 8, 3, 6) - 1  # of offset and skew each: groups of exchanges less one
        squares = at_reference**2 + away**2
        of_both = degrees * np.divide(both**2, squares, out=np.ones_like(both), where=squares > 0)
        scale = special.stdtrit(of_both, 0.975) / special.stdtrit(degrees, 0.975)
        return np.asarray(np.sqrt(both) * scale + DRIFT_95 * beyond**2 / 2, dtype=np.float64)

    def offset_at(self, line: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.float64]:
        since = (times - self.reference[line]).astype(np.float64)
        return np.asarray(self.offset[line] + self.skew[line] * since, dtype=np.float64)

    def _nearest(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """The line that holds a time, or whose end is the nearest to it."""
        at = np.clip(np.searchsorted(self.begin, times, side="right") - 1, 0, len(self.begin) - 1)
        after = np.minimum(at + 1, len(self.begin) - 1)
        closer = (times > self.end[at]) & (self.begin[after] - times < times - self.end[at]) & (after > at)
        return np.where(closer, after, at).astype(np.int64)

    def _lived_twice(self, line: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the line before holds too: a clock that was set back shows some times twice, the later is meant."""
        return (line > 0) & (times < self.end[np.maximum(line - 1, 0)])

    def _disagreement(self, times: NDArray[np.int64], offset: NDArray[np.float64]) -> NDArray[np.float64]:
        """How far the lines on both sides of a time are apart; nothing outside all of them."""
        before = np.searchsorted(self.begin, times, side="right") - 1
        last = len(self.begin) - 1
        twice = (before > 0) & (times < self.end[np.clip(before - 1, 0, last)])
        between = (before >= 0) & ((before < last) | twice)
        left = np.clip(np.where(twice, before - 1, before), 0, last).astype(np.int64)
        right = np.minimum(left + 1, last)
        said = np.stack([self.offset_at(left, times), self.offset_at(right, times)])
        return np.where(between, np.abs(said - offset).max(axis=0), 0.0)


def lines_of(lines: pl.DataFrame) -> Lines:
    """The lines of one block and peer."""
    ordered = lines.sort("from_ns")

    def whole(name: str) -> NDArray[np.int64]:
        return ordered[name].to_numpy().astype(np.int64)

    def real(name: str) -> NDArray[np.float64]:
        return ordered[name].to_numpy().astype(np.float64)

    return Lines(
        whole("from_ns"),
        whole("to_ns"),
        whole("reference_ns"),
        real("offset_ns"),
        real("skew_ppb") * 1e-9,
        real("bound_ns"),
        real("error95_ns"),
        real("skew_bound_ppb") * 1e-9,
        real("skew95_ppb") * 1e-9,
        whole("exchanges"),
    )


def on_sender_clock(arrivals: pl.DataFrame, lines: pl.DataFrame, streams: pl.DataFrame) -> pl.DataFrame:
    """The arrivals with the columns of `CONVERTED`: null where the two clocks were not brought together.

    Answers (node above 0) arrive at the sender itself: its own clock has stamped them already.
    """
    shared, senders = shared_blocks(lines, streams), _clocks_of(streams, "send", ["block", "clock_id"])
    parts = [_empty(arrivals)]
    marked = arrivals.with_columns((pl.col("node") == 0).alias("_far")).join(
        _clocks_of(streams, "receive", ["block", "who"]).rename({"clock_id": "_clock"}), on=["block", "who"], how="left"
    )
    groups = marked.partition_by("block", "_far", "_clock", as_dict=True, maintain_order=True)
    for (block, far_end, clock), several in groups.items():
        rows = several.drop("_far", "_clock")
        own = _of_clock(lines.filter(pl.col("block") == block), clock)
        is_senders = not own.height and (block, clock) in senders.iter_rows()
        if block in shared or not far_end or is_senders or (own.height and own["shared"].all()):
            parts.append(_as_they_are(rows))
        elif own.height:
            parts.append(_converted(rows, lines_of(own)))
        else:
            parts.append(rows.with_columns(pl.lit(None, dtype=kind).alias(name) for name, kind in CONVERTED.items()))
    return pl.concat(parts, how="vertical")


def _clocks_of(streams: pl.DataFrame, role: str, key: list[str]) -> pl.DataFrame:
    """The clock of each end of a role, by number; 0, which is none, is left out."""
    ends = streams.filter(pl.col("role") == role, pl.col("clock_id") != 0)
    return ends.select(*dict.fromkeys([*key, "clock_id"])).unique(key, maintain_order=True)


def _of_clock(lines: pl.DataFrame, clock: object) -> pl.DataFrame:
    """The lines of a block that are of this clock; all, where its number is not known."""
    return lines if clock is None else lines.filter(pl.col("clock_id") == clock)


def shared_blocks(lines: pl.DataFrame, streams: pl.DataFrame) -> set[int]:
    """The blocks in which all ends read one clock: a line says so, or all ends have the same clock identity.

    A line that says otherwise is believed more than the identity: simulated ends live on one machine.
    """
    apart = set(lines.filter(~pl.col("shared"))["block"].to_list())
    learned = set(lines.filter(pl.col("exchanges") > 0)["block"].to_list())
    said = set(lines["block"].to_list()) - apart - (_lonely_blocks(lines, streams) & learned)
    ends = streams.group_by("block").agg(
        pl.col("clock_id").n_unique().alias("clocks"), (pl.col("role") == "send").any().alias("sends"), pl.len()
    )
    same = ends.filter((pl.col("clocks") == 1) & pl.col("sends") & (pl.col("len") > 1))
    return said | (set(same["block"].to_list()) - apart)


def unsynchronised_blocks(lines: pl.DataFrame, streams: pl.DataFrame) -> set[int]:
    """The blocks whose ends have different clocks and not a line between each two."""
    return _lonely_blocks(lines, streams) - shared_blocks(lines, streams)


def _lonely_blocks(lines: pl.DataFrame, streams: pl.DataFrame) -> set[int]:
    """The blocks with a receiver whose clock is another than the sender's, and no line of it."""
    clocks = ["block", "clock_id"]
    senders, receivers = (_clocks_of(streams, role, clocks) for role in ("send", "receive"))
    apart = receivers.join(senders.select("block").unique(), on="block", how="semi").join(
        senders, on=clocks, how="anti"
    )
    lonely = apart.join(lines.select(clocks).unique(), on=clocks, how="anti")
    return set(lonely["block"].to_list())


def clock_findings(lines: pl.DataFrame, streams: pl.DataFrame, one_way: pl.DataFrame) -> list[Finding]:
    """What is wrong with the clocks; `one_way` has device, cell, block, delay_ns and the columns of `CONVERTED`."""
    found = [*_unsynchronised(lines, streams), *_stepped(lines, streams)]
    return [*found, *_negative(one_way)]


def asymmetries(run: Run) -> list[Finding]:
    """What the instrument saw of directions that are not alike and of clocks that are slewed, as the log tells it.

    The 95 % error may not hold there, nor, of a slewed clock, the maximum error. The instrument has every exchange at
    hand, hulls of both directions among them, so it is believed here.
    """
    trials = (event for event in run.trial_events.values() if event.get("kept", True))
    said = asymmetries_of([*trials, *(event for event in run.log if event.get("event") == CLOCK_TRIAL)])
    if blocks := run.one_sided_blocks:
        sentence = (
            f"in {len(blocks)} trials the clocks were compared before them alone, or behind them alone: a step of one "
            "of them in between is not in the error"
        )
        said.append(Finding("clock_one_sided", sentence, float(len(blocks)), _places(run.streams, blocks)))
    return said


def asymmetries_of(events: Iterable[dict[str, Any]]) -> list[Finding]:
    """Return findings for slewed clocks and for unequal ways, from what these log events have under `clock`."""
    found: dict[str, dict[Place, str]] = {"clock_asymmetric": {}, "clock_slewed": {}}
    for event in events:
        told = event.get("clock")
        for one in told if isinstance(told, list) else [told] if isinstance(told, dict) else []:
            for finding in one.get("findings") or ():
                if (places := found.get(str(finding.get("finding")))) is not None:
                    places.setdefault(Place(event.get("device"), event.get("cell")), str(finding.get("sentence")))
    return [
        Finding(name, next(iter(places.values())), float(len(places)), tuple(places))
        for name, places in found.items()
        if places
    ]


def _unsynchronised(lines: pl.DataFrame, streams: pl.DataFrame) -> Iterator[Finding]:
    blocks = unsynchronised_blocks(lines, streams)
    if blocks:
        places = _places(streams, blocks)
        sentence = (
            f"in {len(blocks)} trials the two ends had different clocks that could not be compared: there are no "
            "one-way delays of these trials"
        )
        yield Finding("clock_unsynchronised", sentence, float(len(blocks)), places)


def _stepped(lines: pl.DataFrame, streams: pl.DataFrame) -> Iterator[Finding]:
    """A line that was cut and does not go on where it ended, by more than its own error allows."""
    steps: dict[int, float] = {}
    for (block, _peer), several in lines.filter(~pl.col("shared")).partition_by("block", "peer", as_dict=True).items():
        if step := largest_step(lines_of(several)):
            steps[int(str(block))] = step
    if steps:
        worst = max(steps.values(), key=abs)
        sentence = (
            f"one of the two clocks stepped by {micro(worst)} during a trial: its linear segment ends there and a new "
            "one begins"
        )
        yield Finding("clock_stepped", sentence, worst, _places(streams, set(steps)))


def largest_step(lines: Lines) -> float:
    """By how much a clock stepped between two of these lines, beyond what their errors allow; 0 where it did not."""
    if len(lines.begin) < 2:
        return 0.0
    middle = lines.end[:-1] + (lines.begin[1:] - lines.end[:-1]) // 2
    first = np.arange(len(middle), dtype=np.int64)
    jumps = lines.offset_at(first + 1, middle) - lines.offset_at(first, middle)
    gap = np.maximum(lines.begin[1:] - lines.end[:-1], 0).astype(np.float64)
    grown = lines.grown_ns(first, gap) + lines.grown_ns(first + 1, gap)
    allowed = lines.bound[1:] + lines.bound[:-1] + grown
    beyond = np.where(np.abs(jumps) > allowed, jumps, 0.0)
    return float(beyond[np.abs(beyond).argmax()])


def _negative(one_way: pl.DataFrame) -> Iterator[Finding]:
    """Delays below zero: within the clock's bound they say how good the clocks were, beyond it that something lies."""
    below = one_way.filter(pl.col("delay_ns") < 0)
    if not below.height:
        return
    cells = below.group_by("device", "cell").agg(pl.len().alias("count"))
    places, _ = worst_first({Place(device, cell): float(count) for device, cell, count in cells.iter_rows()})
    least = below.sort("delay_ns").row(0, named=True)
    worst = float(least["delay_ns"])
    sentence = f"{below.height} one-way delays are negative, the least {micro(worst)}: {_why(below, least)}"
    yield Finding("negative_delay", sentence, worst, places)


def _why(below: pl.DataFrame, least: dict[str, float | bool | None]) -> str:
    """How a frame can seem to arrive before it left."""
    if below["clock_shared"].all():
        return "both ends read one clock, so the departure was stamped after the frame had already arrived"
    bound = float(least["clock_bound_ns"] or 0.0)
    if (below["delay_ns"] >= -below["clock_bound_ns"]).all():
        return f"the clocks' maximum error of ± {micro(bound)} explains them"
    return (
        f"the clocks' maximum error of {micro(bound)} does not explain them: a clock stepped undetected, or "
        "timestamps are wrong"
    )


def _places(streams: pl.DataFrame, blocks: set[int]) -> tuple[Place, ...]:
    rows = streams.filter(pl.col("block").is_in(sorted(blocks))).select("device", "cell").unique(maintain_order=True)
    return tuple(Place(device, cell) for device, cell in rows.iter_rows()) or (Place(),)


def _converted(rows: pl.DataFrame, lines: Lines) -> pl.DataFrame:
    arrival, bound, error95 = lines.convert(rows["arrival_ns"].to_numpy())
    receive_call, _, _ = lines.convert(rows["receive_call_ns"].to_numpy())
    return rows.with_columns(
        pl.Series("arrival_on_sender_ns", arrival, dtype=pl.Int64),
        pl.Series("receive_call_on_sender_ns", receive_call, dtype=pl.Int64),
        pl.Series("clock_bound_ns", bound),
        pl.Series("clock_error95_ns", error95),
        pl.lit(value=False).alias("clock_shared"),
    )


def _as_they_are(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(
        pl.col("arrival_ns").cast(pl.Int64).alias("arrival_on_sender_ns"),
        pl.col("receive_call_ns").cast(pl.Int64).alias("receive_call_on_sender_ns"),
        pl.lit(0.0).alias("clock_bound_ns"),
        pl.lit(0.0).alias("clock_error95_ns"),
        pl.lit(value=True).alias("clock_shared"),
    )


def _empty(arrivals: pl.DataFrame) -> pl.DataFrame:
    return arrivals.clear().with_columns(pl.lit(None, dtype=kind).alias(name) for name, kind in CONVERTED.items())
