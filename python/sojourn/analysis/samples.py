"""The samples that the report's figures draw: thinned distributions, times and pairs. The package's page lists columns.

Thinning is deterministic: the same records give the same samples, extremes included.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.factors import Factors
from sojourn.records.whole_file import whole_file

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
FACTOR_TYPES: dict[str, Any] = {
    **dict.fromkeys(("probe", "schedule", "kind", "engine", "to", "load_via", "pipe"), pl.String),
    **dict.fromkeys(("rate_pps", "rate_share", "load"), pl.Float64),
}
"""The factors of a cell that are not integers."""


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
            curves.append(curve.with_columns(device=pl.lit(one.factors.probe), **named))
    return {"pacing_errors": pl.concat(curves, how="vertical_relaxed")} if curves else {}


def with_cells(run: Run, frame: pl.DataFrame) -> pl.DataFrame:
    """Add the factors of each row's cell."""
    cells = pl.DataFrame([{"cell": cell, **asdict(factors)} for cell, factors in run.cells.items()], schema=_CELLS)
    return frame.with_columns(pl.col("cell").cast(pl.Int32)).join(cells, on="cell", how="left")


def write_samples(folder: Path, samples: Mapping[str, pl.DataFrame]) -> None:
    """Write every sample into the folder, under its name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in samples.items():
        with whole_file(folder / f"{name}.parquet") as file:
            frame.write_parquet(file, compression="zstd")


_CELLS: dict[str, Any] = {
    "cell": pl.Int32,
    **{name: FACTOR_TYPES.get(name, pl.Int64) for name in asdict(Factors())},
}


def _quantiles(run: Run) -> pl.DataFrame:
    schema = {"device": pl.String, "cell": pl.Int32, "exceedance": pl.Float64, "rtt_ns": pl.Float64}
    curves = [pl.DataFrame(schema=schema)]
    for path in run.paths.values():
        values, _ = path.answered("rtt")
        if len(values):
            curve = curve_of(values).rename({"value": "rtt_ns"})
            factors = (pl.lit(path.device).alias("device"), pl.lit(path.cell, dtype=pl.Int32).alias("cell"))
            curves.append(curve.with_columns(factors).select(list(schema)))
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
    elapsed = ((pl.col("departure_ns") - start) / 1e9).alias("elapsed_s")
    rtt = pl.col("rtt").cast(pl.Float64).alias("rtt_ns")
    return kept.sort("block", "seq").select("device", "cell", "round", "visit", elapsed, rtt)


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
    return blocks.select("block", "device", "cell", "round", "visit", "elapsed_s").join(levels, on="block", how="inner")


PAIRS = {
    "device": pl.String, "reference": pl.String, "cell": pl.Int32, "round": pl.Int32, "latency_ns": pl.Float64,
}  # fmt: skip


def _pairs(rounds: Rounds) -> pl.DataFrame:
    found = []
    for device, reference in rounds.pairs():
        one_way = rounds.one_way(device, reference)
        for row, round_ in zip(*np.nonzero(~np.isnan(one_way)), strict=True):
            found.append((device, reference, rounds.cells[row], int(round_), float(one_way[row, round_])))
    return pl.DataFrame(found, schema=PAIRS, orient="row")


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
    schema = {"device": pl.String, "exceedance": pl.Float64, "error_ns": pl.Float64}
    curves = [pl.DataFrame(schema=schema)]
    for device, own in errors:
        if len(own):
            curve = curve_of(np.abs(own)).rename({"value": "error_ns"})
            curves.append(curve.with_columns(device=pl.lit(device)).select(list(schema)))
    return pl.concat(curves)


_LINES: dict[str, Any] = {
    "device": pl.String,
    "reference": pl.String,
    "probe": pl.String,
    "frame_bytes": pl.Float64,
    "estimate_ns": pl.Float64,
    "ci_low_ns": pl.Float64,
    "ci_high_ns": pl.Float64,
}


def _lines(fits: list[BySize]) -> pl.DataFrame:
    found = []
    for fit in fits:
        grid = np.linspace(fit.sizes[0], fit.sizes[-1], BAND_POINTS)
        for at, value in zip(grid, fit.line().band(grid), strict=True):
            found.append((fit.device, fit.reference, fit.probe, float(at), value.estimate, value.low, value.high))
    return pl.DataFrame(found, schema=_LINES, orient="row")


def _sizes(fits: list[BySize]) -> pl.DataFrame:
    found = []
    for fit in fits:
        for at, value in zip(fit.sizes, fit.at_each_size(), strict=True):
            found.append((fit.device, fit.reference, fit.probe, float(at), value.estimate, value.low, value.high))
    return pl.DataFrame(found, schema=_LINES, orient="row")
