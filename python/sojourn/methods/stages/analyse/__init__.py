"""The latency breakdown: a frame's latency split at every stamp that could be had on its way.

The stamps, in the order of the way, all on the sender's clock (`clocks`): intended, send call, queue (the qdisc's),
driver (the departure, by kernel or hardware), arrival (kernel or XDP), receive call, and for reflected frames answer
and answer's receive call. A stage is the time from one stamp to the next that the cell has; a stamp that a cell lacks
is named as missing, with the reason, and its stage runs on to the next. Stamps taken by the program itself where the
kernel's were wanted are no stamps of the kernel: they count as missing.

Only frames that have every stamp of their cell are split, so that their stages sum to their total. A stage may be
negative where two stamps were taken out of order; then it is said. Up to 1 % of a cell's frames may lack a stamp
between the first and the last, and a kernel may leave unstamped just those that it holds up: the hypothesis
`stages-sum` sets the sum of the stages against the mean latency of all frames. The unit is the trial: means and
quantiles are each trial's own, their interval is over trials. A device's stage less that of the direct link, and of the
wire where there is one, is paired within rounds. The A/A control is judged by whole delays, as in other methods of
streams.

Rows: quantity `stage_<name>` (pacing, send, qdisc, path, receive, answer, answer_receive; merged ones carry both names,
`send+qdisc`), statistics mean, p50, p90, p99, share (its part of the mean total); `stage_total` likewise. Those with a
reference are device less that path (mean).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.finding import Finding, Place
from sojourn.analysis.frames import cells_of_frames
from sojourn.analysis.hypotheses import MARGIN, Outcome, against, inconclusive, main_device
from sojourn.analysis.measurand import reference_of
from sojourn.analysis.rows import Row
from sojourn.analysis.run import A_A, DIRECT, WIRE
from sojourn.analysis.samples import Sample, shared, with_cells
from sojourn.analysis.sessions import beds_counted, figure_of, middle
from sojourn.analysis.stream_budget import delay_budget
from sojourn.analysis.stream_rows import sum_of
from sojourn.analysis.stream_samples import COMMON
from sojourn.analysis.stream_study import Gathered
from sojourn.analysis.verdict import amid
from sojourn.analysis.wording import HOLDS_ZERO, counted, micro, percent
from sojourn.devices import called
from sojourn.methods.stages.analyse.breakdown import (
    BEHIND,
    CALLED,
    Breakdown,
    breakdowns,
    compared,
    differences,
    stage_name,
)
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from sojourn.analysis.budget import Stated
    from sojourn.analysis.factors import Factors
    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study

Errors = tuple[float | None, float | None]
"""A clock's maximum error and its 95 % error."""

SUM = "stages-sum"

BREAKDOWN = Sample(
    "A stage, in the order of the way, then the total; with a reference, the device less that path.",
    {
        **shared("device reference cell"),
        "position": (pl.Int32, "Its place on the way, from 0."),
        "stage": (pl.String, "The stage; total: all together."),
        "begins": (pl.String, "The stamp with which it begins."),
        "ends": (pl.String, "The stamp with which it ends."),
        "mean_ns": (pl.Float64, "The mean over trials."),
        **shared("ci_low_ns ci_high_ns"),
        "p50_ns": (pl.Float64, "The median of the trials' medians; null with a reference."),
        "p90_ns": (pl.Float64, "The same of their 90th percentiles."),
        "p99_ns": (pl.Float64, "The same of their 99th percentiles."),
        "share": (pl.Float64, "Its share of the mean total; null with a reference."),
        **shared("trials"),
        "frames": (pl.Int64, "Frames that have every stamp of the cell; with a reference, of both paths."),
    },
    with_factors=True,
)
MISSING = Sample(
    "A stamp that the frames of a cell lack.",
    {**shared("device cell"), "stamp": (pl.String, "The stamp."), "why": (pl.String, "The reason.")},
)
SAMPLES = COMMON | {"latency_breakdown": BREAKDOWN, "missing_timestamps": MISSING}


