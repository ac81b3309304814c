"""One flow of a log that was made up: its packets by the law of its congestion control, and TCP's state at each.

A sender takes a round trip after the other: it sends a congestion window of segments and has every second one
acknowledged a round trip later; where the window is more than the path holds, one segment is lost, found lost in the
next round and sent again, and the window is reduced. All times, numbers and windows follow from that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

INFINITE = 2_147_483_647
CUBIC_C = 0.4
CUBIC_BETA = 717 / 1024
HEADERS = {4: 20, 6: 40}
TCP_HEADER = 32
SYN, ACK, PSH_ACK, FIN_ACK, SYN_ACK = 0x002, 0x010, 0x018, 0x011, 0x012
ESTABLISHED, SYN_SENT, FIN_WAIT1 = 1, 2, 4
FLAGS = 0b1000_0000_1111
"""Timestamps, SACK, window scaling, DSACK, limited by the application."""


@dataclass(frozen=True)
class MadeFlow:
    """A flow: its ends, its path (RTT without a queue, segments on the wire and in the queue) and how long it lasts.

    `role` receiver logs the other end: data come in, acknowledgements go out. `isn` near 2³² wraps soon.
    """

    algorithm: str = "reno"
    rounds: int = 60
    rtt_ns: int = 20_000_000
    pipe: int = 40
    """Segments that the path holds without a queue."""
    queue: int = 20
    mss: int = 1448
    segments: int = 1
    """Of each packet of data (GSO)."""
    family: int = 4
    role: str = "sender"
    isn: int = 1_000_000
    local_port: int = 40_000
    remote_port: int = 5201
    step: int = 1
    """By how much the local port of each further flow is higher."""
    command: str = "iperf3"
    handshake: bool = True
    closed: bool = True

    @property
    def local_address(self) -> str:
        """Our end."""
        return "10.0.0.1" if self.family == 4 else "fd00::1"

    @property
    def remote_address(self) -> str:
        """The peer."""
        return "10.0.0.2" if self.family == 4 else "fd00::2"


@dataclass
class FlowTruth:
    """What was true: a value for each round trip, then one for each packet."""

    cwnd: Ints
    ssthresh: Ints
    rtt_ns: Ints
    start_ns: Ints
    lost: NDArray[np.bool_]
    """Whether a segment of this round was lost; it is sent again first thing in the next."""
    packet_ns: Ints
    is_out: NDArray[np.bool_]
    is_data: NDArray[np.bool_]
    is_again: NDArray[np.bool_]
    """Sent again."""
    of_round: Ints
    sent: Ints
    """Segments that were sent before this packet, each once."""
    acked: Ints
    """Segments that were acknowledged before this packet."""
    acks: Ints
    """Segments that this packet acknowledges in all, where it is an acknowledgement."""

    @property
    def retransmitted_ns(self) -> Ints:
        """When segments were sent again."""
        return self.packet_ns[self.is_again]


def packets_of(flow: MadeFlow, start_ns: int, rng: np.random.Generator) -> FlowTruth:
    """The rounds, and the packets in them in the order of time."""
    cwnd, ssthresh, rtt, lost = _rounds(flow, rng)
    start = start_ns + np.concatenate([[0], np.cumsum(rtt)[:-1]]) + flow.rtt_ns
    again = np.concatenate([[False], lost[:-1]])
    # New segments of each round, and acknowledgements: of the round before, every second one.
    data = cwnd - again
    before = np.concatenate([[0], data[:-1]])
    acks = -(-before // 2)
    of_data = np.repeat(np.arange(flow.rounds), cwnd)
    of_acks = np.repeat(np.arange(flow.rounds), acks)
    place = np.arange(len(of_data)) - np.repeat(np.cumsum(cwnd) - cwnd, cwnd)
    turn = np.arange(len(of_acks)) - np.repeat(np.cumsum(acks) - acks, acks)
    data_ns = start[of_data] + ((place + 0.5) * rtt[of_data] / cwnd[of_data]).astype(np.int64)
    acks_ns = start[of_acks] + ((turn + 0.3) * rtt[of_acks] / acks[of_acks]).astype(np.int64)
    is_again = again[of_data] & (place == 0)
    covered = np.concatenate([[0], np.cumsum(before)[:-1]])[of_acks] + np.minimum(2 * (turn + 1), before[of_acks])
    at = np.concatenate([data_ns, acks_ns])
    order = np.argsort(at, kind="stable")
    is_data = (np.arange(len(at)) < len(data_ns))[order]
    new = np.concatenate([~is_again, np.zeros(len(acks_ns), np.bool_)])[order]
    ack = np.concatenate([np.zeros(len(data_ns), np.int64), covered])[order]
    acked = np.maximum.accumulate(ack)
    return FlowTruth(
        cwnd,
        ssthresh,
        rtt,
        start,
        lost,
        at[order],
        is_data if flow.role == "sender" else ~is_data,
        is_data,
        np.concatenate([is_again, np.zeros(len(acks_ns), np.bool_)])[order],
        np.concatenate([of_data, of_acks])[order],
        np.cumsum(new) - new,
        np.concatenate([[0], acked[:-1]]),
        ack,
    )


def _rounds(flow: MadeFlow, rng: np.random.Generator) -> tuple[Ints, Ints, Ints, NDArray[np.bool_]]:
    """The window of each round trip by the law of the algorithm; a path that is full loses one segment."""
    cwnd, ssthresh, reduced_from, since_s = 10.0, float(INFINITE), 0.0, 0.0
    rows = []
    for _ in range(flow.rounds):
        queue_ns = max(0.0, cwnd / flow.pipe - 1.0) * flow.rtt_ns
        rtt = int(flow.rtt_ns + queue_ns + rng.gamma(2.0, 20_000.0))
        full = cwnd > flow.pipe + flow.queue
        rows.append((int(cwnd), int(ssthresh), rtt, full))
        since_s += rtt / 1e9
        if full:
            reduced_from, since_s = cwnd, 0.0
            cwnd = ssthresh = float(int(cwnd * (CUBIC_BETA if flow.algorithm == "cubic" else 0.5)))
        elif cwnd < ssthresh:
            cwnd = min(cwnd * 2, ssthresh)
        elif flow.algorithm == "cubic":
            k = np.cbrt(reduced_from * (1 - CUBIC_BETA) / CUBIC_C)
            cwnd = max(cwnd, CUBIC_C * (since_s - k) ** 3 + reduced_from)
        else:
            cwnd += 1
    cwnds, thresholds, rtts, lost = zip(*rows, strict=True)
    return np.array(cwnds), np.array(thresholds), np.array(rtts), np.array(lost)


def samples_of(flow: MadeFlow, truth: FlowTruth, rng: np.random.Generator) -> pl.DataFrame:
    """Every sample that could be taken of the flow, in the order of time: of packets and after the fact."""
    frame = _state(flow, truth, rng)
    if flow.handshake:
        frame = pl.concat([_handshake(flow, truth, frame), frame])
    if flow.closed:
        frame = pl.concat([frame, _closing(flow, frame)])
    number = pl.int_range(pl.len(), dtype=pl.Int64).alias("packet")
    frame = frame.with_columns(number, pl.lit(None, pl.Int64).alias("before"))
    return pl.concat([frame, *_after(frame)]).sort("time_ns", maintain_order=True)


def _state(flow: MadeFlow, truth: FlowTruth, rng: np.random.Generator) -> pl.DataFrame:
    """The packets between handshake and end, and TCP's state before each."""
    n = len(truth.packet_ns)
    of = truth.of_round
    is_sender = flow.role == "sender"
    step = flow.mss * flow.segments
    ours, theirs = (flow.isn + 1, 5_000_001) if is_sender else (5_000_001, flow.isn + 1)
    sent, acked = truth.sent * step, truth.acked * step
    again = np.concatenate([[False], truth.lost[:-1]])[of]
    rtt_us = truth.rtt_ns[of] // 1000
    smoothed = _smoothed(truth.rtt_ns / 1000.0)[of]
    payload = np.where(truth.is_data, step, 0)
    seq = np.where(truth.is_data, flow.isn + 1 + np.where(truth.is_again, acked, sent), 5_000_001)
    ack = np.where(truth.is_data, 5_000_001, flow.isn + 1 + truth.acks * step)
    flight = sent - acked if is_sender else np.zeros(n, np.int64)
    resent: Ints = np.cumsum(truth.is_again) - truth.is_again
    cwnd = truth.cwnd[of] * flow.segments if is_sender else np.full(n, 10)
    segments_sent = truth.sent * flow.segments
    packets_out = flight // flow.mss
    rate = np.where(is_sender, truth.cwnd[of] * step * 8e6 / rtt_us, 0.0)
    busy = (truth.packet_ns - truth.packet_ns[0]) // 4_000_000 * 4000
    received = np.zeros(n, np.int64) if is_sender else sent
    columns = {
        "time_ns": truth.packet_ns,
        "point": np.where(truth.is_out, "out", "in"),
        "seq": seq % 2**32,
        "ack": ack % 2**32,
        "tcp_flags": np.where(truth.is_data & (truth.sent % 7 == 0), PSH_ACK, ACK),
        "window": np.where(truth.is_data, 502, 6000),
        "packet_bytes": payload + (HEADERS[flow.family] + TCP_HEADER) * np.where(truth.is_data, flow.segments, 1),
        "payload_bytes": payload,
        "segments": np.where(truth.is_data, flow.segments, 1),
        "ip_id": (np.arange(n) * 3 + 17) % 65536 if flow.family == 4 else np.zeros(n, np.int64),
        "tos": np.zeros(n, np.int64),
        "state": np.full(n, ESTABLISHED),
        "snd_cwnd": cwnd,
        "snd_ssthresh": _scaled(truth.ssthresh[of], flow.segments) if is_sender else np.full(n, INFINITE),
        "mss_bytes": np.full(n, flow.mss),
        "snd_wnd_bytes": np.full(n, 3_000_000),
        "rcv_wnd_bytes": np.full(n, 64_256),
        "snd_wscale": np.full(n, 7),
        "rcv_wscale": np.full(n, 7),
        "srtt_us": np.round(smoothed * 8) / 8,
        "rto_us": np.maximum(204_000, (smoothed + 200_000) // 4000 * 4000).astype(np.int64),
        "sndbuf_bytes": np.full(n, 2_626_560),
        "snd_queued_bytes": flight + step if is_sender else np.zeros(n, np.int64),
        "rcvbuf_bytes": np.full(n, 131_072),
        "rcv_queued_bytes": np.zeros(n, np.int64),
        "in_flight_bytes": flight,
        "flags": np.full(n, FLAGS),
        "snd_una": (ours + (acked if is_sender else 0)) % 2**32 + np.zeros(n, np.int64),
        "snd_nxt": (ours + (sent if is_sender else 0)) % 2**32 + np.zeros(n, np.int64),
        "rcv_nxt": (theirs + received) % 2**32,
        "ca_state": np.where(again & is_sender, 3, 0),
        "snd_cwnd_cnt": np.zeros(n, np.int64),
        "prior_cwnd": _prior(truth)[of] * flow.segments,
        "pacing_rate_bps": (rate * 1.2).astype(np.int64),
        "packets_out": packets_out,
        "sacked_out": np.where(again & is_sender, np.minimum(3, packets_out), 0),
        "lost_out": np.where(again & is_sender, 1, 0),
        "retrans_out": np.where(again & is_sender & ~truth.is_again, 1, 0),
        "total_retrans": resent * is_sender,
        "lost": (resent + truth.is_again) * is_sender,
        "delivered": truth.acked * flow.segments * is_sender,
        "delivered_ce": np.zeros(n, np.int64),
        "received_ce": np.zeros(n, np.int64),
        "delivery_rate_bps": rate,
        "reordering": np.full(n, 3),
        "reord_seen": np.zeros(n, np.int64),
        "dsack_dups": np.zeros(n, np.int64),
        "total_rto": np.zeros(n, np.int64),
        "backoff": np.zeros(n, np.int64),
        "retransmits": np.zeros(n, np.int64),
        "probes_out": np.zeros(n, np.int64),
        "rtt_last_us": np.maximum(1, rtt_us + rng.integers(-50, 50, n)),
        "rtt_min_us": np.minimum.accumulate(truth.rtt_ns // 1000)[of],
        "rttvar_us": np.round(np.maximum(50_000.0, smoothed / 4) * 4) / 4,
        "mdev_us": np.round(smoothed / 8 * 4) / 4,
        "rcv_rtt_us": np.zeros(n, np.float64),
        "limited_by": np.full(n, "busy" if is_sender else "idle"),
        "busy_us": busy * is_sender,
        "receiver_limited_us": np.zeros(n, np.int64),
        "buffer_limited_us": np.zeros(n, np.int64),
        "snd_memory_bytes": flight // step * (step + 832),
        "rcv_memory_bytes": np.zeros(n, np.int64),
        "rcv_ssthresh_bytes": np.full(n, 64_076),
        "rcv_space_bytes": np.full(n, 14_600),
        "rcv_ooopack": np.zeros(n, np.int64),
        "num_sacks": np.zeros(n, np.int64),
        "advmss_bytes": np.full(n, flow.mss),
        "sent_bytes": (sent + resent * step) * is_sender,
        "acked_bytes": acked * is_sender,
        "received_bytes": received,
        "retransmitted_bytes": resent * step * is_sender,
        "segs_in": np.cumsum(~truth.is_out) - ~truth.is_out + 1,
        "segs_out": segments_sent * is_sender + 2,
        "data_segs_in": (received // flow.mss),
        "data_segs_out": (segments_sent + resent) * is_sender,
    }
    return pl.DataFrame(columns)


def _scaled(threshold: Ints, segments: int) -> Ints:
    return np.where(threshold == INFINITE, INFINITE, threshold * segments)


def _smoothed(rtt_us: NDArray[np.float64]) -> NDArray[np.float64]:
    """RFC 6298's average, a step a round trip."""
    values = [rtt_us[0]]
    for one in rtt_us[1:]:
        values.append(values[-1] * 7 / 8 + one / 8)
    return np.array(values)


def _prior(truth: FlowTruth) -> Ints:
    """The window before the last reduction, of each round."""
    lost = np.concatenate([[0], np.where(truth.lost, truth.cwnd, 0)[:-1]])
    place = np.maximum.accumulate(np.where(lost > 0, np.arange(len(lost)), 0))
    return lost[place]


def _handshake(flow: MadeFlow, truth: FlowTruth, frame: pl.DataFrame) -> pl.DataFrame:
    """Three packets before all others, without data."""
    is_sender = flow.role == "sender"
    first = frame.head(1)
    at = int(truth.packet_ns[0]) - flow.rtt_ns
    ways = ["out", "in", "out"] if is_sender else ["in", "out", "in"]
    mine, other = flow.isn, 5_000_000
    rows = pl.DataFrame(
        {
            "time_ns": [at - 1000, at + flow.rtt_ns - 200_000, at + flow.rtt_ns - 190_000],
            "point": ways,
            "seq": [mine, other, (mine + 1) % 2**32],
            "ack": [0, (mine + 1) % 2**32, other + 1],
            "tcp_flags": [SYN, SYN_ACK, ACK],
            "state": [SYN_SENT, SYN_SENT, ESTABLISHED] if is_sender else [10, 3, 3],
            "snd_cwnd": [10, 10, 10],
            "in_flight_bytes": [0, 0, 0],
        }
    )
    return _bare(first, rows)


def _closing(flow: MadeFlow, frame: pl.DataFrame) -> pl.DataFrame:
    """Our FIN and the peer's, after all others."""
    last = frame.tail(1)
    at = int(last["time_ns"][0])
    rows = pl.DataFrame(
        {
            "time_ns": [at + 10_000, at + 10_000 + flow.rtt_ns],
            "point": ["out", "in"],
            "seq": [int(last["snd_nxt"][0]), int(last["rcv_nxt"][0])],
            "ack": [int(last["rcv_nxt"][0]), int(last["snd_nxt"][0])],
            "tcp_flags": [FIN_ACK, FIN_ACK],
            "state": [FIN_WAIT1, FIN_WAIT1],
        }
    )
    return _bare(last, rows)


def _bare(like: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Packets without data in the state of `like`, but for the columns that `rows` has."""
    bytes_of = int(like["packet_bytes"][0]) - int(like["payload_bytes"][0])
    bare = {"payload_bytes": 0, "packet_bytes": bytes_of // int(like["segments"][0]), "segments": 1}
    other = like.with_columns(pl.lit(value).alias(name) for name, value in bare.items()).drop(rows.columns)
    whole = rows.join(other, how="cross").select(like.columns)
    return whole.cast(like.schema)


def _after(frame: pl.DataFrame) -> list[pl.DataFrame]:
    """What the kernel tells after the fact: RTT samples, retransmissions, changes of state and of recovery."""
    packet = (
        "packet",
        "seq",
        "ack",
        "tcp_flags",
        "window",
        "packet_bytes",
        "payload_bytes",
        "segments",
        "ip_id",
        "tos",
    )
    none = [pl.lit(None, frame.schema[name]).alias(name) for name in packet]

    def event(rows: pl.DataFrame, point: str, later_ns: int, before: pl.Expr) -> pl.DataFrame:
        """The state of these packets a little later."""
        at = pl.col("time_ns") + later_ns
        was = before.cast(pl.Int64).alias("before")
        return rows.with_columns(at, pl.lit(point).alias("point"), was, *none).select(frame.columns)

    nothing = pl.lit(None, pl.Int64)
    acks = frame.filter(pl.col("point") == "in", pl.col("state") == ESTABLISHED, pl.col("payload_bytes") == 0)
    again = frame.filter(pl.col("total_retrans").shift(-1) > pl.col("total_retrans"))
    recovery = frame.with_columns(pl.col("ca_state").shift(1).alias("was")).filter(pl.col("ca_state") != pl.col("was"))
    states = frame.with_columns(pl.col("state").shift(1).alias("was")).filter(pl.col("state") != pl.col("was"))
    destroyed = frame.tail(1).with_columns(pl.lit(7, pl.Int64).alias("state"))
    return [
        event(acks, "rtt", 3_000, nothing),
        event(again, "retransmit", 1_000, nothing),
        event(recovery, "recovery", -500, pl.col("was")),
        event(states, "state", -700, pl.col("was")),
        event(destroyed, "destroy", 1_000, nothing),
    ]
