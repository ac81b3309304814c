"""Methods "rfc2544", "rfc8219" and "rfc2889": the results of a suite's searches, recomputed from their trials.

Throughput of each goal (`ndr` for a loss ratio of 0, `pdr` for 0.005, `pdr_<goal>` for others; with the suffix
`_binary` where a binary search found it; for broadcast `broadcast_ndr`, ...), statistics:

- rate: the lower bound of the search, the highest offered rate whose trials kept the goal: of a goal of 0 all of them
  (exceed ratio 0). Over repetitions their average with Student's interval: over beds where there are several, else over
  the repetitions of one bed; none below three. A repetition that lost at every load it tried counts as 0.
- upper: the lowest load that did not keep it (average): with the rate the bracket, which is no interval of any level.
- within_bed, next_run: the rate's interval as if only the scatter within beds mattered, and where another run's lies.
- conditional: MLRsearch's conditional throughput at the rate; bits: the rate in bits of frames with FCS [bit/s];
  spread: (largest minus smallest) / median [1].
- below, in place of all these: every load that was tried lost too much; the least of them.
- at_least, in place of all these, where the lower bound is within 10 % of the tester zero-loss rate, or every load kept
  the goal: the tester was the limit, not the device.

Latency at the throughput (test latency; broadcast_latency_... for broadcast), of all frames, lost ones infinite:

- latency_store_and_forward (RFC 1242: last bit in to first bit out) and latency_bit_forwarding (first bit in to first
  bit out): mean (of those that arrived) p50 p99 [ns]. Timestamps are taken at the first bit in and the last bit out.
  Where the links have a rate, the frame's serialisation time is subtracted, twice or once; where they have none, both
  latencies are equal, and `source` says so.
  RFC 2544 reports the average over trials, with Student's interval over beds or trials.
- latency_typical (RFC 8219: median), latency_worst (99.9th percentile), pdv (99.9th percentile minus minimum), ipdv (of
  consecutive frames: min p50 max); statistic median over trials, as RFC 8219 reports it [ns]: its interval is the sign
  test's, over trials or the medians of beds, from six on.
- pdv_test, ipdv_test: the same of the trials of RFC 8219's own tests of PDV and IPDV (tests pdv and ipdv).
- tester_delay (device direct; the delay over the direct link at 1000 frames/s, from the tester's qualification): min
  p50 [ns].

Others: loss_ratio at each offered rate (rate_pps, rate_share: of the highest), ratio [1]; back_to_back_frames (RFC
9004: of N whole searches; mean min max sd; at_least where a search found no burst that filled the buffer),
buffer_time_implied and buffer_time_corrected (RFC 9004; mean) [ns]; address_capacity (rate, upper), learning_rate
(rate, upper; at_least), forward_pressure (ratio: received over allowed rate) [1]; instance_difference (pooled: of a
bed's sizes the rates over the second link less those over the first, as shares), between_instances (sd) [1].

Each engine and frame size is a cell.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from sojourn.analysis.clocks import asymmetries
from sojourn.analysis.device_rules import rules_unseen
from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.hypotheses import main_device
from sojourn.analysis.rates import zero_loss_rates
from sojourn.analysis.rows import Row
from sojourn.analysis.run import DIRECT
from sojourn.analysis.study import Study
from sojourn.analysis.suites.cells import Repeated, bare, cell_of, cells_of, over_repetitions
from sojourn.analysis.suites.contradictions import contradicted, rises
from sojourn.analysis.suites.deviations import deviations
from sojourn.analysis.suites.instances import link_rows
from sojourn.analysis.suites.latency import (
    TIMED,
    floor_rows,
    latency_rows,
    timed_clocks,
    timed_trials,
    too_few,
    without_delays,
)
from sojourn.analysis.suites.limits import address_rows, burst_rows, loss_rows
from sojourn.analysis.suites.samples import deviation_samples, suite_samples
from sojourn.analysis.suites.searches import (
    Decision,
    Search,
    Terms,
    bounds_of,
    decision_of,
    searches_of,
    terms_of,
    unverified,
)
from sojourn.analysis.surroundings import contended, disturbed, offloads
from sojourn.analysis.tester import debug_build, incomplete, truncated
from sojourn.analysis.verdict import amid
from sojourn.analysis.wording import counted, fixed, percent
from sojourn.statistics.loss_decision import unseen_loss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sojourn.analysis.factors import Factors
    from sojourn.analysis.run import Run
    from sojourn.analysis.suites.latency import Timed
    from sojourn.statistics.bounds import Bounds

LIMIT = 0.9
"""A rate above this share of the tester zero-loss rate is limited by the tester."""

SEARCHED = {"throughput": "", "broadcast-forwarding": "broadcast_"}
DISAGREE = 0.01
"""The least relative difference at which the bounds of the conductor and of the analysis disagree."""

PARTIAL = 0.005

REASONS = 2
"""The most reasons named in a sentence."""


@dataclass(frozen=True, slots=True)
class Sought:
    """The searches for one goal on one device at one size by one algorithm: bounds of each repetition."""

    quantity: str
    device: str
    cell: int
    goal: float
    algorithm: str
    bounds: list[Bounds]
    tester_pps: float | None
    """The tester zero-loss rate; of several beds the least."""
    sessions: list[int] = field(default_factory=list)
    """The bed of each repetition; empty: one bed for all."""
    decisions: list[Decision] = field(default_factory=list)
    """The trials that each lower bound rests on."""
    links: list[int] = field(default_factory=list)
    """The link (1 or 2) of the device's kind that each repetition used."""

    @property
    def lowers(self) -> NDArray[np.float64]:
        """The lower bounds of the repetitions that have an upper one; 0 where every load lost too much."""
        return np.array([one.lower or 0.0 for one in self.bounds if one.upper], dtype=np.float64)

    @property
    def uppers(self) -> NDArray[np.float64]:
        """The upper bounds of the same repetitions."""
        return np.array([one.upper for one in self.bounds if one.upper], dtype=np.float64)

    @property
    def beds(self) -> list[int]:
        """The beds of the same repetitions."""
        of = self.sessions or [0] * len(self.bounds)
        return [bed for one, bed in zip(self.bounds, of, strict=True) if one.upper]

    @property
    def conditionals(self) -> NDArray[np.float64]:
        """The conditional throughputs of the same repetitions."""
        return np.array([one.conditional for one in self.bounds if one.conditional and one.upper], dtype=np.float64)

    @property
    def highest_lower(self) -> float | None:
        """The highest load that kept the goal in any repetition."""
        return max((one.lower for one in self.bounds if one.lower), default=None)

    @property
    def has_figure(self) -> bool:
        """Whether there is a rate or a limit."""
        return bool(self.is_tester_limited or len(self.lowers))

    @property
    def is_below(self) -> bool:
        """Whether every load of every repetition lost too much."""
        return not self.is_tester_limited and len(self.lowers) > 0 and not self.lowers.any()

    @property
    def trials(self) -> int:
        """The number of trials that decided a lower bound, of the repetition with the fewest."""
        return min((one.trials for one in self.decisions), default=0)

    @property
    def is_tester_limited(self) -> bool:
        """Whether the median of the lower bounds is within 10 % of the tester zero-loss rate."""
        known = [one.lower for one in self.bounds if one.lower]
        if not known or self.device == DIRECT:
            return False
        return not len(self.lowers) or float(np.median(known)) > LIMIT * (self.tester_pps or float("inf"))

    def rate(self) -> Repeated:
        """Return the lower bounds over repetitions."""
        return over_repetitions(self.lowers, self.beds)


