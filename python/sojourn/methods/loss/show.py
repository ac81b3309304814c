"""The report of "loss": the loss ratio over offered load, the lengths of loss bursts, known and unknown addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.charts import Axis, Bars, Lines
from sojourn.report.numbers import count, nominal, percent, show
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
LOSSLESS = "no frame was lost"


def losses(run: Run) -> Table:
    """Return the loss at each offered load, and the lengths of its bursts."""
    measures = (
        Measure("offered_pps", "mean", "Offered", interval=False),
        Measure("achieved_ratio", "mean", delays.ACHIEVED, interval=False),
        Measure("loss_ratio", "ratio", "Lost"),
        Measure("local_drops", "ratio", "Local drops", interval=False),
        Measure("throughput_pps", "mean", "Received", limit=True),
        Measure("loss_run", "mean", "Mean", "Frames lost in a row", interval=False),
        Measure("loss_run", "max", "Longest", "Frames lost in a row", interval=False),
        Measure("gap_run", "mean", "Mean", "Frames received in a row", interval=False),
    )
    note = (
        "A cell is named by its configured load; where the offered load is lower, the tester did not reach the "
        "configured one. Local drops are drops by the tester's own receiver; they are not counted as lost. "
        f"{delays.SHARES}{delays.beyond_offered(run, 'throughput_pps')}"
    )
    return measured(run, Ask("loss", "Loss over offered load", measures, note))


def unknown(run: Run) -> Table:
    """Return loss and received rate to an unknown address minus those to a known one."""
    measures = (
        Measure("loss_shift", "mean", "Loss difference", share=True, unit="percentage points"),
        Measure("throughput_pps_shift", "mean", "Received rate difference"),
    )
    note = (
        "Value to an unknown address minus value to a known one, from pairs of trials of one round. A frame to an "
        f"address that the bridge has not learned is copied to all ports.{_loads_apart(run)}"
    )
    where = pl.col("against").is_not_null()
    return measured(run, Ask("unknown", "Unknown address minus known address", measures, note, where))


def _loads_apart(run: Run) -> str:
    """Return the largest difference of the offered loads of a pair, and both of them."""
    offered = run.rows("offered_pps", "mean")
    known, unknown_ = (
        offered.filter(pl.col("to") == to).select("device", *ALIKE, pl.col("estimate").alias(to)) for to in ADDRESSES
    )
    pairs = known.join(unknown_, on=["device", *ALIKE], nulls_equal=True)
    pairs = pairs.with_columns(apart=(pl.col("unknown") / pl.col("unicast") - 1).abs()).sort("apart", descending=True)
    if pairs.is_empty():
        return ""
    most = pairs.row(0, named=True)
    return (
        f" The offered loads of a pair need not be equal: they differ most with {count(most['unicast'])} frames/s to a "
        f"known and {count(most['unknown'])} to an unknown address ({most['frame_bytes']} B, {most['device']})."
    )


ALIKE = ("engine", "frame_bytes", "schedule", "rate_share", "rate_pps")
ADDRESSES = {"unicast": "a known address", "unknown": "an unknown address"}


def _to(column: str) -> pl.Expr:
    """Return the kind of address of a series, in words."""
    return pl.format("to {}", pl.col(column).fill_null("unicast").replace(ADDRESSES)).alias("series")


def over_load(run: Run) -> Figure | None:
    """Return the loss ratio over the load actually offered."""
    found = sample(run, "rates", *PACE, "to")
    if found.is_empty():
        return None
    rows = found.with_columns(
        pl.col("offered_pps").alias("x"),
        *(
            (pl.col(key) * 100).alias(name)
            for name, key in (("y", "loss_ratio"), ("low", "loss_low"), ("high", "loss_high"))
        ),
        _to("to"),
        pl.lit("point").alias("role"),
    ).pipe(along)
    tester = found.drop_nulls("tester_zero_loss_pps").select(
        "cell", "device", pl.col("tester_zero_loss_pps").alias("x"), pl.lit("rule").alias("role")
    )
    tester = tester.filter(pl.col("device") == "direct").unique(maintain_order=True)
    drawn = pl.concat([rows, tester], how="diagonal_relaxed")
    caption = (
        "Share of the frames that were lost, over the load that was actually offered. Dotted line: the tester "
        "zero-loss rate, which the tester reaches without a device. Above it, losses may come from the tester."
    )
    load = rates.axis("Offered load (frames/s)", drawn, "x")
    chart = Lines(load, Axis("Lost (%)", symlog=True), several(rows, "series"))
    return figure("loss_over_load", "Loss over offered load", caption, drawn, chart)


def received_over_load(run: Run) -> Figure | None:
    """Return received over offered rate."""
    found = sample(run, "rates", *PACE, "to")
    if found.is_empty():
        return None
    rows = found.with_columns(
        pl.col("offered_pps").alias("x"),
        *(
            (pl.col(key)).alias(name)
            for name, key in (("y", "received_pps"), ("low", "received_low_pps"), ("high", "received_high_pps"))
        ),
        _to("to"),
        pl.col("tester_limited").alias("hollow"),
    ).pipe(along)
    chart = Lines(
        Axis("Offered load (frames/s)", zero=True), Axis("Received (frames/s)", zero=True), several(rows, "series")
    )
    caption = f"Received over offered rate; where both are equal, no frame is lost. {rates.SOFTWARE}"
    return figure("received_over_load", "Received over offered load", caption, rows, chart)


def runs(run: Run) -> Figure | None:
    """Return the lengths of loss bursts."""
    found = sample(run, "loss_runs")
    if found.is_empty():
        return None
    mine = found.filter(pl.col("run") == "loss").group_by("cell", "device", "low", maintain_order=True).agg(
        pl.col("count").sum().alias("y"), pl.col("high").max()
    ).rename({"low": "x"})  # fmt: skip
    caption = (
        "How many frames were lost in a row, and how often. Independent losses are mostly of one frame; a full queue "
        "drops in bursts."
    )
    chart = Bars(Axis("Frames lost in a row", log=True), Axis("How often", log=True))
    return figure("loss_runs", "Losses in a row", caption, mine, chart)


def keys(run: Run) -> list[Key]:
    """Return the highest load without loss, and the highest loss ratio."""
    found = []
    for device in [one for one in run.devices if one != "a/a"]:
        mine = run.rows("loss_ratio", "ratio", device=device)
        offered = run.rows("offered_pps", "mean", device=device).select("cell", pl.col("estimate").alias("offered"))
        both = mine.join(offered, on="cell", how="inner")
        lossless = delays.extreme(both.filter(pl.col("estimate") == 0), "offered")
        if lossless:
            said = f"{LOSSLESS} in {lossless['n']} trials"
            lines, rate = [said, f"{lossless['frame_bytes']} B"], count(lossless["offered"])
            alike = (pl.col("frame_bytes") == lossless["frame_bytes"]) & pl.col("to").eq_missing(pl.lit(lossless["to"]))
            lower = both.filter(alike & (pl.col("offered") < lossless["offered"]) & (pl.col("estimate") > 0))
            lossy = delays.extreme(lower, "estimate")
            lines += [f"but {percent(round(lossy['estimate'], 3))} at {count(lossy['offered'])}"] if lossy else []
            found.append(Key(f"{device}: highest load without loss", rate, "frames/s", tuple(lines), device))
        worst = delays.extreme(both, "estimate")
        if worst and worst["estimate"]:
            cell = run.cell_of(worst)
            at = f"at {count(worst['offered'])} frames/s"
            found.append(delays.key_of(worst, f"{device}: highest loss ratio", at, cell.short if cell else ""))
    largest = delays.extreme(run.rows("loss_shift", "mean"), "estimate")
    return [*found, *([_unknown_key(run, largest)] if largest else ())]


def _unknown_key(run: Run, row: dict[str, Any]) -> Key:
    """Return the largest increase of the loss ratio by an unknown address, with its cell."""
    shown, cell = show(row["estimate"], row["ci_low"], row["ci_high"], "ratio"), run.cell_of(row)
    interval = "too few pairs for an interval"
    if row["ci_low"] is not None:
        interval = f"{nominal(row['level'])} CI {shown.interval}"
    title = f"{row['device']}: loss to an unknown minus to a known address"
    lines = (interval, "the largest difference of all cells", cell.short if cell else "")
    return Key(title, shown.text, "percentage points", lines, row["device"])


def how(run: Run) -> list[str]:
    """Return how it was measured."""
    return words(
        run,
        f"Loads are shares of the maximum rate that the path carried, measured just before{_carried(run)}; the axes "
        "show the load actually offered. “Unicast” frames go to an address that the bridge has learned, “unknown” ones "
        "to an address that no host has. A frame is lost if it has not arrived when the plan's grace period after the "
        "last frame ends.",
        delays=False,
    )


def _carried(run: Run) -> str:
    """Return the rates that the loads are shares of."""
    told = [
        f"{event['device']}, {event['frame_bytes']} B: {count(event['pps'])} frames/s"
        for event in run.log
        if event.get("event") == "path-throughput" and event.get("pps")
    ]
    return f" ({'; '.join(told)})" if told else ""


PARTS = Parts(
    tables=(losses, unknown, rates.rates, rates.tester, delays.conservation, delays.pacing),
    figures=(over_load, received_over_load, runs, delays.gaps),
    keys=keys,
    words=how,
    results=("loss", "unknown"),
)
