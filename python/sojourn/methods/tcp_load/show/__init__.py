"""The report of "tcp-load": grades with their rule, round trips idle and working, and what the flows got."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.methods.tcp_load.analyse.conserved import MOST_FLOWS
from sojourn.methods.tcp_load.show.background import background, trimmed
from sojourn.methods.tcp_load.show.beside import compared
from sojourn.methods.tcp_load.show.grid import over_grid
from sojourn.methods.tcp_load.show.round_trips import by_round_trip, over_round_trips, round_trip_keys
from sojourn.methods.tcp_load.show.rows import (
    ESTIMATE,
    FACTORS,
    MILLION,
    WAYS,
    cells_of,
    factors_of,
    in_ms,
    in_s,
    load_of,
    measured,
    names_of,
    probe_of,
    queue_of,
    shown_of,
    with_interval,
)
from sojourn.methods.tcp_load.show.tcp import limits, losses, queues
from sojourn.report.charts import Axis, Distribution, Lines
from sojourn.report.numbers import as_written, fixed
from sojourn.report.parts import Key, Parts
from sojourn.report.paths import path_words
from sojourn.report.stamps import clock_and_stamps
from sojourn.report.streams.points import NO_INTERVAL, figure
from sojourn.report.table import Column, Entry, Table, interval, number, text, whole

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run

GRADES = "A+ below 5 ms, A below 30 ms, B below 60 ms, C below 200 ms, D below 400 ms, F from there on"
STATISTICS = {"mean": "mean", "p50": "median", "p90": "p90", "p99": "p99"}
INCREASE = ("increase_ns", "low_ns", "high_ns")
MOST_POINTS = 3000


def grades(run: Run) -> Table:
    """The latency under load of each device, with its grade."""
    found = run.samples("load_grades")
    columns = (
        *FACTORS,
        Column(("increase_ms",), "Latency under load", "ms"),
        Column(("increase_low_ms", "increase_high_ms"), "95 % CI", "ms"),
        Column(("grade",), "Grade", numeric=False),
        Column(("rounds",), "Rounds"),
    )
    rows = []
    for row in found.iter_rows(named=True) if found is not None else ():
        shown = in_ms(row, INCREASE)
        rows.append((*factors_of(row), number(shown), interval(shown), Entry(row["said"], (row["grade"],)),
                     whole(row["n"])))  # fmt: skip
    note = (
        "The latency under load is the mean round trip under working conditions minus that of the idle path, for the "
        f"directions named; where directions are loaded one after the other, it is their mean. Grades are those of "
        f"DSLReports' speed test (dslreports.com/faq/17930): {GRADES}. In brackets: the grades within the interval."
    )
    return Table("grades", "Latency under load", columns, tuple(rows), note, grouped=True)


def logged(run: Run) -> Table:
    """The trials that have the log of TCP's state, with the commands that read it."""
    found = run.samples("load_logged")
    rows = [
        (
            *factors_of(row),
            whole(row["block"]),
            whole(row["records"]),
            text(f"sojourn why RUN --block {row['block']} …"),
        )
        for row in (found.iter_rows(named=True) if found is not None else ())
    ]  # fmt: skip
    columns = (*FACTORS, Column(("block",), "Trial (--block)"), Column(("records",), "Records"),
               Column(("command",), "Command", numeric=False))  # fmt: skip
    note = (
        "In these trials the state of TCP was logged at every packet of both hosts, and every packet at the emulator. "
        "They are in no other table or figure. `sojourn tcplog summary` lists their flows, `sojourn why` says what "
        "limited a flow at a moment, `sojourn timeline RUN --block N --to html` draws the sequence numbers of a trial "
        "over time, in which a click on a segment shows its path and its line in every record."
    )
    return Table("logged", "Trials with the log of TCP's state", columns, tuple(rows), note, wide=True, grouped=True)


