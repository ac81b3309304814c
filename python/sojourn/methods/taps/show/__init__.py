"""The report of "taps": the delay of each packet in the device, over throughput, and what modes add."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.methods.taps.show.published import PUBLISHED
from sojourn.report.charts import Axis, Density, Lines
from sojourn.report.pacing import departures
from sojourn.report.paired import control, differences
from sojourn.report.parts import Key, Parts
from sojourn.report.streams import delays
from sojourn.report.streams.measures import Ask, Measure, measured
from sojourn.report.streams.points import NO_INTERVAL, along, figure, rows_over, sample, spans
from sojourn.report.streams.words import words

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run
    from sojourn.report.table import Table

QUANTITY = "delay_between_taps"


def between(run: Run) -> Table:
    """Return the distribution of the delay in each device, by cell."""
    titles = {"min": "Min", "mean": "Mean", "p50": "Median", "max": "Max", "sd": "Std dev"}
    several = ("min", "mean", "p50", *delays.TAIL, "max", "sd")
    measures = tuple(
        Measure(QUANTITY, one, titles.get(one, one), "Delay between the taps", interval=one in ("mean", "p50", "p99"))
        for one in several
    )
    note = (
        "From the timestamp at the port where a packet enters the device to that at the port where it leaves, both of "
        "one clock. In percentiles, a packet lost between them counts as an infinite delay. The delay of the redirect "
        "(wire) is what two taps measure with almost nothing between them."
    )
    if rate := subtracted(run):
        note += f" Subtracted from each delay: the time of its frame on a link of {rate} (FCS, preamble)."
    return measured(run, Ask(QUANTITY, "Delay of each packet in the device", measures, note))


def more(run: Run) -> Table:
    """Return what each mode adds to the plain bridge, and each device to the redirect."""
    measures = (Measure(f"{QUANTITY}_over", "mean", "Mean delay"),)
    note = "The mean delay between the taps minus that of the other device, from pairs of trials of one round."
    where = pl.col("reference").is_not_null()
    return measured(run, Ask("modes", "What a mode of the bridge adds", measures, note, where))


def compared(run: Run) -> Table:
    """Return subtraction compared with taps, on the same packets."""
    measures = (
        Measure("device_latency", "mean", "By subtraction"),
        Measure(f"{QUANTITY}_over", "mean", "By taps"),
        Measure("subtraction_less_taps", "mean", "Difference"),
    )
    note = (
        "What the device adds over the redirect, measured in two ways: by subtraction of the one-way delays between "
        "the hosts, and between the taps at its ports. Their difference is the part of the subtraction that arises "
        "outside the ports."
    )
    where = pl.col("reference") == "wire"
    return measured(run, Ask("subtraction", "Subtraction against taps", measures, note, where))


def standing_out(run: Run) -> Table:
    """Return the cells with a large deviation that were repeated separately."""
    measures = (
        Measure("cell_anomaly", "mean", "In the rounds"),
        Measure("cell_anomaly", "repeated", "Repeated by itself"),
    )
    note = (
        "Where, in a session, the latency that a device adds to its reference is far from what it adds in its other "
        "cells of that size, that cell is measured again by itself at the end of the session. The table shows the "
        "deviation from the median of these cells; the finding anomalous_cell says which deviations are on all beds "
        "and persist."
    )
    return measured(run, Ask("standing_out", "Cells that stood out", measures, note))


def accounted(run: Run) -> Table:
    """Return the losses, reordering and duplicates between the taps, and the packets in flight."""
    shares = {"lost": "Lost", "reordered": "Reordered", "duplicated": "Duplicated"}
    measures = (
        *(Measure(f"{one}_between_taps", "ratio", title, share=True) for one, title in shares.items()),
        Measure("packets_in_flight", "mean", "Mean", "Packets in flight"),
        Measure("packets_in_flight", "max", "Max", "Packets in flight", interval=False),
    )
    note = (
        "Lost: of the packets that entered; reordered (RFC 4737) and duplicated: of those that left. In flight: how "
        "many others were in the device when a packet entered it."
    )
    return measured(run, Ask("accounting", "Packets between the taps", measures, note))


def segmented(run: Run) -> Table:
    """Return messages over TCP: whether each was one segment, and its distance from its due time."""
    of_errors = {"p50": "Median", "p99": "p99", "max": "Max"}
    measures = (
        Measure("segments_per_message", "mean", "Segments per message"),
        Measure("one_segment_messages", "ratio", "Messages in one segment", share=True),
        *(Measure("pacing_error", one, title, "Due time to write call", interval=False)
          for one, title in of_errors.items()),
        *(Measure("tap_pacing_error", one, title, "Due time to tap", interval=False)
          for one, title in of_errors.items()),
    )  # fmt: skip
    note = (
        "Each message is one write, with Nagle's algorithm off, at its scheduled time, even if earlier messages were "
        "late. The tap before the device counts segments with data: where there are as many as messages, the packet "
        "rate is the configured one."
    )
    where = pl.col("engine") == "tcp"
    return measured(run, Ask("segments", "Messages over TCP", measures, note, where))


def stamped(run: Run) -> Table:
    """Return the intervals of a regular stream by the tap's timestamps, and by its sender's."""
    names = {"mean": "Mean", "p50": "Median", "sd": "Std dev", "min": "Min", "max": "Max", "p1": "p1", "p99": "p99"}
    sides = {"departure_interval": "By the sender's timestamps", "tap_interval": "By the tap's timestamps"}
    measures = tuple(
        measure
        for quantity, side in sides.items()
        for measure in (
            *(Measure(quantity, one, title, side, interval=one == "mean") for one, title in names.items()),
            Measure(f"{quantity}_within_10", "ratio", "Within ± 10 %", side, interval=False),
        )
    )
    side = "By the tap less by the sender, frame by frame"
    measures += tuple(
        Measure("tap_interval_error", one, names[one], side, interval=one == "sd")
        for one in ("sd", "p1", "p99", "min", "max")
    )
    note = (
        "Times between frames of regular streams by the timestamps of the tap before the device, and by the sender's "
        "own departure timestamps: any additional spread at the tap comes from the tap and from the path to it."
    )
    return measured(run, Ask("intervals", "Timestamp accuracy: times between frames", measures, note))


def over_throughput(run: Run) -> Figure | None:
    """Return the paper's averages: the mean delay in each mode over the rate of packets."""
    return _over(run, "mean", "Mean delay in the device over packet rate")


