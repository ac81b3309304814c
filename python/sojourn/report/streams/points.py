"""The data of figures of streams: result rows and samples with a panel's name ("cell") and in display units.

It selects, names and scales by units; it computes no statistic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.charts import Lines
from sojourn.report.figure import Figure, by_cell
from sojourn.report.numbers import DISPLAY
from sojourn.report.palette import ordered

if TYPE_CHECKING:
    from sojourn.report.charts import Chart
    from sojourn.report.run import Run

A_A = "a/a"


def rows_over(
    run: Run, quantity: str, statistics: tuple[str, ...], x: str, *, without: tuple[str, ...] = (),
    where: pl.Expr | None = None,
) -> pl.DataFrame:  # fmt: skip
    """Return result rows over a factor: cell (panel), device, x, y, low, high, statistic, hollow (a limit), factors."""
    found = run.results.filter((pl.col("quantity") == quantity) & pl.col("statistic").is_in(statistics))
    found = (found if where is None else found.filter(where)).filter(pl.col("device") != A_A)
    labels = run.labels(x, *without)
    ends = (("y", "estimate"), ("low", "ci_low"), ("high", "ci_high"))
    limit = pl.col("statistic") == "at_least"
    return _in_panels(found, labels).with_columns(
        pl.col(x).cast(pl.Float64).alias("x"),
        *((pl.col(key) * _factor()).round_sig_figs(7).alias(name) for name, key in ends),
        limit.alias("hollow"),
    )


def sample(run: Run, name: str, *without: str) -> pl.DataFrame:
    """Return a sample of cells with the panel's name as "cell", without the A/A control, cells in their order."""
    found = run.samples(name)
    if found is None or found.is_empty() or not run.cells:
        return pl.DataFrame()
    return _in_panels(found.filter(pl.col("device") != A_A), run.labels(*without))


def _factor() -> pl.Expr:
    """The factor from recorded to display units."""
    factors = {unit: factor for unit, (factor, _) in DISPLAY.items() if unit not in ("ratio", "1")}
    return pl.col("unit").replace_strict(factors, default=1.0, return_dtype=pl.Float64)


def _in_panels(rows: pl.DataFrame, labels: dict[int, str]) -> pl.DataFrame:
    rank = {number: place for place, number in enumerate(labels)}
    known = rows.filter(pl.col("cell").is_in(list(labels)))
    place = pl.col("cell").replace_strict(rank, default=None, return_dtype=pl.Int64)
    name = pl.col("cell").replace_strict(labels, default=None, return_dtype=pl.String)
    ranked = known.with_columns(place.alias("rank")).sort("rank", maintain_order=True)
    return ranked.with_columns(name.alias("cell"))


def along(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows in the order of x, and of their panels."""
    by = [name for name in ("rank", "x") if name in rows.columns]
    return rows.sort(*by, nulls_last=True, maintain_order=True)


def spans(columns: tuple[str, str, str], unit: float = 1.0, to: str = "y") -> list[pl.Expr]:
    """Return an estimate and the ends of its interval as a chart's columns, in display units."""
    return [(pl.col(key) * unit).alias(name) for key, name in zip(columns, (to, "low", "high"), strict=True)]


ESTIMATE = ("estimate", "ci_low", "ci_high")
NO_INTERVAL = [pl.lit(None, dtype=pl.Float64).alias(name) for name in ("low", "high")]


def in_legend_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with cells in their present order, and in each the devices in legend order."""
    if rows.is_empty():
        return rows
    cells = {name: place for place, name in enumerate(several(rows, "cell"))}
    devices = {name: place for place, name in enumerate(ordered(rows["device"].to_list()))}
    ranks = [
        pl.col("cell").replace_strict(cells, return_dtype=pl.Int64),
        pl.col("device").replace_strict(devices, return_dtype=pl.Int64),
    ]
    return rows.sort(*ranks, maintain_order=True)


def factor(rows: pl.DataFrame, name: str, unit: float = 1.0) -> pl.DataFrame:
    """Return the rows with a factor as x, in display units."""
    return rows.with_columns((pl.col(name).cast(pl.Float64) * unit).alias("x"))


def figure(
    name: str, title: str, caption: str, rows: pl.DataFrame, chart: Chart,
    *, columns: int = 2,
) -> Figure | None:  # fmt: skip
    """Return a figure with one chart for each panel; None if there is nothing to draw."""
    if rows.is_empty():
        return None
    devices = ordered(rows["device"].to_list())
    kept = rows.select(one for one in rows.columns if one in DRAWN)
    if isinstance(chart, Lines):
        chart = chart.fitted_to(kept, devices)

    def build(panel: pl.DataFrame, palette: Any, width: Any) -> Any:
        return chart.draw(panel, devices, palette, width)

    panels = by_cell(kept, build, independent=True)
    return Figure(name, title, caption, panels, () if chart.own_colours else tuple(devices), columns, chart.key)


DRAWN = {"cell", "device", "x", "y", "low", "high", "share", "series", "exceedance", "name", "hollow", "role"}


def several(rows: pl.DataFrame, name: str) -> tuple[str, ...]:
    """Return the distinct values of a column, in the order of their first appearance."""
    return tuple(str(one) for one in rows[name].drop_nulls().unique(maintain_order=True)) if name in rows else ()
