"""The kinds of charts that figures share: a quantity over a factor, distributions, histograms, intervals in rows.

Each takes rows with the columns that its first line names and gives an Altair chart; axes come from the caller. Rows
have one colour per device; `series`, where a chart takes it, has a dash or a shade of its own. Nothing is estimated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import altair as alt
import polars as pl

from sojourn.devices.mode import (
    BOW_TIE,
    CHEVRON_DOWN,
    CHEVRON_LEFT,
    CHEVRON_RIGHT,
    CHEVRON_UP,
    LEVEL,
    SALTIRE,
    SPARK,
    STAR,
    TEE,
    UPRIGHT,
)
from sojourn.report.marks import (
    EMPTY,
    FILLED,
    LINE,
    colour,
    dash,
    exceedance,
    fill,
    legend_of,
    symbol,
    time_scale,
)
from sojourn.report.palette import Palette, ordered

if TYPE_CHECKING:
    from sojourn.report.figure import Key, Width
    from sojourn.report.marks import Look

DASHES = (
    [1, 0], [6, 4], [2, 3], [9, 3, 2, 3], [4, 2, 1, 2], [12, 4], [2, 2, 2, 6], [10, 2, 2, 2, 2, 2], [14, 3, 1, 3]
)  # fmt: skip
"""As many as there are colours of series (`Palette.series`)."""
SPELLED = "datum.value < 10000 ? format(datum.value, ',.6~f') : format(datum.value, '~s')"
RARE = f"datum.value && abs(datum.value) < 0.0001 ? format(datum.value, '.2~e') : {SPELLED}"
"""Formats small shares too: with six decimals, neighbouring ticks would read alike."""

TICKS = [digit * 10.0**power for power in range(-4, 10) for digit in (1, 2, 5)]


class Chart(Protocol):
    """A chart that a figure draws, one panel at a time."""

    @property
    def own_colours(self) -> bool:
        """Whether its colours distinguish something other than devices, and it draws the legend itself."""

    @property
    def key(self) -> Key:
        """What distinguishes devices beside their colours, and stands in the legend."""

    def draw(self, rows: pl.DataFrame, devices: list[str], palette: Palette, width: Width) -> Any:
        """The chart of these rows."""


@dataclass(frozen=True)
class Axis:
    """One axis: its title, and whether it is logarithmic, with the ticks 1, 2, 5, 10."""

    title: str
    log: bool = False
    zero: bool = False
    symlog: bool = False
    """Logarithmic, but with a zero: for shares in percent."""
    whole: bool = False
    """Whether only whole numbers are meaningful."""
    most: float | None = None
    """The upper end, if not the largest value: a single value would be drawn on the edge."""

    @classmethod
    def fitting(cls, title: str, values: pl.Series) -> Axis:
        """Return an axis for these values: logarithmic where a few of them would squeeze the rest into a line."""
        return cls(title, log=bool(time_scale(values).to_dict().get("type") == "log"))

    def scale(self) -> alt.Scale:
        """Return the scale, whose domain follows the values."""
        if self.symlog:
            return alt.Scale(type="symlog", constant=0.001, nice=False)
        return alt.Scale(type="log", nice=False, padding=8) if self.log else self._linear()

    def _linear(self) -> alt.Scale:
        most = alt.Undefined if self.most is None else self.most
        return alt.Scale(zero=self.zero, nice=True, domainMax=most)

    def x(self, name: str) -> alt.X:
        """Return the axis as x of a column."""
        return alt.X(f"{name}:Q", title=self.title, scale=self.scale(), axis=self._axis())

    def y(self, name: str) -> alt.Y:
        """Return the axis as y of a column."""
        return alt.Y(f"{name}:Q", title=self.title, scale=self.scale(), axis=self._axis())

    def _axis(self) -> alt.Axis:
        if self.log:
            return alt.Axis(values=TICKS, labelExpr=SPELLED, labelOverlap="greedy", labelSeparation=5)
        if self.symlog:
            return alt.Axis(values=[0, 0.001, 0.01, 0.1, 1, 10, 50, 100], format=",.6~f")
        least = 1 if self.whole else alt.Undefined
        return alt.Axis(tickCount=6, labelExpr=SPELLED, tickMinStep=least)


@dataclass(frozen=True)
class Lines:
    """Quantities over a factor; rows: device, x, y, low, high, and optionally series, hollow, role.

    `hollow` points are limits, not values. Rows of role "rule" (x) are vertical lines; those of role "fit" are a fitted
    line with its band, drawn instead of lines from point to point.
    """

    x: Axis
    y: Axis
    series: tuple[str, ...] = ()
    joined: bool = True
    height: int = 260
    hued: bool = False
    """Whether the series have the colours, instead of the devices."""
    marks_devices: bool = False
    """Whether the marks of points distinguish devices although there are several series: see `fitted_to`."""
    fills_series: bool = False
    """Whether points of the series differ in filling and size, where no line with a dash distinguishes them all."""

    @property
    def own_colours(self) -> bool:
        """The series have the colours if `hued` is set."""
        return self.hued

    @property
    def key(self) -> Key:
        """With several series, their dashes are theirs."""
        if len(self.series) < 2:
            return "line"
        return "symbol" if self.marks_devices else "swatch"

    def fitted_to(self, rows: pl.DataFrame, devices: list[str]) -> Lines:
        """Return the chart with marks that distinguish devices, where there are several of them and several series.

        The dashes of lines distinguish series. A series of one point has no line, and points that are not joined have
        none: then the filling of marks distinguishes series, too.
        """
        if len(self.series) < 2 or len(devices) < 2 or self.hued:
            return self
        points = of_role(rows, "point").drop_nulls(["x", "y"])
        places = points.group_by("cell", "device", "series").agg(pl.col("x").n_unique())["x"]
        return replace(self, marks_devices=True, fills_series=not self.joined or bool((places < 2).any()))

    def draw(self, rows: pl.DataFrame, devices: list[str], palette: Palette, width: Width) -> Any:
        """The chart of these rows."""
        if self.x.log and not _spans_ticks(rows, "x"):
            return replace(self, x=replace(self.x, log=False)).draw(rows, devices, palette, width)
        if self.y.log and not _spans_ticks(rows, "y", "low", "high"):
            return replace(self, y=replace(self.y, log=False)).draw(rows, devices, palette, width)
        known = self._above_zero(rows.drop_nulls(["x", "y"]))
        points, fitted = of_role(known, "point"), of_role(known, "fit")
        layers = [*self._rules(of_role(rows, "rule"), devices, palette), *self._fitted(fitted, devices, palette)]
        joined = [] if fitted.height or not self.joined else self._lines(points, devices, palette)
        layers += [*self._bars(points, devices, palette), *joined, *self._points(points, devices, palette)]
        return alt.layer(*layers).properties(width=width, height=self.height)

    def _above_zero(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that a logarithmic axis can show; error bars that reach zero or below are cut off."""
        kept = rows.filter(pl.col("x") > 0) if self.x.log else rows
        if not self.y.log or kept.is_empty():
            return kept
        kept = kept.filter(pl.col("y") > 0)
        foot = float(kept["y"].min() or 1.0) / 2  # type: ignore[arg-type]
        return kept.with_columns(pl.col("low").cast(pl.Float64).clip(lower_bound=foot))

    def _base(self, rows: pl.DataFrame, devices: list[str], palette: Palette) -> Any:
        hue = colour(devices, palette, not palette.for_page, self._look)
        if self.hued:
            hue = by_colour(self.series, palette).legend(legend_of_series(self.series))
        return alt.Chart(rows).encode(x=self.x.x("x"), color=hue)

    def _rules(self, rows: pl.DataFrame, devices: list[str], palette: Palette) -> list[Any]:
        base = self._base(rows, devices, palette)
        return [base.mark_rule(strokeWidth=1.4, strokeDash=[2, 3], clip=True)] if rows.height else []

    def _fitted(self, rows: pl.DataFrame, devices: list[str], palette: Palette) -> list[Any]:
        base = self._base(rows, devices, palette)
        band = base.mark_area(opacity=0.16, clip=True).encode(**self._ends())
        line = base.mark_line(strokeWidth=1.6, clip=True).encode(y=self.y.y("y"))
        return [*([band] if rows.drop_nulls(["low", "high"]).height else []), line] if rows.height else []

    def _bars(self, rows: pl.DataFrame, devices: list[str], palette: Palette) -> list[Any]:
        values = rows.filter(~pl.col("hollow")) if "hollow" in rows.columns else rows
        # A missing interval is drawn as a bar of no length, so that a panel without intervals has no empty layer.
        known = (pl.coalesce(end, "y").cast(pl.Float64).alias(end) for end in ("low", "high"))
        bounded = values.with_columns(known)
        bars = self._base(bounded, devices, palette).mark_rule(strokeWidth=1.6).encode(**self._ends())
        return [bars] if bounded.height else []

    def _ends(self) -> dict[str, Any]:
        return {"y": self.y.y("low").title(""), "y2": alt.Y2("high:Q")}

    def _lines(self, rows: pl.DataFrame, devices: list[str], palette: Palette) -> list[Any]:
        line = self._base(rows, devices, palette).mark_line(strokeWidth=1.6, clip=True).encode(y=self.y.y("y"))
        return [
            line.encode(
                strokeDash=by_dash(self.series).legend(self._legend())
                if len(self.series) > 1
                else dash(devices, palette, not palette.for_page, self._look)
            )
        ]

    @property
    def _look(self) -> Look:
        return EMPTY if self.fills_series else FILLED

    def _legend(self) -> alt.Legend:
        if self.fills_series:
            return legend_of_fillings(self.series, joined=self.joined)
        return legend_of_strokes(self.series) if self.marks_devices else legend_of_series(self.series)

    def _points(self, rows: pl.DataFrame, devices: list[str], palette: Palette) -> list[Any]:
        if rows.is_empty():
            return []
        tips = [
            *(alt.Tooltip(one) for one in (("device:N", "series:N") if len(self.series) > 1 else ("device:N",))),
            alt.Tooltip("x:Q", title=self.x.title, format=".6~g"),
            *(
                alt.Tooltip(f"{name}:Q", title=title, format=".6~g")
                for name, title in (("y", self.y.title), ("low", "from"), ("high", "to"))
            ),
        ]
        bounds = rows.filter(pl.col("hollow")) if "hollow" in rows.columns else rows.clear()
        drawn = self._outlined if self.fills_series else self._filled
        return [
            layer.encode(y=self.y.y("y"), tooltip=tips)
            for layer in (*drawn(rows, devices, palette), *self._arrows(bounds, devices, palette))
        ]

    def _filled(self, rows: pl.DataFrame, devices: list[str], palette: Palette) -> list[Any]:
        """Draw symbols of the series, or of the devices."""
        named = not palette.for_page
        has_own = len(self.series) > 1 and not self.marks_devices
        shape = by_shape(self.series) if has_own else symbol(devices, palette, named, FILLED)
        return [self._base(rows, devices, palette).mark_point(filled=True, size=46, opacity=1).encode(shape=shape)]

    def _outlined(self, rows: pl.DataFrame, devices: list[str], palette: Palette) -> list[Any]:
        """Draw symbols of the devices, whose filling and size are those of the series."""
        named = not palette.for_page
        base = self._base(with_fillings(rows, self.series), devices, palette)
        base = base.encode(shape=symbol(devices, palette, named), size=alt.Size("area:Q", scale=None))
        # What lies below an empty symbol would look like a filling.
        paper = base.mark_point(filled=True, opacity=1).encode(color=alt.ColorValue(palette.surface("paper")))
        marks = base.mark_point(strokeWidth=1.4, opacity=1).encode(
            fill=fill(devices, palette, named), fillOpacity=alt.FillOpacity("full:Q", scale=None)
        )
        if not self.joined:  # no line has a legend
            width = alt.Scale(domain=list(self.series), range=[1.4] * len(self.series))
            # Vega-Lite warns of names without an order.
            filled = alt.StrokeWidth("series:N", sort=list(self.series), scale=width, legend=self._legend())
            marks = marks.encode(strokeWidth=filled)
        return [paper, marks]

    def _arrows(self, rows: pl.DataFrame, devices: list[str], palette: Palette) -> list[Any]:
        """Draw an arrow above each point that is a limit."""
        arrow = alt.ShapeValue("M0,1 L0,-0.9 M-0.5,-0.3 L0,-1 L0.5,-0.3")
        base = self._base(rows, devices, palette).mark_point(filled=False, size=200, strokeWidth=1.8, yOffset=-9)
        return [base.encode(shape=arrow)] if rows.height else []


