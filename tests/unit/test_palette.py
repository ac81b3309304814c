"""Colours that readers with colour-blindness take for one differ by dash and by symbol, in both schemes.

Colour-blindness is simulated with the matrices of Machado, Oliveira and Fernandes ("A Physiologically-based Model for
Simulation of Color Vision Deficiency", IEEE Transactions on Visualization and Computer Graphics 15(6), 2009), for whom
a kind of cone is missing. The difference of two colours is CIE 1976 ΔE*ab, from sRGB (IEC 61966-2-1) over CIE 1931 XYZ
and CIE 1976 L*a*b* (ISO/CIE 11664-4), with the white D65.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.report import charts, clocks
from sojourn.report.charts import DASHES, SHAPES, Axis
from sojourn.report.palette import (
    HUES,
    INKS,
    INSIDE,
    OTHERS,
    OUTSIDE,
    SERIES,
    TRACES,
    Palette,
    inks,
    ordered,
    symbol_path,
)
from sojourn.report.shell import legend_mark
from sojourn.report.streams.points import figure
from sojourn.report.tcplog.panels import FAINT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from sojourn.devices import Ink

NOTICED = 2.3
"""The ΔE*ab that half of all observers notice between large fields side by side (Mahy, Van Eycken and Oosterlinck,
"Evaluation of uniform color spaces developed after the adoption of CIELAB and CIELUV", Color Research and Application
19(2), 1994)."""

NEAR = 5 * NOTICED
"""Below this, thin lines and small symbols that do not touch are taken to have one colour."""

VISIONS = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
"""On linear red, green and blue; severity 1.0."""

TO_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))


def seen(colour: str, vision: str = "all cones") -> NDArray[np.float64]:
    """L*, a* and b* of a colour such as #0067a8."""
    encoded = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    shown = np.clip(np.array(VISIONS[vision]) @ linear, 0, 1)
    share = np.array(TO_XYZ) @ shown / np.array(TO_XYZ).sum(axis=1)  # of white
    x, y, z = np.where(share > (6 / 29) ** 3, np.cbrt(share), share * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def difference(one: str, other: str, vision: str = "all cones") -> float:
    """ΔE*ab of two colours."""
    return float(np.linalg.norm(seen(one, vision) - seen(other, vision)))


def are_near(one: Ink, other: Ink) -> bool:
    """Whether some readers take two inks for one, in either scheme."""
    pairs = ((one.light, other.light), (one.dark, other.dark))
    return any(difference(*pair, vision) < NEAR for pair in pairs for vision in VISIONS)


def are_alike(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two dash patterns differ in no length by more than a pixel."""
    return len(one) == len(other) and all(abs(a - b) <= 1 for a, b in zip(one, other, strict=True))


def test_difference_is_that_of_published_colours() -> None:
    """The primaries of sRGB; and what who lacks a kind of cone confuses."""
    assert seen("#ff0000") == pytest.approx([53.24, 80.09, 67.20], abs=0.1)
    assert seen("#0000ff") == pytest.approx([32.30, 79.19, -107.86], abs=0.1)
    assert seen("#ffffff") == pytest.approx([100, 0, 0], abs=0.1)
    for vision in VISIONS:
        assert seen("#777777", vision) == pytest.approx(seen("#777777"), abs=0.1), (
            "who lacks a cone sees greys as greys"
        )
    red, green, teal, blue = "#b04020", "#607000", "#00a0a0", "#3090c0"
    assert difference(red, green) > 4 * NEAR > NEAR > difference(red, green, "deuteranopia")
    assert difference(teal, blue) > 2 * NEAR > NEAR > difference(teal, blue, "tritanopia")


PLACES = list(INKS)
TOGETHER = {
    "devices": PLACES[: PLACES.index(INSIDE)],
    "places": [INSIDE, OUTSIDE],
    "flows": [name for name in INKS if name.endswith((" flow", " flows"))],
    "ends that log": ["sender logs", "receiver logs", "both logs"],
    "packets": ["logged", "between samples", "disabled", "placebo"],
    "slices": ["without the log", "without it again", "with the log", "with a setting"],
    "readings": ["before single messages", "during a bulk transfer"],
    "ways": ["sent", "received"],
    "tools": ["probe", "ping"],
}
"""The inks that one figure can have. An unknown device has one of OTHERS, beside any other device."""


@pytest.mark.parametrize("group", TOGETHER)
def test_inks_that_are_near_for_some_readers_differ_in_dash_and_symbol(group: str) -> None:
    several = [INKS[name] for name in TOGETHER[group]] + [*OTHERS] * (group == "devices")
    near = [pair for pair in combinations(several, 2) if are_near(*pair)]
    assert [f"{a.slug}, {b.slug}: dash" for a, b in near if are_alike(a.dash, b.dash)] == []
    assert [f"{a.slug}, {b.slug}: symbol" for a, b in near if a.symbol == b.symbol] == []
    assert "stroke" not in {one.symbol for one in several}, "a filled point of this form is not seen"


def test_every_ink_is_compared_with_those_beside_it() -> None:
    assert {name for names in TOGETHER.values() for name in names} == set(INKS)
    devices = [INKS[name] for name in TOGETHER["devices"]]
    assert any(are_near(*pair) for pair in combinations(devices, 2)), "there are more devices than colours"
    several = ordered(["bridge", "wire", "direct"])
    assert not any(are_near(INKS[a], INKS[b]) for a, b in combinations(several, 2)), "what nearly all figures have"


def test_each_of_the_series_has_its_own_dash_and_mark() -> None:
    names = tuple(f"series {place}" for place in range(len(SERIES) + HUES))
    assert len({*SHAPES}) >= len(DASHES) == len(names)
    assert not [pair for pair in combinations(DASHES, 2) if are_alike(*pair)]
    channels: list[Any] = [charts.by_dash(names), charts.by_shape(names)]
    for channel in (*channels, charts.by_colour(names, Palette(for_page=False))):
        assert len({str(one) for one in channel.to_dict()["scale"]["range"]}) == len(names)


@pytest.mark.parametrize("channels", [("colour", "dash"), ("dash", "shape")])
def test_no_two_of_many_series_are_alike(channels: tuple[str, str]) -> None:
    names = tuple(f"series {place}" for place in range(40))
    each: dict[str, Any] = {
        "colour": charts.by_colour(names, Palette(for_page=False)),
        "dash": charts.by_dash(names),
        "shape": charts.by_shape(names),
    }
    ranges = [each[one].to_dict()["scale"]["range"] for one in channels]
    assert len({str(pair) for pair in zip(*ranges, strict=True)}) == len(names)


UNKNOWN = [f"box:{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]


def test_unknown_devices_of_one_figure_are_never_alike() -> None:
    assert len(OTHERS) % HUES == 0
    found = inks([*UNKNOWN, *TOGETHER["devices"]])
    assert len({(one.light, one.symbol) for name, one in found.items() if name in UNKNOWN}) == len(UNKNOWN)
    assert len({(one.light, one.dash) for one in found.values()}) == len(found)
    assert all(found[name] == INKS[name] for name in TOGETHER["devices"])
    # Two names whose letters have the same sum had one ink.
    assert len({*inks(["box:ad", "box:bc"]).values()}) == 2


@settings(max_examples=25)
@given(st.lists(st.text(min_size=1), unique=True, max_size=len(OTHERS)))
def test_the_first_unknown_devices_differ_in_dash_and_symbol(names: list[str]) -> None:
    found = [one for name, one in inks(names).items() if name not in INKS]
    assert len({one.dash for one in found}) == len({one.symbol for one in found}) == len(found)


@settings(max_examples=25)
@given(st.permutations(UNKNOWN[:6]), st.sets(st.sampled_from(UNKNOWN[:6]), min_size=1))
def test_an_unknown_device_has_one_ink_in_every_figure_of_a_report(order: list[str], shown: set[str]) -> None:
    whole = inks(UNKNOWN[:6])
    assert inks(shown, order) == {name: whole[name] for name in ordered([*shown])}
    palette = Palette(for_page=True, devices=tuple(order))
    assert {name: palette.device(name) for name in shown} == {name: palette.hue(whole[name]) for name in shown}
    strange = inks([*shown, "box:0"], order)
    assert len({*strange.values()}) == len(shown) + 1, "a name that the report does not have"


PANELS = (
    ("congestion window", "slow-start threshold", "in flight", "peer's window"),
    ("smoothed", "last sample", "minimum"),
    ("delivery rate", "pacing rate"),
    ("window offered", "waiting to be read"),
)
NAMED = {"recovery", "loss", "skipped"}
"""What has a row of its own, with its name."""


def test_lines_of_a_connection_differ_by_dash_where_some_readers_take_their_colours_for_one() -> None:
    assert {name for panel in PANELS for name in panel} | NAMED == set(TRACES)
    for panel in PANELS:
        for one, other in combinations(panel, 2):
            alike = are_alike(TRACES[one].dash, TRACES[other].dash)
            assert not (alike and are_near(TRACES[one], TRACES[other])), (one, other)
            assert not alike or {one, other} & set(FAINT), "a faint line is thinner"


TWO = ["bridge", "emulate"]
"""Devices whose colours who lacks the cones for red takes for one."""

FIRST = pl.DataFrame(
    {
        "cell": "a cell",
        "device": [*TWO, *TWO],
        "series": ["a", "a", "b", "b"],
        "name": ["here", "here", "there", "there"],
        "x": [1.0, 2.0, 3.0, 4.0],
        "y": [2.0, 1.0, 4.0, 3.0],
        "low": [0.5, 1.0, 1.5, 2.0],
        "high": [2.5, 3.0, 4.5, 5.0],
        "share": [0.5, 0.5, 0.5, 0.5],
        "exceedance": [1.0, 1.0, 0.5, 0.5],
        "hollow": [False, True, False, True],
    }
)
ROWS = pl.concat([FIRST, FIRST.with_columns(pl.col("x") + 4.0)])
"""Two points of each series of each device."""

OF_SERIES = ("a", "b")
NAMES = ("here", "there")
DRAWN: dict[str, charts.Chart] = {
    "Lines": charts.Lines(Axis("x"), Axis("y")),
    "Lines, of series": charts.Lines(Axis("x"), Axis("y"), OF_SERIES, hued=True),
    "Lines, of both": charts.Lines(Axis("x"), Axis("y"), OF_SERIES).fitted_to(ROWS, TWO),
    "Lines, of both with one point": charts.Lines(Axis("x"), Axis("y"), OF_SERIES).fitted_to(FIRST, TWO),
    "Lines, of both as points": charts.Lines(Axis("x"), Axis("y"), OF_SERIES, joined=False).fitted_to(ROWS, TWO),
    "Distribution": charts.Distribution(Axis("x").x("x"), 0.1, "x"),
    "Histogram": charts.Histogram("x"),
    "Histogram, of series": charts.Histogram("x", OF_SERIES),
    "Bars": charts.Bars(Axis("x"), Axis("y")),
    "Steps": charts.Steps("x", "y", OF_SERIES),
    "Intervals": charts.Intervals("x", NAMES),
    "Events": charts.Events("x", NAMES),
    "Waterfall": charts.Waterfall("x", NAMES),
}
ONE_HUE = {"Density"}
"""Charts whose fields have one colour, stronger or weaker."""

BESIDES_COLOUR = {"strokeDash", "shape", "yOffset"}


def layers(drawn: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a chart has in each of its layers."""
    if "encoding" in drawn:
        yield drawn["encoding"]
    for part in ("layer", "vconcat", "hconcat"):
        for one in drawn.get(part, []):
            yield from layers(one)


def told_by_colour_alone(drawn: dict[str, Any]) -> set[str]:
    """The columns that a chart's colours tell, and neither a dash nor a symbol nor a place does."""
    each = list(layers(drawn))
    coloured = {one["color"]["field"] for one in each if "field" in one.get("color", {})}
    assert coloured
    return coloured - {one[key]["field"] for one in each for key in BESIDES_COLOUR & one.keys() if "field" in one[key]}


@pytest.mark.parametrize("name", DRAWN)
def test_charts_do_not_distinguish_by_colour_alone(name: str) -> None:
    drawn = DRAWN[name].draw(ROWS, TWO, Palette(for_page=True), 300).to_dict()
    assert told_by_colour_alone(drawn) == set()


def looks_of(drawn: dict[str, Any], rows: pl.DataFrame) -> dict[tuple[str, str], set[tuple[Any, ...]]]:
    """How the points of each device and series look, colours aside: symbol, filling, area."""
    shapes = next(one["shape"]["scale"] for one in layers(drawn) if one.get("shape", {}).get("field") == "device")
    symbols = dict(zip(shapes["domain"], shapes["range"], strict=True))
    found: dict[tuple[str, str], set[tuple[Any, ...]]] = {}
    for one in charts.with_fillings(rows, OF_SERIES).iter_rows(named=True):
        look = symbols[one["device"]], one["full"], one["area"]
        found.setdefault((one["device"], one["series"]), set()).add(look)
    return found


@pytest.mark.parametrize("joined", [True, False], ids=["lines", "points"])
def test_series_of_one_point_differ_though_no_line_shows_their_dash(joined: bool) -> None:
    chart = charts.Lines(Axis("x"), Axis("y"), OF_SERIES, joined=joined)
    whole = figure("few", "few", "few", FIRST, chart)
    assert whole is not None
    assert whole.key == "symbol"
    drawn = whole.panels[0].build(Palette(for_page=True), 300).to_dict()
    marks = [one for one in layers(drawn) if one.get("fillOpacity", {}).get("field") == "full"]
    assert len(marks) == 1
    assert (marks[0]["shape"]["field"], marks[0]["size"]["field"]) == ("device", "area")
    each = looks_of(drawn, FIRST)
    assert len(each) == 4
    assert len(set.union(*each.values())) == 4, "no two series look alike"
    legend = next(
        one[key]["legend"]
        for one in layers(drawn)
        for key in ("strokeDash", "strokeWidth")
        if one.get(key, {}).get("field") == "series"
    )
    assert "a (filled)" in legend["labelExpr"]
    assert "b (empty)" in legend["labelExpr"]


def test_as_many_fillings_as_series_have_dashes() -> None:
    names = [f"series {place}" for place in range(len(DASHES))]
    rows = charts.with_fillings(pl.DataFrame({"series": names}), tuple(names))
    assert rows.select("full", "area").n_unique() == len(names)


def test_a_limit_has_the_symbol_of_its_device() -> None:
    limits = FIRST.with_columns(hollow=pl.lit(value=True))
    drawn = charts.Lines(Axis("x"), Axis("y")).draw(limits, TWO, Palette(for_page=True), 300).to_dict()
    assert [one["shape"]["field"] for one in layers(drawn) if "field" in one.get("shape", {})] == ["device"]
    assert [one for one in layers(drawn) if "value" in one.get("shape", {})], "an arrow above it"


def test_legend_shows_what_distinguishes_devices_in_its_figure() -> None:
    whole = figure("each", "each", "each", ROWS, charts.Lines(Axis("x"), Axis("y"), OF_SERIES))
    assert whole is not None
    assert whole.key == "symbol"
    drawn = list(layers(whole.panels[0].build(Palette(for_page=True), 300).to_dict()))
    assert {one["shape"]["field"] for one in drawn if "field" in one.get("shape", {})} == {"device"}
    assert not [one for one in drawn if "fillOpacity" in one], "each series has a line with its dash"
    for name, chart in DRAWN.items():
        drawn = list(layers(chart.draw(ROWS, TWO, Palette(for_page=True), 300).to_dict()))
        of_devices = {
            key for one in drawn for key in ("strokeDash", "shape") if one.get(key, {}).get("field") == "device"
        }
        if not chart.own_colours:
            shown = {"line": "strokeDash", "symbol": "shape"}.get(chart.key)
            assert (shown in of_devices) if shown else not of_devices, name


def test_every_kind_of_chart_is_looked_at() -> None:
    kinds = {name for name, one in vars(charts).items() if isinstance(one, type) and hasattr(one, "draw")}
    assert kinds - {"Chart"} == {name.split(",")[0] for name in DRAWN} | ONE_HUE


def test_clocks_of_several_peers_do_not_differ_by_colour_alone() -> None:
    line = {
        "from_ns": 0,
        "to_ns": 10**9,
        "reference_ns": 0,
        "offset_ns": 5,
        "skew_ppb": 7,
        "error95_ns": 1,
        "bound_ns": 2,
    }
    points = clocks.Clocks(pl.DataFrame([{"peer": peer, **line} for peer in ("10.0.0.2", "10.0.0.5")])).points()
    for draw in (clocks.offsets, clocks.skews):
        drawn = draw(points, Palette(for_page=False), 300).to_dict()
        assert told_by_colour_alone(drawn) == set()
        hues = {one["color"]["scale"]["range"][place] for one in layers(drawn) for place in (0, 1)}
        assert len(hues) == 2


@pytest.mark.parametrize("name", [*TOGETHER["devices"], "a device of others", '"><script>'])
def test_legends_show_dash_and_symbol_beside_the_name(name: str) -> None:
    one = inks([name])[name]
    mark = str(legend_mark(one))
    assert f'stroke-dasharray="{" ".join(map(str, one.dash))}"' in mark
    assert mark.count(f"var(--device-{one.slug})") == 2
    assert "dasharray" not in legend_mark(one, "symbol")
    assert f"device-{one.slug}" in legend_mark(one, "swatch")
    assert symbol_path(one).startswith("M"), "a symbol without a path has no picture"
    assert "<script>" not in mark
