"""Whether the instruments of a trial with the log agree on its segments: TCP at both ends, taps, an emulator between.

Sent (TCP's log) = seen at the first tap + lost before it; seen there = seen at the last tap + lost in the device; seen
there = received + lost behind it. The same of an emulator: sent = arrived + lost before it; arrived = departed +
dropped there + held at the end; departed = received + lost behind it. What a device drops that keeps no log is counted,
and is no difference. Each flow of data is one row. It names the place where a number differs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import polars as pl

from sojourn.analysis.finding import Finding, Place
from sojourn.analysis.samples import Sample, shared
from sojourn.export.log import Chosen
from sojourn.records import read_table
from sojourn.timeline.segments import data_frames, joined
from sojourn.timeline.source import connections, emulated, open_flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from sojourn.timeline.segments import Account
    from sojourn.timeline.source import Flow

MOST_FLOWS = 100
"""Of a trial with more connections, so many are judged."""

BLOCK = (pl.Int64, "The number of the trial, as in records/.")
CONSERVED = Sample(
    "A flow of data in a trial with the log: its segments, retransmissions included, as each instrument counts them.",
    {
        **shared("device cell"),
        "block": BLOCK,
        "flow": (pl.String, "The flow, by its addresses and ports."),
        "segments": (pl.Int64, "Segments that the sender's TCP sent."),
        "before": (pl.Int64, "Of them, that no emulator saw; null here and below: they passed no emulator's log."),
        "arrived": (pl.Int64, "That arrived at the emulator."),
        "departed": (pl.Int64, "That departed from it."),
        "dropped": (pl.Int64, "That it dropped."),
        "held": (pl.Int64, "That arrived, and neither departed nor were dropped."),
        "received": (pl.Int64, "That the receiver's TCP got."),
        "behind": (pl.Int64, "That departed, and that the receiver's TCP did not see."),
        "strangers": (pl.Int64, "Packets at the emulator and at the receiver that no sample of the sender tells of."),
        "missing": (pl.Int64, "Records that a log or a tap lacks: then nothing is judged; -1: nobody knows how many."),
        "tap_near": (pl.Int64, "Seen at the first tap; null here and below: the flow passed no two taps."),
        "tap_before": (pl.Int64, "Seen neither there nor anywhere behind it."),
        "tap_missed": (pl.Int64, "Not seen there, and seen behind it."),
        "tap_device": (pl.Int64, "Of those at the first tap, seen nowhere behind it."),
        "tap_unrecorded": (pl.Int64, "Of those at the first tap, that the emulator did not get; null without its log."),
        "tap_silent": (pl.Int64, "Seen nowhere behind, though the emulator let them go; null without its log."),
        "tap_blind": (pl.Int64, "That the receiver's TCP got, and that the last tap did not see."),
        "tap_far": (pl.Int64, "Seen at the last tap."),
        "tap_after": (pl.Int64, "Of those, that the receiver's TCP did not get, and no emulator damaged."),
        "tap_others": (pl.Int64, "Packets with data at either tap that no sample of the sender tells of."),
    },
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What two taps saw of a flow's segments: `segments` = `before` + `missed` + `near`; `near` = `device` + `blind` +
    those that the last one saw."""

    near: int
    """Seen at the first tap."""
    before: int
    """Seen neither there nor anywhere behind it."""
    missed: int
    """Not seen there, and seen behind it."""
    device: int
    """Of those at the first tap: seen nowhere behind it."""
    unrecorded: int | None
    """Of those at the first tap: that the emulator behind it did not get; None: it has no log."""
    silent: int | None
    """Of those that were seen nowhere behind: that the emulator let go; None: it has no log."""
    blind: int
    """That the receiver's TCP got, and that the last tap did not see."""
    far: int
    """Seen at the last tap."""
    after: int
    """Of those: that the receiver's TCP did not get, and no emulator damaged."""
    others: int
    """Packets with data at either tap that no sample of the sender tells of, nor are they an emulator's copies."""


@dataclass(frozen=True, slots=True)
class Way:
    """The segments of one flow of data, retransmissions included: what each instrument counts."""

    flow: str
    segments: int
    """That the sender's TCP sent."""
    before: int | None
    """Of them: that no emulator saw; None here and below: they passed no emulator's log, or several."""
    arrived: int | None
    departed: int | None
    dropped: int | None
    held: int | None
    """That arrived, and neither departed nor were dropped."""
    received: int
    behind: int | None
    """That departed, and that the receiver's TCP did not see."""
    strangers: int
    """Packets at the emulator, and at the receiver, that no sample of the sender tells of, nor are they the emulator's
    own copies."""
    missing: int
    """Records that a log or a tap lacks: then nothing is judged. -1: nobody knows how many."""
    seen: Seen | None = None
    """By the taps; None where the flow passed no two of them."""

    def differences(self) -> Iterator[tuple[str, int]]:
        """Each place where the numbers differ, and by how many."""
        of_logs = [("in the emulator", self.held), ("of which the sender's TCP has no record", self.strangers)]
        if self.seen is None:
            between = [
                ("between the sender's TCP and the emulator", self.before),
                ("between the emulator and the receiver's TCP", self.behind),
            ]
        else:
            between = [
                ("between the sender's TCP and the first tap", self.seen.before),
                ("at the first tap, which did not see what was seen behind it", self.seen.missed),
                ("between the first tap and the emulator", self.seen.unrecorded),
                ("between the emulator and the last tap", self.seen.silent),
                ("at the last tap, which did not see what the receiver's TCP got", self.seen.blind),
                ("between the last tap and the receiver's TCP", self.seen.after),
                ("at the taps, and the sender's TCP has no record of them", self.seen.others),
            ]
        yield from ((place, count) for place, count in [*between, *of_logs] if count)


