"""The samples that the report's figures draw: how they are declared and written, and those of probes.

A table is declared as a `Sample` beside the code that makes it; the tables of a method are `SAMPLES` of its `analyse`.
docs/reference/samples.md is generated from these, and no other table is written. Thinning is deterministic: the same
records give the same samples, extremes included.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.factors import Factors
from sojourn.records.results import RESULTS, SETTINGS
from sojourn.records.whole_file import write_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from sojourn.analysis.departures import Trials
    from sojourn.analysis.pairs import Rounds
    from sojourn.analysis.run import Run
    from sojourn.analysis.sizes import BySize

CURVE_POINTS = 200
TIMELINE_POINTS = 20_000
BAND_POINTS = 41
Columns = dict[str, tuple[Any, str]]
"""Names, each with its type and its meaning in a sentence."""

FACTORS: Columns = {one.name: RESULTS[one.name] for one in fields(Factors)}


@dataclass(frozen=True, slots=True)
class Sample:
    """The declaration of a table: what its rows are, and its columns."""

    rows: str
    columns: Columns
    with_factors: bool = False
    """Whether the factors of the row's cell follow (`with_cells`)."""

    @property
    def own(self) -> dict[str, Any]:
        """The types of its own columns."""
        return {name: kind for name, (kind, _) in self.columns.items()}

    @property
    def schema(self) -> pl.Schema:
        """The types of all columns."""
        more = FACTORS if self.with_factors else {}
        return pl.Schema(self.own | {name: kind for name, (kind, _) in more.items() if name not in self.own})

    def of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return its own columns of a frame, in order and with their types."""
        return frame.select(pl.col(name).cast(kind) for name, kind in self.own.items())


def shared(names: str) -> Columns:
    """Return columns that several tables have, or the results."""
    return {name: SHARED[name] for name in names.split()}


SHARED: Columns = {
    **RESULTS,
    **SETTINGS,
    **{name: (pl.Int32, RESULTS[name][1]) for name in ("port", "node")},
    "quantity": (pl.String, "What was measured, as in the results."),
    "cell": (pl.Int32, "The number of the combination of factors."),
    "block": (pl.Int32, "The number of the trial, as in records/."),
    "round": (pl.Int32, "The round of the cell."),
    "visit": (pl.Int32, "0 on the way there, 1 on the mirrored way back."),
    "flow": (pl.Int32, "The sender, from 1."),
    "elapsed_s": (pl.Float64, "Seconds since the begin of the run."),
    "exceedance": (pl.Float64, "The share of the values that are above this one."),
    "measure": (
        pl.String,
        "The delay: from departure (actual), from schedule (intended), round-trip, response, or between-taps.",
    ),
    "rtt_ns": (pl.Float64, "The round-trip time."),
    "delay_ns": (pl.Float64, "The delay; null: infinite, since the packet was lost."),
    "gap_ns": (pl.Float64, "The time between two packets."),
    "error_ns": (pl.Float64, "By how much the departure missed its time, without a sign."),
    "low_ns": (pl.Float64, "The lower edge of the bin."),
    "high_ns": (pl.Float64, "The upper edge of the bin."),
    "ci_low_ns": (pl.Float64, "The interval's lower end; null without one."),
    "ci_high_ns": (pl.Float64, "The interval's upper end; null without one."),
    "estimate_ns": (pl.Float64, "The figure."),
    "trials": (pl.Int64, "How many trials the figure is over."),
    "loss_ratio": (pl.Float64, "Lost frames over frames sent."),
}

RTT_QUANTILES = Sample(
    "A point of the distribution of round trips over a path in a cell.",
    shared("device cell exceedance rtt_ns"),
    with_factors=True,
)
TIMELINE = Sample(
    "A round trip; thinned, the slowest kept.",
    shared("device cell round visit elapsed_s rtt_ns"),
    with_factors=True,
)
BLOCKS = Sample(
    "A trial.",
    {
        **shared("block device cell round visit elapsed_s"),
        "mean_rtt_ns": (pl.Float64, "The mean round-trip time."),
        "lost": (pl.UInt32, "Probes without an answer."),
    },
    with_factors=True,
)
PAIRS = Sample(
    'A round: the device less the reference; the A/A control is device "a/a".',
    {
        **shared("device reference cell round"),
        "latency_ns": (pl.Float64, "The difference of the means, one way."),
    },
    with_factors=True,
)
PACING_ERRORS = Sample(
    "A point of the distribution of the senders' pacing errors over a path.",
    shared("device exceedance error_ns"),
)
LINES = Sample(
    "A point of the line that is fitted over sizes, with its 95 % band.",
    {
        **shared("device reference probe"),
        "frame_bytes": (pl.Float64, RESULTS["frame_bytes"][1]),
        **shared("estimate_ns ci_low_ns ci_high_ns"),
    },
)
SIZES = Sample("The latency at a size: the points of that line.", LINES.columns)
DEPARTURES = Sample(
    "A point of the distribution of a tool's pacing errors at a size and interval; the tool is the device.",
    PACING_ERRORS.columns,
    with_factors=True,
)
OF_SERIES = {"rtt_quantiles": RTT_QUANTILES, "timeline": TIMELINE, "pacing_errors": PACING_ERRORS}
OF_PAIRS = OF_SERIES | {"blocks": BLOCKS, "pairs": PAIRS, "lines": LINES, "sizes": SIZES}


def samples_of_pairs(run: Run, rounds: Rounds, fits: list[BySize]) -> dict[str, pl.DataFrame]:
    """Return the samples of a run of pairs."""
    of_cells = {
        "rtt_quantiles": _quantiles(run),
        "timeline": _timeline(run),
        "blocks": _blocks(run),
        "pairs": _pairs(rounds),
    }
    return {
        **{name: with_cells(run, frame) for name, frame in of_cells.items()},
        "pacing_errors": _own_departures(run),
        "lines": _lines(fits),
        "sizes": _sizes(fits),
    }


def samples_of_series(run: Run) -> dict[str, pl.DataFrame]:
    """Return the samples of long series of probes."""
    of_cells = {"rtt_quantiles": _quantiles(run), "timeline": _timeline(run)}
    return {
        **{name: with_cells(run, frame) for name, frame in of_cells.items()},
        "pacing_errors": _own_departures(run),
    }


def samples_of_departures(trials: list[Trials]) -> dict[str, pl.DataFrame]:
    """Return the samples of a run that judges senders: each curve is a tool at one size and interval."""
    curves = []
    for one in trials:
        if one.interval_ns:
            errors = np.abs(one.errors()[0])
            curve = curve_of(errors).rename({"value": "error_ns"})
            named = {name: pl.lit(value) for name, value in asdict(one.factors).items()}
            full = curve.with_columns(device=pl.lit(one.factors.probe), **named)
            curves.append(full.select(pl.col(name).cast(kind) for name, kind in DEPARTURES.schema.items()))
    return {"pacing_errors": pl.concat(curves)} if curves else {}


def with_cells(run: Run, frame: pl.DataFrame) -> pl.DataFrame:
    """Add the factors of each row's cell."""
    cells = pl.DataFrame([{"cell": cell, **asdict(factors)} for cell, factors in run.cells.items()], schema=_CELLS)
    return frame.with_columns(pl.col("cell").cast(pl.Int32)).join(cells, on="cell", how="left")


