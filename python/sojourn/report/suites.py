"""The reports of "rfc2544", "rfc8219" and "rfc2889": the results of searches, and the tester zero-loss rate."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from sojourn.report.charts import Axis, Lines, Steps
from sojourn.report.numbers import count, percent, show
from sojourn.report.palette import ordered
from sojourn.report.parts import Key, Parts
from sojourn.report.streams import delays
from sojourn.report.streams.measures import Ask, Measure, measured
from sojourn.report.streams.points import NO_INTERVAL, along, figure, in_legend_order, spans
from sojourn.report.streams.words import words
from sojourn.report.table import Column, Table, interval, number, text, whole

if TYPE_CHECKING:
    from typing import Any

    from sojourn.report.figure import Figure
    from sojourn.report.run import Run

SIZE = Axis("Frame (bytes)")
LIMITED = (
    "An arrow marks a lower limit: every load kept the goal, or the rate is within 10 % of the tester zero-loss rate."
)
UNIT = (
    "The unit is the search, repeated as often as the plan says; a trial within it is one stream at one load. Bounds "
    "are recomputed from the trials. The rate is the lower bound: the highest offered load that was tried and kept the "
    "goal. A load keeps the goal of no loss when none of its trials lost a frame (exceed ratio 0). Rates are averages "
    "over repetitions with Student's interval: over rebuilt beds where there are several, else over the repetitions on "
    "one bed. Fewer than three have no interval. A trial in which the sender stalled is repeated and does not count; "
    "one that was evenly slower counts at the load that it reached."
)


def goals(run: Run) -> list[tuple[str, str]]:
    """Return the searched quantities of the run, each with its name in the report."""
    found = run.samples("suite_rates")
    if found is None or found.is_empty():
        return []
    rows = found.unique(["quantity", "goal", "algorithm"], maintain_order=True).iter_rows(named=True)
    return [(str(row["quantity"]), _goal(row)) for row in rows]


def _goal(row: dict[str, Any]) -> str:
    loss = "no loss (NDR)" if row["goal"] == 0 else f"{percent(row['goal'])} loss (PDR)"
    what = "broadcast, " if str(row["quantity"]).startswith("broadcast") else ""
    return f"{what}{loss}" + (", binary search" if row["algorithm"] == "binary" else "")


def throughput(run: Run) -> Table:
    """The rate of each goal, by frame size."""
    measures = tuple(
        measure
        for quantity, words_ in goals(run)
        for measure in (
            Measure(quantity, "rate", "Rate", words_, limit=True),
            Measure(quantity, "below", "Less than", words_, interval=False),
            Measure(quantity, "upper", "Goal missed from", words_, interval=False),
            Measure(quantity, "bits", "Bit rate", words_, interval=False),
        )
    )
    note = (
        "Rate: the highest offered load that was tried and kept the goal (the search's lower bound). Goal missed from: "
        "the lowest load that did not keep it (upper bound). Rate and upper bound are a bracket whose width the plan "
        "sets, not a confidence interval. The 95 % interval is that of the average over repetitions. Bit rates are of "
        "frames with their FCS."
    )
    return measured(run, Ask("suite_rates", "Throughput", measures, note, counted="Searches"))


def decisions(run: Run) -> Table:
    """The evidence for each rate: its trials and frames, and what these do not exclude."""
    columns = (
        Column(("frame_bytes",), "Frame", "B"),
        Column(("device",), "Device", numeric=False),
        Column(("goal",), "Goal", numeric=False),
        Column(("trials",), "Trials"),
        Column(("frames",), "Frames"),
        Column(("seconds",), "Time", "s"),
        Column(("unseen_loss_percent",), "Loss not excluded", "%"),
        Column(("offered_off_percent",), "Offered rate off by", "%"),
        Column(("finite_trial_per_s",), "Finite trial adds up to", "1/s"),
    )
    found = run.samples("suite_rates")
    known = [] if found is None else found.filter(pl.col("frames") > 0).iter_rows(named=True)
    note = (
        "The trials at the lower bound, from the repetition with the fewest trials. Loss not excluded: the largest "
        "loss ratio that would have passed these trials with a probability of 5 %, if frames are lost independently. A "
        "trial adds up to what the device's buffer holds (RFC 9004, corrected), over its duration."
    )
    return Table("suite_decisions", "What the rates rest on", columns, tuple(map(_decision_row, known)), note,
                 grouped=True)  # fmt: skip


def _decision_row(row: dict[str, Any]) -> tuple[Any, ...]:
    shares = (number(show(row[name], None, None, "ratio")) for name in ("unseen_loss", "offered_off"))
    head = (whole(row["frame_bytes"]), text(row["device"], row["device"]), text(_goal(row)))
    excess = number(show(row["finite_trial_pps"], None, None, "1/s"))
    seconds = number(show(row["seconds"], None, None, "s"))
    return (*head, whole(row["trials"]), whole(row["frames"]), seconds, *shares, excess)


def spread(run: Run) -> Table:
    """Conditional throughput and the spread over repetitions."""
    measures = tuple(
        measure
        for quantity, words_ in goals(run)
        for measure in (
            Measure(quantity, "conditional", "Conditional", words_, interval=False),
            Measure(quantity, "spread", "Spread", words_, interval=False, share=True),
        )
    )
    note = "Conditional: the rate received at the load that kept the goal (MLRsearch)."
    title = "Conditional throughput"
    if run.results.filter(pl.col("statistic") == "spread").height:
        title += " and spread over repetitions"
        note += " Spread: the largest minus the smallest rate of the repetitions, divided by their median."
    return measured(run, Ask("suite_spread", title, measures, note))


def latency(run: Run, *, has_ipdv: bool = False) -> Table:
    """Latency at the throughput, as the RFCs define it; with a note if the suite has IPDV and the run has none."""
    measures = tuple(
        Measure(f"{prefix}{quantity}", statistic, title, f"{'Broadcast, ' if prefix else ''}{group}", interval=interval)
        for prefix in ("", "broadcast_")
        for quantity, statistic, title, group, interval in (
            ("latency_store_and_forward", "mean", "Mean", "store and forward (RFC 1242)", True),
            ("latency_store_and_forward", "p50", "Median", "store and forward (RFC 1242)", False),
            ("latency_store_and_forward", "p99", "p99", "store and forward (RFC 1242)", False),
            ("latency_bit_forwarding", "mean", "Mean", "bit forwarding (RFC 1242)", True),
            ("latency_bit_forwarding", "p50", "Median", "bit forwarding (RFC 1242)", False),
            ("latency_typical", "median", "Typical", "RFC 8219, test of latency", True),
            ("latency_worst", "median", "Worst", "RFC 8219, test of latency", True),
            ("pdv", "median", "PDV", "RFC 8219, test of latency", True),
            ("ipdv", "p50", "IPDV, median", "RFC 8219, test of latency", False),
            ("pdv_test", "median", "PDV", "RFC 8219, test of PDV", True),
            ("ipdv_test", "p50", "IPDV, median", "RFC 8219, test of IPDV", False),
        )
    )
    sources = (
        run.results.filter(pl.col("quantity").str.contains("latency_bit"))["source"].drop_nulls().unique().to_list()
    )
    note = (
        "At the highest load that kept the goal in the search; a later trial at that load may still lose frames. "
        "Percentiles are of all frames, where a lost frame has an infinite delay; means are of the frames that "
        "arrived. RFC 2544's latencies are averages over trials with Student's interval, RFC 8219's are medians over "
        "trials with the sign test's interval, which needs six trials or beds. Typical: median; worst: 99.9th "
        "percentile; PDV: 99.9th percentile minus minimum. Each test has its own trials, so the PDV of one may exceed "
        "the worst latency of another. "
        + (f"Timestamps: {'; '.join(told)}." if (told := sorted(one for one in sources if one)) else "")
    )
    if has_ipdv and not run.results["quantity"].str.starts_with("ipdv").any():
        note += " IPDV (RFC 3393) was not measured in this run."
    return measured(run, Ask("suite_latency", "Latency at the throughput", measures, note.strip(), clock=True))


def losses(run: Run) -> Table:
    """Loss at each share of the highest rate."""
    columns = (
        Column(("frame_bytes",), "Frame", "B"),
        Column(("device",), "Device", numeric=False),
        Column(("rate_share_percent",), "Share of the highest rate", "%"),
        Column(("offered_per_s",), "Offered", "1/s"),
        Column(("loss_percent",), "Lost", "%"),
        Column(("loss_low_percent", "loss_high_percent"), "95 % CI", "%"),
        Column(("trials",), "Trials"),
    )
    found = run.samples("loss_curve")
    rows = () if found is None else tuple(_loss_row(row) for row in found.iter_rows(named=True))
    return Table("suite_loss", "Frame loss", columns, rows, grouped=True)


def _loss_row(row: dict[str, Any]) -> tuple[Any, ...]:
    lost = show(row["loss_ratio"], row["ci_low"], row["ci_high"], "ratio")
    share = number(show(row["rate_share"], None, None, "ratio"))
    head = (whole(row["frame_bytes"]), text(row["device"], row["device"]), share, whole(row["offered_pps"]))
    return (*head, number(lost), interval(lost), whole(row["trials"]))


def buffers(run: Run) -> Table:
    """Back-to-back bursts and the buffer size that they imply."""
    measures = (
        Measure("back_to_back_frames", "mean", "Longest burst without loss, average", limit=True),
        Measure("back_to_back_frames", "min", "Least", interval=False),
        Measure("back_to_back_frames", "max", "Greatest", interval=False),
        Measure("back_to_back_frames", "sd", "Standard deviation", interval=False),
        Measure("buffer_time_implied", "mean", "Implied", "Buffer time"),
        Measure("buffer_time_corrected", "mean", "Corrected (RFC 9004)", "Buffer time"),
    )
    note = (
        "Over whole searches, each independent of the others (RFC 9004, section 6.3). Corrected: minus the time of the "
        "frames that the device forwarded while the burst still arrived (6.4). ≥: in some search the longest burst of "
        "the plan passed without loss."
    )
    told = [event.get("extra") or {} for event in run.log if event.get("event") == "search-result"]
    known = [(one["longest_tried"], one["width"]) for one in told if {"longest_tried", "width"} <= one.keys()]
    if known:
        longest, step = (max(several) for several in zip(*known, strict=True))
        note += (
            f" Bursts of up to {count(longest)} frames were tried; a search ends where the longest that passed and the "
            f"shortest that did not are {percent(step)} of its length apart, and 1 frame at least."
        )
    return measured(run, Ask("back_to_back", "Back-to-back frames", measures, note, counted="Searches"))


def addresses(run: Run) -> Table:
    """Address capacity, learning rate, forward pressure."""
    measures = (
        Measure("address_capacity", "rate", "All learned", "Address capacity", limit=True),
        Measure("address_capacity", "upper", "Some not", "Address capacity", interval=False),
        Measure("learning_rate", "rate", "All learned", "Learning rate, addresses/s", limit=True),
        Measure("learning_rate", "upper", "Some not", "Learning rate, addresses/s", interval=False),
        Measure("forward_pressure", "ratio", "Received over allowed rate", "Forward pressure"),
    )
    rows = run.results.filter(pl.col("quantity").is_in(["address_capacity", "learning_rate"]))
    note = "All learned: the largest number (or rate) at which the device learned every address"
    note += "; some not: the smallest at which it did not." if "upper" in rows["statistic"] else "."
    note += " ≥: the tester tried no more, or cannot send faster."
    pressure = " and forward pressure" if run.rows("forward_pressure").height else ""
    return measured(run, Ask("addresses", f"MAC address learning{pressure}", measures, note))


def departures(run: Run) -> Table:
    """Deviations of the run from its RFC."""
    columns = (Column(("rfc",), "Text", numeric=False), Column(("section",), "Section", numeric=False),
               Column(("sentence",), "What was done", numeric=False))  # fmt: skip
    found = run.samples("deviations")
    rows = () if found is None else tuple(tuple(text(one) for one in row) for row in found.iter_rows())
    note = (
        "From the plan and from what was measured. A choice that the standard leaves open is not a deviation, nor is "
        "doing more than it requires."
    )
    return Table("deviations", "Deviations from the standard", columns, rows, note, grouped=True)


def deviations_told(run: Run) -> str:
    """Return how many deviations from which RFC the report lists: "3 deviations from RFC 2544, 1 from RFC 9004"."""
    found = run.samples("deviations")
    if found is None or found.is_empty():
        return ""
    many = found.group_by("rfc", maintain_order=True).len().rows()
    first = f"{many[0][1]} deviation{'s' if many[0][1] != 1 else ''} from {many[0][0]}"
    return ", ".join([first, *(f"{several} from {rfc}" for rfc, several in many[1:])])


def missing(run: Run) -> Table:
    """The searches without a result, or with a limit only, each with the reason."""
    columns = (
        Column(("test",), "Test", numeric=False),
        Column(("device",), "Device", numeric=False),
        Column(("frame_bytes",), "Frame", "B"),
        Column(("goal",), "Goal", numeric=False),
        Column(("why",), "Why", numeric=False),
    )
    found = run.samples("not_measured")
    rows = () if found is None else tuple(
        (text(row["test"].replace("-", " ")), text(row["device"], row["device"]), text(str(row["frame_bytes"])),
         text("" if row["goal"] is None else f"{percent(row['goal'])} loss"), text(row["why"]))
        for row in found.iter_rows(named=True)
    )  # fmt: skip
    note = (
        "A search that ran out of time may have bounds, from at least two trials, that are farther apart than "
        "requested; a search that was not begun is in no table."
    )
    title = "Searches without a result, with a limit only, or cut short"
    return Table("not_measured", title, columns, rows, note + _not_begun(run), grouped=True)


def _not_begun(run: Run) -> str:
    """Return how many searches were not begun because the plan's time was up; empty if all were."""
    for event in run.log:
        if event.get("event") == "time-is-up" and "searches" in event:
            left = int(event["asked"]) - int(event["searches"])
            return f" Of this run's {event['asked']} searches {left} were not begun, because the plan's time was up."
    return ""


