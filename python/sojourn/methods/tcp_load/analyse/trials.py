"""What one trial of flows came to: its round trips idle and working, and what its flows did meanwhile.

Working conditions last from the end of the flows' start-up to the end of sending. Bytes and segments are differences
between the first and the last reading of TCP_INFO in that time, by the time between these two readings. It judges
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.finding import Place
from sojourn.analysis.host_clock import has_two_clocks
from sojourn.analysis.links.cables import cables_of
from sojourn.analysis.rates import jain
from sojourn.analysis.samples import Sample, shared
from sojourn.analysis.tcp_trials import LOG, arrived, told_by, unwrapped
from sojourn.methods.tcp_load.analyse.conserved import BLOCK, ways_of
from sojourn.methods.tcp_load.analyse.queues import PIPES, WAYS, least_of, queues_of
from sojourn.methods.tcp_load.analyse.shares import begun_ns, convergence_of, groups_of, joined_ns, shares_of
from sojourn.methods.tcp_load.analyse.tcp_says import losses_inferred, tcp_says
from sojourn.statistics.quantile import allowed
from sojourn.units import nanoseconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from sojourn.analysis.run import Run
    from sojourn.methods.tcp_load.analyse.conserved import Way
    from sojourn.methods.tcp_load.analyse.queues import Least

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
TRIMMED = 0.95
"""The share of the round trips, the shortest, that the responsiveness is the mean of."""

MINUTE_NS = 60e9
IP_TCP_BYTES, TIMESTAMPS_BYTES, ETHERNET_BYTES = 40, 12, 14
WITH_TIMESTAMPS = 1
"""The bit of TCP_INFO's options."""

WIRE_BYTES = 24
"""What a frame takes on a rated cable beside its bytes without FCS: preamble, FCS, gap."""


@dataclass(frozen=True, slots=True)
class Link:
    """What limits a direction: bits a second, and what a frame takes beyond its bytes without FCS."""

    rate_bps: float
    overhead_bytes: float