@dataclass(frozen=True)
class Distribution:
    """Distributions on a log(1 - p) axis; rows: device, x, exceedance (the share above x)."""

    key: ClassVar[Key] = "line"
    x: alt.X
    rarest: float
    said: str
    stepped: bool = True
    height: int = 260

    @property
    def own_colours(self) -> bool:
        """Devices have the colours."""
        return False

    def draw(self, rows: pl.DataFrame, devices: list[str], palette: Palette, width: Width) -> Any:
        """The chart of these rows."""
        named = not palette.for_page
        tips = [
            alt.Tooltip(f"{self.x.shorthand}", title=self.said),
            alt.Tooltip("exceedance:Q", title="share above", format=".3~g"),
        ]
        return (
            alt.Chart(rows)
            .mark_line(strokeWidth=1.8, clip=True, interpolate="step-after" if self.stepped else "linear")
            .encode(
                x=self.x,
                y=exceedance(self.rarest),
                color=colour(devices, palette, named, LINE),
                strokeDash=dash(devices, palette, named, LINE),
                order=alt.Order("exceedance:Q", sort="descending"),
                tooltip=[alt.Tooltip("device:N"), *tips],
            )
            .properties(width=width, height=self.height)
        )


@dataclass(frozen=True)
class Histogram:
    """Shares in bins; rows: device or series, low, high, share; rows of role "rule" (x) are vertical lines."""

    key: ClassVar[Key] = "line"
    x: str
    series: tuple[str, ...] = ()
    """If given, colours distinguish these instead of devices."""
    filled: tuple[str, ...] = ()
    """The series that are drawn as areas; if empty, all are."""
    height: int = 200

    @property
    def own_colours(self) -> bool:
        """Series have the colours, where there are any."""
        return bool(self.series)

    def draw(self, rows: pl.DataFrame, devices: list[str], palette: Palette, width: Width) -> Any:
        """The chart of these rows."""
        named = not palette.for_page
        hue = by_colour(self.series, palette) if self.series else colour(devices, palette, named, LINE)
        x = alt.X("low:Q", title=self.x, scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(tickCount=6))
        # Bins differ in width between devices and loads: only shares per width are comparable.
        y = alt.Y("density:Q", title="Share of frames per µs", axis=alt.Axis(tickCount=4, labelExpr=RARE), stack=None)
        dense = of_role(rows, "point").with_columns(
            (pl.col("share") / (pl.col("high") - pl.col("low"))).round_sig_figs(4).alias("density")
        )
        bins = alt.Chart(dense.drop("share", "high")).encode(x=x, color=hue)
        lines = bins.mark_line(interpolate="step-after", clip=True, strokeWidth=1.4).encode(y=y)
        dashed = by_dash(self.series) if self.series else dash(devices, palette, named, LINE)
        lines = lines.encode(strokeDash=dashed)
        solid = bins.mark_area(interpolate="step-after", clip=True, opacity=0.22).encode(y=y)
        if self.filled:
            solid = solid.transform_filter(alt.FieldOneOfPredicate("series", list(self.filled)))
        rules = of_role(rows, "rule")
        upright = alt.Chart(rules).mark_rule(strokeWidth=1.2, strokeDash=[2, 3], clip=True)
        marks = [upright.encode(x=alt.X("x:Q", title=""), color=hue)] if rules.height else []
        return alt.layer(solid, lines, *marks).properties(width=width, height=self.height)


