"""Method "departures": who sends when it says, judged by a capture at the far end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis.departures import departure_rows, on_clock_of_a, trials_of
from sojourn.analysis.samples import DEPARTURES, samples_of_departures
from sojourn.analysis.study import Study
from sojourn.analysis.tester import departures_findings
from sojourn.analysis.verdict import departures_sentence

if TYPE_CHECKING:
    from sojourn.analysis.run import Run

SAMPLES = {"pacing_errors": DEPARTURES}


def study(run: Run) -> Study:
    """Return intervals and pacing errors of every sender."""
    judged = on_clock_of_a(run)
    run = judged.run
    trials = trials_of(run, judged.clocks)
    rows = departure_rows(trials)
    findings = [*departures_findings(run), *judged.findings()]
    return Study(rows, findings, departures_sentence(run, rows), samples=samples_of_departures(trials))
