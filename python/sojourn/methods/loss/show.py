"""The report of "loss": what is lost of what is offered, in runs of which lengths, to known and unknown addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.charts import Axis, Bars, Lines
from sojourn.report.numbers import count, nominal
from sojourn.report.parts import Key, Parts
from sojourn.report.streams import delays, rates
from sojourn.report.streams.measures import Ask, Measure, measured
from sojourn.report.streams.points import along, figure, sample, several
from sojourn.report.streams.words import words

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run
    from sojourn.report.table import Table

PACE = ("schedule", "rate_share", "interval_ns")
CLEAN = "nothing was lost"


def losses(run: Run) -> Table:
    """Loss at each offered load, and the lengths of its runs."""
    measures = (
        Measure("offered_pps", "mean", "Offered", interval=False),
        Measure("loss_ratio", "ratio", "Lost"),
        Measure("own_drops", "ratio", "Local drops", interval=False),
        Measure("throughput_pps", "mean", "Received", limit=True),
        Measure("loss_run", "mean", "Mean", "Lost in a row", interval=False),
        Measure("loss_run", "max", "Longest", "Lost in a row", interval=False),
        Measure("gap_run", "mean", "Mean", "Received in a row", interval=False),
    )
    note = (
        "Local drops are those of the tester's own receiver, not of the device. "
        f"{delays.SHARES}{delays.beyond_offered(run, 'throughput_pps')}"
    )
    return measured(run, Ask("loss", "Loss over offered load", measures, note))


def unknown(run: Run) -> Table:
    """What an unknown address costs against a known one."""
    measures = (
        Measure("loss_shift", "mean", "Loss, unknown less known", share=True),
        Measure("throughput_pps_shift", "mean", "Received, unknown less known"),
    )
    note = (
        "To an address that the bridge has not learned, each frame is copied to all ports. Pairs of trials of one "
        "round."
    )
    where = pl.col("against").is_not_null()
    return measured(run, Ask("unknown", "An unknown address less a known one", measures, note, where))


def over_load(run: Run) -> Figure | None:
    """Loss against what was really offered."""
    found = sample(run, "rates", *PACE, "to")
    if found.is_empty():
        return None
    rows = found.with_columns(
        pl.col("offered_pps").alias("x"),
        *(
            (pl.col(key) * 100).alias(name)
            for name, key in (("y", "loss_ratio"), ("low", "loss_low"), ("high", "loss_high"))
        ),
        pl.format("to {}", pl.col("to").fill_null("unicast")).alias("series"),
        pl.lit("point").alias("role"),
    ).pipe(along)
    clean = found.drop_nulls("clean_pps").select(
        "cell", "device", pl.col("clean_pps").alias("x"), pl.lit("rule").alias("role")
    )
    clean = clean.filter(pl.col("device") == "direct").unique(maintain_order=True)
    drawn = pl.concat([rows, clean], how="diagonal_relaxed")
    caption = (
        "Share of the frames that were lost against the load that was really offered. Dotted upright: the rate that "
        "the tester alone moves without loss; what is beyond it says nothing of the device."
    )
    chart = Lines(Axis("Offered load (frames/s)", zero=True), Axis("Lost (%)", symlog=True), several(rows, "series"))
    return figure("loss_over_load", "Loss over offered load", caption, drawn, chart)


def received_over_load(run: Run) -> Figure | None:
    """Received against offered rate."""
    found = sample(run, "rates", *PACE, "to")
    if found.is_empty():
        return None
    rows = found.with_columns(
        pl.col("offered_pps").alias("x"),
        *(
            (pl.col(key)).alias(name)
            for name, key in (("y", "received_pps"), ("low", "received_low_pps"), ("high", "received_high_pps"))
        ),
        pl.format("to {}", pl.col("to").fill_null("unicast")).alias("series"),
        pl.col("tester_limited").alias("hollow"),
    ).pipe(along)
    chart = Lines(
        Axis("Offered load (frames/s)", zero=True), Axis("Received (frames/s)", zero=True), several(rows, "series")
    )
    caption = f"What arrived of what was offered; on the diagonal nothing is lost. {rates.SOFTWARE}"
    return figure("received_over_load", "Received over offered load", caption, rows, chart)


def runs(run: Run) -> Figure | None:
    """Lengths of losses in a row."""
    found = sample(run, "loss_runs")
    if found.is_empty():
        return None
    mine = found.filter(pl.col("run") == "loss").group_by("cell", "device", "low", maintain_order=True).agg(
        pl.col("count").sum().alias("y"), pl.col("high").max()
    ).rename({"low": "x"})  # fmt: skip
    caption = (
        "How many frames were lost one after another, and how often. Losses by chance are mostly single; a full "
        "queue loses in bursts."
    )
    chart = Bars(Axis("Frames lost in a row", log=True), Axis("How often", log=True))
    return figure("loss_runs", "Losses in a row", caption, mine, chart)


def keys(run: Run) -> list[Key]:
    """The highest rate without a loss, and the worst loss."""
    found = []
    for device in [one for one in run.devices if one != "a/a"]:
        mine = run.rows("loss_ratio", "ratio", device=device)
        offered = run.rows("offered_pps", "mean", device=device).select("cell", pl.col("estimate").alias("offered"))
        both = mine.join(offered, on="cell", how="inner")
        clean = delays.extreme(both.filter(pl.col("estimate") == 0), "offered")
        if clean:
            said = (CLEAN, f"{clean['frame_bytes']} B")
            found.append(Key(f"{device}: highest load without loss", count(clean["offered"]), "frames/s", said, device))
        worst = delays.extreme(both, "estimate")
        if worst and worst["estimate"]:
            cell = run.cell_of(worst)
            at = f"at {count(worst['offered'])} frames/s"
            found.append(delays.key_of(worst, f"{device}: worst loss", at, cell.short if cell else ""))
    largest = delays.extreme(run.rows("loss_shift", "mean"), "estimate")
    return [*found, *([_unknown_key(run, largest)] if largest else ())]


def _unknown_key(run: Run, row: dict[str, Any]) -> Key:
    """The most that an unknown address adds to the losses, and in which cell."""
    low, high = row["ci_low"], row["ci_high"]
    said = "no interval: too few pairs"
    if low is not None and high is not None:
        said = f"{nominal(row['level'])} CI {low * 100:.3g} to {high * 100:.3g}"
    cell = run.cell_of(row)
    title = f"{row['device']}: largest added loss to an unknown address"
    value = f"{row['estimate'] * 100:.3g}"
    return Key(title, value, "percentage points", (said, cell.short if cell else ""), row["device"])


def how(run: Run) -> list[str]:
    """What is particular to it."""
    return words(
        run,
        "Loads are shares of what the path was found to carry just before; what was really offered is on the axes. A "
        "frame counts as lost that did not arrive within the time that the plan allows for frames on their way.",
        delays=False,
    )


PARTS = Parts(
    tables=(losses, unknown, rates.rates, rates.tester, delays.conservation, delays.pacing),
    figures=(over_load, received_over_load, runs, delays.gaps),
    keys=keys,
    words=how,
    results=("loss", "unknown"),
)
