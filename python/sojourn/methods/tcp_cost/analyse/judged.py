"""The findings about the cost of a log, the hypotheses of siftr-2007, and the run in a sentence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from sojourn.analysis.finding import Finding
from sojourn.analysis.hypotheses import Outcome
from sojourn.analysis.measurand import DISAGREE_P
from sojourn.analysis.surroundings import contended
from sojourn.analysis.tcp_trials import interrupted
from sojourn.analysis.tester import debug_build
from sojourn.analysis.wording import counted, fixed, percent
from sojourn.methods.tcp_cost.analyse.ratios import Bed, pooled
from sojourn.methods.tcp_cost.analyse.seen import TRAFFIC
from sojourn.statistics.homogeneity import homogeneity_p
from sojourn.statistics.interval import Interval
from sojourn.statistics.proportion import none_among
from sojourn.statistics.sessions import across_sessions
from sojourn.statistics.trend import trend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sojourn.analysis.run import Run
    from sojourn.methods.tcp_cost.analyse.programs import Spent
    from sojourn.methods.tcp_cost.analyse.ratios import Cell
    from sojourn.methods.tcp_cost.analyse.seen import Seen

MARGIN = 0.02
"""Throughputs whose ratio is within this margin of 1 are considered equal."""

DRIFT = 0.05
"""A larger change of the throughput without the log over the run is a finding."""

CHANCE = 0.01
"""The probability of a false alarm, for all tests of the A/A control together, and for the test of drift."""

SKIPPING = 0.05
"""The share of slices that may skip packets if none was seen to: below it, with 95 % confidence, from 59 slices on
(Wilks, 1941)."""

ON, SENDER = "on", "sender"
PATHS = {"gso": "packets up to 64 kB", "mtu": "packets of one segment"}


def findings(run: Run, seen: Seen, cells: list[Cell]) -> list[Finding]:
    """Return all findings of the run."""
    found = [*_no_pairs(cells), *_a_a(seen), *_incomplete(run, seen), *_drift(seen)]
    return [*found, *interrupted(run), *debug_build(run), *contended(run)]


def _no_pairs(cells: list[Cell]) -> Iterator[Finding]:
    if not any(not cell.is_control for cell in cells):
        yield Finding("incomplete", "no pair of slices was measured", 0.0, grade="invalid")


def _a_a(seen: Seen) -> Iterator[Finding]:
    """Yield a finding if the A/A control differs, in total or for one traffic; the tests share the error
    probability."""
    controls = seen.pairs.filter(pl.col("setting") == "off")
    if controls.is_empty():
        return
    each = controls.partition_by(TRAFFIC, maintain_order=True)
    several = [controls, *each] if len(each) > 1 else [controls]
    apart = [both for rows in several if (both := pooled(rows, 1 - CHANCE / len(several))).excludes(1)]
    if apart:
        both = max(apart, key=lambda one: abs(math.log(one.estimate)))
        sentence = (
            f"the A/A control differs significantly from zero: slices without the log differ by {change(both.estimate)}"
        )
        yield Finding("a_a_nonzero", sentence, both.estimate - 1)


def _incomplete(run: Run, seen: Seen) -> Iterator[Finding]:
    asked = run.plan.get("costs", {})
    planned = int(asked.get("repetitions", 0))
    done = seen.pairs.group_by("cell").len()["len"].to_list()
    missing = sum(max(0, planned - count) for count in done) + planned * max(0, _cells_asked(asked) - len(done))
    if missing:
        are = "is" if missing == 1 else "are"
        sentence = f"{missing} of the planned pairs {are} missing, or had no traffic"
        yield Finding("incomplete", sentence, float(missing))


def _cells_asked(asked: dict[str, Any]) -> int:
    """Return the number of the plan's cells: a cell without any measured pair is in no record."""
    where, each = len(asked.get("where", ())), len(asked.get("packets_per_log", ()))
    controls = len(asked.get("controls", ())) + bool(asked.get("a_a"))
    tried = (where if flows in asked.get("where_flows", ()) else min(1, where) for flows in asked.get("flows", ()))
    return len(asked.get("path", ())) * sum(controls + each * ends for ends in tried)


def _drift(seen: Seen) -> Iterator[Finding]:
    """Yield a finding for a trend of the throughput without the log: it does not affect ratios of adjacent slices."""
    off = seen.slices.filter(pl.col("mode") == "off")
    if off.is_empty():
        return
    level = pl.col("bps") / pl.col("bps").median().over(*TRAFFIC, "session")  # # differences between beds are not drift
    rows = off.with_columns(level=level).sort("started_ns")
    times = (rows["started_ns"] - rows["started_ns"][0]).to_numpy().astype(float)
    found = trend(times, rows["level"].to_numpy())
    if found.p < CHANCE and abs(found.change) > DRIFT:
        sentence = (
            f"without the log, the throughput changed by {change(1 + found.change)} over the run: this affects the "
            "throughputs, but not the ratios of adjacent slices"
        )
        yield Finding("drift", sentence, found.change)


