"""Methods "rfc2544", "rfc8219" and "rfc2889": what a suite's searches found, recomputed from their trials.

Throughput of each goal (`ndr` for a loss ratio of 0, `pdr` for 0.005, `pdr_<goal>` for others; `_binary` behind it
where halving found it; for broadcast `broadcast_ndr`, ...), statistics:

- rate: between the bounds; its interval is from the lower bounds' low end to the upper bounds' high end, over
  repetitions (Hodges-Lehmann from six, Student's from three, none below), so it holds the search's width and the spread.
- lower, upper: the bounds themselves; conditional: MLRsearch's conditional throughput at the lower one.
- bits: rate in bits of frames with FCS [bit/s]; spread: largest less smallest over the median [1].
- at_least, in place of all these, where the lower bound is within 10 % of the tester's own clean rate, or no load was
  too much: the tester's limit, not the device's.

Latency at the throughput (test latency; broadcast_latency_... for broadcast), of all frames, lost ones infinite:

- latency_store_and_forward (RFC 1242: last bit in to first bit out) and latency_bit_forwarding (first bit in to first
  bit out): mean (of those that arrived) p50 p99 [ns]. Stamps are taken of whole frames: at the first bit in, the last
  bit out. Where the links have a rate, the frame's time on them is taken off, once or twice; where they have none both
  coincide, and `source` says so.
- latency_typical (RFC 8219: median), latency_worst (99.9th percentile), pdv (99.9th percentile less minimum), ipdv (of
  consecutive frames: min p50 max); statistic median over trials [ns].
- tester_floor (device direct; what the tester measures of the empty path at 1000 frames/s): min p50 [ns].

Others: loss_ratio at each offered rate (rate_pps, rate_share: of the highest), ratio [1]; back_to_back_frames (mean),
burst_survival (ratio: share of the repeated longest bursts that came through), buffer_time_implied and
buffer_time_corrected (RFC 9004; mean) [ns]; address_capacity (rate, upper), learning_rate (rate, upper; at_least),
forward_pressure (ratio: received over allowed rate) [1].

Each engine and frame size is a cell. Samples (columns: the `_SCHEMA` constants): `suite_rates`, `searches`,
`search_steps`, `loss_curve`, `latency_trials`, `bursts`, `lessons`, `not_measured`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.factors import Factors
from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.laws import main_device
from sojourn.analysis.rows import Row
from sojourn.analysis.run import DIRECT
from sojourn.analysis.searches import (
    Search,
    Terms,
    bounds_of,
    burst_bounds,
    lesson_bounds,
    searches_of,
    terms_of,
    unverified,
)
from sojourn.analysis.statistics.interval import Interval, student_t
from sojourn.analysis.statistics.proportion import clopper_pearson
from sojourn.analysis.statistics.quantile import allowed
from sojourn.analysis.statistics.signed_rank import hodges_lehmann, least_pairs
from sojourn.analysis.study import Study
from sojourn.analysis.tester import tester_findings
from sojourn.analysis.verdict import called

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from sojourn.analysis.run import Run
    from sojourn.analysis.statistics.bounds import Bounds

LIMIT = 0.9
"""A result above this part of the tester's own clean rate is the tester's."""

SEARCHED = {"throughput": "", "broadcast-forwarding": "broadcast_"}
TIMED = {"latency": "", "pdv": "", "ipdv": "", "broadcast-latency": "broadcast_"}
DISAGREE = 0.01
LEAST_TAGGED = 500
"""RFC 8219, 7.2: so many frames must be timed."""

WORST = 0.999
PARTIAL = 0.005

RATES_SCHEMA: dict[str, Any] = {
    "device": pl.String,
    "engine": pl.String,
    "frame_bytes": pl.Int64,
    "quantity": pl.String,
    "goal": pl.Float64,
    "algorithm": pl.String,
    "pps": pl.Float64,
    "ci_low_pps": pl.Float64,
    "ci_high_pps": pl.Float64,
    "lower_pps": pl.Float64,
    "upper_pps": pl.Float64,
    "conditional_pps": pl.Float64,
    "bps": pl.Float64,
    "tester_pps": pl.Float64,
    "tester_limited": pl.Boolean,
    "repetitions": pl.Int64,
}
SEARCHES_SCHEMA: dict[str, Any] = {
    "search": pl.Int64,
    "test": pl.String,
    "algorithm": pl.String,
    "device": pl.String,
    "engine": pl.String,
    "frame_bytes": pl.Int64,
    "repetition": pl.Int64,
    "goal": pl.Float64,
    "lower": pl.Float64,
    "upper": pl.Float64,
    "conditional": pl.Float64,
    "claimed_lower": pl.Float64,
    "claimed_upper": pl.Float64,
    "steps": pl.Int64,
    "used": pl.Int64,
    "unverified": pl.Int64,
}
STEPS_SCHEMA: dict[str, Any] = {
    "search": pl.Int64,
    "test": pl.String,
    "device": pl.String,
    "frame_bytes": pl.Int64,
    "repetition": pl.Int64,
    "step": pl.Int64,
    "block": pl.Int64,
    "load": pl.Float64,
    "duration_s": pl.Float64,
    "sent": pl.Int64,
    "lost": pl.Int64,
    "own_drops": pl.Int64,
    "loss_ratio": pl.Float64,
    "verdict": pl.String,
}
LOSS_SCHEMA: dict[str, Any] = {
    "device": pl.String,
    "engine": pl.String,
    "frame_bytes": pl.Int64,
    "offered_pps": pl.Float64,
    "rate_share": pl.Float64,
    "loss_ratio": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "trials": pl.Int64,
}
LATENCY_SCHEMA: dict[str, Any] = {
    "device": pl.String,
    "engine": pl.String,
    "frame_bytes": pl.Int64,
    "test": pl.String,
    "repetition": pl.Int64,
    "block": pl.Int64,
    "frames": pl.Int64,
    "lost": pl.Int64,
    "min_ns": pl.Float64,
    "mean_ns": pl.Float64,
    "p50_ns": pl.Float64,
    "p99_ns": pl.Float64,
    "p99_9_ns": pl.Float64,
    "pdv_ns": pl.Float64,
}
BURSTS_SCHEMA: dict[str, Any] = {
    "device": pl.String,
    "frame_bytes": pl.Int64,
    "repetition": pl.Int64,
    "frames": pl.Int64,
    "lost": pl.Int64,
    "pace_pps": pl.Float64,
}
LESSONS_SCHEMA: dict[str, Any] = {
    "test": pl.String,
    "device": pl.String,
    "repetition": pl.Int64,
    "addresses": pl.Int64,
    "sent_pps": pl.Float64,
    "learned": pl.Int64,
}
MISSING_SCHEMA: dict[str, Any] = {
    "test": pl.String,
    "device": pl.String,
    "frame_bytes": pl.Int64,
    "goal": pl.Float64,
    "why": pl.String,
}


@dataclass(frozen=True, slots=True)
class Sought:
    """The searches for one goal on one device at one size by one algorithm, one bounds a repetition."""

    quantity: str
    device: str
    cell: int
    goal: float
    algorithm: str
    bounds: list[Bounds]
    tester_pps: float | None

    @property
    def lowers(self) -> NDArray[np.float64]:
        """The lower bounds of the repetitions that have both."""
        return np.array([one.lower for one in self.bounds if one.lower and one.upper], dtype=np.float64)

    @property
    def uppers(self) -> NDArray[np.float64]:
        """The upper bounds of the same."""
        return np.array([one.upper for one in self.bounds if one.lower and one.upper], dtype=np.float64)

    @property
    def highest_lower(self) -> float | None:
        """The highest load that kept the goal in any repetition."""
        return max((one.lower for one in self.bounds if one.lower), default=None)

    @property
    def is_tester_limited(self) -> bool:
        """Whether the tester's own limit is within 10 %: the middle of the lower bounds says it."""
        known = [one.lower for one in self.bounds if one.lower]
        if not known or self.device == DIRECT:
            return False
        return not len(self.lowers) or float(np.median(known)) > LIMIT * (self.tester_pps or float("inf"))

    def rate(self) -> Interval:
        """Between the bounds, with what the search's width and the spread over repetitions leave open."""
        middle = over_repetitions((self.lowers + self.uppers) / 2)
        low, high = over_repetitions(self.lowers).low, over_repetitions(self.uppers).high
        return Interval(middle.estimate, low, high, middle.level, middle.n)


