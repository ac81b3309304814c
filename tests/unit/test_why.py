"""`sojourn why`: of made records each limit and cause is named as it was made, or said to be inconclusive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.export import Chosen
from sojourn.timeline.why import explain
from tests.unit.in_process import sojourn
from tests.unit.made_up_path import MSS, MadePath, write_table_of
from tests.unit.made_up_tcp import START, write_table
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

AT_NS = 600_000_000
"""Every moment that is asked for: half of what is made lies behind it."""

SOME_LOST = range(110, 300, 20)
"""Segments before the moment."""


def answer(made: MadePath, path: Path, after_ns: int = AT_NS, **how: bool) -> dict[str, Any]:
    made.write(path, **how)
    more = [path / "e"] if how.get("emulator", True) else []
    return explain(path / "t", 1, after_ns, Chosen(), more).told


def lost(cause: str) -> Mapping[int, str]:
    return dict.fromkeys(SOME_LOST, cause)


def full_every_tenth(most_ns: int) -> Any:
    """A queue that fills: every tenth segment waits longest."""
    return lambda segment: most_ns * (segment % 10 + 1) // 10


PATHS: dict[str, tuple[MadePath, str, str]] = {
    "lossy link": (MadePath(lost=lost("before")), "congestion_window", "lossy_link"),
    "lossy behind": (MadePath(lost=lost("after")), "congestion_window", "lossy_link"),
    "queue too short": (
        MadePath(lost=lost("full"), wait=full_every_tenth(5_000_000)),
        "congestion_window",
        "queue_short",
    ),
    "queue too short that is never empty": (
        MadePath(lost=lost("full"), wait=lambda one: 8_000_000 + one % 10 * 100_000),
        "congestion_window",
        "queue_short",
    ),
    "long queue": (
        MadePath(lost=lost("full"), wait=full_every_tenth(19_000_000)),
        "congestion_window",
        "link_rate",
    ),
    "policer": (
        MadePath(lost=lost("full"), wait=lambda one: (one % 20 == 0) * 900_000),
        "congestion_window",
        "policer",
    ),
    "policer with room for a packet": (
        MadePath(lost=lost("full"), wait=lambda one: (0, 1_000_000, 3_000_000)[one % 3]),
        "congestion_window",
        "policer",
    ),
    "shaper with a burst": (
        MadePath(lost=lost("full"), wait=lambda one: max(0, one % 20 - 8) * 700_000),
        "congestion_window",
        "queue_short",
    ),
    "standing queue": (MadePath(wait=lambda _: 30_000_000, lost=lost("full")), "congestion_window", "standing_queue"),
    "management": (MadePath(lost=lost("managed")), "congestion_window", "queue_management"),
    # With one packet ahead of each, CoDel calls the queue of a slow link good.
    "link of 1 Mbit/s with one packet ahead": (
        MadePath(segments=100, gap_ns=13_000_000, wait=lambda _: 24_000_000),
        "congestion_window",
        "inconclusive",
    ),
    # On a link of 1 Mbit/s a segment takes 12 ms by itself, more than the target of a queue.
    "lossy link of 1 Mbit/s": (
        MadePath(
            segments=100, gap_ns=13_000_000, wait=lambda _: 12_112_000, lost=dict.fromkeys(range(4, 33, 8), "before")
        ),
        "congestion_window",
        "lossy_link",
    ),
    "two causes": (
        MadePath(lost={one: ("before", "full")[one // 20 % 2] for one in SOME_LOST}),
        "congestion_window",
        "inconclusive",
    ),
    "slow start": (MadePath(shows={"snd_ssthresh": 2_147_483_647}), "congestion_window", "slow_start"),
    "nothing known": (MadePath(), "congestion_window", "inconclusive"),
    "slow receiver": (
        MadePath(
            shows={"limited_by": "receiver", "snd_wnd_bytes": 10 * MSS},
            receiver_shows={"rcv_queued_bytes": 60_000, "rcv_wnd_bytes": 5_000},
        ),
        "receiver_window",
        "slow_receiver",
    ),
    "small buffer": (
        MadePath(
            shows={"limited_by": "receiver", "snd_wnd_bytes": 10 * MSS},
            receiver_shows={"rcv_queued_bytes": 0, "rcv_wnd_bytes": 10 * MSS},
        ),
        "receiver_window",
        "receive_buffer",
    ),
    "pause": (
        MadePath(pauses={300: 300_000_000}, shows={"limited_by": "idle"}),
        "application",
        "application_pause",
    ),
    "send buffer": (MadePath(shows={"limited_by": "buffer"}), "send_buffer", "send_buffer"),
    "pacing": (
        MadePath(shows={"flags": 0, "snd_cwnd": 100, "pacing_rate_bps": MSS * 8 * 500}, algorithm="bbr"),
        "pacing",
        "pacing",
    ),
    "unknown": (
        MadePath(shows={"flags": 0, "snd_cwnd": 100, "pacing_rate_bps": 100_000_000}),
        "inconclusive",
        "inconclusive",
    ),
}


@pytest.mark.parametrize("name", PATHS)
def test_simulated_cause_is_named(name: str, tmp_path: Path) -> None:
    made, limit, cause = PATHS[name]
    told = answer(made, tmp_path)
    assert (told["limit"], told["cause"]) == (limit, cause), told["sentences"]
    assert all(one["text"] and one["records"] and all(each["rows"] for each in one["records"])
               for one in told["sentences"])  # fmt: skip


SHARED = 24
"""Other flows on the link of `MadePath`, a segment each between two of its own."""


def share_the_link(path: Path, gap_ns: int) -> None:
    """In `path/e`, what other flows sent over the same link: spread over the time between this flow's segments."""
    own = pl.read_ipc_stream(path / "e" / "packets-emulate-000.arrow").filter(direction="forward")
    rows = []
    for row in own.iter_rows(named=True):
        for other in range(1, SHARED):
            head = bytearray(row["head"])
            head[34:36] = (50_000 + other).to_bytes(2, "big")
            later = {name: row[name] + other * gap_ns // SHARED for name in ("arrival_ns", "entered_ns", "link_left_ns")
                     if row[name] is not None}  # fmt: skip
            rows.append({**row, **later, "head": bytes(head), "number": 100_000 + SHARED * row["number"] + other})
    write_table_of(path / "e" / "packets-emulate-001.arrow", rows)


