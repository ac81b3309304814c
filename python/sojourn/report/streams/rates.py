"""What the reports of throughput, loss and fan-in share: rates over a factor, and the tester zero-loss rate."""

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
SOFTWARE = "An arrow marks a lower limit: there the tester was the limit, and the device can do at least that."


def rates(run: Run) -> Table:
    """Throughput in frames and bits, offered and received."""
    measures = (
        Measure("offered_pps", "mean", "Offered", interval=False),
        Measure("throughput_pps", "mean", "Received in a flood" if is_flood(run) else "Received", limit=True),
        Measure("throughput_bps", "mean", "Frames", "Bit rate", interval=False, limit=True),
        Measure("l1_bps", "mean", "On the line", "Bit rate", interval=False, limit=True),
        Measure("user_bps", "mean", "User data", "Bit rate", interval=False, limit=True),
        Measure("inter_frame_time", "mean", "Time between frames"),
        Measure("loss_ratio", "ratio", "Lost"),
        Measure("local_drops", "ratio", "Local drops", interval=False),
    )
    note = (
        "Bit rates: of frames with their FCS; on the line with 20 bytes more for each frame (preamble and inter-frame "
        "gap); of user data without any header. A received rate is measured from the first arrival of any sender to "
        f"the last, which may be after the end of sending: do not subtract it from an offered rate. Over a link with a "
        f"rate it exceeds that rate slightly where the first frame is forwarded with more delay than the last. The "
        f"time between frames has its own estimate over trials: it need not be the inverse of the "
        f"rate.{beyond_offered(run, 'throughput_pps')}"
    )
    return measured(run, Ask("rates", "Offered and received rates", measures, note))


def is_flood(run: Run) -> bool:
    """Return whether every rate of the run was received in a flood."""
    return run.rows("throughput_pps")["schedule"].unique().to_list() == ["flood"]


def tester(run: Run) -> Table:
    """The tester zero-loss rate, by size."""
    measures = (Measure("tester_zero_loss_pps", "mean", "Zero-loss rate", interval=False),)
    note = (
        "The highest rate that the tester reaches without loss on the direct link, measured before the run; a flood of "
        "the run itself may be somewhat faster. A device's rate within 10 % of it is marked as limited by the tester; "
        "the direct link's own rates are the tester's, and are not marked."
    )
    return measured(run, Ask("tester", "Tester zero-loss rate", measures, note, by_size=True))


def axis(title: str, rows: pl.DataFrame, column: str = "y") -> Axis:
    """Return an axis from zero; a logarithmic one if the rates of paths differ by more than a factor of FLAT."""
    most = rows.filter(pl.col(column) > 0).group_by("device").agg(pl.col(column).max())[column]
    wide = len(most) > 1 and float(most.max() or 0) > FLAT * float(most.min() or 0)  # type: ignore[arg-type]
    return Axis(title, log=wide, zero=not wide)


FLAT = 30


def over_size(run: Run, quantity: str, words: tuple[str, str, str]) -> Figure | None:
    """Draw a rate over the frame size, with the tester zero-loss rate; `words`: name, title, caption."""
    name, title, caption = words
    rows = rows_over(run, quantity, RATE, "frame_bytes", without=("schedule", "interval_ns"))
    rows = rows.with_columns(pl.lit("measured").alias("series"))
    both = [rows, *(_zero_loss(run, rows) if quantity == "throughput_pps" else ())]
    drawn = pl.concat(both, how="diagonal_relaxed").drop_nulls("y").pipe(along)
    series = tuple(str(one["series"][0]) for one in both if one.height)
    chart = Lines(Axis("Frame (bytes)"), axis(SAID[quantity], drawn), series)
    return figure(name, title, f"{caption} {SOFTWARE}", drawn, chart)


def _zero_loss(run: Run, rows: pl.DataFrame) -> list[pl.DataFrame]:
    """The tester zero-loss rate as a line in every panel."""
    tester = run.rows("tester_zero_loss_pps", "mean").drop_nulls("frame_bytes")
    line = tester.select(
        "device", pl.col("frame_bytes").cast(pl.Float64).alias("x"), *spans(ESTIMATE),
        pl.lit("tester zero-loss rate").alias("series"), pl.lit(value=False).alias("hollow"),
    )  # fmt: skip
    panels = rows.select("cell", "rank").unique("cell", keep="first", maintain_order=True)
    return [panels.join(line, how="cross")] if line.height else []


def throughput_keys(run: Run) -> list[Key]:
    """Frames per second of the smallest frame, bits per second of the largest, for each device."""
    found = []
    for device in [one for one in run.devices if one != "a/a"]:
        for quantity, least in (("throughput_pps", True), ("throughput_bps", False)):
            mine = run.rows(quantity, device=device).filter(pl.col("statistic").is_in(RATE))
            size = extreme(mine, "frame_bytes", least=least)
            best = extreme(mine.filter(pl.col("frame_bytes") == size["frame_bytes"]), "estimate") if size else None
            if best:
                how = "received in a flood" if best["schedule"] == "flood" else "received"
                found.append(key_of(best, f"{device}, frames of {best['frame_bytes']} B: {how}"))
    return found