def study(run: Run) -> Study:
    """Everything that the searches of a suite say."""
    terms, searches = terms_of(run), searches_of(run)
    cells = cells_of(searches)
    run.cells.update({number: factors for factors, number in cells.items()})
    sought = list(_sought(run, searches, terms, cells))
    timed = [one for search in searches for one in _timed(run, search)]
    rows = [row for one in sought for row in _rate_rows(one, run.cells)]
    rows += [*_latency_rows(run, timed, cells), *_floor_rows(run, cells)]
    rows += [*_loss_rows(searches, cells), *_burst_rows(searches, sought, cells), *_address_rows(searches, cells)]
    for row in rows:
        row.clock = row.clock or "TAI"
    findings = [
        *tester_findings(run),
        *_tester_limited(sought),
        *_rises(sought, run.cells),
        *_disagreements(searches, terms, cells),
        *_set_aside(searches, terms, cells),
        *_too_few(timed, cells),
    ]
    return Study(rows, findings, _sentence(run, sought), [], _samples(searches, terms, sought, timed, run.cells))


def cells_of(searches: Iterable[Search]) -> dict[Factors, int]:
    """A number for every engine and frame size, beyond those of any plan's own cells."""
    kinds = sorted({(one.engine, one.frame_bytes) for one in searches})
    return {_factors(engine, size): 10_000 + number for number, (engine, size) in enumerate(kinds)}


