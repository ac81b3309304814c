"""The uncertainty budget of a figure (JCGM 100, "GUM"): which components count, which do not and why, and their sum.

A method states one for each of its headline figures: its `analyse` has `budgets(run, study)`. Entries are uncorrelated
with each other. An entry contained in another is listed but not counted twice; one that a run cannot determine is
listed as unknown. The expanded uncertainty is only given where the scatter is known: without it, it would be too small.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from sojourn.analysis.rows import finite
from sojourn.analysis.wording import micro, percent
from sojourn.statistics.budget import Budget, Component, combine, rectangular
from sojourn.statistics.interval import student_quantile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sojourn.analysis.rows import Row
    from sojourn.statistics.interval import Interval

State = Literal["counted", "contained", "cancels", "outside", "unknown"]
"""The state of an entry: in the combined uncertainty; part of another entry; zero in the difference of two paths; not
of the measurand; not known from this run."""

CLOCK_RATE = 500e-6
"""The largest correction of the clock's rate by Linux (adjtimex(2): `freq` within ± 500 ppm); the rate of a clock kept
by NTP or PTP lies within it."""


MEANS = ("mean", "pooled", "intercept")
"""Statistics of a delay that differ between instances by as much as its mean."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A source of uncertainty: its component if known, whether it counts, and its origin or the reason why it does not.

    `source` is a phrase for a reader of the report, without a full stop.
    """

    name: str
    state: State
    source: str
    component: Component | None = None
    is_required: bool = False
    """Without it there is no expanded uncertainty: a scatter that the interval of the figure must include."""


@dataclass(frozen=True, slots=True)
class Stated:
    """The budget of one figure; `uncovered` names what the expanded uncertainty excludes."""

    name: str
    row: Row
    entries: tuple[Entry, ...]
    uncovered: tuple[str, ...] = ()
    interval_of: str = "the scatter alone"
    """What the row's own interval covers, where U covers more."""

    @property
    def budget(self) -> Budget | None:
        """The combination of the counted entries; None without one of type A, or where a required scatter is
        unknown."""
        counted = [one.component for one in self.entries if one.state == "counted" and one.component is not None]
        lacking = any(one.is_required and one.state == "unknown" for one in self.entries)
        if lacking or not any(one.evaluation == "A" for one in counted):
            return None
        return combine(counted, self.row.value.level)

    def tidy(self) -> dict[str, Any]:
        """Return the budget as in budgets.json; `records.budgets` declares the names."""
        row, budget = self.row, self.budget
        return {
            "name": self.name,
            **{key: getattr(row, key) for key in ("device", "reference", "quantity", "statistic", "cell", "port")},
            "factors": {key: value for key, value in asdict(row.factors).items() if value is not None},
            "estimate": finite(row.value.estimate),
            "unit": row.unit,
            "components": [tidy_entry(one, budget) for one in self.entries],
            "combined": None if budget is None else budget.combined,
            "effective_degrees": None if budget is None else finite(budget.effective_degrees),
            "coverage_factor": None if budget is None else budget.coverage_factor,
            "expanded": None if budget is None else budget.expanded,
            "level": row.value.level,
            "interval_half_width": finite(row.sampled.longer),
            "interval_of": self.interval_of,
            "not_covered": list(self.uncovered),
        }


def tidy_entry(entry: Entry, budget: Budget | None) -> dict[str, Any]:
    """Return one component, with its share of the combined variance if it is counted."""
    of, is_counted = entry.component, entry.state == "counted"
    return {
        "name": entry.name,
        "state": entry.state,
        "evaluation": None if of is None else of.evaluation,
        "standard_uncertainty": None if of is None else of.standard_uncertainty,
        "unit": None if of is None else of.unit,
        "distribution": None if of is None else of.distribution,
        "sensitivity": None if of is None else of.sensitivity,
        "degrees_of_freedom": None if of is None else finite(of.degrees),
        "contribution": None if of is None else of.contribution,
        "share": budget.share(of) if budget is not None and of is not None and is_counted else None,
        "source": entry.source,
    }


def counted(component: Component, source: str) -> Entry:
    """Return a component of the combined uncertainty."""
    return Entry(component.name, "counted", source, component)


def unknown(name: str, why: str) -> Entry:
    """Return an entry that this run cannot determine."""
    return Entry(name, "unknown", why)