INK = "#0067a8"
"""The colour of a density chart, visible on white and on black."""


@dataclass(frozen=True)
class Density:
    """Shares over classes of x and of y; rows: x (a class), low, high (the class of y), share."""

    key: ClassVar[Key] = "swatch"
    x: str
    y: str
    height: int = 200

    @property
    def own_colours(self) -> bool:
        """Colours are shares."""
        return True

    def draw(self, rows: pl.DataFrame, devices: list[str], palette: Palette, width: Width) -> Any:
        """The chart of these rows."""
        del devices, palette
        share = alt.Opacity("share:Q", title="Share", scale=alt.Scale(range=[0.06, 1], domainMin=0), legend=None)
        y = alt.Y("low:Q", title=self.y, scale=alt.Scale(type="log", nice=False), axis=alt.Axis(tickCount=5))
        x = alt.X("x:O", title=self.x, axis=alt.Axis(labelAngle=0), scale=alt.Scale(paddingInner=0.1))
        tips = [*map(alt.Tooltip, ("x:O", "low:Q", "high:Q")), alt.Tooltip("share:Q", format=".2%")]
        fields = alt.Chart(rows).mark_rect(color=INK).encode(x=x, y=y, y2=alt.Y2("high:Q"), opacity=share, tooltip=tips)
        return fields.properties(width=width, height=self.height)


