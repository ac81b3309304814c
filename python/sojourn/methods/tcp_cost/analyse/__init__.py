"""Method "tcp-cost": the cost of the log of TCP's state, from slices with the log beside slices without it.

The unit is the pair of adjacent slices. Its value is the logarithm of the ratio of their throughputs, so that twice and
half the throughput are equally far from no effect. Slow variation over a run affects both slices of a pair; because the
order within a pair is drawn and then reversed, variation within pairs cancels too. Estimates are Hodges and Lehmann's
with the exact signed-rank interval; of a run of several sessions they are means over beds, with Student's interval, and
ratios are combined bed by bed.

Samples beside what every method writes:

- `cost_ratios`: a row for each cell: traffic (path, flows), where, mode, packets_per_log, pairs; throughput with it
  over without it (ratio, ratio_low, ratio_high), both throughputs, the processors' time per bit likewise (cpu_…),
  cores that the log's own process took, packets logged and skipped, skipped packets a minute per Mbit/s.
- `cost_traffic`: for each traffic the throughput without the log, and the difference between slices without it.
- `cost_programs`: time per packet in the log's kernel programs, minus that of null programs; null factors: pooled.
- `cost_skips`: skipped packets by reason and cell.
- `cost_collapses`: for each setting and cell collapses of congestion windows with the setting and without it (off_…):
  how many, the share of slices with any, pairs with more and with fewer, p of the sign test times the number of
  settings; null factors: all cells.
- `cost_slices`: every slice: elapsed_s, and its throughput over that of its traffic without the log.
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

__all__ = ["budgets", "study"]


def study(run: Run) -> Study:
    """Return throughput ratios, skipped packets, CPU time, time per packet, published hypotheses and findings."""
    seen = seen_of(run)
    cells, traffic = ratios.cells_of(seen), ratios.traffic_of(seen)
    spent = programs.spent(seen)
    collapsed = collapses.collapses(seen)
    samples = {
        "cost_ratios": ratios.frame(cells, ratios.CELL_SCHEMA),
        "cost_traffic": ratios.frame(traffic, ratios.TRAFFIC_SCHEMA),
        "cost_programs": ratios.frame(spent, programs.SCHEMA),
        "cost_skips": ratios.skips(seen),
        "cost_collapses": collapsed,
        "cost_slices": ratios.over_time(seen),
    }
    found = [*judged.findings(run, seen, cells), *collapses.findings(collapsed)]
    hypotheses = judged.evaluate(run, cells)
    rows = [*rows_of(cells, traffic, spent), *link_rows(run, seen)]
    return Study(rows, found, judged.sentence(cells, spent), hypotheses, samples)
