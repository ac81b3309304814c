"""What an instance of a link or a device is worth: in one bed, what its second link differs by from its first.

Of streams a path's trials are spread over both links of its kind (`plan.second_links`), and the log tells which each
took; where the A/A control is a path of the plan, it is the second direct link. One difference a round, of the mean of
each link's visits, over all cells that both have; delays and shares in their unit, rates as a share of their mean.

Rows: instance_difference (pooled; of the direct link the A/A control) and, of several beds, between_instances (sd): the
standard deviation of one instance, as of probes (`pairs`). Does not say whether a difference matters.
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
    """Differences, and over how many beds each is."""

    pairs: Pairs
    beds_each: int


CONTROL_LEVEL = 0.999
"""Of the A/A control over several beds, whose interval exists at any level from three beds on."""


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
    for path, cell in sorted(second.keys() & first.keys()):
        found.setdefault(path, []).append(differences(second[path, cell], first[path, cell]))
    pooled = {path: over_cells([one for one in several if one]) for path, several in found.items()}
    return {path: (values_of(pooled[path]), sessions_of_pairs(pooled[path])) for path in sorted(pooled) if pooled[path]}


def taken_in_turns(of: pl.DataFrame) -> Turns:
    """Differences of values of which each was measured over one link: a search, a transfer; free of beds and groups.

    `of`: session, second, group, value. Only what is alike is in one group. Where most beds have groups over both
    links, these alone count, each as a share of its mean. Else beds go by pairs: what the one measured over its
    second link, the other measured over its first. Such a difference has that of the two beds in it, with the
    opposite sign in a group that went the other way about, so one of each kind make a value. What has no partner is
    left out.
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
    """Differences with the number of their pair of beds: each bed goes with the first before it that has the others."""
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
    """Half the sum of what a group's links differ by there, and of what those of another group do back."""
    ways: tuple[list[float], list[float]] = ([], [])
    for group in one:
        there, back = one[group], other.get(group, {})
        if len(there) == len(back) == 1 and there.keys() != back.keys():
            value = {**there, **back}
            ways[True in there].append(_share(value[True], value[False]))
    return [(there + back) / 2 for there, back in zip(*ways, strict=False)]


def _share(second: float, first: float) -> float:
    """A difference as a share of the mean of both."""
    return 2 * (second - first) / (second + first)


def instance_rows(run: Run, found: Mapping[str, Pairs], unit: str, what: str, beds_each: int = 1) -> list[Row]:
    """What two links of a kind differ by, and how far single ones do; `what` names the figure in their source.

    `beds_each`: over how many beds a session's differences are, which then is one of the row's sessions. One bed's
    difference has two instances in it, and so twice the variance of one; half the sum of two beds' differences has
    that of one.
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
    """Two direct links that differ far beyond chance over several beds: the A/A control where no path of a plan is it.

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