DARK = 0.7
"""A field stronger than this is dark, and its text is white."""


@dataclass(frozen=True)
class Heat:
    """A map of one value over two axes, with text in each field; rows: x, y (classes), strength (0 to 1), said."""

    x: str
    y: str
    height: int = 200

    def of(self, rows: pl.DataFrame, palette: Palette, width: Width) -> Any:
        """The chart of these rows."""
        x = alt.X("x:O", title=self.x, axis=alt.Axis(labelAngle=0))
        y = alt.Y("y:O", title=self.y, sort="descending")
        # Maps side by side in a file share the scale, because `strength` is relative within each map.
        strength = alt.Opacity("strength:Q", scale=alt.Scale(domain=[0, 1], range=[0.04, 1]), legend=None)
        tips = [
            alt.Tooltip("x:O", title=self.x),
            alt.Tooltip("y:O", title=self.y),
            alt.Tooltip("said:N", title="Value"),
        ]
        base = alt.Chart(rows).encode(x=x, y=y)
        fields = base.mark_rect(color=INK, stroke="#ffffff", strokeWidth=1).encode(opacity=strength, tooltip=tips)
        above = alt.condition(alt.datum.strength > DARK, alt.value("#ffffff"), alt.value(palette.surface("ink")))
        words = base.mark_text(fontSize=12).encode(text="said:N", color=above)
        return alt.layer(fields, words).properties(width=width, height=self.height)


