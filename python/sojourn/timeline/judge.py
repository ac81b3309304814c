"""Judge by rules, from the records, what limited a flow at a moment, and why; or report that it is inconclusive.

The limit is in TCP (a window, the application, pacing); the cause is what lies behind it: the path, the peer, the
application. Each sentence names the rows that it rests on. A cause on the path is only named where an emulator's log,
two taps or the receiver's log show it. TCP's own samples show only a standing queue: a sender cannot distinguish causes
of loss. The rules and their thresholds are in docs/guide/timeline.md and docs/decisions/0064-why.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from sojourn.export.log import NS
from sojourn.timeline import judge_taps
from sojourn.timeline.said import (
    INCONCLUSIVE,
    LEAST_PACKETS,
    MOST_BEHIND_POLICER,
    MS,
    NEARLY_ALL,
    SHORT_OF_ROUND,
    TARGET_NS,
    Rows,
    Sentence,
    spans,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sojourn.timeline.moment import Moment
    from sojourn.timeline.source import End

MOST = 0.6
"""The least share of the time (one round trip before the moment and one after) for which a limit must hold to
be named."""

UNSEEN_OF_BASE = 0.5
"""The increase over the minimum RTT that shows a standing queue where only round trips show it (at least twice the
target too): delayed acknowledgements also lengthen some."""

FREE_OF_LINK = 0.05
"""Share of a segment's time at the rate of all flows: a policer passes a packet at once, a link must transmit it."""

PACED = (0.9, 1.15)
"""Rate of sending over the pacing rate where pacing limits. Reno and CUBIC keep a pacing rate of 1.2 windows per round
trip even where nothing paces: full windows are 0.83 of it."""

