"""Latency over frame size: points, the line a + b × size and its band, for whole paths and for devices alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from sojourn.report import samples
from sojourn.report.figure import Figure, Panel, Width
from sojourn.report.marks import FILLED, colour, dash, symbol
from sojourn.report.palette import Palette, ordered

if TYPE_CHECKING:
    from sojourn.report.run import Run

KINDS = (("Whole path", None), ("Device alone, over direct", "direct"), ("Device alone, over wire", "wire"))
FEW = 3
"""With more devices, bands are drawn thinner: they overlap."""

SCALE = alt.Scale(zero=False, nice=True)
AXIS = alt.Axis(tickCount=6)


def lines(run: Run) -> Figure | None:
    """Return the figure, with a row of panels per probe."""
    band, points = samples.bands(run), samples.points(run)
    if points.is_empty():
        return None
    probes = points["probe"].unique(maintain_order=True).to_list()
    panels = [
        panel
        for probe in probes
        for title, reference in (*KINDS, *_stated(run))
        if (panel := _panel(run, (band, points), probe, (title, reference), len(probes) > 1))
    ]
    caption = (
        "One way, against the frame's bytes (for request-response the mean of request and response). Bars are 95 % "
        "CIs; the line and its band (95 %, pointwise) come from one fit for each round, or for each bed where there "
        "are several."
    )
    devices = tuple(ordered(points["device"].to_list()))
    return Figure("size_lines", "a + b × size", caption, tuple(panels), devices, columns=len(panels) // len(probes))


def _stated(run: Run) -> list[tuple[str, str | None]]:
    """Return the reference that the plan states, if it is another one."""
    stated = run.plan.get("pairs", {}).get("reference")
    return [(f"Device alone, over {stated}", stated)] if stated not in {one for _, one in KINDS} else []


def _panel(
    run: Run,
    frames: tuple[pl.DataFrame, pl.DataFrame],
    probe: str,
    kind: tuple[str, str | None],
    several: bool,
) -> Panel | None:
    title, reference = kind
    same = pl.col("reference").eq_missing(pl.lit(reference, dtype=pl.String)) & (pl.col("probe") == probe)
    band, points = (frame.filter(same).drop("reference", "probe") for frame in frames)
    if points.is_empty():
        return None
    named = f"{title}, {probe}" if several else title
    return Panel(named, lambda palette, width: _chart(run, band, points, palette, width))


def _chart(run: Run, band: pl.DataFrame, points: pl.DataFrame, palette: Palette, width: Width) -> Any:
    named, ink = not palette.for_page, colour(run.devices, palette, not palette.for_page, FILLED)
    x = alt.X("frame:Q", title="Frame (bytes)", scale=SCALE, axis=AXIS)
    y = alt.Y("us:Q", title="Latency, one way (µs)", scale=SCALE, axis=AXIS)
    span = {"y": alt.Y("low:Q", title=""), "y2": "high:Q"}
    fitted, measured = (alt.Chart(frame).encode(x=x, color=ink) for frame in (band, points))
    times = [
        alt.Tooltip(f"{key}:Q", title=f"{title} (µs)", format=".4f")
        for key, title in (("us", "latency"), ("low", "from"), ("high", "to"))
    ]
    tips = ["device:N", alt.Tooltip("frame:Q", title="frame (bytes)"), *times]
    return alt.layer(
        fitted.mark_area(opacity=0.18 if band["device"].n_unique() <= FEW else 0.07).encode(**span),
        fitted.mark_line(strokeWidth=1.6).encode(y=y, strokeDash=dash(run.devices, palette, named, FILLED)),
        measured.mark_rule(strokeWidth=1.6).encode(**span),
        measured.mark_point(filled=True, size=46, opacity=1).encode(
            y=y, shape=symbol(run.devices, palette, named, FILLED), tooltip=tips
        ),
    ).properties(width=width, height=280)