def rates_over_size(run: Run) -> Figure | None:
    """Rates over the frame's size, with the tester zero-loss rate."""
    found = run.samples("suite_rates")
    if found is None or found.is_empty():
        return None
    names = dict(goals(run))
    rows = found.with_columns(
        pl.col("quantity").replace(names).alias("cell"),
        pl.col("frame_bytes").cast(pl.Float64).alias("x"),
        *spans(("pps", "ci_low_pps", "ci_high_pps")),
        pl.lit("measured").alias("series"),
        pl.col("tester_limited").alias("hollow"),
    )
    tester = rows.drop_nulls("tester_pps").with_columns(
        pl.lit("direct").alias("device"), pl.col("tester_pps").alias("y"), pl.lit(value=False).alias("hollow"),
        pl.lit("tester zero-loss rate").alias("series"), *NO_INTERVAL,
    ).unique(["cell", "x"], maintain_order=True)  # fmt: skip
    drawn = pl.concat([rows, tester]).drop_nulls("y").pipe(along)
    series = ("measured", "tester zero-loss rate") if tester.height else ("measured",)
    chart = Lines(SIZE, Axis("Frames/s", zero=True), series)
    caption = f"One panel for each goal and search algorithm. {LIMITED}"
    return figure("suite_rates", "Throughput over frame size", caption, drawn, chart)


