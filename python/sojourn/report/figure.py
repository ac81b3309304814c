"""A figure in two forms: specifications for the page, and one specification for SVG and PDF.

A figure is a row of panels. On the page each panel fills its place; in files they are side by side. It does not know
runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import altair as alt
import polars as pl
from altair.utils.schemapi import debug_mode

from sojourn.report.marks import FILE_WIDTH, dress
from sojourn.report.palette import Palette, inks

if TYPE_CHECKING:
    from sojourn.devices import Ink

Width = int | Literal["container"]
Build = Callable[[Palette, Width], Any]
BuildRows = Callable[[pl.DataFrame, Palette, Width], Any]

MOST_PANELS = 4
alt.data_transformers.disable_max_rows()


@dataclass(frozen=True)
class Panel:
    """One chart of a figure."""

    title: str
    build: Build

    def page(self, devices: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the Vega-Lite specification for the page of a report of these devices."""
        palette = Palette(for_page=True, devices=devices)
        return self._specification(palette, "container") | {"config": dress(palette)}

    def file(self, devices: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the specification for files, without a configuration of its own."""
        return self._specification(Palette(for_page=False, devices=devices), FILE_WIDTH) | {"title": self.title}

    def _specification(self, palette: Palette, width: Width) -> dict[str, Any]:
        """Return the specification, not validated: tests validate the whole, and validating each part takes long."""
        with debug_mode(arg=False):
            spec: dict[str, Any] = self.build(palette, width).to_dict(validate=False)
        return spec


Key = Literal["line", "symbol", "swatch"]
"""What stands beside a device's name in a legend: its symbol and its dash, its symbol, or its colour alone."""


@dataclass(frozen=True)
class Figure:
    """A figure: its panels, its caption, and the devices that its legend names."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    devices: tuple[str, ...] = ()
    columns: int = 2
    key: Key = "line"
    among: tuple[str, ...] = ()
    """The devices of the whole report, by whose order unknown ones have their inks."""

    def inks(self) -> dict[str, Ink]:
        """Return the ink of each device that the legend names, in its order."""
        return inks(self.devices, self.among)

    def file(self) -> str:
        """The Vega-Lite specification for SVG and PDF, as JSON."""
        specs = [panel.file(self.among) for panel in self.panels]
        # Data are stored once, above the panels; so is the schema.
        shared: dict[str, Any] = {
            "$schema": specs[0]["$schema"],
            "datasets": {},
            "config": dress(Palette(for_page=False)),
        }
        for spec in specs:
            shared["datasets"] |= spec.pop("datasets", {})
            del spec["$schema"], spec["config"]
        several = {"concat": specs, "columns": min(self.columns, 2), "spacing": 24}
        # A panel with fewer devices has fewer rows: offsets of another's would move them off their names.
        several["resolve"] = {"scale": {"yOffset": "independent"}}
        whole = specs[0] if len(specs) == 1 else several
        return json.dumps(shared | whole)


def by_cell(rows: pl.DataFrame, build: BuildRows, *, independent: bool = False) -> tuple[Panel, ...]:
    """Return one panel for each cell while they are few; beyond, one panel with a choice of cells.

    `independent`: each cell has axes of its own, in files too.
    """
    cells = rows["cell"].unique(maintain_order=True).to_list()
    if len(cells) > MOST_PANELS:
        return (Panel("", lambda palette, width: _chosen(rows, build, palette, (width, independent))),)

    def panel(cell: str) -> Panel:
        # Repeating the cell's name in every row would be a third of the page's size.
        own = rows.filter(pl.col("cell") == cell).drop("cell")
        return Panel(cell, lambda palette, width: build(own, palette, width))

    return tuple(panel(cell) for cell in cells)


def _chosen(rows: pl.DataFrame, build: BuildRows, palette: Palette, how: tuple[Width, bool]) -> Any:
    """Draw one panel with a choice of cells on the page; in files all of them, side by side."""
    width, independent = how
    cells = rows["cell"].unique(maintain_order=True).to_list()
    if not palette.for_page:
        narrow = FILE_WIDTH * 2 // 3
        each = [build(rows.filter(pl.col("cell") == cell), palette, narrow).properties(title=cell) for cell in cells]
        whole = alt.concat(*each, columns=3)
        return whole if independent else whole.resolve_scale(x="shared", y="shared")
    choice = alt.param(name="cell", value=cells[0], bind=alt.binding_select(options=cells, name="Cell "))
    return _only(build(rows, palette, width), "datum.cell == cell").add_params(choice)


def _only(chart: Any, test: str) -> Any:
    """Return the chart with a filter on every layer that has cells."""
    if isinstance(chart, alt.LayerChart):
        chart.layer = [_only(one, test) for one in chart.layer]
        return chart
    celled = not isinstance(chart.data, pl.DataFrame) or "cell" in chart.data.columns
    return chart.transform_filter(test) if celled else chart