def required(name: str, why: str) -> Entry:
    """Return a scatter that this run cannot determine: without it no expanded uncertainty is stated."""
    return Entry(name, "unknown", why, is_required=True)


def scatter(name: str, row: Row, units: int, source: str) -> Entry:
    """Return the scatter behind the row's interval over n independent values; unknown without an interval.

    u = half-width / t, with Student's quantile t for units - 1 degrees of freedom: this entry by itself then has the
    row's interval as its expanded uncertainty. Of an asymmetric interval the longer side counts. For an interval of
    ranks this holds by definition, not by theory.
    """
    u = standard_error(row.sampled, units)
    if u is None:
        return required(name, f"{source}; too few values for an interval, or values without any scatter")
    return counted(Component(name, "A", u, row.unit, "student-t", 1.0, units - 1), source)


def within_beds(rows: Iterable[Row], row: Row, what: str) -> list[Entry]:
    """Return the scatter within beds, of a row over several: the means of beds contain it, so it is listed but not
    counted."""
    own = (row.device, row.reference, row.quantity, row.cell, row.port, "within_bed")
    alike = (
        one for one in rows
        if (one.device, one.reference, one.quantity, one.cell, one.port, one.statistic) == own
    )  # fmt: skip
    found, degrees = next(alike, None), row.value.n - (row.sessions or 1)
    u = None if found is None else standard_error(found.sampled, degrees + 1)
    if u is None or row.sessions is None:
        return []
    component = Component("scatter within a bed", "A", u, row.unit, "student-t", 1.0, degrees)
    return [Entry(component.name, "contained", f"{row.value.n} {what}; part of the scatter between beds", component)]


def instance(rows: Iterable[Row], row: Row, of: str, name: str = "instance of link and device") -> Entry:
    """Return the variation between devices of one kind: each bed has new ones, so the scatter between beds
    contains it."""
    found = next((one for one in rows if (one.device, one.quantity) == (of, "between_instances")), None)
    if found is not None and not _is_of_instances(row, found.unit):
        found = None
    where = "each bed has new instances, so this is part of the scatter between beds"
    if found is None or found.sessions is None:
        return Entry(name, "contained", where)
    # Each bed has two instances: the mean over all of them has this standard deviation over the root of their number.
    degrees, sd = found.sessions - 1, found.value.estimate
    of_mean = sd / (2 * found.sessions) ** 0.5
    shown = micro(sd) if found.unit == "ns" else percent(sd)
    of_figure = 1.0 if found.unit == row.unit else row.value.estimate  # a rate's is relative to it
    seen = (
        f"instances of the device differ by sd {shown}"
        if sd
        else "two instances in a bed do not differ by more than scatter"
    )
    component = Component(name, "A", of_mean, found.unit, "normal", of_figure, degrees)
    return Entry(name, "contained", f"{seen}; {where}", component)


def _is_of_instances(row: Row, unit: str | None) -> bool:
    """Return whether the variation of instances applies to such a row: mean delays in ns, or rates by their share."""
    return (row.unit == unit == "ns" and row.statistic in MEANS) or (unit == "1" and row.unit in {"1/s", "bit/s"})


def standard_error(value: Interval, units: int) -> float | None:
    """Return the standard uncertainty behind an interval over n values; None without a finite one."""
    reach = value.longer
    if reach is None or units < 2 or not (math.isfinite(reach) and reach > 0):
        return None
    return reach / student_quantile(units - 1, value.level)


def timestamp_resolution(step_ns: float, of_stamps: str, sensitivity: float) -> Entry:
    """Return the effect of a clock that counts in steps: each timestamp lies anywhere within half a step (GUM F.2.2.1).

    All timestamps of the figure are assumed to err in the direction that adds up: averaging is not relied upon.
    """
    component = rectangular("resolution of timestamps", step_ns / 2, "ns", sensitivity)
    return counted(component, f"all timestamps of the run are multiples of {step_ns:g} ns; {of_stamps}")


def clock_rate(estimate_ns: float) -> Entry:
    """Return the effect of an uncalibrated clock's rate on a time measured with it."""
    component = rectangular("rate of the clock", CLOCK_RATE, "1", estimate_ns)
    return counted(
        component,
        "the run does not compare its clock with a standard; Linux adjusts the rate of a clock by 500 ppm at most",
    )


BOOTS = unknown(
    "between boots and days",
    "a run has one boot; `sojourn history` estimates it from six boots or days on",
)
OTHER_DAYS = "reboots and other days"
