"""Readings of TCP_INFO find their packet's sample, captures the log's packets, and faults are found."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis.tcp_trials import Done
from sojourn.instruments.tcp_capture import read_segments
from sojourn.methods.tcp_truth.analyse import Found, _of_direction, oracle, witness

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
COOKIE = 77
STATE = {name: 5 for name, law in oracle.FIELDS.items() if law == oracle.SAME} | {
    "rto_us": 200_000,
    "srtt_us": 5.625,
    "mdev_us": 5.25,
    "rcv_rtt_us": None,
    "delivery_rate_bps": 8007.0,
    "rtt_min_us": None,
    "segs_out": 12,
    "sent_bytes": 1500,
    "data_segs_out": 7,
    "busy_us": 9000,
    "receiver_limited_us": 0,
    "buffer_limited_us": 0,
}
INFO = {**STATE, "srtt_us": 5, "mdev_us": 5, "rcv_rtt_us": 0, "delivery_rate_bps": 8000, "rtt_min_us": 4_294_967_295}
INFO |= {"segs_out": 10, "sent_bytes": 500, "data_segs_out": 5, "busy_us": 8000}


def readings(count: int) -> pl.DataFrame:
    """One every 20 ms, each before a send that takes 100 µs."""
    rows = [
        {"why": "send", "socket_cookie": COOKIE, "read_before_ns": at, "read_after_ns": at + 1000,
         "sent_ns": at + 100_000, "handed_bytes": 1000, **INFO}
        for at in (20 * MS * (place + 1) for place in range(count))
    ]  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)


def samples(count: int, extra: list[dict[str, Any]] | None = None) -> pl.DataFrame:
    """The packet of each send, and its acknowledgement half an interval later."""
    own = {"socket_cookie": COOKIE, "payload_bytes": 1000, "segments": 2, **STATE}
    rows = []
    for place in range(count):
        at = 20 * MS * (place + 1)
        rows += [{**own, "point": "out", "time_ns": at + 50_000}, {**own, "point": "in", "time_ns": at + 10 * MS}]
    return pl.DataFrame([*rows, *(own | one for one in extra or [])], infer_schema_length=None)


def test_samples_agree_with_tcp_info_in_a_constant_state() -> None:
    found = oracle.pairs(readings(5), samples(5))
    told = oracle.agreements(found, 4000.0)
    assert found.height == 5
    assert found["quiet"].all()
    assert {one.field for one in told} == set(oracle.FIELDS)
    assert all(one.agree == one.pairs == one.quiet == one.quiet_agree == 5 for one in told)


def test_event_between_readings_makes_a_moment_unquiet_not_wrong() -> None:
    moved = {"point": "in", "time_ns": 40 * MS + 20_000, "snd_cwnd": 6}
    out = {"point": "out", "time_ns": 40 * MS + 49_000, "snd_cwnd": 6}
    told = oracle.agreements(oracle.pairs(readings(3), samples(3, [moved, out])), 4000.0)
    window = next(one for one in told if one.field == "snd_cwnd")
    assert (window.pairs, window.agree, window.quiet, window.quiet_agree) == (3, 2, 2, 2)


def test_a_wrong_field_is_found_at_a_quiet_moment() -> None:
    wrong = samples(4).with_columns(pl.col("rto_us") + 1)
    told = {one.field: one for one in oracle.agreements(oracle.pairs(readings(4), wrong), 4000.0)}
    assert told["rto_us"].quiet == 4
    assert told["rto_us"].quiet_agree == 0
    assert told["snd_cwnd"].quiet_agree == 4


def test_cwnd_restart_after_idle_is_not_an_error_of_the_log() -> None:
    """The kernel halves it as the application writes (RFC 5681, 4.1): after the reading, and before the packet.

    Here the RTO is 40 ms and the last of four sends is 25 ms later than it would be: a busy machine held it back.
    """
    late, has_rto = pl.col("read_before_ns") > 75 * MS, pl.lit(40_000).alias("rto_us")
    held = [(pl.col(name) + pl.when(late).then(25 * MS).otherwise(0)).alias(name)
            for name in ("read_before_ns", "read_after_ns", "sent_ns")]  # fmt: skip
    last = pl.col("time_ns") > 75 * MS
    logged = samples(4).with_columns(
        has_rto,
        (pl.col("time_ns") + pl.when(last).then(25 * MS).otherwise(0)).alias("time_ns"),
        pl.when(last).then(2).otherwise(pl.col("snd_cwnd")).alias("snd_cwnd"),
    )
    told = oracle.agreements(oracle.pairs(readings(4).with_columns(has_rto, *held), logged), 4000.0)
    window = next(one for one in told if one.field == "snd_cwnd")
    assert (window.pairs, window.agree, window.quiet, window.quiet_agree) == (4, 3, 3, 3)


def test_send_call_without_a_packet_has_no_pair() -> None:
    late = readings(2).with_columns(pl.col("sent_ns") - 90_000)
    assert oracle.pairs(late, samples(2)).is_empty()


def test_agreements_of_several_trials_are_added() -> None:
    told = oracle.agreements(oracle.pairs(readings(5), samples(5)), 4000.0)
    both = oracle.pooled([told, told])
    assert len(both) == len(told)
    assert all(one.pairs == 10 for one in both)


def packets(count: int, *, lag: int = 700) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The log's and the capture's packets of one connection on the way out; every tenth is sent twice."""
    header = dict.fromkeys(("local_port", "remote_port", "ack", "tcp_flags", "window"), 9) | {"cpu": 0}
    rows = [header | {"seq": place - (place % 10 == 9), "packet_bytes": 1500, "payload_bytes": 1448, "point": "out",
                      "direction": "out", "time_ns": 1000 * place, "captured_ns": 1000 * place + lag}
            for place in range(count)]  # fmt: skip
    frame = pl.DataFrame(rows)
    return frame.drop("direction", "captured_ns"), frame.drop("point", "time_ns", "cpu")


