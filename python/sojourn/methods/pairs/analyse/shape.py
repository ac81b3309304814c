"""Findings about the delays: periodic, drifting, in several modes, not yet steady, disturbed, lost or out of order.

Each detector is conservative: its false alarms are rarer than one in thousands of runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.sessions import NO_SESSION, figure_of
from sojourn.analysis.wording import fixed, micro, percent
from sojourn.statistics.cycle import find_cycle
from sojourn.statistics.modes import find_modes
from sojourn.statistics.period import find_period, slow_ones
from sojourn.statistics.signed_rank import hodges_lehmann
from sojourn.statistics.trend import trend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sojourn.analysis.pairs import Rounds
    from sojourn.analysis.path import Laid
    from sojourn.analysis.run import Run

DRIFT_P = 1e-4
DRIFT_SHARE = 0.02
"""The least relative change of the round trip over the run for a finding."""

UNSTEADY_LEVEL = 0.9999
UNSTEADY_SHARE = 0.05
"""The largest relative excess of the first quarter of a block for which the warm-up is long enough."""

STALL_NS = 1_000_000
STALL_FACTOR = 20
"""A probe on the direct link beyond these limits was disturbed by something outside the experiment."""

LEAST_TURNS = 4
"""The shortest period in time, in times between two blocks of a path."""

MODES_LEVEL = 0.999
"""The level of the interval of a difference of shares: one false alarm in a thousand runs per cell."""

LEAST_FOR_MODES = 300
COUNTS = {
    "loss": ("were not answered", pl.col("replies") == 0),
    "duplication": ("were answered more than once", pl.col("replies") > 1),
    "reordering": ("were overtaken", pl.col("reordered")),
    "late_replies": ("were answered after the timeout", pl.col("late")),
}


def shape_findings(run: Run, rounds: Rounds, bed_ns: float) -> list[Finding]:
    """Return all findings about the delays; `bed_ns` is the bed's resolution, one way."""
    found = [*_periods(run), *_drifts(run, 2 * bed_ns), *_modes(run, bed_ns), *_interference(run), *_counts(run)]
    return [*found, *_warming(run, 2 * bed_ns), *_transient(run, rounds, bed_ns)]


def _periods(run: Run) -> Iterator[Finding]:
    """Return periods in a device; with several beds, in the devices of at least two beds, as each counts for itself."""
    counted: dict[str, list[float]] = {}
    timed: dict[str, list[float]] = {}
    beds = run.probes["part"].n_unique() if run.sessions > 1 else 1
    for device, probes in _boxes(run):
        slow = _slow_of(probes)
        if (every := _period_of(probes, slow)) is not None:
            counted.setdefault(str(device), []).append(every)
        elif (cycle := _cycle_of(probes, slow)) is not None:
            timed.setdefault(str(device), []).append(cycle)
    if found := _of_most(counted, beds):
        places, worst = worst_first(found)
        yield Finding("periodic_delay", f"about every {worst:.0f}th probe is slow, with a period", worst, places)
    if found := _of_most(timed, beds):
        places, worst = worst_first(found)
        yield Finding("periodic_in_time", f"slow probes recur about every {worst:.3g} s", worst, places)


def _boxes(run: Run) -> Iterator[tuple[str, pl.DataFrame]]:
    """Return the probes of each box in order, warm-up included; one box at a time, as all are millions."""
    link = pl.col("device").replace({} if run.has_twins else {A_A: DIRECT})
    box = ["device", *(["part", "instance"] if run.sessions > 1 else ["instance"] if run.has_twins else [])]
    boxes = run.blocks.with_columns(link).group_by(box, maintain_order=True).agg("block")
    for device, blocks in boxes.select("device", "block").iter_rows():
        probes = run.probes_of(blocks, "block", "seq", "cell", "warmup", "intended_ns", "rtt")
        if probes.height:
            yield str(device), probes


def _of_most(told: dict[str, list[float]], beds: int) -> dict[Place, float]:
    return {
        Place(device): float(np.median(several)) for device, several in told.items() if len(several) >= min(2, beds)
    }


def _slow_of(probes: pl.DataFrame) -> NDArray[np.bool_]:
    """Return which probes were slow among those of their cell; the warm-up never is."""
    slow = np.zeros(probes.height, dtype=np.bool_)
    for cell in probes.with_row_index("place").partition_by("cell"):
        answered = cell.filter(pl.col("rtt").is_not_null() & ~pl.col("warmup"))
        if answered.height >= 20:
            slow[answered["place"].to_numpy()] = slow_ones(answered["rtt"].cast(float).to_numpy())
    return slow


def _cycle_of(probes: pl.DataFrame, slow: NDArray[np.bool_]) -> float | None:
    """Return the time in which slow probes recur; longer than the turns of the paths, which recur too."""
    turns = np.diff(np.sort(probes.group_by("block").agg(pl.col("intended_ns").min())["intended_ns"].to_numpy()))
    if not len(turns):
        return None
    times = probes["intended_ns"].to_numpy() / 1e9
    order = np.argsort(times, kind="stable")
    cycle = find_cycle(times[order], slow[order], LEAST_TURNS * float(np.median(turns)) / 1e9)
    return None if cycle is None else cycle.seconds


