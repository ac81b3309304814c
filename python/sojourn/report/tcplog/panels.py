"""The chart of one flow: panels of step lines above each other on one time axis, and a row of marks for events.

Gaps of the log are grey in every panel, recovery and loss tinted; the row below names each of them, so that no colour
has to be known. It estimates nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from sojourn.report.charts import SPELLED
from sojourn.report.palette import TRACES, Palette

if TYPE_CHECKING:
    from sojourn.report.tcplog.traces import Steps, Traces

WIDTH = 820
HEIGHTS = {"Windows": 190, "Round trip": 150, "Rate": 150, "Receiver": 130}
ROW = 18
AXIS = 62
"""The width of every y axis, so that the left edges of the panels are aligned."""

FEW_DECADES = 2.5
FAINT = {"in flight": 0.9, "last sample": 0.75}
WHAT = ("retransmitted", "timeout", "recovery", "loss", "skipped")
MARKED = {"retransmitted": "recovery", "timeout": "loss"}
"""The trace whose colour a mark has."""

STRENGTH = {"recovery": 0.18, "loss": 0.24, "skipped": 0.3}


def chart(traces: Traces, span: tuple[float, float], palette: Palette) -> Any:
    """Draw all panels of a flow."""
    panels = [_panel(steps, traces, span, palette) for steps in traces.steps]
    strip = _strip(traces, span, palette)
    panels += [strip] if strip is not None else []
    last = len(panels) - 1
    for place, one in enumerate(panels):
        _time(one, span, labelled=place == last)
    stacked = alt.vconcat(*panels, spacing=10).resolve_scale(color="independent", strokeDash="independent")
    return stacked.resolve_legend(color="independent", strokeDash="independent")


def _panel(steps: Steps, traces: Traces, span: tuple[float, float], palette: Palette) -> Any:
    layers = [*_bands(traces.spans, palette), *(_line(steps, name, palette) for name in steps.series)]
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHTS[steps.title])


def _line(steps: Steps, name: str, palette: Palette) -> Any:
    shown = list(reversed(steps.series))  # the most important series is drawn last, and named first
    colour = alt.Scale(domain=shown, range=[palette.trace(one) for one in shown])
    dash = alt.Scale(domain=shown, range=[list(TRACES[one].dash) for one in shown])
    legend = alt.Legend(
        title=None, orient="right", symbolType="stroke", symbolSize=260, symbolStrokeWidth=2, symbolOpacity=1
    )
    title = f"{steps.title} ({steps.unit})"
    scale = alt.Scale(type="log", nice=True) if steps.is_squeezed else alt.Scale(zero=True, nice=True)
    ticks = {"values": _ticks(steps.decades), "labelOverlap": "greedy"} if steps.is_squeezed else {"tickCount": 5}
    axis = alt.Axis(minExtent=AXIS, maxExtent=AXIS, labelExpr=SPELLED, **ticks)
    return (
        alt.Chart(steps.rows.filter(_drawable(steps), pl.col("series") == name))
        .mark_line(interpolate="step-after", strokeWidth=1.1 if name in FAINT else 1.6)
        .encode(
            x=alt.X("t:Q"),
            y=alt.Y("v:Q", title=title, scale=scale, axis=axis),
            color=alt.Color("series:N", scale=colour, legend=legend),
            strokeDash=alt.StrokeDash("series:N", scale=dash, legend=legend),
            opacity=alt.OpacityValue(FAINT.get(name, 1.0)),
        )
    )


def _ticks(decades: float) -> list[float]:
    """The ticks of a logarithmic axis: powers of ten, and 2 and 5 times these if there are few decades."""
    digits = (1, 2, 5) if decades < FEW_DECADES else (1,)
    return [digit * 10.0**power for power in range(-7, 10) for digit in digits]


def _drawable(steps: Steps) -> pl.Expr:
    """The values that can be drawn: a logarithmic axis has no zero."""
    return (pl.col("v") > 0) | pl.col("v").is_null() if steps.is_squeezed else pl.lit(value=True)


def _bands(spans: pl.DataFrame, palette: Palette) -> list[Any]:
    return [
        alt.Chart(spans.filter(pl.col("what") == what).select("low", "high"))
        .mark_rect(color=palette.trace(what), opacity=STRENGTH[what], clip=True)
        .encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"))
        for what in STRENGTH
        if spans.filter(pl.col("what") == what).height
    ]


def _strip(traces: Traces, span: tuple[float, float], palette: Palette) -> Any:
    """Draw a row for each kind of event that occurred; None if none did."""
    rows = [what for what in WHAT if what in {*traces.spans["what"], *traces.marks["what"]}]
    if not rows:
        return None
    y = alt.Y("what:N", sort=rows, title=None, scale=alt.Scale(domain=rows), axis=_row_axis())
    layers = []
    for what in rows:
        colour = palette.trace(MARKED.get(what, what))
        if what in MARKED:
            marks = traces.marks.filter(pl.col("what") == what)
            tick = alt.Chart(marks).mark_tick(color=colour, thickness=1.3, height=ROW - 5, clip=True)
            tips = [alt.Tooltip("t:Q", title="at (s)", format=".6~f"), alt.Tooltip("n:Q", title=what)]
            layers.append(tick.encode(x=alt.X("t:Q"), y=y, tooltip=tips))
        else:
            bars = alt.Chart(traces.spans.filter(pl.col("what") == what))
            bar = bars.mark_bar(color=colour, height=ROW - 7, clip=True)
            layers.append(bar.encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=y))
    return alt.layer(*layers).properties(width=WIDTH, height=ROW * len(rows))


def _row_axis() -> alt.Axis:
    return alt.Axis(minExtent=AXIS, maxExtent=AXIS, ticks=False, domain=False, grid=False, labelPadding=6)


def _time(panel: Any, span: tuple[float, float], *, labelled: bool) -> None:
    """Give all panels one time axis; only the lowest has labels."""
    axis = alt.Axis(tickCount=10, labels=labelled, ticks=labelled, domain=labelled, grid=False)
    title = "Time since the first sample (s)" if labelled else None
    for layer in panel.layer:
        layer.encoding.x.scale = alt.Scale(domain=list(span), nice=False)
        layer.encoding.x.axis, layer.encoding.x.title = axis, title
