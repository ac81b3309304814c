"""What the tests' attacker replays: frames of sessions that are over, and never one that may still be counted."""

from __future__ import annotations

import random
import struct
import time

import pytest

from tests.net import attacker
from tests.net.attacked import Figure

KINDS = {"stream": b"SOJ3" + bytes(4), "probe": b"SOJ2"}


def frame(kind: str, session: int, seq: int) -> bytes:
    """A frame of a session."""
    begin = attacker.PLACES[kind][1]
    return bytes(begin) + KINDS[kind] + session.to_bytes(attacker.KEY_BYTES) + seq.to_bytes(30)


@pytest.mark.parametrize("kind", KINDS)
def test_frames_of_the_newest_session_are_not_replayed(kind: str) -> None:
    sessions = attacker.Sessions(kind)
    for session in range(1, 4):
        for seq in range(1000):
            sessions.take(frame(kind, session, seq))
            assert not [one for one in sessions.over if one == frame(kind, session, seq)]
    assert len(sessions.over) == attacker.MOST_REPLAYED
    of_two = [frame(kind, 2, seq) for seq in [*range(attacker.FIRST), *range(1000 - attacker.LAST_OF_ALL, 1000)]]
    assert sessions.over[: len(of_two)] == of_two, "its beginning and its end"


@pytest.mark.parametrize("kind", KINDS)
def test_replays_and_other_frames_begin_no_session(kind: str) -> None:
    sessions = attacker.Sessions(kind)
    for session in (1, 2):
        sessions.take(frame(kind, session, 0))
    for other in (frame(kind, 1, 0), b"", bytes(100), frame(kind, 3, 0)[: attacker.PLACES[kind][1] + 6]):
        sessions.take(other)
    sessions.take(frame(kind, 2, 1))
    assert sessions.over == [frame(kind, 1, 0)]


def test_sessions_with_an_early_frame_are_never_replayed() -> None:
    sessions = attacker.Sessions("probe")
    sessions.take(frame("probe", 1, 0), is_early=True)
    for session in (1, 2, 1, 3):
        sessions.take(frame("probe", session, 1))
    assert sessions.over == [frame("probe", 2, 1)]


def test_a_replayed_datagram_goes_to_the_port_that_its_receiver_has_now() -> None:
    asked = {"mac": attacker.OWN_MAC, "from": "10.0.0.1", "to": "10.0.0.2", "from_port": 7707}
    before, after = (attacker.udp(asked, port, b"reply") for port in (1000, 2000))
    assert attacker.to_port(before, 2000) == after
    assert attacker.to_port(bytes(60), 2000) == bytes(60)


def test_a_guessed_time_is_within_ten_microseconds_of_now() -> None:
    asked = {"mac": "02:77:00:00:0a:01", "from": "10.0.0.2", "to": "10.0.0.1", "from_port": 862, "port": 40_000}
    for seed in range(50):
        before = time.time_ns()
        packet = attacker.guessed_stamp(asked, random.Random(seed))[42:]
        after = time.time_ns()
        seconds, fraction = struct.unpack(">II", packet[28:36])
        guessed = (seconds - attacker.NTP_TO_UNIX_SECONDS) * 10**9 + (fraction * 10**9 >> 32)
        assert before - attacker.GUESSED_NS - 1 <= guessed <= after + attacker.GUESSED_NS
        assert len(packet) == 44


@pytest.mark.parametrize(
    ("under", "agrees"),
    [
        (Figure(104, 95, 113), True),
        (Figure(104, 70, 140), True),
        (Figure(130, 120, 140), False),
        (Figure(104, -900, 1100), False),
    ],
)
def test_figure_under_attack_is_near_the_quiet_one_and_not_much_less_certain(under: Figure, agrees: bool) -> None:
    assert under.agrees(Figure(100, 90, 110), Figure(101, 95, 107)) == agrees
