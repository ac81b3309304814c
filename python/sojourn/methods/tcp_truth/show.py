"""The report of "tcp-truth": the log against TCP_INFO, a packet capture, and the congestion control algorithms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.charts import Axis, Distribution, Intervals, Lines
from sojourn.report.checks import checks_of, verdict_entry
from sojourn.report.numbers import NOTHING, Shown, as_written, count, fixed, show
from sojourn.report.parts import Key, Parts
from sojourn.report.streams.points import NO_INTERVAL, figure
from sojourn.report.table import Column, Entry, Table, interval, number, text, whole

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run

WAYS = {"out": "sent", "in": "received"}
UNITS = {"values": "values", "packets": "packets", "back-offs": "back-offs"}


READ_WHEN = {"messages": "before single messages", "direct": "during a bulk transfer"}


def checks(run: Run) -> Table:
    """Return the table of all checks with their verdicts."""
    columns = (
        Column(("cell",), "Trial", numeric=False),
        Column(("check",), "Check", numeric=False),
        Column(("against",), "Against", numeric=False),
        Column(("expected",), "Expected"),
        Column(("limit",), "Tolerance"),
        Column(("measured", "unit"), "Measured", numeric=True),
        Column(("ci_low", "ci_high"), "95 % CI"),
        Column(("n",), "n"),
        Column(("verdict",), "Verdict", numeric=False),
        Column(("what",), "Measured quantity", numeric=False),
    )
    rows = tuple(_row(one) for one in checks_of(run))
    return Table("checks", "Checks of the log", columns, rows, NOTE, wide=True, grouped=True)


NOTE = (
    "A count is the number of wrong values, packets or back-offs: a single one fails the check. An estimate passes "
    "when its whole 95 % CI lies within the tolerance, 5 % of the expected value (2 % for steps that grow by what was "
    "delivered): it need not contain the expected value itself."
)


def _row(one: dict[str, Any]) -> tuple[Entry, ...]:
    shown = show(one["measured"], one["ci_low"], one["ci_high"], one["unit"])
    wanted = show(one["configured"], None, None, one["unit"])
    limit = show(one["limit"], None, None, one["unit"])
    counted = one["unit"] in UNITS
    value = Entry(f"{count(one['measured'])} wrong", (one["measured"], one["unit"])) if counted else number(shown)
    return (
        text(str(one["device"])),
        Entry(_check(str(one["check"])), (str(one["check"]),)),
        text(str(one["of"])),
        Entry(
            NOTHING if wanted.value is None else fixed(wanted.value, 4).rstrip("0").rstrip("."), (one["configured"],)
        ),
        Entry(NOTHING if limit.value is None else f"± {fixed(limit.value, 3)}", (one["limit"],)),
        value,
        interval(shown),
        whole(one["n"]),
        verdict_entry(one),
        text(str(one["what"])),
    )


def _check(name: str) -> str:
    """Return a check's name with the usual word for the packet direction."""
    for way, words in WAYS.items():
        if name.startswith(f"packets {way}, "):
            return f"packets {words}, {name.removeprefix(f'packets {way}, ')}"
    return name


def fields(run: Run) -> Table:
    """Return the table of the agreement by field, over all trials."""
    found = run.samples("agreement")
    columns = (
        Column(("field",), "Field", numeric=False),
        Column(("law",), "Expected in the log", numeric=False),
        Column(("pairs",), "Pairs", group="All moments"),
        Column(("agree_percent",), "Agree", "%", group="All moments"),
        Column(("agree_low_percent", "agree_high_percent"), "95 % CI", "%", group="All moments"),
        Column(("quiet",), "Pairs", group="Quiet moments"),
        Column(("quiet_differ",), "Differ", group="Quiet moments"),
    )
    if found is None or found.is_empty():
        return Table("fields", "", columns, ())
    rows = []
    for one in found.filter(pl.col("kind").is_null()).iter_rows(named=True):
        shown = show(one["agree"] / max(1, one["pairs"]), one["low"], one["high"], "ratio")
        head = (text(one["field"]), text(RULES.get(one["law"], one["law"])))
        agree = number(shown) if one["agree"] in {0, one["pairs"]} else _not_all(shown)
        rows.append((*head, whole(one["pairs"]), agree, interval(shown), whole(one["quiet"]),
                     whole(one["quiet"] - one["quiet_agree"])))  # fmt: skip
    note = (
        "A pair is a reading of TCP_INFO immediately before the application writes data, and the log's sample of the "
        "first packet with that data. At a quiet moment no other packet and no event of the connection lies between 1 "
        "ms before the reading and the sample, and the connection has sent data within its last RTO: after a longer "
        "pause the kernel reduces the window between the two (RFC 5681, section 4.1). At other moments the state may "
        "change in between, so pairs may differ: an acknowledgement that arrives meanwhile changes segs_in. Intervals "
        "are Korn and Graubard's, with the trial as the unit: they are wide because there are few trials, even where "
        "all pairs agree."
    )
    return Table("fields", "Fields of the log against TCP_INFO", columns, tuple(rows), note, wide=True)


