"""The variation between instances of a link or a device: in one bed, its second link's difference from its first.

The trials of a path of streams are spread over both links of its kind (`plan.second_links`), and the log names each
trial's link; where the A/A control is a path of the plan, it is the second direct link. There is one difference per
round, of the means of each link's visits, over all cells that both have; delays and shares in their unit, rates
relative to their mean.

Rows: instance_difference (pooled; of the direct link the A/A control) and, of several beds, between_instances (sd): the
standard deviation of one instance, as of probes (`pairs`). The module does not decide whether a difference matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from numpy.typing import NDArray

    from sojourn.analysis.run import Run

    Pairs = tuple[NDArray[np.float64], NDArray[np.int64]]
    """Differences, and the session of each."""


class Turns(NamedTuple):
    """Differences, and the number of beds behind each."""

    pairs: Pairs
    beds_each: int


CONTROL_LEVEL = 0.999
"""The level of the A/A control over several beds, whose interval exists at any level from three beds on."""


def apart(run: Run, trials: pl.DataFrame, column: str, cells: Collection[int], *, share: bool) -> dict[str, Pairs]:
    """Return by path each round's difference of its second link from its first, over the cells that both have.

    `share`: relative to the mean over all trials of the cell.
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
    for path, cell in sorted(second.keys() & first.keys()):
        found.setdefault(path, []).append(differences(second[path, cell], first[path, cell]))
    pooled = {path: over_cells([one for one in several if one]) for path, several in found.items()}
    return {path: (values_of(pooled[path]), sessions_of_pairs(pooled[path])) for path in sorted(pooled) if pooled[path]}


def taken_in_turns(of: pl.DataFrame) -> Turns:
    """Return link differences of values each measured over one link (a search, a transfer), free of beds and groups.

    `of`: session, second, group, value. Values of a group are comparable. Where most beds have groups over both links,
    only these count, each relative to its mean. Otherwise beds are paired: the one measured over its second link a
    group that the other measured over its first. Such a difference includes that of the two beds, with the opposite
    sign in a group of the opposite assignment, so one of each kind is averaged. Groups without a partner are left out.
    """
    beds: dict[int, dict[str, dict[bool, float]]] = {}
    means = of.group_by("session", "group", "second", maintain_order=True).agg(pl.col("value").mean())
    for session, group, second, value in means.drop_nulls().filter(pl.col("value") > 0).iter_rows():
        beds.setdefault(session, {}).setdefault(group, {})[second] = value
    within = [
        (_share(value[True], value[False]), session)
        for session, groups in beds.items()
        for value in groups.values()
        if len(value) > 1
    ]
    has_both = 2 * len({session for _, session in within}) >= len(beds)
    found = within if has_both else list(_by_pairs(beds))
    values = np.array([d for d, _ in found], dtype=np.float64)
    return Turns((values, np.array([s for _, s in found], dtype=np.int64)), 1 if has_both else 2)


def _by_pairs(beds: Mapping[int, Mapping[str, Mapping[bool, float]]]) -> Iterator[tuple[float, int]]:
    """Return differences with the number of their pair of beds; each bed is paired with the first fitting
    earlier one."""
    alone: list[int] = []
    pairs = 0
    for bed in sorted(beds):
        partner = next((one for one in alone if _of_two_beds(beds[one], beds[bed])), None)
        if partner is None:
            alone.append(bed)
            continue
        alone.remove(partner)
        yield from ((value, pairs) for value in _of_two_beds(beds[partner], beds[bed]))
        pairs += 1


def _of_two_beds(one: Mapping[str, Mapping[bool, float]], other: Mapping[str, Mapping[bool, float]]) -> list[float]:
    """Return half the sum of a group's link difference and that of a group with the opposite assignment of links."""
    ways: tuple[list[float], list[float]] = ([], [])
    for group in one:
        there, back = one[group], other.get(group, {})
        if len(there) == len(back) == 1 and there.keys() != back.keys():
            value = {**there, **back}
            ways[True in there].append(_share(value[True], value[False]))
    return [(there + back) / 2 for there, back in zip(*ways, strict=False)]


def _share(second: float, first: float) -> float:
    """Return a difference relative to the mean of both."""
    return 2 * (second - first) / (second + first)


def instance_rows(run: Run, found: Mapping[str, Pairs], unit: str, what: str, beds_each: int = 1) -> list[Row]:
    """Return the rows of the differences of two links, and of single instances; `what` names the figure in their
    source.

    `beds_each` is the number of beds per difference; such a group is one of the row's sessions. One bed's difference
    contains two instances, and so twice the variance of one; half the sum of two beds' differences has the variance of
    one.
    """
    rows = []
    for path, (values, session) in found.items():
        common = in_common(run.cells.values())
        row = Row(path, "instance_difference", "pooled", middle(values, session), unit, None, common)
        rows.append(row)
        counted = beds_counted(session)
        row.sessions = counted
        beds = across(values, session) if counted is not None else None
        if beds is not None:
            single = beds.between.scaled((beds_each / 2) ** 0.5)
            rows.append(Row(path, "between_instances", "sd", single, unit, None, common, sessions=beds.mean.n))
    for row in rows:
        row.source = (
            f"the second link of a bed and its first, by {what}{', over pairs of beds' if beds_each > 1 else ''}"
        )
    return rows


def control_findings(found: Mapping[str, Pairs], unit: str) -> list[Finding]:
    """Return a finding where two direct links differ significantly over several beds: the A/A control of such runs.

    In one bed two instances may well differ by more than the scatter there: that is no fault of the bed.
    """
    if DIRECT not in found or beds_counted(found[DIRECT][1]) is None:
        return []
    value = middle(*found[DIRECT], CONTROL_LEVEL)
    if not value.excludes(0):
        return []
    size = abs(value.estimate)
    by = micro(size) if unit == "ns" else percent(size)
    said = f"the A/A control differs significantly from zero: two direct links differ by {by}"
    return [Finding("a_a_nonzero", said, size)]
