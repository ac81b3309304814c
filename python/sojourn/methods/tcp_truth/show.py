"""The report of "tcp-truth": the log beside TCP_INFO, beside a capture, and beside the laws of congestion control."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.charts import Axis, Distribution, Intervals, Lines
from sojourn.report.numbers import NOTHING, count, fixed, show
from sojourn.report.parts import Key, Parts
from sojourn.report.streams.points import NO_INTERVAL, figure
from sojourn.report.table import Column, Entry, Table, interval, number, text, whole

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run

WAYS = {"out": "on the way out", "in": "on the way in"}
UNITS = {"values": "values", "packets": "packets", "back-offs": "back-offs"}
MARKS = {"pass": "pass", "fail": "FAIL", "inconclusive": "inconclusive"}
WINDOW, THRESHOLD = "window", "threshold"


READ_WHEN = {"messages": "before messages", "direct": "amid a bulk"}


def checks_of(run: Run) -> list[dict[str, Any]]:
    """The checks of the run's verdict."""
    return list(run.verdict.get("checks") or [])


def checks(run: Run) -> Table:
    """Every check with its verdict."""
    columns = (
        Column(("cell",), "Trial", numeric=False),
        Column(("check",), "Check", numeric=False),
        Column(("against",), "Against", numeric=False),
        Column(("expected",), "Expected"),
        Column(("measured", "unit"), "Measured", numeric=True),
        Column(("ci_low", "ci_high"), "95 % interval"),
        Column(("n",), "Of"),
        Column(("verdict",), "Verdict", numeric=False),
        Column(("what",), "In words", numeric=False),
    )
    rows = tuple(_row(one) for one in checks_of(run))
    return Table("checks", "What was held against what", columns, rows, NOTE, wide=True, grouped=True)


NOTE = (
    "Counts are of what is wrong, and one is one too many: no law here leaves anything to chance at a quiet moment. An "
    "estimate passes when its whole interval lies within 5 % of its law's value."
)


def _row(one: dict[str, Any]) -> tuple[Entry, ...]:
    shown = show(one["measured"], one["ci_low"], one["ci_high"], one["unit"])
    wanted = show(one["configured"], None, None, one["unit"])
    counted = one["unit"] in UNITS
    value = (
        Entry(f"{count(one['measured'])} {one['unit']}", (one["measured"], one["unit"])) if counted else number(shown)
    )
    return (
        text(str(one["device"])),
        text(str(one["check"])),
        text(str(one["of"])),
        Entry(
            NOTHING if wanted.value is None else fixed(wanted.value, 4).rstrip("0").rstrip("."), (one["configured"],)
        ),
        value,
        interval(shown),
        whole(one["n"]),
        Entry(MARKS[str(one["verdict"])], (str(one["verdict"]),)),
        text(str(one["what"])),
    )


def fields(run: Run) -> Table:
    """Field by field, over all trials."""
    found = run.samples("agreement")
    columns = (
        Column(("field",), "Field", numeric=False),
        Column(("law",), "The sample's number is", numeric=False),
        Column(("pairs",), "Pairs", group="All moments"),
        Column(("agree_percent",), "Agree", "%", group="All moments"),
        Column(("agree_low_percent", "agree_high_percent"), "95 % interval", "%", group="All moments"),
        Column(("quiet",), "Pairs", group="Quiet moments"),
        Column(("quiet_differ",), "Differ", group="Quiet moments"),
    )
    if found is None or found.is_empty():
        return Table("fields", "", columns, ())
    rows = []
    for one in found.filter(pl.col("kind").is_null()).iter_rows(named=True):
        shown = show(one["agree"] / max(1, one["pairs"]), one["low"], one["high"], "ratio")
        head = (text(one["field"]), text(LAWS.get(one["law"], one["law"])))
        rows.append((*head, whole(one["pairs"]), number(shown), interval(shown), whole(one["quiet"]),
                     whole(one["quiet"] - one["quiet_agree"])))  # fmt: skip
    note = (
        "A pair is a reading of TCP_INFO immediately before data was handed over, and the sample of the first packet "
        "that left by it. At a quiet moment no other packet and no event of the connection lies from 1 ms before the "
        "reading to the sample. Over all moments what came between explains what differs. Intervals are Clopper and "
        "Pearson's."
    )
    return Table("fields", "Each field beside TCP_INFO", columns, tuple(rows), note, wide=True)


