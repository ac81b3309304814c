"""Method "tcp-load": what flows of TCP get from a path, and how much longer its round trips take meanwhile.

A trial gives one value of each figure, and a figure is the mean over trials, with Student's interval over sessions
(over rounds, where the run has one bed).

Quantities (statistic; unit); flows, direction and congestion are columns of their own. Further probes beside the main
ones have rows of round trips, responsiveness and loss in cells of their own, with a column dscp:

- rtt_idle, rtt_working, rtt_increase (working less idle, trial by trial); mean p50 p90 p99 [ns]
- latency_under_load (the mean increase; of down and up, where both were measured, the mean of both); mean [ns]
- responsiveness (round trips per minute: 60 s over the mean of the shortest 95 % of the round trips); idle working
  [1/min]
- goodput (user data that reached the receiver, each byte once), utilisation (of the link's rate, by what was
  delivered, headers included), retransmitted (of the segments sent), fairness (Jain's index of the flows'
  goodputs); down up [bit/s, 1]
- goodput_of_flow (of several flows, that of the one with the least, the median one, and the one with the most, trial by
  trial); down up, least median most [bit/s]
- goodput_by_dscp (of the flows of each DSCP, where flows are marked); down up, with the DSCP's name [bit/s]
- share (of all goodput, of the flows of each algorithm, where several share a path); down up, first second … [1]
- convergence (from the joining of the last flows to the end of the first second over which Jain's index of the goodputs
  is 0.95 or more; only where all trials came to that), converged (trials that did); down up [ns, 1]
- timeouts (retransmission timeouts of a trial), spurious (segments that DSACK says were there already, of those sent),
  ecn_echoed (segments acknowledged with the echo of a mark, of those delivered; a receiver repeats the echo until the
  sender says that it has reduced its window), ssthresh_changes (changes of the slow-start threshold between readings:
  reductions of the window, ends of slow start, and reductions undone); down up [1]
- limited (share of the time of the flows); down up, with congestion window, receiver, send buffer, application, pacing
  or path [1]
- losses (of a whole trial: packets that the emulator lost, segments that TCP retransmitted, and those of them that were
  there already); down up, with emulator retransmitted spurious [1]
- queueing_delay (of all packets of a trial, by the emulator's counters), dropped and marked (shares by its queue);
  down up, with mean p99 [ns, 1]
- mathis_ratio (goodput of one flow of Reno over Mathis' formula, under random loss alone), cubic_ratio (of one flow of
  CUBIC over what RFC 9438 gives); down up [1]
- standing_queue (the least delay of any packet over windows of 100 ms in the working conditions, mean of a trial's
  windows; not where hosts have two clocks); down up [ns]
- background_goodput, background_utilisation, background_lost (UDP: packets, of those sent in a whole trial),
  background_retransmitted (TCP: segments, of those sent), background_completion (short transfers, from the handshake to
  the last acknowledgement), background_delay (UDP: one way, between two clocks with their errors): of traffic
  beside the flows, which is in no other figure of flows; down up, with the name of the part, and mean p50 p90 (p99)
  of times [bit/s, 1, ns]
- share_by_rtt (of all goodput), goodput_by_rtt (the mean of a flow), fairness_by_rtt (Jain's index within), and
  retransmitted_by_rtt: of the flows of each round trip, where flows have their own; down up, with the round trip and,
  where several algorithms share a path, the algorithm's turn [1, bit/s]
- tcp_rtt (of these flows, by their TCP: the least, and the mean smoothed one); the same with minimum working [ns]
- rtt_exponent (k, where goodput goes as R^-k with the round trip R; only where no trial has a group without goodput);
  down up, with planned (R without the queue) or working (R under load) [1]
- probe_loss (probes without an answer); idle working [1]
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.budget import BOOTS, Entry, Stated, clock_rate, timestamp_resolution
from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.host_clock import clock_findings
from sojourn.analysis.lateness import late_emulators, lateness
from sojourn.analysis.rows import LoadSetting, MarkedSetting, Row, over_beds
from sojourn.analysis.samples import Sample, curve_of, shared, thinned
from sojourn.analysis.sessions import beside, figure_of
from sojourn.analysis.stream_budget import scatter_of, uncovered
from sojourn.analysis.study import Study
from sojourn.analysis.tcp_trials import figured, unlogged
from sojourn.analysis.tester import incomplete, probing_findings, stamp_sources, truncated
from sojourn.analysis.wording import DASH, HOLDS_ZERO, counted, fixed, percent
from sojourn.devices import called
from sojourn.methods.tcp_load.analyse import background, clocks, round_trips
from sojourn.methods.tcp_load.analyse.clocks import on_clock_of_a
from sojourn.methods.tcp_load.analyse.conserved import CONSERVED, frame_of, judged
from sojourn.methods.tcp_load.analyse.grid import GRID, grid_of
from sojourn.methods.tcp_load.analyse.hypotheses import formula_ratio, mss_of, pipes_set, tested
from sojourn.methods.tcp_load.analyse.naming import short_names
from sojourn.methods.tcp_load.analyse.queues import WAYS, unaccounted
from sojourn.methods.tcp_load.analyse.trials import (
    FACTORS,
    LOGGED,
    PERCENTILES,
    Done,
    besides_of,
    logged_of,
    parts_of,
    rtts,
    series,
    trials_of,
    ways_logged,
)
from sojourn.units import nanoseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sojourn.analysis.host_clock import OneClock
    from sojourn.analysis.run import Run
    from sojourn.statistics.interval import Interval

GRADES = ((5e6, "A+"), (30e6, "A"), (60e6, "B"), (200e6, "C"), (400e6, "D"))
"""Below so many ns of latency under load; from the last on F. The thresholds of DSLReports' speed test, of the mean
increase of the round trip, down and up averaged (dslreports.com/faq/17930)."""

WORST_GRADE = "F"
HEADLINE = "latency_under_load"
UNITS = {
    "rtt_idle": "ns", "rtt_working": "ns", "rtt_increase": "ns", "responsiveness": "1/min", "goodput": "bit/s",
    "utilisation": "1", "retransmitted": "1", "fairness": "1", "goodput_of_flow": "bit/s",
    "goodput_by_dscp": "bit/s", "share": "1",
    "converged": "1", "convergence": "ns",
    "timeouts": "1", "spurious": "1", "ecn_echoed": "1", "ssthresh_changes": "1", "limited": "1", "losses": "1",
    "mathis_ratio": "1", "cubic_ratio": "1",
    "queueing_delay": "ns", "standing_queue": "ns", "dropped": "1", "marked": "1", "probe_loss": "1",
} | background.UNITS | round_trips.UNITS  # fmt: skip
OF_CONNECTIONS = (
    "goodput", "goodput_of_flow", "goodput_by_dscp", "utilisation", "retransmitted", "fairness", "share", "converged",
    "convergence", "timeouts", "spurious", "ecn_echoed", "ssthresh_changes", "limited", "mathis_ratio", "cubic_ratio",
    *background.UNITS,
    *round_trips.UNITS,
)  # fmt: skip
SOURCES = {"user": OF_CONNECTIONS, "emulator": ("queueing_delay", "standing_queue", "dropped", "marked")}
"""Of figures without the probes' stamps, by who told them."""

