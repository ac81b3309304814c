"""The uncertainty budgets as tables: components first, then their sums, and how U agrees with the interval.

Reads analysis/budgets.json; computes no statistic. Uncertainties have two significant digits (GUM 7.2.6).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sojourn.records import results
from sojourn.report.numbers import NOTHING, fixed, percent, show
from sojourn.report.table import Column, Entry, Table, text

if TYPE_CHECKING:
    from sojourn.report.run import Run

NAME = "budget"
COLUMNS = (
    Column(("component",), "Component", numeric=False),
    Column(("evaluation",), "Type", numeric=False),
    Column(("standard_uncertainty", "unit"), "u"),
    Column(("distribution",), "Distribution", numeric=False),
    Column(("sensitivity",), "c"),
    Column(("degrees_of_freedom",), "ν"),
    Column(("contribution",), "|c|·u"),
    Column(("share",), "Share"),
    Column(("state", "source"), "Where it is from", numeric=False),
)
BEYOND = (
    Column(("component",), "Component", numeric=False),
    Column(("state",), "In U?", numeric=False),
    Column(("source",), "Why", numeric=False),
)
STATES = {
    "counted": "yes",
    "contained": "in another",
    "cancels": "cancels",
    "outside": "not of this figure",
    "unknown": "not known",
}
DISTRIBUTIONS = {"student-t": "Student's t"}
INFINITE = "∞"
DIGITS = 2

EXPLAINED = (
    "What the uncertainty of each headline figure is made of (JCGM 100, the GUM). A component of type A comes from the "
    "scatter of what was measured, one of type B from anything else. Its standard uncertainty u, known with ν degrees "
    "of freedom, times the sensitivity c of the figure to it is its contribution, |c|·u. Contributions add in squares "
    "to the combined standard uncertainty u_c; the share is of its square. U = k·u_c is the expanded uncertainty: the "
    "figure ± U holds the true value with a probability of 95 %, as far as the components are known. Components that "
    "are not known are named, and are not in U."
)


def budget_tables(run: Run) -> list[Table]:
    """Return two tables for each headline figure; none for a run that was analysed by a version without budgets."""
    tables = [made for place, one in enumerate(read_budgets(run)) for made in _tables(one, f"{NAME}_{place + 1}")]
    return [table for table in tables if table.rows]


def read_budgets(run: Run) -> list[dict[str, Any]]:
    """Return the run's budgets as in budgets.json (`records.budgets`)."""
    return results.read_budgets(run.folder / "analysis" / "budgets.json")


def in_a_line(one: dict[str, Any]) -> str:
    """Return a budget as one line for the terminal: figure ± U, its largest component, and what U does not cover."""
    if one["expanded"] is None:
        return f"{one['name']}: the uncertainty is not known, because the scatter is not known."
    parts = [part for part in one["components"] if part["share"]]
    most = max(parts, key=lambda part: float(part["share"]), default=None)
    degrees = one["effective_degrees"]
    of = f"coverage factor {fixed(one['coverage_factor'], 2)}, {INFINITE if degrees is None else fixed(degrees, 1)}"
    said = (
        f"{one['name']}: {result_of(one)} (U, the expanded uncertainty at {100 * one['level']:.3g} %: {of} degrees of "
        f"freedom)" + (f"; {_share(most['share'])} of its variance: {most['name']}." if most else ".")
    )
    return said + (f" Not in U: {'; '.join(one['not_covered'])}." if one["not_covered"] else "")


def _tables(one: dict[str, Any], name: str) -> tuple[Table, Table]:
    """The counted and contained components that have a value, with their sums; then the other components."""
    inside = [part for part in one["components"] if part["state"] in ("counted", "contained")]
    valued = [part for part in inside if part["standard_uncertainty"] is not None]
    first = sorted(valued, key=lambda part: part["state"] != "counted")
    rows = [_component(part, one["unit"]) for part in first] + _amounts(one)
    strong = frozenset(range(len(first), len(rows)))
    others = [part for part in one["components"] if part not in valued]
    beyond = [tuple(map(text, (_named(part), STATES[part["state"]], _sentence(part["source"])))) for part in others]
    return (
        Table(name, f"{one['name']}: {result_of(one)}", COLUMNS, tuple(rows), _note(one), strong, wide=True),
        Table(f"{name}_beyond", f"{one['name']}: what is not counted", BEYOND, tuple(beyond)),
    )


def _component(part: dict[str, Any], unit: str) -> tuple[Entry, ...]:
    is_counted, value = part["state"] == "counted", part["standard_uncertainty"]
    degrees, share = part["degrees_of_freedom"], part["share"]
    return (
        text(_named(part)),
        text(part["evaluation"] or ""),
        Entry(with_unit(value, part["unit"]), (value, part["unit"])),
        text(DISTRIBUTIONS.get(part["distribution"], part["distribution"] or "")),
        Entry(_sensitivity(part, unit), (part["sensitivity"],)),
        Entry(INFINITE if degrees is None else fixed(degrees, 0 if degrees == int(degrees) else 1), (degrees,)),
        Entry(with_unit(part["contribution"], unit) if is_counted else NOTHING, (part["contribution"],)),
        Entry(_share(share) if share is not None else STATES[part["state"]] if not is_counted else NOTHING, (share,)),
        Entry(_sentence(part["source"]), (part["state"], part["source"])),
    )