def test_packets_match_also_with_repeated_headers() -> None:
    out, into = witness.compare(*packets(100))
    assert (out.logged, out.captured, out.matched, out.swapped, out.too_early) == (100, 100, 100, 0, 0)
    assert set(out.apart_ns.tolist()) == {700}
    assert (into.logged, into.captured) == (0, 0)


def test_missing_swapped_and_early_packets_are_counted() -> None:
    logged, captured = packets(100)
    assert witness.compare(logged.filter(pl.col("seq") != 42), captured)[0].only_captured == 1
    assert witness.compare(logged, captured.filter(pl.col("seq") != 42))[0].only_logged == 1
    later = pl.when(pl.col("seq") == 42).then(pl.col("time_ns") + 1500).otherwise("time_ns")
    moved = witness.compare(logged.with_columns(later.alias("time_ns")), captured)[0]
    assert moved.swapped == 1
    elsewhere = logged.with_columns(cpu=(pl.col("seq") == 42).cast(pl.Int64), time_ns=later)
    assert witness.compare(elsewhere, captured)[0].swapped == 0, "packets processed by another CPU may be reordered"
    assert witness.compare(*packets(50, lag=-5000))[0].too_early == 50


def test_a_captured_packet_is_read_by_its_headers(tmp_path: Path) -> None:
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 52 + 2000, 7, 0, 64, 6, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
    tcp = struct.pack("!HHIIHHHH", 40_000, 20_000, 4_000_000_000, 5, 8 << 12 | 0x018, 501, 0, 0) + bytes(12)
    frame = bytes(12) + b"\x08\x00" + ip + tcp
    record = struct.pack("<IIII", 1_700_000_000, 123_456_789, len(frame), 2066) + frame
    path = tmp_path / "capture.pcap"
    path.write_bytes(struct.pack("<IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 128, 1) + record + record[:20])
    (row,) = read_segments(path, 20_000, 3, 37_000_000_000)
    assert row["captured_ns"] % 1_000_000_000 == 123_456_789
    assert (row["block"], row["direction"], row["local_port"], row["remote_port"]) == (3, "out", 40_000, 20_000)
    assert (row["seq"], row["ack"], row["tcp_flags"], row["window"]) == (4_000_000_000, 5, 0x018, 501)
    assert (row["packet_bytes"], row["payload_bytes"]) == (2052, 2000)


@pytest.mark.parametrize(("skipped", "verdict"), [(0, "fail"), (1, "inconclusive")])
def test_order_next_to_skipped_packets_is_unknown(skipped: int, verdict: str) -> None:
    done = Done(0, "messages", 0, "reno", "delay 2ms", "emulate", 0, "on", (), None, 0)
    found, compared = Found(), witness.Compared("out", 10, 10, 10, 2, np.zeros(10, dtype=np.int64))
    _of_direction(found, done, [compared], (skipped, 0))
    verdicts = {one["check"]: one["verdict"] for one in found.checks.answered()}
    assert verdicts["packets out, order"] == verdict
    assert verdicts["packets out, missing"] == "pass"