WHOLE = ("convergence", "rtt_exponent")
"""Figures that a cell has only where each of its trials has one: of the others alone a mean would be too small."""

FILLED = 0.8
"""Flows that use less of a link than this have not filled it: the latency is not that of a full path."""

MOST_PROBES = 0.9
"""Of the probes that a plan wants of the working conditions, so many leave in them; else a part of them is not seen."""

BEYOND = 1.01
"""No link carries more than its rate: a hundredth is left for what the readings' edges cut."""

TIMELINE = Sample(
    "A round trip; thinned, the slowest kept.",
    {
        **shared("device cell round"),
        "elapsed_s": (pl.Float64, "Seconds since the trial's first flows began."),
        **shared("rtt_ns"),
    },
)
QUANTILES = Sample(
    "A point of the distribution of round trips in a state of the path.",
    {
        **shared("device cell"),
        "state": (pl.String, "idle, or working: under the flows after their start-up."),
        **shared("exceedance rtt_ns"),
    },
)
GRADED = Sample(
    "A latency under load.",
    {
        **shared("device"),
        **FACTORS,
        "cell": (pl.Int32, "The number of the combination of factors; null: over several."),
        "grade": (pl.String, "Its grade."),
        "said": (pl.String, "The grade, with those within the interval."),
        "increase_ns": (pl.Float64, "The mean round trip under load less that of the idle path."),
        "low_ns": (pl.Float64, "The lower end of its interval."),
        "high_ns": (pl.Float64, "The upper end of its interval."),
        **shared("n"),
    },
)
SAMPLES = {
    "load_timeline": TIMELINE,
    "load_quantiles": QUANTILES,
    "load_grades": GRADED,
    "load_logged": LOGGED,
    "load_grid": GRID,
    "load_conserved": CONSERVED,
    "load_clocks": clocks.CLOCKS,
}