def study(run: Run) -> Study:
    """Return every device's and cell's breakdown, what devices add to each stage, and whether stages sum to the
    whole."""
    of = Gathered(run)
    of.begin()
    found: list[Breakdown] = []
    errors: dict[tuple[str, int], Errors] = {}
    for frames in cells_of_frames(run, answers=True):
        found += breakdowns(frames)
        errors |= _clock_errors(frames)
    rows = stage_rows(found, run.cells)
    _with_clocks(rows, errors)
    of.rows.extend(rows)
    of.samples["latency_breakdown"], of.samples["missing_timestamps"] = (
        with_cells(run, breakdown_sample(found)),
        missing_sample(found),
    )
    if A_A in run.devices:
        of.add_devices(run.cells)
    of.hypotheses.append(sum_of_stages(found, main_device(run.devices)))
    of.findings.extend(_out_of_order(found))
    return of.conclude(_sentence(run, found))


def budgets(run: Run, study: Study) -> list[Stated]:
    """Return the budget of what the main device adds to the path between the drivers, or else to the whole."""
    device = main_device(run.devices)
    over = DIRECT if device is None else reference_of(run, device)
    added = [row for row in study.rows if (row.device, row.reference, row.statistic) == (device, over, "mean")]
    for quantity in ("stage_path", "stage_total"):
        several = [row for row in added if row.quantity == quantity]
        if several:
            row = min(several, key=lambda one: one.cell or 0)
            stage = quantity.removeprefix("stage_")
            return [
                delay_budget(
                    run, study.rows, f"What {device} adds to the stage {stage} over {over}", row, what="pairs of trials"
                )
            ]
    return []


def stage_rows(found: list[Breakdown], cells: Mapping[int, Factors]) -> list[Row]:
    """Return every stage of every path, and what devices add to each over the direct link."""
    rows = [row for one in found for row in _path_rows(one, cells)]
    for device, reference, points in compared(found):
        rows += _difference_rows(device, reference, points, cells)
    return rows


def _path_rows(breakdown: Breakdown, cells: Mapping[int, Factors]) -> Iterator[Row]:
    factors = cells[breakdown.cell]
    for i, stage in enumerate(breakdown.stages):
        figures = {"mean": (breakdown.means[:, i], "ns")}
        figures |= {name: (values[:, i], "ns") for name, values in breakdown.quantiles.items()}
        if stage != "total":
            figures["share"] = (_shares(breakdown)[:, i], "1")
        for statistic, (values, unit) in figures.items():
            yield Row(
                breakdown.device,
                f"stage_{stage}",
                statistic,
                middle(values[np.isfinite(values)], breakdown.sessions[np.isfinite(values)]),
                unit,
                None,
                factors,
                breakdown.cell,
                breakdown.frames,
                sessions=beds_counted(breakdown.sessions[np.isfinite(values)]),
            )


def _shares(breakdown: Breakdown) -> NDArray[np.float64]:
    """Return each stage's share of the mean total of its trial (rows); NaN where that is zero."""
    totals = breakdown.means[:, -1:]
    return np.asarray(breakdown.means / np.where(totals == 0, np.nan, totals), dtype=np.float64)


def _difference_rows(
    device: Breakdown, reference: Breakdown, points: tuple[str, ...], cells: Mapping[int, Factors]
) -> Iterator[Row]:
    names = [*(stage_name(begin, end) for begin, end in pairwise(points)), "total"]
    by_stage, session = differences(device, reference, points)
    frames = device.frames + reference.frames
    for name, values in zip(names, by_stage.T, strict=True):
        value = middle(values, session)
        if value.n:
            row = Row(
                device.device, f"stage_{name}", "mean", value, "ns", reference.device, cells[device.cell], device.cell
            )
            row.probes, row.sessions = frames, beds_counted(session)
            yield row


def sum_of_stages(found: list[Breakdown], device: str | None) -> Outcome:
    """Test the hypothesis `stages-sum`: the sum of the stages is the mean latency of all frames, within 5 % of it.

    It holds trivially where every frame has every timestamp. Otherwise the worst path and cell decides: the outcome is
    about the excess latency of frames without a timestamp.
    """
    frames, partial = sum(one.frames for one in found), sum(one.partial for one in found)
    if not frames:
        return inconclusive(SUM, "no frame has two timestamps", device)
    if not partial:
        said = f"each of {counted(frames, 'frame')} has every timestamp, so its stages sum to its latency"
        return Outcome(SUM, "supported", said, device)
    return max((_summed(one) for one in found if one.partial), key=_gravity)