def _factors(engine: str, frame_bytes: int) -> Factors:
    return Factors(probe=engine, engine=engine, kind="one-way", frame_bytes=frame_bytes, schedule="regular")


def _cell(search: Search, cells: dict[Factors, int]) -> int:
    return cells[_factors(search.engine, search.frame_bytes)]


def over_repetitions(values: NDArray[np.float64]) -> Interval:
    """Hodges-Lehmann from six repetitions, Student's from three, the bare average below."""
    return hodges_lehmann(values) if len(values) >= least_pairs(0.95) else student_t(values)


def clean_rates(run: Run) -> dict[int, float]:
    """What the tester alone can do without loss at each frame size, from its qualification."""
    found: dict[int, float] = {}
    for event in run.log:
        if event.get("event") == "qualified" and event.get("clean_pps"):
            size = int(event["frame_bytes"])
            found[size] = max(float(event["clean_pps"]), found.get(size, 0.0))
    return found


def _sought(run: Run, searches: list[Search], terms: Terms, cells: dict[Factors, int]) -> Iterator[Sought]:
    clean = clean_rates(run)
    groups: dict[tuple[str, str, int, float, str], list[Search]] = {}
    for search in searches:
        if search.test in SEARCHED:
            for goal in terms.goals:
                key = (search.test, search.device, _cell(search, cells), goal, search.algorithm)
                groups.setdefault(key, []).append(search)
    for (test, device, cell, goal, algorithm), several in groups.items():
        told = [float(one["tester_pps"]) for search in several for one in search.results if one.get("tester_pps")]
        tester = clean.get(several[0].frame_bytes) or max(told, default=None)
        bounds = [bounds_of(one, terms, goal) for one in several]
        yield Sought(_quantity(test, goal, algorithm), device, cell, goal, algorithm, bounds, tester)


def _quantity(test: str, goal: float, algorithm: str) -> str:
    name = "ndr" if goal == 0 else "pdr" if goal == PARTIAL else f"pdr_{goal:g}"
    return f"{SEARCHED[test]}{name}{'_binary' if algorithm == 'binary' else ''}"


def _rate_rows(sought: Sought, cells: dict[int, Factors]) -> Iterator[Row]:
    factors = cells[sought.cell]
    source = "halving, losses verified" if sought.algorithm == "binary" else "MLRsearch's goals"
    like = Row(sought.device, sought.quantity, "", _bare(0.0), "1/s", None, factors, sought.cell, source=source)
    if sought.is_tester_limited:
        told = f"{source}; the tester's clean rate is {sought.tester_pps or float('nan'):.0f}/s"
        limit = _bare(float(sought.highest_lower or 0.0), len(sought.bounds))
        row = replace(like, statistic="at_least", value=limit, source=told, findings=["tester_limited"])
        yield row
        return
    if not len(sought.lowers):
        return
    rate = sought.rate()
    figures = {
        "rate": rate,
        "lower": over_repetitions(sought.lowers),
        "upper": over_repetitions(sought.uppers),
        "conditional": over_repetitions(_conditional(sought)),
    }
    for statistic, value in figures.items():
        yield replace(like, statistic=statistic, value=value, findings=[])
    bits = rate.scaled(8.0 * (factors.frame_bytes or 0))
    yield replace(like, statistic="bits", value=bits, unit="bit/s", findings=[])
    if len(sought.lowers) > 1:
        middle = (sought.lowers + sought.uppers) / 2
        spread = float(np.ptp(middle) / np.median(middle))
        yield replace(like, statistic="spread", value=_bare(spread, len(middle)), unit="1", findings=[])


def _conditional(sought: Sought) -> NDArray[np.float64]:
    return np.array([one.conditional for one in sought.bounds if one.conditional and one.upper], dtype=np.float64)


def _bare(estimate: float, n: int = 1) -> Interval:
    return Interval(estimate, None, None, 0.95, n)


