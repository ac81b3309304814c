"""The path of each data segment of a flow: built by TCP, through emulators, received, acknowledged; one row each.

A sample of the sender that holds several segments (GSO) is split: sequence numbers and IP identifications count up.
Segments are joined one to one, by 4-tuple, sequence number, length and IP identification, to the emulators' packets and
to the receiver's samples: in order where both sides have equally many of one key, else by the nearest time. Segments
that the receiver merged (GRO) are found by their bytes. `Account` counts what could not be joined.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.timeline.pairs import HALF, KEYS, WRAP, joined_sights, matched, unwrapped
from sojourn.timeline.source import digits
from sojourn.timeline.taps import TapAccount, acks_on_their_way, at_taps
from sojourn.timeline.writes import with_writes

if TYPE_CHECKING:
    from sojourn.timeline.source import End, Flow

SYN_FIN_RST = 7
OF_SENDER = (
    *("state", "ca_state", "snd_cwnd", "snd_ssthresh", "snd_wnd_bytes", "in_flight_bytes", "snd_queued_bytes"),
    *("pacing_rate_bps", "srtt_us", "limited_by"),
)
"""TCP's state when the segment was built."""

OF_EMULATOR = (
    *("emulator", "arrival_ns", "entered_ns", "link_left_ns", "intended_ns", "departure_ns", "disposition", "cause"),
    *("queue_slots", "queue_bytes", "marked"),
)
OF_RECEIVER = ("rcv_wnd_bytes", "rcv_queued_bytes", "rcv_ooopack")
"""TCP's state when it processed the segment."""


