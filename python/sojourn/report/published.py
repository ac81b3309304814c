"""The papers' tables beside ours: their rows as printed, and the results of this run, in their layout.

Compare shapes (signs, ratios, dependences), never absolute times: the machines are decades apart. Cells are matched by
size and interval, and the table names the cell of ours beside each of theirs; nothing is scaled.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.devices import variant_of
from sojourn.report.contents import parts_of
from sojourn.report.numbers import NOTHING, Shown, duration, show
from sojourn.report.palette import ordered
from sojourn.report.shapes import shapes
from sojourn.report.table import Column, Entry, Table, interval, number, printed, text
from sojourn.report.tables import shown_of, tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sojourn.report.parts import Layout
    from sojourn.report.run import Cell, Run

Row = dict[str, str]
NOTE = (
    "“Theirs” is as published, “ours” is from this run. The machines are decades apart: compare signs, ratios and what "
    "depends on what, never the times themselves."
)


@dataclass(frozen=True)
class Published:
    """The comparisons with the published tables that a plan names."""

    tables: list[Table]
    """The shapes, then every published table that has a layout and figures of this run."""
    unmatched: list[str]
    """The titles of those without a figure of this run; the name where there is no layout."""


def published_tables(run: Run) -> Published:
    """Return every published table that the plan names: compared with this run, or unmatched."""
    layouts, ratios = layouts_of(run), shapes(run)
    tables, unmatched = [ratios] if ratios.rows else [], []
    for name in run.published():
        made = layouts[name](run, name) if name in layouts else None
        if made is not None and has_ours(made):
            tables.append(made)
        else:
            unmatched.append(made.title.removesuffix(", beside this run") if made is not None else name)
    return Published(tables, unmatched)


def has_ours(table: Table) -> bool:
    """Return whether a figure of this run is in the table: in a column of ours, or in a row of ours."""
    ours = [place for place, column in enumerate(table.columns) if column.numeric and column.keys[0].startswith("our_")]
    if not ours:
        return any(row[0].text.startswith("ours") for row in table.rows)
    return any(row[place].values[0] is not None for row in table.rows for place in ours)


def layouts_of(run: Run) -> Mapping[str, Layout]:
    """Return the layouts of every published table for this run: the general ones and those of its method."""
    return {**LAYOUTS, **parts_of(run).published}


def read_published(name: str) -> list[Row]:
    """Return the rows of a published table, as printed."""
    source = resources.files("sojourn.report").joinpath("published", f"{name}.csv")
    with source.open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if any(row.values())]


def _ping_table(run: Run, name: str) -> Table:
    """bridge-2003 tables 3–7, dummynet-2003 tables 1–4: min, average, max, deviation, latency; theirs and ours."""
    rtts = (("rtt_min", "Min"), ("rtt_avg", "Average"), ("rtt_max", "Max"), ("rtt_std", "Std dev"))
    columns = (
        Column(("table",), "Table", numeric=False),
        Column(("condition",), "Condition", numeric=False),
        Column(("bytes",), "Size", "B"),
        Column(("interval_ms",), "theirs", "ms", group="Probe every"),
        Column(("our_interval_ms",), "ours", "ms", group="Probe every"),
        Column(("published_latency_us",), "theirs", "µs", group="Device latency"),
        Column(("our_latency_us",), "ours", "µs", group="Device latency"),
        Column(("our_ci_low_us", "our_ci_high_us"), "our 95 % CI", "µs", group="Device latency"),
        *(
            Column((f"{who}_{key}_us",), title, "µs", group=group)
            for key, group in rtts
            for who, title in (("published", "theirs"), ("our", "ours"))
        ),
    )
    seen: set[tuple[str | None, int | None]] = set()
    rows = tuple(_ping_row(run, row, [key for key, _ in rtts], seen) for row in read_published(name))
    note = f"{NOTE} {SAME} means: our figure is in a row above, of the same path, size and time between probes."
    return Table(f"published_{name}", TITLES[name], columns, rows, note, wide=True, grouped=True)


SAME = "\u2033"


def _again(entry: Entry) -> Entry:
    """Return an entry that repeats the one in the row above; files still have its value."""
    return entry if entry.text == NOTHING else Entry(SAME, entry.values)


def _first(entry: Entry) -> Entry:
    return entry


def _ping_row(run: Run, row: Row, keys: list[str], seen: set[tuple[str | None, int | None]]) -> tuple[Entry, ...]:
    device, size = _device(run, row["device"]), int(row["payload_bytes"])
    wait_ms = float(row["wait_ms"]) if row.get("wait_ms") else 1000 / float(row["rate_pps"])
    cell = _nearest(run, size, wait_ms * 1e6) if device else None
    ours_ms = (cell.interval_ns or 0) / 1e6 if cell else None
    entries = [text(f"{row['table']}"), text(_condition(row)), printed(row["payload_bytes"]), printed(f"{wait_ms:g}")]
    entries.append(Entry(f"{ours_ms:g}", (ours_ms,)) if ours_ms else Entry(NOTHING))
    place = (device, cell.number if cell else None)
    mine = _again if place in seen else _first
    seen.add(place)
    latency = _shown(run, cell, device, "device_latency", "mean", reference="direct")
    entries += [printed(row["bridge_latency_us"]), mine(number(latency)), mine(interval(latency))]
    for key, statistic in zip(keys, ("min", "mean", "max", "sd"), strict=True):
        theirs = printed(f"{float(row[f'{key}_ms']) * 1000:g}")
        entries += [theirs, mine(number(_shown(run, cell, device, "rtt", statistic)))]
    return tuple(entries)


def _quantile_table(run: Run, name: str) -> Table:
    """bridge-2003: the round-trip time below which 90 % and 99 % of the samples are."""
    columns = (
        Column(("theirs",), "Condition", numeric=False, group="Published"),
        Column(("bytes",), "Size", "B", group="Published"),
        Column(("quantile",), "Percentile", group="Published"),
        Column(("published_rtt_us",), "RTT below", "µs", group="Published"),
        Column(("ours",), "Our cell", numeric=False, group="This run"),
        Column(("our_rtt_us",), "RTT below", "µs", group="This run"),
        Column(("our_ci_low_us", "our_ci_high_us"), "95 % CI", "µs", group="This run"),
    )
    rows = []
    for row in read_published(name):
        device = _device(run, row["condition"])
        cell = _nearest(run, int(row["payload_bytes"]), 20e6) if device else None
        statistic = f"p{float(row['quantile']) * 100:g}"
        shown = _shown(run, cell, device, "rtt", statistic)
        clock = f", {row['cpu_mhz']} MHz" if row["cpu_mhz"] else ""
        theirs = (text(row["condition"] + clock), printed(row["payload_bytes"]), text(statistic))
        rows.append((*theirs, printed(row["rtt_below_us"]), _cell_name(cell), number(shown), interval(shown)))
    return Table(f"published_{name}", TITLES[name], columns, tuple(rows), NOTE)


@dataclass(frozen=True)
class Fit:
    """The line of ours that is compared with one of the paper's."""

    device: str
    reference: str | None