@dataclass(frozen=True, slots=True)
class Timed:
    """The delays of one trial at the throughput: sorted, with weights where they were binned; lost ones counted."""

    search: Search
    block: int
    values: NDArray[np.float64]
    weights: NDArray[np.float64]
    lost: int
    ipdv: NDArray[np.float64]

    @property
    def frames(self) -> int:
        """All that were sent."""
        return int(self.weights.sum()) + self.lost

    def quantile(self, p: float) -> float:
        """The delay that a share p of all frames does not exceed; infinite where so many were lost."""
        heights = np.cumsum(self.weights)
        at = int(np.searchsorted(heights, p * self.frames - 1e-9))
        return float(self.values[at]) if at < len(self.values) else float("inf")

    @property
    def mean(self) -> float:
        """Of those that arrived."""
        return float(np.average(self.values, weights=self.weights))

    @property
    def pdv(self) -> float:
        """The 99.9th percentile less the least."""
        return self.quantile(WORST) - float(self.values[0])


def _timed(run: Run, search: Search) -> Iterator[Timed]:
    if search.test not in TIMED:
        return
    for step in search.used:
        values, weights, ipdv = _delays(run, step.block)
        if len(values):
            lost = max(0, step.sent - step.own_drops - int(weights.sum()))
            yield Timed(search, step.block, values, weights, lost, ipdv)


