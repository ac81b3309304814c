"""Method "taps": how long each packet was between the two ports of a device, and what one mode takes more than another.

Taps see the device itself: their delays have a distribution, which differences of one-way delays do not. What two taps
see of a redirect (`wire`) is their floor: the way from one stamp to the other with next to nothing between. The same
trials give the device by subtraction, and both are compared pair by pair.

Quantities beside those of all streams (`analysis.streams`):

- delay_between_taps; min mean p50 p90 p99 p99.9 max sd, and what stands beside a mean [ns]
- delay_between_taps_over (the mean less that of the reference, `bridge` or `wire`, from pairs of trials); mean [ns]
- tap_interval (between one frame and the next at the tap before the device), departure_interval (the same by the
  sender's stamps of departures); mean p1 p50 p99 min max sd [ns]
- tap_interval_error (the time between two frames by the tap less the same by the sender's departures, frame by frame,
  of trials that the tap saw whole); mean p1 p50 p99 min max sd [ns]
- tap_interval_within_10, departure_interval_within_10 (of the intervals, within 10 % of the asked one); ratio [1]
- lost_between_taps (of the packets that entered), reordered_between_taps, duplicated_between_taps (of those that left);
  ratio [1]. All packets of the stream's direction are counted: of ends with two clocks, their exchanges too
- cell_anomaly (what a device takes more than its reference in a cell that was repeated, less the middle of its cells of
  that size; `repeats`); mean repeated [ns]
- packets_in_flight (others in the device when a packet enters); mean max [1]
- segments_per_message, one_segment_messages, tap_pacing_error (of messages over TCP; `segments`). A receiver of bytes
  gives no one-way delays, so that these trials need no comparison of the ends' clocks
- subtraction_less_taps (what a device adds over `wire` one way by subtraction, less the same by taps); mean [ns].
  A device's taps have one clock, the ends may have two: the interval then has the errors of these

Where the plan has `taps.subtract_serialisation`, every delay between taps is without the time of its frame on that
link; packets in flight are counted with it (`course`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.measurand import covers, figure, not_covered
from sojourn.analysis.packets import BETWEEN_TAPS, Values, delay_values, ordered, values_of
from sojourn.analysis.rows import Row
from sojourn.analysis.run import A_A, DIRECT, WIRE
from sojourn.analysis.samples import Sample, shared, with_cells
from sojourn.analysis.serialisation import serialisation_ns
from sojourn.analysis.sessions import beds_in
from sojourn.analysis.stream_rows import delay_rows, errors_of_paths
from sojourn.analysis.stream_samples import (
    COMMON,
    DELAY_HISTOGRAMS,
    DELAY_QUANTILES,
    histogram_samples,
    quantile_samples,
)
from sojourn.analysis.stream_study import Gathered
from sojourn.analysis.streams import differences, over_pairs, series, sessions_of_pairs, share_of
from sojourn.analysis.wording import counted, micro
from sojourn.devices import called, references
from sojourn.methods.taps.analyse.budget import of_delay, of_difference
from sojourn.methods.taps.analyse.course import TAP_TIMELINE, subtracted_rate, timeline
from sojourn.methods.taps.analyse.flight import (
    TAP_IN_FLIGHT,
    TAP_TRIALS,
    account_rows,
    accounts,
    delays_in_flight,
    flight_rows,
    with_in_flight,
)
from sojourn.methods.taps.analyse.repeats import anomalous, repeat_rows, repeated_cells
from sojourn.methods.taps.analyse.segments import (
    cells_of,
    departures_of,
    pacing_rows,
    segment_rows,
    segments_differ,
    segments_of,
)
from sojourn.records import read_table
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from sojourn.analysis.budget import Stated
    from sojourn.analysis.run import Run
    from sojourn.analysis.streams import Differences
    from sojourn.analysis.study import Study

DELAY, OVER, DISAGREE = "delay_between_taps", "delay_between_taps_over", "subtraction_less_taps"
PLAIN = "bridge"
FCS_BYTES = 4
TOLERANCE = 0.1
CLASSES = 10
SEEN: dict[str, pl.DataType] = {
    "number": pl.Int64(), "first_ns": pl.Int64(), "first_source": pl.String(), "second_source": pl.String(),
    "delay_ns": pl.Float64(),
}  # fmt: skip
"""The columns that are read of each packet."""
FALSE_ALARM = 0.05
"""The probability that any comparison of subtraction and taps differs by chance."""


@dataclass(frozen=True)
class Crossed:
    """The packets of the streams that both taps saw, with their trials; and the taps' report of each trial."""

    packets: pl.DataFrame
    """block, device, cell, round, visit, session, port, node, number (among those that entered), first_ns,
    first_source, second_source, delay_ns, clock_bound_ns, clock_error95_ns."""
    flows: pl.DataFrame
    """The trials that have taps, one row each; `lost` is the loss between the taps."""
    events: dict[int, dict[str, Any]]

    @property
    def stamped(self) -> str:
        """The sources of timestamps, at the port where packets enter and at that where they leave."""
        kinds = self.packets.select("first_source", "second_source").unique().sort(pl.all()).rows()
        words = [str(come) if come == go else f"{come} at the entry, {go} at the exit" for come, go in kinds]
        return f"{' and '.join(words)}, at both ports of the device"

    @property
    def means(self) -> pl.DataFrame:
        """The mean delay of each trial, for pairs."""
        places = [pl.col(name).first() for name in ("device", "cell", "round", "visit", "session")]
        return self.packets.group_by("block").agg(*places, pl.col("delay_ns").mean().alias("mean")).sort("block")


