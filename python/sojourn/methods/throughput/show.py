"""The report of "throughput": rates and the time between frames over the frame size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.report.charts import Axis, Lines
from sojourn.report.parts import Parts
from sojourn.report.streams import delays, rates
from sojourn.report.streams.measures import Ask, Measure, measured
from sojourn.report.streams.points import along, figure, rows_over
from sojourn.report.streams.words import words

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run
    from sojourn.report.table import Table

SIZE = Axis("Frame (bytes)")
AT_BEST = "Received rate while the sender sends as fast as it can."


def line(run: Run) -> Table:
    """Return the table of the time between received frames as a + b x size."""
    measures = (Measure("inter_frame_intercept", "fit", "a"), Measure("inter_frame_slope", "fit", "b"))
    note = (
        "Fitted per round, for each frame size to the cell with the highest offered rate: a is the time of each frame, "
        "b that of each byte. Where a row has no interval, there were too few beds or rounds for one: b may then be "
        "negative by chance."
    )
    return measured(run, Ask("inter_frame", "Time between frames as a + b × frame size", measures, note, by_size=True))


def frames_over_size(run: Run) -> Figure | None:
    """Return the figure of frames per second."""
    caption = (
        f"{AT_BEST} A device does not forward longer frames at a higher frame rate: where the rate rises with size, at "
        "least one of the two rates is limited by something else."
    )
    words_ = ("frames_over_size", "Frames per second over frame size", caption)
    return rates.over_size(run, "throughput_pps", words_)


def bits_over_size(run: Run) -> Figure | None:
    """Return the figure of bits per second."""
    words_ = ("bits_over_size", "Bit rate over frame size", f"{AT_BEST} Frames count with their FCS.")
    return rates.over_size(run, "throughput_bps", words_)


def gap_over_size(run: Run) -> Figure | None:
    """Return the figure of the time between frames, with the fitted line."""
    rows = rows_over(run, "inter_frame_time", ("mean",), "frame_bytes", without=("schedule",))
    if rows.is_empty():
        return None
    rows = rows.with_columns(pl.lit("point").alias("role"))
    fitted = run.samples("rate_lines")
    panels = rows["cell"].unique(maintain_order=True).to_list()
    if fitted is not None and fitted.height and len(panels) == 1:
        ends = (("y", "estimate_ns"), ("low", "ci_low_ns"), ("high", "ci_high_ns"))
        line_ = fitted.select(
            pl.lit(panels[0]).alias("cell"), "device", pl.col("frame_bytes").alias("x"),
            *((pl.col(key) / 1e3).alias(name) for name, key in ends), pl.lit("fit").alias("role"),
        )  # fmt: skip
        rows = pl.concat([rows, line_], how="diagonal_relaxed")
    rows = rows.pipe(along)
    banded = fitted is not None and bool(fitted.drop_nulls(["ci_low_ns", "ci_high_ns"]).height)
    caption = (
        f"Mean time between received frames. The line{' and its 95 % band' if banded else ''}: at each size, the "
        f"estimate over the lines a + b × frame size of all rounds{'' if banded else '; they are too few for a band'}."
    )
    chart = Lines(SIZE, rates.axis("Time between frames (µs)", rows))
    return figure("gap_over_size", "Time between frames over frame size", caption, rows, chart)


def how(run: Run) -> list[str]:
    """Return how it was measured."""
    return words(
        run,
        "Each stream is a flood: the sender sends as fast as it can for the whole trial. A rate counts undamaged "
        "frames without duplicates, from the first arrival of a trial to its last. A flood keeps the queue full, so "
        "no delays are given.",
        delays=False,
    )


PARTS = Parts(
    tables=(rates.rates, line, rates.tester, delays.conservation),
    figures=(frames_over_size, bits_over_size, gap_over_size, delays.gaps),
    keys=rates.throughput_keys,
    words=how,
    results=("rates", "inter_frame"),
)