UNREAD = 0.5
SLOW_START = 0x7FFF_FFFF
GROUPS = {
    "congestion_window": ("cwnd", "recovery"),
    "receiver_window": ("receiver",),
    "application": ("application",),
    "send_buffer": ("send_buffer",),
    "pacing": ("path_or_pacing",),
}
WORDS = {
    "congestion_window": "the congestion window",
    "receiver_window": "the receiver's window",
    "application": "the application",
    "send_buffer": "the send buffer",
    "pacing": "pacing or the path",
}
BY_CHANCE = ("before", "after", "profile", "rule")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The limit, its cause, and the sentences that support them."""

    limit: str
    cause: str
    sentences: tuple[Sentence, ...]
    shares: dict[str, float] = field(default_factory=dict)


def judge(moment: Moment) -> Verdict:
    """Return what limited the flow at the moment, and why."""
    if moment.missing:
        return _verdict(moment, INCONCLUSIVE, INCONCLUSIVE, [_gap(moment)])
    shares = {group: sum(moment.shares[name] for name in names) for group, names in GROUPS.items()}
    limit = max(shares, key=lambda group: shares[group])
    if shares[limit] < MOST:
        return _verdict(moment, INCONCLUSIVE, INCONCLUSIVE, [_several(moment, shares)])
    causes: dict[str, Callable[[Moment], tuple[str, list[Sentence]]]] = {
        "congestion_window": _of_window,
        "receiver_window": _of_receiver,
        "application": _of_application,
        "send_buffer": _of_buffer,
        "pacing": _of_pacing,
    }
    cause, sentences = causes[limit](moment)
    if limit == "pacing" and cause == INCONCLUSIVE:
        limit = INCONCLUSIVE
    named = limit if limit != INCONCLUSIVE else "pacing"
    return _verdict(moment, limit, cause, [_limit(moment, named, shares[named]), *sentences])


def _verdict(moment: Moment, limit: str, cause: str, sentences: list[Sentence]) -> Verdict:
    return Verdict(limit, cause, tuple(sentences), moment.shares)


def _limit(moment: Moment, limit: str, share: float) -> Sentence:
    """State the windows, and for how long the limit held."""
    now = moment.now.row(0, named=True)
    mss = int(now["mss_bytes"] or 0)
    cwnd = f"congestion window {now['snd_cwnd']} segments of {mss} bytes" if now["snd_cwnd"] is not None else ""
    told = [
        cwnd,
        f"{now['in_flight_bytes']} bytes in flight" if now["in_flight_bytes"] is not None else "",
        f"receiver's window {now['snd_wnd_bytes']} bytes" if now["snd_wnd_bytes"] is not None else "",
        f"{now['snd_queued_bytes']} bytes in the send buffer" if now["snd_queued_bytes"] is not None else "",
    ]
    text = (
        f"{WORDS[limit].capitalize()} limited it for {share:.0%} of the {2 * moment.round_ns / MS:.0f} ms around "
        f"({', '.join(one for one in told if one)})"
    )
    return Sentence(text, (of_samples(moment.flow.sender, moment.around),))


def _several(moment: Moment, shares: dict[str, float]) -> Sentence:
    order = sorted(shares.items(), key=lambda one: -one[1])
    told = ", ".join(f"{WORDS[name]} {share:.0%}" for name, share in order if share) or "none known"
    span = f"{2 * moment.round_ns / MS:.0f} ms"
    text = f"Inconclusive: no limit held for {MOST:.0%} of the {span} around ({told})"
    return Sentence(text, (of_samples(moment.flow.sender, moment.around),))


def _gap(moment: Moment) -> Sentence:
    count = "records, nobody knows how many," if moment.missing < 0 else f"{moment.missing} records"
    text = f"Inconclusive: the log lacks {count} of the {2 * moment.round_ns / MS:.0f} ms around"
    return Sentence(text, (Rows(str(moment.flow.sender.log.records / "tcp_gaps-*.arrow"), "the gaps of that time"),))


def _of_window(moment: Moment) -> tuple[str, list[Sentence]]:
    """Judge the path: a standing queue, losses by their cause, or a window that still grows.

    A queue too short for the path is also occupied while the window is at its largest; the cause then is its overflow.
    """
    by_taps = moment.device.is_seen
    standing = judge_taps.standing(moment) if by_taps else _standing(moment)
    lost = judge_taps.lost(moment) if by_taps else _lost(moment)
    if standing and not (lost and lost[0] == "queue_short"):
        return standing
    return lost or _growing(moment) or (INCONCLUSIVE, [_unknown(moment)])


def _standing(moment: Moment) -> tuple[str, list[Sentence]] | None:
    """Return a queue that does not empty: by the emulator's log, else by round trips."""
    queued = moment.queued(near=True)
    if queued.height >= LEAST_PACKETS:
        least, middle = int(queued["waited_ns"].min()), float(queued["waited_ns"].median())  # type: ignore[arg-type]
        own = _own_transmission(moment, queued)
        # CoDel accepts a queue of at most one packet, however long its transmission takes.
        enough = max(TARGET_NS, own)
        if least - own <= enough:
            return None
        text = (
            f"A queue stood at the emulator: each of {queued.height} segments waited {least / MS:.1f} ms or more there "
            f"({middle / MS:.1f} ms in the median), where {enough / MS:.0f} ms are enough to keep a link busy"
        )
        return "standing_queue", [Sentence(text, of_packets(moment, queued))]
    if moment.flow.emulated and moment.segments["arrival_ns"].drop_nulls().len():
        return None
    trips = moment.round_trips()
    if trips.height < LEAST_PACKETS or moment.base_ns is None:
        return None
    least = int(trips["rtt_last_us"].min()) * 1000  # type: ignore[arg-type]
    more = least - moment.base_ns
    if more <= max(2 * TARGET_NS, UNSEEN_OF_BASE * moment.base_ns):
        return None
    text = (
        f"A queue stood on the path: of {trips.height} round trips around none was below {least / MS:.1f} ms, "
        f"{more / MS:.1f} ms above the flow's least"
    )
    return "standing_queue", [Sentence(text, (of_samples(moment.flow.sender, trips),))]


