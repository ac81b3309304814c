"""Interim results from a run's log: the progress of the run, and the delay spread of each path.

Each trial logs the number of its delays in each class (`rtt_classes`, `delay_classes`); these are added up, so that
percentiles are of all delays so far and not means of the trials' percentiles. Their resolution is 1/64 of the value.
They are for watching a run: without interval, with all cells of a path together, and including blocks that are declared
lost later. Reads no record and judges nothing. Delays between two clocks are left out: only the analysis corrects clock
offsets.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sojourn.records.lost import CLOSED, closed_trials

if TYPE_CHECKING:
    from collections.abc import Iterable

RTT, ONE_WAY = "rtt", "one_way_delay"
QUANTILES = {"p50": (0.5, 1), "p95": (0.95, 20), "p99": (0.99, 100)}
"""By name: the share, and the least number of delays for which it is reported."""

ENDS = frozenset({"finished", "failed", "interrupted"})
NUMBERED = {"block": "block", "stream-trial": "trial", "trial": "block", "tcp-trial": "block", "load-trial": "block",
            "search-result": "search"}  # fmt: skip
"""Events that end a trial, with the key of its number. Trials without one are counted when their batch is closed."""


@dataclass
class PathSoFar:
    """The trials over one path."""

    sent: int = 0
    lost: int = 0
    delays: dict[str, Counter[int]] = field(default_factory=dict)
    """The number of delays in each class, which is named by its middle in ns, by quantity."""

    def add(self, quantity: str, classes: Any) -> None:
        """Add a trial's delays; malformed classes are left out."""
        counts = self.delays.setdefault(quantity, Counter())
        for one in classes if isinstance(classes, list) else ():
            if isinstance(one, list) and len(one) == 2 and all(type(number) is int for number in one):
                counts[one[0]] += one[1]

    def quantiles(self, quantity: str) -> dict[str, int]:
        """Return the quantiles with enough delays, in ns, by nearest rank."""
        counts = self.delays.get(quantity, Counter())
        several = counts.total()
        told = {name: share for name, (share, least) in QUANTILES.items() if several >= least}
        return dict(zip(told, _ranked(counts, [share * several for share in told.values()]), strict=True))


def _ranked(counts: Counter[int], ranks: list[float]) -> Iterable[int]:
    """Return the class at which each rank, in ascending order, is reached."""
    ascending, seen, value = iter(sorted(counts.items())), 0, 0
    for rank in ranks:
        while seen < rank:
            value, count = next(ascending)
            seen += count
        yield value


@dataclass
class SoFar:
    """A run, built from the entries of its log."""

    study: str = ""
    run: str = ""
    planned: int = 0
    done: set[int] = field(default_factory=set)
    paths: dict[str, PathSoFar] = field(default_factory=dict)
    end: str = ""
    """`finished`, `failed` or `interrupted`; empty while it is in progress, or after it was killed."""

    def take(self, entry: dict[str, Any]) -> None:
        """Process one entry; a malformed one is left out."""
        with suppress(ArithmeticError, AttributeError, TypeError, ValueError):
            self._take(str(entry.get("event")), entry)

    def _take(self, name: str, entry: dict[str, Any]) -> None:
        if name == "started":
            self.study, self.run, self.end = str(entry.get("study", "")), str(entry.get("run", "")), ""
            self.planned = int(entry.get("blocks") or 0)
        elif name in ENDS:
            self.end = name
        elif name == CLOSED:
            self.done.update(closed_trials(entry))
        elif name in NUMBERED:
            self._ended(name, entry)

    def _ended(self, name: str, entry: dict[str, Any]) -> None:
        number = entry.get(NUMBERED[name])
        if not isinstance(number, int) or not entry.get("kept", True):
            return  # a trial that qualifies the tester, or is repeated
        self.done.add(number)
        if "device" not in entry or name not in {"block", "stream-trial"}:
            return
        path = self.paths.setdefault(str(entry["device"]), PathSoFar())
        if name == "block":
            self._add_probes(path, entry)
        else:
            self._add_stream(path, entry)

    @staticmethod
    def _add_probes(path: PathSoFar, answer: dict[str, Any]) -> None:
        path.sent += int(answer.get("sent") or 0)
        path.lost += int(answer.get("lost") or 0)
        path.add(RTT, answer.get("rtt_classes"))

    def _add_stream(self, path: PathSoFar, entry: dict[str, Any]) -> None:
        if probed := entry.get("probed"):
            self._add_probes(path, probed)
        received = [flow for flow in entry.get("received") or [] if flow.get("port", 0) == 0]
        path.sent += sum(int(flow.get("sent") or 0) for flow in entry.get("sent") or [])
        path.lost += sum(int(flow.get("lost") or 0) for flow in received)
        if all(clock.get("shared") for clock in entry.get("clock") or []):
            for flow in received:
                path.add(ONE_WAY, flow.get("delay_classes"))
