"""Method "one-way": delay against the mean interval, where queues grow, and the least time between frames.

A trial's queue is stable when its delay from the intended departure does not grow (Theil-Sen over twenty parts of the
trial, tested by ranks): a queue of frames may build up in the sender as well as in the path, and where the sender is
the slowest part, the delay from the actual departure never shows it. Besides, its frames arrive as fast as they leave,
it loses no more than the slowest pace does, and it sent what it was asked to. An interval is stable when most of its
trials are. The minimum sustainable interval is the shortest stable one with all longer ones stable; its confidence
interval reaches down to the next shorter that was tried. "saturated" is the time between arrivals where the queue was
never empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.factors import Factors, in_common, spell_interval
from sojourn.analysis.finding import Finding, Place
from sojourn.analysis.hypotheses import main_device
from sojourn.analysis.measurand import added_sentence, measurand_of_streams
from sojourn.analysis.rates import pace_of
from sojourn.analysis.rows import Row
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.samples import Sample, shared
from sojourn.analysis.stream_rows import mean_of, per_path, trial_row
from sojourn.analysis.stream_samples import COMMON, POINT, point, row_samples
from sojourn.analysis.stream_study import Gathered
from sojourn.analysis.streams import over_column, sessions_of, share_of
from sojourn.methods.one_way.analyse import waiting
from sojourn.methods.one_way.analyse.budget import budgets
from sojourn.statistics.interval import Interval
from sojourn.statistics.proportion import clopper_pearson
from sojourn.statistics.trend import trend

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study

__all__ = ["SAMPLES", "budgets", "study"]

WAITING = "md1"
PARTS = 20
"""A trial is cut into this many parts of equally many packets, each represented by its median."""

GROWS_P = 1e-3
GROWS = 0.002
"""A delay that grows by less than 2 ms per second is not an unstable queue."""

LOSES = 0.001
MISSED = 0.005
LEAST_FOR_RATE = 1000
"""With fewer frames the rate is not known to half a percent."""

POINTS = ("mean", "p50", "p99", "p99.9")


@dataclass(frozen=True, slots=True)
class Sweep:
    """The cells of one path that differ only in their interval, by falling interval, and which of them are stable."""

    device: str
    factors: Factors
    cells: list[int]
    stable: list[bool]

    @property
    def shortest(self) -> int | None:
        """The index of the shortest stable interval with all longer ones stable; None without one."""
        first = self.stable.index(False) if False in self.stable else len(self.stable)
        return first - 1 if first else None

    @property
    def beyond(self) -> list[int]:
        """The cells with shorter intervals: intended overloads, to see queues grow; empty without a stable interval."""
        return [] if self.shortest is None else self.cells[self.shortest + 1 :]


DELAY_BY_INTERVAL = Sample(
    "A delay at an interval, as in the results; infinite values are null.",
    {**POINT, "stable": (pl.Boolean, "Whether the queue was stable in that cell.")},
    with_factors=True,
)
GROWTH = Sample(
    "A trial: whether its delays grew.",
    {
        **shared("block device cell round visit"),
        "growth": (pl.Float64, "By how much the delay grew from the intended departure on, in s per s."),
        "p": (pl.Float64, "The probability of such growth where there is none."),
        "path_growth": (pl.Float64, "The growth of the delay from the actual departure on: the path's part."),
        **shared("loss_ratio"),
        "achieved_ratio": (pl.Float64, "The packet rate that the sender reached over that of its schedule."),
        "stable": (pl.Boolean, "Whether the queue was stable."),
    },
)
SAMPLES = COMMON | {
    "min_intervals": point("A shortest interval of a path at a size"),
    "delay_by_interval": DELAY_BY_INTERVAL,
    "growth": GROWTH,
}


def study(run: Run) -> Study:
    """Return delays of every cell, what the device adds where queues are stable, and the minimum sustainable
    intervals."""
    of = Gathered(run)
    of.begin()
    growth = growths(of.packets)
    judged = judge_trials(of.trials, growth)
    of.rows.extend(growth_rows(run, judged))
    found = sweeps(run, judged)
    stable = {(one.device, cell) for one in found for cell, good in zip(one.cells, one.stable, strict=True) if good}
    of.overloads.update(Place(one.device, cell) for one in found for cell in one.beyond)
    steady = [cell for cell in run.cells if all((device, cell) in stable for device in _with(judged, cell))]
    of.add_devices(steady)
    limits = [row for one in found for row in min_interval_rows(run, one, judged)]
    of.rows.extend(limits)
    of.findings.extend(tester_limited(found, limits))
    if WAITING in run.hypotheses:
        of.hypotheses.extend(waiting.evaluate(WAITING, run, of.packets))
    of.samples["min_intervals"] = row_samples(run, limits)
    of.samples["delay_by_interval"] = by_interval(run, of.rows, stable)
    of.samples["growth"] = GROWTH.of(judged)
    return of.conclude(sentence(run, of.rows, limits), headline=measurand_of_streams(run, of.rows))


def growths(packets: pl.DataFrame) -> pl.DataFrame:
    """Return for every trial the growth of its delay (ns per ns, from the intended departure), and the p of no growth.

    `path_growth` is of the delay from the actual departure: the path's part alone.
    """
    schema = {"block": pl.Int32, "port": pl.Int32, **dict.fromkeys(("growth", "p", "path_growth"), pl.Float64)}
    found = []
    columns = ("block", "port", "departure_ns", "intended_ns", "delay_ns", "intended_delay_ns")
    known = packets.select(columns).drop_nulls().sort("block", "port", "intended_ns")
    for (block, port), rows in known.partition_by("block", "port", as_dict=True).items():
        growth, p = growth_of(_since(rows["intended_ns"]), rows["intended_delay_ns"].to_numpy())
        found.append((block, port, growth, p, growth_of(_since(rows["departure_ns"]), rows["delay_ns"].to_numpy())[0]))
    return pl.DataFrame(found, schema=schema, orient="row")


def _since(times: pl.Series) -> NDArray[np.float64]:
    """Return times since the first of them."""
    whole = times.to_numpy().astype(np.int64)
    return np.asarray(whole - whole[0], dtype=np.float64)


def growth_of(times: NDArray[np.float64], delays: NDArray[np.float64]) -> tuple[float, float]:
    """Return the growth of delays with time, and its p; 0 and 1 for fewer than four packets per part."""
    if len(delays) < 4 * PARTS:
        return 0.0, 1.0
    parts = np.array_split(np.arange(len(delays)), PARTS)
    at = np.array([times[part].mean() for part in parts])
    over = trend(at, np.array([np.median(delays[part]) for part in parts]))
    return over.slope, over.p


def judge_trials(trials: pl.DataFrame, growth: pl.DataFrame) -> pl.DataFrame:
    """Add growth, p and whether the queue was stable to the trials."""
    least = pl.col("loss_ratio").min().over("device", "frame_bytes", "schedule")
    grows = (pl.col("growth") > GROWS) & (pl.col("p") < GROWS_P)
    loses = pl.col("loss_ratio") > 3 * least + LOSES
    missed = pl.col("achieved_ratio") < 1 - MISSED
    arriving = pl.col("received_pps") / (1 - pl.col("loss_ratio"))
    behind = (arriving < (1 - MISSED) * pl.col("offered_pps")) & (pl.col("sent") > LEAST_FOR_RATE)
    joined = trials.join(growth, on=["block", "port"], how="left").with_columns(
        pl.col("growth").fill_null(0.0), pl.col("p").fill_null(1.0)
    )
    return joined.with_columns(stable=~(grows | loses | missed.fill_null(value=False) | behind.fill_null(value=False)))


def growth_rows(run: Run, judged: pl.DataFrame) -> list[Row]:
    """Return growth, and the share of trials whose queue was stable."""
    rows = []
    for _, _, here in per_path(run, judged):
        rows.append(
            mean_of(trial_row(run, here, "queue_growth", "trend", over_column(here, "growth"), "s/s"), here, "growth")
        )
        share = clopper_pearson(int(here["stable"].sum()), here.height)
        if sessions_of(here):
            share = share_of(here, here["stable"].to_numpy().astype(np.float64), np.ones(here.height))
        rows.append(trial_row(run, here, "queue_stable", "ratio", share, "1"))
    return rows


def sweeps(run: Run, judged: pl.DataFrame) -> list[Sweep]:
    """Return the cells of every path by their interval; cells without one (shares, floods) are left out."""
    share = {
        (device, cell): float(here["stable"].to_numpy().mean()) for (device, cell), _, here in per_path(run, judged)
    }
    groups: dict[tuple[object, ...], list[int]] = {}
    for device, cell in share:
        one = run.cells[cell]
        if one.interval_ns:
            key = (device, one.engine, one.frame_bytes, one.schedule, one.to, one.senders, one.load, one.load_via)
            groups.setdefault(key, []).append(cell)
    found = []
    for (path, *_), cells in groups.items():
        ranked = sorted(cells, key=lambda cell: -(run.cells[cell].interval_ns or 0))
        stable = [share[str(path), cell] > 0.5 for cell in ranked]
        found.append(Sweep(str(path), in_common(run.cells[cell] for cell in ranked), ranked, stable))
    return found


def min_interval_rows(run: Run, one: Sweep, judged: pl.DataFrame) -> list[Row]:
    """Return the least time between frames: with a stable queue, between arrivals in overload, and as calculated."""
    if one.device == A_A:
        return []
    rows = _shortest_stable(run, one, judged)
    unstable = [cell for cell, good in zip(one.cells, one.stable, strict=True) if not good]
    if unstable:
        here = judged.filter((pl.col("device") == one.device) & (pl.col("cell") == unstable[-1]))
        gaps = over_column(here, 1e9 / pl.col("received_pps"))
        rows += [_row(one, unstable[-1], "saturated", gaps)] if gaps.n else []
    pace = pace_of(run, one.device)
    least = pace.interval_ns(one.factors.frame_bytes or 0)
    rows.append(
        _row(one, one.cells[0], "calculated", Interval(float("nan") if least is None else least, None, None, 0.95, 0))
    )
    rows[-1].source = pace.why
    return rows


def _shortest_stable(run: Run, one: Sweep, judged: pl.DataFrame) -> list[Row]:
    """Return the shortest stable interval; if the sender did not keep the next shorter one, the sender is the limit."""
    shortest = one.shortest
    if shortest is None:
        return []
    at = float(run.cells[one.cells[shortest]].interval_ns or 0)
    row = _row(one, one.cells[shortest], "sustained", _tried(at))
    if shortest + 1 == len(one.cells):
        row.source = "the shortest that was tried: the queue was stable there as well"
        return [row]
    beyond = one.cells[shortest + 1]
    here = judged.filter((pl.col("device") == one.device) & (pl.col("cell") == beyond))
    testers = float(np.nanmedian(here["achieved_ratio"].to_numpy())) < 1 - MISSED
    row.statistic = "at_most" if testers else "sustained"
    row.findings = ["tester_limited"] if testers else []
    row.source = "the sender did not keep the next shorter one" if testers else "the tried intervals"
    shorter = _row(one, one.cells[shortest], "next_tried", _tried(float(run.cells[beyond].interval_ns or 0)))
    shorter.source = row.source
    return [row, shorter]


def _tried(at: float) -> Interval:
    """Return a configured time. With the next one it is a bracket of the true value, without a level."""
    return Interval(at, None, None, 0.95, 0)


def tester_limited(found: list[Sweep], limits: list[Row]) -> list[Finding]:
    """Return a note where the sender, not the path, ended the intervals that could be tried."""
    limited = [row for row in limits if row.statistic == "at_most"]
    if not limited:
        return []
    paths = {(row.device, row.cell) for row in limited}
    ended = [one for one in found if any((one.device, cell) in paths for cell in one.cells)]
    beyond = [Place(one.device, cell) for one in ended for cell in one.beyond]
    shortest = min(limited, key=lambda row: row.value.estimate)
    least, low = shortest.value.estimate, next_tried(limits, shortest) or 0.0
    sentence = (
        f"the sender could not keep the next shorter time that was tried, {spell_interval(int(low))}: so it is not "
        f"known whether the device can sustain less than {spell_interval(int(least))}"
    )
    return [Finding("tester_limited", sentence, least, tuple(dict.fromkeys(beyond)), "note")]


def next_tried(rows: list[Row], of: Row) -> float | None:
    """Return the next shorter time that was tried; None where there is none."""
    place = (of.device, of.cell, "next_tried")
    return next((row.value.estimate for row in rows if (row.device, row.cell, row.statistic) == place), None)


def _row(one: Sweep, cell: int, statistic: str, value: Interval) -> Row:
    return Row(one.device, "min_frame_interval", statistic, value, "ns", None, one.factors, cell)


def by_interval(run: Run, rows: list[Row], stable: set[tuple[str, int]]) -> pl.DataFrame:
    """Return delay over interval, with its band, and whether the queue was stable there."""
    drawn = [
        row
        for row in rows
        if row.quantity in ("one_way_delay", "one_way_delay_intended")
        and row.statistic in POINTS
        and row.cell is not None
    ]
    good = [(row.device, row.cell) in stable for row in drawn]
    placed = row_samples(run, drawn).with_columns(stable=pl.Series(good, dtype=pl.Boolean))
    return placed.select(DELAY_BY_INTERVAL.schema.names())


def sentence(run: Run, rows: list[Row], limits: list[Row]) -> str:
    """Return what the device adds, and the shortest interval at which its queue stays stable."""
    said = added_sentence(run, rows)
    device = main_device(run.devices) or DIRECT
    found = [row for row in limits if row.device == device and row.statistic in ("sustained", "at_most")]
    if not found:
        return said
    shortest = min(found, key=lambda row: row.factors.frame_bytes or 0)
    at = spell_interval(int(shortest.value.estimate))
    shorter = next_tried(limits, shortest)
    if shorter is None:
        limit = ", the shortest time that was tried"
    else:
        next_ = spell_interval(int(shorter))
        grow = f"at the next shorter that was tried, {next_}, they grow"
        missed = f"the tester could not keep the next shorter time that was tried, {next_}"
        limit = f"; {missed if shortest.statistic == 'at_most' else grow}"
    return f"{said}; queues stay stable at {at} between frames of {shortest.factors.frame_bytes} B{limit}"


def _with(judged: pl.DataFrame, cell: int) -> list[str]:
    return judged.filter(pl.col("cell") == cell)["device"].unique().to_list()
