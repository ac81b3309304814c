"""What the reports of throughput, loss and fan-in share: rates over a factor, and the tester's own limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.report.charts import Axis, Lines
from sojourn.report.streams.delays import extreme, key_of
from sojourn.report.streams.measures import Ask, Measure, measured
from sojourn.report.streams.points import figure, rows_over

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.parts import Key
    from sojourn.report.run import Run
    from sojourn.report.table import Table

RATE = ("mean", "at_least")
SAID = {"throughput_pps": "Frames/s", "throughput_bps": "Mbit/s, frames with FCS"}
SOFTWARE = "An arrow is a lower limit: the tester, and not the device, was at its end there."


def rates(run: Run) -> Table:
    """Throughput in every meaning, offered and received."""
    measures = (
        Measure("offered_pps", "mean", "Offered", interval=False),
        Measure("throughput_pps", "mean", "Throughput", limit=True),
        Measure("throughput_bps", "mean", "of frames", "Bits", interval=False, limit=True),
        Measure("l1_bps", "mean", "on the line", "Bits", interval=False, limit=True),
        Measure("user_bps", "mean", "of user data", "Bits", interval=False, limit=True),
        Measure("inter_frame_time", "mean", "Between frames"),
        Measure("loss_ratio", "ratio", "Lost"),
        Measure("own_drops", "ratio", "Own drops", interval=False),
        Measure("clean_rate_pps", "mean", "Tester alone, clean", interval=False),
    )
    note = (
        "Bits of frames have the FCS, those on the line 20 bytes more (preamble and gap), those of user data none of "
        "all this."
    )
    return measured(run, Ask("rates", "Offered and received", measures, note))


def over(run: Run, quantity: str, x: str, axis: Axis, words: tuple[str, str, str]) -> Figure | None:
    """A rate against a factor, with what the tester can do alone; `words`: name, title, caption."""
    name, title, caption = words
    rows = rows_over(run, quantity, RATE, x, without=("schedule", "interval_ns") if x != "x" else ())
    rows = rows.with_columns(pl.lit("measured").alias("series"))
    clean = rows_over(run, "clean_rate_pps", ("mean",), x).with_columns(
        pl.lit("the tester alone, clean").alias("series")
    )
    both = [rows, clean] if quantity == "throughput_pps" and clean["y"].drop_nulls().len() else [rows]
    drawn = pl.concat(both).drop_nulls("y").sort("x", maintain_order=True)
    if len(both) > 1:
        drawn = drawn.with_columns(cell=pl.lit("")) if rows["cell"].n_unique() == 1 else drawn
    chart = Lines(axis, Axis(SAID[quantity], zero=True), tuple(drawn["series"].unique(maintain_order=True)))
    return figure(name, title, f"{caption} {SOFTWARE}", drawn, chart)


def throughput_keys(run: Run) -> list[Key]:
    """Frames a second of the smallest frame, bits a second of the largest, for each device."""
    found = []
    for device in [one for one in run.devices if one != "a/a"]:
        for quantity, least in (("throughput_pps", True), ("throughput_bps", False)):
            mine = run.rows(quantity, device=device).filter(pl.col("statistic").is_in(RATE))
            size = extreme(mine, "frame_bytes", least=least)
            best = extreme(mine.filter(pl.col("frame_bytes") == size["frame_bytes"]), "estimate") if size else None
            if best:
                found.append(key_of(best, f"{device}, frames of {best['frame_bytes']} B"))
    return found
