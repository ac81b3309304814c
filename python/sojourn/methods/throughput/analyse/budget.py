"""The uncertainty budget of the received rates in the sentence: those of each device with the smallest frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis.rate_budget import received_budget
from sojourn.analysis.run import A_A, DIRECT

if TYPE_CHECKING:
    from sojourn.analysis.budget import Stated
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study


RATES = ("mean", "at_least")
"""The possible statistics of a rate's row; rows with other statistics are additional."""


def budgets(run: Run, study: Study) -> list[Stated]:
    """Return one budget for each device; without a device, that of the direct link."""
    best = leading(study.rows)
    return [received_budget(run, study.rows, best[one]) for one in run.devices if one in best]


def leading(rows: list[Row]) -> dict[str, Row]:
    """Return the highest rate of each device with the smallest frames that were sent."""
    through = [row for row in rows if row.quantity == "throughput_pps" and row.statistic in RATES and row.device != A_A]
    through = [row for row in through if row.device != DIRECT] or through
    size = min((row.factors.frame_bytes or 0 for row in through), default=0)
    ranked = sorted(through, key=lambda row: row.value.estimate)
    return {row.device: row for row in ranked if row.factors.frame_bytes == size}