def round_trips(run: Run) -> Table:
    """Round trips on the idle path and under load, and their difference."""
    columns = (
        *FACTORS,
        Column(("probe",), "Probes", numeric=False),
        Column(("statistic",), "Of a trial", numeric=False),
        Column(("idle_ms",), "Idle", "ms"),
        Column(("working_ms",), "Working", "ms"),
        Column(("increase_ms",), "Increase", "ms"),
        Column(("increase_low_ms", "increase_high_ms"), "95 % CI", "ms"),
        Column(("n",), "Trials"),
    )
    rows = []
    for factors, of in cells_of(run, further=True):
        for statistic, said in STATISTICS.items():
            each = [of.get((f"rtt_{what}", statistic)) for what in ("idle", "working", "increase")]
            if each[1] is None:
                continue
            shown = [in_ms(row or {}, ESTIMATE) for row in each]
            about = (*factors_of(factors), text(probe_of(factors)), text(said))
            rows.append((*about, *map(number, shown), interval(shown[2]), whole(each[1]["n"])))
    note = (
        "A figure is the mean over trials of each trial's own mean or percentile. A percentile is given where ten "
        "probes of a trial lie beyond it. Probes with a DSCP ran at the same time as the first; their answers have "
        "the same DSCP."
    )
    return Table(
        "round_trips",
        ("Round trips on the idle path and under load"),
        columns,
        tuple(rows),
        note,
        wide=True,
        grouped=True,
    )


def marked(run: Run) -> Table:
    """What the flows of each DSCP got."""
    rows = [
        (*factors_of(factors), text(way), text(statistic.partition(" ")[2]), *with_interval(row, "bit/s"))
        for factors, of in cells_of(run)
        for way in WAYS
        for (quantity, statistic), row in of.items()
        if quantity == "goodput_by_dscp" and statistic.partition(" ")[0] == way
    ]
    columns = (*FACTORS, Column(("sent",), "Sent", numeric=False), Column(("dscp",), "DSCP", numeric=False),
               *measured("goodput", "Goodput", "Mbit/s"))  # fmt: skip
    note = "Of the flows with this DSCP together. Acknowledgements have the DSCP of the data that they acknowledge."
    return Table("marked", "Goodput by DSCP", columns, tuple(rows), note, grouped=True)


MEASURES = (
    ("goodput", "Goodput", "Mbit/s", "bit/s"),
    ("utilisation", "Of the rate", "%", "ratio"),
    ("retransmitted", "Retransmitted", "%", "ratio"),
    ("fairness", "Jain's fairness", "", "1"),
)


def flows(run: Run) -> Table:
    """What the flows got, by the direction in which they sent."""
    measures = [one for one in MEASURES if run.rows(one[0]).height]
    columns = [*FACTORS, Column(("sent",), "Sent", numeric=False)]
    for name, title, unit, _ in measures:
        columns += [Column((name,), title, unit), Column((f"{name}_low", f"{name}_high"), "95 % CI", unit)]
    columns += [Column(("working_rpm",), "Working", "1/min", group="Round trips per minute"),
                Column(("rpm_low", "rpm_high"), "95 % CI", "1/min", group="Round trips per minute"),
                Column(("idle_rpm",), "Idle", "1/min", group="Round trips per minute")]  # fmt: skip
    rows = []
    for factors, of in cells_of(run):
        for way in (way for way in WAYS if ("goodput", way) in of):
            entries: list[Entry] = []
            for name, _, _, unit in measures:
                shown = shown_of(of.get((name, way)), unit)
                entries += [number(shown), interval(shown)]
            rpm, idle = (shown_of(of.get(("responsiveness", state)), "1/min") for state in ("working", "idle"))
            entries += [number(rpm), interval(rpm), number(idle)]
            rows.append((*factors_of(factors), text(way), *entries))
    note = (
        "Goodput: user data that reached the receiver, each byte once, of all flows together. Of the rate: the same "
        "with TCP's, IP's and Ethernet's headers, over the rate that the link was set to. "
        "Retransmitted: of the segments sent. Round trips per minute: 60 s over the mean of the shortest 95 % of a "
        "trial's round trips, as draft-ietf-ippm-responsiveness trims them; the draft's own figure uses round trips "
        "of TCP, TLS and HTTP, so the two cannot be compared."
    )
    return Table("flows", "Flows", tuple(columns), tuple(rows), note, wide=True, grouped=True)


SPREAD = ("least", "median", "most")


