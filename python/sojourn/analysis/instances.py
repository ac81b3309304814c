"""What an instance of a link or a device is worth: in one bed, what its second link differs by from its first.

Of streams a path's trials are spread over both links of its kind (`plan.second_links`), and the log tells which each
took; where the A/A control is a path of the plan, it is the second direct link. One difference a round, of the mean of
each link's visits, over all cells that both have; delays and shares in their unit, rates as a share of their mean.

Rows: instance_difference (pooled; of the direct link the A/A control) and, of several beds, between_instances (sd): the
standard deviation of one instance, as of probes (`pairs`). Does not say whether a difference matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.factors import in_common
from sojourn.analysis.finding import Finding
from sojourn.analysis.rows import Row
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.sessions import across, beds_counted, middle
from sojourn.analysis.streams import Differences, differences, series, sessions_of_pairs, values_of
from sojourn.analysis.streams import across as over_cells
from sojourn.analysis.wording import micro, percent
from sojourn.statistics.signed_rank import least_pairs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from sojourn.analysis.run import Run

    Pairs = tuple[NDArray[np.float64], NDArray[np.int64]]
    """Differences, and the session of each."""

CONTROL_LEVELS = (0.999, 0.99, 0.95)
"""The A/A control is judged at the highest level that its rounds allow, as where it is a path."""


def apart(run: Run, trials: pl.DataFrame, column: str, cells: Collection[int], *, share: bool) -> dict[str, Pairs]:
    """By path, each round's difference of its second link from its first, over the cells that both have.

    `share`: of the mean over all trials of the cell.
    """
    known = trials.filter(pl.col("cell").is_in(list(cells)), pl.col(column).is_finite())
    is_second = pl.col("block").is_in(sorted(run.second_blocks))
    if run.has_twins and A_A in run.devices:
        is_second |= pl.col("device") == A_A
    known = known.with_columns(is_second.alias("second"), pl.col("device").replace({A_A: DIRECT}))
    of = ("device", "cell", *(one for one in ("port", "node") if one in trials.columns))
    value = pl.col(column) / pl.col(column).mean().over(of) if share else pl.col(column)
    known = known.with_columns(apart=value)
    first, second = (series(known.filter(pl.col("second") == one), "apart") for one in (False, True))
    found: dict[str, list[Differences]] = {}
    for path, cell in second.keys() & first.keys():
        found.setdefault(path, []).append(differences(second[path, cell], first[path, cell]))
    pooled = {path: over_cells([one for one in several if one]) for path, several in found.items()}
    return {path: (values_of(pooled[path]), sessions_of_pairs(pooled[path])) for path in sorted(pooled) if pooled[path]}


def taken_in_turns(of: pl.DataFrame) -> Pairs:
    """Differences of values of which each was measured over one link: a search, a transfer.

    `of`: session, second, group, value. Only what is alike is in one group: a value is taken as a share of the group's
    mean. In a session the first value over the second link is paired with the first over the first, and so on.
    """
    share = of.with_columns(share=pl.col("value") / pl.col("value").mean().over("group") - 1)
    found: list[tuple[float, int]] = []
    for (session,), here in share.partition_by("session", as_dict=True, maintain_order=True).items():
        first, second = (here.filter(pl.col("second") == one)["share"].to_list() for one in (False, True))
        found += [(two - one, int(str(session))) for one, two in zip(first, second, strict=False)]
    return np.array([d for d, _ in found], dtype=np.float64), np.array([s for _, s in found], dtype=np.int64)


def instance_rows(run: Run, found: Mapping[str, Pairs], unit: str, what: str) -> list[Row]:
    """What two links of a kind differ by, and how far single ones do; `what` names the figure in their source."""
    rows = []
    for path, (values, session) in found.items():
        common = in_common(run.cells.values())
        row = Row(path, "instance_difference", "pooled", middle(values, session), unit, None, common)
        rows.append(row)
        row.sessions = beds_counted(session)
        beds = across(values, session) if row.sessions is not None else None
        if beds is not None:
            single = beds.between.scaled(0.5**0.5)
            rows.append(Row(path, "between_instances", "sd", single, unit, None, common, sessions=beds.mean.n))
    for row in rows:
        row.source = f"the second link of a bed and its first, by {what}"
    return rows


def control_findings(found: Mapping[str, Pairs], unit: str) -> list[Finding]:
    """Two direct links that differ far beyond chance: the A/A control of studies without a path for it."""
    if DIRECT not in found:
        return []
    values, session = found[DIRECT]
    level = next((one for one in CONTROL_LEVELS if least_pairs(one) <= len(values)), CONTROL_LEVELS[-1])
    value = middle(values, session, level)
    if not value.excludes(0):
        return []
    size = abs(value.estimate)
    by = micro(size) if unit == "ns" else percent(size)
    said = f"the A/A control differs significantly from zero: two direct links differ by {by}"
    return [Finding("a_a_nonzero", said, size)]