@dataclass(frozen=True, slots=True)
class Account:
    """Counts of segments, packets and samples; each one is in exactly one count of its kind."""

    segments: int
    """The segments in the sender's samples."""
    at_emulator: int
    """Of them: joined to a packet in an emulator's log."""
    not_at_emulator: int
    received: int
    """Of them: joined to a sample of the receiver."""
    not_received: int
    """Of them: without one."""
    lost_at_emulator: int
    """Of those: lost by an emulator."""
    acknowledged_unseen: int
    """Of the others: those whose bytes an acknowledgement covers and, where the receiver has a log, no sample of it
    holds. TCP has no state yet for data that complete a handshake whose last packet was late or lost."""
    unexplained: int
    """The rest: not received, not known to be lost."""
    acknowledged: int
    """Of all segments: those whose bytes an acknowledgement in the sender's log covers."""
    emulator_packets: int
    """Packets with data of this flow and direction in the emulators' logs."""
    emulator_unjoined: int
    """Of them: copies, and packets without a sample of the sender."""
    receiver_packets: int
    """Packets with data in the receiver's log."""
    receiver_unjoined: int
    """Of them: those without a sample of the sender."""
    writes: int = 0
    """Recorded calls in which the application wrote data."""
    written: int = 0
    """Of all segments: those joined to the call that wrote their first byte."""
    acks_at_taps: int = 0
    """Of the acknowledged segments: those whose acknowledgement a tap saw."""
    taps: tuple[TapAccount, ...] = ()
    """Each tap that saw the flow, in the order in which segments passed them."""

    def as_dict(self) -> dict[str, Any]:
        """Return the counts by name."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """Return sentences for a person."""
        seen = f"{self.received} to a sample of the receiver, {self.not_received} not"
        sent = (
            f"{self.segments} segments with data were sent: {self.at_emulator} were joined to a packet of an emulator, "
            f"{self.not_at_emulator} were not; {seen if self.receiver_packets else 'the receiver has no log here'}"
        )
        covered = f"{self.acknowledged_unseen} were acknowledged, " if self.acknowledged_unseen else ""
        lost = (
            f"of the {self.not_received} without a sample of the receiver {covered}an emulator lost "
            f"{self.lost_at_emulator}; {self.unexplained} are not explained"
        )
        rest = (
            f"of {self.emulator_packets} packets with data in the emulators' logs {self.emulator_unjoined}, and of "
            f"{self.receiver_packets} samples of the receiver {self.receiver_unjoined}, belong to no segment"
        )
        return [sent, lost, rest, *self._of_writes(), *self._of_taps(), *self.differences()]

    def _of_writes(self) -> list[str]:
        without = self.segments - self.written
        told = f"{self.written} segments were joined to one of {self.writes} calls that wrote data, {without} were not"
        return [told] if self.writes else []

    def _of_taps(self) -> list[str]:
        if not self.taps:
            return []
        each = [
            f"tap {one.tap} saw {one.segments} segments in {one.joined} of its {one.packets} packets with data"
            for one in self.taps
        ]
        return [
            f"{'; '.join(each)}; taps saw the acknowledgement of {self.acks_at_taps} of {self.acknowledged} segments"
        ]

    def differences(self) -> list[str]:
        """Return where two instruments count different numbers of segments, each with its place; empty where
        all agree."""
        told = []
        if self.taps and (before := self.segments - self.taps[0].segments - self.taps[0].missed):
            told.append(
                f"{before} segments were seen nowhere behind the sender's TCP: lost before tap {self.taps[0].tap}"
            )
        for place, one in enumerate(self.taps):
            then = self.taps[place + 1].tap if place + 1 < len(self.taps) else None
            if one.missed:
                told.append(f"tap {one.tap} did not see {one.missed} segments that were seen behind it")
            if one.unjoined:
                told.append(f"tap {one.tap} saw {one.unjoined} packets with data that belong to no segment")
            lost = one.last_seen - one.lost_at_emulator
            if lost and (then or self.receiver_packets):
                to = f"tap {then}" if then else "the receiver's TCP"
                told.append(f"{lost} segments were seen at tap {one.tap} last, and no emulator lost them: they were "
                            f"lost between it and {to}, or under way at the end")  # fmt: skip
        return [f"difference: {one}" for one in told]


def joined(flow: Flow) -> tuple[pl.DataFrame, Account]:
    """Return the segments in the order in which they were built, and the counts of what could not be joined."""
    sent = built(flow.sender)
    frames = data_frames(flow)
    first = matched(sent, frames)
    with_frames = _with(sent, first, frames.select("row", *OF_EMULATOR, pl.col("number").alias("emulator_number")))
    received = _received(flow.receiver)
    pairs = _at_receiver(with_frames, received)
    whole = _damaged(_with(with_frames, pairs, _receiver_columns(received)), frames)
    acks = _acknowledgements(flow.sender)
    whole = _reached(_acknowledged(whole, acks))
    whole, taps = at_taps(whole, flow, digits(flow.sender.ends["local_address"]))
    whole = acks_on_their_way(whole, flow, acks, taps, digits(flow.sender.ends["remote_address"]))
    whole = with_writes(whole, flow.writes, flow.sender.samples)
    tapped = whole.filter(pl.any_horizontal(pl.col("ack_tap_before_ns", "ack_tap_after_ns").is_not_null()))
    is_lost = (pl.col("disposition") == "lost").fill_null(value=False)
    not_received = whole.filter(pl.col("received_ns").is_null())
    lost = not_received.filter(is_lost).height
    no_sample = not_received.filter(~is_lost)
    acked = no_sample.filter("reached").height if flow.receiver else no_sample["acked_ns"].drop_nulls().len()
    account = Account(
        segments=whole.height,
        at_emulator=first.height,
        not_at_emulator=whole.height - first.height,
        received=pairs.height,
        not_received=not_received.height,
        lost_at_emulator=lost,
        acknowledged_unseen=acked,
        unexplained=not_received.height - lost - acked,
        acknowledged=whole["acked_ns"].drop_nulls().len(),
        emulator_packets=frames.height,
        emulator_unjoined=frames.height - first.height,
        receiver_packets=received.height,
        receiver_unjoined=received.height - pairs["row"].n_unique(),
        writes=flow.writes.height,
        written=whole["write_ns"].drop_nulls().len(),
        acks_at_taps=tapped.height,
        taps=taps,
    )
    return whole.drop("place", "ack_row"), account


def built(sender: End) -> pl.DataFrame:
    """Return each data segment in the sender's samples; `place` numbers them; `again`: its bytes were sent before."""
    samples = sender.samples.filter(pl.col("point") == "out", pl.col("payload_bytes") > 0)
    samples = samples.filter((pl.col("tcp_flags").fill_null(0) & SYN_FIN_RST) & 2 == 0)
    has_ids = (samples["ip_id"] > 0).any()  # IPv6 has none
    count = pl.col("segments").fill_null(1).clip(1, None).cast(pl.Int64)
    # The segment size into which the kernel cuts a large packet; the last one may be shorter.
    each = pl.when(count > 1).then(pl.col("mss_bytes")).otherwise("payload_bytes").cast(pl.Int64).alias("each")
    parts = samples.with_columns(each, pl.int_ranges(0, count).alias("part")).explode("part")
    offset = pl.col("part") * pl.col("each")
    rows = parts.with_columns(
        ((pl.col("seq") + offset) % WRAP).alias("seq"),
        pl.min_horizontal(pl.col("each"), pl.col("payload_bytes").cast(pl.Int64) - offset).alias("payload_bytes"),
        ((pl.col("ip_id").cast(pl.Int64) + pl.col("part") * int(has_ids)) % 65536).alias("ip_id"),
        (((pl.col("snd_nxt") - pl.col("seq")) % WRAP).is_between(1, HALF)).alias("again"),
    ).filter(pl.col("payload_bytes") > 0)  # fmt: skip
    return rows.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("place"),
        pl.lit(sender.flow, pl.Int32).alias("flow"),
        pl.col("time_ns").alias("sent_ns"),
        pl.col("cpu").alias("sent_cpu"),
        pl.col("number").alias("sent_number"),
        *KEYS,
        "again",
        *OF_SENDER,
    )


