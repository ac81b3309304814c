"""`sojourn why` with taps and no emulator's log: the place of each made loss, and its cause where it shows."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.export import Chosen
from sojourn.export.log import TcpLog
from sojourn.timeline.segments import joined
from sojourn.timeline.source import open_flow
from sojourn.timeline.why import explain
from tests.unit.made_up_path import MSS, MadePath

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

AT_NS = 900_000_000
GAP_NS = 500_000
SEGMENTS = 2_400
ROUND_NS = 20_010_000


def answer(made: MadePath, path: Path, **how: Any) -> dict[str, Any]:
    made.write(path, emulator=False)
    made.write_taps(path, TcpLog.open(path / "t", Chosen()).minus_utc_ns, **how)
    return explain(path / "t", 1, AT_NS, Chosen(), [path / "c"]).told


STEP_NS, DRAINED_NS = 200_000, 400_000
"""What the queue of `saw` grows by a packet, and shrinks by: less than packets are apart, so that none overtakes
another. Its period divides 120 packets, after which what was lost is sent again: then it waits as it would have."""


def period(most_ns: int) -> int:
    return most_ns // STEP_NS + most_ns // DRAINED_NS


def saw(most_ns: int) -> Callable[[int], int]:
    """A queue that fills up to this wait, and drains."""
    up = most_ns // STEP_NS

    def wait(one: int) -> int:
        place = one % period(most_ns)
        return STEP_NS * (place + 1) if place < up else max(STEP_NS, most_ns - DRAINED_NS * (place - up + 1))

    return wait


def after_the_longest(most_ns: int) -> Mapping[int, str]:
    """The packets that come when such a queue is full: each behind the one that waited longest."""
    return dict.fromkeys(range(most_ns // STEP_NS, SEGMENTS - 100, period(most_ns)), "full")


def by_chance(share: float, seed: int) -> Mapping[int, str]:
    draw = random.Random(seed)
    return {one: "before" for one in range(10, SEGMENTS - 100) if draw.random() < share}


BURST = 30
PAUSES = dict.fromkeys(range(BURST, SEGMENTS, BURST), 20_000_000)
"""Thirty segments in 15 ms, then a pause of 20 ms: 10 Mbit/s, and 23 Mbit/s within a burst."""


def policed(rate_bps: float, size_bytes: int) -> Mapping[int, str]:
    """What a bucket of tokens drops of the bursts."""
    made, tokens, last, lost = MadePath(SEGMENTS, GAP_NS, pauses=PAUSES), float(size_bytes), 0, {}
    for one in range(SEGMENTS - 100):
        now = made.sent_ns(one)
        tokens = min(size_bytes, tokens + (now - last) * rate_bps / 8e9) if last else tokens
        last = now
        if tokens < MSS + 66:
            lost[one] = "rule"
        else:
            tokens -= MSS + 66
    return lost


PATHS: dict[str, tuple[MadePath, str]] = {
    "short queue": (MadePath(SEGMENTS, GAP_NS, wait=saw(8_000_000), lost=after_the_longest(8_000_000)), "queue_short"),
    "long queue": (MadePath(SEGMENTS, GAP_NS, wait=saw(16_000_000), lost=after_the_longest(16_000_000)), "link_rate"),
    "chance behind a queue": (MadePath(SEGMENTS, GAP_NS, wait=saw(8_000_000), lost=by_chance(0.02, 3)), "lossy_link"),
    "chance without a queue": (MadePath(SEGMENTS, GAP_NS, pauses=PAUSES, wait=lambda _: 0, lost=by_chance(0.02, 4)),
                               "lossy_link"),
    "policer": (MadePath(SEGMENTS, GAP_NS, pauses=PAUSES, wait=lambda _: 0, lost=policed(9e6, 40_000)), "policer"),
    "standing queue": (MadePath(SEGMENTS, GAP_NS, wait=lambda one: 600_000 if one < 60 else 30_000_000),
                       "standing_queue"),
    # Each wave loses a packet where its queue is half full: a managed queue, or chance that prefers it.
    "management": (MadePath(SEGMENTS, GAP_NS, wait=saw(16_000_000),
                            lost=dict.fromkeys(range(160, SEGMENTS - 100, 120), "managed")), "inconclusive"),
    "two losses": (MadePath(SEGMENTS, GAP_NS, wait=lambda _: 0, lost={1500: "before", 1600: "before"}), "inconclusive"),
    "lost behind": (MadePath(SEGMENTS, GAP_NS, lost=dict.fromkeys(range(1100, 1700, 50), "corrupted")),
                    "lost_behind_taps"),
    "nothing": (MadePath(SEGMENTS, GAP_NS), "inconclusive"),
}  # fmt: skip


@pytest.mark.parametrize("name", PATHS)
def test_simulated_cause_is_named(name: str, tmp_path: Path) -> None:
    made, cause = PATHS[name]
    told = answer(made, tmp_path)
    assert (told["limit"], told["cause"]) == ("congestion_window", cause), told["sentences"]
    assert all(one["text"] and one["records"] and all(each["rows"] for each in one["records"])
               for one in told["sentences"])  # fmt: skip


def test_what_waits_for_less_than_packets_are_apart_stands_in_no_queue(tmp_path: Path) -> None:
    """At 1 Mbit/s a packet takes 12 ms, more than CoDel's target: a policer that holds one packet is no long queue."""
    made = MadePath(200, 12_000_000, wait=lambda one: 0 if one < 10 else (6, 9, 11, 8)[one % 4] * 1_000_000)
    told = answer(made, tmp_path)
    assert told["cause"] == "inconclusive", told["sentences"]
    several = MadePath(200, 12_000_000, wait=lambda one: 0 if one < 10 else 60_000_000)
    assert answer(several, tmp_path / "several")["cause"] == "standing_queue", "of five packets"


