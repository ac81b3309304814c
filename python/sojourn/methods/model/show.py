"""The report of "model": a queue's parameters, its predictions with the measurements, and their distances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.report.charts import Axis, Histogram, Lines
from sojourn.report.pacing import departures
from sojourn.report.parts import Key, Parts
from sojourn.report.streams import delays
from sojourn.report.streams.measures import Ask, Measure, measured
from sojourn.report.streams.points import ESTIMATE, along, figure, sample, several, spans
from sojourn.report.streams.words import words

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run
    from sojourn.report.table import Table

WHAT = {"measured": "measured", "predicted": "predicted", "no-queue": "without a queue"}
DISTANCES = {"prediction": "prediction", "repetition": "repetition of the measurement", "no-queue": "without a queue"}


def parameters(run: Run) -> Table:
    """Return the fitted parameters, by device and size."""
    measures = (
        Measure("model_service", "mean", "Service"),
        Measure("model_service_fixed", "mean", "fixed part", interval=False),
        Measure("model_service_random", "mean", "random part", interval=False),
        Measure("model_capacity", "mean", "Capacity"),
        Measure("model_floor", "min", "Least delay", interval=False),
        Measure("model_delay_without_queue", "p50", "Median without waiting", interval=False),
        Measure("model_stalls", "share", "Stalls, of the time", interval=False),
        Measure("model_stall", "mean", "Mean stall", interval=False),
        Measure("model_service_intercept", "fit", "Service at 0 B", "Over size"),
        Measure("model_service_slope", "fit", "per byte", "Over size"),
    )
    note = (
        "One server whose service time has a fixed and an exponential part, with stalls, followed by a delay in which "
        "frames do not queue. The queue is that of sender and path together. The least delay is a constant of the fit: "
        "it may be negative, because the sender calls earlier by the duration of its call."
    )
    return measured(run, Ask("model_parameters", "The fitted queue", measures, note, by_size=True))


def distances(run: Run) -> Table:
    """Return the distances of predictions from measurements, and those of repetitions."""
    measures = tuple(
        Measure(quantity, statistic, title, group)
        for quantity, group in (("model_distance_ks", "Kolmogorov's distance"), ("model_distance_w1", "Wasserstein"))
        for statistic, title in (("prediction", "Prediction"), ("repetition", "Repetition"), ("no-queue", "No queue"))
    )
    note = (
        "Kolmogorov: the largest difference of the two distribution functions, where a lost frame has an infinite "
        "delay. Wasserstein: the mean shift of the frames that arrived. A prediction that is no farther from the "
        "measurement than a repetition cannot be distinguished from it. No queue: what the delays at the lowest load "
        f"alone predict.{_trained(run)}"
    )
    return measured(run, Ask("model_distances", "Prediction against measurement", measures, note))


def _trained(run: Run) -> str:
    """Return the cells that the model was fitted to."""
    rows = run.results.filter(pl.col("source") == "model, training load").unique("cell").sort("cell")
    named = [cell.short for row in rows.iter_rows(named=True) if (cell := run.cell_of(row))]
    return f" Fitted to {'; '.join(named)}; all others are held out." if named else ""


def predicted(run: Run) -> Table:
    """Return percentiles, predicted and measured."""
    measures = tuple(
        Measure(f"model_delay_{what}", name, what.capitalize(), title, interval=what == "measured")
        for name, title in (("p50", "Median"), ("p90", "p90"), ("p99", "p99"))
        for what in ("measured", "predicted")
    )
    note = "Delays are from the intended departure, because the model includes the sender's own queue."
    return measured(run, Ask("model_delays", "Predicted and measured delays", measures, note, clock=True))


def histograms(run: Run) -> Figure | None:
    """Return measured and predicted histograms of the held-out loads, a panel for each device and load."""
    found = sample(run, "model_histograms")
    if found.is_empty():
        return None
    held = found.filter(~pl.col("training"))
    named = delays.in_us(held, pl.col("what").replace(WHAT).alias("series")).with_columns(_panel(run))
    # The queue is that of sender and device together: each device has its own model and its own panel.
    drawn = named.sort(
        pl.col("series").replace_strict({one: i for i, one in enumerate(WHAT.values())}), maintain_order=True
    )
    drawn = drawn.sort(pl.col("cell").replace_strict(_order(named), return_dtype=pl.Int64), maintain_order=True)
    chart = Histogram("Delay from the intended departure (µs)", tuple(WHAT.values()), ("measured",))
    caption = (
        "Loads that the model was not fitted to: the measured delays (filled), those that the fitted queue predicts, "
        "and those that would be measured if frames never waited. Bins reach from the least delay to the 99.5th "
        "percentile of the measured ones."
    )
    title = "Predicted and measured, at held-out loads"
    return figure("model_histogram", title, caption, drawn, chart)


def _panel(run: Run) -> pl.Expr:
    devices = [one for one in run.devices if one != "a/a"]
    return pl.format("{}, {}", "device", "cell").alias("cell") if len(devices) > 1 else pl.col("cell")


def _order(rows: pl.DataFrame) -> dict[str, int]:
    return {one: i for i, one in enumerate(several(rows, "cell"))}


def distance_over_load(run: Run) -> Figure | None:
    """Return Kolmogorov's distance over the time between frames."""
    found = sample(run, "model_distances", "interval_ns")
    if found.is_empty():
        return None
    mine = found.filter(pl.col("distance") == "ks").with_columns(
        pl.col("what").replace(DISTANCES).alias("series"),
        pl.col("interval_ns").cast(pl.Float64).truediv(1e3).alias("x"),
        *spans(ESTIMATE),
    )
    rows = mine.with_columns(_panel(run)).pipe(along)
    rows = rows.sort(
        pl.col("cell").replace_strict(_order(mine.with_columns(_panel(run))), return_dtype=pl.Int64),
        maintain_order=True,
    )
    chart = Lines(
        Axis("Mean time between frames (µs)", log=True),
        Axis("Kolmogorov's distance", zero=True),
        tuple(DISTANCES.values()),
    )
    caption = (
        "Loads of the fit and held-out loads. A prediction that is as close to the measurement as two repetitions are "
        "to each other cannot be distinguished from it. The line without a queue is what the delays at the lowest load "
        "alone predict."
    )
    return figure("model_distance", "Distance of prediction and measurement", caption, rows, chart)


