"""What two taps tell of what lies between them: which segments were lost there, and how long the others were in it.

The least delay of any packet is the way itself; what a packet took longer, it waited and was transmitted (`waited_ns`).
A lost packet took nothing, but the packet before it tells what it would have: that one's wait, less the time between
the two, and its own transmission (`found_ns`). Other flows' packets tell it too. Nothing is judged here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.timeline.pairs import matched
from sojourn.timeline.said import LEAST_PACKETS, Rows, spans
from sojourn.timeline.taps import SYN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.timeline.source import Flow

SAME_PACKET = ("source", "sport", "destination", "dport", "seq", "ack", "flags12", "payload_bytes", "ip_id")
HEADERS_BYTES = 66
"""Of Ethernet, IPv4 and TCP with timestamps: what a segment has beside its payload, nearly."""

FULL = 0.5
"""A packet of at least this part of the longest one is a full one."""

CLOSE = 0.25
"""Two packets whose distance before the device is at most this part of that behind it were held apart by a link."""

APART_NS = 30_000
"""By how much at least: less is the work of processors."""

MORE_THAN_RATE = 1.2
"""Times the mean distance of packets: what a packet takes on a link is not more."""


@dataclass(frozen=True, slots=True)
class Passed:
    """What came to the device in a stretch of time, in order."""

    own: pl.DataFrame
    """The flow's segments: `entered_ns`, `left_ns` (null: lost), `waited_ns` (of a lost one null), `bytes`, `frame` (in
    the file of the first tap), and `found_ns`, what a packet that came then had to wait."""

    every: pl.DataFrame
    """The same without `found_ns` of all flows, those that passed."""

    link_ns: int
    """What a full packet takes on the link; 0 where none is seen."""

    @property
    def lost(self) -> pl.DataFrame:
        """The flow's lost segments."""
        return self.own.filter(pl.col("left_ns").is_null())

    @property
    def through(self) -> pl.DataFrame:
        """Those that passed."""
        return self.own.drop_nulls("left_ns")

    @property
    def each_ns(self) -> float:
        """The time that a full packet has at the rate of all flows."""
        span = int(self.every["entered_ns"].max() or 0) - int(self.every["entered_ns"].min() or 0)  # type: ignore[arg-type]
        return max(span, 1) / max(full(self.every).height, 1)


