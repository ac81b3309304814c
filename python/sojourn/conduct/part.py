"""What one sitting of a run is: its plan, what it owes, where it writes, and the place where it is done.

Holds what every method needs, and does nothing by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sojourn.bed.model import HostName
    from sojourn.conduct.archive import Log
    from sojourn.conduct.cores import Cores
    from sojourn.conduct.emulators import Emulators
    from sojourn.conduct.progress import Screen
    from sojourn.conduct.site import Site
    from sojourn.plan import Plan
    from sojourn.records import RunFolder

RESTLESS = ("one-way", "model", "fan-in", "throughput", "loss")
"""Methods whose frames follow each other too closely for a sleep between them. The kernel lets no real-time program run
without rest, and the rest that such a sender must then take makes its departures milliseconds late: these go without
unless it is asked for by name (`host.fifo = true`)."""


@dataclass(frozen=True, slots=True)
class Part:
    """One sitting of a run: what it is to measure, and where it writes."""

    plan: Plan
    folder: RunFolder
    number: int
    owed: Sequence[Any]
    """Blocks or trials, as the method has them; empty where a search finds out what to measure."""
    every: int
    """Blocks of the whole run."""


@dataclass(frozen=True, slots=True)
class Sitting:
    """A part under way: the bed stands, and what happens is told to the log and the screen."""

    part: Part
    site: Site
    cores: Cores
    instrument: str
    log: Log
    screen: Screen
    emulators: Emulators

    @property
    def plan(self) -> Plan:
        """What is asked."""
        return self.part.plan

    def records(self, host: HostName) -> Path:
        """Where programs of a host write their records."""
        return self.site.bed.backend.folder(host, self.part.folder.records)

    @property
    def fifo(self) -> bool:
        """Whether real-time priority is tried; where it is not permitted, it goes without."""
        return wants_fifo(self.plan) and not self.site.simulated


def wants_fifo(plan: Plan) -> bool:
    """Whether real-time priority is tried for the ends of this plan's streams and probes."""
    asked = plan.host.fifo
    return asked if asked is not None else plan.study.method not in RESTLESS or is_restful(plan)


RESTFUL_PPS = 2_000.0
"""Between frames that are no closer than this a sender sleeps."""


def is_restful(plan: Plan) -> bool:
    """Whether every stream of a plan leaves its sender time to sleep."""
    rates = [rate.pps(max(plan.stream.sizes)) for rate in plan.stream.rates]
    steady = all(schedule in ("regular", "poisson") for schedule in plan.stream.schedule)
    return steady and not any(plan.stream.load) and all(pps is not None and pps <= RESTFUL_PPS for pps in rates)


def require_as_asked(plan: Plan, ready: dict[str, Any]) -> None:
    """Refuse to go on without the real-time priority that was asked for by name."""
    if plan.host.fifo and not ready["fifo"]:
        raise MachineError("host.fifo = true, but real-time priority is not permitted: run as root, or set it to auto")


def without_event(answer: dict[str, Any]) -> dict[str, Any]:
    """An instrument's answer as fields of a log entry, which has an event of its own."""
    return {key: value for key, value in answer.items() if key != "event"}