LAWS = {
    "same": "the same",
    "whole units": "the same, its fraction cut off",
    "whole bytes": "the same, in whole bytes a second",
    "same, or unknown": "the same",
    "and the packet": "and the packet itself",
    "and its data": "and the packet's own data",
    "and its data segments": "and the packet's own segments",
    "within its ticks": "the same, run on for at most a tick",
}


def packets(run: Run) -> Table:
    """Packets of the log and of the capture, trial by trial."""
    found = run.samples("witness")
    columns = (
        Column(("cell",), "Trial", numeric=False),
        Column(("direction",), "Direction", numeric=False),
        Column(("logged",), "Logged"),
        Column(("captured",), "Captured"),
        Column(("missing",), "Missing in the log"),
        Column(("skipped",), "Of them skipped, as it says"),
        Column(("more",), "Missing in the capture"),
        Column(("swapped",), "In another order"),
        Column(("apart_p50_us",), "Median", "µs", group="Apart"),
        Column(("apart_p99_us",), "p99", "µs", group="Apart"),
    )
    rows = []
    for one in found.iter_rows(named=True) if found is not None else ():
        apart = [_apart(run, one, statistic) for statistic in ("p50", "p99")]
        counts = (whole(one[name]) for name in ("logged", "captured", "missing", "skipped", "more", "swapped"))
        rows.append((text(one["cell"]), text(WAYS[one["direction"]]), *counts, *apart))
    note = (
        "A packet is known by ports, sequence and acknowledgement numbers, flags, window and length. Apart: on the way "
        "out from the log to the capture at the host's port, on the way in from the capture to the log."
    )
    return Table("packets", "Each packet beside a capture", columns, tuple(rows), note, wide=True, grouped=True)


def _apart(run: Run, one: dict[str, Any], statistic: str) -> Entry:
    rows = run.rows(f"apart_{one['direction']}", statistic, device=one["cell"])
    value = rows["estimate"][0] if rows.height else None
    return number(show(value, None, None, "ns"))


def laws(run: Run) -> Table:
    """The estimates of the laws' values."""
    columns = (
        Column(("cell",), "Trial", numeric=False),
        Column(("quantity",), "Value", numeric=False),
        Column(("law",), "By its law"),
        Column(("estimate",), "Estimate"),
        Column(("ci_low", "ci_high"), "Interval"),
        Column(("n",), "Of"),
    )
    rows = []
    for quantity, statistic, words, value in ESTIMATES:
        for row in run.rows(quantity, statistic).iter_rows(named=True):
            wanted = value if value is not None else 0.5 if str(row["device"]).startswith("reno") else 717 / 1024
            shown = show(row["estimate"], row["ci_low"], row["ci_high"], row["unit"])
            law = show(wanted, None, None, row["unit"])
            rows.append((text(row["device"]), text(words), Entry(fixed(law.value, 4), (law.value,)), number(shown),
                         interval(shown), whole(row["n"])))  # fmt: skip
    note = (
        "The bounds of the factor hold for every back-off together and are no estimate: every threshold is the whole "
        "part of a factor between them times its window. The other intervals are of 95 %."
    )
    return Table("laws_of_tcp", "The laws of congestion control", columns, tuple(rows), note, grouped=True)


ESTIMATES = (
    ("back_off_factor", "bounds", "back-off factor, bounds", None),
    ("back_off_factor", "mean", "back-off factor, as the window shows it", None),
    ("reno_slope", "hl", "growth, segments a round trip", 1.0),
    ("reno_growth_exact", "ratio", "steps that are just what was delivered (%)", 1.0),
    ("cubic_constant", "window", "C of the windows' curves", 0.4),
    ("cubic_constant", "state", "C of the kernel's private state", 0.4),
)
"""Quantity, statistic, its words, and the law's value; without one it is the back-off's own."""


