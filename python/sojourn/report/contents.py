"""What the report of a run consists of: the tables, figures and other parts that its method defines.

The only file of the report that imports methods; the files of the report that methods import do not import it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sojourn.methods import load
from sojourn.report import tables
from sojourn.report.budgets import budget_tables
from sojourn.report.instances import instances
from sojourn.report.poisson import departures_fit
from sojourn.report.settings import settings

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.parts import Parts
    from sojourn.report.run import Run
    from sojourn.report.table import Table


def parts_of(run: Run) -> Parts:
    """Return the parts of the report of this run."""
    parts: Parts = load(run.method, "show").PARTS
    return parts


def all_tables(run: Run) -> list[Table]:
    """Return every table that this run has rows for, without comparisons with published ones."""
    makers = (*parts_of(run).tables, instances, departures_fit, settings, tables.hypotheses, tables.findings)
    return [*(table for table in (make(run) for make in makers) if table.rows), *budget_tables(run)]


def all_figures(run: Run) -> list[Figure]:
    """Return every figure that this run has samples for."""
    figures = [figure for make in parts_of(run).figures if (figure := make(run)) is not None]
    return [replace(figure, among=tuple(run.devices)) for figure in figures]
