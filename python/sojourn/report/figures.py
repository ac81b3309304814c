"""The figures of the report: one function per figure, run in, figure out; Altair writes them for page and paper.

A figure is a row of panels. On the page each panel is as wide as its place; in files they stand two abreast. Nothing
is estimated here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
import polars as pl

from sojourn.report import samples
from sojourn.report.marks import colour, configured, dash, exceedance, symbol, time_scale
from sojourn.report.palette import Palette, ordered
from sojourn.report.run import Run
from sojourn.report.tables import fitted_lines, in_order

Width = int | Literal["container"]
Build = Callable[[Palette, Width], Any]
MOST_PANELS = 4
alt.data_transformers.disable_max_rows()
FILE_WIDTH = 380
ROW_HEIGHT = 30


@dataclass(frozen=True)
class Panel:
    """One chart of a figure."""

    title: str
    build: Build

    def page(self) -> dict[str, Any]:
        """The Vega-Lite specification for the page."""
        palette = Palette(for_page=True)
        spec: dict[str, Any] = configured(self.build(palette, "container"), palette).to_dict(validate=False)
        return spec


@dataclass(frozen=True)
class Figure:
    """One figure: its panels, its caption, and the devices that its legend names."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    devices: tuple[str, ...]
    columns: int = 2

    def file(self) -> str:
        """The Vega-Lite specification for SVG and PDF, as JSON."""
        palette = Palette(for_page=False)
        charts = [panel.build(palette, FILE_WIDTH).properties(title=panel.title) for panel in self.panels]
        whole = charts[0] if len(charts) == 1 else alt.concat(*charts, columns=min(self.columns, 2), spacing=24)
        return str(configured(whole, palette).to_json(indent=None, validate=False))


def all_figures(run: Run) -> list[Figure]:
    """Every figure that this run has samples for."""
    makers = (cdfs, over_time, lines, differences, control, departures)
    return [figure for make in makers if (figure := make(run)) is not None]


def cdfs(run: Run) -> Figure | None:
    """Round-trip CDFs on a log(1 − p) axis."""
    found = samples.quantiles(run)
    if found.is_empty():
        return None

    def build(cells: pl.DataFrame, palette: Palette, width: Width) -> Any:
        devices = run.devices
        scale = time_scale(float(_lowest(cells, "rtt")), float(_highest(cells, "rtt")))
        return (
            alt.Chart(_without_cell(cells))
            .mark_line(strokeWidth=1.8, interpolate="step-after", clip=True)
            .encode(
                x=alt.X("rtt:Q", title="Round-trip time (µs)", scale=scale, axis=alt.Axis(tickCount=6)),
                y=exceedance().scale(type="log", domain=[1, max(1e-5, float(_lowest(cells, "q")))], nice=False),
                color=colour(devices, palette, legend=not palette.for_page),
                strokeDash=dash(devices, legend=not palette.for_page),
                tooltip=["device:N", alt.Tooltip("rtt:Q", title="RTT (µs)"), alt.Tooltip("q:Q", title="share above")],
            )
            .properties(width=width, height=260)
        )

    caption = (
        "Share of round trips below a time. The axis is logarithmic in 1 − p, so that each step up is ten times rarer; "
        "the body of the distribution is at the foot, its tail above."
    )
    return Figure("rtt_cdf", "Round-trip times", caption, _by_cell(found, build), tuple(_arms(found)))


def over_time(run: Run) -> Figure | None:
    """Round trips over the time of the run."""
    found = samples.timeline(run)
    if found.is_empty():
        return None

    def build(cells: pl.DataFrame, palette: Palette, width: Width) -> Any:
        scale = time_scale(float(_lowest(cells, "rtt")), float(_highest(cells, "rtt")))
        return (
            alt.Chart(_without_cell(cells))
            .mark_point(filled=True, size=11, opacity=0.55, clip=True)
            .encode(
                x=alt.X("s:Q", title="Time since the run began (s)", axis=alt.Axis(tickCount=6)),
                y=alt.Y("rtt:Q", title="Round-trip time (µs)", scale=scale, axis=alt.Axis(tickCount=6)),
                color=colour(run.devices, palette, legend=not palette.for_page),
                shape=symbol(run.devices, legend=not palette.for_page),
            )
            .properties(width=width, height=220)
        )

    caption = (
        f"Every arm in turn, interleaved in short blocks; {found.height:,} of all probes are drawn. "
        "Steps, slopes and bands here are what the drift and steadiness findings look for."
    )
    return Figure(
        "rtt_over_time", "Round-trip times over the run", caption, _by_cell(found, build), tuple(_arms(found))
    )


