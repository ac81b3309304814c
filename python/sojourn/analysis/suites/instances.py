"""The variation between instances of a device by searches: in each bed half of the sizes use its second link.

A search is too long to be repeated over both links, so two beds are compared, of which each searched over the second
link the sizes that the other searched over the first. With one size it is unknown: the variation between instances is
then contained in the scatter between beds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.analysis.instances import instance_rows, taken_in_turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.analysis.suites import Sought

VALUES = {"device": pl.String, "session": pl.Int64, "second": pl.Boolean, "group": pl.String, "value": pl.Float64}


def link_rows(run: Run, sought: Sequence[Sought]) -> list[Row]:
    """Return the rows of each device that was searched over two links, by its rates of the strictest goal."""
    strictest = min((one.goal for one in sought), default=0.0)
    values = pl.DataFrame(
        [
            (one.device, bed, link == 2, f"{one.quantity} {one.cell}", bounds.lower)
            for one in sought
            if one.goal == strictest and not one.is_tester_limited
            for bounds, bed, link in zip(one.bounds, one.sessions, one.links, strict=True)
            if bounds.lower and bounds.upper
        ],
        schema=VALUES,
        orient="row",
    )
    rows: list[Row] = []
    for (device,), here in values.partition_by("device", as_dict=True, maintain_order=True).items():
        found = taken_in_turns(here)
        if len(found.pairs[0]):
            what = "rates of the strictest goal, as shares of their size's"
            rows += instance_rows(run, {str(device): found.pairs}, "1", what, found.beds_each)
    return rows
