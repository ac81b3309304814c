"""What the reports of throughput, loss and fan-in share: rates over a factor, and the tester's own limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.report.charts import Axis, Lines
from sojourn.report.streams.delays import beyond_offered, extreme, key_of
from sojourn.report.streams.measures import Ask, Measure, measured
from sojourn.report.streams.points import ESTIMATE, along, figure, rows_over, spans

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
        Measure("own_drops", "ratio", "Local drops", interval=False),
    )
    note = (
        "Bits of frames have the FCS, those on the line 20 bytes more (preamble and gap), those of user data none of "
        f"all this.{beyond_offered(run, 'throughput_pps')}"
    )
    return measured(run, Ask("rates", "Offered and received", measures, note))


def tester(run: Run) -> Table:
    """What the tester alone can do, by size."""
    measures = (Measure("clean_rate_pps", "mean", "Without loss"),)
    note = "Measured on the direct link before the run; a device's rate within 10 % of it is called the tester's."
    return measured(run, Ask("tester", "The tester alone", measures, note, by_size=True))


def over_size(run: Run, quantity: str, words: tuple[str, str, str]) -> Figure | None:
    """A rate against the frame's size, with what the tester can do alone; `words`: name, title, caption."""
    name, title, caption = words
    rows = rows_over(run, quantity, RATE, "frame_bytes", without=("schedule", "interval_ns"))
    rows = rows.with_columns(pl.lit("measured").alias("series"))
    both = [rows, *(_clean(run, rows) if quantity == "throughput_pps" else ())]
    drawn = pl.concat(both, how="diagonal_relaxed").drop_nulls("y").pipe(along)
    series = tuple(str(one["series"][0]) for one in both if one.height)
    chart = Lines(Axis("Frame (bytes)"), Axis(SAID[quantity], zero=True), series)
    return figure(name, title, f"{caption} {SOFTWARE}", drawn, chart)


def _clean(run: Run, rows: pl.DataFrame) -> list[pl.DataFrame]:
    """The tester's own clean rate as a line in every panel."""
    clean = run.rows("clean_rate_pps", "mean").drop_nulls("frame_bytes")
    line = clean.select(
        "device", pl.col("frame_bytes").cast(pl.Float64).alias("x"), *spans(ESTIMATE),
        pl.lit("the tester alone, without loss").alias("series"), pl.lit(value=False).alias("hollow"),
    )  # fmt: skip
    panels = rows.select("cell", "rank").unique("cell", keep="first", maintain_order=True)
    return [panels.join(line, how="cross")] if line.height else []


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
