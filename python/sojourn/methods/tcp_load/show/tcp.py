"""What TCP and the queues say of a load: limits of the flows, losses and what TCP took for one, waiting and marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.methods.tcp_load.analyse.tcp_says import LIMITS
from sojourn.methods.tcp_load.show.rows import (
    ESTIMATE,
    FACTORS,
    WAYS,
    cells_of,
    factors_of,
    in_ms,
    measured,
    shown_of,
    with_interval,
)
from sojourn.report.numbers import fixed
from sojourn.report.table import Column, Table, interval, number, text

if TYPE_CHECKING:
    from sojourn.report.run import Run

SENT = Column(("sent",), "Sent", numeric=False)
SHARE = "Share of time limited by"


def limits(run: Run) -> Table:
    """Timeouts, needless retransmissions, and what limited the flows for which share of the time."""
    columns = [*FACTORS, SENT, *measured("timeouts", "Timeouts"), *measured("spurious", "Spurious", "%")]
    for name in LIMITS:
        columns += measured(name.replace(" ", "_"), name.capitalize(), "%", SHARE)
    rows = []
    for factors, of in cells_of(run):
        for way in (way for way in WAYS if ("limited", f"{way} {LIMITS[0]}") in of or ("timeouts", way) in of):
            entries = [*with_interval(of.get(("timeouts", way)), "1"),
                       *with_interval(of.get(("spurious", way)), "ratio")]  # fmt: skip
            for name in LIMITS:
                entries += with_interval(of.get(("limited", f"{way} {name}")), "ratio")
            rows.append((*factors_of(factors), text(way), *entries))
    note = (
        "Under working conditions, by TCP_INFO of the senders, of all flows of a direction together. Timeouts: "
        "retransmission timeouts of a trial. Spurious: segments that the receiver had already, as it said by DSACK, of "
        "the segments sent. Receiver (its window), send buffer and application (no data to send) are clocks of the "
        "kernel. Readings divide the rest: congestion window where as much was in flight as it allows or a "
        "loss was being repaired; pacing or path where data waited though no window was full."
    )
    return Table("limits", "What limited the flows", tuple(columns), tuple(rows), note, wide=True, grouped=True)


def losses(run: Run) -> Table:
    """Packets that were lost, beside segments that TCP took for lost."""
    columns = (*FACTORS, SENT, *measured("lost", "Lost at the emulator"), *measured("again", "Retransmitted"),
               *measured("needless", "Of them spurious"))  # fmt: skip
    rows, sentences = [], []
    for factors, of in cells_of(run):
        for way in (way for way in WAYS if ("losses", f"{way} retransmitted") in of):
            lost, again, needless = (of.get(("losses", f"{way} {said}")) for said in
                                     ("emulator", "retransmitted", "spurious"))  # fmt: skip
            rows.append((*factors_of(factors), text(way), *with_interval(lost, "1"), *with_interval(again, "1"),
                         *with_interval(needless, "1")))  # fmt: skip
            if lost and again and needless:
                sentences.append(
                    f"For {fixed(lost['estimate'], 1)} packets that the emulator lost in a trial ({way}), TCP "
                    f"retransmitted {fixed(again['estimate'], 1)} segments, {fixed(needless['estimate'], 1)} of them "
                    "though they had arrived."
                )
    note = (
        f"{sentences[0] if sentences else ''} Packets and segments of a whole trial, start-up included, in the mean "
        "over trials. The emulator's losses are of all causes and of all packets in that direction, acknowledgements "
        "and probes included; TCP's are what it took for lost, by duplicate acknowledgements, SACK or a timeout."
    ).strip()
    return Table("losses", "Lost, and taken for lost", columns, tuple(rows), note, wide=True, grouped=True)


def queues(run: Run) -> Table:
    """What the emulator's queues did."""
    columns = (
        *FACTORS,
        Column(("sent",), "Sent", numeric=False),
        Column(("delay_ms",), "Queueing delay, mean", "ms"),
        Column(("delay_low", "delay_high"), "95 % CI", "ms"),
        Column(("p99_ms",), "p99", "ms"),
        *measured("standing", "Standing queue", "ms"),
        Column(("dropped",), "Dropped", "%"),
        Column(("marked",), "Marked (ECN)", "%"),
        *measured("echoed", "Echoed", "%"),
        *measured("ssthresh_changes", "Changes of ssthresh"),
        Column(("goodput",), "Goodput", "Mbit/s"),
    )
    rows = []
    for factors, of in cells_of(run):
        for way in (way for way in WAYS if ("queueing_delay", f"{way} mean") in of):
            mean, p99 = (in_ms(of.get(("queueing_delay", f"{way} {of_them}")) or {}, ESTIMATE) for of_them in
                         ("mean", "p99"))  # fmt: skip
            shares = [number(shown_of(of.get((name, way)), "ratio")) for name in ("dropped", "marked")]
            standing = in_ms(of.get(("standing_queue", way)) or {}, ESTIMATE)
            shares += [
                *with_interval(of.get(("ecn_echoed", way)), "ratio"),
                *with_interval(of.get(("ssthresh_changes", way)), "1"),
            ]
            rows.append((*factors_of(factors), text(way), number(mean), interval(mean), number(p99), number(standing),
                         interval(standing), *shares,
                         number(shown_of(of.get(("goodput", way)), "bit/s"))))  # fmt: skip
    note = (
        "From the counters of the emulator, for all packets of a trial in that direction, including those of the idle "
        "path, of the flows' start-up and of probes. Standing queue: the least delay of any packet in each 100 ms of "
        "the working conditions, in the mean. Dropped: because the queue was full, or by the active queue management. "
        "Echoed: segments acknowledged with the echo of a mark (ECE), of those delivered; the receiver repeats it "
        "until the sender says that it reduced its window, for a round trip. "
        "Changes of ssthresh: from how many readings to the next the slow-start threshold changed in a trial, by "
        "reductions of the window, the end of slow start, and reductions that were undone. Goodput is that under "
        "working conditions. Where each flow has its own sub-queue (FQ-CoDel), probes do not wait behind the flows: "
        "only the mean and p99 here show the flows' delay, and the least is that of probes."
    )
    return Table("queues", "Queues", columns, tuple(rows), note, wide=True, grouped=True)