@dataclass(frozen=True)
class Bars:
    """Counts; rows: device, x, y."""

    key: ClassVar[Key] = "symbol"
    x: Axis
    y: Axis

    @property
    def own_colours(self) -> bool:
        """Devices have the colours."""
        return False

    def draw(self, rows: pl.DataFrame, devices: list[str], palette: Palette, width: Width) -> Any:
        """The chart of these rows."""
        named = not palette.for_page
        hue, shape = colour(devices, palette, named), symbol(devices, palette, named)
        base = alt.Chart(rows).encode(x=self.x.x("x"), y=self.y.y("y"), color=hue)
        tips = ["device:N", alt.Tooltip("x:Q", title=self.x.title), alt.Tooltip("y:Q", title=self.y.title)]
        dots = base.mark_point(filled=True, size=40, opacity=1).encode(shape=shape, tooltip=tips)
        return alt.layer(base.mark_line(strokeWidth=1.2, opacity=0.6), dots).properties(width=width, height=220)


@dataclass(frozen=True)
class Steps:
    """Points in their order, coloured by outcome; rows: x, y, series (one of `outcomes`), hollow."""

    key: ClassVar[Key] = "swatch"
    x: str
    y: str
    outcomes: tuple[str, ...]

    @property
    def own_colours(self) -> bool:
        """Outcomes have the colours."""
        return True

    def draw(self, rows: pl.DataFrame, devices: list[str], palette: Palette, width: Width) -> Any:
        """The chart of these rows."""
        hues = [palette.series(place) for place in (2, 4, 1)]
        scale = alt.Scale(domain=list(self.outcomes), range=hues[: len(self.outcomes)])
        legend = alt.Legend(title="Lost", symbolOpacity=1)
        x = alt.X("x:Q", title=self.x, axis=alt.Axis(tickCount=8, labelExpr="datum.value % 1 ? '' : datum.value"))
        y = alt.Y("y:Q", title=self.y, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5, labelExpr=SPELLED))
        base = alt.Chart(rows).encode(x=x, y=y)
        line = base.mark_line(strokeWidth=1, color=palette.surface("rule"))
        marks = alt.Scale(domain=list(self.outcomes), range=["circle", "diamond", "cross"])
        dots = base.encode(
            color=alt.Color("series:N", scale=scale, legend=legend),
            shape=alt.Shape("series:N", scale=marks, legend=legend),
            tooltip=[
                alt.Tooltip("x:Q", title=self.x),
                alt.Tooltip("y:Q", title=self.y, format=",.0f"),
                alt.Tooltip("series:N"),
            ],
        )
        judged, others = (rows.filter(pl.col("hollow") == hollow) for hollow in (False, True))
        layers = [
            dots.mark_point(filled=filled, size=50, opacity=1).properties(data=some)
            for some, filled in ((judged, True), (others, False))
            if some.height
        ]
        return alt.layer(line, *layers).properties(width=width, height=240)