# --- the published findings -------------------------------------------------------------------------------------------


def evaluate(run: Run, cells: list[Cell]) -> list[Outcome]:
    """Return the plan's hypotheses with their outcomes."""
    return [HYPOTHESES[name](name, cells) for name in run.hypotheses if name in HYPOTHESES]


def _detail_costs(name: str, cells: list[Cell]) -> Outcome:
    """Test whether throughput grows with the sampling interval by more than the margin, as on the first machine of
    2007."""
    pairs = []
    for traffic in dict.fromkeys(cell.traffic for cell in cells):
        logs = [cell for cell in cells if cell.traffic == traffic and cell.mode == ON and cell.where == SENDER]
        if len(logs) > 1:
            least, most = logs[0], logs[-1]
            pairs.append(_over(most, least))
    found = combined(pairs)
    if found is None:
        return Outcome(name, "inconclusive", "not tested: the log was measured with one sampling interval only")
    said = f"with the fewest records, throughput is {times(found)} times that with the most records"
    outcome = "inconclusive"
    if found.low is not None and found.low > 1 + MARGIN:
        outcome = "supported"
    elif found.high is not None and found.high < 1 + MARGIN:
        outcome, said = "rejected", f"{said}: more detail costs less than {percent(MARGIN)}"
    return Outcome(name, outcome, said, shown=found, unit="1", margin=MARGIN)


def _disabled_is_free(name: str, cells: list[Cell]) -> Outcome:
    """Test whether throughput with the log loaded but disabled is the same as without it (table 5)."""
    found = combined([alone(cell) for cell in cells if cell.mode == "disabled"])
    return _same(name, found, "with the log attached but disabled, throughput is {} times that without it")


def _placebo_explains(name: str, cells: list[Cell]) -> Outcome:
    """Test whether a placebo, a busy loop of the same duration, changes throughput as much as logging does."""
    pairs = []
    for placebo in (cell for cell in cells if cell.mode == "placebo"):
        at = (placebo.traffic, ON, placebo.where)
        same = [cell for cell in cells if (cell.traffic, cell.mode, cell.where) == at]
        if same:
            pairs.append(_over(same[0], placebo))
    said = "with every packet logged, throughput is {} times that with the placebo, a busy loop of the same duration"
    return _same(name, combined(pairs), said)


def _nothing_skipped(name: str, cells: list[Cell]) -> Outcome:
    """Test whether every packet has its record; in 2007, 2 to 69 packets per minute and Mbit/s had none."""
    logs = [cell for cell in cells if cell.skipped is not None]
    skipped, packets = sum(cell.skipped or 0 for cell in logs), sum(cell.packets or 0 for cell in logs)
    if not packets:
        return Outcome(name, "inconclusive", "not tested: no packet was logged")
    if not skipped:
        slices = sum(cell.pairs for cell in logs)
        most = none_among(slices)
        said = f"of {packets:,} packets in {slices} slices none was skipped: at most {percent(most)} of slices skip any"
        return Outcome(name, "supported" if most <= SKIPPING else "inconclusive", f"{said} (95 % confidence)")
    worst = max(logs, key=lambda cell: cell.skipped_per_mbps or 0.0)
    said = (
        f"{skipped:,} of {packets:,} packets were skipped, at most {worst.skipped_per_mbps:.3g} per minute and Mbit/s "
        f"({name_of(worst)})"
    )
    return Outcome(name, "rejected", said)


HYPOTHESES: dict[str, Callable[[str, list[Cell]], Outcome]] = {
    "detail-costs": _detail_costs,
    "disabled-is-free": _disabled_is_free,
    "nothing-skipped": _nothing_skipped,
    "placebo-explains": _placebo_explains,
}


def _same(name: str, found: Interval | None, said: str) -> Outcome:
    """Test whether a ratio is one, within the margin."""
    if found is None:
        return Outcome(name, "inconclusive", "not tested: the run has no such control")
    outcome = "inconclusive"
    if _within(found):
        outcome = "supported"
    elif found.low is not None and found.high is not None and (found.high < 1 - MARGIN or found.low > 1 + MARGIN):
        outcome = "rejected"
    return Outcome(name, outcome, said.format(times(found)), shown=found, unit="1", margin=MARGIN, expected=1.0)