def study(run: Run) -> Study:
    """Every figure of every cell over every device, and the grade of each device."""
    logged, ways, joined = logged_of(run), ways_logged(run), on_clock_of_a(figured(run))
    run = joined.run
    several = trials_of(run)
    background.add(run, several)
    round_trips.add(run, several)
    further = besides_of(run, several)
    places: dict[tuple[str, int], list[Done]] = defaultdict(list)
    pipes, mss_bytes = pipes_set(run), mss_of(run) if run.hypotheses else 0.0
    for trial in several:
        trial.values.update(formula_ratio(trial, pipes, mss_bytes) if run.hypotheses else {})
        places[trial.device, trial.cell].append(trial)
    for trial in further:
        places[trial.device, trial.cell].append(trial)
    heads = graded(run, several)
    rows = [*heads, *(row for place in sorted(places) for row in rows_of(run, places[place]))]
    clocks.state(joined, rows, several)
    stamp_sources(run, rows)
    findings = [*probing_findings(run), *completeness(run, several, further), *_clocks(joined, places, rows),
                *_findings(run, places, rows),
                *background.findings(run, several), *round_trips.findings(run, several), *unaccounted(run),
                *judged(ways), *unlogged(run)]  # fmt: skip
    samples = {"load_timeline": _timeline(run, [*several, *further]),
               "load_quantiles": _quantiles(run, [*several, *further]),
               "load_grades": _grades(heads), "load_logged": logged, "load_grid": grid_of(rows, pipes),
               "load_conserved": frame_of(ways)}  # fmt: skip
    if joined.is_joined:
        samples["load_clocks"] = clocks.frame_of(joined, several)
    headline = next((row for row in heads if row.statistic == "mean"), None)
    said = sentence(rows, headline)
    if shares := [row for row in rows if row.quantity == "share"]:
        headline = shares[1]
        said = f"{how_shared(rows, shares)}. {said}"
    elif own := round_trips.head(rows):
        headline, said = own, f"{round_trips.sentence(rows, own, f'{_flows(own)} over {_amid(own.device)}')}. {said}"
    return Study(rows, findings, said, tested(run, several, rows), samples=samples, headline=headline)