def steps(run: Run) -> Figure | None:
    """Draw every trial of the searches, in order."""
    found = run.samples("search_steps")
    if found is None or found.is_empty():
        return None
    searched = found.filter(
        pl.col("test").is_in(["throughput", "broadcast-forwarding"]) & (pl.col("verdict") != "alive")
    )
    searched = searched.filter(pl.col("repetition") == pl.col("repetition").min())
    several_tests = (
        searched["test"].n_unique() > 1
        or searched["search"].n_unique() > searched.unique(["device", "frame_bytes"]).height
    )
    name = pl.format("{} B, {}", "frame_bytes", "device")
    label = pl.format("{}, {}, search {}", name, "test", pl.col("search") + 1) if several_tests else name
    lost = (
        pl.when(pl.col("lost") == 0)
        .then(pl.lit("none"))
        .when(pl.col("loss_ratio") <= 0.005)
        .then(pl.lit("up to 0.5 %"))
    )
    rows = searched.with_columns(
        label.alias("cell"), (pl.col("step") + 1).alias("x"), pl.col("load").alias("y"),
        lost.otherwise(pl.lit("more")).alias("series"), (pl.col("verdict") != "used").alias("hollow"),
    ).sort("frame_bytes", "search", "step", maintain_order=True)  # fmt: skip
    caption = (
        "One point for each trial, in order of time; its colour shows the loss. Hollow points did not count: the "
        "sender missed the load, or the trial was repeated."
    )
    chart = Steps("Trial of the search", "Offered load (frames/s)", ("none", "up to 0.5 %", "more"))
    return figure("search_steps", "The searches, trial by trial", caption, rows, chart)


