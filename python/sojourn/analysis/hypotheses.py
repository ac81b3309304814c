"""The published hypotheses, each tested with this run: supported, rejected, or inconclusive.

A hypothesis is supported when every deviation from it lies, with its interval, within a margin: 5 % of the latency or
the bed's resolution, whichever is larger, but at most 20 % of the latency, since on a bed that hardly resolves the
device any hypothesis would be supported. It is rejected when the whole interval of a deviation lies beyond the margin.
Everything else is inconclusive: a lack of evidence neither supports nor rejects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sojourn.analysis.rows import finite
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.sizes import by_size
from sojourn.analysis.wording import micro, percent
from sojourn.devices import cascade, rank
from sojourn.statistics.line import Deviations, deviations

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.analysis.pairs import Rounds
    from sojourn.analysis.run import Run
    from sojourn.statistics.interval import Interval

MARGIN = 0.05
WIDEST_MARGIN = 0.2


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a test: `shown` is the deviation that decided it, or the largest, with its interval.

    Where the hypothesis predicts a figure, `expected` is the prediction and `shown` the measurement.
    """

    hypothesis: str
    outcome: str
    sentence: str
    device: str | None = None
    probe: str | None = None
    found: Deviations | None = None
    margin: float | None = None
    shown: Interval | None = None
    unit: str = "ns"
    expected: float | None = None

    def tidy(self) -> dict[str, Any]:
        """Return the outcome as in verdict.json."""
        shown = self.shown
        return {
            "hypothesis": self.hypothesis,
            "outcome": self.outcome,
            "sentence": self.sentence,
            "estimate": None if shown is None else finite(shown.estimate),
            "ci_low": None if shown is None else finite(shown.low),
            "ci_high": None if shown is None else finite(shown.high),
            "unit": self.unit,
            "expected": finite(self.expected),
            "level": None if shown is None else shown.level,
            "margin": finite(self.margin),
            "p": None if self.found is None else self.found.p,
            "device": self.device,
            "probe": self.probe,
        }


def evaluate_hypotheses(run: Run, rounds: Rounds, bed_ns: float, more: Mapping[str, Hypothesis]) -> list[Outcome]:
    """Test the plan's hypotheses; `more` are a method's own. An unknown one is inconclusive."""
    known = HYPOTHESES | dict(more)
    return [outcome for name in run.hypotheses for outcome in known.get(name, _unknown)(name, run, rounds, bed_ns)]


def inconclusive(name: str, why: str, device: str | None = None, probe: str | None = None) -> Outcome:
    """Return the outcome of a hypothesis that the run cannot test."""
    return Outcome(name, "inconclusive", why, device, probe)


def against(shown: Interval, expected: float, margin: float) -> str:
    """Compare a figure with its prediction: its whole interval lies within the margin, beyond it, or neither."""
    if shown.low is None or shown.high is None:
        return "inconclusive"
    if shown.low >= expected - margin and shown.high <= expected + margin:
        return "supported"
    return "rejected" if shown.low > expected + margin or shown.high < expected - margin else "inconclusive"


def main_device(devices: list[str]) -> str | None:
    """Return the device that a run is about: the path of the highest rank besides direct and a/a."""
    tested = [one for one in devices if one not in (DIRECT, A_A)]
    return max(tested, key=rank, default=None)


def _constant_plus_per_byte(name: str, run: Run, rounds: Rounds, bed_ns: float) -> list[Outcome]:
    device = main_device(run.devices)
    outcomes = []
    for fit in by_size(run, rounds):
        if fit.device != device or fit.reference != DIRECT:
            continue
        if len(fit.sizes) < 3:
            outcomes.append(
                inconclusive(
                    name, "not tested: two sizes always lie on a line, and at least three are needed", device, fit.probe
                )
            )
            continue
        found = deviations(fit.sizes, fit.one_way, over=rounds.over)
        margin = _margin(fit.one_way, bed_ns)
        what = f"a line over {len(fit.sizes)} sizes ({fit.probe})"
        outcome = _judge(name, found, margin, what, device, fit.probe)
        slope = _slope(fit.line().slope) if outcome.outcome == "supported" else ""
        outcomes.append(replace(outcome, sentence=outcome.sentence + slope))
    return outcomes or [inconclusive(name, "not tested: the run has no device measured at several sizes", device)]