def agreement(run: Run) -> Figure | None:
    """The share of pairs that agree, field by field."""
    found = run.samples("agreement")
    if found is None or found.is_empty():
        return None
    rows = found.drop_nulls("kind").with_columns(
        (pl.col("agree") / pl.col("pairs") * 100).alias("x"),
        pl.col("low") * 100,
        pl.col("high") * 100,
        pl.col("field").alias("name"),
        pl.col("kind").replace(READ_WHEN).alias("device"),
    )
    moving = rows.group_by("name").agg(pl.col("x").min()).filter(pl.col("x") < 100)["name"].to_list()
    rows = rows.filter(pl.col("name").is_in(moving)).with_columns(cell=pl.lit(""))
    if rows.is_empty():
        return None
    names = tuple(dict.fromkeys(rows["name"].to_list()))
    caption = (
        f"Fields that did not agree every time ({len(names)} of {found['field'].n_unique()}), over all moments: "
        "between the reading and the packet something else came in, or left. At quiet moments none may differ. Bars "
        "are 95 % intervals."
    )
    return figure(
        "agreement", "Agreement with TCP_INFO", caption, rows, Intervals("Pairs that agree (%)", names), columns=1
    )


def apart(run: Run) -> Figure | None:
    """How far log and capture are apart in time, on a log(1 - p) axis."""
    found = run.samples("apart")
    if found is None or found.is_empty():
        return None
    rows = found.with_columns(
        (pl.col("apart_ns") / 1e3).clip(lower_bound=0.01).alias("x"), pl.col("direction").replace(WAYS).alias("device")
    )
    caption = (
        "On the way out the log comes first and the capture at the host's port behind it; on the way in it is the "
        "other way round. What lies between is the kernel's own way, and the capture's."
    )
    said, rarest = "Apart (µs)", float(rows["exceedance"].min() or 1e-3)  # type: ignore[arg-type]
    chart = Distribution(Axis(said, log=True).x("x"), rarest, said, stepped=False)
    return figure("apart", "Between log and capture", caption, rows, chart)


def back_offs(run: Run) -> Figure | None:
    """The threshold behind each back-off over the window before it."""
    found = run.samples("back_offs")
    if found is None or found.is_empty():
        return None
    named = found.with_columns(x=pl.col("before").cast(pl.Float64)).with_columns(*NO_INTERVAL)
    points = named.with_columns(y=pl.col("threshold").cast(pl.Float64), role=pl.lit("point"), device=pl.lit("logged"))
    law = named.with_columns(y=pl.col("before") * pl.col("factor"), role=pl.lit("fit"), device=pl.lit("logged"))
    rows = pl.concat(
        [
            points.unique(["cell", "x", "y"], maintain_order=True),
            law.sort("cell", "x").unique(["cell", "x"], maintain_order=True),
        ]
    )
    caption = "Each point is a back-off; the line is the law: half the window for Reno, 717/1024 of it for CUBIC."
    chart = Lines(Axis("Window before (segments)", zero=True), Axis("Threshold behind (segments)", zero=True))
    return figure("back_offs", "Back-offs", caption, rows, chart)


def reno_windows(run: Run) -> Figure | None:
    """Reno's window over round trips, stretch by stretch."""
    found = run.samples("reno_windows")
    if found is None or found.is_empty():
        return None
    base = found.with_columns(x=pl.col("round_trips"), device=pl.lit("logged")).with_columns(*NO_INTERVAL)
    points = base.with_columns(y=pl.col("grown"), role=pl.lit("point"))
    furthest = float(base["x"].max() or 1.0)  # type: ignore[arg-type]
    law = base.head(2).with_columns(
        x=pl.Series([0.0, furthest]), y=pl.Series([0.0, furthest]), role=pl.lit("fit"), device=pl.lit("logged")
    )
    caption = (
        "Stretches between two back-offs, the longest, each from its own beginning: the window with what is counted "
        "towards its next growth, over time in round trips as the log tells them. The line is the law: one for one."
    )
    chart = Lines(Axis("Round trips since the back-off", zero=True), Axis("Window grown by (segments)", zero=True))
    return figure("reno_windows", "Reno's growth", caption, pl.concat([points, law]), chart, columns=1)


