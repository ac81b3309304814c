"""What a run's log says of the trials that have ended: how far the run is, and how delays are spread, path by path.

Each trial brings how many of its delays fall in which class (`rtt_classes`, `delay_classes`); here they are added up,
so percentiles are of all delays so far and not means of the trials' percentiles. They are known to 1/64 of their value,
and are for looking at while a run goes on: without interval, all cells of a path together, a block that turns out
to be lost later included. Reads no record and judges nothing. Delays between two clocks are left out: only the
analysis joins clocks.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

RTT, ONE_WAY = "rtt", "one_way_delay"
QUANTILES = {"p50": (0.5, 1), "p95": (0.95, 20), "p99": (0.99, 100)}
"""By name: the share, and from how many delays on it is reported."""

ENDS = frozenset({"finished", "failed", "interrupted"})
NUMBERED = {"block": "block", "stream-trial": "trial", "trial": "block", "tcp-trial": "block", "load-trial": "block",
            "search-result": "search"}  # fmt: skip
"""Events that end a trial, with the key of its number."""


@dataclass
class PathSoFar:
    """The trials over one path."""

    sent: int = 0
    lost: int = 0
    delays: dict[str, Counter[int]] = field(default_factory=dict)
    """By quantity: how many delays each class has, by its middle in ns."""

    def add(self, quantity: str, classes: Any) -> None:
        """Add a trial's delays; what no instrument of ours says is left out."""
        counts = self.delays.setdefault(quantity, Counter())
        for one in classes if isinstance(classes, list) else ():
            if isinstance(one, list) and len(one) == 2 and all(type(number) is int for number in one):
                counts[one[0]] += one[1]

    def quantiles(self, quantity: str) -> dict[str, int]:
        """Those that there are enough delays for, in ns, by nearest rank."""
        counts = self.delays.get(quantity, Counter())
        several = counts.total()
        told = {name: share for name, (share, least) in QUANTILES.items() if several >= least}
        return dict(zip(told, _ranked(counts, [share * several for share in told.values()]), strict=True))


def _ranked(counts: Counter[int], ranks: list[float]) -> Iterable[int]:
    """The class at which each rank, ascending, is reached."""
    ascending, seen, value = iter(sorted(counts.items())), 0, 0
    for rank in ranks:
        while seen < rank:
            value, count = next(ascending)
            seen += count
        yield value


@dataclass
class SoFar:
    """A run, entry by entry of its log."""

    study: str = ""
    run: str = ""
    planned: int = 0
    done: set[int] = field(default_factory=set)
    paths: dict[str, PathSoFar] = field(default_factory=dict)
    end: str = ""
    """`finished`, `failed` or `interrupted`; empty while it goes on, or was killed."""

    def take(self, entry: dict[str, Any]) -> None:
        """Understand one entry; what nobody of ours wrote is left out."""
        with suppress(ArithmeticError, AttributeError, TypeError, ValueError):
            self._take(str(entry.get("event")), entry)

    def _take(self, name: str, entry: dict[str, Any]) -> None:
        if name == "started":
            self.study, self.run, self.end = str(entry.get("study", "")), str(entry.get("run", "")), ""
            self.planned = int(entry.get("blocks") or 0)
        elif name in ENDS:
            self.end = name
        elif name in NUMBERED:
            self._ended(name, entry)

    def _ended(self, name: str, entry: dict[str, Any]) -> None:
        number = entry.get(NUMBERED[name])
        if not isinstance(number, int) or not entry.get("kept", True):
            return  # it qualifies the tester, or is tried again
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