def data_frames(flow: Flow) -> pl.DataFrame:
    """Return the emulators' packets with data of the sender; `row` numbers them. A copy is not a segment of TCP."""
    source = digits(flow.sender.ends["local_address"])
    is_ours = (pl.col("source") == source) & (pl.col("sport") == flow.sender.ends["local_port"])
    mine = flow.packets.filter(is_ours, pl.col("payload_bytes") > 0, pl.col("flags12") & SYN_FIN_RST & 2 == 0)
    return mine.with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
        pl.when(pl.col("copy_of").is_null()).then("arrival_ns").alias("at_ns"),
    )


def _received(receiver: End | None) -> pl.DataFrame:
    """Return the receiver's samples with data; `row` numbers them."""
    if receiver is None:
        kinds = dict.fromkeys([*KEYS, *OF_RECEIVER, "number", "at_ns"], pl.Int64)
        return pl.DataFrame(schema={"row": pl.Int64, **kinds, "segments": pl.Int32, "cpu": pl.Int32})
    samples = receiver.samples.filter(pl.col("point") == "in", pl.col("payload_bytes") > 0)
    return samples.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
        pl.col(*KEYS).cast(pl.Int64),
        *("segments", *OF_RECEIVER, "cpu", "number"),
        pl.col("time_ns").alias("at_ns"),
    )


def _receiver_columns(received: pl.DataFrame) -> pl.DataFrame:
    return received.select(
        "row",
        pl.col("at_ns").alias("received_ns"),
        pl.col("cpu").alias("received_cpu"),
        pl.col("number").alias("received_number"),
        *OF_RECEIVER,
    )


