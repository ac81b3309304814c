"""Converts host B's times to host A's clock, by the clock trials of a run: for trials that make no exchanges.

A run over hosts with two clocks has clock trials (`conduct/clock_trials.py`): short streams before the first batch of
each session, behind each batch and within long ones. Here a time of B is read by the nearest of their lines of the same
session, for a host may have been booted between two sessions. Between two lines and beyond them the errors grow
(`clocks.Lines`). What reads a table afterwards knows one clock. Where a session has no line, its times of B are left
out, never taken for A's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from sojourn.analysis.clocks import DRIFT_95, SKEW_MOST, Lines, asymmetries_of, largest_step, lines_of
from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.wording import counted, micro, percent
from sojourn.records.clock_trials import CLOCK_TRIAL, PURPOSE
from sojourn.records.lost import in_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run

Reader = Callable[[Sequence[int]], list[int]]
"""Converts times of B to A's clock."""

FAR = "b"
"""The first letter of the names of programs at host B, in the column `who`."""

IMPRECISE = 0.01
"""The largest maximum error of the clocks without a finding, as a share of the time that figures cover."""


LOOKS = 9
"""At so many evenly spaced times the error within a trial is evaluated, and at the middles between lines."""


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of B's times on A's clock in one trial, in ns."""

    bound_ns: float
    error95_ns: float
    one_sided: bool = False
    """Whether all clock trials of the session are before the trial's end, or all behind its begin."""


