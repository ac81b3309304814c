"""Method "throughput": offered and received rate, and the time between frames, against the frame's size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis.study import Study
from sojourn.analysis.tester import tester_findings

if TYPE_CHECKING:
    from sojourn.analysis.run import Run


def study(run: Run) -> Study:
    """Everything that this method says of the run."""
    return Study([], tester_findings(run), f"{run.study.get('name', 'This run')} was recorded")