def _at_receiver(segments: pl.DataFrame, received: pl.DataFrame) -> pl.DataFrame:
    """Pair segments with the receiver's samples, singly or within merged packets; segments lost by an emulator are left
    out."""
    alive = segments.filter((pl.col("disposition") != "lost").fill_null(value=True))
    return joined_sights(alive, received)


def _reached(segments: pl.DataFrame) -> pl.DataFrame:
    """Add `reached`: the receiver has a sample of the segment, or acknowledged its bytes without any sample of them."""
    is_lost = (pl.col("disposition") == "lost").fill_null(value=False)
    has_bytes = pl.col("received_ns").is_not_null().any().over("seq")
    silently = pl.col("acked_ns").is_not_null() & ~is_lost & ~has_bytes
    # Only one packet completes the handshake: one of those sent before the first acknowledgement.
    silently &= pl.col("sent_ns") <= pl.col("acked_ns").min()
    first = silently & (silently.cast(pl.Int32).cum_sum() == 1)
    return segments.with_columns((pl.col("received_ns").is_not_null() | first).alias("reached"))


def _damaged(segments: pl.DataFrame, frames: pl.DataFrame) -> pl.DataFrame:
    """Mark packets with flipped bits that were not received as lost: the receiver's checksum rejected them."""
    flipped = frames.filter(pl.col("flipped") > 0).select("emulator", "number")
    is_flipped = pl.struct("emulator", emulator_number="emulator_number").is_in(
        flipped.select(pl.struct("emulator", emulator_number="number")).to_series().implode()
    )
    gone = is_flipped & pl.col("received_ns").is_null() & (pl.col("disposition") == "sent")
    return segments.with_columns(
        pl.when(gone).then(pl.lit("lost")).otherwise("disposition").alias("disposition"),
        pl.when(gone).then(pl.lit("corrupted")).otherwise("cause").alias("cause"),
    )


def _with(segments: pl.DataFrame, pairs: pl.DataFrame, columns: pl.DataFrame) -> pl.DataFrame:
    wide = pairs.join(columns, on="row").drop("row")
    return segments.join(wide, on="place", how="left", maintain_order="left")


def _acknowledgements(sender: End) -> pl.DataFrame:
    """Return the sender's samples of received packets with an acknowledgement, in the order of time."""
    return sender.samples.filter(pl.col("point") == "in", (pl.col("tcp_flags").fill_null(0) & 16) > 0)


def _acknowledged(segments: pl.DataFrame, acks: pl.DataFrame) -> pl.DataFrame:
    """Add when the sender got the first acknowledgement that covers all of a segment, after it was sent, and in which
    sample.

    `ack_row` is that sample's row in `acks`.
    """
    names = ("acked_ns", "acked_cpu", "acked_number", "ack_row")
    if acks.is_empty() or segments.is_empty():
        return segments.with_columns(pl.lit(None, pl.Int64).alias(name) for name in names)
    base = int(segments["seq"][0])
    reached = unwrapped(acks["ack"], base).cum_max()
    ladder = acks.select(
        reached.alias("reached"),
        pl.col("time_ns").alias("acked_ns"),
        pl.col("cpu").cast(pl.Int64).alias("acked_cpu"),
        pl.col("number").alias("acked_number"),
        pl.int_range(pl.len(), dtype=pl.Int64).alias("ack_row"),
    ).unique("reached", keep="first", maintain_order=True)
    end = unwrapped((segments["seq"] + segments["payload_bytes"]) % WRAP, base)
    asked = segments.select("place", "sent_ns").with_columns(end.alias("end"))
    found = asked.sort("end").join_asof(
        ladder.sort("reached"), left_on="end", right_on="reached", strategy="forward", check_sortedness=False
    )
    # A retransmission sent after its bytes were acknowledged was needless: no acknowledgement belongs to it.
    is_late = pl.col("acked_ns") >= pl.col("sent_ns")
    late = found.select("place", *(pl.when(is_late).then(name).alias(name) for name in names))
    return segments.join(late, on="place", how="left", maintain_order="left")