def budgets(run: Run, study: Study) -> list[Stated]:
    """The budget of each latency under load."""
    heads = [row for row in study.rows if (row.quantity, row.statistic) == (HEADLINE, "mean")]
    step = int(np.gcd.reduce(run.measured["rtt"].drop_nulls().cast(pl.Int64).to_numpy())) if heads else 1
    return [
        Stated(
            f"Latency under load over {row.device}{_what(row)}",
            row,
            (
                *scatter_of(study.rows, row, "trials"),
                Entry(
                    "points of timestamping",
                    "cancels",
                    (f"the same on the idle path and under working conditions ({row.source})"),
                ),
                # A difference of means of round trips: four stamps, taken to err together.
                timestamp_resolution(max(1, step), "four of them, each with sensitivity 1", 2.0),
                clock_rate(row.value.estimate),
                Entry("start-up of the flows", "outside", "by definition the figure begins after the plan's start-up"),
                BOOTS,
            ),
            uncovered(row),
        )
        for row in heads
    ]


def rows_of(run: Run, several: Sequence[Done]) -> Iterator[Row]:
    """Every figure of one cell over one device."""
    keys = dict.fromkeys(key for one in several for key in one.values)
    for quantity in UNITS:
        for statistic in (said for name, said in keys if name == quantity):
            have = [(quantity, statistic) in one.values for one in several]
            if quantity in WHOLE and not all(have):
                continue
            said, _, last = statistic.rpartition(" ")
            middles = [(quantity, f"{said} p50".strip()) in one.values for one in several]
            if last in PERCENTILES and any(middles) and have != middles:
                continue  # of the trials with probes enough alone it could lie below the median of the others
            yield figure(run, several, quantity, statistic)


def figure(run: Run, several: Sequence[Done], quantity: str, statistic: str) -> Row:
    """One figure: the mean over trials."""
    first = several[0]
    blocks = np.array([one.block for one in several], dtype=np.int64)
    found = figure_of(series(several, quantity, statistic), run.sessions_of(blocks))
    return Row(
        first.device, quantity, statistic, found.mean, UNITS[quantity], factors=factors_of(run, first),
        cell=first.cell, probes=sum(one.probes for one in several), clock="TAI", setting=setting_of(first),
        source=source_of(quantity, statistic), sessions=found.sessions,
    )  # fmt: skip


def source_of(quantity: str, statistic: str) -> str:
    """Who told a figure; empty where it is of the probes' stamps."""
    if quantity == "losses":
        return "emulator" if statistic.endswith("emulator") else "user"
    return next((who for who, names in SOURCES.items() if quantity in names), "")


def graded(run: Run, several: Sequence[Done]) -> list[Row]:
    """The latency under load by device and flows: of directions that were loaded one at a time, the mean of a round."""
    groups: dict[tuple[Any, ...], list[Done]] = defaultdict(list)
    for one in several:
        if not math.isnan(one.values.get(("rtt_increase", "mean"), math.nan)):
            alike = tuple(sorted((name, value) for name, value in one.factors.items() if name != "direction"))
            groups[one.device, one.direction == "both", alike].append(one)
    found = []
    for (device, _, _), own in sorted(groups.items(), key=lambda item: min(one.cell for one in item[1])):
        ways = sorted({one.direction for one in own})
        rounds: dict[int, list[Done]] = defaultdict(list)
        for one in own:
            rounds[one.round].append(one)
        whole = [each for each in rounds.values() if {one.direction for one in each} == set(ways)]
        values = np.array([series(each, "rtt_increase", "mean").mean() for each in whole])
        session = run.sessions_of(np.array([each[0].block for each in whole], dtype=np.int64))
        if not len(values):
            continue
        made, first = figure_of(values, session), own[0]
        about = replace(setting_of(first), direction=" and ".join(ways))
        head = Row(
            device, HEADLINE, "mean", made.mean, "ns", factors=factors_of(run, first), clock="TAI", setting=about,
            cell=first.cell if len({one.cell for one in own}) == 1 else None,
            probes=sum(one.probes for one in own), sessions=made.sessions,
        )  # fmt: skip
        found += [head, *(replace(head, statistic=said, value=value) for _, said, value, _ in beside("", made, "ns"))]
    return found


