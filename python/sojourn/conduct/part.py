"""One session of a run: its plan, its remaining trials, its folder, and its bed.

Holds what every method needs, and does nothing by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sojourn.bed.hosts import HostName
    from sojourn.conduct.archive import Log
    from sojourn.conduct.bench import Clock
    from sojourn.conduct.cores import Cores
    from sojourn.conduct.emulators import Emulators
    from sojourn.conduct.progress import Screen
    from sojourn.conduct.site import Site
    from sojourn.plan import Plan
    from sojourn.plan.trial import Trial
    from sojourn.records import RunFolder


@dataclass(frozen=True, slots=True)
class Part:
    """One session of a run: its trials, and its folder."""

    plan: Plan
    folder: RunFolder
    number: int
    owed: Sequence[Trial[Any]]
    every: int
    """The number of trials of the whole run."""
    bed: int = 0
    """The number of its bed."""
    to_go: int = 0
    """The number of trials that the run still had to measure when this session began, later sessions included."""
    holds: frozenset[str] = frozenset()
    """The properties that some bed of the run holds."""


@dataclass(frozen=True, slots=True)
class Session:
    """A part in progress: its bed exists, and events go to the log and the screen."""

    part: Part
    site: Site
    cores: Cores
    instrument: str
    log: Log
    screen: Screen
    emulators: Emulators
    clock: Clock
    since: list[Trial[Any]] = field(default_factory=list)
    """The trials of a batch since a path was last put in place (`turns`)."""
    learned: dict[str, float] = field(default_factory=dict)
    """When the receivers of each path last sent, so that its bridges learned their addresses."""

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.part.plan

    def records(self, host: HostName | None) -> Path:
        """Return the folder where programs of a host (None: of no host) write their records."""
        return self.site.bed.backend.folder(host, self.part.folder.records)

    @property
    def fifo(self) -> bool:
        """Whether to try real-time priority; if it is not permitted, programs run without."""
        return wants_fifo(self.plan) and not self.site.simulated


def wants_fifo(plan: Plan) -> bool:
    """Return whether to try real-time priority for the ends of this plan's streams and probes.

    The kernel throttles real-time programs that never sleep, which delays a sender by milliseconds: such programs run
    without it, unless the plan sets it explicitly (`host.fifo = true`).
    """
    asked: bool | None = plan.host.fifo
    return asked if asked is not None else plan.ask.restful(plan)


def require_as_asked(plan: Plan, ready: dict[str, Any]) -> None:
    """Refuse to go on without real-time priority if the plan sets it explicitly."""
    if plan.host.fifo and not ready["fifo"]:
        raise MachineError("host.fifo = true, but real-time priority is not permitted: run as root, or set it to auto")


def without_event(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an instrument's answer as fields of a log entry, without its own event."""
    return {key: value for key, value in answer.items() if key != "event"}