def loss_over_load(run: Run) -> Figure | None:
    """Loss over the offered rate."""
    found = run.samples("loss_curve")
    if found is None or found.is_empty():
        return None
    rows = found.with_columns(
        pl.format("{} B", "frame_bytes").alias("cell"),
        pl.col("offered_pps").alias("x"),
        *spans(("loss_ratio", "ci_low", "ci_high"), 100),
    ).sort("frame_bytes", "x", maintain_order=True)
    chart = Lines(Axis("Offered load (frames/s)", zero=True), Axis("Lost (%)", symlog=True))
    caption = (
        "Share of the frames lost at each offered load, measured from the highest load downwards (RFC 2544, section "
        "26.3)."
    )
    return figure("suite_loss", "Frame loss over offered load", caption, rows, chart)


TESTS = {"latency": "latency", "pdv": "PDV", "ipdv": "IPDV", "broadcast-latency": "broadcast latency"}


def latencies(run: Run) -> Figure | None:
    """Draw the typical and the worst latency of every trial."""
    found = run.samples("latency_trials")
    if found is None or found.is_empty():
        return None
    names = {"p50_ns": "typical (median)", "p99_9_ns": "worst (99.9th percentile)", "pdv_ns": "PDV"}
    long = found.unpivot(
        on=list(names), index=["device", "frame_bytes", "test", "repetition"], variable_name="what", value_name="ns"
    ).filter((pl.col("test") == "pdv") == (pl.col("what") == "pdv_ns"))
    rows = long.drop_nulls("ns").filter(pl.col("ns") > 0).with_columns(
        pl.format("test of {}, {}", pl.col("test").replace(TESTS), pl.col("what").replace(names)).alias("cell"),
        pl.col("frame_bytes").cast(pl.Float64).alias("x"), (pl.col("ns") / 1e3).alias("y"),
        *NO_INTERVAL,
    )  # fmt: skip
    caption = (
        "One point for each trial. A trial whose percentile is infinite, because frames were lost, has no point; where "
        "most have none, the estimate in the table is ∞."
    )
    chart = Lines(SIZE, Axis("Latency, or PDV (µs)", log=True), joined=False)
    return figure("latency_trials", "Latency, trial by trial", caption, in_legend_order(rows), chart)