@dataclass(frozen=True, slots=True)
class Done:
    """One trial; `values` are its figures by quantity and statistic."""

    block: int
    device: str
    cell: int
    round: int
    factors: dict[str, Any]
    values: dict[tuple[str, str], float]
    probes: int
    """Round trips measured under working conditions."""
    begun_ns: float
    """When the first flow began."""
    joined_ns: float
    """When the flows of the last algorithm began; `begun_ns` where there is one algorithm."""
    sent: int = 0
    """Probes that left under working conditions."""
    rise_ns: float = 0.0
    """The largest rise of the round trip from one probe to the next under working conditions, or the longest reading of
    a flow. Where a host pauses, it is the pause; a queue that fills rises by little from probe to probe."""
    main: int = -1
    """The cell of the main probes, of whose trial these were further ones; -1 of the main ones themselves."""

    @property
    def direction(self) -> str:
        """Which way the flows send: down, up, both."""
        return str(self.factors["direction"])


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a trial, in ns of CLOCK_TAI."""

    start: float
    end: float

    def holds(self, column: str) -> pl.Expr:
        """Whether a time lies in it."""
        return (pl.col(column) >= self.start) & (pl.col(column) < self.end)


def trials_of(run: Run) -> list[Done]:
    """Every trial whose flows ended, in the order of the blocks; of a block that was measured again, the last."""
    told = told_by(run, "measure")
    sent = run.table("tcp_readings").frame.filter(pl.col("role") == "send")
    sent = unwrapped(sent.filter(pl.col("part") == pl.col("part").max().over("block")))
    by_block = {int(block): frame for (block,), frame in sent.partition_by("block", as_dict=True).items()}
    probes = {int(block): frame for (block,), frame in run.measured.partition_by("block", as_dict=True).items()}
    parts = parts_of(run)
    links, queues = links_of(run), queues_of(run)
    least = {} if has_two_clocks(run) else least_of(run)  # its times are of the device's clock, which nothing reaches
    found = [
        one(entry, probes[block], by_block[block], parts, links.get(block) or links_by_cable(run, entry))
        for block, entry in sorted(told.items())
        if block in probes and block in by_block
    ]
    for each in found:
        ways = WAYS if each.direction == "both" else (each.direction,)
        each.values.update(
            {key: value for key, value in queues.get(each.block, {}).items() if key[1].split()[0] in ways}
        )
        each.values.update(standing_queues(least.get(each.block, {}), ways, each.joined_ns, parts))
    return found


def besides_of(run: Run, several: Iterable[Done]) -> list[Done]:
    """The further probes of each of these trials, as trials that have round trips alone."""
    told, parts = told_by(run, "measure"), parts_of(run)
    by_main = {one.block: one for one in several}
    wanted = {own["block"]: (by_main[block], own) for block, entry in told.items() if block in by_main
              for own in entry.get("probes") or ()}  # fmt: skip
    found = []
    for (block,), probes in sorted(run.measured.partition_by("block", as_dict=True).items()):
        if block not in wanted:
            continue
        main, own = wanted[block]
        working = Span(main.joined_ns + parts[0], main.joined_ns + parts[0] + parts[1])
        values, count, sent = of_probes(probes, main.begun_ns, working)
        factors = main.factors | {"probe": own["probe"], "dscp": own["dscp"]}
        found.append(Done(int(block), main.device, int(own["cell"]), main.round, factors, values, count,
                          main.begun_ns, main.joined_ns, sent, main=main.cell))  # fmt: skip
    return found


def standing_queues(
    least: dict[str, Least], ways: Iterable[str], joined_ns: float, parts: tuple[float, float]
) -> dict[tuple[str, str], float]:
    """The standing queue of each direction in the working conditions."""
    start = joined_ns + parts[0]
    found = {way: least[way].standing(start, start + parts[1]) for way in ways if way in least}
    return {("standing_queue", way): value for way, value in found.items() if value is not None}


def parts_of(run: Run) -> tuple[float, float]:
    """How long the start-up and the working conditions after it last, in ns, by the plan."""
    asked = run.plan.get("load", {})
    return float(nanoseconds(asked.get("start_up", "0s")) or 0), float(nanoseconds(asked.get("duration", "0s")) or 0)


FACTORS = shared("flows direction congestion pipe round_trips background scenario")
LOGGED = Sample(
    "A trial with the log of TCP's state.",
    {
        **shared("device cell"),
        **FACTORS,
        "block": BLOCK,
        "records": (pl.Int64, "The records of the log."),
    },
)


def logged_of(run: Run) -> pl.DataFrame:
    """The trials that have the log."""
    rows = [
        {name: entry["factors"].get(name) for name in FACTORS}
        | {"device": entry["device"], "cell": entry["cell"], "block": block, "records": entry["logged"]["records"]}
        for block, entry in sorted(told_by(run, LOG).items())
        if entry.get("logged")
    ]
    return pl.DataFrame(rows, schema=LOGGED.own)


def ways_logged(run: Run) -> list[tuple[Place, int, Way]]:
    """The flows of data of every trial with the log, each with its cell and block."""
    skipped = sum(
        int((event.get("report") or {}).get("log", {}).get("skipped") or 0)
        for event in run.log
        if event.get("event") == "emulator-ended"
    )
    found = []
    flows = run.table("tcp_flows").frame
    for block, entry in sorted(told_by(run, LOG).items()):
        # Of a block that was measured again, the last: its name ends with the part.
        names = flows.filter(block=block)["who"].unique().to_list() if entry.get("logged") and flows.height else []
        if names:
            who = max(names, key=lambda name: (len(name), name))
            place = Place(str(entry["device"]), int(entry["cell"]))
            found += [(place, block, way) for way in ways_of(run.folder.path, who, block, skipped=skipped)]
    return found


def one(
    entry: dict[str, Any],
    probes: pl.DataFrame,
    readings: pl.DataFrame,
    parts: tuple[float, float],
    links: dict[str, Link],
) -> Done:
    """The figures of a trial; `parts` are the start-up and what follows it, in ns."""
    begun = begun_ns(entry)
    joined = joined_ns(entry)
    working = Span(joined + parts[0], joined + parts[0] + parts[1])
    values, count, sent = of_probes(probes, begun, working)
    for way in WAYS:
        values |= goodputs_by_mark(entry, readings, working, way)
        local = {flow["local"] for flow in entry["flows"] if flow["direction"] == way}
        values |= flows_of(readings, local, working, way, links.get(way))
        if len(groups := groups_of(entry, way)) > 1:
            own = of_flows(readings, local)
            if (rates := goodputs_of(own, working)).keys() >= local:  # of some flows alone, every share is too large
                values |= shares_of(rates, groups, way)
                values |= convergence_of(own, joined, working.end, way)
    return Done(
        int(entry["block"]), str(entry["device"]), int(entry["cell"]), int(entry["round"]), dict(entry["factors"]),
        values, count, begun, joined, sent,
        max(rise_of(probes.filter(working.holds("departure_ns"))), longest_reading(readings)),
    )  # fmt: skip


def of_probes(probes: pl.DataFrame, begun: float, working: Span) -> tuple[dict[tuple[str, str], float], int, int]:
    """The round trips and losses of one series of probes; of the time when flows worked, how many round trips were
    measured, and how many probes left."""
    idle, busy = probes.filter(pl.col("arrival_ns") < begun), probes.filter(working.holds("departure_ns"))
    unanswered = probes.filter((pl.col("departure_ns") < begun) & pl.col("arrival_ns").is_null())
    values = round_trips(rtts(idle), rtts(busy))
    for name, lost, several in (("idle", unanswered.height, idle.height + unanswered.height),
                                ("working", busy["arrival_ns"].null_count(), busy.height)):  # fmt: skip
        if several:
            values["probe_loss", name] = lost / several
    return values, len(rtts(busy)), busy.height


def goodputs_by_mark(
    entry: dict[str, Any], readings: pl.DataFrame, span: Span, way: str
) -> dict[tuple[str, str], float]:
    """The goodput of the flows of each DSCP; nothing where flows are unmarked, or one was read less than twice."""
    groups: dict[str, set[str]] = {}
    for flow in entry["flows"]:
        if flow["direction"] == way and "dscp" in flow:
            groups.setdefault(str(flow["dscp"]), set()).add(flow["local"])
    local = {one for own in groups.values() for one in own}
    rates = goodputs_of(of_flows(readings, local), span) if local else {}
    if not rates.keys() >= local:
        return {}
    return {("goodput_by_dscp", f"{way} {mark}"): sum(rates[one] for one in own) for mark, own in groups.items()}


def rtts(probes: pl.DataFrame) -> NDArray[np.float64]:
    """The round trips of those that were answered."""
    return probes["rtt"].drop_nulls().cast(pl.Float64).to_numpy()


def rise_of(probes: pl.DataFrame) -> float:
    """The largest rise of the round trip from one answered probe to the next, 0 at least."""
    return float(np.diff(rtts(probes.sort("departure_ns"))).max(initial=0.0))


def longest_reading(readings: pl.DataFrame) -> float:
    """From before to after a reading of a flow's state: when within it the state was that, nobody knows."""
    if not {"read_before_ns", "read_after_ns"} <= set(readings.columns) or not readings.height:
        return 0.0
    longest = (readings["read_after_ns"] - readings["read_before_ns"]).max()
    return float(longest) if isinstance(longest, int) else 0.0