def _delays(run: Run, block: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Delays and their weights, by frames or by bins, and the differences of consecutive frames."""
    frames = _of_frames(run, block)
    if frames is not None:
        seq, delays = frames
        consecutive = np.diff(seq) == 1
        return np.sort(delays), np.ones(len(delays)), np.diff(delays)[consecutive]
    values, weights = _of_bins(run, block, "delay")
    variation, counts = _of_bins(run, block, "ipdv")
    return values, weights, np.repeat(variation, counts.astype(np.int64))


def _of_frames(run: Run, block: int) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    from sojourn.analysis.clocks import on_sender_clock

    if "block" not in run.arrivals.columns:
        return None
    whole = ~pl.col("duplicate") & ~pl.col("corrupted") & (pl.col("node") == 0) & (pl.col("port") == 0)
    arrived = run.arrivals.filter(pl.col("block") == block, whole)
    if not arrived.height:
        return None
    here = on_sender_clock(arrived, run.clock_lines, run.streams).sort("seq")
    key = ["flow", "seq"]
    left = run.sends.filter(pl.col("block") == block).select(*key, "departure_ns")
    both = here.join(left, on=key, how="left").with_columns(pl.coalesce("departure_ns", "sent_ns").alias("left_ns"))
    known = both.drop_nulls("arrival_on_sender_ns")
    delays = (known["arrival_on_sender_ns"] - known["left_ns"]).cast(pl.Float64).to_numpy()
    return known["seq"].to_numpy().astype(np.int64), delays


def _of_bins(run: Run, block: int, quantity: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if "block" not in run.histograms.columns:
        return np.empty(0), np.empty(0)
    bins = run.histograms.filter(
        pl.col("block") == block, pl.col("role") == "receive", pl.col("quantity") == quantity, pl.col("port") == 0
    ).sort("low")
    middle = (bins["low"].to_numpy().astype(np.float64) + bins["high"].to_numpy().astype(np.float64)) / 2
    return middle, bins["count"].to_numpy().astype(np.float64)


def line_rate(run: Run) -> float | None:
    """The links' rate in bits a second, where they have one: frames then take time on them. Bare veth has none."""
    told = run.bed.get("stable", {}).get("line_rate_bps") or run.bed.get("line_rate_bps")
    return float(told) if told else None


def _latency_rows(run: Run, timed: list[Timed], cells: dict[Factors, int]) -> Iterator[Row]:
    groups: dict[tuple[str, str, int], list[Timed]] = {}
    for one in timed:
        groups.setdefault((one.search.test, one.search.device, _cell(one.search, cells)), []).append(one)
    for (test, device, cell), several in groups.items():
        factors = run.cells[cell]
        frames = sum(one.frames for one in several)
        like = Row(device, "", "", _bare(0.0), "ns", None, factors, cell, frames)
        if test in ("latency", "broadcast-latency"):
            yield from _definitions(run, like, several, TIMED[test])
        yield from _variation(like, several, TIMED[test], test)


def _definitions(run: Run, like: Row, several: list[Timed], prefix: str) -> Iterator[Row]:
    """RFC 1242's two definitions, from stamps at the first bit in and the last bit out."""
    rate = line_rate(run)
    on_link = 0.0 if rate is None else 8e9 * (like.factors.frame_bytes or 0) / rate
    said = "no line rate: a frame takes no time on the link, both of RFC 1242's definitions coincide"
    source = said if rate is None else f"{on_link:.0f} ns on each link taken off"
    figures = {
        "mean": np.array([one.mean for one in several]),
        "p50": np.array([one.quantile(0.5) for one in several]),
        "p99": np.array([one.quantile(0.99) for one in several]),
    }
    for name, times in (("store_and_forward", 2), ("bit_forwarding", 1)):
        for statistic, values in figures.items():
            value = _over(values - times * on_link)
            quantity = f"{prefix}latency_{name}"
            yield replace(like, quantity=quantity, statistic=statistic, value=value, source=source, findings=[])


def _variation(like: Row, several: list[Timed], prefix: str, test: str) -> Iterator[Row]:
    figures: list[tuple[str, str, NDArray[np.float64]]] = []
    if test in ("latency", "broadcast-latency"):
        figures.append(("latency_typical", "median", np.array([one.quantile(0.5) for one in several])))
        figures.append(("latency_worst", "median", np.array([one.quantile(WORST) for one in several])))
    if test in ("latency", "pdv"):
        figures.append(("pdv", "median", np.array([one.pdv for one in several])))
    if test in ("latency", "ipdv"):
        known = [one.ipdv for one in several if len(one.ipdv)]
        for statistic, q in (("min", 0.0), ("p50", 0.5), ("max", 1.0)):
            figures.append(("ipdv", statistic, np.array([float(np.quantile(one, q)) for one in known])))
    for quantity, statistic, values in figures:
        if len(values):
            yield replace(like, quantity=f"{prefix}{quantity}", statistic=statistic, value=_over(values), findings=[])


def _over(values: NDArray[np.float64]) -> Interval:
    """The middle over trials; infinite where it is so in half of them, and then without an interval."""
    if np.isfinite(values).all():
        return over_repetitions(values)
    return _bare(float(np.median(values)), len(values))


def _floor_rows(run: Run, cells: dict[Factors, int]) -> Iterator[Row]:
    floors: dict[int, dict[str, Any]] = {
        int(event["frame_bytes"]): event["floor_ns"]
        for event in run.log
        if event.get("event") == "qualified" and event.get("floor_ns")
    }
    for factors, cell in cells.items():
        for statistic, value in floors.get(factors.frame_bytes or 0, {}).items():
            if value is not None:
                yield Row(DIRECT, "tester_floor", statistic, _bare(float(value)), "ns", None, factors, cell)


def _loss_rows(searches: list[Search], cells: dict[Factors, int]) -> Iterator[Row]:
    for one in _loss_curve(searches):
        factors = replace(_factors(one["engine"], one["frame_bytes"]), rate_pps=one["offered_pps"])
        value = Interval(one["loss_ratio"], one["ci_low"], one["ci_high"], 0.95, one["trials"])
        cell = cells[_factors(one["engine"], one["frame_bytes"])]
        named = replace(factors, rate_share=one["rate_share"])
        yield Row(one["device"], "loss_ratio", "ratio", value, "1", None, named, cell, one["sent"])


def _loss_curve(searches: list[Search]) -> Iterator[dict[str, Any]]:
    """Loss at each share of the highest rate, over repetitions; of one trial by its own count of frames."""
    groups: dict[tuple[str, str, int, float], list[tuple[float, float, int, int]]] = {}
    for search in searches:
        used = search.used if search.test == "frame-loss" else []
        highest = max((one.load for one in used), default=0.0)
        for one in used:
            key = (search.device, search.engine, search.frame_bytes, round(one.load / highest, 4))
            groups.setdefault(key, []).append((one.load, one.loss_ratio, one.lost, one.sent))
    for (device, engine, size, share), several in sorted(groups.items()):
        ratios = np.array([ratio for _, ratio, _, _ in several])
        sent = sum(count for *_, count in several)
        value = over_repetitions(ratios)
        if len(several) == 1:
            value = clopper_pearson(several[0][2], several[0][3])
        yield {
            "device": device,
            "engine": engine,
            "frame_bytes": size,
            "offered_pps": float(np.mean([load for load, *_ in several])),
            "rate_share": share,
            "loss_ratio": value.estimate,
            "ci_low": None if value.low is None else max(0.0, value.low),
            "ci_high": None if value.high is None else min(1.0, value.high),
            "trials": len(several),
            "sent": sent,
        }


def _burst_rows(searches: list[Search], sought: list[Sought], cells: dict[Factors, int]) -> Iterator[Row]:
    groups: dict[tuple[str, int], list[Search]] = {}
    for search in searches:
        if search.test == "back-to-back" and search.used:
            groups.setdefault((search.device, _cell(search, cells)), []).append(search)
    for (device, cell), several in groups.items():
        yield from _bursts_of(device, cell, several, sought)


def _bursts_of(device: str, cell: int, several: list[Search], sought: list[Sought]) -> Iterator[Row]:
    """RFC 9004: the buffer is what the burst lasted, less what was forwarded meanwhile."""
    first = several[0]
    like = Row(device, "", "", _bare(0.0), "1", None, _factors(first.engine, first.frame_bytes), cell)
    known = [(lower, upper, one) for one in several for lower, upper in [burst_bounds(one)] if lower]
    if not known:
        return
    frames = np.array([float(lower) for lower, _, _ in known])
    filled = any(upper is not None for _, upper, _ in known)
    value = over_repetitions(frames) if filled else _bare(float(frames.max()), len(frames))
    yield replace(like, quantity="back_to_back_frames", statistic="mean" if filled else "at_least", value=value)
    whole = [step.lost == 0 for lower, _, one in known for step in one.used if int(step.load) == lower]
    yield replace(like, quantity="burst_survival", statistic="ratio", value=clopper_pearson(sum(whole), len(whole)))
    pace = np.array([_burst_pace(one, lower) for lower, _, one in known])
    served = next((one for one in sought if (one.quantity, one.device, one.cell) == ("ndr", device, cell)), None)
    if not filled or not np.all(pace > 0):
        return
    implied = frames / pace * 1e9
    like = replace(like, unit="ns", statistic="mean")
    yield replace(like, quantity="buffer_time_implied", value=over_repetitions(implied))
    if served is None or not len(served.lowers) or served.is_tester_limited:
        return
    left = 1 - float(np.mean(served.lowers)) / pace
    source = "RFC 9004: less what was forwarded during the burst"
    if np.all(left > 0):
        yield replace(like, quantity="buffer_time_corrected", value=over_repetitions(implied * left), source=source)


def _burst_pace(search: Search, frames: int) -> float:
    """How fast frames left during the longest bursts; what the conductor measured where records do not tell."""
    paces = [one.pace_pps for one in search.used if one.load >= frames / 2 and one.pace_pps > 0]
    return float(np.median(paces)) if paces else float(search.extra.get("burst_pps") or 0.0)


def _address_rows(searches: list[Search], cells: dict[Factors, int]) -> Iterator[Row]:
    named = {
        "address-capacity": ("address_capacity", "count", "1"),
        "learning-rate": ("learning_rate", "sent_pps", "1/s"),
    }
    groups: dict[tuple[str, str, int], list[Search]] = {}
    for search in searches:
        if search.test in named and search.extra.get("lessons"):
            groups.setdefault((search.test, search.device, _cell(search, cells)), []).append(search)
    for (test, device, cell), several in groups.items():
        quantity, load, unit = named[test]
        first = several[0]
        like = Row(device, quantity, "", _bare(0.0), unit, None, _factors(first.engine, first.frame_bytes), cell)
        bounds = [lesson_bounds(one.extra["lessons"], load) for one in several]
        yield from _bound_rows(like, bounds)
    yield from _pressure_rows(searches, cells)


def _bound_rows(like: Row, bounds: list[tuple[float | None, float | None]]) -> Iterator[Row]:
    lowers = np.array([lower for lower, upper in bounds if lower is not None and upper is not None])
    uppers = np.array([upper for lower, upper in bounds if lower is not None and upper is not None])
    if len(lowers):
        yield replace(like, statistic="rate", value=over_repetitions(lowers), findings=[])
        yield replace(like, statistic="upper", value=over_repetitions(uppers), findings=[])
    elif any(lower is not None for lower, _ in bounds):
        most = max(lower for lower, _ in bounds if lower is not None)
        source = "as many or as fast as the tester tried"
        yield replace(like, statistic="at_least", value=_bare(most, len(bounds)), source=source, findings=[])


def _pressure_rows(searches: list[Search], cells: dict[Factors, int]) -> Iterator[Row]:
    """Received over allowed rate when more than the link's rate is offered: above one is forward pressure."""
    groups: dict[tuple[str, int], list[float]] = {}
    for search in searches:
        if search.test == "forward-pressure" and search.extra.get("allowed_pps") and search.used:
            last = search.used[-1]
            allowed = float(search.extra["allowed_pps"])
            ratio = last.pace_pps * (1 - last.loss_ratio) / allowed
            groups.setdefault((search.device, _cell(search, cells)), []).append(ratio)
    by_cell = {number: factors for factors, number in cells.items()}
    for (device, cell), ratios in groups.items():
        value = over_repetitions(np.array(ratios))
        yield Row(device, "forward_pressure", "ratio", value, "1", None, by_cell[cell], cell)


def _tester_limited(sought: list[Sought]) -> list[Finding]:
    found = {
        Place(one.device, one.cell): float((one.highest_lower or 0.0) / one.tester_pps) if one.tester_pps else 1.0
        for one in sought
        if one.is_tester_limited
    }
    if not found:
        return []
    places, worst = worst_first(found)
    sentence = f"{len(found)} results reach {worst:.0%} of the tester's own clean rate: the device can do at least that"
    return [Finding("tester_limited", sentence, worst, places)]


def _rises(sought: list[Sought], cells: dict[int, Factors]) -> list[Finding]:
    """Frames a second that rise with the frame's size, beyond the intervals: no device gets faster by more work."""
    found: dict[Place, float] = {}
    groups: dict[tuple[str, str, str | None], list[Sought]] = {}
    for one in sought:
        if len(one.lowers) and not one.is_tester_limited:
            groups.setdefault((one.quantity, one.device, cells[one.cell].engine), []).append(one)
    for several in groups.values():
        ordered = sorted(several, key=lambda one: cells[one.cell].frame_bytes or 0)
        for i, longer in enumerate(ordered):
            for shorter in ordered[:i]:
                low, high = _ends(longer)[0], _ends(shorter)[1]
                if low > high:
                    place = Place(longer.device, longer.cell)
                    found[place] = max(low / high - 1, found.get(place, 0.0))
    if not found:
        return []
    places, worst = worst_first(found)
    sentence = (
        f"longer frames passed at a rate {worst:.1%} higher than shorter ones: one of the two is not the device's"
    )
    return [Finding("rate_rises_with_size", sentence, worst, places)]


def _ends(sought: Sought) -> tuple[float, float]:
    """The interval of a rate; the bounds themselves where repetitions are too few for one."""
    rate = sought.rate()
    low = float(sought.lowers.min()) if rate.low is None else rate.low
    return low, float(sought.uppers.max()) if rate.high is None else rate.high


def _disagreements(searches: list[Search], terms: Terms, cells: dict[Factors, int]) -> list[Finding]:
    """Where what was concluded during the run is not what its own trials say."""
    found: dict[Place, float] = {}
    for search in searches:
        for goal in terms.goals if search.test in SEARCHED else ():
            claimed = search.claimed(goal)
            if claimed is not None:
                bounds = bounds_of(search, terms, goal)
                off = _off(claimed.get("lower_pps"), bounds.lower)
                if off > DISAGREE:
                    place = Place(search.device, _cell(search, cells))
                    found[place] = max(off, found.get(place, 0.0))
    if not found:
        return []
    places, worst = worst_first(found)
    sentence = "a search concluded otherwise than its trials say: the bounds here are recomputed from the trials"
    return [Finding("search_disagrees", sentence, worst, places)]


def _off(claimed: float | None, found: float | None) -> float:
    if claimed is None or found is None:
        return 0.0 if claimed is None and found is None else 1.0
    return abs(float(claimed) / found - 1)


def _set_aside(searches: list[Search], terms: Terms, cells: dict[Factors, int]) -> list[Finding]:
    found: dict[Place, float] = {}
    for search in searches:
        count = len(unverified(search, terms)) if search.test in SEARCHED else 0
        if count:
            place = Place(search.device, _cell(search, cells))
            found[place] = found.get(place, 0.0) + count
    if not found:
        return []
    places, _ = worst_first(found)
    total = sum(found.values())
    return [Finding("loss_unverified", f"{total:.0f} losses did not recur when tried again: set aside", total, places)]


def _too_few(timed: list[Timed], cells: dict[Factors, int]) -> list[Finding]:
    found: dict[Place, float] = {}
    for one in timed:
        if one.frames < LEAST_TAGGED or not allowed(WORST, one.frames):
            found[Place(one.search.device, _cell(one.search, cells))] = -float(one.frames)
    if not found:
        return []
    places, worst = worst_first(found)
    sentence = f"a trial of {-worst:.0f} frames says little of the 99.9th percentile, for which 10000 are needed"
    return [Finding("too_few_frames", sentence, -worst, places)]


def _sentence(run: Run, sought: list[Sought]) -> str:
    """What the device forwards at the smallest frame, without loss and with little."""
    device = main_device(sorted({one.device for one in sought}))
    mine = sorted((one for one in sought if one.device == device), key=lambda one: run.cells[one.cell].frame_bytes or 0)
    if device is None or not mine:
        return f"{run.study.get('name', 'The suite')}: no throughput was sought"
    size = run.cells[mine[0].cell].frame_bytes
    parts = [_said(one) for one in mine if run.cells[one.cell].frame_bytes == size]
    return f"{called(device)} forwards at {size} B {', '.join(parts)}"


def _said(sought: Sought) -> str:
    how = "without loss" if sought.goal == 0 else f"with at most {sought.goal:.1%} lost"
    how += " (by halving)" if sought.algorithm == "binary" else ""
    if sought.is_tester_limited:
        return f"at least {sought.highest_lower or 0.0:,.0f} frames/s {how} (the tester's limit)"
    if not len(sought.lowers):
        return f"nothing {how}"
    rate = sought.rate()
    known = f" (95 % CI {rate.low:,.0f} to {rate.high:,.0f})" if rate.low is not None and rate.high is not None else ""
    return f"{rate.estimate:,.0f} frames/s {how}{known}"


def _samples(
    searches: list[Search], terms: Terms, sought: list[Sought], timed: list[Timed], cells: dict[int, Factors]
) -> dict[str, pl.DataFrame]:
    return {
        "suite_rates": _frame([_rate_sample(one, cells) for one in sought], RATES_SCHEMA),
        "searches": _frame(list(_search_samples(searches, terms)), SEARCHES_SCHEMA),
        "search_steps": _frame(list(_step_samples(searches)), STEPS_SCHEMA),
        "loss_curve": _frame(list(_loss_curve(searches)), LOSS_SCHEMA),
        "latency_trials": _frame([_latency_sample(one) for one in timed], LATENCY_SCHEMA),
        "bursts": _frame(list(_burst_samples(searches)), BURSTS_SCHEMA),
        "lessons": _frame(list(_lesson_samples(searches)), LESSONS_SCHEMA),
        "not_measured": _frame(list(_missing_samples(searches)), MISSING_SCHEMA),
    }


def _frame(rows: list[dict[str, Any]], schema: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)


def _head(search: Search) -> dict[str, Any]:
    names = ("test", "algorithm", "device", "engine", "frame_bytes", "repetition")
    return {"search": search.number, **{name: getattr(search, name) for name in names}}


def _rate_sample(sought: Sought, cells: dict[int, Factors]) -> dict[str, Any]:
    factors = cells[sought.cell]
    limited = sought.is_tester_limited
    rate = sought.rate() if len(sought.lowers) and not limited else None
    pps = sought.highest_lower if rate is None else rate.estimate
    conditional = _conditional(sought)
    return {
        "device": sought.device,
        "engine": factors.engine,
        "frame_bytes": factors.frame_bytes,
        "quantity": sought.quantity,
        "goal": sought.goal,
        "algorithm": sought.algorithm,
        "pps": pps,
        "ci_low_pps": None if rate is None else rate.low,
        "ci_high_pps": None if rate is None else rate.high,
        "lower_pps": None if rate is None else float(np.mean(sought.lowers)),
        "upper_pps": None if rate is None else float(np.mean(sought.uppers)),
        "conditional_pps": None if rate is None or not len(conditional) else float(np.mean(conditional)),
        "bps": None if pps is None else pps * 8 * (factors.frame_bytes or 0),
        "tester_pps": sought.tester_pps,
        "tester_limited": limited,
        "repetitions": len(sought.bounds),
    }


def _search_samples(searches: list[Search], terms: Terms) -> Iterator[dict[str, Any]]:
    for search in searches:
        counts = {"steps": len(search.steps), "used": len(search.used), "unverified": len(unverified(search, terms))}
        for goal in terms.goals if search.test in SEARCHED else ():
            bounds, claimed = bounds_of(search, terms, goal), search.claimed(goal) or {}
            found = {"lower": bounds.lower, "upper": bounds.upper, "conditional": bounds.conditional}
            told = {"claimed_lower": claimed.get("lower_pps"), "claimed_upper": claimed.get("upper_pps")}
            yield {**_head(search), "goal": goal, **found, **told, **counts}


def _step_samples(searches: list[Search]) -> Iterator[dict[str, Any]]:
    names = ("block", "load", "duration_s", "sent", "lost", "own_drops", "loss_ratio", "verdict")
    for search in searches:
        for number, step in enumerate(search.steps):
            yield {**_head(search), "step": number, **{name: getattr(step, name) for name in names}}


def _latency_sample(timed: Timed) -> dict[str, Any]:
    quantiles = {"p50_ns": 0.5, "p99_ns": 0.99, "p99_9_ns": WORST}
    found = {name: _finite(timed.quantile(q)) for name, q in quantiles.items()}
    least = float(timed.values[0])
    times = {"min_ns": least, "mean_ns": timed.mean, **found, "pdv_ns": _finite(timed.pdv)}
    return {**_head(timed.search), "block": timed.block, "frames": timed.frames, "lost": timed.lost, **times}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _burst_samples(searches: list[Search]) -> Iterator[dict[str, Any]]:
    for search in searches:
        for step in search.used if search.test == "back-to-back" else ():
            yield {**_head(search), "frames": int(step.load), "lost": step.lost, "pace_pps": step.pace_pps}


def _lesson_samples(searches: list[Search]) -> Iterator[dict[str, Any]]:
    for search in searches:
        for one in search.extra.get("lessons") or ():
            told = {"addresses": one.get("count"), "sent_pps": one.get("sent_pps"), "learned": one.get("learned")}
            yield {**_head(search), **told}


def _missing_samples(searches: list[Search]) -> Iterator[dict[str, Any]]:
    """What has no figure, or only a limit, and why."""
    for search in searches:
        for one in search.results:
            if one.get("sentence"):
                yield {**_head(search), "goal": one.get("goal"), "why": str(one["sentence"])}
