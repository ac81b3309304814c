"""Judge from two taps alone what on the path limited a flow: a standing queue, or losses and where they happened.

Taps show which packets a device lost and how long it delayed the others, but not why. A full queue drops packets that
would have waited longer than any that passed; a policer drops packets that arrive when its bucket is empty; a lossy
link drops any packet. A cause is named where the packets before the moment support it and contradict the others. The
rules and their thresholds are in docs/guide/timeline.md and docs/decisions/0099-taps-in-logged-trials.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.export.log import NS
from sojourn.timeline.device import FULL
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
    from sojourn.timeline.device import Passed
    from sojourn.timeline.moment import Moment

    Found = tuple[str, list[Sentence]]

BY_CHANCE = 1e-3
"""Significance level for the hypothesis that losses fall on packets regardless of their wait."""

IN_ORDER = 0.005
"""The largest share of packets that may have overtaken others: a device that reorders more has no single queue."""

SAME_WAIT = 0.97
"""A packet waited as long as a lost one would have if its wait is at least this share of that."""

NEARLY_LONGEST = 0.75
"""Share of the longest wait (its 98th percentile): at less than this, the queue was not full."""

LONGER = 0.02
"""The largest share of passed packets that may have waited longer than lost ones would have: pauses of the device."""

LOW = 0.6
"""A wait is low below this share of the longest one (its 98th percentile): the queue was not nearly full then."""

LEAST_LOW = 3
"""The least number of losses at a low wait for random loss to be the cause."""

FEWER = 0.05
"""If so few losses at low waits are less probable than this, losses prefer long waits: they are not only random."""

FREE_OF_LINK = 0.2
"""Share of a segment's time at the rate of all flows: if a quarter passed in less, no link transmitted them."""

FULL_BUCKET = 0.95
"""Share of the bucket's size: at a level above it the bucket counts as empty."""

LEAST_LOST = 5
"""With fewer losses the cause is inconclusive, unless a full queue explains them."""

RATES = np.geomspace(0.6, 20.0, 800)
"""The token rates that are tried, over the rate of what passed. With a small bucket a flow gets less than the token
rate."""

NEARLY_EMPTY = 1.5
"""A bucket counts as empty with room for this many packets: rates lie between those tried, a queue holds one packet."""

NOT_A_POLICER = 0.01
"""If the fit of losses to a bucket is less probable than this by chance, a policer is not excluded."""

LEAST_BURST = 2
"""The least size of a policer's bucket, in packets."""

ENOUGH, FURTHER = 12, 4
"""The number of losses needed to name a cause, and how many times further back they may lie."""

IN_A_ROW = 0.3
"""If a larger share of losses directly follows another loss, losses are not independent."""


def standing(moment: Moment) -> Found | None:
    """Return a queue that does not empty: CoDel's rule, applied to the waits of the flow's segments between the taps.

    A link that is slow needs more than CoDel's target: as long as a packet takes. Where no link shows itself (a policer
    that holds one packet until its tokens are there), that is the time between packets.
    """
    begin, end = moment.near
    passed = moment.device.passed(begin, end)
    through = passed.through
    if through.height < LEAST_PACKETS or moment.device.reordered > IN_ORDER:
        return None
    least, middle = int(through["waited_ns"].min()), float(through["waited_ns"].median())  # type: ignore[arg-type]
    enough = max(TARGET_NS, passed.link_ns or round(passed.each_ns))
    if least - passed.link_ns <= enough:
        return None
    text = (
        f"A queue stood between the taps: each of {through.height} segments took {least / MS:.1f} ms or more longer "
        f"there than the quickest packet of the flow ({middle / MS:.1f} ms in the median), where {enough / MS:.0f} ms "
        "are enough to keep a link busy"
    )
    return "standing_queue", [Sentence(text, moment.device.rows(through))]