FITS = {
    ("direct", "one-way PC to PC"): Fit("direct", None),
    ("Alteon switch", "one-way PC to PC through switch"): Fit("bridge", None),
    ("Alteon switch", "switch alone"): Fit("bridge", "direct"),
    ("BATM, same module", "one-way PC to PC through switch"): Fit("bridge", None),
    ("BATM, same module", "switch alone"): Fit("bridge", "direct"),
    ("two BATM, 100 Mbit link, same module", "one-way PC to PC"): Fit("bridge*2", None),
    ("two BATM, Gigabit link", "one-way PC to PC"): Fit("bridge*2:uplink", None),
    ("BATM switch", "one-way PC to PC through switch"): Fit("bridge:mixed", None),
}


def _fit_table(run: Run, name: str) -> Table:
    """ethernet-tests-2000 §3: latency = a + b × size, by request-response and ping-pong."""
    columns = (
        Column(("section",), "§", numeric=False),
        Column(("theirs",), "Path", numeric=False, group="Published"),
        Column(("method",), "Method", numeric=False, group="Published"),
        Column(("published_intercept_us",), "a", "µs", group="Published"),
        Column(("published_slope_ns_per_byte",), "b", "ns/byte", group="Published"),
        Column(("ours",), "Our path", numeric=False, group="This run"),
        Column(("our_intercept_us",), "a", "µs", group="This run"),
        Column(("our_intercept_low_us", "our_intercept_high_us"), "95 % CI", "µs", group="This run"),
        Column(("our_slope_ns_per_byte",), "b", "ns/byte", group="This run"),
        Column(("our_slope_low", "our_slope_high"), "95 % CI", "ns/byte", group="This run"),
    )
    rows = []
    for row in read_published(name):
        fit = FITS.get((row["device"], row["meaning"]))
        a, b, ours = _line(run, fit, row["method"])
        slope = f"{float(row['slope_us_per_byte']) * 1000:g}"
        theirs = (text(row["section"]), text(f"{row['device']} ({row['link']})"), text(row["method"]))
        line = (printed(row["intercept_us"]), printed(slope))
        rows.append((*theirs, *line, text(ours), number(a), interval(a), number(b), interval(b)))
    return Table(f"published_{name}", TITLES[name], columns, tuple(rows), NOTE, wide=True)