def _not_all(shown: Shown) -> Entry:
    """Return a share of which some do not agree: never rounded to 100, whatever digits its interval permits."""
    exact = number(shown)
    return exact if exact.text.strip() != "100" else Entry(fixed(shown.value, 2), exact.values)


RULES = {
    "same": "the same value",
    "whole units": "the same value, with a fraction",
    "whole bytes": "the same value, to a byte per second",
    "same, or unknown": "the same value",
    "and the packet": "the value plus the packet's segments",
    "and its data": "the value plus the packet's payload",
    "and its data segments": "the value plus the packet's data segments",
    "within its ticks": "the value plus the time passed, to a tick",
}


def packets(run: Run) -> Table:
    """Return the table of packets in the log and in the capture, by trial."""
    found = run.samples("witness")
    columns = (
        Column(("cell",), "Trial", numeric=False),
        Column(("direction",), "Direction", numeric=False),
        Column(("logged",), "Logged"),
        Column(("captured",), "Captured"),
        Column(("missing",), "Missing in the log"),
        Column(("skipped",), "Counted as skipped"),
        Column(("more",), "Missing in the capture"),
        Column(("swapped",), "In another order"),
        Column(("apart_p50_us",), "Median", "µs", group="Time between log and capture"),
        Column(("apart_p99_us",), "p99", "µs", group="Time between log and capture"),
    )
    rows = []
    for one in found.iter_rows(named=True) if found is not None else ():
        apart = [_apart(run, one, statistic) for statistic in ("p50", "p99")]
        counts = (whole(one[name]) for name in ("logged", "captured", "missing", "skipped", "more", "swapped"))
        rows.append((text(one["cell"]), text(WAYS[one["direction"]]), *counts, *apart))
    note = (
        "Packets are matched by ports, sequence and acknowledgement numbers, flags, window and length. Time between "
        "log and capture: of sent packets from the log to the capture at the host's port, of received ones from the "
        "capture to the log."
    )
    return Table("packets", "Packets of the log against a capture", columns, tuple(rows), note, wide=True, grouped=True)


def _apart(run: Run, one: dict[str, Any], statistic: str) -> Entry:
    rows = run.rows(f"apart_{one['direction']}", statistic, device=one["cell"])
    value = rows["estimate"][0] if rows.height else None
    return number(show(value, None, None, "ns"))


def laws(run: Run) -> Table:
    """Return the table of the estimates of the algorithms' parameters."""
    columns = (
        Column(("cell",), "Trial", numeric=False),
        Column(("quantity",), "Parameter", numeric=False),
        Column(("law",), "Expected"),
        Column(("estimate",), "Estimate"),
        Column(("ci_low", "ci_high"), "95 % CI, or bounds"),
        Column(("n",), "n"),
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
        "Bounds of the back-off factor: with any factor between them, every threshold is factor times window, rounded "
        "down. The other intervals are 95 % CIs."
    )
    return Table("laws_of_tcp", "Parameters of congestion control", columns, tuple(rows), note, grouped=True)


ESTIMATES = (
    ("back_off_factor", "bounds", "back-off factor, bounds", None),
    ("back_off_factor", "mean", "back-off factor, from the windows", None),
    ("reno_slope", "hl", "growth, segments per round trip", 1.0),
    ("reno_growth_exact", "ratio", "steps that grow by exactly what was delivered (%)", 1.0),
    ("cubic_constant", "window", "C, from the curve of the windows", 0.4),
    ("cubic_constant", "state", "C, from the kernel's private state", 0.4),
)
"""Quantity, statistic, its name, and the expected value; None stands for the factor of the algorithm's back-off."""


def agreement(run: Run) -> Figure | None:
    """Return the figure of the share of pairs that agree, by field."""
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
        f"The fields that did not always agree ({len(names)} of {found['field'].n_unique()}), at all moments. Between "
        "the reading and the packet's sample other packets may arrive or leave; at quiet moments no field may differ. "
        "Bars are 95 % CIs."
    )
    return figure(
        "agreement", "Agreement with TCP_INFO", caption, rows, Intervals("Pairs that agree (%)", names), columns=1
    )


def apart(run: Run) -> Figure | None:
    """Return the figure of the time between log and capture, on a log(1 - p) axis."""
    found = run.samples("apart")
    if found is None or found.is_empty():
        return None
    rows = found.with_columns(
        (pl.col("apart_ns") / 1e3).clip(lower_bound=0.01).alias("x"), pl.col("direction").replace(WAYS).alias("device")
    )
    caption = (
        "A sent packet passes the log first and then the capture at the host's port; a received packet passes them in "
        "the other order. The time between them is the kernel's and the capture's."
    )
    said, rarest = "Time between log and capture (µs)", float(rows["exceedance"].min() or 1e-3)  # type: ignore[arg-type]
    chart = Distribution(Axis(said, log=True).x("x"), rarest, said, stepped=False)
    return figure("apart", "Time between log and capture", caption, rows, chart)


