"""The uncertainty budget of a figure (JCGM 100, "GUM"): what is counted, what is not and why, and what it amounts to.

A method states one for each of its headline figures: its `analyse` has `budgets(run, study)`. Entries are uncorrelated
with each other. One that another contains is listed and not counted twice; one that a run cannot know is listed as not
known. The expanded uncertainty is given only where the scatter is known: without it, it would be a part of the whole.
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
"""Of an entry: in the combined uncertainty; in another entry; zero in the difference of two paths; of something else
than the measurand; not known from this run."""

CLOCK_RATE = 500e-6
"""The most by which Linux corrects the rate of its clock (adjtimex(2): `freq` within ± 500 ppm); the rate of a clock
that is kept by NTP or PTP lies within it."""


MEANS = ("mean", "pooled", "intercept")
"""Statistics of a delay that differ between instances as its mean does."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A source of uncertainty: its value where it has one, whether that is counted, and where it comes from or why not.

    `source` is a phrase for a reader of the report, without a full stop.
    """

    name: str
    state: State
    source: str
    component: Component | None = None
    is_required: bool = False
    """Without it there is no expanded uncertainty: a scatter that the interval of the figure has to hold."""


@dataclass(frozen=True, slots=True)
class Stated:
    """The budget of one figure; `uncovered` says in words what the expanded uncertainty does not hold."""

    name: str
    row: Row
    entries: tuple[Entry, ...]
    uncovered: tuple[str, ...] = ()
    interval_of: str = "the scatter alone"
    """What the row's own interval is of, where U is another."""

    @property
    def budget(self) -> Budget | None:
        """What the counted entries amount to; None where none is of what was measured (type A), or a scatter lacks."""
        counted = [one.component for one in self.entries if one.state == "counted" and one.component is not None]
        lacking = any(one.is_required and one.state == "unknown" for one in self.entries)
        if lacking or not any(one.evaluation == "A" for one in counted):
            return None
        return combine(counted, self.row.value.level)

    def tidy(self) -> dict[str, Any]:
        """The budget as budgets.json holds it; `records.budgets` declares the names."""
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
    """One component; its share of the combined variance where it is counted."""
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
    """A component of the combined uncertainty."""
    return Entry(component.name, "counted", source, component)


def unknown(name: str, why: str) -> Entry:
    """What this run cannot know."""
    return Entry(name, "unknown", why)


def required(name: str, why: str) -> Entry:
    """A scatter that the figure has and this run cannot know: no expanded uncertainty is stated without it."""
    return Entry(name, "unknown", why, is_required=True)


def scatter(name: str, row: Row, units: int, source: str) -> Entry:
    """The scatter that the row's interval is made of, over so many independent values; not known without an interval.

    u = half-width / t, t Student's quantile for units - 1 degrees of freedom: so that this entry by itself has the
    row's interval as its expanded uncertainty; of an interval that is not symmetric, its longer side. For an interval
    of ranks that is the same by definition, not by theory.
    """
    u = standard_error(row.sampled, units)
    if u is None:
        return required(name, f"{source}; too few values for an interval, or values without any scatter")
    return counted(Component(name, "A", u, row.unit, "student-t", 1.0, units - 1), source)


def within_beds(rows: Iterable[Row], row: Row, what: str) -> list[Entry]:
    """The scatter within beds, of a row over several: it is in the means of beds, so it is listed and not counted."""
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
    """What one device differs by from another of its kind: each bed has new ones, so it is in the scatter of beds."""
    found = next((one for one in rows if (one.device, one.quantity) == (of, "between_instances")), None)
    if found is not None and not _is_of_instances(row, found.unit):
        found = None
    where = "each bed has new instances, so this is part of the scatter between beds"
    if found is None or found.sessions is None:
        return Entry(name, "contained", where)
    # Two instances in each of the beds: the mean over all of them has this standard deviation over their root.
    degrees, sd = found.sessions - 1, found.value.estimate
    of_mean = sd / (2 * found.sessions) ** 0.5
    shown = micro(sd) if found.unit == "ns" else percent(sd)
    of_figure = 1.0 if found.unit == row.unit else row.value.estimate  # a rate's is a share of it
    seen = (
        f"instances of the device differ by sd {shown}"
        if sd
        else "two instances in a bed do not differ by more than scatter"
    )
    component = Component(name, "A", of_mean, found.unit, "normal", of_figure, degrees)
    return Entry(name, "contained", f"{seen}; {where}", component)


def _is_of_instances(row: Row, unit: str | None) -> bool:
    """Whether what instances differ by is of such a row's kind: by mean delays, or of a rate by a share of it."""
    return (row.unit == unit == "ns" and row.statistic in MEANS) or (unit == "1" and row.unit in {"1/s", "bit/s"})


def standard_error(value: Interval, units: int) -> float | None:
    """The standard uncertainty behind an interval over so many values; None without one that is finite."""
    reach = value.longer
    if reach is None or units < 2 or not (math.isfinite(reach) and reach > 0):
        return None
    return reach / student_quantile(units - 1, value.level)


def timestamp_resolution(step_ns: float, of_stamps: str, sensitivity: float) -> Entry:
    """What a clock that counts in steps adds: each stamp lies anywhere within half a step (GUM F.2.2.1).

    All stamps of the figure are taken to err together in the direction that adds: averaging is not counted upon.
    """
    component = rectangular("resolution of timestamps", step_ns / 2, "ns", sensitivity)
    return counted(component, f"all timestamps of the run are multiples of {step_ns:g} ns; {of_stamps}")


def clock_rate(estimate_ns: float) -> Entry:
    """What the rate of an uncalibrated clock adds to a time that was measured with it."""
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
