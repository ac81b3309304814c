"""Method "anomalies": what recurs or changes in long series of round trips, over each device and over the direct link.

Each series is searched by itself (`series`). What several series of a path and cell show alike is one anomaly; a
finding tells of those that most series show. One that the direct link shows as well is not the device's. Where cells
have several intervals, a period is counted (as many probes at each) or timed (as long at each).

Quantities beside those of round trips (`analysis.paths`), the largest of each kind:

- anomaly_size; every-nth pulse ramp step drift mode (of round trips: what the probes of it take longer) [ns]
- anomaly_every; every-nth (which probes) [1]
- anomaly_period; pulse ramp [ns]
- anomaly_duration; pulse ramp (of a return) [ns]
- anomaly_share; pulse ramp mode (of the time, or of the probes) [1]
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.paths import path_rows
from sojourn.analysis.rows import Row
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.samples import OF_SERIES, Sample, samples_of_series, shared, with_cells
from sojourn.analysis.study import Study
from sojourn.analysis.tester import stamp_sources, tester_findings
from sojourn.analysis.verdict import amid
from sojourn.analysis.wording import counted, fixed, micro, percent
from sojourn.devices import called
from sojourn.methods.anomalies.analyse.series import (
    DRIFT,
    EVERY,
    KINDS,
    MODE,
    PULSE,
    RAMP,
    STEP,
    Anomaly,
    Series,
    anomalies_in,
)
from sojourn.statistics.cycle import LEAST_RETURNS
from sojourn.statistics.fold import LONGEST
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.analysis.run import Run

ALIKE = 0.03
"""The largest relative difference of two equal periods, or modes."""

NAMES = {
    EVERY: "periodic_delay", PULSE: "periodic_in_time", RAMP: "delay_ramps", STEP: "delay_steps", DRIFT: "drift",
    MODE: "several_modes",
}  # fmt: skip
SLUGS = {EVERY: "every-nth", PULSE: "pulse", RAMP: "ramp", STEP: "step", DRIFT: "drift", MODE: "mode"}
COUNTED, TIMED, EITHER = "count", "time", "either"

ANOMALIES = Sample(
    "An anomaly of a path in a cell; null where a column does not apply to its kind.",
    {
        **shared("device cell"),
        "kind": (pl.String, f"Its kind: {', '.join(KINDS)}."),
        "among": (pl.Int64, "Only each n-th probe has it."),
        "every": (pl.Int64, "Its period in probes."),
        "seconds": (pl.Float64, "Its period in s."),
        "told_by": (pl.String, "Whether a period is constant in probes (count), in time (time), or either."),
        "size_ns": (pl.Float64, "What its probes take longer."),
        "low_ns": (pl.Float64, "The lower end of its interval; null without one."),
        "high_ns": (pl.Float64, "The upper end of its interval; null without one."),
        "duration_s": (pl.Float64, "How long a return lasts."),
        "at_s": (pl.Float64, "When it begins, since the begin of the series."),
        "share": (pl.Float64, "Its share of the time, or of the probes."),
        "p": (pl.Float64, "The probability that noise shows it; null: unknown."),
        "seen": (pl.Int64, "How many series show it."),
        "series": (pl.Int64, "How many series there are."),
        "on_direct": (pl.Boolean, "Whether the direct link shows it, too."),
    },
    with_factors=True,
)
PROFILES = Sample(
    "The mean delay at a position in the period of an anomaly.",
    {
        **shared("device cell"),
        "name": (pl.String, "The period."),
        "x": (pl.Float64, "The position in it: probes, or s."),
        "excess_ns": (pl.Float64, "The mean delay there, above the median of all."),
    },
    with_factors=True,
)
SAMPLES = OF_SERIES | {"anomalies": ANOMALIES, "anomaly_profiles": PROFILES}


@dataclass(frozen=True, slots=True)
class Shown:
    """An anomaly of a path and cell: how many of its series show it, and whether the direct link does too."""

    device: str
    cell: int
    anomaly: Anomaly
    seen: int
    series: int
    on_direct: bool = False
    told_by: str | None = None
    """For a counted period: whether it is constant in probes over several intervals, or in time."""

    @property
    def is_told(self) -> bool:
        """Whether most series show it; a step occurs only once by its nature."""
        return self.anomaly.kind == STEP or 2 * self.seen > self.series


def study(run: Run) -> Study:
    """Return every anomaly of every path, with samples of the series."""
    shown = attributed(run, [one for path in _series_of(run).items() for one in shown_by(*path)])
    rows = [*path_rows(run), *anomaly_rows(run, shown)]
    stamp_sources(run, rows)
    findings = [*tester_findings(run, visits=1), *found(run, shown)]
    samples = samples_of_series(run) | {
        "anomalies": with_cells(run, _table(shown)).drop("kind_right"),  # the kind of a stream
        "anomaly_profiles": with_cells(run, _profiles(shown)),
    }
    return Study(rows, findings, sentence(run, shown), samples=samples)


def _series_of(run: Run) -> dict[tuple[str, int], list[Series]]:
    """Return the series of each path and cell, in order."""
    several: dict[tuple[str, int], list[Series]] = {}
    for block in run.measured.sort("block", "seq").partition_by("block", maintain_order=True):
        device, cell = str(block["device"][0]), int(block["cell"][0])
        times = (block["intended_ns"] - block["intended_ns"][0]).cast(pl.Float64).to_numpy() / 1e9
        values = block["rtt"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
        series = Series(times, values, (run.cells[cell].interval_ns or 0) / 1e9)
        several.setdefault((device, cell), []).append(series)
    return several


def shown_by(path: tuple[str, int], series: list[Series]) -> list[Shown]:
    """Return the anomalies of the series of one path and cell, equal ones together, in the order of the kinds."""
    groups: list[list[Anomaly]] = []
    for one in series:
        taken: set[int] = set()
        for anomaly in anomalies_in(one):
            place = next((i for i, group in enumerate(groups) if i not in taken and are_alike(group[0], anomaly)), None)
            if place is None:
                groups.append([])
                place = len(groups) - 1
            taken.add(place)
            groups[place].append(anomaly)
    together = [Shown(*path, _together(group), len(group), len(series)) for group in groups]
    return sorted(together, key=lambda one: KINDS.index(one.anomaly.kind))


def are_alike(one: Anomaly, other: Anomaly) -> bool:
    """Return whether two anomalies are the same: kind and period; steps are never equal."""
    if (one.kind, one.every, one.among) != (other.kind, other.every, other.among) or one.kind == STEP:
        return False
    if one.seconds is not None and other.seconds is not None:
        return abs(one.seconds - other.seconds) <= ALIKE * one.seconds
    if one.kind == MODE:
        return abs(one.size.estimate - other.size.estimate) <= 10 * ALIKE * one.size.estimate
    return one.kind != DRIFT or one.size.estimate * other.size.estimate > 0


def _together(group: list[Anomaly]) -> Anomaly:
    """Return the mean of equal anomalies, with an interval that contains all of theirs."""
    sizes = [one.size for one in group]
    lows, highs = [one.low for one in sizes if one.low is not None], [one.high for one in sizes if one.high is not None]
    whole = len(lows) == len(sizes)
    mean = float(np.mean([one.estimate for one in sizes]))
    size = Interval(mean, min(lows) if whole else None, max(highs) if whole else None, sizes[0].level, sizes[0].n)
    seconds, lasts, share = (
        _mean([getattr(one, name) for one in group]) for name in ("seconds", "duration_s", "share")
    )
    chances = [one.p for one in group if one.p is not None]
    p = max(chances) if len(chances) == len(group) else None
    return replace(group[0], size=size, p=p, seconds=seconds, duration_s=lasts, share=share)


def _mean(values: list[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return float(np.mean(known)) if known else None


def attributed(run: Run, shown: list[Shown]) -> list[Shown]:
    """Add whether any series of the direct link in its cell shows it too, and whether it is constant in probes or in
    time."""
    direct = [one for one in shown if one.device in (DIRECT, A_A)]
    found = []
    for one in shown:
        others = [other for other in direct if other.cell == one.cell and _same(one.anomaly, other.anomaly)]
        own = one.device in (DIRECT, A_A)
        found.append(replace(one, on_direct=not own and bool(others), told_by=_told_by(run, one, shown)))
    return found


def _same(one: Anomaly, other: Anomaly) -> bool:
    """Return whether a path's anomaly is the direct link's: of the same kind and period, and as large."""
    return (are_alike(one, other) or (one.kind == other.kind == STEP)) and _as_large(one.size, other.size)


def _as_large(one: Interval, other: Interval) -> bool:
    """Return whether two sizes have one sign, and overlapping intervals or estimates that differ little."""
    if one.estimate * other.estimate <= 0:
        return False
    if abs(one.estimate - other.estimate) <= 10 * ALIKE * abs(other.estimate):
        return True
    ends = (one.low, one.high, other.low, other.high)
    return None not in ends and ends[0] <= ends[3] and ends[2] <= ends[1]  # type: ignore[operator]


def _told_by(run: Run, one: Shown, shown: list[Shown]) -> str | None:
    """Return whether the same device, probed at another interval, shows the same number of probes or the same time."""
    every, interval = one.anomaly.every, run.cells[one.cell].interval_ns or 0
    if every is None:
        return None
    for other in shown:
        there = run.cells[other.cell].interval_ns or 0
        if other.device == one.device and other.anomaly.kind == EVERY and there != interval:
            if other.anomaly.every == every:
                return COUNTED
            if abs((other.anomaly.every or 0) * there - every * interval) <= ALIKE * every * interval:
                return TIMED
    return EITHER


def anomaly_rows(run: Run, shown: list[Shown]) -> list[Row]:
    """Return the largest anomaly of each kind, path and cell."""
    rows, known = [], set()
    for one in sorted(shown, key=lambda one: -abs(one.anomaly.size.estimate)):
        of, place = one.anomaly, (one.device, one.cell, one.anomaly.kind)
        if place in known:
            continue
        known.add(place)
        figures = [("size", of.size, "ns")]
        plain = (("every", of.every, "1"), ("period", _ns(of.seconds), "ns"), ("duration", _ns(of.duration_s), "ns"),
                 ("share", of.share, "1"))  # fmt: skip
        figures += [(name, Interval(value, None, None, 0.95, one.seen), unit)
                    for name, value, unit in plain if value is not None]  # fmt: skip
        rows += [
            Row(one.device, f"anomaly_{name}", SLUGS[of.kind], value, unit, None, run.cells[one.cell], one.cell)
            for name, value, unit in figures
        ]
    return rows


def _ns(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e9


def found(run: Run, shown: list[Shown]) -> Iterator[Finding]:
    """Return a finding for each kind that most series of a path and cell show, the largest first."""
    for kind in KINDS:
        told: dict[Place, Shown] = {}
        for one in shown:
            if one.anomaly.kind == kind and one.is_told:
                place = Place(one.device, one.cell)
                if place not in told or abs(told[place].anomaly.size.estimate) < abs(one.anomaly.size.estimate):
                    told[place] = one
        if told:
            places, _ = worst_first({place: abs(one.anomaly.size.estimate) for place, one in told.items()})
            worst = told[places[0]]
            yield Finding(NAMES[kind], phrase(run, worst), _value(worst.anomaly), places)


def _value(anomaly: Anomaly) -> float:
    """Return the number of a finding: the period if there is one, else the size in ns."""
    if anomaly.every is not None:
        return float(anomaly.every)
    return anomaly.seconds if anomaly.seconds is not None else anomaly.size.estimate


def phrase(run: Run, one: Shown) -> str:
    """Return one anomaly in words, with its period, its size and the number of series that show it."""
    of = one.anomaly
    size = micro(of.size.estimate) + (
        "" if of.size.low is None or of.size.high is None else f" ({micro(of.size.low)} to {micro(of.size.high)})"
    )
    which = f"every {_ordinal(of.among)} probe" if of.among else "the round trip"
    lasts = f"{of.duration_s or 0:.3g} s"
    said = {
        EVERY: f"every {_ordinal(of.every or 0)} probe takes {size} longer{_after(run, one)}",
        PULSE: f"every {of.seconds or 0:.4g} s {which} takes {size} longer for {lasts}",
        RAMP: f"every {of.seconds or 0:.4g} s {which} takes longer and longer, up to {size} within {lasts}",
        STEP: f"the round trip changes at once by {size}, {of.at_s or 0:.3g} s after the beginning of a series",
        DRIFT: f"the round trip drifts by {size} within {lasts}",
        MODE: f"{percent(of.share or 0)} of the round trips are {size} above the fastest mode",
    }[of.kind]
    several = f" (in {one.seen} of {one.series} series)" if one.seen < one.series else ""
    direct = "; the direct link shows it too" if one.on_direct else ""
    return f"{said}{several}{direct}"


def _after(run: Run, one: Shown) -> str:
    """Return the time of a counted period, and whether it is constant in probes or in time."""
    seconds = (one.anomaly.every or 0) * (run.cells[one.cell].interval_ns or 0) / 1e9
    if one.told_by == COUNTED:
        return " at every interval between probes"
    return f", that is every {seconds:.4g} s" + (
        ": the period is constant in time"
        if one.told_by == TIMED
        else ": one interval does not show whether it is constant in probes or in time"
    )


def _ordinal(n: int) -> str:
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def sentence(run: Run, shown: list[Shown]) -> str:
    """Return what the devices show that the direct link does not; else in how many probes nothing was found."""
    devices = [one for one in run.devices if one not in (DIRECT, A_A)] or [DIRECT]
    said = []
    for device in devices:
        own = [one for one in shown if one.device == device and one.is_told and not one.on_direct]
        first: dict[str, Shown] = {}
        for one in sorted(own, key=lambda one: one.cell):
            first.setdefault(one.anomaly.kind, one)
        if first:
            said.append(f"Over {amid(device)}, " + "; ".join(phrase(run, one) for one in first.values()))
            continue
        probes = run.measured.filter(device=device).height
        also = any(one.device == device and one.on_direct for one in shown)
        beside = " that the direct link does not show" if also else ""
        single = sum(one.device == device and not one.is_told and not one.on_direct for one in shown)
        said.append(
            f"{called(device)} shows no anomaly{beside} in {fixed(probes, 0)} probes: no period, ramp, step or mode"
            + (
                f" in most series; {counted(single, 'anomaly', 'anomalies')} in single series only, see the table"
                if single
                else ""
            )
        )
    return f"{'. '.join(said)}; {_reach(run)}"


def _reach(run: Run) -> str:
    """Return the longest periods that the series can show: in probes, and in time at each interval."""
    longest: dict[float, float] = {}
    for block in run.measured.partition_by("block"):
        interval = (run.cells[int(block["cell"][0])].interval_ns or 0) / 1e9
        span = float(np.ptp(block["intended_ns"].cast(pl.Float64).to_numpy())) / 1e9
        longest[interval] = max(longest.get(interval, 0.0), span / LEAST_RETURNS)
    times = [f"{seconds:.3g} s at {interval * 1e3:.3g} ms" for interval, seconds in sorted(longest.items())]
    series = run.measured["block"].n_unique()
    searched = counted(series, "series", "series")
    return f"{searched} were searched for periods of up to {LONGEST} probes and of up to {', '.join(times)}"


def _table(shown: list[Shown]) -> pl.DataFrame:
    rows = []
    for one in shown:
        told = {**asdict(one.anomaly), **asdict(one)}
        size = one.anomaly.size
        told |= {"size_ns": size.estimate, "low_ns": size.low, "high_ns": size.high}
        rows.append({name: told[name] for name in ANOMALIES.own})
    return pl.DataFrame(rows, schema=ANOMALIES.own)


def _profiles(shown: list[Shown]) -> pl.DataFrame:
    """Return the mean delay over the position in each period."""
    rows = []
    for one in shown:
        of = one.anomaly
        unit = f"every {_ordinal(of.every)} probe" if of.every is not None else f"every {of.seconds or 0:.3g} s"
        name = unit + (f", of each {_ordinal(of.among)} probe" if of.among else "")
        rows += [(one.device, one.cell, name, x, excess) for x, excess in of.profile]
    return pl.DataFrame(rows, schema=PROFILES.own, orient="row")