def factors_of(run: Run, one: Done) -> Any:
    """The factors of a trial's probes, with its pipe."""
    return replace(run.cells[one.cell], pipe=one.factors["pipe"] or None)


def setting_of(one: Done) -> LoadSetting:
    """The flows of a trial, and the DSCP of probes that ran beside others."""
    of = LoadSetting(
        int(one.factors["flows"]), one.direction, str(one.factors["congestion"]),
        round_trips=one.factors.get("round_trips") or None, background=one.factors.get("background") or None,
        scenario=one.factors.get("scenario") or None,
    )  # fmt: skip
    return of if one.main < 0 else MarkedSetting(**asdict(of), dscp=str(one.factors["dscp"]))


def grade_of(increase_ns: float) -> str:
    """The grade of a latency under load."""
    return next((grade for below, grade in GRADES if increase_ns < below), WORST_GRADE)


def grade_said(value: Interval) -> str:
    """The grade, and what others the interval holds: "B", "B (A to B)"."""
    best, own, worst = (grade_of(value.estimate if end is None else end) for end in
                        (value.low, value.estimate, value.high))  # fmt: skip
    return own if best == worst else f"{own} ({best} to {worst})"


def milliseconds(value: Interval, more: str = "", beds: str = "") -> str:
    """A time with its interval; `more` stands before that, `beds` in it."""
    half = value.half_width
    places = 1 if half is None else max(0, min(3, 1 - math.floor(math.log10(max(half, 1.0) / 1e6))))
    said = f"{fixed(value.estimate / 1e6, places)} ms{more}"
    if value.low is None or value.high is None:
        return f"{said}{beds}"
    low, high = fixed(value.low / 1e6, places), fixed(value.high / 1e6, places)
    return f"{said} (95 % CI {low}{' to ' if value.low < 0 else DASH}{high}{beds})"


def sentence(rows: Sequence[Row], headline: Row | None) -> str:
    """The latency under load of the first device with its grade, and what the flows got."""
    if headline is None:
        return "No trial has round trips both on the idle path and under working conditions"
    if said := by_queue(rows, headline):
        return said
    value, load, over = headline.value, f"Under load ({_flows(headline)})", f"over {_amid(headline.device)}"
    beds = over_beds(headline)
    is_zero = value.low is not None and not value.excludes(0)
    said = f"{load}, a round trip {over} takes {milliseconds(value, ' longer', beds)}"
    if is_zero:
        said = f"{load}, no increase of the round trip {over} was found: {milliseconds(value)}{beds}, {HOLDS_ZERO}"
    said += f"; grade {grade_said(value)}"
    of_flows = [
        row for row in rows if row.quantity == "goodput" and row.device == headline.device and _alike(row, headline)
    ]
    got = [f"{fixed(row.value.estimate / 1e6, 1)} Mbit/s {row.statistic}" for row in of_flows]
    return f"{said}; goodput {', '.join(got)}" if got else said


def by_queue(rows: Sequence[Row], headline: Row) -> str:
    """Goodput and queueing delay through each queue, under the first load; empty where the run has one pipe."""
    like = [
        row
        for row in rows
        if (row.quantity, row.statistic, row.device) == (HEADLINE, "mean", headline.device)
        and row.setting == headline.setting
    ]
    names = short_names([row.factors.pipe for row in like if row.factors.pipe])
    found = {(row.quantity, row.statistic, row.factors.pipe): row for row in rows
             if row.device == headline.device and row.setting == headline.setting}  # fmt: skip
    way = like[0].setting.direction if isinstance(like[0].setting, LoadSetting) else ""
    each = []
    for pipe, name in names.items():
        goodput, delay = found.get(("goodput", way, pipe)), found.get(("queueing_delay", f"{way} mean", pipe))
        if goodput and delay:
            each.append(f"{fixed(goodput.value.estimate / 1e6, 1)} Mbit/s at {milliseconds(delay.value)} with {name}")
    if len(each) < 2:
        return ""
    longer = ", ".join(fixed(row.value.estimate / 1e6, 1) for row in like)
    return (
        f"Over {_amid(headline.device)}, {_flows(headline)} get this goodput at this mean queueing delay: "
        f"{'; '.join(each)}{over_beds(headline)}; round trips of other traffic take {longer} ms longer, in this order"
    )


