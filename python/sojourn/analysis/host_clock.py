"""Host B's times on host A's clock, by what was exchanged between the trials: for records that made no exchanges.

A run over hosts with two clocks has clock trials (`conduct/clock_trials.py`): short streams before the first batch of
each session, behind each batch and within long ones. Here a time of B is read by the nearest of their lines of the same
session, for a host may have been booted between two sessions. Between two lines and beyond them the errors grow
(`clocks.Lines`). What reads a table afterwards knows one clock. Where a session has no line, its times of B are left
out, never taken for A's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from sojourn.analysis.clocks import Lines, asymmetries_of, largest_step, lines_of
from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.wording import counted, micro, percent
from sojourn.records.clock_trials import CLOCK_TRIAL, PURPOSE
from sojourn.records.lost import in_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run

Reader = Callable[[Sequence[int]], list[int]]
"""Reads times of B on A's clock."""

FAR = "b"
"""How the names of programs at host B begin, in the names of what they recorded."""

IMPRECISE = 0.01
"""Of the time that figures are of: a maximum error of the clocks above this share is a finding."""


LOOKS = 9
"""At so many times, evenly spaced, the errors within a trial are looked at."""


@dataclass(frozen=True, slots=True)
class Errors:
    """How wrong the times of B in one trial can be on A's clock, in ns."""

    bound_ns: float
    error95_ns: float


@dataclass(frozen=True, slots=True)
class FarClock:
    """How to read B's clock on A's, by part; a part without lines has none."""

    parts: Mapping[int, Lines]

    def reader(self, part: int) -> Reader:
        """Return what reads times of B in this part, which has lines."""
        lines = self.parts[part]

        def read(times: Sequence[int]) -> list[int]:
            found: list[int] = lines.convert(np.array(times, dtype=np.int64))[0].tolist()
            return found

        return read

    def errors(self, part: int, begin: float, end: float) -> Errors:
        """Return the largest errors of what B stamped between two times of A; the part has lines."""
        lines, at = self.parts[part], np.linspace(begin, end, LOOKS).astype(np.int64)
        middles = lines.reference - np.rint(lines.offset).astype(np.int64)
        nearest = np.abs(middles[:, None] - at).argmin(axis=0)
        ahead = lines.offset[nearest] + lines.skew[nearest] * (at - middles[nearest])
        _, bound, error95 = lines.convert(at + np.rint(ahead).astype(np.int64))
        return Errors(float(bound.max()), float(error95.max()))

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
    """A run on A's clock, and how wrong the times of B may be in it."""

    run: Run
    is_joined: bool = False
    """Whether there were two clocks."""
    clock: FarClock = field(default_factory=lambda: FarClock({}))
    errors: Mapping[int, Errors] = field(default_factory=dict)
    """By block, of each trial that has times of B."""
    unknown: tuple[Place, ...] = ()
    """The place of each trial that has times of B which cannot be read: the log of `run` has it no longer."""

    def worst(self, blocks: Iterable[int]) -> Errors | None:
        """Return the largest errors of these trials; None where none has times of B."""
        several = [self.errors[block] for block in blocks if block in self.errors]
        if not several:
            return None
        return Errors(max(one.bound_ns for one in several), max(one.error95_ns for one in several))

    def state(self, row: Row, blocks: Iterable[int]) -> None:
        """Tell the clocks' errors of a figure over these trials that may be between both; nothing of one clock."""
        if self.is_joined:
            worst = self.worst(blocks) or Errors(0.0, 0.0)
            row.between_clocks(worst.bound_ns, worst.error95_ns)


class Trials(NamedTuple):
    """How a method's trials stand in the log."""

    event: str
    has_far: Callable[[dict[str, Any]], bool]
    """Whether figures are of times of B in a trial's entry, or in its records."""
    read: Callable[[dict[str, Any], Reader], dict[str, Any]]
    """The entry with its times of B read by what reads them."""
    lasts: Callable[[dict[str, Any]], tuple[float, float]]
    """From when to when it has times of B, on A's clock, of an entry that was read."""
    device: str = "device"
    """Where the entry has its path."""


def on_one_clock(run: Run, trials: Trials, tables: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> OneClock:
    """Return the run, all of whose times are of A's clock; the same where its hosts have one.

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
    """Return the log without the trials that cannot be read, and with times of A's clock in those that can."""
    part_of = {id(entry): part for part, entry in in_parts(run.log, trials.event)}
    log, errors, unknown = [], {}, []
    for entry in run.log:
        part = part_of.get(id(entry))
        if part is None or not trials.has_far(entry):
            log.append(entry)
        elif part in clock.parts:
            log.append(own := trials.read(entry, clock.reader(part)))
            errors[int(own["block"])] = clock.errors(part, *trials.lasts(own))
        else:
            unknown.append(Place(str(entry[trials.device]), int(entry["cell"])))
    return log, errors, tuple(unknown)


def has_two_clocks(run: Run) -> bool:
    """Return whether the hosts of a run had clocks of their own, which clock trials brought together, or were to."""
    return any(event.get("event") == CLOCK_TRIAL for event in run.log)


def far_clock(run: Run) -> FarClock:
    """Return B's clock by the run's clock trials."""
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
    """Yield what is wrong with the clocks of a run that has clock trials; of one clock, nothing.

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
    if step := max((largest_step(lines) for lines in joined.clock.parts.values()), key=abs, default=0.0):
        sentence = f"one of the clocks of hosts A and B stepped by {micro(step)} between two clock trials"
        yield Finding("clock_stepped", sentence, step)
    told = asymmetries_of(event for event in joined.run.log if event.get("event") == CLOCK_TRIAL)
    yield from (one for one in told if delays or one.name != "clock_asymmetric")
