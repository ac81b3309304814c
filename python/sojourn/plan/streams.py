"""The sections [stream] and [trials] of every method that sends streams, and the ends that a bed needs for them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sojourn.devices import MOST_SENDERS
from sojourn.plan.ask import Ends
from sojourn.plan.rates import Rate, interval_rate, share
from sojourn.plan.rates import rate as a_rate
from sojourn.plan.rates import schedule as a_schedule
from sojourn.plan.section import HOUR_NS, key, only_one, section
from sojourn.plan.sizes import ENGINES
from sojourn.plan.values import duration, flag, list_of, one_of, text, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sojourn.plan.source import Table

SIZE_KEYS = ("frame_bytes", "payload_bytes")
RATE_KEYS = ("interval", "rate")
BYTES = list_of(whole(0, 100_000))
DEFAULT_SIZES = (64,)
"""User data that every engine supports."""

DEFAULT_RATE = Rate("pps", Decimal(1000))


@section
class StreamPlan:
    """The factors of streams, each a list; every combination is a cell."""

    ALTERNATIVES: ClassVar = (SIZE_KEYS, RATE_KEYS)
    kind: tuple[str, ...] = key(
        list_of(one_of("one-way", "ping-pong", "request-response", "answers")),
        ("one-way",),
        "one-way (a stream), ping-pong, request-response (closed loops), answers (of many to one request)",
    )
    engine: tuple[str, ...] = key(
        list_of(one_of(*ENGINES)), ("auto",), "auto (the best raw one here), packet, xdp, live, udp, udp6 or tcp"
    )
    frame_bytes: tuple[int, ...] | None = key(BYTES, None, "Ethernet frame with its FCS")
    payload_bytes: tuple[int, ...] | None = key(BYTES, None, "user data")
    schedule: tuple[str, ...] = key(
        list_of(a_schedule()), ("regular",), "regular, poisson, flood, burst:N or ramp:FROM-TO"
    )
    interval: tuple[Rate, ...] | None = key(
        list_of(interval_rate(duration(100, HOUR_NS))), None, "mean time between frames, of all senders together"
    )
    rate: tuple[Rate, ...] | None = key(
        list_of(a_rate(sizes=True)),
        None,
        "or their mean rate: frames a second, bits of frames a second, or a share of the path's own throughput; for "
        "one size alone 10Mbit/s at 64",
    )
    to: tuple[str, ...] = key(
        list_of(one_of("unicast", "broadcast", "multicast", "unknown")),
        ("unicast",),
        "unicast, broadcast, multicast, or unknown: an address that nobody has, so a bridge floods it",
    )
    senders: tuple[int, ...] = key(list_of(whole(1, MOST_SENDERS)), (1,), "ports that send into one")
    marks: tuple[int, ...] = key(
        list_of(whole(0, 63), may_be_empty=True),
        (),
        "DSCPs of senders that share one port, each with a UDP flow of its own",
        quiet=True,
    )
    walk: int = key(
        whole(0, 1000),
        0,
        "whole intervals by which each sender falls behind the one before it in a trial, so that the phase between "
        "them takes every value; 0: all have one interval",
        quiet=True,
    )
    receivers: tuple[int, ...] = key(
        list_of(whole(0, MOST_SENDERS - 1)), (0,), "further receivers of the group, besides the one that is measured"
    )
    load: tuple[float, ...] = key(
        list_of(share()), (0.0,), ("share of the device's throughput that other pairs of ports use")
    )
    load_via: tuple[str, ...] = key(
        list_of(one_of("through", "beside")),
        ("through",),
        "through the device, or past it over the bypass (the bypass load)",
    )
    load_frame_bytes: int = key(whole(64, 100_000), 1518, "frames of the load")
    load_schedule: str = key(a_schedule(), "regular", "departures of the load")
    request_payload_bytes: int = key(whole(40, 65_000), 64, "the fixed request of request-response and answers")
    vlan: int | None = key(whole(0, 4094), None, "802.1Q tag; 0 is a priority tag")
    pcp: int | None = key(whole(0, 7), None, "priority in the tag")
    """None with a tag means priority 0. Without a tag it stays None, because a value would add a tag."""
    dscp: int = key(whole(0, 63), 0, "differentiated services code point of UDP")
    late_after_ns: int = key(duration(1_000, HOUR_NS), 1_000_000_000, "a frame that comes later counts as late")
    pipe: tuple[str, ...] = key(
        list_of(text()),
        ("",),
        'configurations of pipes of the emulators: "delay 1ms", "loss 5%"; other paths ignore them',
        quiet=True,
    )
    """The configuration of a path's emulators before a trial; "" does not change it."""

    @property
    def size_key(self) -> Literal["payload_bytes", "frame_bytes"]:
        """The size key that has a value."""
        return "payload_bytes" if self.frame_bytes is None else "frame_bytes"

    @property
    def sizes(self) -> tuple[int, ...]:
        """The values of this key."""
        found: tuple[int, ...] = getattr(self, self.size_key)
        return found

    @property
    def rate_key(self) -> Literal["interval", "rate"]:
        """Whether the load was given as a time between frames or as a rate."""
        return "rate" if self.interval is None else "interval"

    @property
    def rates(self) -> tuple[Rate, ...]:
        """Mean rates of all senders together."""
        found: tuple[Rate, ...] = getattr(self, self.rate_key)
        return found

    @staticmethod
    def resolve(values: dict[str, Any], table: Table, name: str) -> dict[str, Any]:
        """Resolve the size key, and either intervals or rates."""
        del name
        if only_one(values, SIZE_KEYS, "stream", table) is None:
            values["payload_bytes"] = DEFAULT_SIZES
        if only_one(values, RATE_KEYS, "stream", table) is None:
            values["rate"] = (DEFAULT_RATE,)
        return values


@section
class TrialsPlan:
    """Repetitions and duration of each cell's trials, and their order."""

    rounds: int = key(whole(1, 100_000), 6, "visits to each cell, each with every path twice")
    duration_ns: int = key(duration(1_000_000, HOUR_NS), 1_000_000_000, "of one trial")
    count_at_most: int | None = key(whole(1, 1_000_000_000), None, "frames of one sender in a trial")
    probes: int = key(whole(2, 10_000_000), 500, "of a closed loop's trial, which has no duration")
    grace_ns: int = key(duration(1_000, HOUR_NS), 20_000_000, "grace period: wait for frames that are still in flight")
    grace_ends: Literal["after", "accounted"] = key(
        one_of("after", "accounted"), "after", "accounted: once every frame has arrived or is counted as dropped"
    )
    at_most_ns: int | None = key(
        duration(1_000_000, 1000 * HOUR_NS), None, "time limit: measuring ends after the last whole round within it"
    )
    seed: int = key(whole(0, 2**62), 1, "of every random order")
    a_a: bool = key(flag(), False, "the direct link measured against itself")  # noqa: FBT003
    qualify: bool = key(flag(), True, "the tester measured on the direct link first")  # noqa: FBT003
    keep: Literal["auto", "packets", "histograms"] = key(
        one_of("auto", "packets", "histograms"), "auto", "what is recorded; auto: packets up to a million a trial"
    )


def ends(sections: Mapping[str, Any]) -> Ends:
    """Return the ends that streams need: a load through the device uses a pair of its own."""
    stream: StreamPlan = sections["stream"]
    loaded = any(stream.load)
    through = 1 if loaded and "through" in stream.load_via else 0
    near = 1 if stream.marks else max(stream.senders)
    return Ends(near + through, 1 + max(stream.receivers) + through, loaded and "beside" in stream.load_via)
