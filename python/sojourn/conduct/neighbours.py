"""What else ran on the machine meanwhile: processor time of others, and what a hypervisor took away.

What a run itself has used, its bed tells (`Backend.usage`). It judges by two thresholds only; what it does to a figure
is for the analysis to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sojourn.bed.backend import Usage

OTHERS_CORES = 0.15
"""An idle system's own work stays below this many cores."""

STEAL_CORES = 0.02


class Contention(NamedTuple):
    """How many cores others had on average."""

    others_cores: float
    steal_cores: float
    processors: int

    @property
    def is_worth_telling(self) -> bool:
        """Whether it may have been felt."""
        return self.others_cores > OTHERS_CORES or self.steal_cores > STEAL_CORES

    @property
    def sentence(self) -> str:
        """For a person."""
        words = f"other programs took {self.others_cores:.1f} of this machine's {self.processors} cores during the run"
        stolen = f", and its host took {self.steal_cores:.2f}" if self.steal_cores > STEAL_CORES else ""
        return words + stolen


def contention(before: Usage, after: Usage) -> Contention:
    """What others had between two looks."""
    seconds = max(after.at - before.at, 1e-3)
    others = (after.busy - before.busy) - (after.ours - before.ours)
    return Contention(max(0.0, others) / seconds, max(0.0, after.steal - before.steal) / seconds, after.processors)