def _rate_independent(name: str, run: Run, rounds: Rounds, bed_ns: float) -> list[Outcome]:
    device = main_device(run.devices)
    if device is None or DIRECT not in run.devices:
        return [inconclusive(name, "not tested: the run has no device", device)]
    one_way = rounds.one_way(device, DIRECT)
    paces = [run.cells[cell].interval_ns or 0 for cell in rounds.cells]
    intervals = sorted(set(paces))
    if len(intervals) < 2:
        return [inconclusive(name, "not tested: the run has only one interval between probes", device)]
    columns = [one_way[np.array(paces) == interval].mean(axis=0) for interval in intervals]
    y = rounds.by_session(np.stack(columns, axis=1))
    if not len(y):
        return [inconclusive(name, "no round has every interval", device)]
    what = f"one constant over {len(intervals)} intervals"
    return [_judge(name, deviations(None, y, over=rounds.over), _margin(y, bed_ns), what, device)]


def _cascade_adds(name: str, run: Run, rounds: Rounds, bed_ns: float) -> list[Outcome]:
    outcomes = []
    for device in run.devices:
        single, times = cascade(device) or ("", 0)
        if single not in run.devices or DIRECT not in run.devices:
            continue
        one = rounds.one_way(single, DIRECT).mean(axis=0)
        excess = rounds.one_way(device, DIRECT).mean(axis=0) - times * one
        values = rounds.by_session(np.stack([excess, times * one], axis=1))
        if not len(values):
            continue
        found = Deviations([rounds.over(values[:, 0], 0.95)], None)
        margin = _margin(values[:, 1], bed_ns)
        outcomes.append(_judge(name, found, margin, f"{times} times one {single}", device))
    return outcomes or [inconclusive(name, "not tested: the run has no cascade beside a single device", None)]


def _unknown(name: str, _run: Run, _rounds: Rounds, _bed_ns: float) -> list[Outcome]:
    return [inconclusive(name, "no such hypothesis is known to this version", None)]


Hypothesis = Callable[[str, "Run", "Rounds", float], list[Outcome]]
HYPOTHESES: dict[str, Hypothesis] = {
    "constant-plus-per-byte": _constant_plus_per_byte,
    "rate-independent": _rate_independent,
    "cascade-adds": _cascade_adds,
}


@dataclass(frozen=True, slots=True)
class Margin:
    """The largest allowed deviation from zero, in ns, and its name."""

    ns: float
    what: str


def _margin(latencies: NDArray[np.float64], bed_ns: float) -> Margin:
    latency = abs(float(np.median(latencies)))
    margin, widest = MARGIN * latency, WIDEST_MARGIN * latency
    if bed_ns > widest:
        return Margin(widest, f"{percent(WIDEST_MARGIN)} of the latency")
    if bed_ns > margin:
        return Margin(bed_ns, "what the bed can resolve")
    return Margin(margin, f"{percent(MARGIN)} of the latency")


def _slope(slope: Interval) -> str:
    if slope.excludes(0):
        return f"; the slope is {slope.estimate:.2g} ns per byte"
    return "; the slope is not significantly different from zero"


def _judge(
    name: str, found: Deviations, margin: Margin, what: str, device: str | None, probe: str | None = None
) -> Outcome:
    shown, bound, outcome = found.largest, f"± {micro(margin.ns)} ({margin.what})", "inconclusive"
    if found.lie_within(margin.ns):
        outcome, sentence = (
            "supported",
            f"the latency of {device} agrees with {what}: every deviation lies within {bound}",
        )
    elif beyond := found.beyond(margin.ns):
        outcome, shown = "rejected", beyond
        sentence = (
            f"the latency of {device} deviates from {what} by {micro(shown.estimate)}{_span(shown)}, beyond {bound}"
        )
    elif shown.low is None:
        sentence = f"too few rounds or beds ({shown.n}) for an interval of the deviation from {what}"
    else:
        sentence = f"the deviation of {device} from {what} is not known to within {bound}: measure more rounds"
    return Outcome(name, outcome, sentence, device, probe, found, margin.ns, shown)


def _span(shown: Interval) -> str:
    return f" ({percent(shown.level)} CI {micro(shown.low or 0.0)} to {micro(shown.high or 0.0)})"
