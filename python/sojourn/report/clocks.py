"""Offset and skew of other hosts' clocks over time, drawn from the records of `sojourn clock`.

Two panels: the change of each clock's offset since the start, with its 95 % error and its maximum error as bands; and
its skew. The offset at the start is in the legend: it may be seconds, where the rest is microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from sojourn.records.reader import read_table
from sojourn.report.charts import by_colour, by_dash
from sojourn.report.figure import Figure, Panel
from sojourn.report.marks import FILE_WIDTH

if TYPE_CHECKING:
    from pathlib import Path

    from sojourn.report.figure import Width
    from sojourn.report.palette import Palette

POINTS = 24
"""Points on each line, so that bands that change with time are smooth."""


@dataclass(frozen=True)
class Clocks:
    """The linear segments of clocks: the table clock_lines."""

    lines: pl.DataFrame

    @classmethod
    def read(cls, folder: Path) -> Clocks:
        """Read the segments recorded in a folder; no rows where there are no records."""
        return cls(read_table(folder, "clock_lines").frame)

    def points(self) -> pl.DataFrame:
        """Return offset, errors (µs) and skew (ppm) at times along every segment, from each peer's first offset on."""
        lines = self.lines.sort("peer", "from_ns").with_columns(
            since=(pl.col("from_ns") - pl.col("from_ns").min()) / 1e9,
            length=(pl.col("to_ns") - pl.col("from_ns")) / 1e9,
            skew_ppm=pl.col("skew_ppb") / 1e3,
            at_from=pl.col("offset_ns") + pl.col("skew_ppb") * (pl.col("from_ns") - pl.col("reference_ns")) / 1e9,
            line=pl.int_range(pl.len()),
        )
        first = pl.col("at_from").first().over("peer")
        steps = pl.DataFrame({"share": [index / (POINTS - 1) for index in range(POINTS)]})
        along = pl.col("share") * pl.col("length")
        return lines.join(steps, how="cross").select(
            "line",
            "share",
            "skew_ppm",
            series=pl.format("{} ({} µs at the start)", "peer", (first / 1e3).round(3)),
            seconds=pl.col("since") + along,
            offset_us=(pl.col("at_from") - first + pl.col("skew_ppb") * along) / 1e3,
            error95_us=pl.col("error95_ns") / 1e3,
            bound_us=pl.col("bound_ns") / 1e3,
        )

    def figure(self) -> Figure:
        """Return the figure with both panels."""
        points = self.points()
        caption = (
            "How much each clock's offset against this host changed since the start, with its 95 % error (dark band; "
            "it assumes minimum delays there and back that differ by a fifth of the round trip at most) and its "
            "maximum error (light band), and its skew."
        )
        panels = (
            Panel("Change of the offset (µs)", lambda palette, width: offsets(points, palette, width)),
            Panel("Skew (ppm; 1 ppm is 60 µs a minute)", lambda palette, width: skews(points, palette, width)),
        )
        return Figure("clocks", "Clocks", caption, panels, peers_of(points))

    def svg(self) -> str:
        """Return the figure as SVG."""
        from sojourn.report.bundle import svg

        return svg(self.figure().file())

    def html(self) -> str:
        """Return the figure as an HTML page that loads nothing."""
        import vl_convert

        from sojourn.report.bundle import VEGA_LITE

        drawn: str = vl_convert.vegalite_to_html(self.figure().file(), vl_version=VEGA_LITE, bundle=True)
        return drawn


def peers_of(points: pl.DataFrame) -> tuple[str, ...]:
    """Return the peers, which have colours and dashes by their order."""
    return tuple(points["series"].unique().sort())


def time_axis() -> alt.X:
    """The x axis: seconds since the first exchange."""
    return alt.X("seconds:Q", title="Time (s)", scale=alt.Scale(nice=False))


def offsets(points: pl.DataFrame, palette: Palette, width: Width) -> Any:
    """Draw the offsets with both bands."""
    peers, legend = peers_of(points), alt.Legend(title=None, labelLimit=FILE_WIDTH, symbolOpacity=1)
    named, dashed = by_colour(peers, palette).legend(legend), by_dash(peers).legend(legend)
    base = alt.Chart(points).encode(x=time_axis(), color=named, detail=alt.Detail("line:N"))
    centre = alt.Y("offset_us:Q", title="Offset (µs)", scale=alt.Scale(zero=False))

    def band(half: str, opacity: float) -> Any:
        reach = {"low": alt.datum.offset_us - alt.datum[half], "high": alt.datum.offset_us + alt.datum[half]}
        return (
            base.transform_calculate(**reach).mark_area(opacity=opacity).encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q"))
        )

    line = base.mark_line(strokeWidth=1.5).encode(y=centre, strokeDash=dashed)
    return alt.layer(band("bound_us", 0.12), band("error95_us", 0.35), line).properties(width=width, height=260)


def skews(points: pl.DataFrame, palette: Palette, width: Width) -> Any:
    """Draw the skews: one level for each segment."""
    peers = peers_of(points)
    skew = alt.Y("skew_ppm:Q", title="Skew (ppm)", scale=alt.Scale(zero=False))
    line = alt.Chart(points).mark_line(strokeWidth=1.5)
    encoded = line.encode(
        x=time_axis(),
        y=skew,
        color=by_colour(peers, palette).legend(None),
        strokeDash=by_dash(peers).legend(None),
        detail=alt.Detail("line:N"),
    )
    return encoded.properties(width=width, height=260)