def ways_of(path: Path, who: str, block: int, more: Sequence[Path] = (), *, skipped: int = 0) -> list[Way]:
    """Every flow of data of a trial that passed one emulator, or taps; `skipped`: packets that emulators' logs lack."""
    passed = emulated([path, *more], block)
    is_logged = passed.packets.height > 0 and passed.packets["emulator"].n_unique() == 1
    if not is_logged and passed.tapped.packets.is_empty():
        return []
    flows = read_table(path / "records", "tcp_flows", {block}).frame.filter(pl.col("who") == who)
    chosen = Chosen(who=who, block=block)
    several = (open_flow(path, one, chosen, more, passed) for one in connections(flows)[:MOST_FLOWS])
    return [way for flow in several if (way := _way(flow, skipped, is_logged=is_logged)) is not None]


def _way(flow: Flow, skipped: int, *, is_logged: bool) -> Way | None:
    segments, account = joined(flow)
    taps = account.taps
    if not account.segments or flow.receiver is None or not (is_logged or len(taps) > 1):
        return None
    logs = [end.log.gaps["missing"] for end in (flow.sender, flow.receiver)]
    unknown = any((one == 0).any() for one in logs)
    copies = data_frames(flow).drop_nulls("copy_of")
    made, let_out = copies.height, copies.filter(disposition="sent").height
    lacking = sum(flow.taps.dropped.get(one.tap, 0) for one in taps)
    if is_logged:
        at = segments.drop_nulls("arrival_ns")
        departed = at.filter(disposition="sent")
        dropped = at.filter(disposition="lost").height
        # Data that complete a handshake have no sample.
        silent = departed.filter(pl.col("reached") & pl.col("received_ns").is_null()).height
        emulator: dict[str, int | None] = {
            "before": account.not_at_emulator,
            "arrived": account.at_emulator,
            "departed": departed.height,
            "dropped": dropped,
            "held": account.at_emulator - departed.height - dropped,
            "behind": departed["received_ns"].null_count() - silent,
        }
    else:
        silent = segments.filter(pl.col("reached") & pl.col("received_ns").is_null()).height
        emulator = dict.fromkeys(("before", "arrived", "departed", "dropped", "held", "behind"))
    return Way(
        flow=flow.sender.title,
        segments=account.segments,
        received=account.received + silent,
        # Copies that a device without a log makes have no record anywhere, and are seen at its far tap, too.
        strangers=account.emulator_unjoined - made + max(0, account.receiver_unjoined - let_out),
        missing=-1 if unknown else int(logs[0].sum()) + skipped + lacking,
        seen=_seen(segments, account, is_logged=is_logged) if len(taps) > 1 else None,
        **emulator,
    )


def _seen(segments: pl.DataFrame, account: Account, *, is_logged: bool) -> Seen:
    """By the first and the last tap, segment by segment."""
    at_near, at_far, got = (
        pl.col("tap_before_ns").is_not_null(),
        pl.col("tap_after_ns").is_not_null(),
        pl.col("reached"),
    )
    is_damaged = (pl.col("cause") == "corrupted").fill_null(value=False)
    whole = {
        "near": at_near,
        "before": ~at_near & ~at_far & ~got,
        "missed": ~at_near & (at_far | got),
        "device": at_near & ~at_far & ~got,
        "unrecorded": at_near & pl.col("arrival_ns").is_null(),
        "silent": at_near & ~at_far & ~got & (pl.col("disposition") == "sent").fill_null(value=False),
        "blind": got & ~at_far,
        "far": at_far,
        "after": at_far & ~got & ~is_damaged,
    }
    counts = segments.select(one.sum().alias(name) for name, one in whole.items()).row(0, named=True)
    others = account.taps[0].unjoined + account.taps[-1].unjoined
    if not is_logged:
        return Seen(others=others, **(counts | {"unrecorded": None, "silent": None}))
    return Seen(others=others, **counts)


def judged(found: Iterable[tuple[Place, int, Way]]) -> Iterator[Finding]:
    """The differences of all flows whose logs are whole, the largest named with its place."""
    several = [
        (count, where, place, block, way)
        for place, block, way in found
        if not way.missing
        for where, count in way.differences()
    ]
    if several:
        count, where, _, block, way = max(several, key=lambda one: one[0])
        total = sum(one[0] for one in several)
        said = (
            f"the instruments disagree on {total} segments of TCP; most, {count} of {way.segments} of {way.flow} in "
            f"trial {block}, are {where}"
        )
        places = tuple(dict.fromkeys(one[2] for one in several))
        yield Finding("segments_not_conserved", said, float(total), places)


def frame_of(found: Sequence[tuple[Place, int, Way]]) -> pl.DataFrame:
    """A row a flow; what its taps saw in columns `tap_…`."""
    rows = []
    for place, block, way in found:
        told = asdict(way)
        taps = {f"tap_{name}": count for name, count in (told.pop("seen") or {}).items()}
        rows.append({"device": place.device, "cell": place.cell, "block": block} | told | taps)
    return pl.DataFrame(rows, schema=CONSERVED.own)
