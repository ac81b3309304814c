"""Other load on the machine: processor time of other programs, and time that a hypervisor took (steal).

The run's own processor time is from its bed (`Backend.usage`). Only two thresholds are applied here; the effect on a
figure is for the analysis to decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sojourn.bed.backend import Usage

OTHERS_CORES = 0.15
"""The idle load of a system stays below this many cores."""

STEAL_CORES = 0.02


class Contention(NamedTuple):
    """The average number of cores that others used."""

    others_cores: float
    steal_cores: float
    processors: int
    """Of all machines of the bed."""

    @property
    def is_worth_telling(self) -> bool:
        """Whether the measurement may have been affected."""
        return self.others_cores > OTHERS_CORES or self.steal_cores > STEAL_CORES

    @property
    def sentence(self) -> str:
        """The contention as a sentence."""
        words = f"other programs took {self.others_cores:.1f} of {self.processors} cores during the run"
        stolen = f", and a hypervisor took {self.steal_cores:.2f}" if self.steal_cores > STEAL_CORES else ""
        return words + stolen


def contention(before: Usage, after: Usage) -> Contention:
    """Return the contention between two readings."""
    seconds = max(after.at - before.at, 1e-3)
    others = (after.busy - before.busy) - (after.ours - before.ours)
    return Contention(max(0.0, others) / seconds, max(0.0, after.steal - before.steal) / seconds, after.processors)