def bursts(run: Run) -> Figure | None:
    """Draw every burst: its length, and the share lost."""
    found = run.samples("bursts")
    if found is None or found.is_empty():
        return None
    rows = found.with_columns(
        pl.format("{} B", "frame_bytes").alias("cell"), pl.col("frames").cast(pl.Float64).alias("x"),
        (pl.col("lost") / pl.col("frames") * 100).alias("y"),
        *NO_INTERVAL,
    ).sort("frame_bytes", maintain_order=True)  # fmt: skip
    caption = (
        "One point for each burst, sent as fast as the tester can: as long as the buffer holds the burst, no frame is "
        "lost."
    )
    chart = Lines(Axis("Burst (frames)", log=True), Axis("Lost (%)", symlog=True), joined=False)
    return figure("bursts", "Back-to-back bursts", caption, rows, chart)


def lessons(run: Run) -> Figure | None:
    """Draw the share of the offered addresses that were learned."""
    found = run.samples("lessons")
    if found is None or found.is_empty():
        return None
    rate = pl.col("test") == "learning-rate"
    rows = found.with_columns(
        pl.when(rate).then(pl.lit("Learning rate: addresses/s"))
        .otherwise(pl.lit("Address capacity: addresses")).alias("cell"),
        pl.when(rate).then(pl.col("sent_pps")).otherwise(pl.col("addresses").cast(pl.Float64)).alias("x"),
        (pl.col("learned") / pl.col("addresses") * 100).alias("y"),
        *NO_INTERVAL,
    ).filter(pl.col("x") > 0).pipe(along)  # fmt: skip
    caption = "One point for each trial: the share of the addresses sent that the device's table had afterwards."
    chart = Lines(Axis("Sent, as the panel says", log=True), Axis("Learned (%)", zero=True), joined=False)
    return figure("lessons", "MAC address learning", caption, rows, chart)


