"""What the records show of a flow around one moment: limits, windows, round trips, losses, the queue.

Returns numbers and the rows that they rest on; `judge` interprets them. A limit holds from a sample to the next one, so
shares are of time. "Around" is one round trip before and after the moment. What reduced the congestion window is looked
for in twenty round trips before, at least one second; where nothing was lost then, in as long a time before the last
change of the slow start threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from sojourn.errors import RequestError
from sojourn.export.log import NS
from sojourn.export.summary_samples import LIMITS, judged
from sojourn.timeline.device import Device

if TYPE_CHECKING:
    from sojourn.timeline.source import End, Flow

US = 1000
LEAST_ROUND_NS = 25_000_000
"""In a shorter window, a pause of the scheduler looks like a pause of the sender."""

ROUNDS_BACK = 20
LEAST_BACK_NS = NS
INTERVAL_NS = 100_000_000
"""CoDel's interval (RFC 8289): a queue that does not empty for so long is a standing queue."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment of a flow, and the records around it."""

    flow: Flow
    at_ns: int
    round_ns: int
    """The smoothed RTT at the moment, at least LEAST_ROUND_NS."""

    base_ns: int | None
    """The minimum RTT of the flow."""

    now: pl.DataFrame
    """The last sample before it, one row."""

    around: pl.DataFrame
    """The samples whose limit holds within a round trip of it; `holds_ns`: how long within that span."""

    segments: pl.DataFrame
    """All segments of the flow, as `segments.joined` returns them."""

    missing: int
    """The number of records that the log lacks around it; -1: unknown."""

    device: Device
    """What two taps show of the device between them."""

    @property
    def begin_ns(self) -> int:
        """The begin of `around`."""
        return self.at_ns - self.round_ns

    @property
    def end_ns(self) -> int:
        """The end of `around`."""
        return self.at_ns + self.round_ns

    @property
    def back_ns(self) -> int:
        """The time from which losses count as the cause of the congestion window."""
        return self.at_ns - max(ROUNDS_BACK * self.round_ns, LEAST_BACK_NS)

    @property
    def near(self) -> tuple[int, int]:
        """The span in which a standing queue must not empty."""
        most = max(INTERVAL_NS // 2, self.round_ns)
        return self.at_ns - most, self.at_ns + most

    @property
    def shares(self) -> dict[str, float]:
        """The share of time around the moment, by limit."""
        whole = int(self.around["holds_ns"].sum())
        sums = dict(self.around.group_by("limit").agg(pl.col("holds_ns").sum()).iter_rows())
        return {name: sums.get(name, 0) / whole if whole else 0.0 for name in LIMITS}

    @property
    def in_flight(self) -> pl.DataFrame:
        """The segments that had been sent and were not acknowledged, each in its last transmission."""
        una, nxt = (int(self.now[name][0] or 0) for name in ("snd_una", "snd_nxt"))
        before = self.segments.filter(pl.col("sent_ns") <= self.at_ns)
        span = max((nxt - una) % 2**32, 1) + 65_536
        ahead = (pl.col("seq") + pl.col("payload_bytes") - una) % 2**32
        open_ = before.filter(ahead.is_between(1, span))
        last = open_.sort("sent_ns").unique("seq", keep="last", maintain_order=True)
        return last.filter((pl.col("acked_ns") > self.at_ns).fill_null(value=True))

    @property
    def resent(self) -> pl.DataFrame:
        """The first retransmission of each sequence number after the moment."""
        later = self.segments.filter(pl.col("sent_ns") > self.at_ns, pl.col("again"))
        return later.sort("sent_ns").unique("seq", keep="first").select("seq", pl.col("sent_ns").alias("resent_ns"))

    def lost(self) -> pl.DataFrame:
        """Return segments that an emulator lost since `back_ns`, else before the last change of `ssthresh`.

        Earlier losses set a window that a later event has replaced.
        """
        lost = self.segments.filter(pl.col("disposition") == "lost", pl.col("arrival_ns") <= self.at_ns)
        near = lost.filter(pl.col("arrival_ns") >= self.back_ns)
        reduced = self.reduced_ns
        if near.height or reduced is None:
            return near
        return lost.filter(pl.col("arrival_ns").is_between(reduced - (self.at_ns - self.back_ns), reduced))

    @property
    def reduced_ns(self) -> int | None:
        """The time of the last change of `ssthresh` before the moment; None where the samples show no change."""
        told = self.flow.sender.samples.filter(pl.col("time_ns") <= self.at_ns).drop_nulls("snd_ssthresh")
        changed = told.filter(pl.col("snd_ssthresh") != pl.col("snd_ssthresh").shift(1))
        return int(changed["time_ns"][-1]) if changed.height else None

    def again(self) -> pl.DataFrame:
        """Return the retransmissions since `back_ns`."""
        return self.segments.filter(pl.col("again"), pl.col("sent_ns").is_between(self.back_ns, self.end_ns))

    def queued(self, *, near: bool) -> pl.DataFrame:
        """Return segments that passed an emulator's link, near the moment or since `back_ns`; `waited_ns`: queue and
        link."""
        begin, end = self.near if near else (self.back_ns, self.end_ns)
        passed = self.segments.filter(pl.col("arrival_ns").is_between(begin, end)).drop_nulls("link_left_ns")
        return passed.with_columns((pl.col("link_left_ns") - pl.col("entered_ns")).alias("waited_ns"))

    def on_links(self, queued: pl.DataFrame) -> pl.DataFrame:
        """Return the packets of all flows that left the same links meanwhile; `after_ns`: the time since the previous
        departure."""
        begin, end = queued["link_left_ns"].min(), queued["link_left_ns"].max()
        passed = self.flow.on_links.drop_nulls("link_left_ns").filter(pl.col("link_left_ns").is_between(begin, end))
        ways = ("emulator", "direction")
        ordered = passed.sort("link_left_ns", "number")
        return ordered.with_columns(pl.col("link_left_ns").diff().over(ways).alias("after_ns"))

    def round_trips(self) -> pl.DataFrame:
        """Return the round trips measured near the moment."""
        near = self.flow.sender.samples.filter(pl.col("time_ns").is_between(*self.near))
        return _measured(near)

    def of_receiver(self) -> pl.DataFrame:
        """Return the receiver's samples around the moment; empty without its log."""
        receiver = self.flow.receiver
        if receiver is None:
            return self.flow.sender.samples.clear()
        return receiver.samples.filter(pl.col("time_ns").is_between(self.begin_ns, self.end_ns))

    def around_data(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the last segment sent before the moment, and the first one after it."""
        before = self.segments.filter(pl.col("sent_ns") <= self.at_ns).tail(1)
        return before, self.segments.filter(pl.col("sent_ns") > self.at_ns).head(1)


def moment_of(flow: Flow, segments: pl.DataFrame, after_ns: int) -> Moment:
    """Return the moment `after_ns` after the flow's first sample."""
    samples = flow.sender.samples
    first, last = int(samples["time_ns"][0]), int(samples["time_ns"][-1])
    at_ns = first + after_ns
    if not first <= at_ns <= last:
        raise RequestError(
            f"--at {after_ns / NS:g}s: flow {flow.asked} has samples from 0 s to {(last - first) / NS:.3f} s after its "
            "first"
        )
    now = samples.filter(pl.col("time_ns") <= at_ns).tail(1)
    smoothed, least = now["srtt_us"][0], _measured(samples)["rtt_last_us"].min()
    base_ns = int(least * US) if isinstance(least, int) else None
    round_ns = max(int((smoothed or 0) * US), LEAST_ROUND_NS)
    told = judged(samples, flow.sender.flag_names)
    begin, end = at_ns - round_ns, at_ns + round_ns
    until = pl.col("time_ns") + pl.col("lasts_ns")
    holds = (pl.min_horizontal(until, pl.lit(end)) - pl.max_horizontal("time_ns", pl.lit(begin))).clip(0)
    around = told.with_columns(holds.alias("holds_ns")).filter(pl.col("holds_ns") > 0)
    lacks = missing(flow.sender, begin, end)
    return Moment(flow, at_ns, round_ns, base_ns, now, around, segments, lacks, Device(flow, segments))


def _measured(samples: pl.DataFrame) -> pl.DataFrame:
    """Return the samples that measured a round trip by acknowledged bytes."""
    return samples.filter(pl.col("point").is_in(["in", "rtt"]), pl.col("rtt_last_us") > 0)


def missing(end: End, begin_ns: int, end_ns: int) -> int:
    """Return the number of records that the log lacks in a span; -1 where the log does not state it."""
    gaps = end.log.gaps
    within = gaps.filter(
        (pl.col("after_ns") <= end_ns).fill_null(value=True), (pl.col("before_ns") >= begin_ns).fill_null(value=True)
    )
    if within.is_empty():
        return 0
    return -1 if (within["missing"] == 0).any() else int(within["missing"].sum())
