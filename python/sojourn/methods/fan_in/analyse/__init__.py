"""Method "fan-in": several senders to one receiver: spread of the delays, total throughput, fairness.

The delay spread is that of the first sender within a trial, as the paper measured one pair while others joined.
Fairness is Jain's index of the received rates of the senders. Where the phase between two regular senders takes every
value, the delay by phase is reported too (`phase`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.hypotheses import Outcome, main_device
from sojourn.analysis.rates import RATES, jain, overloads_of, rate_rows, rate_samples
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.samples import Sample, shared, with_cells
from sojourn.analysis.sessions import middle
from sojourn.analysis.stream_budget import delay_budget
from sojourn.analysis.stream_rows import beside_rows, mean_of, per_path, trial_row
from sojourn.analysis.stream_samples import COMMON, point, row_samples
from sojourn.analysis.stream_study import Gathered
from sojourn.analysis.streams import Series, over_column, series, worst_of
from sojourn.analysis.verdict import amid
from sojourn.analysis.wording import counted, fixed, micro
from sojourn.methods.fan_in.analyse import phase, sharing

if TYPE_CHECKING:
    from sojourn.analysis.budget import Stated
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study
    from sojourn.statistics.interval import Interval

HYPOTHESIS = "delay-spread-grows-with-senders"
TOTAL = "fan-in-total"
SAW_TOOTH = "phase-saw-tooth"
FLOOD = "flood"

SHARES = Sample(
    "A sender in a trial.",
    {
        **shared("device cell block round flow"),
        "received_pps": (pl.Float64, "The packet rate at the receiver."),
    },
    with_factors=True,
)
SAMPLES = COMMON | {
    "delay_by_phase": phase.DELAY_BY_PHASE,
    "delay_spreads": point("A spread of the delays within trials"),
    "rates": RATES,
    "shares": SHARES,
}


def study(run: Run) -> Study:
    """Return delays, their spread, total rates and fairness for every number of senders."""
    of = Gathered(run)
    of.begin()
    of.rows.extend(rate_rows(run, of.trials))
    of.add_instances(run.cells)
    of.overloads.update(overloads_of(run, of.trials))
    each = spreads(of.packets)
    spread = spread_rows(run, each)
    of.rows.extend(spread)
    fair = fairness(of.flows)
    of.rows.extend(mean_of(trial_row(run, here, "fairness", "jain", over_column(here, "jain"), "1"), here, "jain")
                   for _, _, here in per_path(run, fair))  # fmt: skip
    asked = run.hypotheses
    of.hypotheses.extend(outcome for outcome in evaluate_growth(run, each) if HYPOTHESIS in asked or not asked)
    if TOTAL in asked:
        of.hypotheses.extend(sharing.evaluate(TOTAL, run, of.flows, of.packets))
    phases = phase.phases_of(run, of.packets)
    of.rows.extend(phase.phase_rows(run, phases))
    of.findings.extend(phase.findings(run, phases))
    if SAW_TOOTH in asked:
        of.hypotheses.extend(phase.evaluate(SAW_TOOTH, run, phases))
    of.samples["delay_by_phase"] = with_cells(run, phase.samples(run, phases))
    of.samples["delay_spreads"] = row_samples(run, spread)
    of.samples["rates"] = with_cells(run, rate_samples(run, of.trials))
    of.samples["shares"] = with_cells(run, SHARES.of(of.flows))
    return of.conclude(sentence(run, of.rows), limits=True)


def spreads(packets: pl.DataFrame) -> pl.DataFrame:
    """Return for every trial the standard deviation, interquartile range and p99 - p1 of the first sender's delays."""
    delay = pl.col("delay_ns")
    first = packets.drop_nulls("delay_ns").filter(pl.col("flow") == pl.col("flow").min().over("block"))
    spread = {
        "sd": delay.std(),
        "iqr": delay.quantile(0.75, "linear") - delay.quantile(0.25, "linear"),
        "p99-p1": delay.quantile(0.99, "linear") - delay.quantile(0.01, "linear"),
    }
    return first.group_by("block", "port", maintain_order=True).agg(
        *(pl.col(one).first() for one in ("device", "cell", "round", "visit", "session")),
        *(value.alias(name) for name, value in spread.items()),
        *(pl.col(one).max() for one in ("clock_bound_ns", "clock_error95_ns")),
        pl.len().alias("sent"),
    )


