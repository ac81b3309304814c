"""What a device adds: differences of mean round-trip times, paired within rounds, halved to one way.

The unit is the pair: (device - reference) of one cell in one round, each the average of its visits, over both instances
where the device has a twin. A figure is the arithmetic mean of pairs: over sessions where the run has several beds,
each session's mean being one value; Hodges and Lehmann's pseudomedian is reported too. "pooled" first averages a
round over all its cells. Half a round trip is one way: with equal sizes both ways it is the device's latency at that
size. For request-response it is the mean of its latencies at request and response size, which for a device with a
constant plus a cost per byte is its latency at the mean of both sizes. The whole extra round trip of request-response
is also reported as `device_round_trip`; the cost of each of a device's counted items (such as rules) as
`device_latency_each`. A difference of medians is called a shift; no other quantile is subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn import devices
from sojourn.analysis.factors import in_common
from sojourn.analysis.rows import Row
from sojourn.analysis.run import A_A, DIRECT, against
from sojourn.analysis.sessions import NO_SESSION, Figure, across, beside_latency, by_session, figure_of
from sojourn.statistics.discovery import benjamini_hochberg
from sojourn.statistics.interval import Interval, student_t
from sojourn.statistics.signed_rank import hodges_lehmann

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.analysis.run import Run
    from sojourn.statistics.line import Over

CONTROL_LEVEL = 0.999
"""The A/A control is doubtful where its interval of this level excludes zero: once in a thousand runs by chance."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """Each device's round-trip times per cell (rows) and round (columns), averaged over visits; NaN where missing."""

    cells: list[int]
    devices: list[str]
    session: NDArray[np.int64]
    """The session of each round; all 0 where the run has one bed."""
    mean: dict[str, NDArray[np.float64]]
    median: dict[str, NDArray[np.float64]]
    variance: dict[str, NDArray[np.float64]]
    probes: dict[str, NDArray[np.float64]]
    instances: dict[str, NDArray[np.float64]]
    """The mean over the second instance minus that over the first."""
    reference: str | None = None
    """The device that the plan states as the others' reference."""

    def one_way(self, device: str, reference: str | None) -> NDArray[np.float64]:
        """Return half the (extra) round trip per cell and round."""
        whole = self.mean[device]
        return whole / 2 if reference is None else (whole - self.mean[reference]) / 2

    @property
    def over(self) -> Over:
        """The estimator of an interval over rows: Student's t for sessions, which are averages of rounds."""
        beds = {one for one in self.session.tolist() if one != NO_SESSION}
        return student_t if len(beds) > 1 else hodges_lehmann

    def by_session(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows of rounds as means of sessions if the run has several; rows with a gap are left out first."""
        whole = ~np.isnan(values).any(axis=1) & (self.session != NO_SESSION)
        rows, session = values[whole], self.session[whole]
        return by_session(rows, session) if len(np.unique(session)) > 1 else rows

    def pairs(self) -> list[tuple[str, str]]:
        """Return every (device, reference) that can be subtracted, a/a first."""
        return against(self.devices, self.reference)

    def counted(self, device: str, reference: str | None, used: NDArray[np.bool_]) -> int:
        """Return the number of probes behind the pairs in `used`."""
        paths = [device] if reference is None else [device, reference]
        return int(sum(np.nansum(np.where(used, self.probes[path], 0)) for path in paths))


def rounds_of(run: Run) -> Rounds:
    """Return block means, averaged over the visits of a round; a round without one of a device's visits has no value
    for it.

    Of a run of several sessions, a round that began on one bed and ended on another has no value either.
    """
    instance, visit = pl.col("instance"), ("device", "cell", "round", "visit", "instance")
    blocks = pl.concat(
        probes.drop_nulls("rtt").group_by(visit).agg(*_FIGURES_OF_BLOCKS, pl.col("part").first())
        for probes in run.path_by_path(*visit, "part", "rtt")
    ).sort(visit)
    visits = blocks["visit"].n_unique()
    session = _session_of_rounds(run, blocks)
    whole = (
        blocks.group_by("device", "cell", "round")
        .agg(
            pl.col("mean", "median", "variance").mean(),
            pl.col("n").sum(),
            (pl.col("mean").filter(instance == 2).mean() - pl.col("mean").filter(instance == 1).mean()).alias("apart"),
            pl.len().alias("blocks"),
        )
        .join(blocks.group_by("device").agg(instance.n_unique().alias("instances")), on="device")
        .filter(pl.col("blocks") == visits * pl.col("instances"), pl.col("round").is_in(list(session)))
    )
    cells, devices = list(run.cells), run.devices
    width = int(whole["round"].to_numpy().max()) + 1 if whole.height else 0
    of_rounds = np.array([session.get(one, NO_SESSION) for one in range(width)], dtype=np.int64)
    mean, median, variance, probes, apart = (_matrices(whole, one, cells, devices, width) for one in _COLUMNS)
    return Rounds(cells, devices, of_rounds, mean, median, variance, probes, apart, run.reference)


_FIGURES_OF_BLOCKS = (
    pl.col("rtt").mean().alias("mean"),
    pl.col("rtt").median().alias("median"),
    pl.col("rtt").var().alias("variance"),
    pl.len().alias("n"),
)
_COLUMNS = ("mean", "median", "variance", "n", "apart")


def _session_of_rounds(run: Run, blocks: pl.DataFrame) -> dict[int, int]:
    """Return the session of each round that has one."""
    parts = blocks.group_by("round").agg(pl.col("part").min().alias("first"), pl.col("part").max().alias("last"))
    several = run.sessions > 1
    return {
        round_: first if several else 0
        for round_, first, last in parts.select("round", "first", "last").iter_rows()
        if first == last or not several
    }


def _matrices(
    frame: pl.DataFrame, column: str, cells: list[int], devices: list[str], width: int
) -> dict[str, NDArray[np.float64]]:
    matrices = {device: np.full((len(cells), width), np.nan) for device in devices}
    place = {cell: row for row, cell in enumerate(cells)}
    for device, cell, round_, value in frame.select("device", "cell", "round", column).iter_rows():
        if value is not None:
            matrices[device][place[cell], round_] = value
    return matrices


def latency_rows(run: Run, rounds: Rounds) -> list[Row]:
    """Return every device's latency per cell and pooled, its shift, variance, and the A/A control."""
    rows = []
    for device, reference in rounds.pairs():
        per_cell = [_cell_rows(run, rounds, device, reference, row) for row in range(len(rounds.cells))]
        rows += [row for several in per_cell for row in several]
        tell_q_values(rounds, [several[0] for several in per_cell if several])
        rows += _pooled_rows(run, rounds, device, reference)
    return [*rows, *_instance_rows(run, rounds)]


def pooled(rounds: Rounds, device: str, reference: str, level: float = 0.95) -> Figure:
    """Return the latency over all cells: per round the average over cells, then the mean over rounds.

    The A/A control pools every pair instead: all its cells have the same true difference, zero.
    """
    differences = rounds.one_way(device, reference)
    if device == A_A:
        return figure_of(differences.ravel(), np.tile(rounds.session, len(differences)), level)
    averages = differences.mean(axis=0) if len(differences) else np.empty(0)
    return figure_of(np.asarray(averages, dtype=np.float64), rounds.session, level)


def resolution(rounds: Rounds) -> Interval | None:
    """Return the bed's resolution: the largest size, in ns one way, that the pooled A/A difference may have at 95 %.

    None without an A/A control or with too few pairs for an interval.
    """
    if A_A not in rounds.devices or DIRECT not in rounds.devices:
        return None
    return resolution_of(pooled(rounds, A_A, DIRECT).mean)


def resolution_of(control: Interval) -> Interval | None:
    """Return the end of the interval of the A/A difference that is farther from zero; None without an interval."""
    if control.low is None or control.high is None:
        return None
    return Interval(max(abs(control.low), abs(control.high)), None, None, control.level, control.n)


def doubtful_control(rounds: Rounds) -> Interval | None:
    """Return the A/A difference if it is significantly different from zero, else None."""
    if A_A not in rounds.devices or DIRECT not in rounds.devices:
        return None
    found = pooled(rounds, A_A, DIRECT, CONTROL_LEVEL).mean
    return found if found.excludes(0) else None


def _cell_rows(run: Run, rounds: Rounds, device: str, reference: str, row: int) -> list[Row]:
    """Return one cell's latency, its parts within and between beds, its shift and variance."""
    cell = rounds.cells[row]
    differences = rounds.one_way(device, reference)[row]
    used = ~np.isnan(differences)
    if not used.any():
        return []
    mask = np.zeros(rounds.mean[device].shape, dtype=np.bool_)
    mask[row] = used
    probes = rounds.counted(device, reference, mask)
    latency = figure_of(differences, rounds.session)
    shift = (rounds.median[device] - rounds.median[reference])[row]
    variance = (rounds.variance[device] - rounds.variance[reference])[row] / 2
    figures = [
        ("device_latency", "mean", latency.mean, "ns"),
        *beside_latency(latency),
        ("rtt_shift", "p50", figure_of(shift, rounds.session).mean, "ns"),
        ("device_latency_variance", "variance", figure_of(variance, rounds.session).mean, "ns^2"),
    ]
    if reference == DIRECT and (each := latency_of_each(rounds, device, row)) is not None:
        figures.append(("device_latency_each", "mean", each.mean, "ns"))
    if run.cells[cell].payload_bytes != run.cells[cell].response_payload_bytes:
        figures.append(("device_round_trip", "mean", figure_of(2 * differences, rounds.session).mean, "ns"))
    rows = [
        Row(device, quantity, statistic, value, unit, reference, run.cells[cell], cell, probes,
            sessions=latency.sessions)
        for quantity, statistic, value, unit in figures
        if value.n
    ]  # fmt: skip
    return [*rows, *_model_sd(rows)]


def latency_of_each(rounds: Rounds, device: str, row: int) -> Figure | None:
    """Return the cost of each counted item of a device (`bridge:rules*200`): its latency over its mode without them.

    None for devices without a count, and where the other mode was not measured. `row` is the cell's.
    """
    known, without = devices.known(device), devices.variant_of(device)
    if known is None or not known.count or without not in rounds.devices:
        return None
    return figure_of(rounds.one_way(device, without)[row] / known.count, rounds.session)


def _model_sd(rows: list[Row]) -> list[Row]:
    """Return the device's own standard deviation, assuming independent delays of device and host; `source` says so."""
    found = next((row for row in rows if row.quantity == "device_latency_variance"), None)
    if found is None:
        return []
    value = found.value
    low, high = value.low, value.high
    root = Interval(
        max(value.estimate, 0) ** 0.5,
        None if low is None else max(low, 0) ** 0.5,
        None if high is None else max(high, 0) ** 0.5,
        value.level,
        value.n,
    )
    row = Row(found.device, "device_latency", "sd", root, "ns", found.reference, found.factors, found.cell)
    row.probes, row.source = found.probes, "model: independent delays, var(device) = var(with) - var(without)"
    row.sessions = found.sessions
    return [row]


def _pooled_rows(run: Run, rounds: Rounds, device: str, reference: str) -> list[Row]:
    found = pooled(rounds, device, reference)
    if not found.mean.n:
        return []
    used = ~np.isnan(rounds.one_way(device, reference))
    if device != A_A:
        used &= used.all(axis=0)
    common = in_common(run.cells.values())
    probes = rounds.counted(device, reference, used)
    sessions = found.sessions
    rows = [
        Row(device, "device_latency", "pooled", found.mean, "ns", reference, common, None, probes, sessions=sessions)
    ]
    bed = resolution_of(found.mean)
    if device == A_A and bed is not None:
        rows.append(Row(A_A, "resolution", "pooled", bed, "ns", DIRECT, common, None, probes, sessions=sessions))
    return rows


def _instance_rows(run: Run, rounds: Rounds) -> list[Row]:
    """Return the variation between instances of a link or a device in one bed, one way: the standard deviation of one.

    Of the direct link, the A/A control is the other instance.
    """
    rows = []
    for device in rounds.devices:
        if device == A_A and not run.has_twins:
            continue
        second_less_first = rounds.mean[device] - rounds.mean[DIRECT] if device == A_A else rounds.instances[device]
        averages = second_less_first.mean(axis=0) / 2
        used = ~np.isnan(averages)
        found = across(averages[used], rounds.session[used]) if used.any() else None
        if found is not None:
            apart = found.between.scaled(0.5**0.5)
            common = in_common(run.cells.values())
            rows.append(Row(DIRECT if device == A_A else device, "between_instances", "sd", apart, "ns", None, common))
            rows[-1].sessions = found.mean.n
    return rows


def tell_q_values(rounds: Rounds, rows: list[Row]) -> None:
    """Set on the latencies of cells the q-values of their difference from zero, over all cells."""
    if rows:
        cells = [rounds.one_way(row.device, row.reference)[rounds.cells.index(row.cell or 0)] for row in rows]
        every = zip(rows, (figure_of(d, rounds.session).p for d in cells), strict=True)
        judged = [(row, p) for row, p in every if p is not None]
        if judged:
            q_values = benjamini_hochberg(np.array([p for _, p in judged]))
            for (row, _), q in zip(judged, q_values, strict=True):
                row.q_value = float(q)
