"""Method "multicast": the latency to every receiver, and the spacing of the responses of several nodes.

Both of the paper's methods: the one-way delay at each receiver, and a request that every receiver answers by unicast.
The latency of a response is read on the sender's clock alone. A node's peak is the median latency of its responses in a
trial; the spacing is between successive peaks, whichever nodes they belong to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.analysis.finding import Finding, Place
from sojourn.analysis.hypotheses import main_device
from sojourn.analysis.packets import answer_values, ordered
from sojourn.analysis.rates import pace_of
from sojourn.analysis.round_trips import round_trips, trip_summaries
from sojourn.analysis.run import DIRECT
from sojourn.analysis.samples import with_cells
from sojourn.analysis.stream_budget import delay_budget
from sojourn.analysis.stream_rows import (
    contrasts,
    delay_rows,
    mean_of,
    per_path,
    shift_rows,
    summaries,
    tell_clocks,
    trial_row,
)
from sojourn.analysis.stream_samples import COMMON, histogram_samples, point, quantile_samples, row_samples
from sojourn.analysis.stream_study import Gathered
from sojourn.analysis.streams import over_column, series
from sojourn.analysis.verdict import amid
from sojourn.analysis.wording import counted, micro, percent
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from sojourn.analysis.budget import Stated
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study

SAMPLES = COMMON | {
    "peaks": point("The peak of a node"),
    "shifts": point("A shift against another destination or number of receivers"),
}


def study(run: Run) -> Study:
    """Return one-way delays and responses of every receiver, their differences, and the spacing of the peaks."""
    of = Gathered(run)
    of.begin()
    of.add_devices(run.cells)
    answers = ordered(run, list(answer_values(of.answers, of.flows)))
    trips = round_trips(run)
    of.rows.extend(delay_rows(run, [*answers, *trips]))
    medians = peaks_of(of.answers)
    peaks = peak_rows(run, medians)
    of.rows.extend([*peaks, *spacing_rows(run, medians)])
    shifts = all_shifts(run, of)
    of.rows.extend(shifts)
    of.samples["peaks"] = row_samples(run, peaks)
    of.samples["shifts"] = row_samples(run, shifts)
    of.samples["delay_quantiles"] = with_cells(run, quantile_samples([*of.delays, *answers, *trips]))
    of.samples["delay_histograms"] = with_cells(run, histogram_samples([*of.delays, *answers, *trips]))
    of.findings.extend(unanswered(run, of))
    return of.conclude(sentence(run, of.rows))


def unanswered(run: Run, of: Gathered) -> list[Finding]:
    """Return a finding for cells of requests without any response."""
    asked = of.flows.filter(pl.col("cell").is_in([cell for cell, one in run.cells.items() if one.kind == "answers"]))
    silent = asked.join(of.answers.select("device", "cell").unique(), on=["device", "cell"], how="anti")
    places = tuple(Place(device, cell) for device, cell in silent.select("device", "cell").unique().sort("cell").rows())
    if not places:
        return []
    sentence = f"the requests of {counted(len(places), 'cell')} had no response, so these have no response latency"
    return [Finding("incomplete", sentence, float(len(places)), places)]


def peaks_of(answers: pl.DataFrame) -> pl.DataFrame:
    """Return each node's peak in each trial: device, cell, round, visit, block, port, node, peak, rank."""
    peaks = (
        answers.drop_nulls("delay_ns")
        .group_by("block", "node", maintain_order=True)
        .agg(
            *(pl.col(one).first() for one in ("device", "cell", "round", "visit", "session")),
            pl.col("delay_ns").median().alias("peak"),
            pl.len().alias("sent"),
        )
    )
    rank = pl.col("peak").rank("ordinal").over("block").cast(pl.Int32)
    return peaks.with_columns(port=pl.lit(0, dtype=pl.Int32), rank=rank).sort("block", "rank")


def peak_rows(run: Run, peaks: pl.DataFrame) -> list[Row]:
    """Return every node's peak, over trials."""
    rows = []
    for (_, node), here in _by(peaks, "node"):
        row = mean_of(trial_row(run, here, "peak", "p50", over_column(here, "peak"), "ns"), here, "peak")
        row.node = node
        rows.append(row)
    return rows


