"""What two taps show of the device between them: which segments it lost, and how long it delayed the others.

The least delay of any packet is the propagation delay; the rest is queueing and transmission (`waited_ns`). A lost
packet has no delay, but the packet before it bounds it: that packet's wait, less the time between the two, plus the
lost packet's transmission (`found_ns`). Packets of other flows count too. This module only measures; it judges nothing.
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
"""Ethernet, IPv4 and TCP headers with timestamps: approximately what a segment has besides its payload."""

FULL = 0.5
"""A packet of at least this share of the longest one counts as full-sized."""

CLOSE = 0.25
"""A link spaced two packets out if their distance before the device is at most this share of that behind it."""

APART_NS = 30_000
"""The least increase of their distance: less is processing time."""

MORE_THAN_RATE = 1.2
"""The transmission time of a packet is at most this many times the mean distance of packets."""


@dataclass(frozen=True, slots=True)
class Passed:
    """The packets that entered the device in a span of time, in order."""

    own: pl.DataFrame
    """The flow's segments: `entered_ns`, `left_ns` (null: lost), `waited_ns` (null for a lost one), `bytes`, `frame`
    (in the file of the first tap), and `found_ns`: the wait that a packet that arrived then would have had."""

    every: pl.DataFrame
    """The packets of all flows that passed, without `found_ns`."""

    link_ns: int
    """The transmission time of a full-sized packet on the link; 0 where no link is seen."""

    @property
    def lost(self) -> pl.DataFrame:
        """The flow's lost segments."""
        return self.own.filter(pl.col("left_ns").is_null())

    @property
    def through(self) -> pl.DataFrame:
        """The flow's segments that passed."""
        return self.own.drop_nulls("left_ns")

    @property
    def each_ns(self) -> float:
        """The mean time between full-sized packets of all flows."""
        span = int(self.every["entered_ns"].max() or 0) - int(self.every["entered_ns"].min() or 0)  # type: ignore[arg-type]
        return max(span, 1) / max(full(self.every).height, 1)


class Device:
    """What lies between the first and the last tap that saw a flow."""

    def __init__(self, flow: Flow, segments: pl.DataFrame) -> None:
        self._flow, self._segments = flow, segments
        self.before, self.after = (_name(segments[f"tap_{side}"]) for side in ("before", "after"))

    @property
    def is_seen(self) -> bool:
        """Whether two taps saw the flow and no emulator's log shows more."""
        is_logged = self._segments["arrival_ns"].drop_nulls().len() > 0
        return self.before is not None and self.after is not None and not is_logged

    @property
    def lacking(self) -> int:
        """The number of packets that passed a tap but are missing from its file."""
        return sum(self._flow.taps.dropped.get(str(one), 0) for one in (self.before, self.after))

    def rows(self, segments: pl.DataFrame) -> tuple[Rows, ...]:
        """Return the rows of these segments in the file of the first tap."""
        name = ", ".join(self._flow.taps.files.get(str(self.before), ())) or str(self.before)
        return (Rows(name, f"frame {spans(segments['frame'].drop_nulls())}"),)

    @cached_property
    def crossings(self) -> pl.DataFrame:
        """All packets that entered the device in the direction of the flow's data, in order; `own`: the flow's
        segments."""
        own = self._segments.drop_nulls("tap_before_ns").select(
            pl.col("tap_before_frame").alias("frame"),
            pl.col("tap_before_ns").alias("entered_ns"),
            # A received segment passed the device, even if the second tap missed it.
            pl.coalesce("tap_after_ns", "received_ns").alias("left_ns"),
            (pl.col("payload_bytes") + HEADERS_BYTES).cast(pl.Int64).alias("bytes"),
            pl.lit(value=True).alias("own"),
        )
        whole = pl.concat([own, self._other_packets]).sort("entered_ns", maintain_order=True)
        waited = pl.col("left_ns") - pl.col("entered_ns") - self.least_ns
        # A packet that overtook others took another way: it may be faster than those that kept their order.
        overtook = (pl.col("left_ns") < pl.col("left_ns").cum_max().shift(1)).fill_null(value=False)
        return whole.with_columns(waited.clip(0).alias("waited_ns"), overtook.alias("overtook"))

    @cached_property
    def least_ns(self) -> int:
        """The least delay between the taps, of segments sent once: of a retransmitted one it is uncertain which copy
        was seen."""
        once = self._segments.filter(~pl.col("again").any().over("seq"))
        own = once.select(left_ns="tap_after_ns", entered_ns="tap_before_ns")
        every = pl.concat([own, self._other_packets.select("left_ns", "entered_ns")]).drop_nulls().sort("entered_ns")
        kept = every.filter((pl.col("left_ns") >= pl.col("left_ns").cum_max().shift(1)).fill_null(value=True))
        least = (kept["left_ns"] - kept["entered_ns"]).min()
        return int(least) if isinstance(least, int) else 0

    @cached_property
    def reordered(self) -> float:
        """The share of passed packets that overtook an earlier one; if it is large, no single queue explains
        the waits."""
        share = self.crossings.drop_nulls("left_ns")["overtook"].mean()
        return share if isinstance(share, float) else 0.0

    @cached_property
    def _other_packets(self) -> pl.DataFrame:
        """Packets of other flows in the same direction, and this flow's packets without data, that each tap saw
        once."""
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
        """The least wait of a full-sized packet, one that found an empty queue: its transmission less the shortest
        packet's."""
        least = full(self.crossings.drop_nulls("left_ns")).filter(~pl.col("overtook"))["waited_ns"].min()
        return max(least, 0) if isinstance(least, int) else 0

    def passed(self, since_ns: int, until_ns: int) -> Passed:
        """Return the packets that entered in a span, up to the last one that left: later ones may still be on their
        way."""
        last = self.crossings.filter("own").drop_nulls("left_ns")["entered_ns"].max()
        until_ns = min(until_ns, last) if isinstance(last, int) else since_ns
        came = self.crossings.filter(pl.col("entered_ns").is_between(since_ns, until_ns))
        link_ns = _link_ns(came, self.alone_ns)
        mine, alone_ns = came.filter("own"), self.alone_ns
        found = np.maximum(_found(mine, link_ns, alone_ns), _found(came, link_ns, alone_ns)[came["own"].to_numpy()])
        own = mine.with_columns(pl.coalesce("waited_ns", pl.Series(found)).alias("found_ns"))
        return Passed(own, came.drop_nulls("left_ns"), link_ns)


def full(came: pl.DataFrame) -> pl.DataFrame:
    """Return the full-sized packets."""
    return came.filter(pl.col("bytes") >= FULL * pl.col("bytes").max())


def _link_ns(came: pl.DataFrame, alone_ns: int) -> int:
    """Return the transmission time of a full-sized packet: the distance of packets that came close together and left
    spaced out; 0: no link seen.

    Where too few came close together: the wait of a packet that found an empty queue.
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
    # A link sends packets one after the other at its rate: if they left closer together, something else spaced these.
    return link_ns if link_ns <= MORE_THAN_RATE * np.mean(far) else 0


def _found(came: pl.DataFrame, link_ns: int, alone_ns: int) -> NDArray[np.int64]:
    """Return the wait of each packet as the last passed packet before it predicts it; `alone_ns` where there is
    none."""
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