def study_of(run: Run, rfc: str) -> Study:
    """Return the results of a suite's searches, and its deviations from this RFC."""
    terms, searches = terms_of(run), searches_of(run)
    cells = cells_of(searches)
    run.cells.update({number: factors for factors, number in cells.items()})
    sought = list(_sought(run, searches, terms, cells))
    timed = [one for search in searches for one in timed_trials(run, search)]
    rows = [row for one in sought for row in _rate_rows(one, run.cells)]
    rows += link_rows(run, sought)
    rows += [*latency_rows(run, timed, cells), *floor_rows(run, cells)]
    rows += [*loss_rows(searches, cells), *burst_rows(searches, sought, cells), *address_rows(searches, cells)]
    for row in rows:
        row.clock = row.clock or "TAI"
    findings = [
        *_tester(run, searches),
        *_tester_limited(sought),
        *rises(sought, run.cells),
        *contradicted(sought),
        *_disagreements(searches, terms, cells),
        *_set_aside(searches, terms, cells),
        *_not_sustained(searches, terms, cells),
        *_undecided(sought),
        *too_few(timed, cells),
        *timed_clocks(run, timed, cells),
        *without_delays(searches, timed, cells),
        *_unfound(sought, timed, searches, cells),
        *_cut_short(searches, terms, cells),
        *_not_begun(run),
    ]
    if not any(row.device != DIRECT for row in rows):
        why = f": {_reasons(searches)}" if searches else ""
        findings.append(Finding("incomplete", f"no result of any device was found{why}", grade="invalid"))
    samples = suite_samples(searches, terms, sought, timed, run.cells)
    samples |= deviation_samples(deviations(run, rfc, terms, searches))
    said = _sentence(run, sought, searches, cells)
    return Study(rows, findings, said, [], samples, headline=_headline(run, sought, rows))


