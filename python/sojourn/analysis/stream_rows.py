"""The rows that every method of streams has: delays, variations, counts, rates, and what a device adds, from pairs.

What a device adds one way is the difference of the mean delays of two trials of one round, as for probes, but not
halved. It is `device_latency` against `direct`; the difference of medians is a shift, not a median latency.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.factors import in_common
from sojourn.analysis.packets import ACTUAL, BETWEEN_TAPS, INTENDED, RESPONSE, ROUND_TRIP, Values
from sojourn.analysis.pairs import resolution_of
from sojourn.analysis.paths import error_rows
from sojourn.analysis.rows import Row
from sojourn.analysis.run import A_A, DIRECT, against
from sojourn.analysis.sessions import beds_counted, beds_in, beside, beside_latency, figure_of, middle
from sojourn.analysis.streams import (
    Differences,
    Series,
    across,
    differences,
    in_order,
    of_trials,
    over_column,
    over_pairs,
    series,
    sessions_of,
    sessions_of_pairs,
    share_of,
    values_of,
    worst_of,
)
from sojourn.statistics.interval import Interval
from sojourn.statistics.signed_rank import hodges_lehmann, least_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from sojourn.analysis.factors import Factors
    from sojourn.analysis.run import Run

QUANTITIES = {
    ACTUAL: "one_way_delay",
    INTENDED: "one_way_delay_intended",
    ROUND_TRIP: "rtt",
    RESPONSE: "response_latency",
    BETWEEN_TAPS: "delay_between_taps",
    "pdv": "pdv",
    "ipdv": "ipdv",
    "inter_arrival": "inter_arrival",
}
DELAY_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
VARIATION_QUANTILES = {
    "pdv": {"p50": 0.5, "p99": 0.99, "p99.9": 0.999},
    "ipdv": {"p1": 0.01, "p50": 0.5, "p99": 0.99},
    "inter_arrival": {"p50": 0.5, "p99": 0.99},
}
SHARES = {
    "loss_ratio": "lost",
    "duplicated": "duplicated",
    "reordered": "reordered",
    "late": "late",
    "corrupted": "corrupted",
    "local_drops": "local_drops",
}
RATES = {"offered_pps": "1/s", "received_pps": "1/s", "achieved_ratio": "1"}
BESIDE = (ACTUAL, ROUND_TRIP, RESPONSE, BETWEEN_TAPS)
"""Delays whose mean has beside it what it is within a bed, between beds and in another run."""

CLOCK_ERRORS = ("clock_bound_ns", "clock_error95_ns")
OF_MEANS = ("mean", "within_bed", "next_run", "between_beds")
"""Additional statistics that leave out beds with one trial."""

OPEN_LOOPS = ("regular", "poisson")
A_A_LEVELS = (0.999, 0.99, 0.95)
"""The A/A control is judged at the highest level that its pairs allow: a false alarm would make the run doubtful."""


def delay_rows(run: Run, several: Iterable[Values]) -> list[Row]:
    """Minimum, mean, quantiles, maximum and standard deviation of delays; variations and gaps have no extremes."""
    rows = []
    for one in several:
        figures = _delay_figures(one) if one.measure not in VARIATION_QUANTILES else _variation_figures(one)
        rows += [_row(run, one, name, value) for name, value in figures.items()]
        if one.measure in BESIDE and (figure := one.figure()) is not None:
            rows += [_row(run, one, name, value) for _, name, value, _ in beside(QUANTITIES[one.measure], figure, "ns")]
    return rows


def _delay_figures(one: Values) -> dict[str, Interval]:
    n = len(one.blocks)
    figures = {"min": Interval(float(one.values.min()), None, None, 0.95, n), "mean": one.mean()}
    figures |= {name: one.quantile(p) for name, p in DELAY_QUANTILES.items() if one.allows(p)}
    worst = float("inf") if one.lost.any() else float(one.values.max())
    return figures | {"max": Interval(worst, None, None, 0.95, n), "sd": one.sd()}


def _variation_figures(one: Values) -> dict[str, Interval]:
    quantiles = VARIATION_QUANTILES[one.measure]
    figures = {name: one.quantile(p) for name, p in quantiles.items() if one.allows(p)}
    return figures | ({"mean": one.mean(), "sd": one.sd()} if one.measure == "inter_arrival" else {})


def _row(run: Run, one: Values, statistic: str, value: Interval) -> Row:
    row = Row(one.device, QUANTITIES[one.measure], statistic, value, "ns", None, run.cells[one.cell], one.cell)
    row.probes, row.port, row.node, row.sessions = one.count, one.port, one.node or None, one.beds
    if statistic in OF_MEANS and (figure := one.figure()) is not None:
        row.sessions = figure.sessions
    if one.measure not in VARIATION_QUANTILES:  # differences of one clock's readings have no clock offset
        row.between_clocks(one.clock_bound_ns, one.clock_error95_ns)
    return row


def count_rows(run: Run, trials: pl.DataFrame) -> list[Row]:
    """Shares of the frames sent, over trials, and the rates."""
    rows = []
    for _, port, here in per_path(run, trials):
        sent = here["sent"].to_numpy().astype(np.float64)
        for quantity, column in SHARES.items():
            if here[column].null_count():
                continue
            counts = np.minimum(here[column].to_numpy(), sent)
            rows.append(trial_row(run, here, quantity, "ratio", share_of(here, counts, sent), "1"))
            rows[-1].port = port
        for quantity, unit in RATES.items():
            value = over_column(here, quantity)
            if value.n:
                rows.append(mean_of(trial_row(run, here, quantity, "mean", value, unit), here, quantity))
                rows[-1].port = port
    return rows


def per_path(run: Run, trials: pl.DataFrame) -> list[tuple[tuple[str, int], int, pl.DataFrame]]:
    """The trials of each path, cell and receiving port, in the order of the tables."""
    groups = trials.partition_by("device", "cell", "port", as_dict=True, maintain_order=True)
    keyed = {(str(device), int(str(cell)), int(str(port))): rows for (device, cell, port), rows in groups.items()}
    order = in_order(run, [(device, cell) for device, cell, _ in keyed])
    place = {at: number for number, at in enumerate(order)}
    return [((key[0], key[1]), key[2], keyed[key]) for key in sorted(keyed, key=lambda k: (place[k[0], k[1]], k[2]))]


def trial_row(run: Run, trials: pl.DataFrame, quantity: str, statistic: str, value: Interval, unit: str) -> Row:
    """A row about trials of one path and cell, taken from their first."""
    device, cell = str(trials["device"][0]), int(trials["cell"][0])
    row = Row(device, quantity, statistic, value, unit, None, run.cells[cell], cell, int(trials["sent"].sum()))
    row.sessions = sessions_of(trials)
    return row


def mean_of(row: Row, trials: pl.DataFrame, column: str | pl.Expr) -> Row:
    """The row of a mean over trials: it names the beds that the mean is over."""
    row.sessions = beds_counted(of_trials(trials, column)[1])
    return row


def beside_rows(run: Run, trials: pl.DataFrame, quantity: str, column: str | pl.Expr, unit: str) -> list[Row]:
    """What is reported with the mean of the trials' values, where there are several sessions."""
    figure = figure_of(*of_trials(trials, column))
    return [mean_of(trial_row(run, trials, *one), trials, column) for one in beside(quantity, figure, unit)]


