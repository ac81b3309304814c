"""The result of a method for a run: its rows, findings, tested hypotheses, samples, and its sentence.

Every method is a module with a `study(run)` that returns this; the package's `METHODS` names them. The dispatcher marks
the rows with the findings, judges, and writes; a method does none of that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import polars as pl

    from sojourn.analysis.budget import Stated
    from sojourn.analysis.finding import Finding
    from sojourn.analysis.hypotheses import Outcome
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.analysis.samples import Sample


@dataclass(frozen=True, slots=True)
class Study:
    """The result of a method: `sentence` has no full stop, `samples` are written under their names."""

    rows: list[Row]
    findings: list[Finding]
    sentence: str
    hypotheses: list[Outcome] = field(default_factory=list)
    samples: dict[str, pl.DataFrame] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)
    """Configured against measured values, each check with its verdict (`analysis.checks`)."""
    headline: Row | None = None
    """The row of the measurand that the sentence begins with, if the method has one; else the pooled figure counts."""


class Method(Protocol):
    """A module that makes a study of a run, and states the budgets of its headline figures.

    A method without a headline figure has no `budgets`, one without samples no `SAMPLES`.
    """

    SAMPLES: dict[str, Sample]
    """The declarations of the study's samples."""

    def study(self, run: Run) -> Study:
        """Return the method's results for the run."""

    def budgets(self, run: Run, study: Study) -> list[Stated]:
        """Return the uncertainty budgets of the headline figures of `study`."""
