"""The runs of a study side by side: for each bed and figure the values over runs and boots, limits, and components.

Invalid runs are shown and count for nothing. An occasion is one boot on one day: what differs between boots and what
differs between days are not separated.
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
        """Whether the run may be used."""
        return self.entry.verdict != "invalid"


@dataclass(frozen=True, slots=True)
class Series:
    """One figure over the runs of one bed, the earliest first."""

    values: tuple[Value, ...]
    limits: Limits | None
    between: Component | None
    repeats: Scatter | None
    """How far runs on one boot and day differ beyond their own intervals."""
    occasions: int
    """Boots, and days within a boot, that the runs which count were made on."""

    @property
    def figure(self) -> Figure:
        """The figure, with the value that it had last."""
        return self.values[-1].figure

    @property
    def counted(self) -> list[Value]:
        """The values of runs that may be used."""
        return [value for value in self.values if value.counts]


@dataclass(frozen=True, slots=True)
class OfBed:
    """All runs of a study on one bed."""

    bed: str
    entries: tuple[Entry, ...]
    series: tuple[Series, ...]


def over_runs(entries: Sequence[Entry]) -> list[OfBed]:
    """The beds of these runs, that with the newest run last; of each its figures, in the order of leading figures."""
    beds: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda one: one.began_ns):
        beds.setdefault(entry.bed, []).append(entry)
    newest_last = sorted(beds.items(), key=lambda item: item[1][-1].began_ns)
    return [OfBed(bed, tuple(runs), tuple(series_of(runs))) for bed, runs in newest_last]


def components_of(entries: Sequence[Entry], bed: str) -> dict[tuple[object, ...], Component]:
    """How far boots differ by the runs on one bed, of the figures where that is known, by `key_of` their rows."""
    known = (series for one in over_runs(entries) if one.bed == bed for series in one.series)
    return {key_of(one.figure.row): one.between for one in known if one.between is not None}


def repeats_of(entries: Sequence[Entry], bed: str) -> dict[tuple[object, ...], Scatter]:
    """How far runs on one boot and day differ on one bed, where that is known, by `key_of` the figures' rows."""
    known = (series for one in over_runs(entries) if one.bed == bed for series in one.series)
    return {key_of(one.figure.row): one.repeats for one in known if one.repeats is not None}


def series_of(entries: Sequence[Entry]) -> list[Series]:
    """Every figure that these runs have, over those that have it."""
    found: dict[object, list[tuple[Entry, Figure]]] = {}
    for entry in entries:
        for figure in entry.figures:
            found.setdefault(figure.of, []).append((entry, figure))
    made = [series(pairs) for pairs in found.values()]
    return sorted(made, key=lambda one: place_of(one.figure.row))


def series(pairs: Sequence[tuple[Entry, Figure]]) -> Series:
    """One figure over runs: limits and components from those that may be used."""
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
    """The boot and the day (UTC) of a run."""
    return entry.boot, entry.began_ns // DAY_NS


def standard_error(figure: Figure) -> float:
    """From the interval's width, as Student's of what it is over; not a number without an interval.

    Of one that is cut, of a rate at 0 or of a share at 1, the longer side stands for both.
    """
    if figure.ci_low is None or figure.ci_high is None:
        return float("nan")
    n, share = figure.sessions or figure.n or 0, (1 + (figure.level or 0.95)) / 2
    reach = special.stdtrit(n - 1, share) if n >= 3 else special.ndtri(share)
    is_cut = figure.ci_low == 0 or (figure.unit == "1" and figure.ci_high == 1)
    longer = max(figure.ci_high - figure.estimate, figure.estimate - figure.ci_low)
    return float((longer if is_cut else (figure.ci_high - figure.ci_low) / 2) / reach)