def departure_rows(run: Run, flows: pl.DataFrame) -> list[Row]:
    """Pacing errors, from the sender's best timestamps."""
    errors = pacing_errors(run, flows)
    rows = []
    for (device, cell), here in errors.partition_by("device", "cell", as_dict=True, maintain_order=True).items():
        factors = run.cells[int(str(cell))]
        if factors.schedule in OPEN_LOOPS:
            blocks = here["block"].to_numpy()
            session = run.sessions_of(blocks)
            clusters = np.unique(session if beds_in(session) else blocks, return_inverse=True)[1].astype(np.int64)
            like = Row(str(device), "", "", Interval(0.0, None, None, 0.95, 0), "", None, factors, int(str(cell)))
            like.sessions = beds_in(session)
            rows += error_rows(like, np.abs(here["error_ns"].to_numpy()), clusters)
    return rows


def pacing_errors(run: Run, flows: pl.DataFrame) -> pl.DataFrame:
    """Actual minus intended departure of every recorded packet: device, cell, block, error_ns."""
    at = flows.select("block", "flow", "device", "cell").unique()
    sends = run.sends.join(at, on=["block", "flow"], how="inner")
    error = (pl.col("departure_ns") - pl.col("intended_ns")).cast(pl.Float64)
    return sends.select("device", "cell", "block", error.alias("error_ns"))