def _within(found: Interval) -> bool:
    return found.low is not None and found.high is not None and found.low >= 1 - MARGIN and found.high <= 1 + MARGIN


class Ratio(NamedTuple):
    """A ratio, and its logarithms on each bed; ratios on the same bed are not independent of each other."""

    value: Interval
    by_session: Mapping[int, Bed]


def alone(cell: Cell) -> Ratio:
    return Ratio(cell.ratio, cell.by_session)


def _over(first: Cell, second: Cell) -> Ratio:
    """Return the ratio of two ratios: within each bed, or of pairs that were measured independently."""
    both = _on_all_beds([alone(first), alone(second)], (1.0, -1.0))
    return Ratio(_over_beds(both) or _quotient(first.ratio, second.ratio), both)


def _on_all_beds(ratios: Sequence[Ratio], weights: Sequence[float]) -> dict[int, Bed]:
    """Return a weighted sum of logarithms for each bed that has all of them; it has the smallest of their pair
    counts."""
    several = [one.by_session for one in ratios]
    return {
        at: Bed(
            sum(weight * one[at].mean for weight, one in zip(weights, several, strict=True)),
            math.hypot(*(weight * one[at].error for weight, one in zip(weights, several, strict=True))),
            min(one[at].pairs for one in several),
        )
        for at in sorted(set.intersection(*(set(one) for one in several)))
    }


def _over_beds(beds: Mapping[int, Bed]) -> Interval | None:
    """Return the geometric mean over beds, with the interval of `across_sessions`; None for fewer than two beds."""
    if len(beds) < 2:
        return None
    means, errors, pairs = (np.array(one) for one in zip(*beds.values(), strict=True))
    found = across_sessions(means, errors, pairs).mean
    low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
    return Interval(math.exp(found.estimate), low, high, found.level, found.n)


def _quotient(first: Interval, second: Interval) -> Interval:
    value = first.estimate / second.estimate
    reach = _reaches([first, second])
    n = min(first.n, second.n)
    if reach is None:
        return Interval(value, None, None, 0.95, n)
    return Interval(value, value * math.exp(-reach), value * math.exp(reach), 0.95, n)


def combined(ratios: list[Ratio]) -> Interval | None:
    """Return the geometric mean, with equal weights, of ratios of different traffic, over beds that have all of them.

    A single ratio is returned with its own interval.
    """
    if len(ratios) < 2:
        return ratios[0].value if ratios else None
    over_beds = _over_beds(_on_all_beds(ratios, [1 / len(ratios)] * len(ratios)))
    if over_beds is not None:
        return over_beds
    several = [one.value for one in ratios]
    value = math.exp(sum(math.log(one.estimate) for one in several) / len(several))
    reach = _reaches(several)
    n = sum(one.n for one in several)
    if reach is None:
        return Interval(value, None, None, 0.95, n)
    each = reach / len(several)
    return Interval(value, value * math.exp(-each), value * math.exp(each), 0.95, n)


def beds_of(cells: Sequence[Cell]) -> int | None:
    """Return over how many beds `combined` evaluates these cells together; None where the run has one."""
    if len(cells) == 1:
        return cells[0].sessions
    common = set.intersection(*(set(one.by_session) for one in cells)) if cells else set()
    least = min((one.sessions for one in cells if one.sessions is not None), default=None)
    return len(common) if len(common) > 1 else least


def _reaches(several: list[Interval]) -> float | None:
    """Return the half-width of the interval of a sum of independent logarithms, from the longer side of each."""
    squares = []
    for one in several:
        if one.low is None or one.high is None or one.low <= 0:
            return None
        squares.append(max(math.log(one.high / one.estimate), math.log(one.estimate / one.low)) ** 2)
    return math.sqrt(sum(squares))


# --- words ------------------------------------------------------------------------------------------------------------


def sentence(cells: list[Cell], spent: list[Spent]) -> str:
    """Return the relative throughput at the most detail, skipped packets, time per packet, and the resolution."""
    logs = [cell for cell in cells if cell.mode == ON]
    if not logs:
        return "No packet was logged, so the cost of the log is not known"
    detail = most_detailed(cells)
    paths = dict.fromkeys(cell.path for cell in detail)
    left = [said for path in paths if (said := _left([cell for cell in detail if cell.path == path]))]
    at = "" if detail[0].where == SENDER else f" at the {detail[0].where}"
    said = f"With {_each(detail[0])} logged{at}, throughput is {' and '.join(left)}"
    skipped = sum(cell.skipped or 0 for cell in logs)
    said += "; no packet was skipped" if not skipped else f"; {skipped:,} packets were skipped"
    each = [beds_of([cell for cell in detail if cell.path == path]) for path in {cell.path for cell in detail}]
    used = [beds for beds in each if beds is not None]
    beds = " to ".join(str(one) for one in sorted({min(used), max(used)})) if used else ""
    over_beds = f"; over {beds} beds, each made anew" if used else ""
    return said + _time(spent) + _resolution(cells) + over_beds