@dataclass(frozen=True)
class Intervals:
    """Estimates with intervals, a row for each name; rows: name, device, x, low, high; `names` are in drawing order."""

    key: ClassVar[Key] = "symbol"
    x: str
    names: tuple[str, ...]
    log: bool = False

    @property
    def own_colours(self) -> bool:
        """Devices have the colours."""
        return False

    def draw(self, rows: pl.DataFrame, devices: list[str], palette: Palette, width: Width) -> Any:
        """The chart of these rows."""
        shown = [name for name in self.names if name in set(rows["name"].to_list())]
        axis = alt.Axis(labelLimit=190, labelPadding=8, domain=False, ticks=False, grid=True)
        y = alt.Y("name:N", title=None, sort=shown, scale=alt.Scale(domain=shown), axis=axis)
        several = ordered(rows["device"].to_list())
        offset = alt.YOffset("device:N", sort=several, scale=alt.Scale(domain=several))
        x = alt.X("x:Q", title=self.x, scale=Axis("", self.log).scale(), axis=alt.Axis(tickCount=6))
        base = alt.Chart(rows).encode(y=y, yOffset=offset, color=colour(devices, palette, not palette.for_page))
        tips = [
            alt.Tooltip("device:N"), alt.Tooltip("name:N"),
            *(alt.Tooltip(f"{key}:Q", title=title, format=".6~g")
              for key, title in (("x", self.x), ("low", "from"), ("high", "to"))),
        ]  # fmt: skip
        zero = alt.Chart(pl.DataFrame({"x": [0]})).mark_rule(color=palette.surface("muted"), strokeWidth=1)
        layers = [] if self.log else [zero.encode(x=x)]
        bounded = rows.with_columns(pl.coalesce(end, "x").alias(end) for end in ("low", "high"))
        bars = base.mark_rule(strokeWidth=2.4).properties(data=bounded)
        layers.append(bars.encode(x=alt.X("low:Q", title=""), x2=alt.X2("high:Q")))
        dots = base.mark_point(filled=True, size=44, opacity=1)
        layers.append(dots.encode(x=x, shape=symbol(devices, palette, not palette.for_page), tooltip=tips))
        return alt.layer(*layers).properties(width=width, height=(10 + 14 * len(several)) * len(shown))


