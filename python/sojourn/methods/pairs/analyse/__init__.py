"""Method "pairs": what a device adds to a round trip, by pairs with and without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis.hypotheses import evaluate_hypotheses
from sojourn.analysis.measurand import measurand
from sojourn.analysis.pairs import doubtful_control, latency_rows, resolution, rounds_of
from sojourn.analysis.paths import path_rows
from sojourn.analysis.samples import OF_PAIRS, samples_of_pairs
from sojourn.analysis.sizes import by_size, size_rows
from sojourn.analysis.soundness import soundness_findings
from sojourn.analysis.study import Study
from sojourn.analysis.surroundings import SESSION_MACHINE, session_machine
from sojourn.analysis.tester import stamp_sources, tester_findings
from sojourn.methods.pairs.analyse import slope
from sojourn.methods.pairs.analyse.budget import budgets
from sojourn.methods.pairs.analyse.by_session import SESSION_PATHS, session_paths
from sojourn.methods.pairs.analyse.directions import (
    asymmetry_findings,
    direction_rows,
    directions_of,
    turnaround_findings,
)
from sojourn.methods.pairs.analyse.headline import latency_sentence
from sojourn.methods.pairs.analyse.shape import shape_findings

if TYPE_CHECKING:
    from sojourn.analysis.run import Run

__all__ = ["SAMPLES", "budgets", "study"]

SAMPLES = OF_PAIRS | {"session_paths": SESSION_PATHS, "session_machine": SESSION_MACHINE}


def study(run: Run) -> Study:
    """Return latencies, their lines over size, the figures of each path, and the published hypotheses."""
    rounds = rounds_of(run)
    fits = by_size(run, rounds)
    rows = [*latency_rows(run, rounds), *size_rows(fits), *path_rows(run)]
    head = measurand(run, rows)
    ways = directions_of(run, rounds)
    rows += direction_rows(run, rounds, ways, head)
    bed = resolution(rounds)
    bed_ns = 0.0 if bed is None else bed.estimate
    findings = [
        *tester_findings(run, visits=2),
        *soundness_findings(rows, bed_ns, doubtful_control(rounds)),
        *shape_findings(run, rounds, bed_ns),
        *asymmetry_findings(rounds, ways, rows, bed_ns),
        *turnaround_findings(rows, bed_ns),
    ]
    stamp_sources(run, rows)
    hypotheses = evaluate_hypotheses(run, rounds, bed_ns, slope.HYPOTHESES)
    samples = {
        **samples_of_pairs(run, rounds, fits),
        "session_paths": session_paths(run),
        "session_machine": session_machine(run),
    }
    return Study(rows, findings, latency_sentence(run, rows, findings), hypotheses, samples, headline=head)