def round_trips(idle: NDArray[np.float64], busy: NDArray[np.float64]) -> dict[tuple[str, str], float]:
    """Means and percentiles idle and working, their differences, and round trips per minute."""
    found: dict[tuple[str, str], float] = {}
    for name, values in (("idle", idle), ("working", busy)):
        if not len(values):
            continue
        found[f"rtt_{name}", "mean"] = float(values.mean())
        found |= {
            (f"rtt_{name}", said): float(np.quantile(values, p))
            for said, p in PERCENTILES.items()
            if allowed(p, len(values))
        }
        found["responsiveness", name] = responsiveness(values)
    for said in ("mean", *PERCENTILES):
        both = [found.get((f"rtt_{name}", said)) for name in ("working", "idle")]
        if both[0] is not None and both[1] is not None:
            found["rtt_increase", said] = both[0] - both[1]
    return found


def responsiveness(values: NDArray[np.float64]) -> float:
    """Round trips per minute: a minute over the mean of the shortest 95 % (draft-ietf-ippm-responsiveness)."""
    shortest = np.sort(values)[: max(1, int(np.ceil(TRIMMED * len(values))))]
    return MINUTE_NS / float(shortest.mean())


SPREAD = {"least": 0.0, "median": 0.5, "most": 1.0}
"""Quantiles over flows, by what a statistic calls them."""


def flows_of(
    readings: pl.DataFrame, local: set[str], span: Span, way: str, link: Link | None
) -> dict[tuple[str, str], float]:
    """What the flows of one direction did: goodput, retransmitted share, use of the link, Jain's index of goodputs.

    Nothing, where a flow was read less than twice: a sum without it would be too small.
    """
    own = of_flows(readings, local).filter(span.holds("read_after_ns"))
    each = own.sort("read_after_ns").partition_by("local")
    several = [changes(flow) for flow in each]
    if not local or len(several) < len(local) or any(flow is None for flow in several):
        return {}
    flows = [flow for flow in several if flow is not None]
    rates = np.array([flow.goodput_bps for flow in flows])
    found = {("goodput", way): float(rates.sum())}
    if segments := sum(flow.segments for flow in flows):
        found["retransmitted", way] = sum(flow.again for flow in flows) / segments
    if len(flows) > 1:
        found["fairness", way] = jain(rates)
        found |= {("goodput_of_flow", f"{way} {name}"): float(np.quantile(rates, p)) for name, p in SPREAD.items()}
    if link is not None:
        found["utilisation", way] = used_of(of_flows(readings, local), span, link)
    whole = of_flows(readings, local).sort("read_after_ns").partition_by("local")
    return found | tcp_says(each, way) | losses_inferred(whole, way)


