"""Whether the instruments of a trial with the log agree on its segments: TCP at the sender, the emulator, the receiver.

Sent (TCP's log) = arrived at the emulator + lost before it; arrived = departed + dropped there + held at the end;
departed = received + lost behind it. Each flow of data is one row. It names the place where a number differs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.analysis.finding import Finding, Place
from sojourn.export.log import Chosen
from sojourn.records import read_table
from sojourn.timeline.segments import data_frames, joined
from sojourn.timeline.source import connections, emulated, open_flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from sojourn.timeline.source import Flow

MOST_FLOWS = 100
"""Of a trial with more connections, so many are judged."""


@dataclass(frozen=True, slots=True)
class Way:
    """The segments of one flow of data, retransmissions included: what each instrument counts."""

    flow: str
    segments: int
    """That the sender's TCP sent."""
    before: int
    """Of them: that no emulator saw."""
    arrived: int
    departed: int
    dropped: int
    held: int
    """That arrived, and neither departed nor were dropped."""
    received: int
    behind: int
    """That departed, and that the receiver's TCP did not see."""
    strangers: int
    """Packets at the emulator, and at the receiver, that no sample of the sender tells of, nor are they the emulator's
    own copies."""
    missing: int
    """Records that a log lacks: then nothing is judged. -1: nobody knows how many."""

    def differences(self) -> Iterator[tuple[str, int]]:
        """Each place where the numbers differ, and by how many."""
        between = (("between the sender's TCP and the emulator", self.before), ("in the emulator", self.held),
                   ("between the emulator and the receiver's TCP", self.behind),
                   ("of which the sender's TCP has no record", self.strangers))  # fmt: skip
        yield from ((place, count) for place, count in between if count)


def ways_of(path: Path, who: str, block: int, more: Sequence[Path] = (), *, skipped: int = 0) -> list[Way]:
    """Every flow of data of a trial that passed one emulator; `skipped`: packets that the emulators' logs lack."""
    passed = emulated([path, *more], block)
    if passed.packets.is_empty() or passed.packets["emulator"].n_unique() > 1:
        return []
    flows = read_table(path / "records", "tcp_flows", {block}).frame.filter(pl.col("who") == who)
    chosen = Chosen(who=who, block=block)
    several = (open_flow(path, one, chosen, more, passed) for one in connections(flows)[:MOST_FLOWS])
    return [way for flow in several if (way := _way(flow, skipped)) is not None]


def _way(flow: Flow, skipped: int) -> Way | None:
    segments, account = joined(flow)
    if not account.segments or flow.receiver is None:
        return None
    at = segments.drop_nulls("arrival_ns")
    departed = at.filter(disposition="sent")
    dropped = at.filter(disposition="lost").height
    logs = [end.log.gaps["missing"] for end in (flow.sender, flow.receiver)]
    unknown = any((one == 0).any() for one in logs)
    # Data that complete a handshake have no sample.
    silent = departed.filter(pl.col("reached") & pl.col("received_ns").is_null()).height
    copies = data_frames(flow).drop_nulls("copy_of")
    made, let_out = copies.height, copies.filter(disposition="sent").height
    return Way(
        flow=flow.sender.title,
        segments=account.segments,
        before=account.not_at_emulator,
        arrived=account.at_emulator,
        departed=departed.height,
        dropped=dropped,
        held=account.at_emulator - departed.height - dropped,
        received=account.received + silent,
        behind=departed["received_ns"].null_count() - silent,
        strangers=account.emulator_unjoined - made + max(0, account.receiver_unjoined - let_out),
        missing=-1 if unknown else int(logs[0].sum()) + skipped,
    )


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
    """A row a flow: device, cell, block, and what `Way` has."""
    kinds: dict[str, Any] = {"device": pl.String, "cell": pl.Int32, "block": pl.Int64, "flow": pl.String}
    kinds |= {name: pl.Int64 for name in Way.__dataclass_fields__ if name != "flow"}
    rows = [{"device": place.device, "cell": place.cell, "block": block} | asdict(way) for place, block, way in found]
    return pl.DataFrame(rows, schema=kinds)
