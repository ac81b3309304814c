"""Pacing of senders: pacing errors, and achieved intervals against requested ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from sojourn.report import samples
from sojourn.report.charts import Distribution
from sojourn.report.figure import Figure, Panel, Width, by_cell
from sojourn.report.marks import colour, symbol
from sojourn.report.palette import Palette, ordered

if TYPE_CHECKING:
    from sojourn.report.run import Run

DECADES = [10.0**power for power in range(-4, 7)]
SPELLED = "datum.value == 0 ? '0' : format(datum.value, '~s')"
NO_LESS_US = 0.001  # a logarithmic axis has no zero; departures have timestamps in ns


def departures(run: Run) -> Figure | None:
    """Draw the pacing errors, by device, or by tool and interval."""
    found = samples.pacing_errors(run)
    if found.is_empty() or float(found["us"].max()) <= NO_LESS_US:  # type: ignore[arg-type]
        return None  # departures of a simulation are exact: there is nothing to draw
    drawn = found.with_columns(pl.col("us").clip(lower_bound=NO_LESS_US))
    rarest, names = samples.least(drawn, "exceedance"), ordered(drawn["device"].to_list())

    def build(rows: pl.DataFrame, palette: Palette, width: Width) -> Any:
        scale = alt.Scale(type="log", nice=True)
        x = alt.X("us:Q", title="Absolute pacing error (µs)", scale=scale, axis=_marked_axis(palette))
        chart = Distribution(x, rarest, "error (µs)", stepped=False, height=240)
        return chart.draw(rows, names, palette, width)

    judge = "The departures are measured by a capture at host B. " if run.by_tool else ""
    caption = f"Actual minus intended departure. {judge}The darker lines are at 1 µs and 10 µs."
    return Figure("pacing_error", "Pacing error", caption, by_cell(drawn, build), tuple(names))


def intervals(run: Run) -> Figure | None:
    """Draw achieved intervals against requested ones, by tool."""
    found = samples.achieved_intervals(run)
    if found.is_empty():
        return None
    tools = ordered(found["device"].to_list())

    def achieved(palette: Palette, width: Width) -> Any:
        ends = [float(found["asked"].min() or 1), float(found["asked"].max() or 1)]  # type: ignore[arg-type]
        same = alt.Chart(pl.DataFrame({"asked": ends, "ms": ends})).mark_line(strokeDash=[2, 3], strokeWidth=1)
        scale, axis = alt.Scale(type="log"), alt.Axis(values=DECADES, format="~g")
        y = alt.Y("ms:Q", title="Achieved interval, mean (ms)", scale=scale, axis=axis)
        line = same.encode(x=_asked(), y=y, color=alt.ColorValue(palette.surface("muted")))
        return alt.layer(line, _points(found, y, tools, palette)).properties(width=width, height=260)

    def excess(palette: Palette, width: Width) -> Any:
        axis = alt.Axis(values=[0, *(sign * 10.0**power for power in range(8) for sign in (1, -1))], labelExpr=SPELLED)
        scale = alt.Scale(type="symlog", nice=False)
        y = alt.Y("excess:Q", title="Achieved minus configured (µs)", scale=scale, axis=axis)
        zero = alt.Chart(pl.DataFrame({"excess": [0]})).mark_rule(color=palette.surface("muted")).encode(y=y)
        known = found.drop_nulls("excess_low")
        bars = _base(known, tools, palette).mark_rule(strokeWidth=1.6)
        spans = [bars.encode(y=alt.Y("excess_low:Q", title=""), y2=alt.Y2("excess_high:Q"))] if known.height else []
        return alt.layer(zero, *spans, _points(found, y, tools, palette)).properties(width=width, height=260)

    caption = (
        "The interval that a capture at host B measured, over the configured one; the dotted line is where both are "
        "equal. The papers' pings waited one timer tick longer than configured, rounded up to whole ticks."
    )
    panels = (Panel("Achieved over configured interval", achieved), Panel("What is left over", excess))
    return Figure("intervals", "Configured and achieved intervals", caption, panels, tuple(tools))


def _marked_axis(palette: Palette) -> alt.Axis:
    """Whole decades, with dark grid lines at 1 µs and 10 µs."""
    marked = "datum.value == 1 || datum.value == 10"
    hue = {"condition": {"test": marked, "value": palette.surface("muted")}, "value": palette.surface("grid")}
    return alt.Axis(values=[10.0**power for power in range(-3, 7)], gridColor=hue, format="~g")


def _asked() -> alt.X:
    axis = alt.Axis(values=DECADES, format="~g")
    return alt.X("asked:Q", title="Asked interval (ms)", scale=alt.Scale(type="log"), axis=axis)


def _base(found: pl.DataFrame, tools: list[str], palette: Palette) -> Any:
    return alt.Chart(found).encode(x=_asked(), color=colour(tools, palette, not palette.for_page))


def _points(found: pl.DataFrame, y: alt.Y, tools: list[str], palette: Palette) -> Any:
    tips = [
        alt.Tooltip("device:N"),
        alt.Tooltip("size:N"),
        alt.Tooltip("asked:Q", title="asked (ms)"),
        alt.Tooltip("ms:Q", title="achieved (ms)"),
    ]
    shape = symbol(tools, palette, not palette.for_page)
    return _base(found, tools, palette).mark_point(size=44, strokeWidth=1.6).encode(y=y, shape=shape, tooltip=tips)