def lost(moment: Moment) -> Found | None:
    """Judge where segments were lost before the moment, and what lost them."""
    found = _lost_since(moment, moment.back_ns)
    reduced = moment.reduced_ns
    since = moment.back_ns
    if found.is_empty() and reduced is not None:
        # As with the emulator's log: the losses that set the window precede the last change of its threshold.
        since = reduced - (moment.at_ns - moment.back_ns)
        found = _lost_since(moment, since).filter(pl.col("sent_ns") <= reduced)
    if found.is_empty():
        return None
    if moment.device.lacking:
        text = (
            f"Inconclusive: the taps' own files lack {moment.device.lacking} packets, so that what one of them did not "
            "see need not be lost"
        )
        return INCONCLUSIVE, [Sentence(text, _frames(moment, found))]
    counts = dict(found["lost_where"].value_counts().iter_rows())
    places = {
        "device": f"{{}} between {moment.device.before} and {moment.device.after}",
        "before": f"{{}} before tap {moment.device.before}, which did not see them",
        "behind": f"{{}} behind tap {moment.device.after}, which saw them",
    }
    told = ", ".join(words.format(counts[name]) for name, words in places.items() if name in counts)
    span = (moment.at_ns - int(found["sent_ns"].min())) / NS  # type: ignore[arg-type]
    text = f"Losses set the congestion window: of its segments {found.height} were lost in {span:.2f} s before: {told}"
    sentence = Sentence(text, _frames(moment, found))
    for name, cause in (("before", "lost_before_taps"), ("behind", "lost_behind_taps")):
        if counts.get(name, 0) >= NEARLY_ALL * found.height:
            return cause, [sentence]
    if counts.get("device", 0) < NEARLY_ALL * found.height:
        mixed = "Inconclusive: they were lost in several places, none of which has nearly all of them"
        return INCONCLUSIVE, [sentence, Sentence(mixed, _frames(moment, found))]
    passed = moment.device.passed(since, moment.end_ns)
    if passed.lost.height < LEAST_LOST and not _is_full(passed):
        passed = moment.device.passed(_from_enough(moment, since), moment.end_ns)
    cause, more = _in_device(moment, passed)
    return cause, [sentence, more]


def _from_enough(moment: Moment, since_ns: int) -> int:
    """Return a start time that includes enough losses to judge their cause, limited to FURTHER times the span."""
    far = _lost_since(moment, moment.at_ns - FURTHER * (moment.at_ns - since_ns))
    ever = far.filter(pl.col("lost_where") == "device")["sent_ns"].sort().tail(ENOUGH)
    return min(since_ns, int(ever[0])) if ever.len() else since_ns


def _lost_since(moment: Moment, since_ns: int) -> pl.DataFrame:
    """Return the flow's lost segments up to the moment."""
    return moment.segments.filter(
        pl.col("lost_where").is_not_null(), pl.col("sent_ns").is_between(since_ns, moment.at_ns)
    )


def _frames(moment: Moment, segments: pl.DataFrame) -> tuple[Rows, ...]:
    """Return the rows of lost segments: at the first tap, or in the sender's samples where that tap did not see
    them."""
    seen = segments.drop_nulls("tap_before_frame")
    rows = moment.device.rows(seen.select(pl.col("tap_before_frame").alias("frame"))) if seen.height else ()
    unseen = segments.filter(pl.col("tap_before_frame").is_null())
    if unseen.is_empty():
        return rows
    return (*rows, Rows(moment.flow.sender.record, f"number {spans(unseen['sent_number'])}"))


def _in_device(moment: Moment, passed: Passed) -> tuple[str, Sentence]:
    """Judge why the device lost them, from the waits of lost and passed packets."""
    lost, through = passed.lost, passed.through
    rows = moment.device.rows(lost) if lost.height else moment.device.rows(through)
    if through.height < LEAST_PACKETS or lost.is_empty() or moment.base_ns is None:
        return INCONCLUSIVE, Sentence("Inconclusive: too few segments passed the taps to tell why", rows)
    if moment.device.reordered > IN_ORDER:
        text = (
            f"Inconclusive: {moment.device.reordered:.1%} of the packets overtook others between the taps, so that no "
            "one queue held them, and their waits do not tell why others were lost"
        )
        return INCONCLUSIVE, Sentence(text, rows)
    if _is_full(passed):
        return _overflow(moment, passed, rows)
    return _not_full(passed, rows)