def tail_over_throughput(run: Run) -> Figure | None:
    """Return the 99th percentile of the delay over the rate of packets."""
    return _over(run, "p99", "The 99th percentile over packet rate")


def _over(run: Run, statistic: str, title: str) -> Figure | None:
    rows = rows_over(run, QUANTITY, (statistic,), "interval_ns")
    if rows.is_empty():
        return None
    rows = rows.with_columns((1e9 / pl.col("x")).round_sig_figs(6).alias("x")).drop_nulls("y").pipe(along)
    chart = Lines(Axis("Packets per second", log=True), Axis("Delay between the taps (µs)", zero=True), ())
    beds = "beds" if run.sessions > 1 else "trials"
    caption = f"Bars are 95 % CIs over {beds}. {about_serialisation(run)}"
    return figure(f"{QUANTITY}_{statistic}", title, caption, rows, chart)


def subtracted(run: Run) -> str | None:
    """Return the rate of the link whose serialisation the plan subtracts, as the plan writes it."""
    words = run.plan.get("taps", {}).get("subtract_serialisation")
    return str(words) if words else None


def about_serialisation(run: Run) -> str:
    """Return whether delays contain the time of a frame on a link."""
    if rate := subtracted(run):
        return f"The time of each frame on a link of {rate} is subtracted."
    real = str(run.plan.get("bed", {}).get("backend", "netns")) != "netns"
    return "" if real else "The delay contains no serialisation, because a virtual link has none."