def _own_transmission(moment: Moment, queued: pl.DataFrame) -> int:
    """Return an upper limit of a segment's own transmission time, in ns: it is no wait, and on a slow link it is long.

    Packets of other flows leave between a flow's own: the time runs from the previous departure, of any flow, to that
    of a full-sized packet.
    """
    beside = moment.on_links(queued)
    full = beside.filter(pl.col("frame_bytes") == pl.col("frame_bytes").max())
    positive = full["after_ns"].drop_nulls().filter(full["after_ns"].drop_nulls() > 0)
    return int(positive.min()) if positive.len() else 0  # type: ignore[arg-type]


def _lost(moment: Moment) -> tuple[str, list[Sentence]] | None:
    """Judge the emulator's losses by their cause."""
    lost = moment.lost()
    if lost.is_empty():
        return None
    counts = dict(lost["cause"].value_counts().iter_rows())
    chance = sum(counts.get(one, 0) for one in BY_CHANCE)
    told = ", ".join(
        f"{count} {CAUSES.get(cause, cause)}" for cause, count in sorted(counts.items(), key=lambda one: -one[1])
    )
    since = (moment.at_ns - int(lost["arrival_ns"][0])) / NS
    span = f"{since:.2f} s"
    text = f"Losses set the congestion window: of its segments the emulator lost {lost.height} in {span} before: {told}"
    sentence = Sentence(text, of_packets(moment, lost))
    if chance >= NEARLY_ALL * lost.height:
        return "lossy_link", [sentence]
    if counts.get("managed", 0) >= NEARLY_ALL * lost.height:
        return "queue_management", [sentence]
    if counts.get("full", 0) >= NEARLY_ALL * lost.height:
        cause, more = _overflow(moment)
        return cause, [sentence, more]
    mixed = "Inconclusive: the losses have several causes, of which none made nearly all"
    return INCONCLUSIVE, [sentence, Sentence(mixed, of_packets(moment, lost))]


CAUSES = {
    "before": "by chance, before the queue",
    "after": "by chance, after the link",
    "profile": "by the medium",
    "rule": "by a rule",
    "full": "because the queue was full",
    "managed": "by the active queue management",
    "memory": "because the emulator's memory was full",
    "port": "at its port",
}


def _overflow(moment: Moment) -> tuple[str, Sentence]:
    """Judge a full queue: a policer's, one too short for the path, or one that is long enough."""
    queued = moment.queued(near=False)
    if queued.height < LEAST_PACKETS or moment.base_ns is None:
        return INCONCLUSIVE, Sentence("Inconclusive: too few segments passed the queue to tell how long it is", ())
    most = int(queued["waited_ns"].max())  # type: ignore[arg-type]
    each_ns = _each_ns(moment, queued)
    records = of_packets(moment, queued)
    if _is_policed(queued["waited_ns"], each_ns):
        free = int((queued["waited_ns"] < FREE_OF_LINK * each_ns).sum())
        text = (
            f"It is a policer: of {queued.height} segments {free} passed without waiting for their own transmission, "
            f"and none waited more than {most / MS:.1f} ms; a segment had {each_ns / MS:.2f} ms at the rate of all "
            "flows"
        )
        return "policer", Sentence(text, records)
    share = most / moment.base_ns
    if share < SHORT_OF_ROUND:
        is_empty_at_times = int(queued["waited_ns"].min()) <= TARGET_NS  # type: ignore[arg-type]
        effect = "the link idles after each reduction" if is_empty_at_times else "it overflows before the path is full"
        text = (
            f"Its queue is too short for the path: a full one drains in {most / MS:.1f} ms, {share:.0%} of the least "
            f"round trip of {moment.base_ns / MS:.1f} ms, so that {effect}"
        )
        return "queue_short", Sentence(text, records)
    text = (
        f"Its queue is long enough ({most / MS:.1f} ms when full, the least round trip {moment.base_ns / MS:.1f} ms): "
        "the link's rate is the limit, and the sender finds it by overflowing the queue"
    )
    return "link_rate", Sentence(text, records)