def keys(run: Run) -> list[Key]:
    """Return capacity and service of each device's smallest frame, and the worst prediction of a held-out load."""
    found = []
    for device in [one for one in run.devices if one != "a/a"]:
        service = delays.extreme(run.rows("model_service", "mean", device=device), "frame_bytes", least=True)
        if service:
            found.append(
                delays.key_of(service, f"{device}: service of a frame, sender and path", f"{service['frame_bytes']} B")
            )
        held = run.rows("model_distance_ks", "prediction", device=device).filter(
            pl.col("source").str.contains("held-out")
        )
        worst = delays.extreme(held, "estimate")
        if worst:
            found.append(_worst_key(run, worst))
    return found


def _worst_key(run: Run, worst: dict[str, object]) -> Key:
    cell = run.cell_of(worst)
    same = run.rows("model_distance_ks", "repetition", device=str(worst["device"])).filter(
        pl.col("cell") == worst["cell"]
    )
    lines = [cell.short if cell else ""]
    lines += [
        f"a repetition: {row['estimate']:.3f}" for row in same.iter_rows(named=True) if row["estimate"] is not None
    ]
    return Key(
        f"{worst['device']}: worst prediction (Kolmogorov's distance)",
        f"{float(str(worst['estimate'])):.3f}",
        "",
        tuple(lines),
        str(worst["device"]),
    )


def how(run: Run) -> list[str]:
    """Return what is particular to this method's measurement."""
    return words(
        run,
        "A queue with one server is fitted to the lowest load and to every second Poisson load; the others are held "
        "out. Each held-out trial is predicted from its schedule alone, and its distance from the measurement is "
        "compared with the distance between two repetitions of the measurement.",
    )


PARTS = Parts(
    tables=(parameters, distances, predicted, delays.delays, delays.conservation, delays.pacing),
    figures=(histograms, distance_over_load, delays.cdfs, delays.over_time, departures),
    keys=keys,
    words=how,
    results=("model_parameters", "model_distances"),
)
