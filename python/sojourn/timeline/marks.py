"""What a time–sequence diagram shows of a flow: its segments with marks, and the lines of its acknowledgements.

Sequence numbers are bytes from the first segment's, without the wrap at 2³²; times are ns on the records' clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from sojourn.export.summary_samples import KINDS, judged
from sojourn.timeline.pairs import WRAP, unwrapped, unwrapped_near
from sojourn.timeline.sacks import sack_blocks
from sojourn.timeline.source import digits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sojourn.timeline.source import Flow

AGAIN = ("", *KINDS)
"""A segment's `kind`: sent for the first time, or why it was retransmitted."""

LOST = ("", "emulator", "elsewhere")
"""A segment's `lost`: lost by an emulator; or sent before others that were received, with no record of its receipt."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The data of one flow's diagram."""

    segments: pl.DataFrame
    """The joined table in the order of `sent_ns`, with `at` (its first byte), `kind`, `lost` (indexes into AGAIN and
    LOST) and `delay_ns` (until receipt; without a receiver's log, until the acknowledgement)."""

    acks: pl.DataFrame
    """`time_ns`, `at`: the highest byte known to the sender as acknowledged."""

    window: pl.DataFrame
    """`time_ns`, `at`: the end of the receiver's window as known to the sender, at each change."""

    sacks: pl.DataFrame
    """`time_ns`, `low`, `high`: SACK blocks, where their packets were seen."""

    lost_acks: pl.DataFrame
    """`time_ns`, `at`: acknowledgements that an emulator lost."""

    sacks_seen_at: str
    """Where the SACK blocks were seen; empty where no record has them."""


def marks_of(flow: Flow, segments: pl.DataFrame, folders: Sequence[Path], block: int | None) -> Marks:
    """Return everything that is drawn of a flow with segments."""
    ordered = segments.sort("sent_ns", maintain_order=True)
    base = int(ordered["seq"][0])
    taps = ordered["tap_before"].drop_nulls()
    tap = str(taps[0]) if len(taps) else None
    sacks = sack_blocks(folders, flow, tap, block)
    begin, end = int(str(ordered["sent_ns"].min())), _last(ordered)
    sacks = sacks.filter(pl.col("time_ns").is_between(begin, end))
    acks = _acks(flow, base)
    low = unwrapped_near(sacks["low"].cast(pl.Int64), _acked_at(sacks["time_ns"], acks), base)
    sacks = sacks.with_columns(low.alias("low"), (low + (sacks["high"] - sacks["low"]) % WRAP).alias("high"))
    where = f"tap {tap}" if tap else "the emulator" if flow.emulated else ""
    return Marks(
        _segments(flow, ordered, base),
        acks,
        _window(flow, base),
        sacks,
        _lost_acks(flow, base, end, acks),
        where,
    )


def _last(segments: pl.DataFrame) -> int:
    return max(int(str(segments[name].max() or 0)) for name in ("sent_ns", "received_ns", "acked_ns"))


def _segments(flow: Flow, ordered: pl.DataFrame, base: int) -> pl.DataFrame:
    again = judged(flow.sender.samples, flow.sender.flag_names).select(
        pl.col("cpu").alias("sent_cpu"), pl.col("number").alias("sent_number"), pl.col("again").alias("why")
    )
    wide = ordered.join(again, on=["sent_cpu", "sent_number"], how="left", maintain_order="left")
    places = {name: place for place, name in enumerate(AGAIN)}
    kind = pl.col("why").replace_strict(places, default=places["other"], return_dtype=pl.Int64)
    known_to = "received_ns" if flow.receiver is not None else "acked_ns"
    reached = wide.drop_nulls("received_ns")["sent_ns"].max()  # null without a log of the receiver
    is_gone = pl.all_horizontal(pl.col("received_ns", "tap_after_ns").is_null())
    is_gone &= ~pl.col("reached")
    is_gone &= pl.col("sent_ns") < (reached if isinstance(reached, int) else 0)
    is_lost = (pl.col("disposition") == "lost").fill_null(value=False)
    resent = pl.col("again").fill_null(value=False)
    return wide.with_columns(
        unwrapped(wide["seq"], base).alias("at"),
        pl.when(resent).then(kind).otherwise(0).alias("kind"),
        pl.when(is_lost).then(1).when(is_gone).then(2).otherwise(0).alias("lost"),
        (pl.col(known_to) - pl.col("sent_ns")).alias("delay_ns"),
    ).drop("why")


def _changes(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows at which `at` changes, and the last row."""
    is_new = (pl.col("at") != pl.col("at").shift(1)).fill_null(value=True)
    return rows.filter(is_new | (pl.int_range(pl.len()) == pl.len() - 1))


def _acks(flow: Flow, base: int) -> pl.DataFrame:
    came = flow.sender.samples.filter(pl.col("point") == "in", (pl.col("tcp_flags").fill_null(0) & 16) > 0)
    reached = unwrapped(came["ack"].cast(pl.Int64), base).cum_max()
    return _changes(came.select(pl.col("time_ns"), reached.alias("at")))


def _window(flow: Flow, base: int) -> pl.DataFrame:
    """Return the window's end at each change. A sample precedes the processing of its packet: the next one shows the
    result."""
    samples = flow.sender.samples.drop_nulls(["snd_una", "snd_wnd_bytes"]).filter(pl.col("snd_wnd_bytes") > 0)
    edge = unwrapped(samples["snd_una"].cast(pl.Int64), base) + samples["snd_wnd_bytes"].cast(pl.Int64)
    return _changes(samples.select("time_ns", edge.shift(-1).alias("at")).drop_nulls("at"))


def _acked_at(times: pl.Series, acks: pl.DataFrame) -> pl.Series:
    """Return the highest acknowledged byte at these times, which are sorted."""
    asked = pl.DataFrame({"time_ns": times})
    return asked.join_asof(acks.select("time_ns", "at"), on="time_ns", check_sortedness=False)["at"].fill_null(0)


def _lost_acks(flow: Flow, base: int, end: int, acks: pl.DataFrame) -> pl.DataFrame:
    source, port = digits(flow.sender.ends["remote_address"]), flow.sender.ends["remote_port"]
    lost = flow.packets.filter(
        pl.col("source") == source, pl.col("sport") == port, pl.col("disposition") == "lost",
        pl.col("arrival_ns") <= end, pl.col("payload_bytes") == 0,
    ).sort("arrival_ns")  # fmt: skip
    at = unwrapped_near(lost["ack"].cast(pl.Int64), _acked_at(lost["arrival_ns"], acks), base)
    return lost.select(pl.col("arrival_ns").alias("time_ns"), at.alias("at"))