def _flood_table(run: Run, name: str) -> Table:
    """bridge-2003 table 2: the rate of a flood ping."""
    columns = (
        Column(("bytes",), "Size", "B", group="Published"),
        Column(("published_mean_us",), "Mean interval", "µs", group="Published"),
        Column(("published_median_us",), "Median", "µs", group="Published"),
        Column(("published_rate_pps",), "Rate", "1/s", group="Published"),
        Column(("ours",), "Who", numeric=False, group="This run"),
        Column(("our_mean_us",), "Mean interval", "µs", group="This run"),
        Column(("our_median_us",), "Median", "µs", group="This run"),
        Column(("our_low_us", "our_high_us"), "95 % CI", "µs", group="This run"),
        Column(("our_rate_pps",), "Rate", "1/s", group="This run"),
    )
    flood = pl.col("interval_ns") == 0
    floods = run.rows("departure_interval", "p50").filter(flood)
    rows = []
    for row in read_published(name):
        theirs = tuple(printed(row[key]) for key in ("payload_bytes", "mean_us", "median_us", "rate_pps"))
        same = floods.filter(pl.col("icmp_bytes") == int(row["payload_bytes"])).to_dicts()
        for ours in same or [{}]:
            shown = shown_of(ours) if ours else show(None, None, None, "ns")
            like = (
                flood
                & pl.col("icmp_bytes").eq_missing(ours.get("icmp_bytes"))
                & pl.col("probe").eq_missing(ours.get("probe"))
            )
            mean, rate = (
                _only(run.rows(quantity, "mean").filter(like)) for quantity in ("departure_interval", "departure_rate")
            )
            who = tool(ours) if ours else Entry(NOTHING)
            rows.append((*theirs, who, number(mean), number(shown), interval(shown), number(rate)))
    return Table(f"published_{name}", TITLES[name], columns, tuple(rows), NOTE)


def _only(rows: pl.DataFrame) -> Shown:
    row = next(rows.iter_rows(named=True), None)
    return shown_of(row) if row else show(None, None, None, "ns")


def _interval_table(run: Run, name: str) -> Table:
    """ethernet-tests-2000 table 4.1: the minimum time between frames, calculated and measured."""
    columns = (
        Column(("frame_data_bytes",), "User data", "B"),
        Column(("published_calculated_us",), "calculated", "µs", group="Published"),
        Column(("published_regular_us",), "regular", "µs", group="Published"),
        Column(("published_poisson_us",), "Poisson", "µs", group="Published"),
        Column(("device",), "Path", numeric=False, group="This run"),
        Column(("our_calculated_us",), "calculated", "µs", group="This run"),
        *(
            column
            for kind in ("regular", "poisson")
            for column in (
                Column((f"our_{kind}_us",), kind.replace("p", "P", 1), "µs", group="This run"),
                Column((f"our_{kind}_low_us", f"our_{kind}_high_us"), "95 % CI", "µs", group="This run"),
            )
        ),
    )
    rows = []
    for row in read_published(name):
        theirs = tuple(printed(row[key]) for key in ("frame_data_bytes", "calculated_us", "regular_us", "poisson_us"))
        same = run.rows("min_frame_interval").filter(pl.col("payload_bytes") == int(row["frame_data_bytes"]))
        for device in ordered(same["device"].to_list()) or [""]:
            flooded = _of(same, device, "calculated", "flood")
            calculated = _of(same, device, "calculated", "regular") if flooded.value is None else flooded
            kinds = [_least(same, device, schedule) for schedule in ("regular", "poisson")]
            ours = [entry for one in kinds for entry in (number(one), interval(one))]
            rows.append((*theirs, text(device or NOTHING, device or None), number(calculated), *ours))
    note = (
        f"{NOTE} Ours is the shortest tried time between frames at which the queue is stable. Where links have rates, "
        "it is the time between frames at the maximum rate, and the calculated one is from the rate of our links."
    )
    return Table(f"published_{name}", TITLES[name], columns, tuple(rows), note, wide=True)


