"""The report of "tcp-windows": the baseline, throughput by window with its formula, and the metrics of RFC 6349."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.charts import Axis, Lines
from sojourn.report.numbers import NOTHING, Shown, as_written, show
from sojourn.report.palette import FORMULA, PAPER
from sojourn.report.parts import Key, Parts
from sojourn.report.paths import path_words
from sojourn.report.published import read_published
from sojourn.report.stamps import clock_and_stamps
from sojourn.report.streams.points import NO_INTERVAL, figure
from sojourn.report.table import Column, Entry, Table, interval, number, printed, rounded, text, whole
from sojourn.units import nanoseconds

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run

ESTIMATE = ("estimate", "ci_low", "ci_high")
PLACE = (
    Column(("device",), "Path", numeric=False),
    Column(("pipe",), "Pipe", numeric=False),
    Column(("flows",), "Connections"),
    Column(("window",), "Window asked", "BDP"),
)


def cells_of(run: Run) -> list[dict[str, dict[str, Any]]]:
    """Return the figures of every cell over every device, by quantity."""
    found: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for row in run.entries:
        found.setdefault((row["device"], row["cell"]), {})[row["quantity"]] = row
    return list(found.values())


def transfers_of(run: Run) -> list[dict[str, dict[str, Any]]]:
    """Return the figures of transfers."""
    return [of for of in cells_of(run) if "throughput" in of]


def shown(row: dict[str, Any] | None, factor: float, unit: str) -> Shown:
    """Return a figure and its interval in another unit; empty where there is none."""
    values = (None if row is None or row[name] is None else row[name] * factor for name in ESTIMATE)
    value, low, high = values
    return Shown(value, low, high, unit)


def baseline(run: Run) -> Table:
    """Return the table of round-trip time and rate of each path, and their product."""
    measures = (("baseline_rtt", "rtt", "Baseline RTT", "ms", 1e-6), ("bottleneck_rate", "rate", "Bottleneck rate",
                "Mbit/s", 1e-6), ("bandwidth_delay_product", "bdp", "Bandwidth-delay product", "kB", 1e-3))  # fmt: skip
    columns = [*PLACE[:2]]
    for _, name, title, unit, _ in measures:
        columns += [Column((name,), title, unit), Column((f"{name}_low", f"{name}_high"), "95 % CI", unit)]
    rows = []
    for of in (of for of in cells_of(run) if "baseline_rtt" in of):
        entries: list[Entry] = []
        for quantity, _, _, unit, factor in measures:
            one = shown(of[quantity], factor, unit)
            entries += [number(one), interval(one)]
        rows.append((*place_of(of["baseline_rtt"])[:2], *entries))
    note = (
        "RTT: mean round trip over the idle path. Rate: bits of frames without FCS a second, from the first answer to "
        "the last of a train of full packets that is faster than the bottleneck. Product: RTT times rate; the smallest "
        "window that fills the path (RFC 6349)."
    )
    return Table("baseline", "Baseline", tuple(columns), tuple(rows), note)


def place_of(row: dict[str, Any]) -> tuple[Entry, ...]:
    """Return the path, connections and window of a row."""
    asked = show(row.get("window"), None, None, "1")
    return (text(row["device"], row["device"]), text(row["pipe"] or NOTHING), whole(row.get("flows")), number(asked))


def windows(run: Run) -> Table:
    """Return the table of the throughput of each window and its formula."""
    columns = (
        *PLACE,
        Column(("offered",), "Window offered", "kB"),
        Column(("throughput",), "Throughput", "Mbit/s"),
        Column(("throughput_low", "throughput_high"), "95 % CI", "Mbit/s"),
        Column(("predicted",), "Formula", "Mbit/s"),
        Column(("ratio",), "Of the formula", "%"),
        Column(("ratio_low", "ratio_high"), "95 % CI", "%"),
        Column(("limited",), "Window-limited", "%"),
        Column(("n",), "Trials"),
    )
    rows = []
    for of in transfers_of(run):
        got = shown(of["throughput"], 1e-6, "Mbit/s")
        ratio = shown(of.get("throughput_ratio"), 100, "%")
        rows.append((
            *place_of(of["throughput"]), number(shown(of.get("window_bytes"), 1e-3, "kB")), number(got), interval(got),
            number(shown(of.get("predicted"), 1e-6, "Mbit/s")), number(ratio), interval(ratio),
            number(shown(of.get("window_limited"), 100, "%")), whole(of["throughput"]["n"]),
        ))  # fmt: skip
    note = (
        "Formula: the lesser of window offered over baseline RTT and of the rate less headers. The window is of all "
        "connections together, as the receivers offered it. Below the product the formula is a little high: a full "
        "segment's time on the link and delayed acknowledgements are in TCP's round trip, and not in that of small "
        "probes. Window-limited: the time in which the receiver's window limited the sender, as its kernel counts it."
    )
    return Table("windows", "Throughput by window", columns, tuple(rows), note, wide=True, grouped=True)


MEASURES = (
    ("transfer_time_ratio", "ratio", "Transfer time ratio", "", 1.0),
    ("efficiency", "efficiency", "TCP efficiency", "%", 100.0),
    ("buffer_delay", "delay", "Buffer delay", "%", 100.0),
)


def metrics(run: Run) -> Table:
    """Return the table of the three metrics of RFC 6349."""
    columns = [*PLACE]
    for _, name, title, unit, _ in MEASURES:
        columns += [Column((f"{name}",), title, unit), Column((f"{name}_low", f"{name}_high"), "95 % CI", unit)]
    rows = []
    for of in transfers_of(run):
        entries: list[Entry] = []
        for quantity, _, _, unit, factor in MEASURES:
            one = shown(of.get(quantity), factor, unit)
            entries += [number(one), interval(one)]
        rows.append((*place_of(of["throughput"]), *entries))
    note = (
        "Transfer time ratio = actual transfer time / ideal transfer time; the ideal one is that "
        "of the same data at the rate less headers, and the actual one includes slow start. TCP efficiency = "
        "(transmitted bytes - retransmitted bytes) / transmitted bytes. Buffer delay = (average RTT during the "
        "transfer - baseline RTT) / baseline RTT."
    )
    return Table("metrics", "Metrics of RFC 6349", tuple(columns), tuple(rows), note, wide=True, grouped=True)


def by_window(run: Run) -> Figure | None:
    """Return the figure of throughput over the window, measured and by the formula."""
    found = [
        {"device": row["device"] if quantity == "throughput" else FORMULA, "x": float(row["window"]),
         "y": row["estimate"] / 1e6, "cell": ", ".join([f"connections: {row['flows']}", *filter(None, [row["pipe"]])])}
        for of in transfers_of(run)
        for quantity in ("throughput", "predicted")
        if (row := of.get(quantity)) is not None
    ]  # fmt: skip
    if len({one["x"] for one in found}) < 2:
        return None
    rows = pl.DataFrame(found).sort("cell", "device", "x").with_columns(*NO_INTERVAL, role=pl.lit("point"))
    caption = "Throughput over the window of all connections together, and the lesser of window over RTT and rate."
    chart = Lines(Axis("Window (bandwidth-delay products)", zero=True), Axis("Throughput (Mbit/s)", zero=True))
    return figure("windows", "Throughput by window", caption, rows, chart)


DUMMYNET = "dummynet2003_delay"


def by_delay(run: Run) -> Figure | None:
    """Return the figure of the throughput of the smallest window over the delay: measured, formula, and paper."""
    found = []
    for (device, delay), of in smallest_windows(run).items():
        named = {device: "throughput"} | ({FORMULA: "predicted"} if "predicted" in of else {})
        for name, quantity in named.items():
            one = shown(of[quantity], 1e-6, "Mbit/s")
            found.append({"device": name, "x": delay, "y": one.value, "low": one.low, "high": one.high})
    if len({one["x"] for one in found}) < 2:
        return None
    first = next(iter(smallest_windows(run).values()))["throughput"]
    theirs = over_their_rtt(run) if DUMMYNET in run.published() else {}
    found += [{"device": PAPER, "x": delay, "y": got, "low": None, "high": None} for delay, got in theirs.items()]
    kinds = dict.fromkeys(("x", "y", "low", "high"), pl.Float64)
    rows = pl.DataFrame(found, schema_overrides=kinds).sort("device", "x").with_columns(
        cell=pl.lit(f"window: {first['window']:g} BDP, connections: {first['flows']}"), role=pl.lit("point")
    )  # fmt: skip
    caption = (
        "Throughput over the delay of the pipes, and the formula: the lesser of window over baseline RTT and of the "
        "rate less headers. Bars are 95 % CIs."
    )
    if theirs:
        caption += (
            " Published: the same window over the round trips of Vanhonacker 2003, table 5, whose delays were short, "
            "without a limit by the rate; they measured pings alone."
        )
    chart = Lines(Axis("Delay of a pipe, each way (ms)", log=True), Axis("Throughput (Mbit/s)"))
    return figure("delays", "Throughput by delay", caption, rows, chart)


def smallest_windows(run: Run) -> dict[tuple[str, float], dict[str, dict[str, Any]]]:
    """Return the figures of the run's smallest window over each device and delay, in the order of delays."""
    every = transfers_of(run)
    least = min(((of["throughput"]["window"], of["throughput"]["flows"]) for of in every), default=None)
    found: dict[tuple[str, float], dict[str, dict[str, Any]]] = {}
    for of in every:
        if (of["throughput"]["window"], of["throughput"]["flows"]) != least:
            continue  # a larger window would be a point of another line
        if (delay := delay_of(of["throughput"])) is not None:
            found.setdefault((str(of["throughput"]["device"]), delay), of)
    return dict(sorted(found.items(), key=lambda one: one[0][1]))


