"""Method "tcp-cost": the cost of the log of TCP's state, from slices with the log beside slices without it.

The unit is the pair of adjacent slices. Its value is the logarithm of the ratio of their throughputs, so that twice and
half the throughput are equally far from no effect. Slow variation over a run affects both slices of a pair; because the
order within a pair is drawn and then reversed, variation within pairs cancels too. Estimates are Hodges and Lehmann's
with the exact signed-rank interval; of a run of several sessions they are means over beds, with Student's interval, and
ratios are combined bed by bed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis.study import Study
from sojourn.methods.tcp_cost.analyse import collapses, judged, programs, ratios
from sojourn.methods.tcp_cost.analyse.budget import budgets
from sojourn.methods.tcp_cost.analyse.links import link_rows
from sojourn.methods.tcp_cost.analyse.rows import rows_of
from sojourn.methods.tcp_cost.analyse.seen import seen_of

if TYPE_CHECKING:
    from sojourn.analysis.run import Run

__all__ = ["SAMPLES", "budgets", "study"]

SAMPLES = {
    "cost_ratios": ratios.RATIOS,
    "cost_traffic": ratios.TRAFFICS,
    "cost_programs": programs.PROGRAMS,
    "cost_skips": ratios.SKIPS,
    "cost_collapses": collapses.COLLAPSES,
    "cost_slices": ratios.SLICES,
}


def study(run: Run) -> Study:
    """Return throughput ratios, skipped packets, CPU time, time per packet, published hypotheses and findings."""
    seen = seen_of(run)
    cells, traffic = ratios.cells_of(seen), ratios.traffic_of(seen)
    spent = programs.spent(seen)
    collapsed = collapses.collapses(seen)
    samples = {
        "cost_ratios": ratios.frame(cells, ratios.RATIOS),
        "cost_traffic": ratios.frame(traffic, ratios.TRAFFICS),
        "cost_programs": ratios.frame(spent, programs.PROGRAMS),
        "cost_skips": ratios.skips(seen),
        "cost_collapses": collapsed,
        "cost_slices": ratios.over_time(seen),
    }
    found = [*judged.findings(run, seen, cells), *collapses.findings(collapsed)]
    hypotheses = judged.evaluate(run, cells)
    rows = [*rows_of(cells, traffic, spent), *link_rows(run, seen)]
    return Study(rows, found, judged.sentence(cells, spent), hypotheses, samples)