def _least(rows: pl.DataFrame, device: str, schedule: str) -> Shown:
    """Return the shortest interval with a stable queue; of a regular schedule without one, the received flood's."""
    shortest = _of(rows, device, "sustained", schedule)
    return _of(rows, device, "saturated", "flood") if shortest.value is None and schedule == "regular" else shortest


def _of(rows: pl.DataFrame, device: str, statistic: str, schedule: str) -> Shown:
    mine = rows.filter(
        (pl.col("device") == device) & (pl.col("statistic") == statistic) & (pl.col("schedule") == schedule)
    )
    row = next(mine.iter_rows(named=True), None)
    return shown_of(row) if row else show(None, None, None, "ns")


def _fan_in_table(run: Run, name: str) -> Table:
    """ethernet-tests-2000 table 4.2: the throughput of several senders together."""
    columns = (
        Column(("frame_data_bytes",), "User data", "B"),
        Column(("sources",), "Senders"),
        Column(("published_mbytes_per_s",), "Throughput", "MB/s", group="Published"),
        Column(("published_over_one",), "over one sender", group="Published"),
        Column(("our_mbytes_per_s", "our_limit"), "Throughput", "MB/s", group="This run"),
        Column(("our_low", "our_high"), "95 % CI", "MB/s", group="This run"),
        Column(("our_over_one",), "over one sender", group="This run"),
    )
    told = read_published(name)
    one = {row["frame_bytes"]: float(row["total_mbytes_per_s"]) for row in told if row["sources"] == "1"}
    rows = []
    for row in told:
        size, senders = int(row["frame_bytes"]), int(row["sources"])
        ours, alone = _flood(run, size, senders), _flood(run, size, 1)
        ratio = f"{float(row['total_mbytes_per_s']) / one[row['frame_bytes']]:.2f}"
        theirs = (printed(row["frame_bytes"]), printed(row["sources"]), printed(row["total_mbytes_per_s"]))
        rows.append((*theirs, printed(ratio), *_mbytes(ours), _over(ours, alone)))
    note = (
        f"{NOTE} User data alone, as the paper counts. Its one sender had a tenth of the receiver's line; ours have no "
        "line rate unless the plan gives one, and all senders share one core."
    )
    return Table(f"published_{name}", TITLES[name], columns, tuple(rows), note)


def _flood(run: Run, payload: int, senders: int) -> dict[str, Any] | None:
    """Return our flood of this size with this many senders: through a device if there is one, else the direct link."""
    rows = run.rows("user_bps").filter(pl.col("statistic").is_in(["mean", "at_least"]))
    rows = rows.filter(
        (pl.col("payload_bytes") == payload) & (pl.col("senders") == senders) & (pl.col("schedule") == "flood")
    )
    through = rows.filter(~pl.col("device").is_in(["direct", "a/a"]))
    return next((through if through.height else rows).iter_rows(named=True), None)


def _mbytes(row: dict[str, Any] | None) -> tuple[Entry, Entry]:
    """Return bits per second as the paper's megabytes; a limit of the tester is marked as one."""
    if row is None:
        return Entry(NOTHING, (None, None)), Entry(NOTHING, (None, None))
    value, low, high = (None if row[key] is None else row[key] / 8e6 for key in ("estimate", "ci_low", "ci_high"))
    shown = Shown(value, low, high, "MB/s")
    if row["statistic"] == "at_least":
        return Entry(f"≥ {shown.text}", (value, "at_least")), Entry(NOTHING, (None, None))
    return Entry(shown.text, (value, None)), interval(shown)