def cubic_windows(run: Run) -> Figure | None:
    """CUBIC's window over time, stretch by stretch, each beside its law."""
    found = run.samples("cubic_windows")
    if found is None or found.is_empty():
        return None
    base = found.filter(pl.col("stretch") < 4).with_columns(x=pl.col("seconds"), device=pl.lit("logged"))
    base = base.with_columns(*NO_INTERVAL, cell=pl.format("{}, stretch {}", "cell", pl.col("stretch") + 1))
    points = base.with_columns(y=pl.col("window"), role=pl.lit("point"))
    law = base.with_columns(y=pl.col("law"), role=pl.lit("fit"))
    caption = (
        "The longest stretches between two back-offs, until Reno's window would be ahead. The line is the law, "
        "W(t) = 0.4 (t − K)³ + Wmax, with K of the two windows of the back-off; a delay and a part of a segment, which "
        "the kernel's counting in whole ones makes, are the same in all."
    )
    chart = Lines(Axis("Time since the back-off (s)", zero=True), Axis("Window (segments)"))
    return figure("cubic_windows", "CUBIC's growth", caption, pl.concat([points, law]), chart)


def keys(run: Run) -> list[Key]:
    """Checks passed, values compared, packets matched, and the laws' values."""
    found = checks_of(run)
    if not found:
        return []
    passed = sum(one["verdict"] == "pass" for one in found)
    failed = sum(one["verdict"] == "fail" for one in found)
    untold = len(found) - passed - failed
    keys_ = [Key("Checks passed", f"{passed} of {len(found)}", "", (f"{failed} fail", f"{untold} inconclusive"))]
    for check, what, unit in (
        ("quiet moments", "Values beside TCP_INFO", "values"),
        ("missing", "Captured packets", ""),
    ):
        several = [one for one in found if one["check"].endswith(check)]
        if several:
            wrong = sum(one["measured"] or 0 for one in several)
            words = "differ at quiet moments" if unit else "are missing in the log"
            keys_.append(Key(what, count(sum(one["n"] for one in several)), "", (f"{count(wrong)} {words}",)))
    for check, what in (("growth, over time", "Reno: segments a round trip"), ("curve, by the windows", "CUBIC: C")):
        one = next((one for one in found if one["check"] == check and one["measured"] is not None), None)
        if one:
            shown = show(one["measured"], one["ci_low"], one["ci_high"], "1")
            keys_.append(Key(what, shown.text, "", (f"95 % CI {shown.interval}", f"{one['configured']:g} by its law")))
    return keys_


def how(run: Run) -> list[str]:
    """How it was measured."""
    plan = run.plan.get("truth", {})
    return [
        (
            "The log is attached to the sending host alone, at every packet. Three witnesses stand beside it: the "
            "sending application itself, which reads TCP_INFO immediately before it hands data over; a capture at the "
            "same host's port; and the laws of congestion control, over an emulated path that loses packets by chance."
        ),
        (
            f"Messages of {plan.get('message_bytes', NOTHING)} bytes, {plan.get('message_interval', NOTHING)} apart, "
            "leave one by one, so that nothing else is under way as the application looks. Over the path packets are "
            "of one segment; the bulk over the direct link is of packets as large as the kernel makes them, and the "
            "capture sees them as large."
        ),
        "All checks of a run together raise a false alarm in at most one of a hundred runs of a log without fault.",
    ]


PARTS = Parts(
    tables=(checks, laws, fields, packets),
    figures=(agreement, apart, back_offs, reno_windows, cubic_windows),
    keys=keys,
    words=how,
    results=("checks", "laws_of_tcp"),
)
