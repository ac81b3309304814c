"""The report of "multicast": the latency to each receiver, the responses of several nodes, and their spacing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.report.charts import Axis, Histogram, Intervals, Lines
from sojourn.report.parts import Key, Parts
from sojourn.report.streams import delays
from sojourn.report.streams.measures import Ask, Measure, measured
from sojourn.report.streams.points import ESTIMATE, along, figure, rows_over, sample, several, spans
from sojourn.report.streams.words import words

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run
    from sojourn.report.table import Table


KINDS = (
    "“Answers”: every receiver of a request to the group responds. “Request-response”: one host responds, and the next "
    "request is sent when its response has arrived."
)


def spacing(run: Run) -> Table:
    """Return the spacing of the responses' peaks."""
    measures = [Measure("peak_spacing", "mean", "Mean spacing")]
    if run.rows("peak_spacing", "calculated").drop_nulls("estimate").height:
        measures.append(Measure("peak_spacing", "calculated", "Minimum at line rate", interval=False))
    note = "The mean time between the median latencies of successive receivers' responses in a trial."
    return measured(run, Ask("peak_spacing", "Spacing of the responses of several nodes", tuple(measures), note))


def shifts(run: Run) -> Table:
    """Return group addresses minus unicast, and further receivers minus none."""
    measures = (
        Measure("one_way_delay_shift", "mean", "Mean", "One-way delay"),
        Measure("one_way_delay_shift", "p50", "Median", "One-way delay"),
        Measure("response_latency_shift", "mean", "Mean", "Response latency"),
        Measure("response_latency_shift", "p50", "Median", "Response latency"),
    )
    where = pl.col("against").is_not_null()
    bases = run.results["against"].drop_nulls().unique().to_list()
    kinds = {"to=unicast": ("Group addresses minus unicast", "to unicast"),
             "receivers=0": ("Further receivers minus none", "without further receivers")}  # fmt: skip
    there = [words_ for base, words_ in kinds.items() if base in bases] or list(kinds.values())
    note = (
        f"Each value is a cell's delay minus that of the same cell {' or '.join(less for _, less in there)}; estimates "
        f"are Hodges and Lehmann's, over rounds. {KINDS}"
    )
    title = "; ".join(name for name, _ in there)
    return measured(run, Ask("shifts", title, measures, note, where, clock=True))


def responses(run: Run) -> Table:
    """Return the response latency, by node."""
    measures = (
        *(Measure("response_latency", name, title, "Response latency", interval=name in ("mean", "p50"))
          for name, title in (("min", "Min"), ("mean", "Mean"), ("p50", "Median"), ("p99", "p99"))),
        Measure("peak", "p50", "Median of a trial", interval=False),
        *(Measure("rtt", name, title, "Round trip to one host", interval=name in ("mean", "p50"))
          for name, title in (("min", "Min"), ("mean", "Mean"), ("p50", "Median"), ("p99", "p99"))),
    )  # fmt: skip
    note = (
        "Response latency: from the departure of the request to the arrival of the response, both read on the "
        "requesting host's clock. Median: of all responses together. Median of a trial: the medians of the trials, "
        f"estimated over trials. A node is a receiver that responds. {KINDS}"
    )
    return measured(run, Ask("responses", "Response latency by node", measures, note))


def by_node(run: Run) -> Figure | None:
    """Return histograms of the response latency of each node."""
    return _by(run, "response", "node", ("answers", "Response latency by node", "Response latency (µs)"))


def by_receiver(run: Run) -> Figure | None:
    """Return histograms of the one-way delay at each receiver."""
    return _by(run, "actual", "port", ("receivers", "One-way delay by receiver", "One-way delay (µs)"))


def _by(run: Run, measure: str, column: str, words_: tuple[str, str, str]) -> Figure | None:
    found = sample(run, "delay_histograms")
    if found.is_empty():
        return None
    mine = found.filter((pl.col("measure") == measure) & pl.col(column).is_not_null())
    many = mine.filter(pl.col(column).n_unique().over("cell", "device") > 1)
    number = pl.col(column) + (1 if column == "port" else 0)
    word = "receiver" if column == "port" else "node"
    panel = pl.format("{}, {}", "cell", "device").alias("cell") if many["device"].n_unique() > 1 else pl.col("cell")
    rows = delays.in_us(many, pl.format(f"{word} {{}}", number).alias("series"), pl.lit("point").alias("role"))
    name, title, axis = words_
    drawn = pl.concat(
        [rows.with_columns(panel), *(_peak_lines(run, panel) if column == "node" else ())], how="diagonal_relaxed"
    )
    # A cell with one node has a median too, but nothing to compare it with.
    drawn = drawn.filter(pl.col("cell").is_in(rows.with_columns(panel)["cell"].unique().to_list()))
    caption = "The main part of each distribution, without its tails. " + (
        "Dotted lines: the median of each node, over trials."
        if column == "node"
        else "Each receiver is shown by itself."
    )
    series = tuple(sorted(several(rows, "series"), key=lambda one: int(one.rsplit(" ", 1)[1])))
    return figure(name, title, caption, drawn if rows.height else rows, Histogram(axis, series))