def lines(run: Run) -> Figure | None:
    """Latency against frame size: points, the line a + b × size, and its band."""
    band, points = samples.bands(run), _line_points(run)
    if band.is_empty() and points.is_empty():
        return None

    def panel(title: str, reference: str | None) -> Panel | None:
        mine = [
            frame.filter(pl.col("reference").eq_missing(pl.lit(reference))) if frame.height else frame
            for frame in (band, points)
        ]
        if all(frame.is_empty() for frame in mine):
            return None
        return Panel(title, lambda palette, width: _line_chart(run, mine[0], mine[1], palette, width))

    kinds = (("Whole path", None), ("Device alone, over direct", "direct"), ("Device alone, over wire", "wire"))
    panels = [one for title, reference in kinds if (one := panel(title, reference)) is not None]
    devices = ordered([*(_arms(band)), *(_arms(points))])
    caption = (
        "One way, against the frame's bytes. Points are means over pairs with their 95 % intervals; the line and its "
        "band (95 %, pointwise) come from one fit per round."
    )
    return Figure("size_lines", "a + b × size", caption, tuple(panels), tuple(devices), columns=len(panels))


def differences(run: Run) -> Figure | None:
    """What each pair says of each device."""
    found = samples.pairs(run)
    devices = found.filter(pl.col("device") != "a/a") if found.height else found
    if devices.is_empty():
        return None
    kinds = devices.unique(["device", "reference"]).select("device", "reference").rows()
    rank = {name: i for i, name in enumerate(ordered([device for device, _ in kinds]))}
    kinds.sort(key=lambda kind: (kind[1], rank[kind[0]]))
    panels = tuple(_pair_panel(run, found, device, reference) for device, reference in kinds)
    return Figure("paired_differences", "Paired differences", _pair_caption(run, found), panels, ())


def control(run: Run) -> Figure | None:
    """The A/A control, on the scale of the devices."""
    found = samples.pairs(run)
    if found.is_empty() or found.filter(pl.col("device") == "a/a").is_empty():
        return None
    caption = (
        "The direct link against itself, drawn like the devices and on their scale: what shows here is the bed, not a "
        "device. The pooled interval is a 99.9 % one and must contain zero."
    )
    return Figure("a_a_control", "A/A control", caption, (_pair_panel(run, found, "a/a", "direct"),), (), columns=1)


def departures(run: Run) -> Figure | None:
    """How late or early departures were."""
    found = samples.departure_errors(run)
    if found.is_empty():
        return None
    drawn = found.with_columns(pl.col("us").abs().clip(lower_bound=1e-3))

    def build(palette: Palette, width: Width) -> Any:
        marks = alt.Chart(pl.DataFrame({"at": [1, 10]})).mark_rule(strokeDash=[2, 3])
        curve = (
            alt.Chart(drawn)
            .mark_line(strokeWidth=1.8, clip=True)
            .encode(
                x=alt.X("us:Q", title="Departure error, in size (µs)", scale=alt.Scale(type="log", nice=True)),
                y=exceedance().scale(type="log", domain=[1, max(1e-5, float(_lowest(drawn, "q")))], nice=False),
                color=colour(run.devices, palette, legend=not palette.for_page),
                strokeDash=dash(run.devices, legend=not palette.for_page),
                tooltip=["device:N", alt.Tooltip("us:Q", title="error (µs)"), alt.Tooltip("q:Q", title="share above")],
            )
        )
        rules = marks.encode(x="at:Q", color=alt.value(palette.surface("muted")))
        return alt.layer(rules, curve).properties(width=width, height=240)

    caption = "Actual less intended departure. The dotted rules are at 1 µs and 10 µs."
    return Figure("departure_error", "Departure error", caption, (Panel("", build),), tuple(_arms(found)), columns=1)


