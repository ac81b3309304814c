"""The shared parts of most reports of streams: delays, losses, departures, and the delay that devices add."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.charts import Axis, Distribution, Histogram
from sojourn.report.figure import Figure, by_cell
from sojourn.report.marks import symbol_scatter, time_scale
from sojourn.report.numbers import count, nominal
from sojourn.report.palette import ordered
from sojourn.report.parts import Key
from sojourn.report.streams.measures import Ask, Measure, clock_entry, is_scattered, measured
from sojourn.report.streams.points import figure, sample
from sojourn.report.tables import in_order, shown_of

if TYPE_CHECKING:
    from sojourn.report.run import Run
    from sojourn.report.table import Table

CURVE_POINTS = 80
SCATTER_POINTS = 3500
TAIL = ("p90", "p99", "p99.9")
LOST_STAY = "A lost frame counts in the distribution as an infinite delay."
ACHIEVED = "Offered over configured rate"
SHARES = (
    "Intervals of shares are Korn and Graubard's, over trials. Where no frame was lost, the interval assumes "
    "independent losses: it is too narrow for losses in bursts."
)


def delays(run: Run) -> Table:
    """One-way delays of every cell, path and receiver, from the actual departure and from the intended one."""
    body = tuple(_delay(name, interval=name in ("mean", "p50")) for name in ("min", "mean", "p50", *TAIL, "max", "sd"))
    late = tuple(Measure("one_way_delay_intended", name, name, "From the intended departure", interval=False)
                 for name in ("p50", "p99"))  # fmt: skip
    note = (
        f"{LOST_STAY} A percentile is given where at least ten frames lie beyond it. It is ∞ where the share of lost "
        "frames reaches up to it. Means and standard deviations are of the frames that arrived."
    )
    return measured(run, Ask("one_way_delay", "One-way delay", (*body, *late), note, clock=True))


def _delay(statistic: str, *, interval: bool) -> Measure:
    titles = {"p50": "Median", "sd": "Std dev"}
    title = titles.get(statistic, statistic if statistic.startswith("p") else statistic.capitalize())
    return Measure("one_way_delay", statistic, title, "From the actual departure", interval)


def variation(run: Run) -> Table:
    """PDV, IPDV and times between arrivals."""
    measures = (
        *(Measure("pdv", name, name, "PDV (RFC 5481)", name == "p99") for name in ("p50", "p99", "p99.9")),
        *(Measure("ipdv", name, name, "IPDV (RFC 3393)", interval=False) for name in ("p1", "p50", "p99")),
        *(Measure("inter_arrival", name, title, "Between arrivals", interval=False)
          for name, title in (("mean", "Mean"), ("p50", "Median"), ("p99", "p99"), ("sd", "Std dev"))),
    )  # fmt: skip
    note = (
        "PDV is the delay minus the trial's minimum, IPDV the difference between the delays of consecutive frames: "
        "neither contains a clock offset."
    )
    return measured(run, Ask("variation", "Delay variation", measures, note))


def conservation(run: Run) -> Table:
    """Rates and counts of frames; each frame is received, lost, corrupted or dropped locally."""
    names = {
        "loss_ratio": "Lost", "local_drops": "Local drops", "corrupted": "Corrupted", "duplicated": "Duplicated",
        "reordered": "Reordered", "late": "Late",
    }  # fmt: skip
    pace = (
        Measure("offered_pps", "mean", "Offered", "Rate", interval=False),
        Measure("received_pps", "mean", "Received", "Rate", interval=False),
        Measure("achieved_ratio", "mean", ACHIEVED, interval=False),
    )
    shares = tuple(Measure(key, "ratio", title, interval=key == "loss_ratio") for key, title in names.items())
    note = (
        "Local drops are drops by the receiver's own socket or ring; they are not counted as lost. "
        f"{SHARES}{beyond_offered(run, 'received_pps')}"
    )
    return measured(run, Ask("conservation", "Rates, losses and other dispositions of frames", (*pace, *shares), note))


def beyond_offered(run: Run, quantity: str) -> str:
    """Return why a received rate is above the offered one; empty if none is."""
    at = ("device", "cell", "port")
    offered = run.rows("offered_pps", "mean").select(*at, pl.col("estimate").alias("offered"))
    both = run.rows(quantity, "mean").join(offered, on=at, how="inner", nulls_equal=True)
    most = both.select((pl.col("estimate") / pl.col("offered") - 1).max()).item() if both.height else None
    if not most or most <= 0:
        return ""
    return (
        " Each rate is measured from its own first frame to its own last, so the received rate can exceed the offered "
        f"one (here by at most {100 * most:.2g} %)."
    )


def added(run: Run) -> Table:
    """The one-way delay that each device adds, from pairs of trials."""
    measures = (
        Measure("device_latency", "pooled", "All cells"),
        Measure("device_latency", "mean", "Mean"),
        Measure("one_way_delay_shift", "p50", "Median"),
    )
    note = (
        "One-way delay with the device minus that without it, from pairs of trials of one round; estimates are Hodges "
        "and Lehmann's, of the trials' means or medians. a/a is the A/A control: the direct link again, or another one "
        "where the bed has two, minus it."
    )
    where = pl.col("reference").is_not_null()
    title = "One-way delay that the device adds"
    return measured(run, Ask("device_latency", title, measures, note, where, clock=True))


def pacing(run: Run) -> Table:
    """Pacing errors of the senders."""
    measures = (
        *(Measure("pacing_error", name, name, "Error", interval=False) for name in ("p50", "p90", "p99", "max")),
        Measure("pacing_within_1us", "ratio", "± 1 µs", "Within"),
        Measure("pacing_within_10us", "ratio", "± 10 µs", "Within"),
    )
    note = "Absolute difference between actual and intended departure. A flood has no intended departures."
    return measured(run, Ask("departures", "Pacing error", measures, note))


def cdfs(run: Run) -> Figure | None:
    """One-way delays on a log(1 - p) axis."""
    return distribution(run, pl.col("measure") == "actual", "delay_cdf", "One-way delay", "One-way delay (µs)")


def distribution(
    run: Run, which: pl.Expr, name: str, title: str, axis: str, *, of: str = "delay_quantiles"
) -> Figure | None:
    """Delays of one kind on a log(1 - p) axis; of several receivers or nodes, the first."""
    found = sample(run, of)
    if found.is_empty():
        return None
    return _curves(_first(found.filter(which)), "delay_ns", (name, title, axis))


def gaps(run: Run) -> Figure | None:
    """Times between arrivals on a log(1 - p) axis."""
    words = ("inter_arrival_cdf", "Time between arrivals", "Time between arrivals (µs)")
    return gaps_of(run, "inter_arrival_quantiles", words)


def gaps_of(run: Run, of: str, words: tuple[str, str, str]) -> Figure | None:
    """Draw times between frames, from one kind of timestamps, on a log(1 - p) axis."""
    found = sample(run, of)
    return None if found.is_empty() else _curves(_first(found), "gap_ns", words)


def _curves(found: pl.DataFrame, column: str, words: tuple[str, str, str]) -> Figure | None:
    name, title, axis = words
    drawn = found.with_columns((pl.col(column) / 1e3).round(3).alias("x"), pl.col("exceedance").round_sig_figs(4))
    drawn = thinned(drawn.drop_nulls("x").filter(pl.col("x") > 0), ("cell", "device"), CURVE_POINTS)
    if drawn.is_empty():
        return None
    x = Axis.fitting(axis, drawn["x"]).x("x")
    end = "Each curve ends at its largest value."
    if column == "delay_ns" and found[column].null_count():
        end = LOST_STAY + " A curve that stops below the largest percentile does so because the other frames were lost."
    caption = "The axis is logarithmic in 1 − p, so that each step up is ten times rarer. " + end
    return figure(name, title, caption, drawn, Distribution(x, float(drawn["exceedance"].min() or 1e-3), axis))  # type: ignore[arg-type]


def histograms(run: Run) -> Figure | None:
    """Draw the bulk of the one-way delays, by cell."""
    words = ("delay_histogram", "one-way delay", "one-way delays")
    return bulk(run, pl.col("measure") == "actual", words)


def bulk(run: Run, which: pl.Expr, words: tuple[str, str, str], *, of: str = "delay_histograms") -> Figure | None:
    """Histograms of delays of one kind, by cell."""
    found = sample(run, of)
    if found.is_empty():
        return None
    part = "from the 0.1 % to the 99.5 % quantile"
    name, what, many = words
    caption = f"Most of the {many} in equal bins, {part}; the figure above shows the tails."
    rows = in_us(_first(found.filter(which)))
    return figure(name, f"Histograms of {what}", caption, rows, Histogram(f"{what.capitalize()} (µs)"))


ONE_WAY_OVER_TIME = ("delay_over_time", "One-way delay over the run", "One-way delay")


def over_time(run: Run, of: str = "delay_timeline", named: tuple[str, str, str] = ONE_WAY_OVER_TIME) -> Figure | None:
    """Delays over the time of the run; `named`: the figure's name, its title, and what the delay is."""
    found = sample(run, of)
    name, title, delay = named
    if found.is_empty():
        return None
    drawn = found.sort("delay_ns", descending=True)
    few = SCATTER_POINTS // 10
    rest = drawn.slice(few).sort("elapsed_s")
    kept = pl.concat([drawn.head(few), rest.gather_every(max(1, rest.height // (SCATTER_POINTS - few)))])
    cells = {one: i for i, one in enumerate(found["cell"].unique(maintain_order=True))}
    kept = kept.sort(pl.col("cell").replace_strict(cells), "elapsed_s").select(
        "cell", "device", pl.col("elapsed_s").round(3).alias("x"), (pl.col("delay_ns") / 1e3).round(2).alias("y")
    )
    kept = kept.filter(pl.col("y") > 0)
    devices, scale = ordered(kept["device"].to_list()), time_scale(kept["y"])

    def build(rows: pl.DataFrame, palette: Any, width: Any) -> Any:
        return symbol_scatter(
            rows, ("Time since the run began (s)", f"{delay} (µs)"), scale, devices, palette
        ).properties(width=width, height=220)

    caption = (
        f"{count(kept.height)} of the run's frames, the slowest among them. Steps, slopes or bands would mean that "
        "conditions changed during the run: clocks, temperature, other programs."
    )
    return Figure(name, title, caption, by_cell(kept, build), tuple(devices))


def in_us(rows: pl.DataFrame, *more: pl.Expr) -> pl.DataFrame:
    """Return bins in µs."""
    return rows.with_columns(
        (pl.col("low_ns") / 1e3).round_sig_figs(6).alias("low"),
        (pl.col("high_ns") / 1e3).round_sig_figs(6).alias("high"),
        pl.col("share").round_sig_figs(4),
        *more,
    )


def thinned(rows: pl.DataFrame, within: tuple[str, ...], most: int) -> pl.DataFrame:
    """Return at most about `most` rows of each curve, with its last row."""
    place, size = pl.int_range(pl.len()).over(within), pl.len().over(within)
    step = ((size - 1) // most + 1).clip(lower_bound=1)
    return rows.filter((place % step == 0) | (place == size - 1))


def _first(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the first receiver, for a figure without receivers."""
    return rows.filter(pl.col("port").is_null() | (pl.col("port") == pl.col("port").min().over("cell", "device")))


def added_keys(run: Run) -> list[Key]:
    """Return the headline, the one-way delay that each device adds, and the bed's resolution, as key numbers."""
    pooled = run.rows("device_latency", "pooled").filter(pl.col("device") != "a/a")
    keys = [*_headline_key(run), *(key for row in in_order(pooled) for key in _added_key(run, row))]
    resolution = run.rows("resolution")["estimate"].head(1).to_list()
    return [*keys, *(Key("The bed can resolve", f"{one / 1e3:.2g}", "µs", (), "a/a") for one in resolution)]


def _headline_key(run: Run) -> list[Key]:
    """Return the figure in the verdict's sentence, if that is of one cell."""
    head = run.verdict.get("pairs") or {}
    if head.get("cell") is None:
        return []
    own = run.rows("device_latency", "mean", device=head["device"], reference=head["reference"])
    rows = own.filter(pl.col("cell") == head["cell"]).iter_rows(named=True)
    return [key_of(row, _adds(row), cell.short if (cell := run.cell_of(row)) else "", clock_line(row)) for row in rows]


def _added_key(run: Run, pooled: dict[str, Any]) -> list[Key]:
    """Return what a device adds in all cells; where cells differ beyond their intervals, the least and the most."""
    each = run.rows("device_latency", "mean", device=pooled["device"], reference=pooled["reference"])
    least, most = extreme(each, "ci_high", least=True), extreme(each, "ci_low")
    if least is None or most is None or most["ci_low"] <= least["ci_high"]:
        return [key_of(pooled, _adds(pooled), clock_line(pooled))]
    cells = ((row, run.cell_of(row)) for row in (least, most))
    return [key_of(row, _adds(row), cell.short if cell else "", clock_line(row)) for row, cell in cells]


def _adds(row: dict[str, Any]) -> str:
    over = "" if row["reference"] == "direct" else f" over {row['reference']}"
    return f"{row['device']} adds{over}, one way"


def key_of(row: dict[str, Any], what: str, *lines: str) -> Key:
    """Return a result row as a key number, with its interval; a limit is marked as one."""
    shown = shown_of(row)
    unit = {"1/s": "frames/s"}.get(shown.unit, shown.unit)
    if row["statistic"] == "at_least":
        return Key(
            what, f"≥ {count(shown.value)}", unit, ("limited by the tester, not the device", *lines), row["device"]
        )
    level = nominal(row["level"])
    said = (
        "too few trials for an interval"
        if row["ci_low"] is None and row["ci_high"] is None
        else "trials too scattered for an interval"
        if is_scattered(row)
        else f"{level} CI {shown.interval}{f' over {beds} beds' if (beds := row['sessions']) else ''}"
    )
    return Key(what, shown.text, unit, (said, *lines), row["device"])


def clock_line(row: dict[str, Any]) -> str:
    """Return the clock error of a row, as a line under its number."""
    words = clock_entry([row]).text
    if words == "one clock":
        return "both ends on one clock"
    return "clock error not known" if words == "not known" else f"clock error ± {words.replace('(', '(at most ')} µs"


def ends(rows: pl.DataFrame, by: str) -> list[dict[str, Any]]:
    """Return the rows with the least and the largest value of a column; only one if they are equal."""
    found = [row for row in (extreme(rows, by, least=True), extreme(rows, by)) if row is not None]
    return found[:1] if len(found) > 1 and found[0][by] == found[1][by] else found


def extreme(rows: pl.DataFrame, by: str, *, least: bool = False) -> dict[str, Any] | None:
    """The row with the largest (or least) value of a column; None where there is none."""
    known = rows.drop_nulls(by)
    return known.sort(by, descending=not least).row(0, named=True) if known.height else None