def spread_rows(run: Run, each: pl.DataFrame) -> list[Row]:
    """Return every measure of the delay spread, over trials."""
    rows = []
    for _, _, here in per_path(run, each):
        for name in ("sd", "iqr", "p99-p1"):
            value = over_column(here, name)
            if value.n:
                rows.append(mean_of(trial_row(run, here, "delay_spread", name, value, "ns"), here, name))
                if bound := worst_of(here, "clock_bound_ns"):  # what clocks drift within a trial is in its spread
                    rows[-1].between_clocks(bound, worst_of(here, "clock_error95_ns"))
        rows += beside_rows(run, here, "delay_spread", "sd", "ns")
    return rows


def fairness(flows: pl.DataFrame) -> pl.DataFrame:
    """Return Jain's index of every trial; a sender without arrivals has rate 0."""
    groups = flows.partition_by("block", "port", as_dict=True, maintain_order=True)
    found = [
        {
            **rows.select("device", "cell", "round", "visit", "session", "port").row(0, named=True),
            "sent": int(rows["sent"].sum()),
            "jain": jain(rows["received_pps"].fill_null(0.0).to_numpy()),
        }
        for rows in groups.values()
    ]
    return (
        pl.DataFrame(found, schema_overrides={"cell": pl.Int32})
        if found
        else pl.DataFrame(schema={"device": pl.String, "cell": pl.Int32, "session": pl.Int32, "port": pl.Int32})
    )


def evaluate_growth(run: Run, each: pl.DataFrame) -> list[Outcome]:
    """Test whether the delay spread grows with the number of senders: the slope of log spread over log senders.

    Floods are left out: each additional sender raises their load, and a full queue has a spread of its own.
    """
    outcomes = []
    by_cell = series(each, "sd")
    for device in [one for one in run.devices if one not in (DIRECT, A_A)]:
        for size in sorted({one.frame_bytes or 0 for one in run.cells.values()}):
            here = {
                run.cells[cell].senders or 1: one
                for (path, cell), one in by_cell.items()
                if path == device and run.cells[cell].frame_bytes == size and run.cells[cell].schedule != FLOOD
            }
            if len(here) > 1:
                outcomes.append(_evaluate(device, size, growth(here)))
    return outcomes


def growth(by_senders: dict[int, Series]) -> Interval:
    """Return the slope of log spread over log senders, over rounds: 0.5 where independent senders add their
    variances."""
    counts = sorted(by_senders)
    each = [by_senders[count] for count in counts]
    means = [one.by_round() for one in each]
    rounds = sorted(set.intersection(*(set(one) for one in means)))
    logs = np.array([[np.log(max(one[at], 1e-9)) for one in means] for at in rounds])
    x = np.log(np.array(counts, dtype=np.float64))
    centred = x - x.mean()
    slopes = logs @ centred / float(np.square(centred).sum()) if rounds else np.empty(0)
    return middle(slopes, np.array([at.session for at in rounds], dtype=np.int64))


def _evaluate(device: str, size: int, slope: Interval) -> Outcome:
    spread, outcome = f"the delay spread of {size} B frames over {amid(device)}", "inconclusive"
    known = "" if slope.low is None or slope.high is None else f" (95 % CI {slope.low:.2f} to {slope.high:.2f})"
    said = f"{spread} grows as the number of senders to the power {slope.estimate:.2f}{known}"
    if slope.low is not None and slope.low > 0:
        outcome = "supported"
    elif slope.high is not None and slope.high <= 0:
        outcome = "rejected"
        said = (
            f"{spread} does not grow with the number of senders: it varies as that number to the power "
            f"{slope.estimate:.2f}{known}"
        )
    return Outcome(HYPOTHESIS, outcome, said, device, None, shown=slope, unit="1")