class Device:
    """What lies between the first and the last tap that saw a flow."""

    def __init__(self, flow: Flow, segments: pl.DataFrame) -> None:
        self._flow, self._segments = flow, segments
        self.before, self.after = (_name(segments[f"tap_{side}"]) for side in ("before", "after"))

    @property
    def is_seen(self) -> bool:
        """Whether two taps saw the flow, and an emulator's log does not tell more."""
        is_logged = self._segments["arrival_ns"].drop_nulls().len() > 0
        return self.before is not None and self.after is not None and not is_logged

    @property
    def lacking(self) -> int:
        """Packets that passed a tap and are not in its file."""
        return sum(self._flow.taps.dropped.get(str(one), 0) for one in (self.before, self.after))

    def rows(self, segments: pl.DataFrame) -> tuple[Rows, ...]:
        """Frames in the file of the first tap."""
        name = ", ".join(self._flow.taps.files.get(str(self.before), ())) or str(self.before)
        return (Rows(name, f"frame {spans(segments['frame'].drop_nulls())}"),)

    @cached_property
    def crossings(self) -> pl.DataFrame:
        """All packets that came to the device in the direction of the flow's data, in order; `own`: its segments."""
        own = self._segments.drop_nulls("tap_before_ns").select(
            pl.col("tap_before_frame").alias("frame"),
            pl.col("tap_before_ns").alias("entered_ns"),
            # What was received went through, whatever the tap saw of it.
            pl.coalesce("tap_after_ns", "received_ns").alias("left_ns"),
            (pl.col("payload_bytes") + HEADERS_BYTES).cast(pl.Int64).alias("bytes"),
            pl.lit(value=True).alias("own"),
        )
        whole = pl.concat([own, self._other_packets]).sort("entered_ns", maintain_order=True)
        waited = pl.col("left_ns") - pl.col("entered_ns") - self.least_ns
        # One that overtook others went another way: it may take less than those that kept their order.
        overtook = (pl.col("left_ns") < pl.col("left_ns").cum_max().shift(1)).fill_null(value=False)
        return whole.with_columns(waited.clip(0).alias("waited_ns"), overtook.alias("overtook"))

    @cached_property
    def least_ns(self) -> int:
        """The least delay between the taps of a packet that has no double: which of two was seen is not certain."""
        once = self._segments.filter(~pl.col("again").any().over("seq"))
        own = once.select(left_ns="tap_after_ns", entered_ns="tap_before_ns")
        every = pl.concat([own, self._other_packets.select("left_ns", "entered_ns")]).drop_nulls().sort("entered_ns")
        kept = every.filter((pl.col("left_ns") >= pl.col("left_ns").cum_max().shift(1)).fill_null(value=True))
        least = (kept["left_ns"] - kept["entered_ns"]).min()
        return int(least) if isinstance(least, int) else 0

    @cached_property
    def reordered(self) -> float:
        """Which share of what passed overtook what had come before it: then waits tell of no one queue."""
        share = self.crossings.drop_nulls("left_ns")["overtook"].mean()
        return share if isinstance(share, float) else 0.0

    @cached_property
    def _other_packets(self) -> pl.DataFrame:
        """What other flows sent the same way, and this flow beside its data: those that each tap saw once."""
        seen = self._flow.taps.packets.with_columns((pl.struct(SAME_PACKET).hash() // 2).cast(pl.Int64).alias("same"))
        near, far = (
            seen.filter(pl.col("tap") == tap).filter(pl.len().over("same") == 1) for tap in (self.before, self.after)
        )
        is_data = (pl.col("payload_bytes") > 0) & (pl.col("flags12") & SYN == 0)
        is_ours = (pl.col("sport") == self._flow.sender.ends["local_port"]) & is_data
        near = near.filter(~is_ours).select(
            pl.int_range(pl.len(), dtype=pl.Int64).alias("place"),
            pl.col("at_ns").alias("sent_ns"),
            "frame",
            "payload_bytes",
            "same",
        )
        far = far.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("row"), "at_ns", "same")
        pairs = matched(near, far, ("same",)).join(near, on="place").join(far.drop("same"), on="row")
        return pairs.select(
            "frame",
            pl.col("sent_ns").alias("entered_ns"),
            pl.col("at_ns").alias("left_ns"),
            (pl.col("payload_bytes") + HEADERS_BYTES).cast(pl.Int64).alias("bytes"),
            pl.lit(value=False).alias("own"),
        )

    @cached_property
    def alone_ns(self) -> int:
        """What a full packet waited that found none before it: its own transmission, less that of the shortest."""
        least = full(self.crossings.drop_nulls("left_ns")).filter(~pl.col("overtook"))["waited_ns"].min()
        return max(least, 0) if isinstance(least, int) else 0

    def passed(self, since_ns: int, until_ns: int) -> Passed:
        """What came to the device in a stretch; what came behind the last one that left may still be under way."""
        last = self.crossings.filter("own").drop_nulls("left_ns")["entered_ns"].max()
        until_ns = min(until_ns, last) if isinstance(last, int) else since_ns
        came = self.crossings.filter(pl.col("entered_ns").is_between(since_ns, until_ns))
        link_ns = _link_ns(came, self.alone_ns)
        mine, alone_ns = came.filter("own"), self.alone_ns
        found = np.maximum(_found(mine, link_ns, alone_ns), _found(came, link_ns, alone_ns)[came["own"].to_numpy()])
        own = mine.with_columns(pl.coalesce("waited_ns", pl.Series(found)).alias("found_ns"))
        return Passed(own, came.drop_nulls("left_ns"), link_ns)


def full(came: pl.DataFrame) -> pl.DataFrame:
    """The full packets of these."""
    return came.filter(pl.col("bytes") >= FULL * pl.col("bytes").max())


def _link_ns(came: pl.DataFrame, alone_ns: int) -> int:
    """What a full packet takes on a link: the distance of those that came close together and left apart; 0: no link.

    Where too few came so close, what one took longer that found none before it.
    """
    of_one = alone_ns if alone_ns >= APART_NS else 0
    through = full(came.drop_nulls("left_ns"))
    if through.height < LEAST_PACKETS:
        return of_one
    near, far = (np.diff(through[name].to_numpy()) for name in ("entered_ns", "left_ns"))
    close = near <= CLOSE * (of_one or np.median(far))
    if close.sum() < LEAST_PACKETS:
        return of_one
    apart = close & (near <= CLOSE * far) & (far - near >= APART_NS)
    link_ns = round(float(np.median(far[apart]))) if apart.sum() > 0.5 * close.sum() else 0
    # Over a link packets leave no faster than one after the other: else something else held these apart.
    return link_ns if link_ns <= MORE_THAN_RATE * np.mean(far) else 0


def _found(came: pl.DataFrame, link_ns: int, alone_ns: int) -> NDArray[np.int64]:
    """What each would have waited, by the last one before it that passed; `alone_ns` behind none."""
    at, waited = came["entered_ns"].to_list(), came["waited_ns"].to_list()
    found, free_ns = np.full(len(at), alone_ns, np.int64), 0
    for place, (now, took) in enumerate(zip(at, waited, strict=True)):
        found[place] = max(alone_ns, free_ns - now + link_ns)
        if took is not None:
            free_ns = now + took
    return found


def _name(taps: pl.Series) -> str | None:
    there = taps.drop_nulls()
    return str(there[0]) if there.len() else None