def test_packets_not_seen_by_the_first_tap_were_lost_before_it(tmp_path: Path) -> None:
    made = MadePath(SEGMENTS, GAP_NS, lost=dict.fromkeys(range(1100, 1700, 50), "before"))
    unseen = {place for place, (_, one, again) in enumerate(made.sights()) if one in made.lost and not again}
    told = answer(made, tmp_path, blind=unseen)
    assert told["cause"] == "lost_before_taps", told["sentences"]


def test_each_lost_segment_is_located(tmp_path: Path) -> None:
    made = MadePath(600, lost={40: "before", 41: "full", 120: "corrupted", 300: "managed"})
    unseen = {place for place, (_, one, again) in enumerate(made.sights()) if one == 300 and not again}
    answer(made, tmp_path, blind=unseen)
    segments, _ = joined(open_flow(tmp_path / "t", 1, Chosen(), [tmp_path / "c"]))
    lost = segments.drop_nulls("lost_where")
    found = {(row["seq"] - made.isn - 1) // MSS: row["lost_where"] for row in lost.iter_rows(named=True)}
    assert found == {40: "device", 41: "device", 120: "behind", 300: "before"}
    assert not lost["again"].any()


def test_delays_behind_a_reordering_device_are_inconclusive(tmp_path: Path) -> None:
    """Each fiftieth packet goes another way, 10 ms shorter: the least delay is not that of the others."""
    made = MadePath(SEGMENTS, GAP_NS, wait=lambda one: 0 if one % 50 == 0 else 10_000_000, lost=by_chance(0.02, 5))
    assert answer(made, tmp_path)["cause"] == "inconclusive"


@pytest.mark.parametrize("seed", range(6))
def test_random_loss_is_never_attributed_to_a_full_queue_or_a_policer(seed: int, tmp_path: Path) -> None:
    draw = random.Random(f"why {seed}")
    wait = draw.choice([saw(draw.choice((4_000_000, 8_000_000, 16_000_000))), lambda _: 0])
    made = MadePath(SEGMENTS, GAP_NS, pauses=draw.choice([{}, PAUSES]), wait=wait,
                    lost=by_chance(draw.choice((0.005, 0.01, 0.03)), seed))  # fmt: skip
    assert answer(made, tmp_path)["cause"] in {"lossy_link", "inconclusive"}


def test_tap_with_drops_proves_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, cause = PATHS["chance behind a queue"]
    assert answer(made, tmp_path)["cause"] == cause
    monkeypatch.setattr("sojourn.timeline.taps.dropped_of", lambda _: 3)
    # The made captures are pcap, which has no statistics: its section stands for them.
    told = explain(tmp_path / "t", 1, AT_NS, Chosen(), [tmp_path / "c"]).told
    assert told["cause"] == "inconclusive"
    assert "lack" in told["sentences"][1]["text"]