def _sought(run: Run, searches: list[Search], terms: Terms, cells: dict[Factors, int]) -> Iterator[Sought]:
    qualified = list(zero_loss_rates(run))
    groups: dict[tuple[str, str, int, float, str], list[Search]] = {}
    for search in searches:
        if search.test in SEARCHED:
            for goal in terms.goals:
                key = (search.test, search.device, cell_of(search, cells), goal, search.algorithm)
                groups.setdefault(key, []).append(search)
    for (test, device, cell, goal, algorithm), several in groups.items():
        known = [rate for _, size, rate in qualified if size == several[0].frame_bytes]
        known = known or [
            float(one["tester_pps"]) for search in several for one in search.results if one.get("tester_pps")
        ]
        bounds = [_known(one, bounds_of(one, terms, goal), goal) for one in several]
        decisions = [
            decision_of(one, terms, goal, bound.lower)
            for one, bound in zip(several, bounds, strict=True)
            if bound.lower is not None
        ]
        sessions = [one.session for one in several]
        quantity = _quantity(test, goal, algorithm)
        links = [one.link for one in several]
        least = min(known, default=None)
        yield Sought(quantity, device, cell, goal, algorithm, bounds, least, sessions, decisions, links)


def _known(search: Search, found: Bounds, goal: float) -> Bounds:
    """Remove the upper bound where no load kept the goal but lower ones were not tried often enough, or not at all."""
    if found.lower is not None or found.upper is None:
        return found
    is_open = search.cut_short(goal) or any(load < found.upper for load in found.undecided)
    return replace(found, upper=None) if is_open else found


def _quantity(test: str, goal: float, algorithm: str) -> str:
    name = "ndr" if goal == 0 else "pdr" if goal == PARTIAL else f"pdr_{goal:g}"
    return f"{SEARCHED[test]}{name}{'_binary' if algorithm == 'binary' else ''}"


