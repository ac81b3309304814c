"""What became of the segments in flight at a moment: received, delayed by a queue, lost, retransmitted.

A segment is in flight from its last transmission to its acknowledgement. Each is in exactly one count: lost by an
emulator, received, acknowledged without a record of its receipt, or unknown.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING

import polars as pl

from sojourn.timeline.judge import CAUSES, by_number, of_packets, of_segments
from sojourn.timeline.said import MS, Rows, Sentence

if TYPE_CHECKING:
    from sojourn.timeline.moment import Moment


GONE = (pl.col("disposition") == "lost").fill_null(value=False) | pl.col("lost_where").is_not_null()
"""Lost by an emulator, or seen by a tap and by nothing behind it."""


@dataclass(frozen=True, slots=True)
class Fate:
    """How many segments were in flight, and their outcome: `segments` is the sum of the next four."""

    segments: int
    lost: int
    """Lost by an emulator or, as taps show, elsewhere on the path."""

    received: int
    acknowledged: int
    """Acknowledged, without a record of their receipt."""

    unknown: int
    retransmitted: int
    """Of all segments: those retransmitted after the moment."""

    waited_ms: float | None
    """Median delay in emulators' queues and links; without their logs, the delay between taps in excess of the least
    one."""

    as_dict = asdict


def fate_of(moment: Moment) -> tuple[Fate, list[Sentence]]:
    """Count the segments in flight by outcome, and return the counts with sentences about them."""
    flying = moment.in_flight.join(moment.resent, on="seq", how="left", maintain_order="left")
    lost = flying.filter(GONE)
    rest = flying.join(lost.select("seq"), on="seq", how="anti", maintain_order="left")
    received = rest.drop_nulls("received_ns")
    acknowledged = rest.filter(pl.col("received_ns").is_null(), pl.col("acked_ns").is_not_null())
    if moment.device.is_seen:
        least = (moment.device.crossings["left_ns"] - moment.device.crossings["entered_ns"]).min()
        own_way = pl.col("tap_after_ns") - pl.col("tap_before_ns") - pl.lit(least, pl.Int64)
    else:
        own_way = pl.col("link_left_ns") - pl.col("entered_ns")
    waited = received.select(own_way.alias("waited_ns"))["waited_ns"].drop_nulls()
    fate = Fate(
        segments=flying.height,
        lost=lost.height,
        received=received.height,
        acknowledged=acknowledged.height,
        unknown=rest.height - received.height - acknowledged.height,
        retransmitted=flying["resent_ns"].drop_nulls().len(),
        waited_ms=_middle(waited),
    )
    return fate, _sentences(moment, fate, {"flying": flying, "lost": lost, "got": received, "acked": acknowledged})


def _sentences(moment: Moment, fate: Fate, of: dict[str, pl.DataFrame]) -> list[Sentence]:
    sender = moment.flow.sender
    if not fate.segments:
        return [Sentence("Nothing was in flight", (Rows(sender.record, by_number(moment.now, "cpu", "number")),))]
    first, last = of["flying"]["seq"][0], of["flying"]["seq"][-1]
    text = f"{counted(fate.segments)} in flight, from sequence number {first} to {last}"
    told = [Sentence(text, (of_segments(sender, of["flying"]),))]
    if fate.received:
        told.append(_arrived(moment, fate, of["got"]))
    if fate.acknowledged:
        took = _middle(of["acked"]["acked_ns"] - of["acked"]["sent_ns"])
        text = f"{was(fate.acknowledged)} acknowledged {took:.1f} ms after they had been sent (median)"
        told.append(Sentence(text, (of_segments(sender, of["acked"]),)))
    if fate.lost:
        told.append(_lost(moment, fate, of["lost"]))
    if fate.retransmitted:
        again = of["flying"].drop_nulls("resent_ns")
        later = _middle(again["resent_ns"] - again["sent_ns"])
        text = f"{was(fate.retransmitted)} retransmitted, {later:.1f} ms after they had been sent first (median)"
        told.append(Sentence(text, (of_segments(sender, again),)))
    if fate.unknown:
        rows = of["flying"].filter(
            pl.col("received_ns").is_null(), pl.col("acked_ns").is_null(), ~GONE,
        )  # fmt: skip
        text = f"What became of {fate.unknown} of them is in no record"
        told.append(Sentence(text, (of_segments(sender, rows),)))
    return told


def _lost(moment: Moment, fate: Fate, lost: pl.DataFrame) -> Sentence:
    """State where segments were lost: by an emulator's log, else by the last tap that saw them."""
    if not moment.device.is_seen:
        causes = lost["cause"].value_counts(sort=True).iter_rows()
        why = ", ".join(f"{count} {CAUSES.get(cause, cause)}" for cause, count in causes)
        return Sentence(f"{fate.lost} of them an emulator lost: {why}", of_packets(moment, lost))
    words = {
        "device": f"between the taps {moment.device.before} and {moment.device.after}",
        "before": f"before tap {moment.device.before}",
        "behind": f"behind tap {moment.device.after}",
    }
    where = ", ".join(
        f"{count} {words[name]}" for name, count in lost["lost_where"].value_counts(sort=True).iter_rows()
    )
    return Sentence(f"{was(fate.lost)} lost: {where}", (of_segments(moment.flow.sender, lost),))


def _arrived(moment: Moment, fate: Fate, got: pl.DataFrame) -> Sentence:
    took = ((got["received_ns"] - got["sent_ns"]) / MS).to_list()
    spread = f" ({min(took):.1f} to {max(took):.1f} ms)" if fate.received > 1 else ""
    where = "queue and link between the taps" if moment.device.is_seen else "the emulator's queue and link"
    queue = f", of which {fate.waited_ms:.1f} ms in {where}" if fate.waited_ms is not None else ""
    text = f"{fate.received} of them arrived {median(took):.1f} ms after they had been sent{spread}{queue}"
    receiver = moment.flow.receiver
    assert receiver is not None
    there = Rows(receiver.record, by_number(got, "received_cpu", "received_number"))
    return Sentence(text, (there, *of_packets(moment, got)))


def counted(segments: int) -> str:
    """Return the number of segments, with its verb."""
    return "One segment was" if segments == 1 else f"{segments} segments were"


def was(count: int) -> str:
    """Return "N of them", with its verb."""
    return f"{count} of them {'was' if count == 1 else 'were'}"


def _middle(numbers: pl.Series) -> float | None:
    """Return the median of times in ns, in ms."""
    middle = numbers.drop_nulls().median()
    return float(middle) / MS if isinstance(middle, int | float) else None
