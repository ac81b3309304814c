"""A trial: one measurement of one cell over one path, whatever the method. The unit that is measured and resumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from sojourn.devices import twin_of
from sojourn.plan.types import A_A, DIRECT

F = TypeVar("F")
LOG = "log"
"""The purpose of a trial that is recorded in more detail; no figure uses it."""


@dataclass(frozen=True, slots=True)
class Trial(Generic[F]):
    """A block of probes, a stream, a connection, a slice of a log's cost, a search: all of them are trials."""

    block: int
    """Its number in the run, and in every record."""
    device: str
    """The path in the plan; `path` is the link that it uses."""
    round: int
    visit: int
    """The visit of the round to the path: rounds of pairs are mirrored, and have two."""
    cell: int
    """The number of this combination of factors."""
    factors: F
    seed: int = 0
    count: int | None = None
    """Probes, or frames of each sender; None if only the duration ends it."""
    warmup: int = 0
    """The number of first probes that are not evaluated."""
    duration_ns: int = 0
    purpose: str = "measure"
    """measure, qualify, search, warm-up, load, log."""
    own_link: bool = False
    """Whether the A/A control has a link of its own, a twin of the direct one."""
    batch: int = 0
    """Trials of one batch follow each other and share their setup; a run ends early between two batches."""
    second: bool = False
    """Whether it uses the second link of its path's kind: trials are spread over both (`plan.second_links`)."""

    @property
    def path(self) -> str:
        """The link that it uses: the A/A control uses the direct one again, unless it has one of its own."""
        return twin_of(self.first_path) if self.second else self.first_path

    @property
    def first_path(self) -> str:
        """The first link of its kind; throughput and bypass of both links belong to it."""
        return DIRECT if self.device == A_A and not self.own_link else self.device