@pytest.mark.parametrize(
    ("made", "alone", "shared"),
    [
        # Each waits 24 ms: less than one packet of a link of 20 ms a packet, and 28 of one of 0.83 ms.
        (MadePath(gap_ns=20_000_000, wait=lambda _: 24_000_000), "inconclusive", "standing_queue"),
        # A wait of half a millisecond is a fortieth of the flow's own time, and most of a packet's at the link's rate.
        (
            MadePath(
                gap_ns=20_000_000,
                wait=lambda one: 500_000 + one % 20 * 100_000,
                lost=dict.fromkeys((12, 20, 28), "full"),
            ),
            "policer",
            "queue_short",
        ),
    ],
    ids=["standing queue", "short queue"],
)
def test_shared_bottleneck_is_not_taken_for_a_rate_limit_of_the_flow(
    made: MadePath, alone: str, shared: str, tmp_path: Path
) -> None:
    assert answer(made, tmp_path)["cause"] == alone
    share_the_link(tmp_path, made.gap_ns)
    assert explain(tmp_path / "t", 1, AT_NS, Chosen(), [tmp_path / "e"]).told["cause"] == shared


@pytest.mark.parametrize(
    ("changed_ns", "cause"), [(400_000_000, "lossy_link"), (1_700_000_000, "inconclusive"), (None, "inconclusive")]
)
def test_old_losses_are_a_cause_only_if_they_last_changed_ssthresh(
    changed_ns: int | None, cause: str, tmp_path: Path
) -> None:
    """Lost from 0.2 to 0.36 s, asked at 1.9 s, far beyond twenty round trips: what changed `ssthresh` last counts."""
    made = MadePath(segments=1000, lost=dict.fromkeys(range(100, 190, 20), "before"))
    made.write(tmp_path)
    if changed_ns is not None:
        path = tmp_path / "t" / "records" / "tcp_samples-tcplog-000.arrow"
        rewrite(path, snd_ssthresh=pl.when(pl.col("time_ns") < START + changed_ns).then(20).otherwise(8))
    told = explain(tmp_path / "t", 1, 1_900_000_000, Chosen(), [tmp_path / "e"]).told
    assert (told["limit"], told["cause"]) == ("congestion_window", cause), told["sentences"]