def summaries(packets: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """Mean and median delay of every trial and receiver, the number of packets, and the clock's worst errors.

    device, cell, round, visit, session, block, port, node, mean, p50, packets, clock_bound_ns, clock_error95_ns.
    The median is of all packets, lost ones with infinite delay; the mean is of those that arrived.
    """
    lost = flows.group_by("block", "port").agg(pl.col("lost").sum())
    delays = (
        packets.drop_nulls("delay_ns")
        .group_by("block", "port", "node")
        .agg(
            *(pl.col(one).first() for one in ("device", "cell", "round", "visit", "session")),
            pl.col("delay_ns").mean().alias("mean"),
            pl.col("delay_ns").sort().alias("sorted"),
            pl.len().cast(pl.Int64).alias("packets"),
            pl.col("clock_bound_ns", "clock_error95_ns").max(),
        )
    )
    median = pl.col("sorted").list.get(((pl.col("sorted").list.len() + pl.col("lost")) // 2), null_on_oob=True)
    return (
        delays.join(lost, on=["block", "port"], how="left")
        .with_columns(pl.col("lost").fill_null(0))
        .with_columns(p50=median.fill_null(float("inf")))
        .drop("sorted", "lost")
        .sort("block", "port", "node")
    )


def binned_summaries(several: Iterable[Values], flows: pl.DataFrame) -> pl.DataFrame:
    """The same for trials whose delays were recorded in bins only."""
    places = flows.select("block", "device", "cell", "round", "visit", "session").unique("block")
    found = [
        {
            "block": block, "port": one.port, "node": one.node, "mean": float(np.average(values, weights=weights)),
            "packets": int(weights.sum()), "p50": _median(values, weights, int(one.lost[place])),
            "clock_bound_ns": one.clock_bound_ns, "clock_error95_ns": one.clock_error95_ns,
        }
        for one in several
        for place, block, values, weights in one.bins()
    ]  # fmt: skip
    frame = pl.DataFrame(found, schema=SUMMARY)
    return frame.join(places, on="block", how="left").sort("block", "port", "node")


SUMMARY = {
    **dict.fromkeys(("block", "port", "node"), pl.Int32),
    **dict.fromkeys(("mean", "p50", "clock_bound_ns", "clock_error95_ns"), pl.Float64),
    "packets": pl.Int64,
}


def _median(values: NDArray[np.float64], weights: NDArray[np.float64], lost: int) -> float:
    """The median of all packets of a trial, infinite where more than half were lost."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    place = int(np.searchsorted(reached, (reached[-1] + lost) / 2))
    return float(values[order][place]) if place < len(values) else float("inf")


def added_rows(run: Run, each: pl.DataFrame, cells: Iterable[int]) -> list[Row]:
    """What each device adds over the direct path in these cells, from pairs of trials; with a/a and the resolution."""
    rows: list[Row] = []
    means, medians = series(each, "mean"), series(each, "p50")
    for device, reference in against(run.devices):
        pairs = {cell: differences(means.get((device, cell)), means.get((reference, cell))) for cell in cells}
        known = {cell: d for cell, d in pairs.items() if d}
        before = len(rows)
        for cell, d in known.items():
            shift = differences(medians.get((device, cell)), medians.get((reference, cell)))
            values = [*_latency(d), ("one_way_delay_shift", "p50", over_pairs(shift), "ns")]
            rows += [Row(device, *one, reference, run.cells[cell], cell, sessions=_beds([d])) for one in values]
        rows += _pooled(run, device, reference, known)
        pooled = each.filter(pl.col("cell").is_in(list(known)))
        for row in rows[before:]:
            _tell_behind(row, pooled)
    return [row for row in rows if row.value.n]


def _latency(pairs: Differences) -> list[tuple[str, str, Interval, str]]:
    """The latency of one cell: over the pairs of one bed the pseudomedian, over several beds the mean."""
    session = sessions_of_pairs(pairs)
    if beds_in(session) is None:
        return [("device_latency", "mean", hodges_lehmann(values_of(pairs)), "ns")]
    figure = figure_of(values_of(pairs), session)
    return [("device_latency", "mean", figure.mean, "ns"), *beside_latency(figure)]


def _tell_behind(row: Row, each: pl.DataFrame) -> None:
    """Note the number of packets of a difference of two paths, and the sum of their clock errors."""
    row.probes = sum(int(path["packets"].sum()) for path in _paths_of(row, each))
    row.between_clocks(*errors_of_paths(row, each))


def errors_of_paths(row: Row, each: pl.DataFrame) -> tuple[float | None, float | None]:
    """The sum of both paths' clock errors in a difference of their delays: at most, and in 19 of 20 cases."""
    paths = _paths_of(row, each)
    bound, error95 = (sum_of([worst_of(path, name) for path in paths]) for name in CLOCK_ERRORS)
    return bound, error95


def _paths_of(row: Row, each: pl.DataFrame) -> list[pl.DataFrame]:
    """The trials of both paths of a difference."""
    here = each if row.cell is None else each.filter(pl.col("cell") == row.cell)
    return [here.filter(pl.col("device") == path) for path in (row.device, row.reference)]


def tell_clocks(shifts: list[Row], pairs: list[Contrast], delays: pl.DataFrame) -> None:
    """Note on shifts of delays the number of packets, and the sum of both cells' clock errors."""
    less = {(pair.cell, pair.against): pair.less for pair in pairs}
    for row in shifts:
        cells = (row.cell, less[row.cell or 0, str(row.against)])
        path = delays.filter(pl.col("device") == row.device)
        both = [path.filter(pl.col("cell") == cell) for cell in cells]
        row.probes = sum(int(one["packets"].sum()) for one in both)
        row.between_clocks(*(sum_of([worst_of(one, name) for one in both]) for name in CLOCK_ERRORS))


def sum_of(errors: Sequence[float | None]) -> float | None:
    """The sum of the clock errors of several paths; None where one is not known."""
    known = [one for one in errors if one is not None]
    return sum(known) if len(known) == len(errors) else None


def _pooled(run: Run, device: str, reference: str, pairs: dict[int, Differences]) -> list[Row]:
    """Over all cells; the control pools every pair, because its true difference is the same in all cells."""
    if not pairs:
        return []
    common = in_common(run.cells[cell] for cell in pairs)
    if device != A_A:
        each = across(list(pairs.values()))
        value = middle(values_of(each), sessions_of_pairs(each))
        return [Row(device, "device_latency", "pooled", value, "ns", reference, common, sessions=_beds([each]))]
    every = np.concatenate([values_of(d) for d in pairs.values()])
    session = np.concatenate([sessions_of_pairs(d) for d in pairs.values()])
    level = next((level for level in A_A_LEVELS if least_pairs(level) <= len(every)), A_A_LEVELS[-1])
    rows = [Row(A_A, "device_latency", "pooled", middle(every, session, level), "ns", DIRECT, common)]
    limit = resolution_of(middle(every, session))
    rows += [] if limit is None else [Row(A_A, "resolution", "pooled", limit, "ns", DIRECT, common)]
    for row in rows:
        row.sessions = _beds(pairs.values())
    return rows


def _beds(pairs: Iterable[Differences]) -> int | None:
    return beds_counted(np.concatenate([sessions_of_pairs(one) for one in pairs]))


def bed_resolution(rows: list[Row]) -> float:
    """The bed's resolution, 0 without an A/A control."""
    return next((row.value.estimate for row in rows if row.quantity == "resolution"), 0.0)


@dataclass(frozen=True, slots=True)
class Contrast:
    """A cell, the cell that is subtracted from it, and the factor in which they differ: "load=0.0"."""

    cell: int
    less: int
    against: str


def contrasts(run: Run, factor: str, base: object, apart: tuple[str, ...] = ()) -> list[Contrast]:
    """Each cell whose `factor` is not `base`, with the cell that differs in it (and in the factors `apart`) alone."""
    alike = {_key(one, factor, apart): cell for cell, one in run.cells.items() if getattr(one, factor) == base}
    found = [
        (cell, alike.get(_key(one, factor, apart)))
        for cell, one in run.cells.items()
        if getattr(one, factor) not in (base, None)
    ]
    return [Contrast(cell, less, f"{factor}={base}") for cell, less in found if less is not None]


def _key(factors: Factors, factor: str, apart: tuple[str, ...]) -> tuple[object, ...]:
    told = asdict(factors)
    return tuple(value for name, value in told.items() if name not in (factor, *apart))


def shift_rows(
    run: Run,
    each: dict[tuple[str, int], Series],
    pairs: list[Contrast],
    quantity: str,
    statistic: str,
    unit: str = "ns",
) -> list[Row]:
    """Differences between cells of one path, by rounds, named after the quantity: "one_way_delay_shift"."""
    rows = []
    for device, pair in ((device, pair) for device in run.devices for pair in pairs):
        d = differences(each.get((device, pair.cell)), each.get((device, pair.less)))
        if d:
            value = over_pairs(d)
            row = Row(device, f"{quantity}_shift", statistic, value, unit, None, run.cells[pair.cell], pair.cell)
            row.against, row.sessions = pair.against, _beds([d])
            rows.append(row)
    return rows


def stamp(run: Run, rows: list[Row], packets: pl.DataFrame) -> None:
    """Note the clock and the timestamp sources on every row that has none."""
    said: dict[int | None, str] = {}
    if packets.height:
        kinds = packets.group_by("cell", "departure_source", "arrival_source").len().sort("len", descending=True)
        for cell, departure, arrival, _ in kinds.iter_rows():
            sentence = str(departure) if departure == arrival else f"departure {departure}, arrival {arrival}"
            for key in (cell, None):
                said.setdefault(key, sentence)
    clock = clock_of(run, packets)
    for row in rows:
        row.clock = row.clock or clock
        row.source = row.source or said.get(row.cell, said.get(None, ""))


def clock_of(run: Run, packets: pl.DataFrame) -> str:
    """The clock of the times: one clock, or the sender's with the receiver's converted to it."""
    apart = packets.height and not packets["clock_shared"].fill_null(value=False).all()
    return f"{run.clock} of the sender, the receiver's by exchanges" if apart else run.clock