def back_offs(run: Run) -> Figure | None:
    """Return the figure of the threshold after each back-off over the window before it."""
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
    caption = "Each point is a back-off. The line is the algorithm: half the window for Reno, 717/1024 of it for CUBIC."
    chart = Lines(Axis("Window before (segments)", zero=True), Axis("Threshold after (segments)", zero=True))
    return figure("back_offs", "Back-offs", caption, rows, chart)


def reno_windows(run: Run) -> Figure | None:
    """Return the figure of Reno's window over round trips, by stretch."""
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
        "The longest stretches between two back-offs, each from its beginning: the window, with what is counted "
        "towards its next growth, over time in logged round trips. The line is the algorithm: one segment per round "
        "trip."
    )
    chart = Lines(Axis("Round trips since the back-off", zero=True), Axis("Window grown by (segments)", zero=True))
    return figure("reno_windows", "Reno's growth", caption, pl.concat([points, law]), chart, columns=1)


def cubic_windows(run: Run) -> Figure | None:
    """Return the figure of CUBIC's window over time, by stretch, with the algorithm's curve."""
    found = run.samples("cubic_windows")
    if found is None or found.is_empty():
        return None
    base = found.filter(pl.col("stretch") < 4).with_columns(x=pl.col("seconds"), device=pl.lit("logged"))
    base = base.with_columns(*NO_INTERVAL, cell=pl.format("{}, stretch {}", "cell", pl.col("stretch") + 1))
    points = base.with_columns(y=pl.col("window"), role=pl.lit("point"))
    law = base.with_columns(y=pl.col("law"), role=pl.lit("fit"))
    caption = (
        "The longest stretches between two back-offs, until Reno's window would be larger. The line is the algorithm, "
        "W(t) = 0.4 (t − K)³ + Wmax, with K from the two windows of the back-off; a delay and an offset of a part of a "
        "segment (the kernel counts whole segments) are fitted, the same for all."
    )
    chart = Lines(Axis("Time since the back-off (s)", zero=True), Axis("Window (segments)"))
    return figure("cubic_windows", "CUBIC's growth", caption, pl.concat([points, law]), chart)


def keys(run: Run) -> list[Key]:
    """Return checks passed, values compared, packets matched, and the algorithms' parameters."""
    found = checks_of(run)
    if not found:
        return []
    passed = sum(one["verdict"] == "pass" for one in found)
    failed = sum(one["verdict"] == "fail" for one in found)
    undecided = len(found) - passed - failed
    keys_ = [Key("Checks passed", f"{passed} of {len(found)}", "", (f"{failed} fail", f"{undecided} inconclusive"))]
    for check, what, unit in (
        ("quiet moments", "Values compared with TCP_INFO", "values"),
        ("missing", "Captured packets", ""),
    ):
        several = [one for one in found if one["check"].endswith(check)]
        if several:
            wrong = sum(one["measured"] or 0 for one in several)
            words = "differ, at quiet moments" if unit else "are missing in the log"
            keys_.append(Key(what, count(sum(one["n"] for one in several)), "", (f"{count(wrong)} {words}",)))
    for check, what in (("growth, over time", "Reno: segments per round trip"), ("curve, by the windows", "CUBIC: C")):
        one = next((one for one in found if one["check"] == check and one["measured"] is not None), None)
        if one:
            shown = show(one["measured"], one["ci_low"], one["ci_high"], "1")
            keys_.append(Key(what, shown.text, "", (f"95 % CI {shown.interval}", f"expected: {one['configured']:g}")))
    return keys_


def how(run: Run) -> list[str]:
    """Return how it was measured."""
    plan = run.plan.get("truth", {})
    return [
        (
            "The log runs on the sending host only, for every packet. It is compared with three references: TCP_INFO, "
            "which the sending application reads immediately before it writes data; a packet capture at the same "
            "host's port; and the congestion control algorithms, over an emulated path with random loss."
        ),
        (
            f"Messages of {plan.get('message_bytes', NOTHING)} bytes are sent one by one, "
            f"{as_written(plan.get('message_interval'))} apart, so that no other packet is in flight when the "
            "application reads TCP_INFO. Over the emulated path packets have one segment; in the bulk transfer over "
            "the direct link they are as large as the kernel makes them, and the capture sees them in that size."
        ),
        "For a log without fault, at most one run in a hundred has a check that fails by chance.",
    ]


PARTS = Parts(
    tables=(checks, laws, fields, packets),
    figures=(agreement, apart, back_offs, reno_windows, cubic_windows),
    keys=keys,
    words=how,
    results=("checks", "laws_of_tcp"),
)
