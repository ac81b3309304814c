"""The page of captures that `sojourn match` matched: delays, loss and reordering. It estimates nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl
from markupsafe import Markup

from sojourn.report import bundle
from sojourn.report.charts import Axis, Density, Distribution, Lines
from sojourn.report.figure import Figure, by_cell
from sojourn.report.figures import specifications
from sojourn.report.marks import symbol_scatter, time_scale
from sojourn.report.numbers import count
from sojourn.report.shell import asset, legend_mark, policy, script_json, style, templates
from sojourn.report.streams.points import NO_INTERVAL, figure
from sojourn.version import __version__

if TYPE_CHECKING:
    from sojourn.analysis.crossings import Crossings

PERCENTILES = {"p1": "p1", "p50": "Median", "p90": "p90", "p99": "p99", "p99_9": "p99.9", "p99_99": "p99.99"}
US = 1e-3


def page(found: Crossings, names: list[str], subtracted: str | None) -> str:
    """Return the whole page.

    `names`: the taps as the user named them; `subtracted`: the line rate whose serialization delay was subtracted.
    """
    scripts = {"bundle": bundle.script(), "script": asset("page.js")}
    drawn = [one for one in (cdfs(found), density(found), over_time(found), against_size(found), losses(found)) if one]
    surroundings = templates()
    surroundings.globals["mark"] = legend_mark
    return surroundings.get_template("match.html").render(
        name=" and ".join(names),
        facts=facts(found.summary, subtracted),
        pairs=[told(one, names[at : at + 2]) for at, one in enumerate(found.summary["pairs"])],
        figures=drawn,
        policy=policy(scripts.values()),
        style=Markup(style()),
        version=__version__,
        specs=[(name, Markup(script_json(spec))) for name, spec in specifications(drawn)],
        **{name: Markup(text) for name, text in scripts.items()},
    )


def facts(summary: dict[str, Any], subtracted: str | None) -> str:
    parts = [f"matched by the key {summary['key']}"]
    parts += [f"{tap['name']}: {count(tap['packets'])} packets" for tap in summary["taps"]]
    if subtracted:
        parts.append(f"the time of each frame on a link of {subtracted} (FCS, preamble) is subtracted")
    return " · ".join(parts)


def told(pair: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return a pair's directions: the packets by outcome, and percentiles with their intervals."""
    ways = []
    for way in pair["directions"]:
        ends = names if way["direction"] == "forward" else names[::-1]
        counts, delay = way["counts"], way.get("delay")
        said = [f"{name}: {count(counts[name])}" for name in COUNTED if counts.get(name) or name in ALWAYS]
        ways.append({"title": " → ".join(ends), "counts": said, "rows": rows(delay), "of": (delay or {}).get("of", "")})
    return {"clocks": CLOCKS[pair["clocks"]["relation"]], "ways": ways}


COUNTED = ("matched", "lost", "pending", "evicted", "duplicated", "unexpected", "reordered", "ambiguous")
ALWAYS = ("matched", "lost", "reordered")
CLOCKS = {
    "one": "Both taps have one clock.",
    "estimated": (
        "The taps have two clocks. The table is corrected by their estimated offset and skew; the figures show delays "
        "above the least of their direction, as stamped."
    ),
    "unknown": (
        "The taps have two clocks, and packets went one way only: delays are above the least, and have the drift of "
        "the clocks in them."
    ),
}