def _peak_lines(run: Run, panel: pl.Expr) -> list[pl.DataFrame]:
    found = sample(run, "peaks")
    if found.is_empty():
        return []
    series = pl.format("node {}", "node").alias("series")
    named = found.with_columns(panel).drop_nulls("node")
    return [named.select("cell", "device", (pl.col("estimate") / 1e3).alias("x"), series, pl.lit("rule").alias("role"))]


def peaks(run: Run) -> Figure | None:
    """Return each node's peak with its interval."""
    found = sample(run, "peaks")
    if found.is_empty():
        return None
    rows = found.drop_nulls("node").sort("node", maintain_order=True).with_columns(
        pl.format("node {}", "node").alias("name"),
        *spans(ESTIMATE, 1e-3, "x"),
    )  # fmt: skip
    caption = (
        "The median of each node's responses in a trial, with its interval over trials. Nodes do not always respond in "
        "the order of their numbers."
    )
    return figure(
        "peaks", "Medians of the responses", caption, rows, Intervals("Response latency (µs)", several(rows, "name"))
    )


def over_listeners(run: Run) -> Figure | None:
    """Return the median one-way delay at the measured receiver over the number of other listeners."""
    where = (pl.col("port") == 0) & (pl.col("kind") == "one-way")
    rows = rows_over(run, "one_way_delay", ("p50",), "receivers", without=("to",), where=where)
    rows = rows.with_columns(pl.format("to {}", pl.col("to").fill_null("unicast")).alias("series")).drop_nulls("y")
    rows = rows.pipe(along)
    if rows["x"].n_unique() < 2:
        return None
    caption = (
        "At the first receiver, while further receivers join the group: the increase is the cost of copying frames "
        "to them."
    )
    chart = Lines(
        Axis("Others listening", zero=True, whole=True),
        Axis("Median one-way delay (µs)", zero=True),
        several(rows, "series"),
    )
    return figure("over_listeners", "One-way delay while others listen", caption, rows, chart)


def keys(run: Run) -> list[Key]:
    """Return the spacing of the responses of the most nodes, and the effect of further receivers."""
    found = []
    for device in [one for one in run.devices if one != "a/a"]:
        spaced = run.rows("peak_spacing", "mean", device=device)
        most = spaced.filter(pl.col("receivers") == pl.col("receivers").max()).sort("frame_bytes")
        for row in most.iter_rows(named=True):
            nodes = (row["receivers"] or 0) + 1
            found.append(
                delays.key_of(
                    row, f"{device}: mean spacing of the responses of {nodes} nodes", f"responses of {_size(run, row)}"
                )
            )
        added = run.rows("one_way_delay_shift", "mean", device=device, against="receivers=0")
        # Streams first: frames of the other kinds are requests, whose times differ.
        streams = added.filter(pl.col("kind") == "one-way")
        shifted = delays.extreme(added if streams.is_empty() else streams, "receivers")
        if shifted:
            title = f"{device}: one-way delay added by {shifted['receivers']} further receivers"
            cell = run.cell_of(shifted)
            found.append(delays.key_of(shifted, title, cell.short if cell else "", delays.clock_line(shifted)))
    return found


def _size(run: Run, row: dict[str, object]) -> str:
    return f"{row['frame_bytes']} B"


def how(run: Run) -> list[str]:
    """Return how it was measured."""
    return words(
        run,
        "The paper has two methods, and both are used: frames to a group address, with the arrivals at each receiver "
        "recorded separately; and a request to a group address that every receiver answers by unicast. A response says "
        "which node sent it; request and response are timed on the requesting host's clock alone. All receivers are "
        "one program on one host, so that its processing time is part of the spacing.",
    )


PARTS = Parts(
    tables=(spacing, shifts, responses, delays.added, delays.delays, delays.conservation, delays.pacing),
    figures=(by_node, peaks, by_receiver, over_listeners, delays.cdfs, delays.over_time),
    keys=keys,
    words=how,
    results=("peak_spacing", "shifts"),
)