def _each_ns(moment: Moment, queued: pl.DataFrame) -> float:
    """Return the mean time per segment at the rate of all flows that share the link."""
    span = max(int(queued["arrival_ns"].max()) - int(queued["arrival_ns"].min()), 1)  # type: ignore[arg-type]
    least = int(moment.on_links(queued)["frame_bytes"].max() or 0) / 2  # type: ignore[arg-type]
    count = moment.on_links(queued).filter(pl.col("frame_bytes") > least).height
    return span / max(queued.height, count)


def _is_policed(waited: pl.Series, each_ns: float) -> bool:
    """Return whether a quarter passed at once, which no link can do, and no wait is as long as in a queue."""
    quarter, most = waited.quantile(0.25), waited.quantile(0.99)
    assert isinstance(quarter, float)
    assert isinstance(most, float)
    return quarter < FREE_OF_LINK * each_ns and most <= MOST_BEHIND_POLICER * each_ns


def _growing(moment: Moment) -> tuple[str, list[Sentence]] | None:
    """Return slow start, where no loss has ended it."""
    now = moment.now.row(0, named=True)
    if now["snd_ssthresh"] != SLOW_START:
        return None
    text = f"The flow was still in slow start: its window of {now['snd_cwnd']} segments had never been reduced"
    return "slow_start", [Sentence(text, (of_samples(moment.flow.sender, moment.now),))]


def _unknown(moment: Moment) -> Sentence:
    """State that the records, taps included, do not show the cause."""
    again = moment.again()
    if moment.device.is_seen and not moment.device.lacking:
        text = "Inconclusive: the taps show no loss and no standing queue in the time before, and the window is reduced"
        return Sentence(text, (of_samples(moment.flow.sender, moment.now),))
    if again.is_empty():
        text = "Inconclusive: the records of the time before show no loss and no standing queue, and a reduced window"
        return Sentence(text, (of_samples(moment.flow.sender, moment.now),))
    text = (
        f"Inconclusive: {again.height} segments were retransmitted in the time before, and TCP's records alone do not "
        "show whether a lossy link, a policer or a too short queue lost them; an emulator's log does, and two taps, "
        "before and behind the device, show where they were lost, and mostly why"
    )
    return Sentence(text, (of_segments(moment.flow.sender, again),))


def _of_receiver(moment: Moment) -> tuple[str, list[Sentence]]:
    """Judge the peer: whether its application reads too slowly, or its receive buffer is too small."""
    there = moment.of_receiver()
    if there.height >= LEAST_PACKETS and moment.flow.receiver is not None:
        unread, room = there["rcv_queued_bytes"].median(), there["rcv_wnd_bytes"].median()
        if isinstance(unread, float) and isinstance(room, float) and unread + room > 0:
            share, records = unread / (unread + room), (of_samples(moment.flow.receiver, there),)
            if share >= UNREAD:
                text = (
                    f"The receiving application reads too slowly: {unread:.0f} bytes waited unread there (median), "
                    f"and {room:.0f} bytes of window were left"
                )
                return "slow_receiver", [Sentence(text, records)]
            text = (
                f"The receive buffer is too small for the path: only {unread:.0f} bytes waited unread there in the "
                f"median, and a window of {room:.0f} bytes was all that it offered"
            )
            return "receive_buffer", [Sentence(text, records)]
    windows = moment.around["snd_wnd_bytes"].drop_nulls()
    most = moment.flow.sender.samples.filter(pl.col("time_ns") <= moment.end_ns)["snd_wnd_bytes"].max()
    records = (of_samples(moment.flow.sender, moment.around),)
    least = windows.min()
    if isinstance(least, int) and isinstance(most, int) and least < (1 - UNREAD) * most:
        text = (
            f"The receiving application reads too slowly: the window that it offers fell from {most} to {least} bytes, "
            "and only data that nobody has read make it smaller"
        )
        return "slow_receiver", [Sentence(text, records)]
    text = "Inconclusive: without the receiver's log a slow reader cannot be distinguished from a small receive buffer"
    return INCONCLUSIVE, [Sentence(text, records)]