def over_their_rtt(run: Run) -> dict[float, float]:
    """Return in Mbit/s what the smallest window would get over the published round trip of its delay, by delay."""
    theirs = {float(row["configured_delay_ms"]): float(row["rtt_avg_ms"]) for row in read_published(DUMMYNET)}
    return {
        delay: 8e-3 * of["window_bytes"]["estimate"] / theirs[delay]
        for (_, delay), of in smallest_windows(run).items()
        if delay in theirs and "window_bytes" in of
    }


def keys(run: Run) -> list[Key]:
    """Return the product of the baseline, and the throughput of each window."""
    found = []
    for of in cells_of(run):
        if product := of.get("bandwidth_delay_product"):
            one = shown(product, 1e-3, "kB")
            found.append(Key("Bandwidth-delay product", one.text, "kB", one.told, str(product["device"])))
    for of in transfers_of(run)[:6]:
        row = of["throughput"]
        one = shown(row, 1e-6, "Mbit/s")
        lines = (*one.told, f"{row['flows']} × {row['congestion']}")
        found.append(Key(f"Window of {row['window']:g} BDP", one.text, "Mbit/s", lines, str(row["device"])))
    return found


def words(run: Run) -> list[str]:
    """Return how it was measured."""
    plan = run.plan.get("windows", {})
    times = {name: as_written(plan.get(name)) for name in ("idle", "train", "train_interval", "start_up", "duration")}
    clock, stamps = clock_and_stamps(run, "baseline_rtt", "buffer_delay")
    return [
        *path_words(run),
        (
            f"Each round begins with the baseline of each path: probes for {times['idle']}, then full packets every "
            f"{times['train_interval']} for {times['train']}, whose answers come back at the bottleneck's rate."
        ),
        (
            f"A transfer sends from host A to host B for {times['start_up']} of start-up and {times['duration']} that "
            "throughput and round trips are of. The receivers offer windows of an even number of segments "
            "(TCP_WINDOW_CLAMP), of the product of the round's baseline. Packets have one segment each: segmentation "
            "offloads are off."
        ),
        "Intervals are Student's over sessions, or over rounds where the run has one bed.",
        f"All times are of one clock: {clock}. Departures and arrivals have timestamps of {stamps}.",
    ]