def _summed(breakdown: Breakdown) -> Outcome:
    total = abs(figure_of(breakdown.means[:, -1], breakdown.sessions).mean.estimate)
    shown, margin = figure_of(breakdown.missed, breakdown.sessions).mean, MARGIN * total
    low, high = shown.low, shown.high
    known = "" if low is None or high is None else f" ({percent(shown.level)} CI {micro(low)} to {micro(high)})"
    said = (
        f"over {amid(breakdown.device)} {counted(breakdown.partial, 'frame')} of "
        f"{breakdown.frames + breakdown.partial} lack a timestamp: the mean latency of all is {micro(shown.estimate)}"
        f"{known} more than the sum of the stages, where ± {micro(margin)} are allowed"
    )
    return Outcome(SUM, against(shown, 0.0, margin), said, breakdown.device, None, None, margin, shown, "ns", 0.0)


def _gravity(one: Outcome) -> tuple[int, float]:
    """Return a sort key: rejected before inconclusive before supported, then by the relative deviation."""
    shown = 0.0 if one.shown is None else abs(one.shown.estimate)
    return ("supported", "inconclusive", "rejected").index(one.outcome), shown / (one.margin or 1.0)


def backwards(found: list[Breakdown]) -> dict[tuple[str, int, str], float]:
    """Return the stages whose timestamps are out of order, by device, cell and stage: the share of frames."""
    return {
        (one.device, one.cell, stage): float(share)
        for one in found
        for stage, share in zip(one.stages, one.negative, strict=False)
        if share > 0 and stage != "pacing"
    }


def breakdown_sample(found: list[Breakdown]) -> pl.DataFrame:
    """Return the sample `latency_breakdown`."""
    rows = [row for one in found for row in _stage_samples(one)]
    rows += [row for one, reference, points in compared(found) if one.device != A_A for row in
             _added_stages(one, reference, points)]  # fmt: skip
    return pl.DataFrame(rows, schema=BREAKDOWN.own, orient="row")


def missing_sample(found: list[Breakdown]) -> pl.DataFrame:
    """Return the sample `missing_timestamps`: which timestamps are missing, and why."""
    rows = [(one.device, one.cell, CALLED[point], why) for one in found for point, why in one.missing.items()]
    return pl.DataFrame(rows, schema=MISSING.own, orient="row")


def _stage_samples(breakdown: Breakdown) -> Iterator[tuple[Any, ...]]:
    trials = len(breakdown.means)
    for i, stage in enumerate(breakdown.stages):
        mean = middle(breakdown.means[:, i], breakdown.sessions)
        quantiles = [float(np.median(values[:, i])) for values in breakdown.quantiles.values()]
        begins, ends = _ends(breakdown.points, i)
        shares = _shares(breakdown)[:, i]
        known = np.isfinite(shares)
        share = middle(shares[known], breakdown.sessions[known]).estimate if known.any() else None
        yield (
            *(breakdown.device, None, breakdown.cell, i, stage, begins, ends),
            *(mean.estimate, mean.low, mean.high, *quantiles, share, trials, breakdown.frames),
        )