TAP_INTERVALS = Sample(
    "A point of the distribution of the times between one frame of a regular stream and the next.",
    {
        **shared("device cell port node"),
        "measure": (pl.String, "tap_interval (by the first tap), departure_interval (by the sender's stamps)."),
        **shared("exceedance gap_ns"),
    },
    with_factors=True,
)
TAP_DENSITY = Sample(
    "A class of the delays between the taps: ten to a decade.",
    {
        **shared("device cell low_ns high_ns"),
        "share": (pl.Float64, "The share of the packets that crossed."),
    },
    with_factors=True,
)
SAMPLES = COMMON | {
    "tap_interval_quantiles": TAP_INTERVALS,
    "departure_interval_quantiles": TAP_INTERVALS,
    "tap_quantiles": replace(DELAY_QUANTILES, rows="A point of the distribution of the delays between the taps."),
    "tap_histograms": replace(DELAY_HISTOGRAMS, rows="A bin of the delays between the taps, as delay_histograms."),
    "tap_density": TAP_DENSITY,
    "tap_timeline": TAP_TIMELINE,
    "tap_in_flight": TAP_IN_FLIGHT,
    "tap_trials": TAP_TRIALS,
}


def study(run: Run) -> Study:
    """Return the delays between taps of every device and cell, and those of modes over the plain bridge."""
    of = Gathered(run)
    of.begin()
    of.add_devices(run.cells)
    crossed = crossed_of(run, of.flows)
    packets, trials = with_in_flight(crossed.packets), accounts(run, crossed.flows, crossed.events, counts_of)
    packets = without_serialisation(run, packets)
    crossed = replace(crossed, packets=packets)
    values = ordered(run, list(delay_values(crossed.packets, crossed.flows, BETWEEN_TAPS)))
    apart = disagreements(run, of, crossed)
    own = [*delay_rows(run, values), *over_rows(run, crossed), *flight_rows(run, packets), *account_rows(run, trials)]
    subtracted = [row for place, pairs in apart.items() for row in difference_rows(run, place, DISAGREE, pairs)]
    for row in subtracted:
        row.between_clocks(*errors_of_paths(row, of.summaries))
    own += subtracted
    again = repeated_cells(run, crossed.means, lambda event: stream_mean(run, event))
    own += repeat_rows(run, again)
    entered = crossed.packets.rename({"first_ns": "at_ns"})
    own += interval_rows(run, entered, crossed.flows, "tap_interval")
    segments = segments_of(run, crossed.flows, crossed.events)
    own += [*segment_rows(run, segments), *pacing_rows(run, crossed.packets, segments, crossed.events)]
    for row in own:
        row.source = crossed.stamped
    left = of.packets.rename({"departure_ns": "at_ns", "seq": "number"})
    left = pl.concat([left, departures_of(run, crossed.flows)], how="diagonal_relaxed").filter(
        pl.col("block").is_in(list(crossed.events))
    )
    own += interval_rows(run, left, crossed.flows, "departure_interval")
    regular = [cell for cell in asked_intervals(run) if cell not in cells_of(run)]
    errors = interval_errors(entered, left, crossed.flows.filter(pl.col("cell").is_in(regular)))
    for one in ordered(run, list(values_of(errors, "error_ns", "tap_interval_error"))):
        own += value_rows(run, one, "tap_interval_error")
    of.rows.extend(own)
    of.findings.extend([*lost_by_taps(crossed), *ambiguous(crossed)])
    of.findings.extend([*disagreeing(apart, of.summaries), *anomalous(again)])
    of.findings.extend(segments_differ(segments))
    for name, stamps in (("tap_interval", entered), ("departure_interval", left)):
        quantiles = quantile_samples(interval_values(run, stamps, name)).rename({"delay_ns": "gap_ns"})
        of.samples[f"{name}_quantiles"] = with_cells(run, quantiles)
    of.samples["tap_quantiles"] = with_cells(run, quantile_samples(values))
    of.samples["tap_histograms"] = with_cells(run, histogram_samples(values))
    of.samples["tap_density"] = with_cells(run, densities(values))
    of.samples["tap_timeline"] = with_cells(run, timeline(run, packets, crossed.flows))
    of.samples["tap_in_flight"] = with_cells(run, delays_in_flight(run, packets))
    of.samples["tap_trials"] = with_cells(run, TAP_TRIALS.of(trials))
    found = of.conclude(sentence(run, own, values))
    return replace(found, headline=headline(run, own))