def _not_full(passed: Passed, rows: tuple[Rows, ...]) -> tuple[str, Sentence]:
    """Judge losses that no full queue explains: by a policer or random, if there are enough of them."""
    lost = passed.lost
    if lost.height < LEAST_LOST:
        text = f"Inconclusive: {lost.height} losses are too few to tell a lossy link from a policer or a managed queue"
        return INCONCLUSIVE, Sentence(text, rows)
    bucket = _best_bucket(passed)
    fits = (
        f"{bucket.at_top} of {lost.height} were lost when a bucket of {bucket.burst_bytes / 1000:.0f} kB that fills "
        f"with {bucket.rate_bps / 1e6:.2f} Mbit/s was empty"
    )
    most = float(passed.through["waited_ns"].quantile(0.98) or 0)
    # A link with a queue is a bucket too: its rate drains it, and packets that passed have waited.
    if bucket.by_chance * RATES.size < BY_CHANCE and _is_free(passed) and most <= MOST_BEHIND_POLICER * passed.each_ns:
        return "policer", Sentence(f"It is a policer: {fits}, and not because of a queue", rows)
    if bucket.by_chance < NOT_A_POLICER:
        text = f"Inconclusive: {fits}, which a policer explains, and which may be chance"
        return INCONCLUSIVE, Sentence(text, rows)
    gone = passed.own["left_ns"].is_null()
    in_a_row = int((gone & gone.shift(1, fill_value=False)).sum()) / lost.height
    if in_a_row > max(IN_A_ROW, 5 * lost.height / passed.own.height):
        text = f"Inconclusive: {in_a_row:.0%} of the losses followed another at once, which chance does not explain"
        return INCONCLUSIVE, Sentence(text, rows)
    return _by_chance(passed, rows)


def _by_chance(passed: Passed, rows: tuple[Rows, ...]) -> tuple[str, Sentence]:
    """Judge whether losses fell on packets that found no queue, and did not prefer those that found one."""
    lost, waited = passed.lost, passed.through["waited_ns"]
    top, link_ns = float(waited.quantile(0.98) or 0), passed.link_ns
    # Active queue management drops nothing that waits less than its target or finds only one packet ahead.
    most = min(LOW * top, max(TARGET_NS, link_ns) + link_ns) if top > 2 * link_ns + MS else top + MS
    low, share = int((lost["found_ns"] <= most).sum()), float((waited <= most).mean())  # type: ignore[arg-type]
    if low >= LEAST_LOW and _at_most(low, lost.height, share) >= FEWER:
        text = (
            f"They were lost by chance: {low} of {lost.height} found a wait of {most / MS:.1f} ms or less, as "
            f"{share:.0%} of those that passed did, so no full or managed queue dropped them; nor was any "
            "bucket of tokens empty for nearly all of them"
        )
        return "lossy_link", Sentence(text, rows)
    text = (
        f"Inconclusive: {low} of the {lost.height} found a short queue, and the others would not have waited longer "
        "than any that passed: chance, a full queue and its management are all possible"
    )
    return INCONCLUSIVE, Sentence(text, rows)


def _is_full(passed: Passed) -> bool:
    """Return whether nearly all lost packets would have waited longer than almost all that passed."""
    if passed.lost.is_empty() or passed.through.height < LEAST_PACKETS:
        return False
    found = passed.lost["found_ns"].sort()
    least = float(found[math.floor((1 - NEARLY_ALL) * found.len())]) * SAME_WAIT
    waited = passed.through["waited_ns"]
    share = (int((waited >= least).sum()) + 1) / (waited.len() + 1)
    # No passed packet waits longer than one that a full queue drops; active queue management drops earlier.
    more = max(least / SAME_WAIT + (passed.link_ns or passed.each_ns), least / SAME_WAIT**2)
    longer = float((waited > more).mean())  # type: ignore[arg-type]
    is_long = least >= NEARLY_LONGEST * float(waited.quantile(0.98) or 0) and longer <= LONGER
    return is_long and share ** math.ceil(NEARLY_ALL * found.len()) < BY_CHANCE