def _by_cell(found: pl.DataFrame, build: Callable[[pl.DataFrame, Palette, Width], Any]) -> tuple[Panel, ...]:
    """Small multiples while they are few; beyond, one panel in which a cell is chosen."""
    cells = found["cell"].unique(maintain_order=True).to_list()
    if len(cells) > MOST_PANELS:
        return (Panel("", lambda palette, width: _chosen(build(found, palette, width), cells, palette)),)

    def panel(cell: str) -> Panel:
        mine = found.filter(pl.col("cell") == cell)
        return Panel(cell, lambda palette, width: build(mine, palette, width))

    return tuple(panel(cell) for cell in cells)


def _chosen(chart: Any, cells: list[str], palette: Palette) -> Any:
    if not palette.for_page:
        return chart.facet(facet=alt.Facet("cell:N", title=None, sort=cells), columns=3)
    choice = alt.param(name="cell", value=cells[0], bind=alt.binding_select(options=cells, name="Cell "))
    return chart.add_params(choice).transform_filter("datum.cell == cell")


def _line_chart(run: Run, band: pl.DataFrame, points: pl.DataFrame, palette: Palette, width: Width) -> Any:
    named = not palette.for_page
    x = alt.X("frame:Q", title="Frame (bytes)", scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(tickCount=6))
    y = alt.Y("us:Q", title="Latency, one way (µs)", scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(tickCount=6))
    ink = colour(run.devices, palette, legend=named)
    layers = []
    if band.height:
        base = alt.Chart(band).encode(x=x, color=ink)
        layers.append(base.mark_area(opacity=0.18).encode(y=alt.Y("low:Q", title=""), y2="high:Q"))
        layers.append(base.mark_line(strokeWidth=1.6).encode(y=y, strokeDash=dash(run.devices, legend=named)))
    if points.height:
        base = alt.Chart(points).encode(x=x, color=ink)
        layers.append(base.mark_rule(strokeWidth=1.6).encode(y=alt.Y("low:Q", title=""), y2="high:Q"))
        tips = [
            "device:N",
            alt.Tooltip("frame:Q", title="frame (bytes)"),
            alt.Tooltip("us:Q", title="µs", format=".4f"),
        ]
        shape = symbol(run.devices, legend=named)
        layers.append(base.mark_point(filled=True, size=46, opacity=1).encode(y=y, shape=shape, tooltip=tips))
    return alt.layer(*layers).properties(width=width, height=280)


def _line_points(run: Run) -> pl.DataFrame:
    """The cells' own means, one way: half the mean round trip of whole paths, the device latency of devices."""
    halved = run.rows("rtt", "mean").with_columns(pl.col("estimate", "ci_low", "ci_high") / 2)
    devices = run.rows("device_latency", "mean")
    both = pl.concat([halved, devices]).filter(pl.col("device") != "a/a", pl.col("frame_bytes").is_not_null())
    return (
        both.select(
            "device",
            "reference",
            pl.max_horizontal("frame_bytes", "response_frame_bytes").alias("frame"),
            (pl.col("estimate") / 1e3).alias("us"),
            (pl.col("ci_low") / 1e3).alias("low"),
            (pl.col("ci_high") / 1e3).alias("high"),
        )
        if next(fitted_lines(run), None)
        else pl.DataFrame()
    )