@pytest.mark.parametrize("name", ["lossy link", "queue too short", "policer", "management", "two causes"])
def test_tcp_log_alone_cannot_distinguish_causes_of_loss(name: str, tmp_path: Path) -> None:
    told = answer(PATHS[name][0], tmp_path, emulator=False)
    assert (told["limit"], told["cause"]) == ("congestion_window", "inconclusive")
    assert "two taps, before and behind the device" in told["sentences"][1]["text"]


def test_round_trips_alone_show_a_standing_queue(tmp_path: Path) -> None:
    """It stands from a fifth of the way on; before, the flow has seen the path without."""
    made = MadePath(wait=lambda one: 600_000 if one < 120 else 30_000_000)
    told = answer(made, tmp_path, emulator=False)
    assert (told["limit"], told["cause"]) == ("congestion_window", "standing_queue")
    assert "30.0 ms" in told["sentences"][1]["text"] or "29.4 ms" in told["sentences"][1]["text"]


def test_slightly_longer_rtts_show_no_standing_queue(tmp_path: Path) -> None:
    """A receiver that delays its acknowledgements makes round trips longer, too."""
    made = MadePath(wait=lambda one: 600_000 if one < 120 else 9_000_000)
    assert answer(made, tmp_path, emulator=False)["cause"] == "inconclusive"


