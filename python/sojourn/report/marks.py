"""The look of every figure: type, axes, scales and colours of devices, as one Altair configuration and its scales.

It draws nothing. The page's figures use CSS variables for colours, so light, dark and print need no redrawing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt

from sojourn.report.palette import Palette, ink, ordered

if TYPE_CHECKING:
    import polars as pl

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


def colour(devices: list[str], palette: Palette, legend: bool) -> alt.Color:
    """Distinguish devices by colour."""
    names = ordered(devices)
    scale = alt.Scale(domain=names, range=[palette.device(name) for name in names])
    return alt.Color("device:N", scale=scale, legend=alt.Legend(title=None) if legend else None)


def dash(devices: list[str], legend: bool) -> alt.StrokeDash:
    """Distinguish devices by dash pattern, for prints in grey."""
    names = ordered(devices)
    scale = alt.Scale(domain=names, range=[list(ink(name).dash) for name in names])
    return alt.StrokeDash("device:N", scale=scale, legend=alt.Legend(title=None) if legend else None)


def symbol(devices: list[str], legend: bool) -> alt.Shape:
    """Distinguish devices by symbol."""
    names = ordered(devices)
    scale = alt.Scale(domain=names, range=[ink(name).symbol for name in names])
    return alt.Shape("device:N", scale=scale, legend=alt.Legend(title=None) if legend else None)


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
            shape=symbol(devices, named),
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