def how_shared(rows: Sequence[Row], shares: Sequence[Row]) -> str:
    """What the flows that joined got beside the first, of the first cell that has several algorithms."""
    row, own = shares[1], shares[1].setting
    assert isinstance(own, LoadSetting)
    first, second = own.congestion.split("+")[:2]
    value = row.value
    ends = "" if value.low is None or value.high is None else (
        f" (95 % CI {percent(value.low)} to {percent(value.high)})"
    )  # fmt: skip
    said = f"Joining {counted(own.flows, f'{first} flow')}, "
    said += f"{second} gets {percent(value.estimate)} of the goodput{ends}{over_beds(row)}; {became_fair(rows, row)}"
    alone = next((one for one in shares if _joins_itself(one, row)), None)
    if alone is None:
        return said
    return f"{said}; {first} that joins {first} gets {percent(alone.value.estimate)}"


def became_fair(rows: Sequence[Row], row: Row) -> str:
    """When the flows of a share shared the path fairly, or in which part of the trials they came to that."""
    way = row.statistic.split()[0]
    own = {one.quantity: one.value.estimate for one in rows
           if (one.device, one.cell, one.statistic) == (row.device, row.cell, way)}  # fmt: skip
    if "convergence" in own:
        return f"both share it fairly {fixed(own['convergence'] / 1e9, 1)} s after that"
    if not (reached := own.get("converged", 0.0)):
        return "both shared it fairly in no trial"
    return f"both came to share it fairly in {percent(reached)} of the trials"


def _joins_itself(one: Row, row: Row) -> bool:
    """Whether a share is that of the row's first algorithm where it joins itself: what the order alone makes."""
    own, other = one.setting, row.setting
    assert isinstance(own, LoadSetting)
    assert isinstance(other, LoadSetting)
    first = other.congestion.split("+")[0]
    same = (one.device, one.factors, own.flows, own.direction, own.round_trips, own.background, one.statistic) == (
        row.device, row.factors, other.flows, other.direction, other.round_trips, other.background, row.statistic,
    )  # fmt: skip
    return same and own.congestion == f"{first}+{first}" and other.congestion != own.congestion


def _alike(row: Row, head: Row) -> bool:
    own, other = row.setting, head.setting
    assert isinstance(own, LoadSetting)
    assert isinstance(other, LoadSetting)
    same = replace(own, direction=other.direction) == other and row.factors == head.factors
    return same and str(own.direction) in str(other.direction).split(" and ")


def _flows(row: Row) -> str:
    of = row.setting
    assert isinstance(of, LoadSetting)
    where = {"both": "each way at once", "down and up": "down and up in turn"}.get(of.direction, of.direction)
    beside = f" with round trips of {of.round_trips.replace('+', ' and ')}" if of.round_trips else ""
    beside += f" beside {of.background}" if of.background else ""
    if "+" in of.congestion:
        return f"{counted(of.flows, 'flow')} each of {' and '.join(of.congestion.split('+'))}, {where}{beside}"
    return f"{counted(of.flows, f'{of.congestion} flow')} {where}{beside}"


def _amid(device: str) -> str:
    name = called(device)
    return name[0].lower() + name[1:]


def _what(row: Row) -> str:
    return f", {_flows(row)}{f', {row.factors.pipe}' if row.factors.pipe else ''}"