@dataclass(frozen=True)
class Events:
    """Times of events, one mark each; rows: device, name (its row in the chart), x; `names` are in drawing order."""

    key: ClassVar[Key] = "swatch"
    x: str
    names: tuple[str, ...]

    @property
    def own_colours(self) -> bool:
        """Devices have the colours."""
        return False

    def draw(self, rows: pl.DataFrame, devices: list[str], palette: Palette, width: Width) -> Any:
        """The chart of these rows."""
        shown = [name for name in self.names if name in set(rows["name"].to_list())]
        axis = alt.Axis(labelLimit=190, domain=False, ticks=False, grid=False)
        y = alt.Y("name:N", title=None, sort=shown, scale=alt.Scale(domain=shown), axis=axis)
        x = alt.X("x:Q", title=self.x, scale=alt.Scale(zero=True, nice=False), axis=alt.Axis(tickCount=8))
        base = alt.Chart(rows).encode(x=x, y=y, color=colour(devices, palette, not palette.for_page))
        several = ordered(rows["device"].to_list())
        if len(several) > 1:
            base = base.encode(yOffset=alt.YOffset("device:N", sort=several, scale=alt.Scale(domain=several)))
        height = max(60, 22 * len(shown) * max(1, len(several)))
        return base.mark_tick(thickness=1, opacity=0.7).properties(width=width, height=height)


@dataclass(frozen=True)
class Waterfall:
    """Bars that each begin where the one above ends; rows: name, device, low, high, x (length); `names` in order."""

    key: ClassVar[Key] = "swatch"
    x: str
    names: tuple[str, ...]

    @property
    def own_colours(self) -> bool:
        """Devices have the colours."""
        return False

    def draw(self, rows: pl.DataFrame, devices: list[str], palette: Palette, width: Width) -> Any:
        """The chart of these rows."""
        shown = [name for name in self.names if name in set(rows["name"].to_list())]
        axis = alt.Axis(labelLimit=190, domain=False, ticks=False, grid=True)
        y = alt.Y("name:N", title=None, sort=shown, scale=alt.Scale(domain=shown, paddingInner=0.25), axis=axis)
        offset = alt.YOffset("device:N", sort=devices, scale=alt.Scale(domain=devices))
        x = alt.X("low:Q", title=self.x, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=8))
        hue = colour(devices, palette, not palette.for_page)
        tips = [alt.Tooltip("device:N"), alt.Tooltip("name:N"), alt.Tooltip("x:Q", title="takes (µs)", format=".6~g")]
        base = alt.Chart(rows).encode(y=y, yOffset=offset, tooltip=tips)
        bars = base.mark_bar(minBandSize=3).encode(x=x, x2=alt.X2("high:Q"), color=hue)
        text = base.mark_text(align="left", dx=4, fontSize=10, color=palette.surface("muted"))
        words = text.encode(x=alt.X("high:Q", title=""), text=alt.Text("x:Q", format=".3~r"))
        return alt.layer(bars, words).properties(width=width, height=(8 + 13 * len(devices)) * len(shown))


def of_role(rows: pl.DataFrame, role: str) -> pl.DataFrame:
    """Return the rows of one role; without a column "role" every row is a point."""
    if "role" in rows.columns:
        return rows.filter(pl.col("role") == role)
    return rows if role == "point" else rows.clear()