def crossed_of(run: Run, flows: pl.DataFrame) -> Crossed:
    """Return what the taps of the kept trials saw of their streams."""
    known = set(flows["block"].to_list())
    taps = (event for event in run.log if event.get("event") == "taps")
    events = {int(event["block"]): event for event in taps if int(event["block"]) in known}
    frames = []
    for block, event in events.items():
        mine = crossings_of(run, event, int(flows.filter(pl.col("block") == block)["cell"][0]))
        seen = mine.select(pl.col(name).cast(kind) for name, kind in SEEN.items())
        frames.append(seen.with_columns(pl.lit(block, pl.Int32).alias("block")))
    packets = pl.concat([pl.DataFrame(schema={**SEEN, "block": pl.Int32()}), *frames])
    places = flows.select("block", "device", "cell", "round", "visit", "session").unique("block")
    one_clock = {name: pl.lit(0.0) for name in ("clock_bound_ns", "clock_error95_ns")}
    whole = packets.join(places, on="block", how="inner").with_columns(
        port=pl.lit(0, pl.Int32), node=pl.lit(0, pl.Int32), **one_clock
    )
    lost = {block: lost_between(event) for block, event in events.items()}
    tapped = flows.filter(pl.col("block").is_in(list(events)), pl.col("port") == 0)
    between = tapped.unique("block", keep="first", maintain_order=True).with_columns(
        lost=pl.col("block").replace_strict(lost, default=0, return_dtype=pl.Int64)
    )
    return Crossed(whole.sort("block", maintain_order=True), between, events)


def crossings_of(run: Run, event: dict[str, Any], cell: int) -> pl.DataFrame:
    """Return the frames of the stream that both taps of a trial saw: those of its length, in its direction."""
    crossings = read_table(run.folder.records / event["records"], "crossings").frame
    length = (run.cells[cell].frame_bytes or 0) - FCS_BYTES
    return crossings.filter(pl.col("direction") == "forward", pl.col("length_bytes") == length)


def without_serialisation(run: Run, packets: pl.DataFrame) -> pl.DataFrame:
    """Subtract from the delays what the plan requests: frames of a cell have one length."""
    times = {cell: float(time_subtracted(run, cell)) for cell in run.cells}
    if not any(times.values()):
        return packets
    each = pl.col("cell").replace_strict(times, return_dtype=pl.Float64)
    return packets.with_columns(delay_ns=pl.col("delay_ns") - each)


def time_subtracted(run: Run, cell: int) -> int:
    """Return what is subtracted from the delay of a cell's frames, in ns."""
    return serialisation_ns((run.cells[cell].frame_bytes or 0) - FCS_BYTES, subtracted_rate(run))


def counts_of(event: dict[str, Any]) -> dict[str, int]:
    """Return the packet counts of the stream's direction."""
    directions = event["matched"]["pairs"][0]["directions"]
    return next((one["counts"] for one in directions if one["direction"] == "forward"), {})


