"""What flows of each round trip got of the queue and link that they share, and how goodput falls with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.methods.tcp_load.show.rows import (
    ESTIMATE,
    FACTORS,
    MILLION,
    WAYS,
    cells_of,
    factors_of,
    in_ms,
    load_of,
    measured,
    queue_of,
    shown_of,
    with_interval,
)
from sojourn.report.charts import Axis, Lines
from sojourn.report.numbers import NOTHING
from sojourn.report.parts import Key
from sojourn.report.streams.points import figure
from sojourn.report.table import Column, Entry, Table, number, text
from sojourn.units import nanoseconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.methods.tcp_load.show.rows import Figures
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run

TURNS = ("first", "second", "third", "fourth")
EXPONENTS = ("planned", "working")


def groups_of(of: Figures) -> Iterator[tuple[str, str]]:
    """The direction and the name of each group of flows with a round trip of their own: "up", "80ms"."""
    names = [said.partition(" ") for quantity, said in of if quantity == "share_by_rtt"]
    for wanted in WAYS:
        yield from ((way, name) for way, _, name in names if way == wanted)


def by_round_trip(run: Run) -> Table:
    """Every group of flows with a round trip of their own, in each direction."""
    columns = (
        *FACTORS,
        Column(("sent",), "Sent", numeric=False),
        Column(("algorithm",), "Algorithm", numeric=False),
        Column(("planned",), "Planned", numeric=False, group="Round trip"),
        Column(("least_ms",), "Least", "ms", group="Round trip"),
        Column(("working_ms",), "Under load", "ms", group="Round trip"),
        *measured("share", "Share", "%"),
        *measured("goodput", "Goodput of a flow", "Mbit/s"),
        Column(("fairness",), "Jain\u2019s index within"),
        *measured("retransmitted", "Retransmitted", "%"),
        *measured("planned_power", "k, planned", group="Goodput as R^\u2212k"),
        *measured("working_power", "k, under load", group="Goodput as R^\u2212k"),
    )
    rows = []
    for factors, of in cells_of(run):
        for way, name in groups_of(of):
            turn, span = split(name)
            key = f"{way} {name}"
            about = (text(way), text(algorithm_of(factors, turn)), text(span))
            times = (in_ms(of.get(("tcp_rtt", f"{key} {said}")) or {}, ESTIMATE) for said in ("minimum", "working"))
            entries: list[Entry] = [*map(number, times), *with_interval(of["share_by_rtt", key], "ratio"),
                                    *with_interval(of.get(("goodput_by_rtt", key)), "bit/s"),
                                    number(shown_of(of.get(("fairness_by_rtt", key)), "1")),
                                    *with_interval(of.get(("retransmitted_by_rtt", key)), "ratio")]  # fmt: skip
            for said in EXPONENTS:
                power = f"{way} {turn} {said}" if turn else f"{way} {said}"
                entries += with_interval(of.get(("rtt_exponent", power)), "1")
            rows.append((*factors_of(factors), *about, *entries))
    note = (
        "Flows share one queue and one link; behind these, the emulator keeps packets of each flow until its round "
        "trip is as planned. Least and under load: by the senders' TCP, the smallest round trip of any of these flows "
        "in a trial, and the mean of the smoothed one under working conditions; the latter holds the queue's delay. "
        "Share: of the goodput of all flows of the direction. k: goodput goes as R^\u2212k with the round trip R, the "
        "slope of the groups' mean goodputs of a flow in logarithms, trial by trial; 0 where the round trip makes no "
        "difference. Over the planned round trips k tells what users get, over those under load what the algorithm "
        "does. k is given where no trial has a group without goodput."
    )
    return Table("by_round_trip", "Flows of each round trip", columns, tuple(rows), note, wide=True, grouped=True)


def split(name: str) -> tuple[str, str]:
    """The algorithm's turn, empty where there is one algorithm, and the round trip."""
    turn, space, span = name.partition(" ")
    return (turn, span) if space and turn in TURNS else ("", name)


def algorithm_of(factors: dict[str, Any], turn: str) -> str:
    """The congestion control of a group."""
    names = str(factors["congestion"]).split("+")
    return names[TURNS.index(turn)] if turn else names[0]


def over_round_trips(run: Run) -> Figure | None:
    """The goodput of a flow over its round trip, a panel for each load and a line for each queue."""
    found = []
    for factors, of in cells_of(run):
        for way, name in groups_of(of):
            turn, span = split(name)
            goodput, planned = of.get(("goodput_by_rtt", f"{way} {name}")), nanoseconds(span.partition(" ")[0])
            if goodput is None or planned is None:
                continue
            queue = queue_of(run, factors)
            series = [*([queue] if queue != NOTHING else []), *([algorithm_of(factors, turn)] if turn else [])]
            ends = dict(zip(("y", "low", "high"), (goodput[end] for end in ESTIMATE), strict=True))
            found.append(
                {"device": str(factors["device"]), "series": ", ".join(series) or str(factors["congestion"]),
                 "x": float(planned) / MILLION, "cell": f"{load_of(factors)} {way}", "role": "point"}
                | {end: None if value is None else value / MILLION for end, value in ends.items()}
            )  # fmt: skip
    if not found:
        return None
    kinds = dict.fromkeys(("x", "y", "low", "high"), pl.Float64)
    rows = pl.DataFrame(found, schema_overrides=kinds)
    names = tuple(dict.fromkeys(str(one["series"]) for one in found))
    caption = (
        "The mean goodput of a flow over the round trip that the plan gave it, with 95 % intervals: one line for each "
        "queue, one panel for each load. Where a line is level, the queue treats all round trips alike (RFC 7928, "
        "section 6)."
    )
    axes = Axis("Planned round trip (ms)", log=True), Axis("Goodput of a flow (Mbit/s)", zero=True)
    return figure("load_round_trips", "Goodput by round trip", caption, rows, Lines(*axes, names, hued=True))


def round_trip_keys(run: Run) -> list[Key]:
    """The share of the flows with the longest round trip, of each cell."""
    keys = []
    for factors, of in cells_of(run):
        planned = [int(nanoseconds(one) or 0) for one in str(factors.get("round_trips") or "").split("+")]
        if len(set(planned)) < 2:
            continue
        for way, name in groups_of(of):
            turn, span = split(name)
            if turn in ("", TURNS[0]) and nanoseconds(span.partition(" ")[0]) == max(planned):
                shown, queue = shown_of(of["share_by_rtt", f"{way} {name}"], "ratio"), queue_of(run, factors)
                behind = f", {queue}" if queue != NOTHING else ""
                lines = (*shown.told, f"of the goodput {way}", load_of(factors))
                keys.append(Key(f"Share of {span}{behind}", shown.text, "%", lines, str(factors["device"])))
    return keys