def of_flows(readings: pl.DataFrame, local: set[str]) -> pl.DataFrame:
    """The readings of these flows, each with its local end as `local`."""
    name = pl.concat_str("local_address", pl.lit(":"), "local_port").alias("local")
    return readings.with_columns(name).filter(pl.col("local").is_in(sorted(local)))


def goodputs_of(readings: pl.DataFrame, span: Span) -> dict[str, float]:
    """The goodput of each flow in a part of a trial, of those that were read twice or more in it."""
    flows = readings.filter(span.holds("read_after_ns")).sort("read_after_ns").partition_by("local", as_dict=True)
    found = {str(local): changes(flow) for (local,), flow in flows.items()}
    return {local: change.goodput_bps for local, change in found.items() if change is not None}


@dataclass(frozen=True, slots=True)
class Change:
    """What one flow's counters changed by."""

    goodput_bps: float
    """User data that reached the receiver, each byte once; also what waits there for a segment before it."""
    segments: int
    again: int


def changes(flow: pl.DataFrame) -> Change | None:
    """Between the first and the last reading; None where there is one alone."""
    first, last = flow.row(0, named=True), flow.row(-1, named=True)
    seconds = (last["read_after_ns"] - first["read_after_ns"]) / 1e9
    if seconds <= 0:
        return None
    came = arrived(flow)
    return Change(
        8 * (came[-1] - came[0]) / seconds,
        last["data_segs_out"] - first["data_segs_out"],
        last["total_retrans"] - first["total_retrans"],
    )


def used_of(readings: pl.DataFrame, span: Span, link: Link) -> float:
    """The part of a link's rate that flows of its direction took in a span, by what reached the receiver.

    Also what waits there for a segment before it counts. Each flow is read at times of its own, and their shares may
    change in between: over the same span, at whose ends counters lie between two readings, the sum is at most 1.
    """
    bytes_ps = 0.0
    for flow in readings.sort("read_after_ns").partition_by("local"):
        at, delivered = flow["read_after_ns"].to_numpy().astype(np.float64), flow["delivered"].to_numpy()
        first, last = np.interp([span.start, span.end], at, delivered.astype(np.float64))
        covered_ns = min(span.end, at[-1]) - max(span.start, at[0])
        if covered_ns > 0:
            frame_bytes = frame_bytes_of(flow.row(-1, named=True)) + link.overhead_bytes
            bytes_ps += (last - first) / covered_ns * 1e9 * frame_bytes
    return float(8 * bytes_ps / link.rate_bps)


def frame_bytes_of(reading: dict[str, Any]) -> float:
    """A full segment's frame, without FCS."""
    options = TIMESTAMPS_BYTES if (reading["options"] or 0) & WITH_TIMESTAMPS else 0
    return float(reading["mss_bytes"] + options + IP_TCP_BYTES + ETHERNET_BYTES)


def links_of(run: Run) -> dict[int, dict[str, Link]]:
    """By block, the rates that its emulators were set to, the slowest of each direction."""
    found: dict[int, dict[str, Link]] = {}
    for event in run.log:
        if event.get("event") != "emulator-set":
            continue
        link = event["to"].get("link") or {}
        # Of a link of cells it is not known here how much of it packets of several sizes take.
        if (rate := link.get("rate_bps")) and not link.get("cell"):
            this, there = (
                Link(float(rate), float(link.get("overhead_bytes") or 0)),
                found.setdefault(event["block"], {}),
            )
            for way in PIPES.get(str(event.get("pipe")), WAYS):
                there[way] = min(there.get(way, this), this, key=lambda one: one.rate_bps)
    return found


def links_by_cable(run: Run, entry: dict[str, Any]) -> dict[str, Link]:
    """The slowest rated cable of a trial's path; nothing where none is rated."""
    cables = cables_of(run).get(str(entry["device"]))
    return {} if cables is None else dict.fromkeys(WAYS, Link(min(cables.known), WIRE_BYTES))


def series(several: Iterable[Done], quantity: str, statistic: str) -> NDArray[np.float64]:
    """One figure of each trial; NaN where it has none."""
    return np.array([one.values.get((quantity, statistic), np.nan) for one in several], dtype=np.float64)