@dataclass(frozen=True, slots=True)
class Along:
    """B's clock during one trial: straight from the clock trial before it to the one behind it.

    For figures of B's times alone, between which a constant offset cancels: what matters is the rate of the clocks.
    Between two clock trials it is known better than within one, which lasts 0.8 s.
    """

    origin: int
    """A time of B at which the offset is known; the others are counted from there."""
    offset_ns: float
    rate: float
    """By how much the offset grows per ns of B."""
    rate95: float
    """The 95 % error of a duration, per ns of it."""
    error95_ns: float
    """The 95 % error of the time between any two times in the trial."""
    bound_ns: float
    """The maximum error of the same."""
    rate_most: float
    """The maximum error of a duration, per ns of it: two skews that a clock may have, one after the other."""
    one_sided: bool
    """Whether there are clock trials before it alone, or behind it alone."""

    def read(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return times of B on A's clock."""
        return np.asarray(times - np.rint(self._offset(times)).astype(np.int64), dtype=np.int64)

    def _offset(self, times: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(self.offset_ns + self.rate * (times - self.origin), dtype=np.float64)


def along(lines: Lines, begin: int, end: int) -> Along | None:
    """Return the clock from one time of B to another; None if no line is before or behind."""
    before, after = np.flatnonzero(lines.reference <= begin), np.flatnonzero(lines.reference >= end)
    if not len(before) and not len(after):
        return None
    first, last = (int(before[-1]) if len(before) else None), (int(after[0]) if len(after) else None)
    lasts = end - begin
    if first is None or last is None:
        one = last if first is None else first
        assert one is not None
        away = int(max(abs(begin - lines.reference[one]), abs(end - lines.reference[one])))
        drift95 = DRIFT_95 * away
        straight = Along(int(lines.reference[one]), float(lines.offset[one]), float(lines.skew[one]),
                         float(lines.skew95[one]) + drift95, (float(lines.skew95[one]) + drift95) * lasts, 0.0, 0.0,
                         one_sided=True)  # fmt: skip
    else:
        ends = np.array([lines.reference[first], lines.reference[last]], dtype=np.int64)
        apart = int(ends[1] - ends[0])
        offsets = lines.offset[[first, last]]
        errors = lines.convert(ends)[2]
        rate95 = math.hypot(*errors) / apart
        # A skew that drifts leaves the straight line by so much in the middle, and by so much per ns at its ends.
        bend_ns, bend = DRIFT_95 * apart**2 / 8, DRIFT_95 * apart / 2
        straight = Along(int(ends[0]), float(offsets[0]), float(np.diff(offsets)[0]) / apart, rate95 + bend,
                         min(rate95 * lasts + bend_ns, (rate95 + bend) * lasts), 0.0, 0.0,
                         one_sided=False)  # fmt: skip
    most = 2 * max(SKEW_MOST, *(float(lines.skew_bound[one]) for one in (first, last) if one is not None))
    return replace(straight, bound_ns=_largest(lines, straight, begin, end), rate_most=most)


def _largest(lines: Lines, straight: Along, begin: int, end: int) -> float:
    """Return the maximum error between two times in a trial: twice that of one, at which the nearest line is believed
    within its own, and the straight one is away from it."""
    between = (lines.end[:-1] + lines.begin[1:]) // 2
    within = between[(between > begin) & (between < end)]
    times = np.concatenate([np.linspace(begin, end, LOOKS).astype(np.int64), within, within + 1])
    at, bound, _ = lines.convert(times)
    return 2 * float((bound + np.abs(at - straight.read(times))).max())


@dataclass(frozen=True, slots=True)
class FarClock:
    """The lines between B's clock and A's, by part; a part without clock trials is missing."""

    parts: Mapping[int, Lines]

    def reader(self, part: int) -> Reader:
        """Return the conversion for times of B in this part, which must have lines."""
        lines = self.parts[part]

        def read(times: Sequence[int]) -> list[int]:
            found: list[int] = lines.convert(np.array(times, dtype=np.int64))[0].tolist()
            return found

        return read

    def errors(self, part: int, begin: float, end: float) -> Errors:
        """Return the largest errors of what B stamped between two times of A; the part has lines.

        Errors grow from line to line up to the middle between two, where the nearest line changes.
        """
        lines, at = self.parts[part], np.linspace(begin, end, LOOKS).astype(np.int64)
        middles = lines.reference - np.rint(lines.offset).astype(np.int64)
        nearest = np.abs(middles[:, None] - at).argmin(axis=0)
        ahead = lines.offset[nearest] + lines.skew[nearest] * (at - middles[nearest])
        times = at + np.rint(ahead).astype(np.int64)
        between = (lines.end[:-1] + lines.begin[1:]) // 2
        within = between[(between > times[0]) & (between < times[-1])]
        _, bound, error95 = lines.convert(np.concatenate([times, within, within + 1]))
        one_sided = bool(times[-1] > lines.end.max() or times[0] < lines.begin.min())
        return Errors(float(bound.max()), float(error95.max()), one_sided)

    def table(self, frame: pl.DataFrame, of_far: Sequence[str], of_near: Sequence[str] = ()) -> pl.DataFrame:
        """Return a table on A's clock: columns `of_far` of what B wrote, and `of_near` (what B sent) of what A wrote.

        Rows with a time of B that nobody can read are left out.
        """
        found = [frame.clear()]
        marked = frame.with_columns(_far=pl.col("who").str.starts_with(FAR))
        for (part, is_far), several in marked.partition_by("part", "_far", as_dict=True, maintain_order=True).items():
            rows, columns = several.drop("_far"), of_far if is_far else of_near
            if not columns:
                found.append(rows)
            elif (lines := self.parts.get(int(str(part)))) is not None:
                found.append(rows.with_columns(_read(rows[name], lines) for name in columns))
        return pl.concat(found)


def _read(times: pl.Series, lines: Lines) -> pl.Expr:
    """Return a column on A's clock; null stays null."""
    found = lines.convert(times.fill_null(0).to_numpy())[0]
    return pl.when(pl.lit(times.is_not_null())).then(pl.lit(pl.Series(found, dtype=pl.Int64))).alias(times.name)


@dataclass(frozen=True, slots=True)
class OneClock:
    """A run whose times are all on A's clock, and the errors of the converted times."""

    run: Run
    is_joined: bool = False
    """Whether the hosts had two clocks."""
    clock: FarClock = field(default_factory=lambda: FarClock({}))
    errors: Mapping[int, Errors] = field(default_factory=dict)
    """The errors by block, of each trial that has times of B."""
    unknown: tuple[Place, ...] = ()
    """The place of each trial whose times of B cannot be converted; `run` lacks these trials."""

    def worst(self, blocks: Iterable[int]) -> Errors | None:
        """Return the largest errors of these trials; None where none has times of B."""
        several = [self.errors[block] for block in blocks if block in self.errors]
        if not several:
            return None
        bound_ns, error95_ns = max(one.bound_ns for one in several), max(one.error95_ns for one in several)
        return Errors(bound_ns, error95_ns, any(one.one_sided for one in several))

    def state(self, row: Row, blocks: Iterable[int]) -> None:
        """Set the clocks' errors of a row whose figure is a difference of times of both hosts; no-op with one clock."""
        if self.is_joined:
            worst = self.worst(blocks) or Errors(0.0, 0.0)
            row.between_clocks(worst.bound_ns, worst.error95_ns)


class Trials(NamedTuple):
    """How a method logs its trials, and which of their times are B's."""

    event: str
    has_far: Callable[[dict[str, Any]], bool]
    """Returns whether figures use times of B, from a trial's entry or from its records."""
    read: Callable[[dict[str, Any], Reader], dict[str, Any]]
    """Returns the entry with its times of B converted."""
    lasts: Callable[[dict[str, Any]], tuple[float, float]]
    """Returns the first and last time of B that a converted entry covers, on A's clock."""
    device: str = "device"
    """The entry's key for its path."""


def on_one_clock(run: Run, trials: Trials, tables: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> OneClock:
    """Return the run with all times on A's clock; unchanged if its hosts share one clock.

    Of each table the columns that B wrote, and those that B sent and A wrote.
    """
    if not has_two_clocks(run):
        return OneClock(run)
    clock = far_clock(run)
    log, errors, unknown = _log(run, trials, clock)
    found = dict(run.tables)
    for name, columns in tables.items():
        table = run.table(name)
        found[name] = replace(table, frame=clock.table(table.frame, *columns)) if table.frame.height else table
    return OneClock(replace(run, log=log, tables=found), is_joined=True, clock=clock, errors=errors, unknown=unknown)


def _log(
    run: Run, trials: Trials, clock: FarClock
) -> tuple[list[dict[str, Any]], dict[int, Errors], tuple[Place, ...]]:
    """Return the log with times on A's clock, without the trials whose times cannot be converted."""
    part_of = {id(entry): part for part, entry in in_parts(run.log, trials.event)}
    last = {int(entry["block"]): id(entry) for entry in run.log if id(entry) in part_of}
    log, errors, unknown = [], {}, []
    for entry in run.log:
        part = part_of.get(id(entry))
        if part is None or not trials.has_far(entry):
            log.append(entry)
        elif last[int(entry["block"])] != id(entry):
            continue  # measured again: the records are those of the last time
        elif part in clock.parts:
            log.append(own := trials.read(entry, clock.reader(part)))
            errors[int(own["block"])] = clock.errors(part, *trials.lasts(own))
        else:
            unknown.append(Place(str(entry[trials.device]), int(entry["cell"])))
    return log, errors, tuple(unknown)


def has_two_clocks(run: Run) -> bool:
    """Return whether the hosts of a run had two clocks: then it has clock trials."""
    return any(event.get("event") == CLOCK_TRIAL for event in run.log)


def far_clock(run: Run) -> FarClock:
    """Return the lines of the run's clock trials."""
    if "purpose" not in run.streams.columns:
        return FarClock({})
    own = run.streams.filter(purpose=PURPOSE).select("block", "part").unique()
    lines = run.clock_lines
    if lines.height:
        lines = lines.join(own, on=["block", "part"], how="semi")
    if not lines.height:
        return FarClock({})
    return FarClock(
        {int(str(part)): lines_of(rows) for (part,), rows in lines.partition_by("part", as_dict=True).items()}
    )


def clock_findings(
    joined: OneClock, places: Mapping[Place, Iterable[int]], lasts_ns: float | None, *, delays: bool
) -> Iterator[Finding]:
    """Yield the findings about the clocks of a run with clock trials; nothing for one clock.

    `places` are the blocks of each, `lasts_ns` the time that figures are of; None where rows have the errors. Ways that
    differ matter where there are one-way `delays`: the maximum error holds.
    """
    if not joined.is_joined:
        return
    if unknown := joined.unknown:
        sentence = (
            f"in the sessions of {counted(len(unknown), 'trial')} nothing brought the clocks of hosts A and B "
            "together: these trials are in no figure"
        )
        yield Finding("clock_unsynchronised", sentence, float(len(unknown)), tuple(dict.fromkeys(unknown)))
    errors = {place: one.bound_ns for place, blocks in places.items() if (one := joined.worst(blocks)) is not None}
    if lasts_ns and (large := {place: error for place, error in errors.items() if error > IMPRECISE * lasts_ns}):
        worst_places, worst = worst_first(large)
        sentence = (
            f"times of host B may be wrong by {micro(worst)} on host A's clock, {percent(worst / lasts_ns)} of the "
            "time that figures are of"
        )
        yield Finding("clock_imprecise", sentence, worst, worst_places)
    alone = [place for place, blocks in places.items() if (one := joined.worst(blocks)) is not None and one.one_sided]
    if alone:
        sentence = (
            f"in {counted(len(alone), 'cell')} a trial has clock trials before it alone, or behind it alone: a step of "
            "a clock meanwhile is not in the error"
        )
        yield Finding("clock_one_sided", sentence, float(len(alone)), tuple(alone))
    if step := max((largest_step(lines) for lines in joined.clock.parts.values()), key=abs, default=0.0):
        sentence = f"one of the clocks of hosts A and B stepped by {micro(step)} between two clock trials"
        yield Finding("clock_stepped", sentence, step)
    told = asymmetries_of(event for event in joined.run.log if event.get("event") == CLOCK_TRIAL)
    yield from (one for one in told if delays or one.name != "clock_asymmetric")
