"""The expanded uncertainty of a run's headline including other boots and days, from its history.

The run's own budget cannot include it: a run is from one boot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.analysis.comparison import key_of
from sojourn.history import components_of, entry_of, find_history
from sojourn.records.results import read_budgets, read_results
from sojourn.report.budgets import result_of, with_unit
from sojourn.statistics.budget import Component, combine

if TYPE_CHECKING:
    from sojourn.records import RunFolder


def with_boots(folder: RunFolder) -> str:
    """Return a sentence for each budget whose figure is in the history; empty before six boots or days."""
    entry = entry_of(folder)
    known = components_of(find_history().read(entry.study), entry.bed)
    rows = read_results(folder.results)
    said = [_widened(one, known, rows) for one in read_budgets(folder.budgets)]
    return "\n".join(filter(None, said))


def _widened(one: dict[str, Any], known: dict[tuple[object, ...], Any], rows: list[dict[str, Any]]) -> str:
    row = next((row for row in rows if is_of(row, one)), None)
    between = None if row is None else known.get(key_of(row))
    if between is None or one["combined"] is None:
        return ""
    unit = one["unit"]
    own = Component("this run", "A", one["combined"], unit, degrees=one["effective_degrees"] or float("inf"))
    boots = Component("boots and days", "A", between.between, unit, degrees=between.degrees)
    whole = combine([own, boots], one["level"])
    widened = {**one, "expanded": whole.expanded}
    return (
        f"With other boots and days, whose sd is {with_unit(between.between, unit)} over {between.groups} in the "
        f"history: {result_of(widened)} (U, the expanded uncertainty at {100 * one['level']:.3g} %: "
        f"coverage factor {whole.coverage_factor:.2f})."
    )


def is_of(row: dict[str, Any], budget: dict[str, Any]) -> bool:
    """Return whether a row of results is the figure of a budget."""
    names = ("device", "reference", "quantity", "statistic", "cell", "port", "estimate")
    return all(row.get(name) == budget.get(name) for name in names)