def _rate_rows(sought: Sought, cells: dict[int, Factors]) -> Iterator[Row]:
    factors = cells[sought.cell]
    source = "binary search" if sought.algorithm == "binary" else "MLRsearch"
    like = Row(sought.device, sought.quantity, "", bare(0.0), "1/s", None, factors, sought.cell, source=source)
    if sought.is_tester_limited:
        limited = f"{source}; the tester zero-loss rate is {sought.tester_pps or float('nan'):.0f}/s"
        limit = bare(float(sought.highest_lower or 0.0), len(sought.bounds))
        yield replace(like, statistic="at_least", value=limit, source=limited, findings=["tester_limited"])
        return
    if sought.is_below:
        least = bare(float(sought.uppers.max()), len(sought.uppers))
        yield replace(like, statistic="below", value=least, source=f"{source}; every load that was tried lost too much")
        return
    if not len(sought.lowers):
        return
    rate = sought.rate()
    like.sessions = rate.sessions
    like.source = f"{source}; {counted(sought.trials, 'trial')} at the lower bound"
    figures = {
        "rate": rate.mean,
        "upper": bare(float(sought.uppers.mean()), len(sought.uppers)),
        "conditional": over_repetitions(sought.conditionals, [0] * len(sought.conditionals)).mean,
        "within_bed": rate.within,
        "next_run": rate.next_run,
    }
    for statistic, value in figures.items():
        if value is not None and value.n:
            yield replace(like, statistic=statistic, value=value, findings=[])
    bits = rate.mean.scaled(8.0 * (factors.frame_bytes or 0))
    yield replace(like, statistic="bits", value=bits, unit="bit/s", findings=[])
    if len(sought.lowers) > 1:
        spread = float(np.ptp(sought.lowers) / np.median(sought.lowers)) if np.median(sought.lowers) else float("inf")
        yield replace(like, statistic="spread", value=bare(spread, len(sought.lowers)), unit="1", findings=[])


def _tester(run: Run, searches: list[Search]) -> list[Finding]:
    """Return findings about the tester and its surroundings, and about missing searches."""
    started = [int(one.get("blocks") or 0) for one in run.log if one.get("event") == "started"]
    missing = max(0, max(started, default=0) - sum(bool(one.results) for one in searches))
    if any(one.get("event") == "time-is-up" for one in run.log):
        missing = 0
    found = [
        *asymmetries(run),
        *debug_build(run),
        *offloads(run),
        *contended(run),
        *disturbed(run),
        *rules_unseen(run),
        *truncated(run, missing),
    ]
    return [*found, *incomplete(run, missing, nothing=not searches)]


def _tester_limited(sought: list[Sought]) -> list[Finding]:
    found = {
        Place(one.device, one.cell): float((one.highest_lower or 0.0) / one.tester_pps) if one.tester_pps else 1.0
        for one in sought
        if one.is_tester_limited
    }
    if not found:
        return []
    places, worst = worst_first(found)
    reached = f"{counted(len(found), 'result')} reached up to {percent(worst)} of the tester zero-loss rate"
    sentence = f"{reached}: the tester was the limit, and the device can do at least that"
    return [Finding("tester_limited", sentence, worst, places)]


def _disagreements(searches: list[Search], terms: Terms, cells: dict[Factors, int]) -> list[Finding]:
    """Return a finding where the conductor's result during the run differs from the bounds recomputed from its
    trials."""
    found: dict[Place, float] = {}
    for search in searches:
        for goal in terms.goals if search.test in SEARCHED else ():
            claimed = search.claimed(goal)
            if claimed is not None and not search.cut_short(goal):
                bounds = bounds_of(search, terms, goal)
                off = _off(claimed.get("lower_pps"), bounds.lower)
                if off > DISAGREE:
                    place = Place(search.device, cell_of(search, cells))
                    found[place] = max(off, found.get(place, 0.0))
    if not found:
        return []
    places, worst = worst_first(found)
    sentence = (
        "the result that a search reported differs from the bounds recomputed from its trials; the report shows the "
        "recomputed ones"
    )
    return [Finding("search_disagrees", sentence, worst, places)]


def _off(claimed: float | None, found: float | None) -> float:
    if claimed is None or found is None:
        return 0.0 if claimed is None and found is None else 1.0
    return abs(float(claimed) / found - 1)


def _set_aside(searches: list[Search], terms: Terms, cells: dict[Factors, int]) -> list[Finding]:
    found: dict[Place, float] = {}
    for search in searches:
        count = len(unverified(search, terms)) if search.test in SEARCHED else 0
        if count:
            place = Place(search.device, cell_of(search, cells))
            found[place] = found.get(place, 0.0) + count
    if not found:
        return []
    places, _ = worst_first(found)
    total = sum(found.values())
    return [
        Finding(
            "loss_unverified", f"{total:.0f} losses did not recur in a second trial and are not counted", total, places
        )
    ]