def _over(ours: dict[str, Any] | None, alone: dict[str, Any] | None) -> Entry:
    """Return the ratio of two rates; none if one is a limit of the tester."""
    known = [row["estimate"] for row in (ours, alone) if row and row["statistic"] == "mean" and row["estimate"]]
    return Entry(f"{known[0] / known[1]:.2f}", (known[0] / known[1],)) if len(known) == 2 else Entry(NOTHING)


def _spacing_table(run: Run, name: str) -> Table:
    """ethernet-tests-2000 table 5.1: the spacing of the peaks of several answers."""
    columns = (
        Column(("frame_bytes",), "Response", "B"),
        Column(("published_least_us",), "least on the line", "µs", group="Published"),
        Column(("published_memory_us",), "to memory", "µs", group="Published"),
        Column(("published_spacing_us",), "measured", "µs", group="Published"),
        Column(("nodes",), "Nodes", group="This run"),
        Column(("our_least_us",), "least on the line", "µs", group="This run"),
        Column(("our_spacing_us",), "measured", "µs", group="This run"),
        Column(("our_low_us", "our_high_us"), "95 % CI", "µs", group="This run"),
    )
    spaced = run.rows("peak_spacing")
    sizes = sorted(spaced["payload_bytes"].drop_nulls().unique().to_list())
    rows = []
    for row in read_published(name):
        theirs = [printed(row[key]) for key in row]
        # The paper's largest frame carries 1500 bytes; our answers carry at most 1472, so that UDP's fit too.
        near = min(sizes, key=lambda size: abs(size - int(row["frame_bytes"])), default=None)
        mine = spaced.filter(pl.col("payload_bytes").eq_missing(near) & (pl.col("device") != "direct"))
        for receivers in sorted(mine["receivers"].drop_nulls().unique().to_list()) or [None]:
            ours = mine.filter(pl.col("receivers") == receivers) if receivers is not None else mine.clear()
            by = {one["statistic"]: shown_of(one) for one in ours.iter_rows(named=True)}
            nothing = show(None, None, None, "ns")
            mean, least = by.get("mean", nothing), by.get("calculated", nothing)
            nodes = Entry(NOTHING) if receivers is None else Entry(str(receivers + 1), (receivers + 1,))
            rows.append((*theirs, nodes, number(least), number(mean), interval(mean)))
    note = (
        f"{NOTE} In the paper each of the three nodes is a host of its own; ours are ports of one host, which answers "
        "for one after the other."
    )
    return Table(f"published_{name}", TITLES[name], columns, tuple(rows), note, wide=True)


def _capture_table(run: Run, name: str) -> Table:
    """bridge-2003 section III.E: the bridge's latency while it captures and while it does not."""
    columns = (
        Column(("bytes",), "Size", "B"),
        Column(("interval_ms",), "theirs", "ms", group="Probe every"),
        Column(("interval_here_ms",), "ours", "ms", group="Probe every"),
        Column(("cpu_mhz",), "Clock", "MHz", group="Published"),
        Column(("published_without_us",), "without", "µs", group="Published"),
        Column(("published_with_us",), "with", "µs", group="Published"),
        Column(("published_added_us",), "added", "µs", group="Published"),
        Column(("device",), "Capture", numeric=False, group="This run"),
        Column(("our_added_us",), "added", "µs", group="This run"),
        Column(("our_ci_low_us", "our_ci_high_us"), "95 % CI", "µs", group="This run"),
    )
    rows = []
    for row in read_published(name):
        without, captured = (row[f"latency_{one}_capture_us"] for one in ("without", "with"))
        cell = _nearest(run, int(row["payload_bytes"]), 1e9 / float(row["rate_pps"]))
        ours_ms = (cell.interval_ns or 0) / 1e6 if cell else None
        theirs = (
            printed(row["payload_bytes"]), printed(f"{1000 / float(row['rate_pps']):g}"),
            Entry(f"{ours_ms:g}", (ours_ms,)) if ours_ms else Entry(NOTHING), printed(row["cpu_mhz"]),
            printed(without), printed(captured), printed(f"{float(captured) - float(without):g}"),
        )  # fmt: skip
        for device in [one for one in run.devices if variant_of(one) == "bridge"]:
            shown = _shown(run, cell, device, "device_latency", "mean", reference="bridge")
            rows.append((*theirs, text(device, device), number(shown), interval(shown)))
    return Table(f"published_{name}", TITLES[name], columns, tuple(rows), NOTE, wide=True)