@pytest.mark.parametrize(
    ("windows", "cause"), [((1_000_000, 10_000), "slow_receiver"), ((10_000, 10_000), "inconclusive")]
)
def test_without_the_receiver_log_its_window_shows_the_limit(
    windows: tuple[int, int], cause: str, tmp_path: Path
) -> None:
    """A window that shrinks is data that nobody reads; one that is small all the time may be a small buffer."""
    MadePath(shows={"limited_by": "receiver"}).write(tmp_path, receiver=False)
    path = tmp_path / "t" / "records" / "tcp_samples-tcplog-000.arrow"
    window = pl.when(pl.col("time_ns") < START + AT_NS // 2).then(windows[0]).otherwise(windows[1])
    rewrite(path, snd_wnd_bytes=window)
    told = explain(tmp_path / "t", 1, AT_NS, Chosen(), [tmp_path / "e"]).told
    assert (told["limit"], told["cause"]) == ("receiver_window", cause)


def rewrite(path: Path, **columns: pl.Expr) -> None:
    """A file of samples with other columns."""
    frame = pl.read_ipc_stream(path)
    write_table(path, "tcp_samples", frame.with_columns(one.alias(name) for name, one in columns.items()))


def test_alternating_limits_are_inconclusive(tmp_path: Path) -> None:
    MadePath().write(tmp_path)
    path = tmp_path / "t" / "records" / "tcp_samples-tcplog-000.arrow"
    kind = (pl.col("time_ns") // 4_000_000 % 2).replace_strict({0: "receiver", 1: "buffer"}, return_dtype=pl.String)
    rewrite(path, limited_by=kind)
    told = explain(tmp_path / "t", 1, AT_NS, Chosen(), [tmp_path / "e"]).told
    assert (told["limit"], told["cause"]) == ("inconclusive", "inconclusive")
    assert "no limit held" in told["sentences"][0]["text"]


def test_a_gap_in_the_log_is_inconclusive(tmp_path: Path) -> None:
    PATHS["lossy link"][0].write(tmp_path)
    for at_ns, limit in ((START + AT_NS, "inconclusive"), (START + 3 * AT_NS // 2, "congestion_window")):
        gap = {"cpu": 0, "number": 5, "missing": 7, "after_ns": at_ns, "before_ns": at_ns + 1000}
        write_table_of(tmp_path / "t" / "records" / "tcp_gaps-tcplog-000.arrow", [gap], "tcp_gaps")
        told = explain(tmp_path / "t", 1, AT_NS, Chosen(), [tmp_path / "e"]).told
        assert told["limit"] == limit
        assert ("lacks 7 records" in told["sentences"][0]["text"]) is (limit == "inconclusive")


def test_dispositions_of_packets_in_flight_add_up(tmp_path: Path) -> None:
    """With 2 ms between segments and 20.6 ms to an acknowledgement; all behind one that is lost wait for it."""
    made = MadePath(lost={295: "full"})
    told = answer(made, tmp_path, 300 * 2_000_000 + 1_000_000)
    fate = told["in_flight"]
    flying = [one for one in range(250, 301) if acked_ns(made, one) > told["at_ns"]]
    assert fate["segments"] == len(flying)
    assert (fate["lost"], fate["received"], fate["unknown"], fate["retransmitted"]) == (1, len(flying) - 1, 0, 1)
    assert fate["segments"] == sum(fate[name] for name in ("lost", "received", "acknowledged", "unknown"))
    assert fate["waited_ms"] == pytest.approx(0.6)
    texts = " ".join(one["text"] for one in told["sentences"])
    assert "because the queue was full" in texts
    assert f"{3 * made.rtt_ns / 1e6:.1f} ms after they had been sent first" in texts


def acked_ns(made: MadePath, segment: int) -> int:
    """Where nothing before it is missing; all behind a loss waits for its retransmission."""
    at = made.sent_ns(segment) + (0 if segment not in made.lost else 3 * made.rtt_ns)
    waiting = [one for one in made.lost if one <= segment]
    first = max([at, *(made.sent_ns(one) + 3 * made.rtt_ns for one in waiting if one > 250)])
    return first + made.rtt_ns + made.wait(segment)


def test_rows_cited_by_a_sentence_are_its_evidence(tmp_path: Path) -> None:
    told = answer(PATHS["lossy link"][0], tmp_path)
    [of_losses] = [one for one in told["sentences"] if one["text"].startswith("Losses set")]
    [rows] = of_losses["records"]
    packets = pl.read_ipc_stream(rows["file"])
    before = packets.filter(pl.col("disposition") == "lost")["number"]
    first, _, last = rows["rows"].removeprefix("number ").partition(" (")[0].partition(" to ")
    assert before.min() == int(first)
    assert before.max() == int(last)
    assert f"{before.len()} of them" in rows["rows"]


def test_answer_is_one_paragraph_followed_by_its_rows(tmp_path: Path) -> None:
    PATHS["lossy link"][0].write(tmp_path)
    done = sojourn("why", str(tmp_path / "t"), "--at", "600ms", "--records", str(tmp_path / "e"))
    assert done.returncode == 0, done.stderr
    paragraph, _, notes = done.stdout.partition("\n  [1] ")
    assert "\n\n" not in paragraph
    assert paragraph.startswith("At 0.600 s of flow 1 (10.9.0.1:40000 → 10.9.0.2:5201): The congestion window limited")
    assert "tcp_samples-tcplog-000.arrow: cpu 0 number" in notes
    assert "packets-emulate-000.arrow: number" in notes
    other = sojourn(
        "why", str(tmp_path / "t"), "--flow", "2", "--at", "600ms", "--records", str(tmp_path / "e"), "--json"
    )
    told = printed("why", other.stdout)
    assert (told["cause"], told["sender_flow"]) == ("lossy_link", 1)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--at", "9s"), "--at 9s: flow 1 has samples from 0 s to 1.2"),
        (("--at", "2"), "--at 2: expected a time with its unit"),
        (("--at", "600ms", "--flow", "7"), "has no flow 7"),
        (("--at", "600ms", "--records", "/nowhere"), "/nowhere is no folder"),
    ],
)
def test_a_wrong_request_is_one_sentence(words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    MadePath().write(tmp_path)
    done = sojourn("why", str(tmp_path / "t"), *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_truncated_log_is_named(tmp_path: Path) -> None:
    PATHS["lossy link"][0].write(tmp_path)
    path = tmp_path / "t" / "records" / "tcp_samples-tcplog-000.arrow"
    path.write_bytes(path.read_bytes()[:-8])
    done = sojourn("why", str(tmp_path / "t"), "--at", "600ms")
    assert done.returncode == 4
    assert "tcp_samples-tcplog-000.arrow ends before its end" in done.stderr
