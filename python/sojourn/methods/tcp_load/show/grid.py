"""Heat maps of a load over a grid of pipes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.report.charts import Heat
from sojourn.report.figure import Figure, by_cell
from sojourn.report.numbers import fixed

if TYPE_CHECKING:
    from sojourn.report.run import Run

AXES = {"rate_bps": ("Rate (Mbit/s)", 1e6), "delay_ns": ("Round trip of the idle path (ms)", 1e6),
        "queue_packets": ("Queue (packets)", 1.0)}  # fmt: skip
SHOWN = {"latency": ("Latency under load (ms)", 1e6, 1), "goodput": ("Goodput (Mbit/s)", 1e6, 1),
         "utilisation": ("Utilisation (%)", 0.01, 0)}  # fmt: skip
"""What stands in a field: its name, its unit, its decimal places."""


def over_grid(run: Run) -> Figure | None:
    """Latency under load, goodput and utilisation over rate, delay and queue: a map of each, load by load."""
    found = run.samples("load_grid")
    if found is None or found.is_empty():
        return None
    first, second, *further = sorted(AXES, key=lambda axis: (-found[axis].n_unique(), list(AXES).index(axis)))
    loads = [name for name in ("device", "congestion", "flows", "direction") if found[name].n_unique() > 1]
    rows = []
    for row in found.iter_rows(named=True):
        title, unit, places = SHOWN[row["what"]]
        more = [f"{AXES[name][0]}: {row[name] / AXES[name][1]:g}" for name in further if found[name].n_unique() > 1]
        value = row["estimate"] / unit
        rows.append({"cell": ", ".join([title, *more, *(str(row[name]) for name in loads)]),
                     "x": row[first] / AXES[first][1], "y": row[second] / AXES[second][1], "value": value,
                     "said": fixed(value, places)})  # fmt: skip
    chart = Heat(AXES[first][0], AXES[second][0])
    caption = (
        "Each field is the mean over trials of one pipe; the darker, the larger, from nothing to the largest of its "
        "map. Latency under load is the mean round trip under working conditions minus that of the idle path. The "
        "intervals are in the tables."
    )
    most = pl.col("value").max().over("cell")
    strength = pl.when(most > 0).then((pl.col("value") / most).clip(0, 1)).otherwise(0.0)
    drawn = pl.DataFrame(rows).with_columns(strength.round(3).alias("strength")).drop("value")
    panels = by_cell(drawn, chart.of, independent=True)
    return Figure("load_grid", "The load over a grid of pipes", caption, panels, (), 2)