def completeness(run: Run, several: Sequence[Done], further: Sequence[Done]) -> Iterator[Finding]:
    """Trials, and further series of probes of these, that the plan has and the records have not."""
    asked, cells = run.plan.get("load", {}), {(one.device, one.cell) for one in several}
    rounds = int(asked.get("rounds", 0))
    missing = max(0, rounds * len(cells) - len(several))
    missing += max(0, len(asked.get("beside", ())) * len(several) - len(further))
    yield from truncated(run, missing)
    yield from incomplete(run, missing, nothing=not several)


def _clocks(
    joined: OneClock, places: Mapping[tuple[str, int], Sequence[Done]], rows: Sequence[Row]
) -> Iterator[Finding]:
    """What is wrong with two clocks; of one, nothing."""
    blocks = {Place(*key): [one.block for one in own] for key, own in places.items()}
    delays = any(row.clock_bound_ns for row in rows)
    yield from clock_findings(joined, blocks, parts_of(joined.run)[1], delays=delays)


def _findings(run: Run, places: Mapping[tuple[str, int], Sequence[Done]], rows: Sequence[Row]) -> Iterator[Finding]:
    yield from _beyond(run, places)
    yield from _few_probes(run, places)
    beside = background.used_by_rows(rows)
    by_loss = {(row.device, row.cell) for row in rows if row.quantity in {"mathis_ratio", "cubic_ratio"}}
    low = {
        Place(row.device, row.cell): -row.value.estimate - other
        for row in rows
        if row.quantity == "utilisation"
        # Random loss keeps such a flow well below the rate; its goodput is compared with a formula.
        and (row.device, row.cell) not in by_loss
        and (row.value.high or row.value.estimate) + (other := beside.get((row.device, row.cell, row.statistic), 0.0))
        < FILLED
    }
    if low:
        worst, share = worst_first(low)
        said = f"the flows used {percent(-share)} of the configured rate: the latency is not that of a fully used path"
        yield Finding("path_not_filled", said, -share, worst)
    lost = {
        Place(row.device, row.cell): row.value.estimate
        for row in rows
        if (row.quantity, row.statistic) == ("probe_loss", "working") and row.value.estimate > 0
    }
    if lost:
        worst, share = worst_first(lost)
        said = (
            f"while the flows ran, {percent(share)} of the probes had no answer: the round trips are those of the "
            "other probes"
        )
        yield Finding("loss", said, share, worst)
    working = {
        (row.device, row.cell): row.value.estimate
        for row in rows
        if row.cell is not None and (row.quantity, row.statistic) == ("rtt_working", "mean")
    }
    yield from late_emulators(run, {one.block: place for place, own in places.items() for one in own}, working)


def _beyond(run: Run, places: Mapping[tuple[str, int], Sequence[Done]]) -> Iterator[Finding]:
    """No link carries more than its rate; what was held back comes afterwards: by an emulator that stood still, or by
    hosts that did, whose acknowledgements are counted when they come. Probes are held back alike.
    """
    stood, (_, lasted_ns) = lateness(run, "max_ns"), parts_of(run)
    found: dict[Place, float] = defaultdict(float)
    held: dict[Place, float] = defaultdict(float)
    for (device, cell), own in places.items():
        place = Place(device, cell)
        for one in own:
            used = (one.values.get(("utilisation", way), 0.0) + background.used_beside(one.values, way) for way in WAYS)
            share = max(used)
            late_ns = max(stood.get(one.block, 0.0), one.rise_ns)
            is_held = lasted_ns > 0 and share <= BEYOND + late_ns / lasted_ns
            if share > BEYOND:
                (held if is_held else found)[place] = max((held if is_held else found)[place], share)
    if found:
        worst, share = worst_first(found)
        yield Finding("impossible", f"a trial used {percent(share)} of the configured rate", share, worst)
    if held:
        worst, share = worst_first(held)
        said = (
            f"an emulator or a host paused, and what it held came afterwards: a trial used {percent(share)} of the "
            "configured rate"
        )
        yield Finding("tester_limited", said, share, worst)


