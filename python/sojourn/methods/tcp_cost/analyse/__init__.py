"""Method "tcp-cost": what the log of TCP's state costs, slice by slice beside slices without it.

The unit is the pair of adjacent slices; its figure is the logarithm of their throughputs' ratio, so that twice as much
and half as much are equally far from none. What varies over a run slowly does so for both of a pair, and since which
comes first is drawn and turned about, what varies within a pair cancels too. Estimates are Hodges and Lehmann's with
the exact signed-rank interval, as in every study of pairs.

Samples beside what every method writes:

- `cost_ratios`: a row for each cell: traffic (path, flows), where, mode, packets_per_log, pairs; throughput with it
  over without it (ratio, ratio_low, ratio_high), both throughputs, the processors' time per bit likewise (cpu_…),
  cores that the log's own process took, packets logged and skipped, skipped packets a minute per Mbit/s.
- `cost_traffic`: for each traffic what passed without the log, and what slices without it differ by.
- `cost_programs`: nanoseconds a packet of the programs in the kernel, less those of empty ones; null factors: pooled.
- `cost_skips`: skipped packets by reason and cell.
- `cost_slices`: every slice: elapsed_s, its throughput over the traffic's without the log, for the figure over time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis.study import Study
from sojourn.methods.tcp_cost.analyse import judged, programs, ratios
from sojourn.methods.tcp_cost.analyse.rows import rows_of
from sojourn.methods.tcp_cost.analyse.seen import seen_of

if TYPE_CHECKING:
    from sojourn.analysis.run import Run


def study(run: Run) -> Study:
    """Ratios, skips, processors' time, nanoseconds a packet, the published hypotheses and the verdict's reasons."""
    seen = seen_of(run)
    cells, traffic = ratios.cells_of(seen), ratios.traffic_of(seen)
    spent = programs.spent(seen)
    samples = {
        "cost_ratios": ratios.frame(cells, ratios.CELL_SCHEMA),
        "cost_traffic": ratios.frame(traffic, ratios.TRAFFIC_SCHEMA),
        "cost_programs": ratios.frame(spent, programs.SCHEMA),
        "cost_skips": ratios.skips(seen),
        "cost_slices": ratios.over_time(seen),
    }
    found = judged.findings(run, seen, cells)
    hypotheses = judged.evaluate(run, cells)
    return Study(rows_of(cells, traffic, spent), found, judged.sentence(cells, spent), hypotheses, samples)