def keys(run: Run) -> list[Key]:
    """Return the rates of the smallest and largest frame, latency, and address learning as key numbers."""
    found = []
    for quantity, words_ in goals(run)[:2]:
        rates = pl.col("statistic").is_in(["rate", "at_least"])
        mine = run.results.filter((pl.col("quantity") == quantity) & rates)
        for device in ordered(mine["device"].to_list()):
            own = mine.filter(pl.col("device") == device)
            found += [
                delays.key_of(row, f"{device}, {row['frame_bytes']} B: {words_}", *_missed_from(run, row))
                for row in delays.ends(own, "frame_bytes")
            ]
    for quantity, what in (("latency_typical", "typical latency"), ("latency_store_and_forward", "mean latency")):
        rows = run.rows(quantity).filter(pl.col("statistic").is_in(["median", "mean"]) & (pl.col("device") != "direct"))
        row = delays.extreme(rows, "frame_bytes", least=True)
        if row:
            found.append(delays.key_of(row, f"{row['device']}, {row['frame_bytes']} B: {what}", delays.clock_line(row)))
    for quantity, what in (("address_capacity", "addresses learned"), ("learning_rate", "addresses/s learned")):
        rows = run.rows(quantity).filter(pl.col("statistic").is_in(["rate", "at_least"]))
        row = delays.extreme(rows, "estimate")
        if row:
            mark = "≥ " if row["statistic"] == "at_least" else ""
            title = f"{row['device']}, {row['frame_bytes']} B: {what}"
            found.append(Key(title, f"{mark}{count(row['estimate'])}", "", (), row["device"]))
    return found


def _missed_from(run: Run, row: dict[str, Any]) -> tuple[str, ...]:
    """Return the other end of the search's bracket."""
    like = (pl.col("device") == row["device"]) & (pl.col("cell") == row["cell"]) & (pl.col("statistic") == "upper")
    upper = run.rows(row["quantity"]).filter(like)
    return (f"goal missed from {count(upper['estimate'][0])} on",) if upper.height else ()


def how(run: Run, rfc: str) -> list[str]:
    """Return the description of the measurement."""
    return words(
        run,
        f"Raw frames at regular intervals. The tests follow {rfc}; a table lists every deviation by section. "
        "MLRsearch searches for all loss goals at once, with short trials first. Where the plan asks for it, a binary "
        "search is run as well.",
        unit=UNIT,
    )


def parts_of_suite(rfc: str, *, has_ipdv: bool = False) -> Parts:
    """Return the report of a suite that follows this RFC."""
    delays_of_it = partial(latency, has_ipdv=has_ipdv)
    return Parts(
        tables=(throughput, delays_of_it, losses, buffers, addresses, decisions, spread, departures, missing),
        figures=(rates_over_size, steps, loss_over_load, latencies, bursts, lessons),
        keys=keys,
        words=partial(how, rfc=rfc),
        results=("suite_rates", "suite_latency", "addresses", "suite_decisions", "deviations", "not_measured"),
    )
