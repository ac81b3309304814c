"""Delays at the throughput: RFC 1242's two latencies, RFC 8219's typical and worst, PDV and IPDV.

All frames of a trial count, not only a tagged one; lost ones have infinite delay. `suites` lists the quantities.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.clocks import clock_findings, on_sender_clock, shared_blocks
from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.rows import Row
from sojourn.analysis.run import DIRECT
from sojourn.analysis.suites.cells import bare, cell_of, median_over, over_repetitions
from sojourn.statistics.quantile import allowed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sojourn.analysis.factors import Factors
    from sojourn.analysis.run import Run
    from sojourn.analysis.suites.searches import Search, Step
    from sojourn.statistics.interval import Interval

TIMED = {"latency": "", "pdv": "", "ipdv": "", "broadcast-latency": "broadcast_"}
"""Tests that time frames, and the prefix of their quantities."""

OF_TEST = {"pdv": "pdv_test", "ipdv": "ipdv_test"}
"""Quantities of RFC 8219's own tests of variation, whose trials differ from those of the latency test."""

LEAST_TAGGED = 500
"""RFC 8219, 7.2: at least this many frames must be timed."""

WORST = 0.999


@dataclass(frozen=True, slots=True)
class Timed:
    """The delays of one trial at the throughput: sorted, with weights if binned, and the number of lost frames.

    `ipdv` is the minimum, median and maximum of consecutive frames.
    """

    search: Search
    block: int
    values: NDArray[np.float64]
    weights: NDArray[np.float64]
    lost: int
    ipdv: tuple[float, float, float] | None
    clock_bound_ns: float | None
    clock_error95_ns: float | None

    @property
    def frames(self) -> int:
        """All frames sent."""
        return int(self.weights.sum()) + self.lost

    def quantile(self, p: float) -> float:
        """Return the delay that a share p of all frames does not exceed; infinite where it falls among the lost
        ones."""
        heights = np.cumsum(self.weights)
        at = int(np.searchsorted(heights, p * self.frames - 1e-9))
        return float(self.values[at]) if at < len(self.values) else float("inf")

    @property
    def mean(self) -> float:
        """The mean of the frames that arrived."""
        return float(np.average(self.values, weights=self.weights))

    @property
    def pdv(self) -> float:
        """The 99.9th percentile minus the minimum."""
        return self.quantile(WORST) - float(self.values[0])


def timed_trials(run: Run, search: Search) -> Iterator[Timed]:
    """Return the delays of a search's trials: frame by frame if recorded, else binned if both ends have one clock."""
    if search.test not in TIMED:
        return
    shared = shared_blocks(run.clock_lines, run.streams) if "clock_id" in run.streams.columns else set()
    for step in search.used:
        one = _of_frames(run, search, step)
        if one is None and step.block in shared:
            one = _binned(run, search, step)
        if one is not None:
            yield one


def _of_frames(run: Run, search: Search, step: Step) -> Timed | None:
    if "block" not in run.arrivals.columns:
        return None
    whole = ~pl.col("duplicate") & ~pl.col("corrupted") & (pl.col("node") == 0) & (pl.col("port") == 0)
    arrived = run.arrivals.filter(pl.col("block") == step.block, whole)
    here = on_sender_clock(arrived, run.clock_lines, run.streams).drop_nulls("arrival_on_sender_ns").sort("seq")
    if not here.height:
        return None
    key = ["flow", "seq"]
    left = run.sends.filter(pl.col("block") == step.block).select(*key, "departure_ns")
    known = here.join(left, on=key, how="left").with_columns(left_ns=pl.coalesce("departure_ns", "sent_ns"))
    delays = (known["arrival_on_sender_ns"] - known["left_ns"]).cast(pl.Float64).to_numpy()
    consecutive = np.diff(known["seq"].to_numpy()) == 1
    bound, error95 = known.select(pl.col("clock_bound_ns").max(), pl.col("clock_error95_ns").max()).row(0)
    lost = max(0, step.sent - step.local_drops - len(delays))
    variation = np.sort(np.diff(delays)[consecutive])
    ipdv = _spread(variation, np.ones(len(variation)))
    return Timed(search, step.block, np.sort(delays), np.ones(len(delays)), lost, ipdv, bound, error95)


def _binned(run: Run, search: Search, step: Step) -> Timed | None:
    values, weights = _of_bins(run, step.block, "delay")
    if not len(values):
        return None
    lost = max(0, step.sent - step.local_drops - int(weights.sum()))
    ipdv = _spread(*_of_bins(run, step.block, "ipdv"))
    return Timed(search, step.block, values, weights, lost, ipdv, 0.0, 0.0)