def write_samples(folder: Path, samples: Mapping[str, pl.DataFrame], declared: Mapping[str, Sample]) -> None:
    """Write every sample into the folder, under its name. Raises TypeError if one is not as it is declared."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in samples.items():
        if name not in declared:
            raise TypeError(f"the sample {name} is not declared: it belongs in SAMPLES of the method's analyse")
        if frame.schema != declared[name].schema:
            apart = dict(frame.schema.items() ^ declared[name].schema.items())
            raise TypeError(f"columns of the sample {name} are not as declared: {', '.join(apart) or 'their order'}")
        write_table(folder / f"{name}.parquet", frame)


_CELLS: dict[str, Any] = {
    "cell": pl.Int32,
    **{name: kind for name, (kind, _) in FACTORS.items()},
}


def _quantiles(run: Run) -> pl.DataFrame:
    curves = [pl.DataFrame(schema=RTT_QUANTILES.own)]
    for path in run.paths.values():
        values, _ = path.answered("rtt")
        if len(values):
            curve = curve_of(values).rename({"value": "rtt_ns"})
            curves.append(RTT_QUANTILES.of(curve.with_columns(device=pl.lit(path.device), cell=path.cell)))
    return pl.concat(curves)


def curve_of(values: NDArray[np.float64]) -> pl.DataFrame:
    """Return the share of values above each of some values, from all of them to one, evenly on a log scale of the
    share."""
    ordered = np.sort(values)
    n = len(ordered)
    above = np.unique(np.round(np.geomspace(1, n, min(n, CURVE_POINTS))).astype(np.int64))[::-1]
    return pl.DataFrame({"exceedance": (above - 0.5) / n, "value": ordered[n - above]})


def _timeline(run: Run) -> pl.DataFrame:
    start = pl.lit(run.blocks["started_ns"].min(), dtype=pl.Int64)
    answered = int(run.measured["rtt"].count())
    kept = pl.concat(
        thinned(probes.drop_nulls("rtt"), "rtt", answered)
        for probes in run.path_by_path("device", "cell", "round", "visit", "block", "seq", "departure_ns", "rtt")
    )
    elapsed_s = (pl.col("departure_ns") - start) / 1e9
    return TIMELINE.of(kept.sort("block", "seq").with_columns(elapsed_s=elapsed_s, rtt_ns="rtt"))


def thinned(rows: pl.DataFrame, column: str, of: int | None = None) -> pl.DataFrame:
    """Return every k-th row, and the largest of those left out between them. `of`: the total number, if `rows` is a
    part."""
    stride = max(1, -(-(rows.height if of is None else of) // TIMELINE_POINTS))
    if stride == 1:
        return rows
    within = ("device", "cell", "stretch")
    numbered = rows.with_columns(stretch=pl.int_range(pl.len()).over("device", "cell") // (2 * stride))
    largest = pl.col(column) == pl.col(column).max().over(within)
    return numbered.filter(largest | (pl.int_range(pl.len()).over(within) == 0))


def _blocks(run: Run) -> pl.DataFrame:
    start = pl.lit(run.blocks["started_ns"].min(), dtype=pl.Int64)
    figures = (pl.col("rtt").mean().alias("mean_rtt_ns"), (pl.col("replies") == 0).sum().alias("lost"))
    of_paths = run.path_by_path("block", "rtt", "replies")
    levels = pl.concat(probes.group_by("block").agg(figures) for probes in of_paths).sort("block")
    blocks = run.blocks.with_columns(((pl.col("started_ns") - start) / 1e9).alias("elapsed_s"))
    return BLOCKS.of(blocks.join(levels, on="block", how="inner"))


def _pairs(rounds: Rounds) -> pl.DataFrame:
    found = []
    for device, reference in rounds.pairs():
        one_way = rounds.one_way(device, reference)
        for row, round_ in zip(*np.nonzero(~np.isnan(one_way)), strict=True):
            found.append((device, reference, rounds.cells[row], int(round_), float(one_way[row, round_])))
    return pl.DataFrame(found, schema=PAIRS.own, orient="row")


def _own_departures(run: Run) -> pl.DataFrame:
    errors: dict[str, list[NDArray[np.float64]]] = {}
    for path in run.paths.values():
        if run.cells[path.cell].schedule != "closed-loop":
            times = path.probes("departure_ns", "intended_ns")
            error = (times["departure_ns"] - times["intended_ns"]).cast(pl.Float64)
            errors.setdefault(path.device, []).append(error.to_numpy())
    return departure_curves((device, np.concatenate(errors.pop(device))) for device in run.devices if device in errors)


def departure_curves(errors: Iterable[tuple[str, NDArray[np.float64]]]) -> pl.DataFrame:
    """Return the share of pacing errors (ns) above each of some sizes, by device."""
    curves = [pl.DataFrame(schema=PACING_ERRORS.own)]
    for device, own in errors:
        if len(own):
            curve = curve_of(np.abs(own)).rename({"value": "error_ns"})
            curves.append(PACING_ERRORS.of(curve.with_columns(device=pl.lit(device))))
    return pl.concat(curves)


def _lines(fits: list[BySize]) -> pl.DataFrame:
    found = []
    for fit in fits:
        grid = np.linspace(fit.sizes[0], fit.sizes[-1], BAND_POINTS)
        for at, value in zip(grid, fit.line().band(grid), strict=True):
            found.append((fit.device, fit.reference, fit.probe, float(at), value.estimate, value.low, value.high))
    return pl.DataFrame(found, schema=LINES.own, orient="row")


def _sizes(fits: list[BySize]) -> pl.DataFrame:
    found = []
    for fit in fits:
        for at, value in zip(fit.sizes, fit.at_each_size(), strict=True):
            found.append((fit.device, fit.reference, fit.probe, float(at), value.estimate, value.low, value.high))
    return pl.DataFrame(found, schema=SIZES.own, orient="row")