def _pair_panel(run: Run, found: pl.DataFrame, device: str, reference: str) -> Panel:
    ticks = found.filter(pl.col("device") == device, pl.col("reference") == reference)
    rows = [row for row in in_order(run.rows("device_latency", device=device, reference=reference))]
    marks = [_estimate(run, row) for row in rows if row["estimate"] is not None]
    title = device if device == "a/a" else f"{device} over {reference}"

    def build(palette: Palette, width: Width) -> Any:
        low, high = _shared_range(run, found)
        order = list(dict.fromkeys([*(mark["cell"] for mark in marks if mark["pooled"]), *ticks["cell"].to_list()]))
        y = alt.Y("cell:N", title=None, sort=order, axis=alt.Axis(labelLimit=150, domain=False, ticks=False, grid=True))
        x = alt.X(
            "us:Q",
            title="Device latency, one way (µs)",
            scale=alt.Scale(domain=[low, high], nice=True),
            axis=alt.Axis(tickCount=6),
        )
        hue = palette.device(device)
        zero = alt.Chart(pl.DataFrame({"us": [0]})).mark_rule(color=palette.surface("muted"), strokeWidth=1)
        strip = alt.Chart(ticks).mark_tick(thickness=1, size=10, opacity=0.5, color=hue, yOffset=6, clip=True)
        tips = ["cell:N", *(alt.Tooltip(f"{key}:Q", format=".4f") for key in ("us", "low", "high"))]
        base = alt.Chart(pl.DataFrame(marks, infer_schema_length=None))
        rule = base.mark_rule(strokeWidth=3, color=hue, yOffset=-5, clip=True, strokeCap="round")
        dot = base.mark_point(
            filled=True, size=60, color=palette.surface("ink"), yOffset=-5, opacity=1, shape="diamond"
        )
        return alt.layer(
            zero.encode(x=x),
            strip.encode(x=x, y=y, tooltip=["cell:N", alt.Tooltip("us:Q", title="this pair (µs)")]),
            rule.encode(x=alt.X("low:Q", title=""), x2="high:Q", y=y),
            dot.encode(x=x, y=y, tooltip=tips),
        ).properties(width=width, height=ROW_HEIGHT * len(order))

    return Panel(title, build)


def _estimate(run: Run, row: dict[str, Any]) -> dict[str, Any]:
    cell = run.cell_of(row)
    times = {
        name: row[key] / 1e3 if row[key] is not None else None
        for name, key in (("us", "estimate"), ("low", "ci_low"), ("high", "ci_high"))
    }
    return {"cell": cell.short if cell else "pooled", "pooled": cell is None, **times}


def _shared_range(run: Run, found: pl.DataFrame) -> tuple[float, float]:
    """One range for all devices and the control: nearly every pair, every interval, and zero."""
    rows = run.rows("device_latency")
    ends = [float(value) / 1e3 for key in ("estimate", "ci_low", "ci_high") for value in rows[key].drop_nulls()]
    pairs = [found["us"].quantile(0.01) or 0.0, found["us"].quantile(0.99) or 0.0]
    low, high = min(0.0, *ends, *pairs), max(0.0, *ends, *pairs)
    margin = (high - low) * 0.03
    return low - margin, high + margin


def _pair_caption(run: Run, found: pl.DataFrame) -> str:
    low, high = _shared_range(run, found)
    outside = found.filter((pl.col("us") < low) | (pl.col("us") > high)).height
    tail = f" {outside} of {found.height:,} pairs lie outside the drawn range." if outside else ""
    return (
        "Each tick is one pair: half the difference of two mean round trips, measured next to each other. The diamond is "
        f"the Hodges–Lehmann estimate over the pairs of its row, the bar its interval.{tail}"
    )


def _without_cell(frame: pl.DataFrame) -> pl.DataFrame:
    """The same rows without the cell's name where it is always the same: a third of the page's weight."""
    return frame.drop("cell") if frame["cell"].n_unique() == 1 else frame


def _arms(frame: pl.DataFrame) -> list[str]:
    return ordered(frame["device"].to_list()) if "device" in frame.columns else []


def _lowest(frame: pl.DataFrame, column: str) -> Any:
    return frame[column].min()


def _highest(frame: pl.DataFrame, column: str) -> Any:
    return frame[column].max()


def specifications(figures: Iterable[Figure]) -> Iterable[tuple[str, dict[str, Any]]]:
    """Every panel's specification for the page, by the id of its place."""
    for figure in figures:
        for i, panel in enumerate(figure.panels):
            yield f"{figure.name}-{i}", panel.page()