def _period_of(probes: pl.DataFrame, slow: NDArray[np.bool_]) -> float | None:
    """Return the period in probes that pass one box, over all cells and with the warm-up, as the box counts
    them all."""
    block = int(probes.group_by("block").len()["len"].mode().max())  # type: ignore[arg-type]
    period = find_period(np.flatnonzero(slow), probes.height)
    # A period of one block comes from the block's begin, not from the device.
    return float(period.every) if period is not None and period.every % block else None


def _drifts(run: Run, least_ns: float) -> Iterator[Finding]:
    found: dict[Place, float] = {}
    bed = pl.col("part") if run.sessions > 1 else pl.lit(0)
    figures = (pl.col("rtt").median().alias("level"), pl.col("intended_ns").min().alias("at"))
    levels: dict[str, list[pl.DataFrame]] = {}
    for path in run.paths.values():
        probes = path.probes("block", "cell", "part", "intended_ns", "rtt").drop_nulls("rtt").with_columns(bed=bed)
        levels.setdefault(path.device, []).append(probes.group_by("block", "cell", "bed").agg(figures))
    for device, of_cells in levels.items():
        blocks = (
            pl.concat(of_cells)
            .with_columns(
                (pl.col("level") / pl.col("level").median().over("cell", "bed")).alias("relative"),
                pl.col("at") - pl.col("at").min().over("bed"),
            )
            .sort("at", "block")
        )
        if not blocks.height:
            continue
        over = trend(blocks["at"].cast(float).to_numpy(), blocks["relative"].to_numpy())
        level = float(np.median(blocks["level"].to_numpy()))
        if over.p < DRIFT_P and abs(over.change) > DRIFT_SHARE and abs(over.change) * level > least_ns:
            found[Place(device)] = abs(over.change)
    if found:
        places, worst = worst_first(found)
        yield Finding(
            "drift", f"the round trip drifted by {percent(worst)} over the run; pairs cancel it", worst, places
        )


def _modes(run: Run, bed_ns: float) -> Iterator[Finding]:
    found: dict[Place, float] = {}
    where: dict[Place, list[float]] = {}
    for path in run.paths.values():
        values = path.laid().values
        if len(values) < LEAST_FOR_MODES:
            continue
        modes = find_modes(values)
        if len(modes) > 1:
            place = Place(path.device, path.cell)
            found[place], where[place] = float(len(modes)), modes
    if found:
        places, worst = worst_first(found)
        told = ", ".join(micro(mode) for mode in where[places[0]])
        yield Finding("several_modes", f"the RTT distribution has {worst:.0f} modes, at {told}", worst, places)
        yield from _modes_apart(run, where, bed_ns)


def _modes_apart(run: Run, modes: dict[Place, list[float]], bed_ns: float) -> Iterator[Finding]:
    """Return paths whose shares of the slower mode differ, if that explains more than the bed resolves of their
    difference."""
    found: dict[Place, float] = {}
    shares: dict[Place, tuple[float, float]] = {}
    for device in run.devices:
        for cell in run.cells if device not in (DIRECT, A_A) else ():
            here, there = (Place(one, cell) for one in (device, DIRECT))
            bimodal = next((place for place in (here, there) if place in modes), None)
            paths = [path for one in (device, DIRECT) if (path := run.paths.get((one, cell)))]
            if bimodal is None or len(paths) < 2:
                continue
            first, second = modes[bimodal][:2]
            above = (first + second) / 2 - run.paths[bimodal.device, cell].laid().shift
            slow = [_slow_shares(path.laid(), above) for path in paths]
            both = slow[0].join(slow[1], on=["part", "round"], suffix="_there")
            here_slow, there_slow = both["slow"].to_numpy(), both["slow_there"].to_numpy()
            bed = both["part"].to_numpy().astype(np.int64) * (run.sessions > 1)
            figure = figure_of(here_slow - there_slow, bed, MODES_LEVEL).mean
            of_the_latency = abs(figure.estimate) * (second - first) / 2
            if figure.excludes(0) and of_the_latency > bed_ns:
                found[here], shares[here] = of_the_latency, (float(here_slow.mean()), float(there_slow.mean()))
    if found:
        places, worst = worst_first(found)
        here_share, there_share = (percent(share) for share in shares[places[0]])
        sentence = (
            f"{here_share} of the round trips over {places[0].device} are in a slower mode, {there_share} of those "
            f"over the direct link: {micro(worst)} of their difference comes from this, be it the device or the machine"
        )
        yield Finding("modes_differ", sentence, worst, places)