TITLES = {
    "bridge2003_rtt": "Bridge latency: Cricenti 2003, tables 3 to 7, beside this run",
    "dummynet2003_rtt": "Bridge latency: Vanhonacker 2003, tables 1 to 4, beside this run",
    "bridge2003_quantiles": "Round-trip percentiles: Cricenti 2003, beside this run",
    "bridge2003_dlink_rtt": "The two D-Link cards: Cricenti 2003, appendix 3, beside this run",
    "bridge2003_capture_cost": "What a capture adds: Cricenti 2003, section III.E, beside this run",
    "bridge2003_flood_ping": "Flood ping: Cricenti 2003, table 2, beside this run",
    "atlas2000_latency_fits": "Latency = a + b × size: ATLAS 2000, section 3, beside this run",
    "atlas2000_min_frame_interval": "The least time between frames: ATLAS 2000, table 4.1, beside this run",
    "atlas2000_multi_source_throughput": "Several senders: ATLAS 2000, table 4.2, beside this run",
    "atlas2000_multicast_response_spacing": "The spacing of answers: ATLAS 2000, table 5.1, beside this run",
}
LAYOUTS: dict[str, Layout] = {
    "bridge2003_rtt": _ping_table,
    "dummynet2003_rtt": _ping_table,
    "bridge2003_quantiles": _quantile_table,
    "bridge2003_capture_cost": _capture_table,
    "bridge2003_flood_ping": _flood_table,
    "atlas2000_latency_fits": _fit_table,
    "atlas2000_min_frame_interval": _interval_table,
    "atlas2000_multi_source_throughput": _fan_in_table,
    "atlas2000_multicast_response_spacing": _spacing_table,
}


def _condition(row: Row) -> str:
    clock = f", {row['cpu_mhz']} MHz" if row.get("cpu_mhz") else ""
    return f"{row['device']}{clock}" + (f", test {row['test']}" if row.get("test") else "")


def _device(run: Run, condition: str) -> str | None:
    """Return our path for a paper's condition; for dummynet this is emulate:zero, if the run has it."""
    lowered = condition.lower()
    if "dummynet" in lowered:
        return next((one for one in run.devices if one == "emulate:zero"), None)
    return "direct" if lowered.startswith("no") else "bridge"


def _nearest(run: Run, size: int, interval_ns: float) -> Cell | None:
    """Return our cell of the same size whose interval is nearest (by ratio) to theirs."""
    same = [cell for cell in run.cells if cell.size_bytes == size and cell.interval_ns]
    return min(same, key=lambda cell: abs((cell.interval_ns or 1) / interval_ns - 1), default=None)


def _shown(
    run: Run, cell: Cell | None, device: str | None, quantity: str, statistic: str, **factors: str | None
) -> Shown:
    if cell is None or device is None:
        return show(None, None, None, "ns")
    row = run.row(quantity, statistic, cell.number, device, **factors)
    return shown_of(row) if row else show(None, None, None, "ns")


def _line(run: Run, fit: Fit | None, method: str) -> tuple[Shown, Shown, str]:
    nothing = (show(None, None, None, "ns"), show(None, None, None, "ns/byte"), NOTHING)
    if fit is None:
        return nothing
    probe = f"raw/{'ping-pong' if method == 'subtraction' else method}"
    found: list[dict[str, Any]] = []
    for quantity in ("latency_intercept", "latency_slope"):
        rows = run.rows(quantity, device=fit.device, reference=fit.reference)
        exact = rows.filter(pl.col("probe") == probe)
        found += list((exact if exact.height else rows).head(1).iter_rows(named=True))
    if len(found) < 2:
        return nothing
    ours = f"{fit.device} over {fit.reference}" if fit.reference else f"{fit.device}, whole path"
    return shown_of(found[0]), shown_of(found[1]), f"{ours} ({found[0]['probe'] or 'all probes'})"


def _cell_name(cell: Cell | None) -> Entry:
    return text(f"{cell.size_bytes} B, {duration(cell.interval_ns)}" if cell else NOTHING)
