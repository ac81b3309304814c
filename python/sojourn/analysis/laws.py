"""The published laws, each asked of this run: holds, fails, or is inconclusive.

A law holds when every deviation from it lies, with its interval, within a margin that is 5 % of the latency or what
the bed resolves, whichever is larger, but never more than 20 % of the latency: on a bed that hardly sees the device at
all, no law could be told from another. It fails when the whole interval of a deviation lies beyond the margin; else the
run is inconclusive. No law is ever confirmed, or refuted, by a mere lack of evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sojourn.analysis.rows import finite
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.sizes import by_size
from sojourn.analysis.wording import micro
from sojourn.devices import rank
from sojourn.statistics.line import Deviations, deviations
from sojourn.statistics.signed_rank import hodges_lehmann

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.analysis.pairs import Rounds
    from sojourn.analysis.run import Run
    from sojourn.statistics.interval import Interval

MARGIN = 0.05
WIDEST_MARGIN = 0.2


@dataclass(frozen=True, slots=True)
class Answer:
    """What a run says of a law: `shown` is the deviation that decided it, or the largest, with its interval.

    Where the law foretells a figure, `expected` is that and `shown` what was measured.
    """

    law: str
    answer: str
    sentence: str
    device: str | None = None
    probe: str | None = None
    found: Deviations | None = None
    margin: float | None = None
    shown: Interval | None = None
    unit: str = "ns"
    expected: float | None = None

    def tidy(self) -> dict[str, Any]:
        """The answer as verdict.json holds it."""
        shown = self.shown
        return {
            "law": self.law,
            "answer": self.answer,
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


def answer_laws(run: Run, rounds: Rounds, bed_ns: float, more: Mapping[str, Law]) -> list[Answer]:
    """The plan's laws, answered, `more` of them by others; an unknown law is answered "cannot tell"."""
    known = LAWS | dict(more)
    asked = [str(one) for one in run.study.get("laws", [])]
    return [answer for law in asked for answer in known.get(law, _unknown)(law, run, rounds, bed_ns)]


def main_device(devices: list[str]) -> str | None:
    """The device that a run is about: an emulator, the bridge, or the first that is there for its own sake."""
    tested = [one for one in devices if one not in (DIRECT, A_A)]
    return max(tested, key=rank, default=None)


def _constant_plus_per_byte(law: str, run: Run, rounds: Rounds, bed_ns: float) -> list[Answer]:
    device = main_device(run.devices)
    answers = []
    for fit in by_size(run, rounds):
        if fit.device != device or fit.reference != DIRECT:
            continue
        if len(fit.sizes) < 3:
            answers.append(_cannot(law, "two sizes always lie on a line: at least three are needed", device, fit.probe))
            continue
        found = deviations(fit.sizes, fit.one_way)
        margin = _margin(fit.one_way, bed_ns)
        what = f"a line over {len(fit.sizes)} sizes ({fit.probe})"
        answers.append(_judge(law, found, margin, what, device, fit.probe))
    return answers or [_cannot(law, "the run has no device measured at several sizes", device)]


def _rate_independent(law: str, run: Run, rounds: Rounds, bed_ns: float) -> list[Answer]:
    device = main_device(run.devices)
    if device is None or DIRECT not in run.devices:
        return [_cannot(law, "the run has no device", device)]
    one_way = rounds.one_way(device, DIRECT)
    paces = [run.cells[cell].interval_ns or 0 for cell in rounds.cells]
    intervals = sorted(set(paces))
    if len(intervals) < 2:
        return [_cannot(law, "the run has only one interval", device)]
    columns = [one_way[np.array(paces) == interval].mean(axis=0) for interval in intervals]
    y = np.stack(columns, axis=1)
    y = y[~np.isnan(y).any(axis=1)]
    if not len(y):
        return [_cannot(law, "no round has every interval", device)]
    what = f"one constant over {len(intervals)} intervals"
    return [_judge(law, deviations(None, y), _margin(y, bed_ns), what, device)]


def _cascade_adds(law: str, run: Run, rounds: Rounds, bed_ns: float) -> list[Answer]:
    answers = []
    for device in run.devices:
        single, star, count = device.partition("*")
        if not star or not count.isdigit() or single not in run.devices or DIRECT not in run.devices:
            continue
        times = int(count)
        one = rounds.one_way(single, DIRECT).mean(axis=0)
        excess = rounds.one_way(device, DIRECT).mean(axis=0) - times * one
        known = ~np.isnan(excess)
        if not known.any():
            continue
        found = Deviations([hodges_lehmann(excess[known])], None)
        margin = _margin(times * one[known], bed_ns)
        answers.append(_judge(law, found, margin, f"{times} times one {single}", device))
    return answers or [_cannot(law, "the run has no cascade beside a single device", None)]


def _unknown(law: str, _run: Run, _rounds: Rounds, _bed_ns: float) -> list[Answer]:
    return [_cannot(law, "no such law is known to this version", None)]


Law = Callable[[str, "Run", "Rounds", float], list[Answer]]
LAWS: dict[str, Law] = {
    "constant-plus-per-byte": _constant_plus_per_byte,
    "rate-independent": _rate_independent,
    "cascade-adds": _cascade_adds,
}


def _margin(latencies: NDArray[np.float64], bed_ns: float) -> float:
    latency = abs(float(np.median(latencies)))
    return min(max(MARGIN * latency, bed_ns), WIDEST_MARGIN * latency)


def _judge(
    law: str, found: Deviations, margin: float, what: str, device: str | None, probe: str | None = None
) -> Answer:
    shown, bound, answer = found.largest, micro(margin), "cannot tell"
    if found.lie_within(margin):
        answer, sentence = "holds", f"{device} keeps to {what}: every deviation lies within ± {bound}"
    elif beyond := found.beyond(margin):
        answer, shown = "fails", beyond
        sentence = f"{device} departs from {what} by {micro(shown.estimate)}, beyond ± {bound}"
    elif shown.low is None:
        sentence = f"too few rounds ({shown.n}) for an interval of the deviation from {what}"
    else:
        sentence = f"the deviation of {device} from {what} is not known to {bound}: measure more rounds"
    return Answer(law, answer, sentence, device, probe, found, margin, shown)


def _cannot(law: str, why: str, device: str | None, probe: str | None = None) -> Answer:
    return Answer(law, "cannot tell", why, device, probe)