def _named(part: dict[str, Any]) -> str:
    return str(part["name"][:1].upper() + part["name"][1:])


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _amounts(one: dict[str, Any]) -> list[tuple[Entry, ...]]:
    """The combined and the expanded uncertainty and what leads to them, one line each."""
    if one["combined"] is None:
        return [_amount("Expanded, U", NOTHING, "Not known, because the scatter is not known.")]
    degrees, unit = one["effective_degrees"], one["unit"]
    return [
        _amount("Combined, u_c", with_unit(one["combined"], unit), "The root of the sum of squares."),
        _amount(
            "Effective ν",
            INFINITE if degrees is None or degrees > 1e6 else fixed(degrees, 1),
            "By Welch and Satterthwaite.",
        ),
        _amount(
            "Coverage factor, k",
            fixed(one["coverage_factor"], 2),
            f"Student's t for them at {percent(round(one['level'], 3))}.",
        ),
        _amount("Expanded, U", with_unit(one["expanded"], unit), "k·u_c."),
    ]


def _amount(name: str, value: str, why: str) -> tuple[Entry, ...]:
    blank = Entry("")
    return (text(name), blank, blank, blank, blank, blank, Entry(value), blank, text(why))


def result_of(one: dict[str, Any]) -> str:
    """Return the figure ± U, both in display units and rounded to the same digit."""
    value, unit = one["estimate"], one["unit"]
    if value is None:
        return NOTHING
    reach = one["expanded"]
    if reach is None:
        shown = show(value, None, None, unit)
        return f"{shown.text} {shown.unit}".strip()
    shown = show(value, value - reach, value + reach, unit)
    half = 0.0 if shown.low is None or shown.high is None else (shown.high - shown.low) / 2
    places = DIGITS - 1 - math.floor(math.log10(half)) if half else shown.decimals
    figure = fixed(round(shown.value or 0.0, places), max(0, places))
    return f"{figure} ±\u00a0{significant(half)} {shown.unit}".strip()


def _note(one: dict[str, Any]) -> str:
    """The note below a budget: whether U equals the interval of the headline, and what it does not cover."""
    half, reach, of = one["interval_half_width"], one["expanded"], one["interval_of"]
    said = []
    if half is not None and reach is not None:
        shown, of_interval = (with_unit(size, one["unit"]) for size in (reach, half))
        said.append(
            f"The interval in the results, ±\u00a0{of_interval}, is this U: no other component changes these digits."
            if shown == of_interval
            else f"The interval in the results, ±\u00a0{of_interval}, comes from {of}; U is ±\u00a0{shown}."
        )
    if one["not_covered"]:
        said.append(f"Not in U: {'; '.join(one['not_covered'])}.")
    return " ".join(said)


def with_unit(value: float, unit: str) -> str:
    """A number of two significant digits with its unit. A ratio has no unit, and is not a percentage of the figure."""
    for factor, larger in LARGER.get(unit, ()):
        if abs(value) >= factor:
            return f"{significant(value / factor)} {larger}"
    return f"{significant(value)} {unit}" if unit not in ("1", "") else significant(value)


LARGER = {"ns": ((1e6, "ms"), (1e3, "µs"))}


def significant(value: float, digits: int = DIGITS) -> str:
    """Return a value with `digits` significant digits; with a power of ten only below 0.0001."""
    if not value:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -4:
        mantissa = value / 10.0**size
        return f"{fixed(mantissa, digits - 1)}·10{str(size).translate(RAISED)}"
    rounded = round(value, digits - 1 - size)
    size = math.floor(math.log10(abs(rounded)))
    return fixed(rounded, max(0, digits - 1 - size))


RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _sensitivity(part: dict[str, Any], unit: str) -> str:
    """The sensitivity coefficient, with a unit where the component's unit differs from the figure's."""
    if part["sensitivity"] is None:
        return NOTHING
    value = (
        significant(part["sensitivity"], 3)
        if part["sensitivity"] != int(part["sensitivity"])
        else fixed(part["sensitivity"], 0)
    )
    if part["unit"] == unit:
        return value
    return f"{value} {unit}" if part["unit"] in ("1", "") else f"{value} {unit}/{part['unit']}"


def _share(share: float) -> str:
    """A share as a percentage; rounding never makes it 0 % or 100 %."""
    if share < 0.001:
        return "< 0.1 %" if share else "0 %"
    return "> 99.9 %" if 0.999 < share < 1 else f"{fixed(100 * share, 1)} %"