def sentence(run: Run, rows: list[Row]) -> str:
    """Return the effect of the phase if measured; else the spread with the fewest and most senders, and fairness."""
    if said := phase.sentence(rows, _device(run)):
        return said
    device, of_size = _device(run), leading(run, rows)
    if not of_size:
        return _shared(device, rows)
    least, most, size = of_size[0], of_size[-1], of_size[0].factors.frame_bytes
    jains = f"; {_fairness(device, rows)}" if _fairness(device, rows) else ""
    narrow, broad = micro(least.value.estimate), micro(most.value.estimate)
    return (
        f"Over {amid(device)} the one-way delay of {size} B frames has a standard deviation of {narrow} with "
        f"{counted(least.factors.senders or 1, 'sender')} and of {broad} with {most.factors.senders}{jains}"
    )


def leading(run: Run, rows: list[Row]) -> list[Row]:
    """Return the standard deviations of the smallest frames' delays over the device, by rising number of senders."""
    wanted = (_device(run), "delay_spread", "sd")
    spread = [row for row in rows if (row.device, row.quantity, row.statistic) == wanted]
    spread = [row for row in spread if row.factors.schedule != FLOOD]
    size = min((row.factors.frame_bytes or 0 for row in spread), default=0)
    of_size = [row for row in spread if row.factors.frame_bytes == size]
    return sorted(of_size, key=lambda row: row.factors.senders or 1)


def budgets(run: Run, study: Study) -> list[Stated]:
    """Return the budget of the phase, or those of the spreads with the fewest and most senders; none has a clock
    offset."""
    effects = [row for row in study.rows if (row.device, row.quantity) == (_device(run), "phase_effect")]
    if effects:
        most = max(effects, key=lambda row: row.value.estimate)
        return [delay_budget(run, study.rows, f"Change of the delay over {most.device} with the phase", most)]
    several = leading(run, study.rows)
    ends = several[:1] + several[1:][-1:]
    named = {f"Spread of delays over {row.device}, senders: {row.factors.senders or 1}": row for row in ends}
    return [delay_budget(run, study.rows, name, row) for name, row in named.items()]


def _device(run: Run) -> str:
    return main_device(run.devices) or DIRECT


def jain_said(index: float) -> str:
    """Return an index, with more digits where three would round to 1; 1 means all senders at one rate."""
    if f"{index:.3f}" != "1.000" or index == 1:
        return f"{index:.3f}"
    return f"{index:.6f}" if index < 0.9999995 else "above 0.999999"


def _fairness(device: str, rows: list[Row]) -> str:
    """Return the index with the most senders, of floods if there are any: those with an interval have equal pacing."""
    of_device = [row for row in rows if (row.device, row.quantity) == (device, "fairness")]
    fair = [row for row in of_device if (row.factors.senders or 1) > 1]
    if not fair:
        return ""
    most = max(fair, key=lambda row: (row.factors.schedule == FLOOD, row.factors.senders or 1))
    of = f"{most.factors.senders} senders{' that flood' if most.factors.schedule == FLOOD else ''}"
    return f"Jain's fairness index of {of} is {jain_said(most.value.estimate)}"


def _shared(device: str, rows: list[Row]) -> str:
    """Return the fairness, for a run without delay spreads of paced streams."""
    said = _fairness(device, rows)
    if not said:
        return "No trial with several senders was measured"
    return f"Over {amid(device)}, {_total(device, rows)}{said}"


def _total(device: str, rows: list[Row]) -> str:
    """Return the total rate of the floods with the largest frames, by the number of senders."""
    floods = [row for row in rows if (row.device, row.quantity) == (device, "throughput_bps")
              and row.statistic in ("mean", "at_least") and row.factors.schedule == FLOOD]  # fmt: skip
    size = max((row.factors.frame_bytes or 0 for row in floods), default=0)
    each = sorted((row.factors.senders or 1, row.value.estimate) for row in floods if row.factors.frame_bytes == size)
    if len(each) < 2:
        return ""
    told = ", ".join(f"{counted(senders, 'sender')}: {fixed(bps / 1e6, 1)} Mbit/s" for senders, bps in each)
    return f"frames of {size} B arrive at this total rate in a flood: {told}; "