def over_size(run: Run) -> Figure | None:
    """Return the mean delay and its 99th percentile over the frame's size; None for one size."""
    found = rows_over(run, QUANTITY, ("mean", "p99"), "frame_bytes").drop_nulls("y")
    if found.is_empty():
        return None
    several = found.filter(pl.col("x").n_unique().over("cell") > 1)
    mixed = several.is_empty()
    if mixed:  # no packet rate has several sizes
        found = rows_over(run, QUANTITY, ("mean", "p99"), "frame_bytes", without=("interval_ns", "rate_pps"))
        found = found.drop_nulls("y")
        several = found.filter(pl.col("x").n_unique().over("cell") > 1)
    if several.is_empty():
        return None
    rows = several.with_columns(series=pl.col("statistic")).pipe(along)
    chart = Lines(
        Axis("Frame with FCS (bytes)", zero=True), Axis("Delay between the taps (µs)", zero=True), ("mean", "p99"),
        joined=not mixed,
    )  # fmt: skip
    points = " Each point is a packet rate." if mixed else ""
    beds = "beds" if run.sessions > 1 else "trials"
    caption = (
        f"The mean delay and the 99th percentile. Bars are 95 % CIs over {beds}.{points} {about_serialisation(run)}"
    )
    return figure(f"{QUANTITY}_size", "Delay between the taps against frame size", caption.strip(), rows, chart)


def over_time(run: Run) -> Figure | None:
    """Return the delay of packets between the taps over the time of the run."""
    said = "Delay between the taps"
    return delays.over_time(run, "tap_timeline", ("delay_between_taps_over_time", f"{said} over the run", said))


def cdfs(run: Run) -> Figure | None:
    """Return the whole distribution, on a log(1 - p) axis."""
    named = ("delay_between_taps_cdf", "Delay in the device", "Delay between the taps (µs)")
    return delays.distribution(run, pl.lit(value=True), *named, of="tap_quantiles")


def tap_intervals(run: Run) -> Figure | None:
    """Return the distribution of the times between frames of regular streams, by the tap's timestamps."""
    named = ("tap_interval_cdf", "Time between frames by the tap's timestamps", "Time between frames (µs)")
    return delays.gaps_of(run, "tap_interval_quantiles", named)


def departure_intervals(run: Run) -> Figure | None:
    """Return the same by the sender's timestamps, which the tap's are compared with."""
    named = ("departure_interval_cdf", "Time between frames by the sender's timestamps", "Time between frames (µs)")
    return delays.gaps_of(run, "departure_interval_quantiles", named)


def histograms(run: Run) -> Figure | None:
    """Return the bulk of the distribution."""
    named = ("delay_between_taps_histogram", "delay between the taps", "delays between the taps")
    return delays.bulk(run, pl.lit(value=True), named, of="tap_histograms")


def density(run: Run) -> Figure | None:
    """Return the paper's surface: the distribution of the delay at each packet rate."""
    found = sample(run, "tap_density", "interval_ns")
    if found.is_empty():
        return None
    place = pl.concat_str(pl.col("device"), pl.lit(", "), pl.col("cell"))
    rows = found.drop_nulls("interval_ns").select(
        place.alias("cell"),
        "device",
        (1e9 / pl.col("interval_ns")).round_sig_figs(4).alias("x"),
        (pl.col("low_ns") / 1e3).round_sig_figs(4).alias("low"),
        (pl.col("high_ns") / 1e3).round_sig_figs(4).alias("high"),
        pl.col("share").round_sig_figs(4),
    )
    caption = (
        "Each column is a packet rate, each field a bin of delays, ten bins for each decade; the darker a field, the "
        "larger its share of that rate's packets."
    )
    chart = Density("Packets per second", "Delay between the taps (µs)")
    return figure("delay_between_taps_density", "Density of the delay over packet rate", caption, rows, chart)


