"""Method "loss": the loss ratio over offered load, the lengths of loss bursts, and losses to unknown addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.hypotheses import main_device
from sojourn.analysis.rates import RATES, overloads_of, rate_rows, rate_samples
from sojourn.analysis.rows import over_beds
from sojourn.analysis.run import DIRECT
from sojourn.analysis.samples import with_cells
from sojourn.analysis.sessions import beds_counted
from sojourn.analysis.stream_rows import contrasts, per_path, shift_rows, trial_row
from sojourn.analysis.stream_samples import COMMON, point, row_samples
from sojourn.analysis.stream_study import Gathered
from sojourn.analysis.streams import over_trials, series
from sojourn.analysis.wording import counted, fixed, percent
from sojourn.devices import called
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study


KNOWN = "a known address"
ADDRESSES = {"unicast": KNOWN, "unknown": "an unknown address"}

SAMPLES = COMMON | {"rates": RATES, "shifts": point("A shift against a known destination")}


def study(run: Run) -> Study:
    """Return losses and rates of every cell, the lengths of loss bursts, and unknown addresses minus known ones."""
    of = Gathered(run)
    of.begin(flood=True)
    of.rows.extend(rate_rows(run, of.trials))
    of.overloads.update(overloads_of(run, of.trials))
    of.rows.extend(run_rows(run, of))
    of.add_instances_of("loss_ratio", "loss ratios", share=False)
    pairs = contrasts(run, "to", "unicast")
    shifts = shift_rows(run, series(of.trials, "loss_ratio"), pairs, "loss", "mean", "1")
    shifts += shift_rows(run, series(of.trials, "received_pps"), pairs, "throughput_pps", "mean", "1/s")
    of.rows.extend(shifts)
    of.samples["rates"] = with_cells(run, rate_samples(run, of.trials))
    of.samples["shifts"] = row_samples(run, shifts)
    return of.conclude(sentence(run, of.rows), limits=True, takes_delays=False)


def run_rows(run: Run, of: Gathered) -> list[Row]:
    """Return the mean length of loss bursts and of the gaps between them, over trials; and the longest."""
    each = lengths_by_trial(run, of.flows)
    rows = []
    for (_device, _cell), _, here in per_path(run, of.trials):
        own = each.filter(pl.col("block").is_in(here["block"].to_list()))
        for kind in ("loss", "gap"):
            lengths = own.filter(pl.col("run") == kind)
            if lengths.height:
                session = run.sessions_of(lengths["block"].to_numpy())
                mean = over_trials(lengths["mean"].to_numpy(), session=session)
                longest = Interval(float(np.max(lengths["most"].to_numpy())), None, None, 0.95, lengths.height)
                rows.append(trial_row(run, here, f"{kind}_run", "mean", mean, "1"))
                rows[-1].sessions = beds_counted(session)
                rows.append(trial_row(run, here, f"{kind}_run", "max", longest, "1"))
    return rows


def lengths_by_trial(run: Run, flows: pl.DataFrame) -> pl.DataFrame:
    """Return for every trial with losses: block, run ("loss", "gap"), mean and largest length."""
    kinds = {"loss_run": "loss", "gap_run": "gap"}
    counted = run.histograms.filter(pl.col("quantity").is_in(list(kinds)) & (pl.col("role") == "receive"))
    middle = (pl.col("low") + pl.col("high")) / 2
    here = counted.join(flows.select("block", "flow", "port"), on=["block", "flow", "port"], how="semi")
    return here.group_by("block", pl.col("quantity").replace(kinds).alias("run")).agg(
        ((middle * pl.col("count")).sum() / pl.col("count").sum()).alias("mean"),
        pl.col("high").max().cast(pl.Float64).alias("most"),
    )


def sentence(run: Run, rows: list[Row]) -> str:
    """Return the highest offered rate without loss, losses below it, and the highest loss ratio."""
    device = main_device(run.devices) or DIRECT
    losses = [row for row in rows if row.device == device and row.quantity == "loss_ratio"]
    offered = {row.cell: row.value.estimate for row in rows if row.device == device and row.quantity == "offered_pps"}
    if not losses:
        return "No loss could be measured"
    lossless = _lossless(losses, offered)
    worst = max(losses, key=lambda row: row.value.estimate)
    if worst.value.estimate == 0:
        return f"{called(device)} lost no frame{f' {lossless}' if lossless else ''}"
    none = f"no frame {lossless}, and " if lossless else ""
    return f"{called(device)} lost {none}{_share(worst, ' of the frames')} at {_load(worst, offered)}"


def _lossless(rows: list[Row], offered: dict[int | None, float]) -> str:
    """Return the highest loads without loss, one for each kind of address, and the largest loss at lower ones."""
    most: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: offered[row.cell]):
        if row.value.estimate == 0:
            most[_address(row)] = row
    said = []
    for to in sorted(most, key=lambda to: (to != KNOWN, to)):
        lower = [row for row in rows if is_lossy_below(row, most[to], offered)]
        worst = max(lower, key=lambda row: row.value.estimate, default=None)
        but = f", but {_share(worst)} at {fixed(offered[worst.cell], 0)}" if worst else ""
        said.append(f"in {_trials(most[to])} at {_load(most[to], offered)}{but}")
    return " and ".join(said)


def _trials(row: Row) -> str:
    """Return the number of trials, or beds, of a row."""
    return counted(row.value.n, "trial") if row.sessions is None else f"{row.sessions} beds"


def is_lossy_below(row: Row, lossless: Row, offered: dict[int | None, float]) -> bool:
    """Return whether frames of the same size to the same address were lost at a lower load."""
    alike = (row.factors.frame_bytes, row.factors.to) == (lossless.factors.frame_bytes, lossless.factors.to)
    return alike and row.value.estimate > 0 and offered[row.cell] < offered[lossless.cell]


def _share(row: Row, what: str = "") -> str:
    """Return the loss ratio with its interval."""
    low, high = row.value.low, row.value.high
    known = "" if low is None or high is None else f" (95 % CI {percent(low)} to {percent(high)}{over_beds(row)})"
    return f"{percent(row.value.estimate)}{what}{known}"


def _load(row: Row, offered: dict[int | None, float]) -> str:
    return f"{fixed(offered[row.cell], 0)} frames/s of {row.factors.frame_bytes} B to {_address(row)}"


def _address(row: Row) -> str:
    to = row.factors.to
    return ADDRESSES.get(to or "unicast", f"{to} addresses")