def delays_of_dummynet(run: Run, name: str) -> Table:
    """Return the published round trips through dummynet with this run's, and the throughput of TCP over this run's."""
    columns = (
        Column(("configured_delay_ms",), "Delay, each way", "ms"),
        Column(("published_rtt_ms",), "RTT", "ms", group="Theirs"),
        Column(("published_excess_us",), "less two delays", "µs", group="Theirs"),
        Column(("published_mbit_per_s",), "our window over it", "Mbit/s", group="Theirs"),
        Column(("our_rtt_ms",), "RTT", "ms", group="Ours"),
        Column(("our_rtt_low_ms", "our_rtt_high_ms"), "95 % CI", "ms", group="Ours"),
        Column(("our_excess_us",), "less two delays", "µs", group="Ours"),
        Column(("our_mbit_per_s",), "Throughput", "Mbit/s", group="Ours"),
        Column(("our_low_mbit_per_s", "our_high_mbit_per_s"), "95 % CI", "Mbit/s", group="Ours"),
        Column(("our_formula_mbit_per_s",), "Formula", "Mbit/s", group="Ours"),
    )
    bases = {delay: of for of in cells_of(run) if (delay := delay_of(of.get("baseline_rtt"))) is not None}
    smallest = {delay: of for (_, delay), of in smallest_windows(run).items()}
    got_over_theirs = over_their_rtt(run)
    body = []
    for row in read_published(name):
        configured, theirs = float(row["configured_delay_ms"]), float(row["rtt_avg_ms"])
        base, of = bases.get(configured, {}), smallest.get(configured, {})
        rtt, got = shown(base.get("baseline_rtt"), 1e-6, "ms"), shown(of.get("throughput"), 1e-6, "Mbit/s")
        body.append((
            printed(row["configured_delay_ms"]), printed(row["rtt_avg_ms"]), excess(theirs, configured),
            rounded(got_over_theirs.get(configured), 2), number(rtt), interval(rtt),
            excess(rtt.value, configured), number(got), interval(got),
            number(shown(of.get("predicted"), 1e-6, "Mbit/s")),
        ))  # fmt: skip
    note = (
        "Theirs: pings through a pipe each way, with a clock of 1000 ticks a second. They had no TCP: beside our "
        "throughput stands what the same window would get over their round trip. Ours: the smallest window of the run; "
        "its pipes have a rate, theirs had Ethernet's alone. Formula: as in the table of throughput by window."
    )
    title = "TCP over dummynet's delays: Vanhonacker 2003, table 5, beside this run"
    return Table(f"published_{name}", title, columns, tuple(body), note, wide=True)


def delay_of(row: dict[str, Any] | None) -> float | None:
    """Return the delay of a row's pipe in ms; None unless it is given as a single time."""
    found = re.search(r"\bdelay (\d[\d.]*[a-z]+)", (row or {}).get("pipe") or "")
    time = nanoseconds(found[1]) if found else None
    return None if time is None else float(time) / 1e6


def excess(rtt_ms: float | None, delay_ms: float) -> Entry:
    """Return in µs how much longer a round trip is than the delays of both pipes."""
    if rtt_ms is None:
        return Entry(NOTHING)
    longer = (rtt_ms - 2 * delay_ms) * 1e3
    return Entry(f"{longer:.0f}".replace("-", "\u2212"), (longer,))


PARTS = Parts(
    tables=(baseline, windows, metrics),
    figures=(by_window, by_delay),
    keys=keys,
    words=words,
    results=("baseline", "windows", "metrics"),
    published={DUMMYNET: delays_of_dummynet},
)
