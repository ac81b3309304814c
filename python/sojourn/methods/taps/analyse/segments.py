"""Messages over TCP at the tap before the device: whether each was one segment, and how late it passed.

The taps of such a trial only record segments with data. A message is alone if a segment carries it and nothing else.
Several messages in one segment, a part of one, and retransmissions are recognised by lengths alone. If every message
was alone, segments and messages correspond one to one, in order: then each timestamp minus the message's due time is a
pacing error on the wire, where the taps read the sender's clock. No stream ends at the device's host, so that its clock
is not compared with another: between two clocks there is no such figure.

Rows: segments_per_message; mean [1]. one_segment_messages (of those sent, the ones that left alone); ratio [1].
tap_pacing_error (from the due time to the tap's timestamp, through the sender's stack); mean p50 p99 max [ns].
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.clocks import shared_blocks
from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.packets import ordered, values_of
from sojourn.analysis.rows import Row
from sojourn.analysis.streams import in_order, over_trials, sessions_of, share_of
from sojourn.analysis.wording import counted, fixed, percent
from sojourn.records import read_table
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from sojourn.analysis.run import Run

ENGINE = "tcp"
HEADERS_BYTES = 14 + 20 + 20
"""The bytes before the data of a segment without options."""

SEEN_FIRST = ("lost", "evicted", "pending")
"""Outcomes of packets that the tap before the device saw, and the one behind it did not."""

TOLERATED = 0.005
"""The largest share of messages that did not leave alone for which the packet rate is the configured one."""

PER_MESSAGE, ALONE, PACING = "segments_per_message", "one_segment_messages", "tap_pacing_error"
COUNTS = ("messages", "segments", "alone", "joined", "cut", "repeated_bytes")
SCHEMA: dict[str, Any] = {"block": pl.Int32(), **dict.fromkeys(COUNTS, pl.Int64())}


def segments_of(run: Run, flows: pl.DataFrame, events: dict[int, dict[str, Any]]) -> pl.DataFrame:
    """Return for each trial over TCP: block, device, cell, session and COUNTS.

    `alone`: messages that were certainly alone; `joined`: segments of several; `cut`: of a part; `repeated_bytes`: data
    beyond what was written.
    """
    trials = flows.filter(pl.col("cell").is_in(cells_of(run)) & pl.col("block").is_in(list(events))).unique("block")
    rows = []
    for block, cell, messages in trials.sort("block").select("block", "cell", "sent").iter_rows():
        size = run.cells[cell].payload_bytes or 0
        rows.append((block, messages, *classes(data_lengths(run, events[block]), size, messages)))
    found = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return trials.select("block", "device", "cell", "session").join(found, on="block", how="inner").sort("block")


def cells_of(run: Run) -> list[int]:
    """Return the cells whose streams are messages over TCP."""
    return [cell for cell, factors in run.cells.items() if factors.engine == ENGINE]


def data_lengths(run: Run, event: dict[str, Any]) -> pl.Series:
    """Return the data bytes of each segment that the tap before the device saw."""
    folder = run.folder.records / event["records"]
    both = read_table(folder, "crossings").frame.filter(pl.col("direction") == "forward")
    one = read_table(folder, "unmatched").frame.filter(
        (pl.col("direction") == "forward") & pl.col("outcome").is_in(SEEN_FIRST)
    )
    lengths = pl.concat([both.select("length_bytes"), one.select("length_bytes")])["length_bytes"]
    return lengths.cast(pl.Int64) - HEADERS_BYTES


def classes(data: pl.Series, size: int, messages: int) -> tuple[int, int, int, int, int]:
    """Return the number of segments, of messages certainly alone, of segments with more, of segments with less, and the
    retransmitted bytes. A segment as long as a message may be a retransmission: messages in longer segments may not
    have been alone the first time.
    """
    alone, joined, cut = (int(one.sum()) for one in (data == size, data > size, data < size))
    in_longer = int((data.filter(data > size) // max(1, size)).sum())
    alone = min(alone, max(0, messages - in_longer))
    return len(data), alone, joined, cut, max(0, int(data.sum()) - messages * size)


def segment_rows(run: Run, trials: pl.DataFrame) -> list[Row]:
    """Return the segments per message, and the share of messages that were alone."""
    rows = []
    groups = trials.partition_by("device", "cell", as_dict=True, maintain_order=True)
    for place in in_order(run, [(str(device), int(str(cell))) for device, cell in groups]):
        some, (device, cell) = groups[place], place
        messages, segments, alone = (some[name].to_numpy().astype(np.float64) for name in COUNTS[:3])
        session = some["session"].to_numpy().astype(np.int64)
        per_message = over_trials(segments / np.maximum(messages, 1), 0.95, session)
        for quantity, statistic, value in (
            (PER_MESSAGE, "mean", per_message), (ALONE, "ratio", share_of(some, np.minimum(alone, messages), messages)),
        ):  # fmt: skip
            row = Row(device, quantity, statistic, value, "1", None, run.cells[cell], cell, int(messages.sum()))
            rows.append(replace(row, sessions=sessions_of(some)))
    return rows


def segments_differ(trials: pl.DataFrame) -> list[Finding]:
    """Return a finding for messages that did not leave as one segment each; a note if they are few."""
    shares: dict[Place, float] = {}
    told: dict[Place, dict[str, int]] = {}
    for (device, cell), some in trials.partition_by("device", "cell", as_dict=True).items():
        totals = {name: int(some[name].sum()) for name in COUNTS}
        missing = int((some["messages"] - some["alone"]).clip(lower_bound=0).sum())
        beyond = int((some["segments"] - some["messages"]).clip(lower_bound=0).sum())
        differing = max(missing, beyond)
        if differing and totals["messages"]:
            place = Place(str(device), int(str(cell)))
            shares[place], told[place] = differing / totals["messages"], totals
    if not shares:
        return []
    places, worst = worst_first(shares)
    of = told[places[0]]
    said = (
        f"{percent(worst)} of {counted(of['messages'], 'message')} did not leave as one segment each: "
        f"{counted(of['joined'], 'segment')} carried several, {fixed(of['cut'], 0)} a part, and "
        f"{counted(of['repeated_bytes'], 'byte')} were retransmitted; delays are of the segments with one message"
    )
    return [Finding("segments_differ", said, worst, places, None if worst > TOLERATED else "note")]


def departures_of(run: Run, flows: pl.DataFrame) -> pl.DataFrame:
    """Return when each message was written, in the form of `Crossed.packets`: `at_ns`, `number` and the trial."""
    places = flows.filter(pl.col("cell").is_in(cells_of(run))).unique("block")
    own = run.sends.join(places.select("block", "device", "cell", "session"), on="block", how="inner")
    return own.with_columns(port=pl.lit(0, pl.Int32), node=pl.lit(0, pl.Int32)).rename(
        {"departure_ns": "at_ns", "seq": "number"}
    )


def on_senders_clock(run: Run, events: dict[int, dict[str, Any]]) -> list[int]:
    """Return the trials whose taps read the sender's clock; where that is not recorded, both ends must have one."""
    sent = run.streams.filter(pl.col("role") == "send")
    clocks = dict(sent.select("block", "clock_id").unique("block").iter_rows())
    shared = shared_blocks(run.clock_lines, run.streams)

    def is_one(block: int, event: dict[str, Any]) -> bool:
        told = read_table((run.folder.records / event["records"]).parent, "tap_counts").metadata("clock_id")
        return {int(one, 16) for one in told} == {clocks[block]} if told and clocks.get(block) else block in shared

    return [block for block, event in events.items() if is_one(block, event)]