def _not_sustained(searches: list[Search], terms: Terms, cells: dict[Factors, int]) -> list[Finding]:
    """Return a finding for latency trials with loss: they run at the rate of the strictest goal, which allows none."""
    if min(terms.goals, default=1.0) > 0:
        return []
    found: dict[Place, float] = {}
    for search in searches:
        lost = max((step.loss_ratio for step in search.used), default=0.0) if search.test in TIMED else 0.0
        if lost > 0:
            place = Place(search.device, cell_of(search, cells))
            found[place] = max(lost, found.get(place, 0.0))
    if not found:
        return []
    places, worst = worst_first(found)
    sentence = (
        f"latency trials at the rate that the search found lost up to {percent(worst)} of their frames: the "
        "rate was not sustained"
    )
    return [Finding("rate_not_sustained", sentence, worst, places)]


def _undecided(sought: list[Sought]) -> list[Finding]:
    """Return zero-loss rates whose trials do not exclude, at 95 %, a loss ratio above that of the partial-drop rate."""
    found: dict[Place, float] = {}
    for one in sought:
        if one.goal == 0 and one.has_figure and not one.is_below:
            frames = min((each.frames for each in one.decisions if each.frames), default=0)
            if frames and unseen_loss(frames) > PARTIAL:
                found[Place(one.device, one.cell)] = unseen_loss(frames)
    if not found:
        return []
    places, worst = worst_first(found)
    sentence = (
        f"a zero-loss rate is from so few frames that a loss ratio of up to {percent(worst)} would have passed with a "
        "probability of 5 %"
    )
    return [Finding("too_few_frames", sentence, worst, places)]


def _unfound(
    sought: list[Sought], timed: list[Timed], searches: list[Search], cells: dict[Factors, int]
) -> list[Finding]:
    """Return the searches that ended without a result, with their reasons."""
    missing = {(one.device, one.cell, one.algorithm) for one in sought if not one.has_figure}
    known = {one.search.number for one in timed}
    without = [
        one
        for one in searches
        if (one.test in SEARCHED and (one.device, cell_of(one, cells), one.algorithm) in missing)
        or (one.test in TIMED and one.number not in known)
    ]
    if not without:
        return []
    places = tuple(dict.fromkeys(Place(one.device, cell_of(one, cells)) for one in without))
    tests = " and ".join(dict.fromkeys(one.test for one in without))
    sentence = f"{counted(len(without), 'search', 'searches')} ({tests}) have no result: {_reasons(without)}"
    return [Finding("incomplete", sentence, float(len(without)), places)]


def _cut_short(searches: list[Search], terms: Terms, cells: dict[Factors, int]) -> list[Finding]:
    """Return the searches with bounds from too few trials, because the time was up."""
    short = [one for one in searches if one.test in SEARCHED and any(one.cut_short(goal) for goal in terms.goals)]
    if not short:
        return []
    places = tuple(dict.fromkeys(Place(one.device, cell_of(one, cells)) for one in short))
    searches_said = counted(len(short), "search", "searches")
    sentence = (
        f"{searches_said} had no time for enough trials: their bounds are from fewer trials than the plan requires, or "
        "there are none"
    )
    return [Finding("incomplete", sentence, float(len(short)), places)]


def _reasons(without: list[Search]) -> str:
    """Return the searches' own reasons for having no result, two at most; reasons that differ only in numbers count
    once."""
    told: dict[str, str] = {}
    for one in without:
        said = one.sentence or "of others no reason was recorded"
        told.setdefault(re.sub(r"[0-9.]+", "", said), said)
    return "; ".join(list(told.values())[:REASONS])


def _not_begun(run: Run) -> list[Finding]:
    """Return a note of the searches that did not start because the plan's time was up."""
    for event in run.log:
        if event.get("event") == "time-is-up" and "searches" in event:
            left = int(event["asked"]) - int(event["searches"])
            sentence = f"the plan's time was up before {left} of {event['asked']} searches began: they have no results"
            return [Finding("incomplete", sentence, float(left), grade="note")]
    return []