def spread(run: Run) -> Table:
    """What single flows got, where several share a path."""
    columns = [*FACTORS, Column(("sent",), "Sent", numeric=False)]
    for name in SPREAD:
        columns += measured(name, name.capitalize(), "Mbit/s", "Goodput of a flow")
    rows = [
        (*factors_of(factors), text(way), *(entry for one in each for entry in with_interval(one, "bit/s")))
        for factors, of in cells_of(run)
        for way in WAYS
        if all(each := [of.get(("goodput_of_flow", f"{way} {name}")) for name in SPREAD])
    ]
    note = (
        "Of each trial: the flow that got the least, the median one, and the one that got the most. The interval is of "
        "the mean over trials, not of a single flow."
    )
    return Table("spread", "Spread of the flows", tuple(columns), tuple(rows), note, wide=True, grouped=True)


TURNS = ("first", "second", "third", "fourth")


def shares(run: Run) -> Table:
    """What each algorithm got where several share a path, and when they became fair."""
    columns = (
        *FACTORS,
        Column(("sent",), "Sent", numeric=False),
        Column(("algorithm",), "Algorithm", numeric=False),
        Column(("turn",), "Begins", numeric=False),
        Column(("share",), "Share", "%"),
        Column(("share_low", "share_high"), "95 % CI", "%"),
        Column(("fairness",), "Jain's index"),
        Column(("converged",), "Became fair", "% of trials"),
        Column(("convergence",), "After", "s"),
        Column(("convergence_low", "convergence_high"), "95 % CI", "s"),
    )
    rows = []
    for factors, of in cells_of(run):
        for way in WAYS:
            for turn, name in zip(TURNS, str(factors["congestion"]).split("+"), strict=False):
                if (own := of.get(("share", f"{way} {turn}"))) is None:
                    continue
                share, after = shown_of(own, "ratio"), in_s(of.get(("convergence", way)))
                others = (shown_of(of.get(("fairness", way)), "1"), shown_of(of.get(("converged", way)), "ratio"))
                entries = (number(share), interval(share), *map(number, others), number(after), interval(after))
                rows.append((*factors_of(factors), text(way), text(name), text(turn), *entries))
    note = (
        f"The flows of the first algorithm use the path alone for {as_written(run.plan.get('load', {}).get('join'))}, "
        "then those of the others join. Shares are of the goodput of all flows, from the end of the start-up on. The "
        "time until flows are fair is counted from the joining to the end of the first second in which Jain's index of "
        "their goodputs is 0.95 or more; it is given only where all trials reached that. An algorithm that joins "
        "itself shows the effect of the order alone."
    )
    return Table("shares", "Shares of the bottleneck", columns, tuple(rows), note, wide=True, grouped=True)


def over_delay(run: Run) -> Figure | None:
    """Goodput against queueing delay, a point a cell, where pipes differ."""
    found = [
        {"device": str(row["device"]), "series": queue_of(run, row), "x": delay["estimate"] / MILLION,
         "y": of["goodput", way]["estimate"] / MILLION, "cell": f"{load_of(row)} {way}"}
        for row, of in cells_of(run)
        for way in WAYS
        if (delay := of.get(("queueing_delay", f"{way} mean"))) and ("goodput", way) in of
    ]  # fmt: skip
    names = tuple(dict.fromkeys(one["series"] for one in found))
    if len(names) < 2:
        return None
    rows = pl.DataFrame(found).with_columns(*NO_INTERVAL, role=pl.lit("point"))
    caption = (
        "The goodput of the flows, over the mean delay of all packets in the emulator's queue: one point for each "
        "queue, one panel for each load. Up and to the left is better (RFC 7928, section 2)."
    )
    axes = Axis("Queueing delay (ms)", zero=True), Axis("Goodput (Mbit/s)")
    chart = Lines(*axes, names, joined=False, hued=True)
    return figure("load_queues", "Goodput and queueing delay", caption, rows, chart)