def wire_errors(run: Run, packets: pl.DataFrame, trials: pl.DataFrame, events: dict[int, dict[str, Any]]
                ) -> pl.DataFrame:  # fmt: skip
    """Return the packets of trials whose messages were all alone, with `error_ns`: the tap's timestamp minus the due
    time; only of taps on the sender's clock."""
    of_tcp = {block: event for block, event in events.items() if block in set(trials["block"])}
    trials = trials.filter(pl.col("block").is_in(on_senders_clock(run, of_tcp)))
    exact = trials.filter((pl.col("segments") == pl.col("messages")) & (pl.col("alone") == pl.col("messages")))
    due = run.sends.select("block", pl.col("seq").alias("number"), "intended_ns")
    mine = packets.join(exact.select("block"), on="block", how="semi").join(due, on=["block", "number"], how="inner")
    return mine.with_columns(error_ns=(pl.col("first_ns") - pl.col("intended_ns")).cast(pl.Float64))


def pacing_rows(run: Run, packets: pl.DataFrame, trials: pl.DataFrame, events: dict[int, dict[str, Any]]) -> list[Row]:
    """Return the delay from due time to the tap before the device, for messages."""
    rows = []
    for one in ordered(run, list(values_of(wire_errors(run, packets, trials, events), "error_ns", PACING))):
        figures = {"mean": one.mean(), "max": Interval(float(one.values.max()), None, None, 0.95, len(one.blocks))}
        figures |= {f"p{100 * p:.0f}": one.quantile(p) for p in (0.5, 0.99) if one.allows(p)}
        for statistic, value in figures.items():
            row = Row(one.device, PACING, statistic, value, "ns", None, run.cells[one.cell], one.cell, len(one.values))
            rows.append(replace(row, sessions=one.beds))
    return rows
