"""The look of every figure: type, axes, scales and colours of devices, as one Altair configuration and its scales.

It draws nothing. The page's figures use CSS variables for colours, so light, dark and print need no redrawing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import altair as alt

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from sojourn.report.palette import Palette

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
FILE_FONT = "Liberation Sans, Helvetica, Arial, sans-serif"
PERCENTILES = [1, 0.5, 0.1, 0.01, 0.001, 0.0001, 0.00001, 0.000001]
PERCENTILE_LABEL = "datum.value == 1 ? '0' : format((1 - datum.value) * 100, '.6~f') + ' %'"


def dress(palette: Palette) -> dict[str, Any]:
    """The look of every figure, as Vega-Lite's own configuration (Altair's way copies a whole chart per setting)."""
    text, muted = palette.surface("ink"), palette.surface("muted")
    font = FONT if palette.for_page else FILE_FONT
    axis = {
        "labelFont": font,
        "titleFont": font,
        "labelColor": muted,
        "titleColor": text,
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "titleFontSize": 12,
        "gridColor": palette.surface("grid"),
        "domainColor": palette.surface("rule"),
        "tickColor": palette.surface("rule"),
        "titlePadding": 8,
    }
    legend = {
        "orient": "top",
        "labelFont": font,
        "titleFont": font,
        "labelColor": text,
        "titleColor": muted,
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "symbolSize": 90,
        "columnPadding": BETWEEN,
        "rowPadding": 4,
    }
    title = {"font": font, "color": text, "fontSize": 12, "fontWeight": 600, "anchor": "start", "offset": 8}
    header = {
        "labelFont": font,
        "labelColor": text,
        "labelFontSize": 12,
        "labelFontWeight": 600,
        "labelAnchor": "start",
    }
    return {
        "background": "transparent" if palette.for_page else "white",
        "font": font,
        "padding": {"left": 2, "right": 8, "top": 4, "bottom": 2},
        "view": {"stroke": None},
        "axis": axis,
        "legend": legend,
        "title": title,
        "header": header,
    }


Look = Mapping[str, Any]
EMPTY: Look = {}
FILLED: Look = {"symbolStrokeWidth": 0}
"""Of symbols without an outline: it would have the dash of the device's line."""
LINE: Look = {"symbolType": "stroke", "symbolSize": 500, "symbolOpacity": 1}
"""Of lines, long enough for their dashes."""


def colour(devices: list[str], palette: Palette, legend: bool, look: Look = EMPTY) -> alt.Color:
    """Distinguish devices by colour; `look`: of the legend's symbols, equal for all channels of a chart."""
    return alt.Color("device:N", **_hues(devices, palette, legend, look))


def fill(devices: list[str], palette: Palette, legend: bool) -> alt.Fill:
    """Distinguish devices by the colour of what is within the outline of a symbol."""
    return alt.Fill("device:N", **_hues(devices, palette, legend))


def _hues(devices: list[str], palette: Palette, legend: bool, look: Look = EMPTY) -> dict[str, Any]:
    found = palette.inks(devices)
    scale = alt.Scale(domain=list(found), range=[palette.hue(one) for one in found.values()])
    return {"scale": scale, "legend": legend_of(found, **look) if legend else None}


def dash(devices: list[str], palette: Palette, legend: bool, look: Look = EMPTY) -> alt.StrokeDash:
    """Distinguish devices by dash pattern, for prints in grey."""
    found = palette.inks(devices)
    scale = alt.Scale(domain=list(found), range=[list(one.dash) for one in found.values()])
    return alt.StrokeDash("device:N", scale=scale, legend=legend_of(found, **look) if legend else None)


def symbol(devices: list[str], palette: Palette, legend: bool, look: Look = EMPTY) -> alt.Shape:
    """Distinguish devices by symbol."""
    found = palette.inks(devices)
    scale = alt.Scale(domain=list(found), range=[one.symbol for one in found.values()])
    return alt.Shape("device:N", scale=scale, legend=legend_of(found, **look) if legend else None)


FILE_WIDTH = 380
"""The width of a panel in a file, in pixels."""
LETTER, KEY, STROKE, BETWEEN = 7.0, 20, 30, 22
"""The width of a letter (of a wide font), of a legend's symbol or line with its gap, and between two entries."""


def legend_of(names: Iterable[str], **look: Any) -> alt.Legend:
    """Return the legend of these names: in one row, or in as many columns as a panel has room for."""
    key = KEY if look.get("symbolType") != "stroke" else STROKE
    each = [key + LETTER * len(name) for name in names]
    in_row = sum(each) + BETWEEN * (len(each) - 1) <= FILE_WIDTH
    columns = len(each) if in_row else max(1, int((FILE_WIDTH + BETWEEN) // (max(each) + BETWEEN)))
    return alt.Legend(title=None, columns=columns, **look)


def symbol_scatter(
    rows: pl.DataFrame, titles: tuple[str, str], scale: alt.Scale, devices: list[str], palette: Palette
) -> Any:
    """Points of devices over time; rows: device, x, y."""
    named, axis = not palette.for_page, alt.Axis(tickCount=6)
    return (
        alt.Chart(rows)
        .mark_point(filled=True, size=11, opacity=0.55, clip=True)
        .encode(
            x=alt.X("x:Q", title=titles[0], scale=alt.Scale(zero=False), axis=axis),
            y=alt.Y("y:Q", title=titles[1], scale=scale, axis=axis),
            color=colour(devices, palette, named),
            shape=symbol(devices, palette, named),
        )
    )


def exceedance(rarest: float) -> alt.Y:
    """The log(1 − p) axis with percentile labels, down to the rarest share; the highest percentiles are at the top."""
    scale = alt.Scale(type="log", domain=[1, max(1e-6, min(rarest, 0.1))], nice=False)
    axis = alt.Axis(values=PERCENTILES, labelExpr=PERCENTILE_LABEL)
    return alt.Y("exceedance:Q", title="Percentile", scale=scale, axis=axis)


def time_scale(values: pl.Series) -> alt.Scale:
    """Return a linear scale, or a logarithmic one where a few values would squeeze the rest into a line."""
    low, middle, high = (float(values.quantile(share) or 0.0) for share in (0.0, 0.5, 1.0))
    if low > 0 and high > 3 * middle:
        return alt.Scale(type="log", nice=False, domain=[low * 0.95, high * 1.05])
    return alt.Scale(zero=False, nice=True)