def without_delays(searches: list[Search], timed: list[Timed], cells: dict[Factors, int]) -> list[Finding]:
    """Return a finding for trials without delays: the clocks were not compared, or delays were recorded in bins."""
    known = {one.block for one in timed}
    found = [
        (search, step) for search in searches if search.test in TIMED for step in search.used if step.block not in known
    ]
    if not found:
        return []
    places = tuple(dict.fromkeys(Place(search.device, cell_of(search, cells)) for search, _ in found))
    sentence = (
        f"{len(found)} trials have no one-way delay: their ends have two clocks that could not be compared, or delays "
        "that were recorded in bins, which cannot be converted to one"
    )
    return [Finding("clock_unsynchronised", sentence, float(len(found)), places)]


def _spread(values: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float, float, float] | None:
    """Return minimum, median and maximum of sorted values."""
    if not len(values):
        return None
    middle = int(np.searchsorted(np.cumsum(weights), weights.sum() / 2))
    return float(values[0]), float(values[min(middle, len(values) - 1)]), float(values[-1])


def timed_clocks(run: Run, timed: list[Timed], cells: dict[Factors, int]) -> list[Finding]:
    """Return findings about the clocks of these delays: the minimum of each trial shows whether any is negative."""
    schema = {"device": pl.String, "cell": pl.Int32, "delay_ns": pl.Float64, "clock_bound_ns": pl.Float64,
              "clock_shared": pl.Boolean}  # fmt: skip
    rows = [
        (
            one.search.device,
            cell_of(one.search, cells),
            float(one.values[0]),
            one.clock_bound_ns,
            not one.clock_bound_ns,
        )
        for one in timed
    ]
    if "clock_id" not in run.streams.columns:
        return []
    # Other trials only count frames: their time does not matter.
    of_timed = pl.col("block").is_in([one.block for one in timed])
    lines, streams = (frame.filter(of_timed) if frame.height else frame for frame in (run.clock_lines, run.streams))
    return clock_findings(lines, streams, pl.DataFrame(rows, schema=schema, orient="row"))