def _overflow(moment: Moment, passed: Passed, rows: tuple[Rows, ...]) -> tuple[str, Sentence]:
    """Judge a full queue: a policer's, one too short for the path, or one that is long enough."""
    assert moment.base_ns is not None
    through, lost = passed.through, passed.lost
    found, top = float(lost["found_ns"].median() or 0), float(through["waited_ns"].quantile(0.98) or 0)  # type: ignore[arg-type]
    most = max(found, top)
    head = (
        f"A full queue dropped them: by the packets before them {lost.height} would have waited {found / MS:.1f} ms "
        f"(median), and of those that passed 98% waited less than {top / MS:.1f} ms"
    )
    quarter = _quarter(passed)
    if _is_free(passed) and most <= MOST_BEHIND_POLICER * passed.each_ns:
        text = (
            f"{head}. It is a policer: a quarter passed in {quarter / MS:.2f} ms or less, where a segment had "
            f"{passed.each_ns / MS:.2f} ms at the rate of all flows"
        )
        return "policer", Sentence(text, rows)
    share = most / moment.base_ns
    if share < SHORT_OF_ROUND:
        text = (
            f"{head}: it is too short for the path, {share:.0%} of the least round trip of {moment.base_ns / MS:.1f} ms"
        )
        return "queue_short", Sentence(text, rows)
    base = f"{moment.base_ns / MS:.1f} ms"
    text = f"{head}: it is long enough (the least round trip is {base}): the link's rate is the limit"
    return "link_rate", Sentence(text, rows)


def _quarter(passed: Passed) -> float:
    """Return the first quartile of the waits of passed packets."""
    return float(passed.through["waited_ns"].quantile(0.25) or 0)


def _is_free(passed: Passed) -> bool:
    """Return whether a quarter passed at once, which no link that is as busy as these flows make it can do."""
    quarter = _quarter(passed)
    return quarter < FREE_OF_LINK * passed.each_ns and (not passed.link_ns or quarter < FULL * passed.link_ns)


@dataclass(frozen=True, slots=True)
class _Bucket:
    """A token bucket: the bytes that may pass at once, and the rate (bit/s) at which tokens return."""

    rate_bps: float
    burst_bytes: float
    at_top: int
    """The number of losses that occurred when it was empty or nearly so."""
    by_chance: float
    """The probability of as many or more by chance, if all packets were equally likely to be lost."""


def _best_bucket(passed: Passed) -> _Bucket:
    """Return the bucket that was empty for nearly all losses and for the fewest passed packets.

    The level is the tokens taken that have not returned; a policer drops a packet that would exceed the bucket's size.
    Rates are tried; the size is the highest level at which a packet passed.
    """
    own = passed.own
    at = own["entered_ns"].to_numpy().astype(np.float64)
    size = own["bytes"].to_numpy().astype(np.float64)
    is_lost = own["left_ns"].is_null().to_numpy()
    taken = np.where(is_lost, 0.0, size)
    before = np.cumsum(taken) - taken
    count, largest = int(is_lost.sum()), float(size.max())
    best = _Bucket(0.0, 0.0, 0, 1.0)
    for rate in RATES * before[-1] / max(at[-1] - at[0], 1.0):
        behind = before - rate * (at - at[0])
        level = behind - np.minimum.accumulate(behind) + size  # including this packet
        passes = level[~is_lost]
        burst = float(passes.max())
        top = burst - max((1 - FULL_BUCKET) * burst, NEARLY_EMPTY * largest)
        at_top = int((level[is_lost] >= top).sum())
        share = (int((passes >= top).sum()) + 1) / (passes.size + 1)
        chance = 1 - _at_most(at_top - 1, count, share)
        if at_top >= NEARLY_ALL * count and burst >= LEAST_BURST * largest and chance < best.by_chance:
            best = _Bucket(rate * 8 * NS, burst, at_top, chance)
    return best


def _at_most(found: int, count: int, share: float) -> float:
    """Return the probability of at most `found` of `count`, each with probability `share`."""
    return sum(math.comb(count, one) * share**one * (1 - share) ** (count - one) for one in range(found + 1))