SHAPES = (
    "circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", STAR, SALTIRE, BOW_TIE,
    SPARK, TEE, UPRIGHT, CHEVRON_UP, LEVEL, CHEVRON_DOWN, CHEVRON_LEFT, CHEVRON_RIGHT,
)  # fmt: skip
FILLINGS = {"filled": 1.0, "empty": 0.0, "pale": 0.35}
SIZES = {"": 46.0, "large": 150.0, "small": 14.0}
"""Opacity and area of the marks of series; size is used beyond three series."""
LEAST_TICKS = 3


def _spans_ticks(rows: pl.DataFrame, *columns: str) -> bool:
    """Return whether the values span at least LEAST_TICKS ticks of a logarithmic axis, so that it is readable."""
    ends = pl.concat([rows[name].cast(pl.Float64) for name in columns if name in rows.columns])
    known = ends.drop_nulls().filter(ends.drop_nulls() > 0)
    low, high = float(known.min() or 0.0), float(known.max() or 0.0)  # type: ignore[arg-type]
    return sum(low <= tick <= high for tick in TICKS) >= LEAST_TICKS


def by_shape(series: tuple[str, ...]) -> alt.Shape:
    """Distinguish series by the marks of their points."""
    scale = alt.Scale(domain=list(series), range=[SHAPES[i % len(SHAPES)] for i in range(len(series))])
    return alt.Shape("series:N", scale=scale, legend=legend_of_series(series))


def with_fillings(rows: pl.DataFrame, series: tuple[str, ...]) -> pl.DataFrame:
    """Return the rows with opacity of the filling (`full`) and area of the marks of their series."""
    each = [_filling(place) for place in range(len(series))]
    full, areas = ([FILLINGS[one] for one, _ in each], [SIZES[size] for _, size in each])
    return rows.with_columns(
        pl.col("series").replace_strict(dict(zip(series, values, strict=True)), return_dtype=pl.Float64).alias(name)
        for name, values in (("full", full), ("area", areas))
    )


def _filling(place: int) -> tuple[str, str]:
    """Return filling and size of the marks of a series, in words."""
    turn, at = divmod(place, len(FILLINGS))
    return list(FILLINGS)[at], list(SIZES)[turn % len(SIZES)]


def legend_of_fillings(series: tuple[str, ...], *, joined: bool) -> alt.Legend:
    """The legend of dashes and fillings; these are words, because a legend of Vega shows no filling."""
    told = {name: f"{name} ({', '.join(filter(None, _filling(place)))})" for place, name in enumerate(series)}
    words = f"{json.dumps(told)}[datum.label]"
    look = LINE if joined else {"symbolSize": 1, "symbolOpacity": 0}
    return legend_of(told.values(), labelExpr=words, labelLimit=300, **look)


def legend_of_series(series: tuple[str, ...]) -> alt.Legend:
    """The legend shared by dashes and marks: Vega-Lite merges legends that are alike, and drops both if one is off."""
    return legend_of(series, symbolSize=90, symbolOpacity=1, labelLimit=260)


def legend_of_strokes(series: tuple[str, ...]) -> alt.Legend:
    """The legend of lines, whose dashes it shows."""
    return legend_of(series, **LINE, labelLimit=260)


def by_dash(series: tuple[str, ...]) -> alt.StrokeDash:
    """Distinguish series by dash, with a legend of their own; colour and dash together differ beyond nine, too."""
    dashes = [DASHES[(i + i // len(DASHES)) % len(DASHES)] for i in range(len(series))]
    scale = alt.Scale(domain=list(series), range=dashes)
    return alt.StrokeDash("series:N", scale=scale, legend=legend_of_strokes(series))


def by_colour(series: tuple[str, ...], palette: Palette) -> alt.Color:
    """Distinguish series by colour, with a legend of their own."""
    scale = alt.Scale(domain=list(series), range=[palette.series(i) for i in range(len(series))])
    return alt.Color("series:N", scale=scale, legend=legend_of_strokes(series))
