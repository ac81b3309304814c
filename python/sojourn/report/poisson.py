"""The table of departures with a Poisson schedule: how many trials fail the test, and whether chance explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.cells import cell_column, cell_entry
from sojourn.report.numbers import NOTHING
from sojourn.report.palette import ordered
from sojourn.report.table import Column, Entry, Table, text, whole

if TYPE_CHECKING:
    from sojourn.report.run import Run

NOTE = (
    "Anderson and Darling's test whether the times between departures are exponentially distributed (with any mean), "
    "made for each trial or block separately; A² is not modified. For a true Poisson process, 1 % of the tests have p "
    "< 0.01. The last column is the probability that by chance as many tests or more have it, times the number of rows "
    "(Bonferroni): where it is 0.01 or less, the departures of that row are not a Poisson process."
)


def departures_fit(run: Run) -> Table:
    """The tests of every path and cell with a Poisson schedule."""
    found = run.rows("poisson_fit")
    columns = (
        cell_column(run),
        Column(("device",), "Device", numeric=False),
        Column(("trials",), "Trials"),
        Column(("failed",), "p < 0.01"),
        Column(("greatest_a2",), "Greatest A²"),
        Column(("least_p",), "Least p"),
        Column(("p_by_chance",), "By chance, adjusted"),
    )
    rows = []
    for cell in run.cells:
        for device in ordered(found["device"].unique().to_list()):
            here = found.filter((pl.col("cell") == cell.number) & (pl.col("device") == device))
            of = {row["statistic"]: row for row in here.iter_rows(named=True)}
            if of:
                named = (cell_entry(run, cell.short, [cell.number]), text(device, device))
                rows.append((*named, *_numbers(of)))
    return Table("poisson_fit", "Poisson departures", columns, tuple(rows), NOTE, grouped=True)


def _numbers(of: dict[str, dict[str, Any]]) -> tuple[Entry, ...]:
    trials, failed = of["failed"]["n"], of["failed"]["estimate"]
    plain = [_plain(of[name]["estimate"]) for name in ("a2", "least_p", "p")]
    return whole(trials), whole(round(failed * trials)), *plain


def _plain(value: float | None) -> Entry:
    return Entry(NOTHING if value is None else f"{value:.2g}", (value,))