def stream_mean(run: Run, event: dict[str, Any]) -> float | None:
    """Return the mean delay of a trial's frames between its taps, without the exchanges of clocks, if there
    were any."""
    trial = run.trial_events.get(int(event["block"]), {})
    clocks = trial.get("clock") or ()
    if all(one.get("shared") for one in ([clocks] if isinstance(clocks, dict) else clocks)):
        mean = mean_of(event)
    elif trial.get("cell") not in run.cells:
        mean = None
    else:
        found = crossings_of(run, event, int(trial["cell"]))["delay_ns"].mean()
        mean = float(found) if isinstance(found, int | float) else None
    return None if mean is None else mean - (time_subtracted(run, int(trial["cell"])) if "cell" in trial else 0)


def mean_of(event: dict[str, Any]) -> float | None:
    """Return the mean delay of a trial's packets in the stream's direction; None where none crossed."""
    ways = event["matched"]["pairs"][0]["directions"]
    delay = next((one["delay"] for one in ways if one["direction"] == "forward" and one.get("delay")), None)
    return float(delay["mean_ns"]) if delay and delay["n"] else None


def lost_between(event: dict[str, Any]) -> int:
    """Return how many packets entered and did not leave until the taps were detached, a while after the last
    departure."""
    counts = counts_of(event)
    return sum(int(counts.get(name, 0)) for name in ("lost", "pending", "evicted"))


def over_rows(run: Run, crossed: Crossed) -> list[Row]:
    """Return each device's excess delay over the plain bridge and over the redirect, from pairs of trials."""
    each = series(crossed.means, "mean")
    rows = []
    for place, reference in enumerate(references()):
        others = (DIRECT, A_A, *references()[place:])
        for device in (one for one in run.devices if one not in others):
            for cell in run.cells:
                pairs = differences(each.get((device, cell)), each.get((reference, cell)))
                rows += difference_rows(run, (device, reference, cell), OVER, pairs)
    return rows


def disagreements(run: Run, of: Gathered, crossed: Crossed) -> dict[tuple[str, str, int], Differences]:
    """Return what a device adds over the redirect by subtraction minus the same by taps, of the same pairs of
    trials."""
    ways, taps = series(of.summaries, "mean"), series(crossed.means, "mean")
    found = {}
    for device in (one for one in run.devices if one not in (DIRECT, A_A, WIRE)):
        for cell in run.cells:
            by_ends = differences(ways.get((device, cell)), ways.get((WIRE, cell)))
            by_taps = differences(taps.get((device, cell)), taps.get((WIRE, cell)))
            both = {at: by_ends[at] - by_taps[at] for at in sorted(by_ends.keys() & by_taps.keys())}
            if both:
                found[device, WIRE, cell] = both
    return found


def difference_rows(run: Run, place: tuple[str, str, int], quantity: str, pairs: Differences) -> list[Row]:
    """Return the mean of differences of one device, reference and cell; empty without a pair."""
    if not pairs:
        return []
    device, reference, cell = place
    row = Row(device, quantity, "mean", over_pairs(pairs), "ns", reference, run.cells[cell], cell)
    row.sessions = beds_in(sessions_of_pairs(pairs))
    return [row]


def interval_rows(run: Run, packets: pl.DataFrame, flows: pl.DataFrame, quantity: str) -> list[Row]:
    """Return the times between frames of regular streams by one kind of timestamps (`at_ns`), and the share kept."""
    asked = asked_intervals(run)
    rows = []
    for one in interval_values(run, packets, quantity):
        rows += value_rows(run, one, quantity)
        if near := kept(one, asked[one.cell] or 0, flows):
            like = replace(rows[-1], quantity=f"{quantity}_within_10", statistic="ratio", unit="1", value=near)
            rows.append(like)
    return rows


def value_rows(run: Run, one: Values, quantity: str) -> list[Row]:
    """Return minimum, maximum, mean and other statistics of one device's values in one cell, in ns."""
    ends = {"min": float(one.values.min()), "max": float(one.values.max())}
    figures = {name: Interval(value, None, None, 0.95, len(one.blocks)) for name, value in ends.items()}
    figures |= {"mean": one.mean(), "sd": one.sd()}
    figures |= {f"p{100 * p:.0f}": one.quantile(p) for p in (0.01, 0.5, 0.99) if one.allows(p)}
    like = Row(one.device, quantity, "", figures["mean"], "ns", None, run.cells[one.cell], one.cell, len(one.values))
    like.sessions = one.beds
    return [replace(like, statistic=name, value=value) for name, value in figures.items()]