def rows(delay: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    """Return name, value and 95 % interval of each figure, in µs."""
    if not delay:
        return []
    found = [("Min", us(delay["min_ns"]), ""), ("Mean", us(delay["mean_ns"]), "")]
    for name, title in PERCENTILES.items():
        if one := delay.get(f"{name}_ns"):
            ends = [us(one[end]) if one[end] is not None else "…" for end in ("low", "high")]
            found.append((title, us(one["value"]), " to ".join(ends)))
    return [*found, ("Max", us(delay["max_ns"]), "")]


def us(nanos: float) -> str:
    return f"{nanos * US:,.3f}"


def placed(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with panel and colour for figures: a pair of taps, and a direction."""
    number = (pl.col("pair") + 1).cast(pl.String)
    title = pl.lit("Pair ") + number if frame["pair"].n_unique() > 1 else pl.lit("")
    return frame.with_columns(title.alias("cell"), pl.col("direction").alias("device"))


def cdfs(found: Crossings) -> Figure | None:
    drawn = placed(found.delays).with_columns(x=pl.col("delay_ns") * US)
    x = alt.X("x:Q", title="Delay (µs)", scale=time_scale(drawn["x"]), axis=alt.Axis(tickCount=6))
    rarest = float(drawn["exceedance"].to_numpy().min())
    caption = "The share of matched packets below a delay; the axis is logarithmic in 1 − p. Lost packets are left out."
    chart = Distribution(x, rarest, "Delay (µs)")
    return figure("match_cdf", "Distribution of the delay", caption, drawn, chart)


def density(found: Crossings) -> Figure | None:
    rates = (pl.col("rate_high_bps") / 1e6).round_sig_figs(3).cast(pl.Float64)
    drawn = placed(found.density).with_columns(
        pl.when(pl.col("cell") == "").then(pl.col("direction")).otherwise(pl.col("cell") + ", " + pl.col("direction"))
        .alias("cell"),
        x=rates, low=pl.col("low_ns") * US, high=pl.col("high_ns") * US,
    ).sort("cell", "x", maintain_order=True)  # fmt: skip
    caption = (
        "Each column is a class of throughput, up to the number below it: the bits of frames with FCS in the slice of "
        "time in which a packet entered. Each field is a bin of delays, ten for each decade; the darker, the larger "
        "its share of that column's packets."
    )
    chart = Density("Throughput, up to (Mbit/s)", "Delay (µs)")
    return figure("match_density", "Density of the delay over throughput", caption, drawn, chart)


def over_time(found: Crossings) -> Figure | None:
    drawn = placed(found.timeline).select(
        "cell", "device", pl.col("elapsed_s").alias("x"), (pl.col("delay_ns") * US).alias("y")
    )
    devices, scale = drawn["device"].unique(maintain_order=True).to_list(), time_scale(drawn["y"])

    def build(rows: pl.DataFrame, palette: Any, width: Any) -> Any:
        titles = ("Time since the first packet (s)", "Delay (µs)")
        return symbol_scatter(rows, titles, scale, devices, palette).properties(width=width, height=220)

    caption = f"{count(drawn.height)} of the matched packets, the slowest among them."
    return Figure("match_time", "Delay over time", caption, by_cell(drawn, build), tuple(devices))


def against_size(found: Crossings) -> Figure | None:
    own = placed(found.sizes).with_columns(x=pl.col("bytes"))
    median = own.with_columns(
        y=pl.col("p50_ns") * US, low=pl.col("low_ns") * US, high=pl.col("high_ns") * US, series=pl.lit("median")
    )
    tail = own.with_columns(*NO_INTERVAL, y=pl.col("p99_ns") * US, series=pl.lit("p99")).drop_nulls("y")
    drawn = pl.concat([median, tail], how="diagonal_relaxed")
    chart = Lines(Axis("Frame with FCS (bytes)", zero=True), Axis("Delay (µs)", zero=True), ("median", "p99"))
    caption = "The median with its 95 % interval of order statistics, and the 99th percentile, by the frame's size."
    return figure("match_size", "Delay against frame size", caption, drawn, chart)


def losses(found: Crossings) -> Figure | None:
    drawn = placed(found.losses)
    if not drawn.select(pl.sum_horizontal("lost", "reordered").sum()).item():
        return None
    shares = (("lost", "entered"), ("reordered", "left"))
    both = pl.concat([
        drawn.select("cell", "device", *NO_INTERVAL, pl.col("elapsed_s").alias("x"),
                     (100 * pl.col(what) / pl.col(of)).alias("y"), series=pl.lit(what))
        .filter(pl.col("y").is_finite())
        for what, of in shares
    ])  # fmt: skip
    chart = Lines(
        Axis("Time since the first packet (s)"), Axis("Share of the packets (%)", symlog=True),
        ("lost", "reordered"), joined=False,
    )  # fmt: skip
    caption = (
        "Each point is a slice of time: of the packets that entered, the share that was lost (or not seen until the "
        "end); of those that left, the share that was reordered (RFC 4737)."
    )
    return figure("match_losses", "Loss and reordering over time", caption, both, chart)