def _left(cells: list[Cell]) -> str:
    """Return the relative throughput of a path: the mean over numbers of flows, or the range where they differ."""
    both = combined([alone(cell) for cell in cells])
    if both is None:
        return ""
    of = f"of that without the log for {PATHS.get(cells[0].path, cells[0].path)}"
    if _differ(cells):
        least, most = (pick(cells, key=lambda cell: cell.ratio.estimate) for pick in (min, max))
        ends = [f"{_share(cell.ratio)} with {counted(cell.flows, 'flow')}" for cell in (least, most)]
        return f"{' to '.join(ends)} {of}"
    return f"{_share(both)} {of}{', averaged over all numbers of flows' if len(cells) > 1 else ''}{_seen(both)}"


def _differ(cells: list[Cell]) -> bool:
    """Return whether numbers of flows differ beyond their intervals (Cochran's Q of the logarithms, at 1 %)."""
    ends = [(one.ratio.low, one.ratio.estimate, one.ratio.high) for one in cells]
    known = [(math.log(mid), math.log(high / low) / 2) for low, mid, high in ends if low and high and high > low > 0]
    if len(known) < 2:
        return False
    return homogeneity_p(np.array([mid for mid, _ in known]), np.array([half for _, half in known])) < DISAGREE_P


def _seen(ratio: Interval) -> str:
    return "" if ratio.low is None or ratio.excludes(1) else ", an interval that holds 100 %: no change was found"


def most_detailed(cells: list[Cell]) -> list[Cell]:
    """Return the cells with the most detailed log, at the first end where the log was measured."""
    logs = [cell for cell in cells if cell.mode == ON]
    most = min((cell.packets_per_log or 1 for cell in logs), default=1)
    return [cell for cell in logs if cell.where == logs[0].where and cell.packets_per_log == most]


def _each(cell: Cell) -> str:
    return "every packet" if cell.packets_per_log == 1 else f"one packet in {cell.packets_per_log}"


def _time(spent: list[Spent]) -> str:
    pooled = {one.direction: one.ns for one in spent if one.path is None and one.what == "logged"}
    if len(pooled) < 2:
        return ""
    return f"; logging takes {_ns(pooled['in'])} for each received packet and {_ns(pooled['out'])} for each sent one"


def _ns(took: Interval) -> str:
    reach = "" if took.low is None or took.high is None else f" (95 % CI {took.low:.0f} to {took.high:.0f})"
    return f"{took.estimate:.0f} ns{reach}"


def _resolution(cells: list[Cell]) -> str:
    controls = [cell.ratio for cell in cells if cell.is_control]
    both = combined([alone(cell) for cell in cells if cell.is_control])
    if both is None:
        return "; without an A/A control, the resolution is not known"
    said = f"; in the A/A control, adjacent slices without the log differ by {change(both.estimate)}"
    reach = max((max(abs(one.low - 1), abs(one.high - 1)) for one in controls if one.low and one.high), default=None)
    return (
        said
        if reach is None
        else (f"{said}; for part of the traffic, changes below {percent(reach)} would not be detected")
    )


def name_of(cell: Cell) -> str:
    """Return a phrase for a cell's traffic."""
    flows = "one flow" if cell.flows == 1 else f"{cell.flows} flows"
    return f"with {flows} and {PATHS.get(cell.path, cell.path)}"


def times(ratio: Interval) -> str:
    """Return a ratio with its interval."""
    if ratio.low is None or ratio.high is None:
        return fixed(ratio.estimate, 3)
    return f"{fixed(ratio.estimate, 3)} (95 % CI {fixed(ratio.low, 3)} to {fixed(ratio.high, 3)})"


def change(ratio: float) -> str:
    """Return a ratio as a relative change."""
    return percent(ratio - 1) if ratio < 1 else f"+{percent(ratio - 1)}"


def _share(ratio: Interval) -> str:
    value = f"{fixed(100 * ratio.estimate, 1)} %"
    if ratio.low is None or ratio.high is None:
        return f"{value} (too few pairs for an interval)"
    return f"{value} (95 % CI {fixed(100 * ratio.low, 1)} to {fixed(100 * ratio.high, 1)})"
