"""What a device adds: differences of mean round-trip times, paired within rounds, halved to one way.

The unit is the pair: (device - reference) of one cell in one round, each the average of its two visits. Hodges-Lehmann
runs over the pairs of a cell; "pooled" first averages a round over all its cells. Half a round trip is one way: with
equal sizes both ways it is the device's latency at that size, and for request-response the mean of its latencies at
request and at response size, which for a device of constant plus cost per byte is its latency at the mean of both
sizes. The whole extra round trip of request-response is reported beside it as `device_round_trip`.
A difference of medians is called a shift; no other quantile is subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.factors import in_common
from sojourn.analysis.rows import Row
from sojourn.analysis.run import A_A, DIRECT, against
from sojourn.statistics.discovery import benjamini_hochberg, signed_rank_p
from sojourn.statistics.interval import Interval, student_t
from sojourn.statistics.signed_rank import hodges_lehmann

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.analysis.run import Run

A_A_LEVEL = 0.999


@dataclass(frozen=True, slots=True)
class Rounds:
    """Each device's round-trip times per cell (rows) and round (columns), averaged over visits; NaN where missing."""

    cells: list[int]
    devices: list[str]
    mean: dict[str, NDArray[np.float64]]
    median: dict[str, NDArray[np.float64]]
    variance: dict[str, NDArray[np.float64]]
    probes: dict[str, NDArray[np.float64]]

    def one_way(self, device: str, reference: str | None) -> NDArray[np.float64]:
        """Half the (extra) round trip per cell and round."""
        whole = self.mean[device]
        return whole / 2 if reference is None else (whole - self.mean[reference]) / 2

    def pairs(self) -> list[tuple[str, str]]:
        """Every (device, reference) that can be subtracted, a/a first."""
        return against(self.devices)

    def counted(self, device: str, reference: str | None, used: NDArray[np.bool_]) -> int:
        """How many probes stand behind the pairs in `used`."""
        paths = [device] if reference is None else [device, reference]
        return int(sum(np.nansum(np.where(used, self.probes[path], 0)) for path in paths))


def rounds_of(run: Run) -> Rounds:
    """Block means, averaged over the visits of a round; a round that lacks a visit of a device has no value for it."""
    rtt = pl.col("rtt")
    blocks = (
        run.measured.drop_nulls("rtt")
        .group_by("device", "cell", "round", "visit")
        .agg(rtt.mean().alias("mean"), rtt.median().alias("median"), rtt.var().alias("variance"), pl.len().alias("n"))
    )
    visits = blocks["visit"].n_unique()
    whole = (
        blocks.group_by("device", "cell", "round")
        .agg(
            pl.col("mean", "median", "variance").mean(),
            pl.col("n").sum(),
            pl.col("visit").n_unique().alias("visits"),
        )
        .filter(pl.col("visits") == visits)
    )
    cells, devices = list(run.cells), run.devices
    width = int(whole["round"].to_numpy().max()) + 1 if whole.height else 0
    return Rounds(cells, devices, *(_matrices(whole, one, cells, devices, width) for one in _COLUMNS))


_COLUMNS = ("mean", "median", "variance", "n")


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
    """Every device's latency per cell and pooled, its shift, variance, and the A/A control."""
    rows = []
    for device, reference in rounds.pairs():
        per_cell = [_cell_rows(run, rounds, device, reference, row) for row in range(len(rounds.cells))]
        rows += [row for several in per_cell for row in several]
        tell_q_values(rounds, [several[0] for several in per_cell if several])
        rows += _pooled_rows(run, rounds, device, reference)
    return rows


def pooled(rounds: Rounds, device: str, reference: str, level: float = 0.95) -> Interval:
    """The latency over all cells: per round the average over cells, then Hodges-Lehmann over rounds.

    The A/A control pools every pair instead: all its cells share one truth, zero, so nothing need be averaged away.
    """
    return hodges_lehmann(_pooled_pairs(rounds, device, reference), level)


