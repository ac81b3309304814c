"""Every figure of the report, in the order in which the page shows them. Nothing is estimated here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt

from sojourn.report import samples
from sojourn.report.charts import Distribution
from sojourn.report.figure import Figure, Width, by_cell
from sojourn.report.marks import symbol_scatter, time_scale
from sojourn.report.numbers import count
from sojourn.report.palette import Palette, ordered

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from sojourn.report.run import Run


def specifications(figures: Iterable[Figure]) -> Iterable[tuple[str, dict[str, Any]]]:
    """Return every panel's specification for the page, by the id of its HTML element."""
    for figure in figures:
        for i, panel in enumerate(figure.panels):
            yield f"{figure.name}-{i}", panel.page(figure.among)


def cdfs(run: Run) -> Figure | None:
    """Round-trip CDFs on a log(1 − p) axis."""
    found = samples.quantiles(run)
    if found.is_empty():
        return None
    scale, rarest = time_scale(found["rtt"]), samples.least(found, "exceedance")

    x = alt.X("rtt:Q", title="Round-trip time (µs)", scale=scale, axis=alt.Axis(tickCount=6))
    chart = Distribution(x, rarest, "RTT (µs)")

    def build(rows: pl.DataFrame, palette: Palette, width: Width) -> Any:
        return chart.draw(rows, run.devices, palette, width)

    caption = (
        "Share of round trips below a time. The axis is logarithmic in 1 − p, so that each step up is ten times rarer: "
        "most round trips are at the bottom, the tail is at the top."
    )
    return Figure("rtt_cdf", "Round-trip times", caption, by_cell(found, build), _devices(found))


def over_time(run: Run) -> Figure | None:
    """Round trips over the time of the run."""
    found = samples.timeline(run).rename({"s": "x", "rtt": "y"}, strict=False)
    if found.is_empty():
        return None
    scale = time_scale(found["y"])

    def build(rows: pl.DataFrame, palette: Palette, width: Width) -> Any:
        titles = ("Time since the run began (s)", "Round-trip time (µs)")
        return symbol_scatter(rows, titles, scale, run.devices, palette).properties(width=width, height=220)

    caption = (
        f"Every path in turn, in short interleaved blocks; {count(found.height)} probes are plotted, the slowest among "
        "them. The findings on drift and steadiness look for the steps, slopes and bands that would be visible here."
    )
    return Figure("rtt_over_time", "Round-trip times over the run", caption, by_cell(found, build), _devices(found))


def _devices(frame: pl.DataFrame) -> tuple[str, ...]:
    return tuple(ordered(frame["device"].to_list()))