def _headline(run: Run, sought: list[Sought], rows: list[Row]) -> Row | None:
    """Return the row of the first rate in the sentence; None if it has none."""
    first = next((one for one in _by_size(run, sought) if one.has_figure), None)
    if first is None:
        return None
    key = (first.device, first.quantity, "rate", first.cell)
    return next((row for row in rows if (row.device, row.quantity, row.statistic, row.cell) == key), None)


def _by_size(run: Run, sought: list[Sought]) -> list[Sought]:
    """Return the searches of the leading device, the smallest frames first."""
    device = main_device(sorted({one.device for one in sought}))
    return sorted((one for one in sought if one.device == device), key=lambda one: run.cells[one.cell].frame_bytes or 0)


def _sentence(run: Run, sought: list[Sought], searches: list[Search], cells: dict[Factors, int]) -> str:
    """Return the rates at the smallest frame size that has a result, for each goal; and the losses of later trials."""
    device = main_device(sorted({one.device for one in sought}))
    mine = _by_size(run, sought)
    if device is None or not mine:
        return f"{run.study.get('name', 'The suite')}: no throughput was sought"
    found = [one for one in mine if one.has_figure]
    if not found:
        return f"The throughput of {amid(device)} was not measured"
    size = run.cells[found[0].cell].frame_bytes
    here = [one for one in mine if run.cells[one.cell].frame_bytes == size]
    rates: dict[str, list[str]] = {}
    for one in here:
        rates.setdefault(_rate_said(one), []).append(_goal_said(one))
    parts = [f"{rate} {' and '.join(goals)}" for rate, goals in rates.items()]
    later = _later_loss(next(one for one in here if one.has_figure), searches, cells)
    return f"With frames of {size} B, {amid(device)} forwards {' and '.join(parts)}{later}"


def _goal_said(sought: Sought) -> str:
    how = "without loss" if sought.goal == 0 else f"with at most {percent(sought.goal)} lost"
    how = f"of broadcast {how}" if sought.quantity.startswith("broadcast") else how
    return f"{how} (binary search)" if sought.algorithm == "binary" else how


def _rate_said(sought: Sought) -> str:
    """Return the lower bound with its interval; without one the bracket."""
    if not sought.has_figure:
        return "an unknown rate"
    if sought.is_tester_limited:
        return f"at least {fixed(sought.highest_lower or 0.0, 0)} frames/s (limited by the tester)"
    if sought.is_below:
        return f"less than {fixed(float(sought.uppers.max()), 0)} frames/s, the least that was tried,"
    found = sought.rate()
    rate, repeated = found.mean.within(0.0, math.inf), counted(found.mean.n, "search", "searches")
    said = f"{fixed(rate.estimate, 0)} frames/s"
    if rate.low is None or rate.high is None:
        next_tried = f"loss from {fixed(float(sought.uppers.mean()), 0)} on"
        return f"{said} ({next_tried}; {repeated}, no interval)"
    beds = f" over {found.sessions} rebuilt beds" if found.sessions else ""
    return f"{said} (95 % CI {fixed(rate.low, 0)} to {fixed(rate.high, 0)}, {repeated}{beds})"


def _later_loss(sought: Sought, searches: list[Search], cells: dict[Factors, int]) -> str:
    """Return the loss of a trial of another test below the load at which the search for no loss failed."""
    if sought.goal > 0 or not len(sought.uppers):
        return ""
    below = [
        step
        for one in searches
        if (one.test in TIMED or one.test == "frame-loss")
        and (one.device, cell_of(one, cells)) == (sought.device, sought.cell)
        for step in one.used
        if step.load < float(sought.uppers.max())
    ]
    worst = max(below, key=lambda step: step.loss_ratio, default=None)
    if worst is None or worst.loss_ratio == 0:
        return ""
    return f"; but a later trial at {fixed(worst.load, 0)} frames/s lost {percent(worst.loss_ratio)}"