def resolution(rounds: Rounds) -> Interval | None:
    """What the bed can resolve: the largest size, in ns one way, that the pooled A/A difference may have at 95 %.

    Its low and high are the A/A interval itself. None without an A/A control or with too few pairs for an interval.
    """
    if A_A not in rounds.devices or DIRECT not in rounds.devices:
        return None
    return resolution_of(_pooled_pairs(rounds, A_A, DIRECT))


def resolution_of(differences: NDArray[np.float64]) -> Interval | None:
    """The end of the 95 % interval of the A/A differences that is farther from zero; None with too few of them."""
    control = hodges_lehmann(differences)
    if control.low is None or control.high is None:
        return None
    return Interval(max(abs(control.low), abs(control.high)), None, None, control.level, control.n)


def _pooled_pairs(rounds: Rounds, device: str, reference: str) -> NDArray[np.float64]:
    differences = rounds.one_way(device, reference)
    if device == A_A:
        return differences[~np.isnan(differences)]
    averages = differences.mean(axis=0) if len(differences) else np.empty(0)
    return np.asarray(averages[~np.isnan(averages)], dtype=np.float64)


def _cell_rows(run: Run, rounds: Rounds, device: str, reference: str, row: int) -> list[Row]:
    """One cell's latency, arithmetic average, shift and variance."""
    cell = rounds.cells[row]
    differences = rounds.one_way(device, reference)[row]
    used = ~np.isnan(differences)
    d = differences[used]
    if not len(d):
        return []
    mask = np.zeros(rounds.mean[device].shape, dtype=np.bool_)
    mask[row] = used
    probes = rounds.counted(device, reference, mask)
    shift = (rounds.median[device] - rounds.median[reference])[row][used]
    variance = (rounds.variance[device] - rounds.variance[reference])[row] / 2
    figures = [
        ("device_latency", "mean", hodges_lehmann(d), "ns"),
        ("device_latency", "arithmetic", student_t(d), "ns"),
        ("rtt_shift", "p50", hodges_lehmann(shift), "ns"),
        ("device_latency_variance", "variance", hodges_lehmann(variance[~np.isnan(variance)]), "ns^2"),
    ]
    if run.cells[cell].payload_bytes != run.cells[cell].response_payload_bytes:
        figures.append(("device_round_trip", "mean", hodges_lehmann(2 * d), "ns"))
    rows = [
        Row(device, quantity, statistic, value, unit, reference, run.cells[cell], cell, probes)
        for quantity, statistic, value, unit in figures
        if value.n
    ]
    return [*rows, *_model_sd(rows)]


def _model_sd(rows: list[Row]) -> list[Row]:
    """The device's own standard deviation, if its delay and the host's are independent: a model, and named so."""
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
    return [row]


def _pooled_rows(run: Run, rounds: Rounds, device: str, reference: str) -> list[Row]:
    level = A_A_LEVEL if device == A_A else 0.95
    value = pooled(rounds, device, reference, level)
    if not value.n:
        return []
    used = ~np.isnan(rounds.one_way(device, reference))
    if device != A_A:
        used &= used.all(axis=0)
    common = in_common(run.cells.values())
    probes = rounds.counted(device, reference, used)
    rows = [Row(device, "device_latency", "pooled", value, "ns", reference, common, None, probes)]
    bed = resolution(rounds)
    if device == A_A and bed is not None:
        rows.append(Row(A_A, "resolution", "pooled", bed, "ns", DIRECT, common, None, probes))
    return rows


def tell_q_values(rounds: Rounds, rows: list[Row]) -> None:
    """Write on the latencies of cells the q-values of their differing from zero, all cells together."""
    if rows:
        cells = [rounds.one_way(row.device, row.reference)[rounds.cells.index(row.cell or 0)] for row in rows]
        p = np.array([signed_rank_p(d[~np.isnan(d)]) for d in cells], dtype=np.float64)
        for row, q in zip(rows, benjamini_hochberg(p), strict=True):
            row.q_value = float(q)
