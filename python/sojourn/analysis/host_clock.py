"""Host B's times on host A's clock, by what was exchanged between the trials: for records that made no exchanges.

A run over hosts with two clocks has clock trials (`conduct/clock_trials.py`): short streams before the first batch of
each session, behind each batch and within long ones. Here a time of B is read by the nearest of their lines of the same
session, for a host may have been booted between two sessions. Between two lines and beyond them the errors grow
(`clocks.Lines`). What reads a table afterwards knows one clock. Where a session has no line, its times of B are left
out, never taken for A's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.clocks import Lines, asymmetries_of, lines_of
from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.wording import counted, micro, percent
from sojourn.records.clock_trials import CLOCK_TRIAL, PURPOSE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from sojourn.analysis.run import Run

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

    def read(self, part: int, times: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """These times of B on A's clock; None where nothing is known of the two in this part."""
        return self.parts[part].convert(times)[0] if part in self.parts else None

    def errors(self, part: int, begin: float, end: float) -> Errors:
        """The largest errors of what B stamped between two times of A; the part has lines."""
        lines, at = self.parts[part], np.linspace(begin, end, LOOKS).astype(np.int64)
        middles = lines.reference - np.rint(lines.offset).astype(np.int64)
        nearest = np.abs(middles[:, None] - at).argmin(axis=0)
        ahead = lines.offset[nearest] + lines.skew[nearest] * (at - middles[nearest])
        _, bound, error95 = lines.convert(at + np.rint(ahead).astype(np.int64))
        return Errors(float(bound.max()), float(error95.max()))

    def table(self, frame: pl.DataFrame, of_far: Sequence[str], of_near: Sequence[str] = ()) -> pl.DataFrame:
        """A table on A's clock: the columns `of_far` of what B wrote, and `of_near` (what B sent) of what A wrote.

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
    """A column on A's clock; null stays null."""
    found = lines.convert(times.fill_null(0).to_numpy())[0]
    return pl.when(pl.lit(times.is_not_null())).then(pl.lit(pl.Series(found, dtype=pl.Int64))).alias(times.name)


def has_two_clocks(run: Run) -> bool:
    """Whether the hosts of a run had clocks of their own, which clock trials brought together, or were to."""
    return any(event.get("event") == CLOCK_TRIAL for event in run.log)


def far_clock(run: Run) -> FarClock:
    """B's clock by the run's clock trials."""
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
    run: Run, errors: Mapping[Place, Errors], unknown: Collection[Place], lasts_ns: float, *, delays: bool
) -> Iterator[Finding]:
    """What is wrong with the clocks of a run that has clock trials.

    `errors` are the largest of each place's trials, `unknown` the place of each trial that cannot be read, `lasts_ns`
    the time that figures are of. Ways that differ matter where there are one-way `delays`: the maximum error holds.
    """
    if unknown:
        sentence = (
            f"in the sessions of {counted(len(unknown), 'trial')} nothing brought the clocks of hosts A and B "
            "together: these trials are in no figure"
        )
        yield Finding("clock_unsynchronised", sentence, float(len(unknown)), tuple(dict.fromkeys(unknown)))
    large = {place: one.bound_ns for place, one in errors.items() if one.bound_ns > IMPRECISE * lasts_ns}
    if large:
        places, worst = worst_first(large)
        sentence = (
            f"times of host B may be wrong by {micro(worst)} on host A's clock, {percent(worst / lasts_ns)} of the "
            "time that figures are of"
        )
        yield Finding("clock_imprecise", sentence, worst, places)
    told = asymmetries_of(event for event in run.log if event.get("event") == CLOCK_TRIAL)
    yield from (one for one in told if delays or one.name != "clock_asymmetric")
