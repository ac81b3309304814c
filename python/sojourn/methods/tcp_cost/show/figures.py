"""The figures of the cost of a log: by sampling interval, by end, with the controls, in the kernel, over time.

A panel is a path; lines are numbers of flows, or ends. Nothing is estimated here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from sojourn.methods.tcp_cost.show.frames import DETAIL, ON, ON_SENDER, PATHS, WHAT, flows_words, sample, setting_words
from sojourn.report.charts import Axis, Intervals, Lines
from sojourn.report.figure import Figure, by_cell
from sojourn.report.marks import symbol_scatter
from sojourn.report.palette import ordered

if TYPE_CHECKING:
    from collections.abc import Callable

    from sojourn.report.charts import Chart
    from sojourn.report.figure import Width
    from sojourn.report.palette import Palette
    from sojourn.report.run import Run

PER_LOG = Axis("Sampling: 1 packet in N", log=True)
LEFT = Axis("Throughput (% of without the log)")
ENDS = (("y", "ratio"), ("low", "ratio_low"), ("high", "ratio_high"))


def over_detail(run: Run) -> Figure | None:
    """Return throughput over the sampling interval, a line for each number of flows, for the log on the sender."""
    caption = (
        "Throughput with the log on the sender, which logs every packet or one in N, over that of the adjacent slices "
        "without the log. Bars are 95 % CIs. At 100 % the log has no cost."
    )
    rows = _left(run, ON_SENDER, lambda row: flows_words(row["flows"]))
    return _figure("cost_over_detail", "Throughput over sampling interval", caption, rows, Lines(PER_LOG, LEFT))


def over_where(run: Run) -> Figure | None:
    """Return throughput over the sampling interval, a line for each end that logs, where several were measured."""
    cells = sample(run, "cost_ratios").filter(ON)
    several = cells.group_by("path", "flows").agg(pl.col("where").n_unique()).filter(pl.col("where") > 1)
    flows = pl.col("flows").is_in(several["flows"].to_list())
    rows = _left(run, ON & flows, lambda row: f"{row['where']} logs", _traffic)
    caption = "The same with the log on the sender, on the receiver, or on both."
    return _figure("cost_over_where", "Throughput by the end that logs", caption, rows, Lines(PER_LOG, LEFT))


def controls(run: Run) -> Figure | None:
    """Return the figure of the controls compared with logging every packet."""
    cells = sample(run, "cost_ratios").filter(~ON | DETAIL).filter(pl.col("where") == "sender")
    if cells.filter(~ON).is_empty():
        return None
    rows = _named(cells, lambda row: flows_words(row["flows"]), lambda row: PATHS[row["path"]])
    names = [setting_words(mode, 1) for mode in ("off", "disabled", "empty", "placebo", "on")]
    rows = rows.with_columns(
        pl.Series("name", [setting_words(row["mode"], 1) for row in rows.iter_rows(named=True)]),
        x=100 * (pl.col("ratio") - 1),
        low=100 * (pl.col("ratio_low") - 1),
        high=100 * (pl.col("ratio_high") - 1),
    )
    caption = "The change of throughput with each control, and with every packet logged."
    if "placebo" in cells["mode"].to_list():
        caption += (
            " In 2007 a hook that only took time made one machine faster, as logging did. Where the intervals of the "
            "placebo and of logging overlap, the time that logging takes can explain its effect."
        )
    chart = Intervals("Change of throughput (%)", tuple(names))
    return _figure("cost_controls", "Logging compared with its controls", caption, rows, chart)


ALL = "all traffic"


def programs(run: Run) -> Figure | None:
    """Return the figure of the time per packet, by traffic."""
    found = sample(run, "cost_programs")
    if found.is_empty():
        return None
    rows = found.filter(pl.col("host").is_null())
    if rows.is_empty():
        return None
    rows = _named(rows, lambda row: WHAT.get(row["what"], row["what"]), lambda row: f"packets {_way(row['direction'])}")
    told = [ALL if row["path"] is None else f"{flows_words(row['flows'])}, {PATHS[row['path']]}"
            for row in rows.iter_rows(named=True)]  # fmt: skip
    names = [
        f"{flows_words(flows)}, {path}" for path in PATHS.values() for flows in sorted(set(rows["flows"].drop_nulls()))
    ]
    rows = rows.with_columns(
        pl.Series("name", told), x=pl.col("ns"), low=pl.col("ns_low"), high=pl.col("ns_high")
    ).sort("direction", maintain_order=True)
    caption = (
        "Mean time per packet in the log's kernel program, minus that of the null program. Bars are 95 % CIs over "
        "transfers, where there are enough of them. Between samples: packets without a record, at a sampling of 1 in "
        "many."
    )
    chart = Intervals("Time per packet (ns)", tuple(name for name in (ALL, *names) if name in told))
    return _figure("cost_programs", "Time in the kernel", caption, rows, chart)


def skipped(run: Run) -> Figure | None:
    """Return skipped packets over flows, as in the paper; None where none was skipped."""
    cells = sample(run, "cost_ratios").filter(ON_SENDER)
    if cells.is_empty() or not cells["skipped"].sum():
        return None
    rows = _named(cells, lambda row: setting_words("on", row["packets_per_log"]), lambda row: PATHS[row["path"]])
    rows = rows.with_columns(
        x=pl.col("flows").cast(pl.Float64),
        y=pl.col("skipped_per_mbps"),
        low=pl.lit(None, pl.Float64),
        high=pl.lit(None, pl.Float64),
    )
    caption = "Packets per minute that should have a record and have none, for each Mbit/s of throughput."
    chart = Lines(Axis("Flows", log=True), Axis("Skipped per minute and Mbit/s", zero=True))
    return _figure("cost_skipped", "Skipped packets", caption, rows, chart)


def over_time(run: Run) -> Figure | None:
    """Return the figure of every slice over the run."""
    found = sample(run, "cost_slices")
    if found.is_empty():
        return None
    rows = _named(found, lambda row: "without the log" if row["mode"] == "off" else "with a setting", _traffic)
    rows = rows.with_columns(x=pl.col("elapsed_s"), y=100 * pl.col("ratio"))
    caption = (
        "The throughput of every slice, divided by the median without the log with the same traffic. Differences "
        "between adjacent slices widen the intervals; slow changes cancel within pairs."
    )

    def build(panel: pl.DataFrame, palette: Palette, width: Width) -> Any:
        titles = ("Time since the run began (s)", "Throughput (% of median without)")
        scale = alt.Scale(zero=False)
        devices = ordered(panel["device"].to_list())
        return symbol_scatter(panel, titles, scale, devices, palette).properties(width=width, height=200)

    drawn = rows.select("cell", "device", "x", "y")
    return Figure("cost_over_time", "Slices over the run", caption, by_cell(drawn, build), _devices(drawn))


def _left(
    run: Run,
    where: pl.Expr,
    device: Callable[[dict[str, Any]], str],
    cell: Callable[[dict[str, Any]], str] = lambda row: PATHS[row["path"]],
) -> pl.DataFrame:
    cells = sample(run, "cost_ratios").filter(where)
    if cells.is_empty():
        return cells
    return _named(cells, device, cell).with_columns(
        *((100 * pl.col(name)).alias(key) for key, name in ENDS), x=pl.col("packets_per_log").cast(pl.Float64)
    )


def _named(
    rows: pl.DataFrame, device: Callable[[dict[str, Any]], str], cell: Callable[[dict[str, Any]], str]
) -> pl.DataFrame:
    """Return the rows with the names of the legend and the panels."""
    told = list(rows.iter_rows(named=True))
    return rows.with_columns(
        pl.Series("device", [device(row) for row in told], pl.String),
        pl.Series("cell", [cell(row) for row in told], pl.String),
    )


def _traffic(row: dict[str, Any]) -> str:
    return f"{flows_words(row['flows'])}, {PATHS[row['path']]}"


def _way(direction: str) -> str:
    return "received" if direction == "in" else "sent"


def _devices(rows: pl.DataFrame) -> tuple[str, ...]:
    return tuple(ordered(rows["device"].to_list()))


def _figure(name: str, title: str, caption: str, rows: pl.DataFrame, chart: Chart) -> Figure | None:
    if rows.is_empty():
        return None
    devices = list(_devices(rows))
    kept = rows.select(one for one in rows.columns if one in ("cell", "device", "name", "x", "y", "low", "high"))

    def build(panel: pl.DataFrame, palette: Palette, width: Width) -> Any:
        return chart.draw(panel, devices, palette, width)

    return Figure(name, title, caption, by_cell(kept, build, independent=True), tuple(devices))