def by_flight(run: Run) -> Figure | None:
    """Return the delay over the number of packets in the device; None if it never has several."""
    found = sample(run, "tap_in_flight")
    several = found.filter(pl.col("in_flight").n_unique().over("cell") > 1) if found.height else found
    if several.is_empty():
        return None
    rows = several.select(
        "cell", "device", pl.col("in_flight").alias("x"), *spans(("mean_ns", "low_ns", "high_ns"), 1e-3)
    )
    chart = Lines(Axis("Packets in flight", whole=True), Axis("Delay between the taps (µs)", zero=True))
    caption = (
        "The mean delay of packets, by the number of other packets that were in the device when they entered; from 8 "
        "on, a point covers all numbers up to twice as many. Bars are 95 % CIs."
    )
    return figure("delay_in_flight", "Delay against packets in flight", caption, rows, chart)


def losses_over_time(run: Run) -> Figure | None:
    """Return the share of each trial's packets that was lost or reordered; None if none ever was."""
    found = sample(run, "tap_trials")
    if found.is_empty() or not found.select(pl.sum_horizontal("lost", "reordered").sum()).item():
        return None
    shares = (("lost", "entered"), ("reordered", "left"))
    rows = pl.concat([
        found.select(
            "cell", "device", pl.col("elapsed_s").round(3).alias("x"), (100 * pl.col(what) / pl.col(of)).alias("y"),
            *NO_INTERVAL, series=pl.lit(what),
        ).filter(pl.col("y").is_finite())
        for what, of in shares
    ])  # fmt: skip
    chart = Lines(
        Axis("Time since the run began (s)"), Axis("Share of the packets (%)", symlog=True), ("lost", "reordered"),
        joined=False,
    )  # fmt: skip
    caption = (
        "Each point is a trial: the share of the packets that entered which were lost, and of those that left which "
        "were reordered."
    )
    return figure("losses_between_taps", "Loss and reordering over time", caption, rows, chart)


def keys(run: Run) -> list[Key]:
    """Return the delay in each device in its first cell."""
    found = []
    for device in run.devices:
        mean = run.rows(QUANTITY, "mean", device=device).head(1)
        for row in mean.iter_rows(named=True):
            cell = run.cell_of(row)
            found.append(delays.key_of(row, f"Mean delay in {device}", cell.short if cell else ""))
    return found


def how(run: Run) -> list[str]:
    """Return what is particular to this method's measurement."""
    return words(
        run,
        "Both ports of each device are captured (AF_PACKET, timestamps of the kernel) while its stream runs; the "
        "packets are matched by a digest of the bytes that the device leaves unchanged, and the delay of each is "
        f"recorded.{_left_out(run)}",
    )


def _left_out(run: Run) -> str:
    """Return which figure of messages over TCP is missing where the taps have another clock than the sender."""
    machines = run.bed.get("moment", {}).get("machines") or {}
    clocks = {machines.get(host, {}).get("boot_id") for host in ("a", "device")} - {None}
    if len(clocks) < 2 or not run.rows("segments_per_message").height:
        return ""
    return (
        " How long a message takes from its due time to the first tap is left out: sender and taps read two clocks, "
        "and no stream compares that of the device's host. A receiver of bytes gives no one-way delays."
    )


PARTS = Parts(
    tables=(
        between, more, compared, standing_out, accounted, segmented, stamped, delays.delays, delays.conservation,
        delays.pacing,
    ),
    figures=(
        over_throughput, tail_over_throughput, over_size, density, by_flight, cdfs, histograms, tap_intervals,
        departure_intervals, over_time, losses_over_time, delays.over_time, differences, control, departures,
    ),
    keys=keys,
    words=how,
    results=(QUANTITY, f"{QUANTITY}_over"),
    published=PUBLISHED,
)  # fmt: skip
