"""What one session of a run is: its plan, what it owes, where it writes, and the place where it is done.

Holds what every method needs, and does nothing by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sojourn.bed.hosts import HostName
    from sojourn.conduct.archive import Log
    from sojourn.conduct.cores import Cores
    from sojourn.conduct.emulators import Emulators
    from sojourn.conduct.progress import Screen
    from sojourn.conduct.site import Site
    from sojourn.plan import Plan
    from sojourn.plan.trial import Trial
    from sojourn.records import RunFolder


@dataclass(frozen=True, slots=True)
class Part:
    """One session of a run: what it is to measure, and where it writes."""

    plan: Plan
    folder: RunFolder
    number: int
    owed: Sequence[Trial[Any]]
    every: int
    """Trials of the whole run."""
    bed: int = 0
    """The number of the bed on which it is done."""
    to_go: int = 0
    """Trials that the run still owed when it began, this session's and those of all after it."""
    holds: frozenset[str] = frozenset()
    """What any bed of the run holds."""


@dataclass(frozen=True, slots=True)
class Session:
    """A part under way: the bed stands, and what happens is written to the log and the screen."""

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

    def records(self, host: HostName | None) -> Path:
        """Where programs of a host, or those beside all of them, write their records."""
        return self.site.bed.backend.folder(host, self.part.folder.records)

    @property
    def fifo(self) -> bool:
        """Whether real-time priority is tried; where it is not permitted, it goes without."""
        return wants_fifo(self.plan) and not self.site.simulated


def wants_fifo(plan: Plan) -> bool:
    """Whether real-time priority is tried for the ends of this plan's streams and probes.

    The kernel lets no real-time program run without rest, and a sender that must then take it is milliseconds late: one
    that never sleeps goes without, unless it is asked for by name (`host.fifo = true`).
    """
    asked: bool | None = plan.host.fifo
    return asked if asked is not None else plan.ask.restful(plan)


def require_as_asked(plan: Plan, ready: dict[str, Any]) -> None:
    """Refuse to go on without the real-time priority that was asked for by name."""
    if plan.host.fifo and not ready["fifo"]:
        raise MachineError("host.fifo = true, but real-time priority is not permitted: run as root, or set it to auto")


def without_event(answer: dict[str, Any]) -> dict[str, Any]:
    """An instrument's answer as fields of a log entry, which has an event of its own."""
    return {key: value for key, value in answer.items() if key != "event"}
