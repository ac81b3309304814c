"""The uncertainty budget of what a device adds one way; of a run without a device, of the delay in the headline.

The measurand is the mean one-way delay over the device minus that over the wire, in the plan's reference cell; without
a wire minus that over the direct link, over all cells; without a device the least median delay of any cell. The least
time between frames has no budget: it is a bracket between two times that were tried, without a level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis.hypotheses import main_device
from sojourn.analysis.stream_budget import delay_budget
from sojourn.analysis.verdict import find

if TYPE_CHECKING:
    from sojourn.analysis.budget import Stated
    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study


def budgets(run: Run, study: Study) -> list[Stated]:
    """Return the budget of the sentence's first figure; none where no delay was measured."""
    device = main_device(run.devices)
    added = study.headline or find(study.rows, device, "device_latency", "pooled")
    if device is not None and added is not None:
        return [
            delay_budget(run, study.rows, f"Latency of {device} over {added.reference}", added, what="pairs of trials")
        ]
    delays = [row for row in study.rows if (row.quantity, row.statistic) == ("one_way_delay", "p50")]
    if not delays:
        return []
    least = min(delays, key=lambda row: row.value.estimate)
    return [delay_budget(run, study.rows, f"Median one-way delay over {least.device}", least, paths=1)]