def _of_bins(run: Run, block: int, quantity: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if "block" not in run.histograms.columns:
        return np.empty(0), np.empty(0)
    bins = run.histograms.filter(
        pl.col("block") == block, pl.col("role") == "receive", pl.col("quantity") == quantity, pl.col("port") == 0
    ).sort("low")
    middle = (bins["low"].to_numpy().astype(np.float64) + bins["high"].to_numpy().astype(np.float64)) / 2
    return middle, bins["count"].to_numpy().astype(np.float64)


def line_rate(run: Run) -> float | None:
    """Return the links' rate in bits per second, if they have one. Bare veth has none."""
    told = run.bed.get("stable", {}).get("line_rate_bps") or run.bed.get("line_rate_bps")
    return float(told) if told else None


def latency_rows(run: Run, timed: list[Timed], cells: dict[Factors, int]) -> Iterator[Row]:
    groups: dict[tuple[str, str, int], list[Timed]] = {}
    for one in timed:
        groups.setdefault((one.search.test, one.search.device, cell_of(one.search, cells)), []).append(one)
    for (test, device, cell), several in groups.items():
        factors = run.cells[cell]
        frames = sum(one.frames for one in several)
        like = Row(device, "", "", bare(0.0), "ns", None, factors, cell, frames)
        like.source = stamped_by(run, [one.block for one in several])
        of_clocks = [
            max((one for one in each if one is not None), default=None)
            for each in zip(*((one.clock_bound_ns, one.clock_error95_ns) for one in several), strict=True)
        ]
        rows = list(_variation(like, several, TIMED[test], test))
        if test in ("latency", "broadcast-latency"):
            rows = [*_definitions(run, like, several, TIMED[test]), *rows]
        for row in rows:
            if "pdv" not in row.quantity:  # differences of one clock's readings have no clock offset
                row.between_clocks(*of_clocks)
        yield from rows


def stamped_by(run: Run, blocks: list[int]) -> str:
    """Return the timestamp sources of both ends of these trials; live frames, which are only binned, have the
    kernel's."""
    live = run.streams.filter(pl.col("block").is_in(blocks), pl.col("via") == "live").height
    found = {"kernel"} if live else set[str]()
    for frame, column in ((run.sends, "departure_source"), (run.arrivals, "arrival_source")):
        if column in frame.columns:
            found |= set(frame.filter(pl.col("block").is_in(blocks))[column].drop_nulls().unique().to_list())
    return " and ".join(sorted(found))


def _definitions(run: Run, like: Row, several: list[Timed], prefix: str) -> Iterator[Row]:
    """Return the latencies of RFC 1242's two definitions, from timestamps at the first bit in and the last bit out."""
    rate = line_rate(run)
    on_link = 0.0 if rate is None else 8e9 * (like.factors.frame_bytes or 0) / rate
    said = "the links have no rate, so both latencies of RFC 1242 are equal"
    said = said if rate is None else f"{on_link:.0f} ns of serialisation on each link are subtracted"
    source = "; ".join(filter(None, (like.source, said)))
    beds = [one.search.session for one in several]
    figures = {
        "mean": np.array([one.mean for one in several]),
        "p50": np.array([one.quantile(0.5) for one in several]),
        "p99": np.array([one.quantile(0.99) for one in several]),
    }
    for name, times in (("store_and_forward", 2), ("bit_forwarding", 1)):
        for statistic, values in figures.items():
            value, sessions = _average(values - times * on_link, beds)
            quantity = f"{prefix}latency_{name}"
            yield replace(
                like, quantity=quantity, statistic=statistic, value=value, source=source, sessions=sessions, findings=[]
            )


def _variation(like: Row, several: list[Timed], prefix: str, test: str) -> Iterator[Row]:
    figures: list[tuple[str, str, NDArray[np.float64]]] = []
    known = several
    if test in ("latency", "broadcast-latency"):
        figures.append(("latency_typical", "median", np.array([one.quantile(0.5) for one in several])))
        figures.append(("latency_worst", "median", np.array([one.quantile(WORST) for one in several])))
    if test in ("latency", "pdv"):
        figures.append((OF_TEST.get(test, "pdv"), "median", np.array([one.pdv for one in several])))
    yield from _medians(like, figures, known, prefix)
    if test in ("latency", "ipdv"):
        known = [one for one in several if one.ipdv is not None]
        spreads = [one.ipdv for one in several if one.ipdv is not None]
        named = OF_TEST.get(test, "ipdv")
        of_ipdv = [
            (named, statistic, np.array([one[place] for one in spreads]))
            for place, statistic in enumerate(("min", "p50", "max"))
        ]
        yield from _medians(like, of_ipdv, known, prefix)


def _medians(
    like: Row, figures: list[tuple[str, str, NDArray[np.float64]]], several: list[Timed], prefix: str
) -> Iterator[Row]:
    """Return medians over trials, as RFC 8219 reports them."""
    beds = [one.search.session for one in several]
    sessions = len(set(beds)) if len(set(beds)) > 1 else None
    for quantity, statistic, values in figures:
        if len(values):
            value = median_over(values, beds)
            yield replace(like, quantity=f"{prefix}{quantity}", statistic=statistic, value=value, sessions=sessions,
                          findings=[])  # fmt: skip


def _average(values: NDArray[np.float64], beds: list[int]) -> tuple[Interval, int | None]:
    """Return the average over trials, as RFC 2544 reports it; the bare median if some are infinite."""
    if not np.isfinite(values).all():
        return bare(float(np.median(values)), len(values)), None
    found = over_repetitions(values, beds)
    return found.mean, found.sessions


def floor_rows(run: Run, cells: dict[Factors, int]) -> Iterator[Row]:
    floors: dict[int, dict[str, Any]] = {
        int(event["frame_bytes"]): event["floor_ns"]
        for event in run.log
        if event.get("event") == "qualified" and event.get("floor_ns")
    }
    for factors, cell in cells.items():
        for statistic, value in floors.get(factors.frame_bytes or 0, {}).items():
            if value is not None:
                yield Row(DIRECT, "tester_delay", statistic, bare(float(value)), "ns", None, factors, cell)


def too_few(timed: list[Timed], cells: dict[Factors, int]) -> list[Finding]:
    found: dict[Place, float] = {}
    for one in timed:
        if one.frames < LEAST_TAGGED or not allowed(WORST, one.frames):
            found[Place(one.search.device, cell_of(one.search, cells))] = -float(one.frames)
    if not found:
        return []
    places, worst = worst_first(found)
    sentence = f"a trial has {-worst:.0f} frames; a 99.9th percentile needs 10000"
    return [Finding("too_few_frames", sentence, -worst, places)]
