"""Paired differences: every pair of each device, and of the A/A control on the same scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from sojourn.report import samples
from sojourn.report.figure import Figure, Panel
from sojourn.report.numbers import count
from sojourn.report.palette import Palette, ordered
from sojourn.report.tables import in_order

if TYPE_CHECKING:
    from sojourn.report.run import Run

ROW_HEIGHT = 30
A_A = "a/a"
FAR = 4.0
"""Pairs farther from the interquartile range of all pairs than this many times its width are not drawn."""
Range = tuple[float, float]


def differences(run: Run) -> Figure | None:
    """Draw the devices' pairs, one panel per device and reference."""
    pairs = samples.pairs(run)
    devices = pairs.filter(pl.col("device") != A_A) if pairs.height else pairs
    if devices.is_empty():
        return None
    kinds = devices.unique(["device", "reference"]).select("device", "reference").rows()
    rank = ordered([device for device, _ in kinds])
    kinds.sort(key=lambda kind: (rank.index(kind[0]), kind[1]))
    shared = _shared_range(run, pairs)
    panels = [_panel(run, pairs, kind, shared, f"{kind[0]} over {kind[1]}") for kind in kinds]
    one = (
        "the difference of the mean one-way delays of one round, with the device and without it"
        if run.by_stream
        else "half the difference of two mean round trips, measured next to each other"
    )
    caption = f"Each tick is one pair: {one}. The diamond is the figure of its row in the table, the bar its interval."
    return Figure("paired_differences", "Paired differences", caption + _outside(pairs, shared), tuple(panels))


def control(run: Run) -> Figure | None:
    """Draw the A/A control, on the scale of the devices and enlarged."""
    pairs = samples.pairs(run)
    own = pairs.filter(pl.col("device") == A_A) if pairs.height else pairs
    if own.is_empty():
        return None
    kind, shared, close = (A_A, "direct"), _shared_range(run, pairs), _own_range(run, own)
    panels = (_panel(run, pairs, kind, shared, "On the devices' scale"), _panel(run, pairs, kind, close, "Enlarged"))
    level = (
        "at 99.9 % and must contain zero; one in twenty of the others may miss zero by chance"
        if run.by_stream
        else ("at 95 %; at 99.9 % it must contain zero. One in twenty of the 95 % intervals may miss zero by chance")
    )
    caption = (
        "The direct link against itself, or against a second one of the same bed, plotted like a device: any "
        f"difference here comes from the bed. The pooled interval is {level}."
    )
    return Figure("a_a_control", "A/A control", caption + _outside(own, close, " enlarged"), panels)


def _panel(run: Run, pairs: pl.DataFrame, kind: tuple[str, str], shown: Range, title: str) -> Panel:
    device, reference = kind
    ticks = pairs.filter(pl.col("device") == device, pl.col("reference") == reference).select("cell", "us")
    rows = in_order(run.rows("device_latency", device=device, reference=reference))
    marks = [_mark(run, row) for row in rows if row["statistic"] in ("pooled", "mean")]
    cells = [cell.short for cell in run.cells]
    order = ["pooled", *(name for name in cells if any(mark["cell"] == name for mark in marks))]
    frame = pl.DataFrame(marks, infer_schema_length=None)
    return Panel(
        title,
        lambda palette, width: _chart((ticks, frame), device, order, shown, palette).properties(
            width=width, height=ROW_HEIGHT * len(order)
        ),
    )


def _chart(
    frames: tuple[pl.DataFrame, pl.DataFrame], device: str, order: list[str], shown: Range, palette: Palette
) -> Any:
    ticks, marks = frames
    axis = alt.Axis(labelLimit=240, domain=False, ticks=False, grid=True)
    y = alt.Y("cell:N", title=None, sort=order, scale=alt.Scale(domain=order), axis=axis)
    scale = alt.Scale(domain=list(shown), nice=False)
    x = alt.X("us:Q", title="Device latency, one way (µs)", scale=scale, axis=alt.Axis(tickCount=6))
    hue, base = palette.device(device), alt.Chart(marks)
    zero = alt.Chart(pl.DataFrame({"us": [0]})).mark_rule(color=palette.surface("muted"), strokeWidth=1)
    strip = alt.Chart(ticks).mark_tick(thickness=1, size=9, opacity=0.55, color=hue, yOffset=6, clip=True)
    rule = base.mark_rule(strokeWidth=3, color=hue, yOffset=-5, clip=True, strokeCap="round")
    dot = base.mark_point(filled=True, size=26, color=palette.surface("ink"), yOffset=-5, opacity=1, shape="diamond")
    times = [
        alt.Tooltip(f"{key}:Q", title=f"{title} (µs)", format=".4f")
        for key, title in (("us", "latency"), ("low", "from"), ("high", "to"))
    ]
    return alt.layer(
        zero.encode(x=x),
        strip.encode(
            x=x, y=y, tooltip=[alt.Tooltip("cell:N"), alt.Tooltip("us:Q", title="this pair (µs)", format=".4f")]
        ),
        rule.encode(x=alt.X("low:Q", title=""), x2=alt.X2("high:Q"), y=y),
        dot.encode(x=x, y=y, tooltip=[alt.Tooltip("cell:N"), *times]),
    )


def _mark(run: Run, row: dict[str, Any]) -> dict[str, Any]:
    cell = run.cell_of(row)
    ends = (("us", "estimate"), ("low", "ci_low"), ("high", "ci_high"))
    times = {name: None if row[key] is None else row[key] / 1e3 for name, key in ends}
    return {"cell": cell.short if cell else "pooled", **times}


def _shared_range(run: Run, pairs: pl.DataFrame) -> Range:
    """Return one range for all devices and the control: nearly every pair, every interval, and zero."""
    return _range(run.rows("device_latency", "mean"), run.rows("device_latency", "pooled"), pairs, 0.01)


def _own_range(run: Run, pairs: pl.DataFrame) -> Range:
    rows = run.rows("device_latency", device=A_A)
    return _range(rows.filter(pl.col("statistic") == "mean"), rows.filter(pl.col("statistic") == "pooled"), pairs, 0.1)


def _range(cells: pl.DataFrame, pooled: pl.DataFrame, pairs: pl.DataFrame, left_out: float) -> Range:
    """Return a range with zero, every estimate and interval, and all pairs but a share at either end."""
    columns = ("estimate", "ci_low", "ci_high")
    ends = [float(value) / 1e3 for rows in (cells, pooled) for key in columns for value in rows[key].drop_nulls()]
    shares = (left_out, 0.25, 0.75, 1 - left_out)
    least, first, third, most = (pairs["us"].quantile(share) or 0.0 for share in shares)
    reach = FAR * (third - first)  # otherwise a few stalls would fill the axis
    near = [max(least, first - reach), min(most, third + reach)]
    low, high = min(0.0, *ends, *near), max(0.0, *ends, *near)
    margin = (high - low) * 0.04 or 1.0
    return low - margin, high + margin


def _outside(pairs: pl.DataFrame, shown: Range, enlarged: str = " drawn") -> str:
    beyond = pairs.filter((pl.col("us") < shown[0]) | (pl.col("us") > shown[1])).height
    return f" {beyond} of {count(pairs.height)} pairs lie outside the{enlarged} range." if beyond else ""