def interval_errors(entered: pl.DataFrame, left: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """Add `error_ns`: the time since the previous frame by the tap, minus the same by the sender's timestamps.

    Frames are paired by order, as the tap's numbers count other frames too; only in trials whose sent frames were all
    seen by both taps and by the receiver.
    """
    sent = flows.select("block", pl.col("sent").cast(pl.Int64).alias("several"))

    def in_order(packets: pl.DataFrame) -> pl.DataFrame:
        sorted_ones = packets.filter(pl.col("port") == 0).sort("block", "number")
        return sorted_ones.with_columns(
            place=pl.int_range(pl.len()).over("block"), several=pl.len().over("block").cast(pl.Int64),
            gap_ns=pl.col("at_ns").diff().over("block"),
        )  # fmt: skip

    departed = in_order(left).select("block", "place", "several", pl.col("gap_ns").alias("departed_ns"))
    both = in_order(entered).join(departed, on=["block", "place", "several"], how="inner")
    both = both.join(sent, on=["block", "several"], how="semi")
    return both.with_columns(error_ns=(pl.col("gap_ns") - pl.col("departed_ns")).cast(pl.Float64)).drop_nulls(
        "error_ns"
    )


def interval_values(run: Run, packets: pl.DataFrame, quantity: str) -> list[Values]:
    """Return the times between frames of regular streams; none across missing frames (by `number`)."""
    within = ("block", "port", "node")
    gaps = (
        packets.filter(pl.col("cell").is_in(list(asked_intervals(run))))
        .sort(*within, "at_ns")
        .with_columns(
            gap=pl.col("at_ns").diff().over(within).cast(pl.Float64), step=pl.col("number").diff().over(within)
        )
        .filter(pl.col("step") == 1)
    )
    return ordered(run, list(values_of(gaps, "gap", quantity)))


def asked_intervals(run: Run) -> dict[int, int | None]:
    """Return the configured interval of the cells whose streams are regular."""
    return {cell: factors.interval_ns for cell, factors in run.cells.items() if factors.schedule == "regular"}


def kept(one: Values, asked_ns: int, flows: pl.DataFrame) -> Interval | None:
    """Return the share of the intervals that are within 10 % of the configured one, over trials or beds."""
    near = np.abs(one.values - asked_ns) <= TOLERANCE * asked_ns
    every, within = (
        np.bincount(one.trials, weights=which, minlength=len(one.blocks)).astype(np.float64)
        for which in (np.ones(len(near)), near)
    )
    trials = flows.unique("block").sort("block").filter(pl.col("block").is_in(one.blocks.tolist()))
    return share_of(trials, within, every) if trials.height == len(one.blocks) else None


def lost_by_taps(crossed: Crossed) -> list[Finding]:
    """Return a finding for taps that dropped packets: those counted as lost may have passed."""
    dropped = {block: sum(tap["account"]["dropped"] for tap in event["captured"]["taps"])
               for block, event in crossed.events.items()}  # fmt: skip
    total = sum(dropped.values())
    if not total:
        return []
    places = {Place(str(event["device"])) for block, event in crossed.events.items() if dropped[block]}
    said = (
        f"the taps had no room for {counted(total, 'packet')}: some of the losses between them are losses of the "
        "taps, not of the device"
    )
    return [Finding("local_drops", said, float(total), tuple(places))]


def ambiguous(crossed: Crossed) -> list[Finding]:
    """Return a finding for matches decided by order alone."""
    total = sum(counts_of(event).get("ambiguous", 0) for event in crossed.events.values())
    said = (
        f"{counted(total, 'packet')} were identical to another within the window: they are distinguished by their "
        "order alone"
    )
    return [Finding("ambiguous_matches", said, float(total))] if total else []


def disagreeing(apart: dict[tuple[str, str, int], Differences], ends: pl.DataFrame) -> list[Finding]:
    """Return a finding for devices where subtraction and taps differ, at a level shared by all comparisons.

    With two clocks at the ends (`ends`, their delays) the clocks' errors may be the difference: the interval includes
    them.
    """
    level = 1 - FALSE_ALARM / max(1, len(apart))
    judged = {}
    for (device, reference, cell), pairs in apart.items():
        row = Row(device, DISAGREE, "mean", over_pairs(pairs, level), "ns", reference, cell=cell)
        row.between_clocks(*errors_of_paths(row, ends))
        judged[device, reference, cell] = row.value
    found = {Place(device, cell): one for (device, _, cell), one in judged.items() if one.excludes(0)}
    if not found:
        return []
    places, _ = worst_first({place: abs(one.estimate) for place, one in found.items()})
    worst = found[places[0]]
    said = (
        f"subtraction gives {micro(worst.estimate)} ({span(worst)}) more for {places[0].device} over the redirect than "
        "its taps measure: this part arises outside its ports, in how the hosts handle its packets"
    )
    return [Finding("taps_disagree", said, worst.estimate, places)]


def densities(values: list[Values]) -> pl.DataFrame:
    """Return the distribution of the packets of each device and cell over classes of delay."""
    found = []
    for one in values:
        positive = one.values[one.values > 0]
        classes = np.floor(CLASSES * np.log10(positive)).astype(np.int64)
        for number, count in zip(*np.unique(classes, return_counts=True), strict=True):
            low, high = 10 ** (number / CLASSES), 10 ** ((number + 1) / CLASSES)
            found.append((one.device, one.cell, low, high, count / len(one.values)))
    return pl.DataFrame(found, schema=TAP_DENSITY.own, orient="row")


def headline(run: Run, rows: list[Row]) -> Row | None:
    """Return the mean delay in the device that the run is about, in the plan's first cell that has one."""
    devices = [PLAIN, *(one for one in run.devices if one not in (DIRECT, A_A, WIRE, PLAIN)), WIRE]
    for device in devices:
        for row in rows:
            if (row.device, row.quantity, row.statistic) == (device, DELAY, "mean"):
                return row
    return None


def sentence(run: Run, rows: list[Row], values: list[Values]) -> str:
    """Return how long packets are in the device, and which mode adds most."""
    head = headline(run, rows)
    if head is None or not values:
        return "No packet was seen by both taps of a device"
    said = f"{called(head.device)} holds a packet for {_ended(head)} on average"
    most = costliest(rows, head)
    if most is not None:
        title = called(most.device)
        title = f"{title[0].lower()}{title[1:]}"
        if most.value.low is not None and not most.value.excludes(0):
            said += f"; no mode of the bridge takes significantly longer: {title}, the slowest, {_ended(most)} more"
        else:
            said += f"; {title} takes {_ended(most)} more"
    said += ", between taps at its ports"
    error = next((row for row in rows if error_of(row, head)), None)
    if most is None and error is not None:
        said += (
            f"; the time between two frames by the tap before it differs from that by the sender's stamps by "
            f"{_ended(error)} at the 99th percentile"
        )
    return f"{said}; {not_covered(head.sessions)}"


def error_of(row: Row, head: Row) -> bool:
    """Return whether a row is the 99th percentile of the tap's error in the headline's cell; the spread may
    have none."""
    place = (row.device, row.cell, row.quantity, row.statistic)
    return place == (head.device, head.cell, "tap_interval_error", "p99")


def _ended(row: Row) -> str:
    """Return a figure with its interval and number of beds."""
    return f"{figure(row.value)} ({covers([], row)})"


def costliest(rows: list[Row], head: Row) -> Row | None:
    """Return the largest excess over the plain bridge in the headline's cell."""
    more = [row for row in rows if row.quantity == OVER and row.reference == PLAIN and row.cell == head.cell]
    return max(more, key=lambda row: row.value.estimate, default=None)


def span(value: Interval) -> str:
    """Return the interval in words."""
    return "no interval" if value.low is None or value.high is None else f"{micro(value.low)} to {micro(value.high)}"


def budgets(run: Run, study: Study) -> list[Stated]:
    """Return the budgets of the sentence's figures: the headline's, and that of the largest excess."""
    if study.headline is None:
        return []
    most = costliest(study.rows, study.headline)
    own = of_delay(run, study.rows, study.headline, DELAY)
    return [own, *([] if most is None else [of_difference(run, study.rows, most)])]