def _of_application(moment: Moment) -> tuple[str, list[Sentence]]:
    """State a pause of the application: how long nothing was sent."""
    before, after = moment.around_data()
    since = (moment.at_ns - int(before["sent_ns"][0])) / MS if before.height else None
    until = (int(after["sent_ns"][0]) - moment.at_ns) / MS if after.height else None
    told = [
        f"the last segment with data was sent {since:.1f} ms before" if since is not None else "nothing had been sent"
    ]
    told.append(f"the next one {until:.1f} ms after" if until is not None else "no other followed")
    text = f"The sending application had written nothing more: {', '.join(told)}"
    rows = pl.concat([before, after])
    records = (of_segments(moment.flow.sender, rows),) if rows.height else (of_samples(moment.flow.sender, moment.now),)
    return "application_pause", [Sentence(text, records)]


def _of_buffer(moment: Moment) -> tuple[str, list[Sentence]]:
    now = moment.now.row(0, named=True)
    size = f"{now['sndbuf_bytes']} bytes, overhead included"
    text = f"The send buffer of {size}, had no room for what the application wanted to write"
    return "send_buffer", [Sentence(text, (of_samples(moment.flow.sender, moment.now),))]


def _of_pacing(moment: Moment) -> tuple[str, list[Sentence]]:
    """Return pacing where the flow sent at its pacing rate."""
    rates = moment.around["pacing_rate_bps"].drop_nulls()
    sent = moment.segments.filter(pl.col("sent_ns").is_between(moment.begin_ns, moment.end_ns))
    records = (of_samples(moment.flow.sender, moment.around),)
    middle = rates.filter(rates > 0).median()
    bps = int(sent["payload_bytes"].sum()) * 8 * NS / (2 * moment.round_ns)
    if isinstance(middle, float) and middle > 0 and PACED[0] <= bps / middle <= PACED[1]:
        who = moment.flow.sender.ends["algorithm"]
        text = f"It sent {bps / 1e6:.2f} Mbit/s, and {who} paced it at {middle / 1e6:.2f} Mbit/s"
        return "pacing", [Sentence(text, records)]
    text = "Inconclusive: data waited though no window was full, and the flow did not send at its pacing rate"
    return INCONCLUSIVE, [Sentence(text, records)]


def of_samples(end: End, rows: pl.DataFrame) -> Rows:
    """Return samples by CPU and number."""
    return Rows(end.record, by_number(rows, "cpu", "number"))


def of_segments(end: End, segments: pl.DataFrame) -> Rows:
    """Return the sender's samples in which the segments were built."""
    return Rows(end.record, by_number(segments, "sent_cpu", "sent_number"))


def of_packets(moment: Moment, segments: pl.DataFrame) -> tuple[Rows, ...]:
    """Return the segments' packets in emulators' logs by number, one entry per emulator."""
    found = []
    for (name,), rows in segments.drop_nulls("emulator_number").group_by("emulator", maintain_order=True):
        files = [one for one in moment.flow.emulated if f"packets-{name}-" in one]
        found.append(Rows(", ".join(files) or f"packets-{name}-*.arrow", f"number {spans(rows['emulator_number'])}"))
    return tuple(found)


def by_number(rows: pl.DataFrame, cpu: str, number: str) -> str:
    """Return text such as `cpu 0 number 5 to 9, 12; cpu 1 number 3`."""
    parts = []
    for (one,), of_cpu in rows.drop_nulls(number).sort(cpu, number).group_by(cpu, maintain_order=True):
        parts.append(f"cpu {one} number {spans(of_cpu[number])}")
    return "; ".join(parts)