def _slow_shares(path: Laid, above_ns: float) -> pl.DataFrame:
    """Return per bed and round the share of round trips this far above the begin of the path's fastest mode."""
    slow = pl.Series("slow", path.above_foot > above_ns)
    return path.probes.with_columns(slow).group_by("part", "round").agg(pl.col("slow").mean())


def _interference(run: Run) -> Iterator[Finding]:
    on_direct = pl.col("device").is_in([DIRECT, A_A]) & pl.col("rtt").is_not_null()
    empty = run.measured.select("device", "cell", "rtt").filter(on_direct)
    stalled = empty.filter(
        (pl.col("rtt") > pl.col("rtt").median().over("cell") * STALL_FACTOR)
        & (pl.col("rtt") > pl.col("rtt").median().over("cell") + STALL_NS)
    )
    if stalled.height:
        worst = float(stalled["rtt"].cast(float).to_numpy().max())
        sentence = (
            f"{stalled.height} probes on the direct link had round trips of up to {worst / 1e6:.1f} ms: not the device"
        )
        yield Finding("interference", sentence, float(stalled.height), (Place(DIRECT),))


def _counts(run: Run) -> Iterator[Finding]:
    for name, (what, condition) in COUNTS.items():
        counts = run.measured.group_by("device", "cell").agg(condition.sum().alias("count"), pl.len().alias("sent"))
        seen = counts.filter(pl.col("count") > 0)
        found = {Place(device, cell): count / sent for device, cell, count, sent in seen.iter_rows()}
        if found:
            places, worst = worst_first(found)
            total = int(seen["count"].sum())
            yield Finding(
                name, f"{fixed(total, 0)} probes {what}, at most {percent(worst)} of those of one cell", worst, places
            )


def _warming(run: Run, least_ns: float) -> Iterator[Finding]:
    """Return a finding if the first quarter of a block's measured probes is slower than the later half."""
    part = (pl.col("seq") - pl.col("seq").min().over("block")) / pl.len().over("block")
    parts = pl.concat(
        probes.with_columns(part.alias("part"))
        .drop_nulls("rtt")
        .group_by("device", "cell", "block")
        .agg(
            pl.col("rtt").filter(pl.col("part") < 0.25).median().alias("early"),
            pl.col("rtt").filter(pl.col("part") >= 0.5).median().alias("later"),
        )
        .drop_nulls()
        for probes in run.path_by_path("device", "cell", "block", "seq", "rtt")
    )
    found: dict[Place, float] = {}
    for (device, cell), blocks in parts.partition_by("device", "cell", as_dict=True).items():
        later = blocks["later"].to_numpy()
        excess = hodges_lehmann(blocks["early"].to_numpy() - later, UNSTEADY_LEVEL)
        share = abs(excess.estimate) / float(np.median(later))
        if excess.excludes(0) and share > UNSTEADY_SHARE and abs(excess.estimate) > least_ns:
            found[Place(str(device), int(str(cell)))] = share
    if found:
        places, worst = worst_first(found)
        sentence = (
            f"blocks were not steady: their first probes differ by {percent(worst)} from the later ones: raise "
            "pairs.warmup_probes"
        )
        yield Finding("unsteady", sentence, worst, places)


def _transient(run: Run, rounds: Rounds, bed_ns: float) -> Iterator[Finding]:
    """Return a finding if the first third of the rounds differs from the rest."""
    for device, reference in rounds.pairs():
        if reference != DIRECT or device == A_A:
            continue
        averages = rounds.one_way(device, reference).mean(axis=0)
        early, later, level = _early_and_later(averages, rounds.session)
        if len(early) < 6:
            continue
        change = _two_sample(early, later)
        size = abs(float(np.median(early) - np.median(later)))
        if change and size > max(bed_ns, 0.1 * level):
            sentence = f"{device} was not steady: its first rounds differ by {micro(size)} from the later ones"
            yield Finding("unsteady", sentence, size, (Place(device),))


def _early_and_later(
    averages: NDArray[np.float64], session: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return the first third of each bed's rounds and the others, both minus the mean of their bed; and the level."""
    known = ~np.isnan(averages) & (session != NO_SESSION)
    early, later = [], []
    for one in np.unique(session[known]):
        rows = averages[known & (session == one)]
        cut = len(rows) // 3
        early.append(rows[:cut] - rows.mean())
        later.append(rows[cut:] - rows.mean())
    if not early:
        return np.empty(0), np.empty(0), 0.0
    return np.concatenate(early), np.concatenate(later), abs(float(np.median(averages[known])))


def _two_sample(first: NDArray[np.float64], rest: NDArray[np.float64]) -> bool:
    """Return whether the two differ by rank sum, by more than four standard deviations."""
    m, n = len(first), len(rest)
    ranks = np.argsort(np.argsort(np.concatenate([first, rest]), kind="stable"), kind="stable") + 1
    mean, sd = m * (m + n + 1) / 2, (m * n * (m + n + 1) / 12) ** 0.5
    return bool(abs(float(ranks[:m].sum()) - mean) > 4 * sd)
