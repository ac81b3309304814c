"""The leading figures of a run, which two runs are compared by and the history keeps; and which direction is better.

Each has one line: its name for people. All other figures of results.json are compared too, but do not decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

A_A = "a/a"
"""The control: both of its paths are the direct link, so neither sign of a difference is better."""

Direction = Literal["less", "more"]


@dataclass(frozen=True, slots=True)
class Leading:
    """The name of a figure for people, and which part it is: "all cells", "at least"."""

    name: str
    part: str = ""


LEADING: dict[tuple[str, str], Leading] = {
    ("device_latency", "pooled"): Leading("latency", "all cells"),
    ("device_latency", "mean"): Leading("latency"),
    ("latency_intercept", "fit"): Leading("latency at 0 bytes"),
    ("latency_slope", "fit"): Leading("latency per byte"),
    ("resolution", "pooled"): Leading("what the bed can resolve"),
    ("rtt", "mean"): Leading("mean round trip"),
    ("latency_under_load", "mean"): Leading("latency under load"),
    ("goodput", "down"): Leading("goodput", "down"),
    ("goodput", "up"): Leading("goodput", "up"),
    ("one_way_delay", "p50"): Leading("median one-way delay"),
    ("delay_spread", "sd"): Leading("delay spread"),
    ("emulated_delay_error", "mean"): Leading("error of the emulated delay"),
    ("throughput_pps", "mean"): Leading("throughput"),
    ("throughput_pps", "at_least"): Leading("throughput", "at least"),
    ("ndr", "rate"): Leading("no-drop rate"),
    ("pdr", "rate"): Leading("partial-drop rate"),
    ("loss_ratio", "ratio"): Leading("loss"),
    ("min_frame_interval", "sustained"): Leading("least time between frames"),
    ("latency_store_and_forward", "p50"): Leading("latency, store and forward"),
    ("latency_bit_forwarding", "p50"): Leading("latency, bit forwarding"),
    ("throughput_ratio", "typical"): Leading("throughput with the log over without"),
    ("cpu_per_bit_ratio", "typical"): Leading("processor time with the log over without"),
    ("program_time", "in"): Leading("time of the log's program", "in"),
    ("program_time", "out"): Leading("time of the log's program", "out"),
}
"""The leading figures by quantity and statistic, in the order of reports."""

LESS_IS_BETTER = frozenset({
    "device_latency", "device_round_trip", "latency_request", "latency_reply", "latency_turnaround",
    "latency_intercept", "latency_slope",
    "latency_store_and_forward",
    "latency_bit_forwarding", "latency_worst", "rtt", "rtt_intended", "rtt_user", "rtt_shift", "one_way_delay",
    "one_way_delay_intended", "one_way_delay_shift", "response_latency", "response_latency_shift", "pdv",
    "delay_spread", "loss_ratio", "loss_shift", "duplicated", "reordered", "late", "corrupted", "local_drops",
    "min_frame_interval", "inter_frame_time", "inter_frame_intercept", "inter_frame_slope", "cpu_per_bit_ratio",
    "cpu_per_gbit", "program_time", "latency_under_load", "rtt_idle", "rtt_working", "rtt_increase", "retransmitted",
    "probe_loss", "queueing_delay", "convergence",
})  # fmt: skip

MORE_IS_BETTER = frozenset({
    "throughput", "throughput_pps", "throughput_bps", "l1_bps", "user_bps", "throughput_ratio", "throughput_pps_shift",
    "received_pps", "ndr", "pdr", "back_to_back_frames", "fairness", "queue_stable", "goodput",
    "utilisation", "responsiveness", "converged",
})  # fmt: skip


def leading_of(row: dict[str, Any]) -> Leading | None:
    """Return the leading figure of this row of results, or None."""
    return LEADING.get((str(row.get("quantity")), str(row.get("statistic"))))


def place_of(row: dict[str, Any]) -> int:
    """Return the position of a row among the leading figures; others are last."""
    keys = list(LEADING)
    key = (str(row.get("quantity")), str(row.get("statistic")))
    return keys.index(key) if key in LEADING else len(keys)


def direction_of(row: dict[str, Any]) -> Direction | None:
    """Return whether less or more is better; None where it is unknown."""
    if row.get("device") == A_A:
        return None
    quantity = row.get("quantity")
    return "less" if quantity in LESS_IS_BETTER else "more" if quantity in MORE_IS_BETTER else None