def _added_stages(device: Breakdown, reference: Breakdown, points: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    names = [*(stage_name(begin, end) for begin, end in pairwise(points)), "total"]
    by_stage, session = differences(device, reference, points)
    for i, (name, values) in enumerate(zip(names, by_stage.T, strict=True)):
        value = middle(values, session) if len(values) else Interval(float("nan"), None, None, 0.95, 0)
        begins, ends = _ends(points, i)
        yield (
            *(device.device, reference.device, device.cell, i, name, begins, ends),
            *(value.estimate, value.low, value.high, None, None, None, None, value.n, device.frames + reference.frames),
        )


def _ends(points: tuple[str, ...], position: int) -> tuple[str, str]:
    """Return the first and last timestamp of the stage at a position; the total has the first and last of all."""
    if position == len(points) - 1:
        return CALLED[points[0]], CALLED[points[-1]]
    return CALLED[points[position]], CALLED[points[position + 1]]


def _clock_errors(frames: pl.DataFrame) -> dict[tuple[str, int], Errors]:
    """Return the largest clock error of the frames of each device and cell."""
    largest = frames.group_by("device", "cell").agg(pl.col("clock_bound_ns").max(), pl.col("clock_error95_ns").max())
    return {(device, cell): (bound, error95) for device, cell, bound, error95 in largest.iter_rows()}


def _with_clocks(rows: list[Row], errors: Mapping[tuple[str, int], Errors]) -> None:
    """Set the clock's error on every row; differences have those of both paths, a stage on one side none."""
    for row in rows:
        at = row.cell if row.cell is not None else -1
        crosses = "path" in row.quantity or row.quantity == "stage_total" or "answer" in row.quantity
        paths = [path for path in (row.device, row.reference) if path is not None]
        bounds, errors95 = zip(*(errors.get((path, at), (None, None)) for path in paths), strict=True)
        row.between_clocks(*((sum_of(bounds), sum_of(errors95)) if crosses else (0.0, 0.0)))


def _out_of_order(found: list[Breakdown]) -> list[Finding]:
    """Return findings for negative stages, except the path, which the clocks explain."""
    shares = {key: share for key, share in backwards(found).items() if "path" not in key[2] and key[2] != "total"}
    behind = [Place(one.device, one.cell) for one in found if BEHIND in one.missing.values()]
    if behind:
        sentence = f"the queue's timestamp is {BEHIND}; it is left out, and its stage is merged with the next"
        return [Finding("stamps_out_of_order", sentence, 1.0, tuple(behind))]
    if not shares:
        return []
    (device, cell, stage), worst = max(shares.items(), key=lambda item: item[1])
    places = tuple(dict.fromkeys(Place(one, at) for one, at, _ in [(device, cell, stage), *shares]))
    sentence = (
        f"timestamps are out of order: {stage} is negative for up to {percent(worst)} of the frames, as of {device}"
    )
    return [Finding("stamps_out_of_order", sentence, worst, places)]


def _sentence(run: Run, found: list[Breakdown]) -> str:
    """Return the largest parts of the latency, through the main device at its first cell."""
    device = main_device(run.devices) or DIRECT
    breakdown = next((one for one in found if one.device == device), found[0] if found else None)
    if breakdown is None:
        return "No frame has two timestamps"
    means = np.array([middle(stage, breakdown.sessions).estimate for stage in breakdown.means.T])
    named = sorted(zip(breakdown.stages[:-1], means[:-1], strict=True), key=lambda pair: -pair[1])
    parts = ", ".join(f"{stage.replace('_', ' ')} {micro(float(mean))}" for stage, mean in named[:4])
    path = amid(breakdown.device)
    where = run.cells[breakdown.cell].describe()
    whole = micro(float(means[-1]))
    added = _added_sentence(run, breakdown, found)
    begin = f"{added}{'through' if added else 'Through'} {path} ({where})"
    return f"{begin} a frame takes {whole} on average from its intended departure: {parts}"


def _added_sentence(run: Run, breakdown: Breakdown, found: list[Breakdown]) -> str:
    """Return what the device adds between the sender's driver and the arrival, or else to the whole.

    Over the wire if measured, with the direct link beside it.
    """
    said: dict[str, str] = {}
    over = reference_of(run, breakdown.device)
    for device, reference, points in compared(found):
        if device is breakdown:
            names = [*(stage_name(begin, end) for begin, end in pairwise(points)), "total"]
            stage = "path" if "path" in names else "total"
            by_stage, session = differences(device, reference, points)
            if len(by_stage):
                value = middle(by_stage[:, names.index(stage)], session)
                beds = beds_counted(session)
                adds = _adds(called(device.device), stage, value, f" over {beds} beds" if beds else "")
                said[reference.device] = f"{adds}; " if over == DIRECT else _over(reference.device, adds, value)
    return said.get(over, "") + (said.get(DIRECT, "") if over != DIRECT else "")


def _over(reference: str, adds: str, value: Interval) -> str:
    """Return the figure over the wire, or the one over the direct link beside it."""
    if reference == WIRE:
        return f"{adds} over the wire; "
    known = "" if value.low is None or value.high is None else f" ({micro(value.low)} to {micro(value.high)})"
    return f"over the direct link, {micro(value.estimate)}{known}; "


def _adds(name: str, stage: str, value: Interval, over: str = "") -> str:
    """Return what a device adds to a stage, if the interval excludes zero."""
    if value.low is None or value.high is None:
        return f"{name} changes the stage {stage} by {micro(value.estimate)} (too few trials for an interval)"
    between = f"{micro(value.estimate)} ({percent(value.level)} CI {micro(value.low)} to {micro(value.high)}{over})"
    if not value.excludes(0):
        return f"{name} shows no effect on the stage {stage}, with {HOLDS_ZERO}: {between}"
    return (
        f"{name} adds {between} to the stage {stage}"
        if value.estimate > 0
        else f"{name} changes the stage {stage} by {between}"
    )