def _few_probes(run: Run, places: Mapping[tuple[str, int], Sequence[Done]]) -> Iterator[Finding]:
    """Probes that ended, or were held back, while the flows ran; those at random times differ by chance."""
    lasted_ns = parts_of(run)[1]
    planned_ns = sum(parts_of(run)) + float(nanoseconds(run.plan.get("load", {}).get("idle", "0s")) or 0)
    low: dict[Place, float] = {}
    for (device, cell), own in places.items():
        for one in own:
            wanted = lasted_ns / one.factors.get("interval_ns", math.inf)
            whole = (one.joined_ns - one.begun_ns + planned_ns) / one.factors.get("interval_ns", math.inf)
            chance = 3 * math.sqrt(whole) if one.factors.get("schedule") == "poisson" else 0.0
            if one.sent < MOST_PROBES * wanted - chance:
                place = Place(device, cell)
                low[place] = max(low.get(place, 0.0), 1 - one.sent / wanted)
    if low:
        worst, share = worst_first(low)
        said = f"in a trial {percent(share)} of the planned probes did not leave while the flows ran"
        yield Finding("tester_limited", said, share, worst)


def _timeline(run: Run, several: Sequence[Done]) -> pl.DataFrame:
    """Round trips over the time since the flows began."""
    begun = pl.DataFrame({"block": [one.block for one in several], "begun_ns": [one.begun_ns for one in several]},
                         schema={"block": pl.Int32, "begun_ns": pl.Float64})  # fmt: skip
    since = (pl.col("departure_ns") - pl.col("begun_ns")) / 1e9
    known = run.measured.drop_nulls("rtt").join(begun, on="block")
    answered = known.with_columns(elapsed_s=since, rtt_ns=pl.col("rtt").cast(pl.Float64))
    return TIMELINE.of(thinned(answered, "rtt_ns"))


def _quantiles(run: Run, several: Sequence[Done]) -> pl.DataFrame:
    """The distribution of round trips, idle and working."""
    start_up, lasts = parts_of(run)
    times = pl.DataFrame(
        [(one.block, one.begun_ns, one.joined_ns + start_up) for one in several],
        schema={"block": pl.Int32, "begun_ns": pl.Float64, "working_ns": pl.Float64}, orient="row",
    )  # fmt: skip
    known = run.measured.join(times, on="block")
    idle = pl.col("arrival_ns") < pl.col("begun_ns")
    working = pl.col("departure_ns").is_between("working_ns", pl.col("working_ns") + lasts, closed="left")
    curves = [pl.DataFrame(schema=QUANTILES.own)]
    for state, within in (("idle", idle), ("working", working)):
        for (device, cell), own in sorted(known.filter(within).partition_by("device", "cell", as_dict=True).items()):
            if len(values := rtts(own)):
                curve = curve_of(values).rename({"value": "rtt_ns"})
                named = {"device": pl.lit(device), "cell": pl.lit(cell), "state": pl.lit(state)}
                curves.append(QUANTILES.of(curve.with_columns(**named)))
    return pl.concat(curves)


def _grades(heads: Sequence[Row]) -> pl.DataFrame:
    """The grade of each latency under load."""
    return pl.DataFrame(
        [
            {"device": row.device, "flows": of.flows, "direction": of.direction, "congestion": of.congestion,
             "pipe": row.factors.pipe, "round_trips": of.round_trips, "background": of.background,
             "scenario": of.scenario, "cell": row.cell,
             "grade": grade_of(row.value.estimate),
             "said": grade_said(row.value), "increase_ns": row.value.estimate, "low_ns": row.value.low,
             "high_ns": row.value.high, "n": row.value.n}
            for row in heads if row.statistic == "mean" and isinstance(of := row.setting, LoadSetting)
        ],
        schema=GRADED.own,
    )  # fmt: skip