def conserved(run: Run) -> Table:
    """Where the segments of the trials with the log are, instrument by instrument."""
    found = run.samples("load_conserved")
    names = ("segments", "tap_before", "tap_near", "tap_device", "tap_far", "tap_after", "before", "arrived",
             "departed", "dropped", "held", "received", "behind", "strangers")  # fmt: skip
    rows = [
        (text(str(row["device"]), str(row["device"])), whole(row["block"]), text(row["flow"]),
         *(whole(row.get(name)) for name in names), whole(row["missing"]))
        for row in (found.iter_rows(named=True) if found is not None else ())
    ]  # fmt: skip
    titles = ("Sent by TCP", "Lost before it", "At the first", "Lost between", "At the last", "Lost behind it",
              "Lost before", "Arrived", "Departed", "Dropped", "Held", "Received", "Lost behind",
              "Of no record")  # fmt: skip
    columns = (
        Column(("device",), "Path", numeric=False),
        Column(("block",), "Trial"),
        Column(("flow",), "Flow of data", numeric=False),
        *(Column((name,), title, group="Taps" if name.startswith("tap_") else
                 "Emulator" if name in {"arrived", "departed", "dropped", "held"} else "")
          for name, title in zip(names, titles, strict=True)),
        Column(("missing",), "Records that a log lacks"),
    )  # fmt: skip
    note = (
        "Segments with data, retransmissions included, of each flow in the trials with the log. Sent by TCP = lost "
        "before the emulator + arrived; arrived = departed + dropped + held; departed = received + lost after it. The "
        "same of the taps at the hosts' ports: sent = lost before the first + seen at it; that = lost between the taps "
        "+ seen at the last. What the device between them loses is its own loss; any other, and any that an emulator "
        "there has no record of, is a finding. Where a log or a tap lacks records, these sums are not checked. "
        f"Of a trial with more than {MOST_FLOWS} connections so many are here."
    )
    return Table("conserved", "Segments from instrument to instrument", columns, tuple(rows), note, wide=True)


def _named(run: Run, found: pl.DataFrame) -> pl.DataFrame:
    return found.with_columns(pl.col("cell").replace_strict(names_of(run), default="", return_dtype=pl.String))