def spacing_rows(run: Run, peaks: pl.DataFrame) -> list[Row]:
    """Return the mean spacing of the peaks of each trial, over trials, and the least that the line rate allows."""
    several = peaks.group_by("block", maintain_order=True).agg(
        *(pl.col(one).first() for one in ("device", "cell", "round", "visit", "session", "port")),
        pl.col("sent").sum(),
        ((pl.col("peak").max() - pl.col("peak").min()) / (pl.len() - 1)).alias("spacing"),
        pl.len().alias("nodes"),
    )
    rows = []
    for (device, cell), _, here in per_path(run, several.filter(pl.col("nodes") > 1)):
        rows.append(
            mean_of(trial_row(run, here, "peak_spacing", "mean", over_column(here, "spacing"), "ns"), here, "spacing")
        )
        pace = pace_of(run, device)
        least = pace.interval_ns(run.cells[cell].frame_bytes or 0)
        value = Interval(float("nan") if least is None else least, None, None, 0.95, 0)
        rows.append(trial_row(run, here, "peak_spacing", "calculated", value, "ns"))
        rows[-1].source = pace.why
    return rows


def all_shifts(run: Run, of: Gathered) -> list[Row]:
    """Return broadcast and multicast minus unicast, and further subscribers minus none, at the first receiver."""
    pairs = [*contrasts(run, "to", "unicast", ("receivers",)), *contrasts(run, "receivers", 0)]
    one_way = of.summaries.filter(pl.col("port") == 0)
    rows = []
    for quantity, each in (("one_way_delay", one_way), ("response_latency", responses(run, of))):
        for statistic in ("mean", "p50"):
            rows += shift_rows(run, series(each, statistic), pairs, quantity, statistic)
    tell_clocks([row for row in rows if row.quantity == "one_way_delay_shift"], pairs, one_way)
    return rows


def responses(run: Run, of: Gathered) -> pl.DataFrame:
    """Return the response latencies of every trial: the first node's to a group, and those of a probe to one host."""
    answered = summaries(of.answers, of.flows.filter(pl.col("port") == -1))
    first = answered.filter(pl.col("node") == pl.col("node").min().over("block"))
    columns = ("device", "cell", "round", "visit", "session", "block", "mean", "p50")
    return pl.concat([first.select(columns), trip_summaries(run).select(columns)], how="vertical_relaxed")


def _by(peaks: pl.DataFrame, column: str) -> list[tuple[tuple[int, int], pl.DataFrame]]:
    groups = peaks.sort("cell", column).partition_by("device", "cell", column, as_dict=True, maintain_order=True)
    return [((int(str(cell)), int(str(value))), rows) for (_, cell, value), rows in groups.items()]


def sentence(run: Run, rows: list[Row]) -> str:
    """Return the spacing of the responses, or the difference between a group address and unicast."""
    device, leads = _device(run), leading(run, rows)
    if leads is None:
        receivers = {row.port for row in rows if row.device == device and row.port is not None}
        return f"Delays of {len(receivers)} receivers over {amid(device)} were measured"
    if leads.quantity == "peak_spacing":
        nodes = (leads.factors.receivers or 0) + 1
        return f"Over {amid(device)} the responses of {nodes} nodes are {micro(leads.value.estimate)} apart on average"
    return f"Over {amid(device)} {leads.factors.to} {_than_unicast(leads.value)}"


def leading(run: Run, rows: list[Row]) -> Row | None:
    """Return the spacing of the most responses, or the first difference from unicast; None where neither was
    measured."""
    own = [row for row in rows if row.device == _device(run)]
    spaced = [row for row in own if row.quantity == "peak_spacing" and row.statistic == "mean"]
    if spaced:
        return max(spaced, key=lambda row: row.factors.receivers or 0)
    return next((row for row in own if row.quantity == "one_way_delay_shift" and row.against == "to=unicast"), None)


def budgets(run: Run, study: Study) -> list[Stated]:
    """Return the budget of the figure in the sentence: both delays of a difference are over the same path."""
    row = leading(run, study.rows)
    if row is None:
        return []
    if row.quantity == "peak_spacing":
        return [delay_budget(run, study.rows, f"Spacing of responses over {row.device}", row)]
    name = f"Delay of {row.factors.to} over {row.device} less that of unicast"
    return [delay_budget(run, study.rows, name, row, what="pairs of trials")]


def _device(run: Run) -> str:
    return main_device(run.devices) or DIRECT


def _than_unicast(value: Interval) -> str:
    """Return how much longer it takes, if the interval excludes zero."""
    if value.low is None or value.high is None:
        return f"and unicast differ by {micro(value.estimate)} (too few trials for an interval)"
    between = f" ({percent(value.level)} CI {micro(value.low)} to {micro(value.high)})"
    if not value.excludes(0):
        return f"and unicast do not differ significantly: {micro(value.estimate)}{between}"
    if value.estimate < 0:
        between = f" ({percent(value.level)} CI {micro(-value.high)} to {micro(-value.low)})"
    return f"takes {micro(abs(value.estimate))}{between} {'longer' if value.estimate > 0 else 'less'} than unicast"
