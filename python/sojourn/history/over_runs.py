"""The runs of a study compared: for each bed and figure the values over runs and boots, limits, and components.

Invalid runs are shown but not counted. An occasion is one boot on one day: variation between boots and variation
between days are not separated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from sojourn.analysis.comparison import key_of
from sojourn.analysis.leading import place_of
from sojourn.statistics.control_chart import Limits, individuals
from sojourn.statistics.nested import Component, Scatter, between_groups, within_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.history.entry import Entry, Figure

DAY_NS = 86_400_000_000_000


@dataclass(frozen=True, slots=True)
class Value:
    """One figure of one run, and whether it lies outside the limits."""

    entry: Entry
    figure: Figure
    is_outside: bool

    @property
    def counts(self) -> bool:
        """Whether the run is counted."""
        return self.entry.verdict != "invalid"


@dataclass(frozen=True, slots=True)
class Series:
    """One figure over the runs of one bed, in time order."""

    values: tuple[Value, ...]
    limits: Limits | None
    between: Component | None
    repeats: Scatter | None
    """The variation of runs on one boot and day beyond their own intervals."""
    occasions: int
    """The number of boots, and days within a boot, of the counted runs."""

    @property
    def figure(self) -> Figure:
        """The figure, with its latest value."""
        return self.values[-1].figure

    @property
    def counted(self) -> list[Value]:
        """The values of counted runs."""
        return [value for value in self.values if value.counts]


@dataclass(frozen=True, slots=True)
class OfBed:
    """All runs of a study on one bed."""

    bed: str
    entries: tuple[Entry, ...]
    series: tuple[Series, ...]


def over_runs(entries: Sequence[Entry]) -> list[OfBed]:
    """Return the beds of these runs, the one with the newest run last; each with its figures in order."""
    beds: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda one: one.began_ns):
        beds.setdefault(entry.bed, []).append(entry)
    newest_last = sorted(beds.items(), key=lambda item: item[1][-1].began_ns)
    return [OfBed(bed, tuple(runs), tuple(series_of(runs))) for bed, runs in newest_last]


def components_of(entries: Sequence[Entry], bed: str) -> dict[tuple[object, ...], Component]:
    """Return the variation between boots on one bed, for figures where it is known, by `key_of` their rows."""
    known = (series for one in over_runs(entries) if one.bed == bed for series in one.series)
    return {key_of(one.figure.row): one.between for one in known if one.between is not None}


def repeats_of(entries: Sequence[Entry], bed: str) -> dict[tuple[object, ...], Scatter]:
    """Return the variation between runs on one boot and day on one bed, where known, by `key_of` the figures' rows."""
    known = (series for one in over_runs(entries) if one.bed == bed for series in one.series)
    return {key_of(one.figure.row): one.repeats for one in known if one.repeats is not None}


def series_of(entries: Sequence[Entry]) -> list[Series]:
    """Return every figure of these runs, over the runs that have it."""
    found: dict[object, list[tuple[Entry, Figure]]] = {}
    for entry in entries:
        for figure in entry.figures:
            found.setdefault(figure.of, []).append((entry, figure))
    made = [series(pairs) for pairs in found.values()]
    return sorted(made, key=lambda one: place_of(one.figure.row))


def series(pairs: Sequence[tuple[Entry, Figure]]) -> Series:
    """Return one figure over runs, with limits and components from the counted runs."""
    used = [(entry, figure) for entry, figure in pairs if entry.verdict != "invalid"]
    limits = individuals(np.array([figure.estimate for _, figure in used]))
    known = [(entry, figure) for entry, figure in used if entry.boot]
    occasions = [occasion(entry) for entry, _ in known]
    estimates = np.array([figure.estimate for _, figure in known])
    errors = np.array([standard_error(figure) for _, figure in known])
    component = between_groups(estimates, occasions, errors)
    values = [
        Value(entry, figure, limits is not None and entry.verdict != "invalid" and limits.excludes(figure.estimate))
        for entry, figure in pairs
    ]
    return Series(tuple(values), limits, component, within_groups(estimates, occasions, errors), len(set(occasions)))


def occasion(entry: Entry) -> tuple[str | None, int]:
    """Return the boot and the day (UTC) of a run."""
    return entry.boot, entry.began_ns // DAY_NS


def standard_error(figure: Figure) -> float:
    """Return the standard error from the interval's width, by Student's distribution; NaN without an interval.

    For a truncated interval, of a rate at 0 or a share at 1, the longer side is used for both.
    """
    if figure.ci_low is None or figure.ci_high is None:
        return float("nan")
    n, share = figure.sessions or figure.n or 0, (1 + (figure.level or 0.95)) / 2
    reach = special.stdtrit(n - 1, share) if n >= 3 else special.ndtri(share)
    is_cut = figure.ci_low == 0 or (figure.unit == "1" and figure.ci_high == 1)
    longer = max(figure.ci_high - figure.estimate, figure.estimate - figure.ci_low)
    return float((longer if is_cut else (figure.ci_high - figure.ci_low) / 2) / reach)