def over_time(run: Run) -> Figure | None:
    """Round trips from before the flows began to their end, all trials over each other."""
    found = run.samples("load_timeline")
    if found is None or found.is_empty():
        return None
    stride = -(-found.height // MOST_POINTS)
    rows = _named(run, found.gather_every(stride)).with_columns(
        *NO_INTERVAL,
        x=pl.col("elapsed_s").round(3),
        y=(pl.col("rtt_ns") / MILLION).round(3),
        role=pl.lit("point"),
    )
    caption = (
        "Round trips of all trials over the time since their first flows began. Before that, the path is idle"
        f"{working_begins(run)}."
    )
    chart = Lines(Axis("Time since the flows began (s)"), Axis("Round trip (ms)", zero=True), joined=False)
    return figure("load_timeline", "Round trips as flows begin", caption, rows, chart)


def working_begins(run: Run) -> str:
    """When working conditions begin, as an end of a sentence; later where flows join."""
    plan = run.plan.get("load", {})
    start_up, join = (as_written(plan.get(name)) for name in ("start_up", "join"))
    joined = ["+" in str(row["congestion"]) for row, _ in cells_of(run)]
    if not any(joined):
        return f"; working conditions begin {start_up} after it"
    alone = "" if all(joined) else ", or of the only one"
    return (
        f"; the flows of further algorithms join {join} after the first, and working conditions begin {start_up} "
        f"after the beginning of the last algorithm's flows{alone}"
    )


def distributions(run: Run) -> Figure | None:
    """Distributions on the idle path and under load."""
    found = run.samples("load_quantiles")
    if found is None or found.is_empty():
        return None
    named = _named(run, found)
    rows = named.with_columns(
        (pl.col("rtt_ns") / MILLION).round(4).alias("x"), pl.format("{}: {}", "cell", "state").alias("cell")
    )
    said, rarest = "Round trip (ms)", float(rows["exceedance"].min() or 1e-3)  # type: ignore[arg-type]
    caption = "The round trips of all trials, of the idle path and under working conditions, on a log(1 − p) axis."
    chart = Distribution(Axis(said).x("x"), rarest, said)
    return figure("load_quantiles", "Distributions on the idle path and under load", caption, rows, chart)


MOST_KEYS = 6
"""Cards of shares and latencies; goodput has as many cells."""


def keys(run: Run) -> list[Key]:
    """What joining flows got, each latency under load with its grade, and the goodput beside it."""
    cells = cells_of(run)
    several = len({row["pipe"] for row, _ in cells}) > 1
    shared = [*_share_keys(run), *round_trip_keys(run)]
    keys = [*shared, *_latency_keys(run, several=several)][:MOST_KEYS]
    for factors, of in cells[:MOST_KEYS]:
        for way in WAYS:
            if goodput := of.get(("goodput", way)):
                shown, used = shown_of(goodput, "bit/s"), of.get(("utilisation", way))
                share = f"{fixed(100 * used['estimate'], 1)} % of the rate" if used else ""
                queue = f", {queue_of(run, factors)}" if several else ""
                load = [load_of(factors)] if len(cells) > 1 else []
                told = (*shown.told, *([share] if share else []), *load)
                keys.append(Key(f"Goodput {way}{queue}", shown.text, shown.unit, told, str(factors["device"])))
    return keys


def _latency_keys(run: Run, *, several: bool) -> list[Key]:
    """Each latency under load with its grade; with its queue, where there are several."""
    keys, found = [], run.samples("load_grades")
    for row in found.iter_rows(named=True) if found is not None else ():
        shown = in_ms(row, INCREASE)
        queue = f", {queue_of(run, row)}" if several else ""
        lines = (*shown.told, f"grade {row['said']}", f"{load_of(row)}, {row['direction']}")
        keys.append(Key(f"Latency under load{queue}", shown.text, "ms", lines, str(row["device"])))
    return keys


def _share_keys(run: Run) -> list[Key]:
    """The share of the flows that joined others, of each pair of algorithms."""
    keys = []
    for factors, of in cells_of(run)[:MOST_KEYS]:
        names = str(factors["congestion"]).split("+")
        for way in WAYS:
            if len(names) > 1 and (own := of.get(("share", f"{way} {TURNS[1]}"))):
                shown = shown_of(own, "ratio")
                title = f"Share of {names[1]}, joining {names[0]}"
                keys.append(Key(title, shown.text, "%", (*shown.told, f"of the goodput {way}"), str(factors["device"])))
    return keys


def words(run: Run) -> list[str]:
    """How it was measured."""
    plan = run.plan.get("load", {})
    times = {name: as_written(plan.get(name)) for name in ("idle", "start_up", "duration", "read_every")}
    clock, stamps = clock_and_stamps(run, "rtt_idle", "rtt_working")
    return [
        *path_words(run),
        (
            f"In each trial probes run the whole time: for {times['idle']} over the idle path, then together with the "
            f"flows. “Working conditions” are the {times['duration']} after the flows' start-up of "
            f"{times['start_up']}; no figure includes the start-up."
        ),
        (
            "Flows are single TCP connections that send as much as they can; each sender reads TCP_INFO every "
            f"{times['read_every']}. Host A sends the probes; “up” is from host A to host B, “down” from host B to "
            "host A. Packets have one segment each: segmentation offloads are off."
        ),
        (
            "Intervals are Student's over sessions, longer towards a long tail (by Hall's transformed t), or over "
            "rounds where the run has one bed."
        ),
        f"{clock_words(run, clock)} Departures and arrivals have timestamps of {stamps}.",
    ]


def clock_words(run: Run, clock: str) -> str:
    """Whose clock the times are of; where hosts had two, how wrong those of host B may be on host A's."""
    found = run.samples("load_clocks")
    if found is None:
        return f"All times are of one clock: {clock}."
    worst = found["bound_ns"].max()
    error = f", with an error of at most {fixed(worst / 1e6, 2)} ms" if isinstance(worst, float) else ""
    return (
        f"The hosts have two clocks. Probes are of host A's alone ({clock}); times of host B are read on it by short "
        f"streams between the trials{error}. The standing queue is left out: it is of the emulator's host, whose clock "
        "is not compared."
    )


TABLES = (
    *(shares, by_round_trip, grades, round_trips, flows, spread, background, marked, limits, queues, losses, logged),
    conserved,
)
PARTS = Parts(
    tables=tuple(map(trimmed, TABLES)),
    figures=(over_grid, over_round_trips, over_delay, over_time, distributions),
    keys=keys,
    words=words,
    results=tuple(table.__name__ for table in TABLES),
    beside=compared,
)
