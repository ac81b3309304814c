"""Rules between the values of a plan with streams: sizes, ends, addresses, loads and rates.

Each refusal names the key that a person most likely wants to change. What depends on the machine is not checked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from sojourn.plan.rates import BURST, ramp_ends
from sojourn.plan.sizes import ENGINES, ETHERNET, LEAST_FRAME, stream_frame, stream_overhead, stream_payload
from sojourn.plan.source import Given, refuse
from sojourn.plan.streams import ends

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.plan.ask import Lookup
    from sojourn.plan.rates import Rate
    from sojourn.plan.types import Plan

CLOSED = ("ping-pong", "request-response")
SWITCH = "a bridge in bed.devices, or a dut:<label> that has several ports at an end in the file of hosts"
MOST_FRAMES = 1_000_000_000
"""The maximum of `trials.count_at_most`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """The options of streams that a method supports."""

    kinds: tuple[str, ...] = ("one-way",)
    overload: bool = False
    """Whether it tests beyond what a device can carry."""
    tcp: bool = False
    """Whether it records the segments of messages over TCP."""


def check_streams(plan: Plan, given: Lookup, allowed: Allowed) -> None:
    """Raise the first refusal, if any."""
    check_frames(plan, given, tcp=allowed.tcp)
    check_kinds(plan, given, allowed.kinds)
    check_addresses(plan, given)
    check_ends(plan, given)
    check_loads(plan, given)
    check_schedules(plan, given)
    if not allowed.overload:
        check_rates(plan, given)


def check_frames(plan: Plan, given: Lookup, *, tcp: bool = False) -> None:
    """Check that the shaper passes the frames, and that the engines support them."""
    check_tcp(plan, given, is_seen=tcp)
    check_shaper(plan, given)
    check_sizes(plan, given)
    check_tags(plan, given)


def check_tcp(plan: Plan, given: Lookup, *, is_seen: bool) -> None:
    """Check messages over TCP: for methods that record segments, at a constant rate, between hosts of the bed."""
    stream, bed = plan.stream, plan.bed
    if "tcp" not in stream.engine:
        return
    if not is_seen:
        where = Given("tcp", given("stream.engine", "tcp").where)
        raise refuse(where, "stream.engine", "it with study.method = taps alone, which sees what each segment carries")
    alone = {"schedule": "regular", "to": "unicast", "senders": 1, "receivers": 0}
    for key, only in alone.items():
        for value in getattr(stream, key):
            if value != only:
                wanted = f'"{only}"' if isinstance(only, str) else only
                raise refuse(
                    Given(value, given(f"stream.{key}", value).where), f"stream.{key}", f"{wanted} with engine tcp"
                )
    if shares := [rate for rate in stream.rates if rate.share is not None]:
        where = Given(str(shares[0]), given("stream.rate", str(shares[0])).where)
        raise refuse(where, "stream.rate", "messages or bits per second with engine tcp")
    if bed.simulated:
        wanted = '"netns" or a file of real hosts with engine tcp: a simulated line carries no TCP'
        raise refuse(given("bed.backend", bed.backend), "bed.backend", wanted)
    if bed.offloads:
        wanted = "false with engine tcp: offloads join segments"
        raise refuse(given("bed.offloads", bed.offloads), "bed.offloads", wanted)


def check_shaper(plan: Plan, given: Lookup) -> None:
    """Check that the shaper's bucket and queue hold a whole frame."""
    least = plan.bed.mtu + ETHERNET
    if plan.bed.rate_bps is None:
        return
    for key, value in (("burst_bytes", plan.bed.burst_bytes), ("queue_bytes", plan.bed.queue_bytes)):
        if value < least:
            raise refuse(given(f"bed.{key}", value), f"bed.{key}", f"at least {least}, a frame of bed.mtu")


def check_sizes(plan: Plan, given: Lookup) -> None:
    """Check that each engine supports the sizes and the link carries them."""
    stream, tagged = plan.stream, plan.stream.vlan is not None
    key = f"stream.{stream.size_key}"
    for engine in stream.engine:
        least, most = ENGINES[engine].least_payload, plan.bed.mtu - ENGINES[engine].headers
        extra = stream_overhead(engine, tagged=tagged) if stream.size_key == "frame_bytes" else 0
        lowest = max(LEAST_FRAME, least + extra) if extra else least
        for size in stream.sizes:
            where = Given(size, given(key, size).where)
            if size < lowest:
                raise refuse(where, key, f"at least {lowest} for engine {engine}")
            if stream_payload(engine, stream.size_key, size, tagged=tagged) > most:
                raise refuse(where, key, f"at most {most + extra} for engine {engine} with bed.mtu = {plan.bed.mtu}")


def check_tags(plan: Plan, given: Lookup) -> None:
    """Check that priorities have a field in the frame."""
    stream = plan.stream
    if stream.pcp is not None and stream.vlan is None:
        raise refuse(given("stream.pcp", stream.pcp), "stream.pcp", "stream.vlan beside it: the priority is in the tag")
    if stream.vlan is not None and {"udp", "udp6", "tcp", "live"} & set(stream.engine):
        raise refuse(given("stream.vlan", stream.vlan), "stream.vlan", 'it with engine "auto", "packet" or "xdp" alone')
    if stream.dscp and not set(stream.engine) <= {"udp", "udp6"}:
        raise refuse(given("stream.dscp", stream.dscp), "stream.dscp", 'it with engine "udp" or "udp6" alone')


def check_kinds(plan: Plan, given: Lookup, known: tuple[str, ...]) -> None:
    """Check that the method and the engines support the kinds."""
    stream, method = plan.stream, plan.study.method
    for kind in stream.kind:
        where = Given(kind, given("stream.kind", kind).where)
        if kind not in known:
            raise refuse(where, "stream.kind", f"{words(known)} for study.method = {method}")
        strange = {"xdp", "live"} if kind in CLOSED else {"live"} if kind == "answers" else set()
        if found := strange & set(stream.engine):
            raise refuse(where, "stream.kind", f"it without engine {min(found)}, which sends one way only")
    if set(stream.kind) & {*CLOSED, "answers"}:
        check_request(plan, given)


def check_request(plan: Plan, given: Lookup) -> None:
    """Check that the fixed request is one frame."""
    size = plan.stream.request_payload_bytes
    for engine in plan.stream.engine:
        least, most = ENGINES[engine].least_payload, plan.bed.mtu - ENGINES[engine].headers
        if not least <= size <= most:
            key = "stream.request_payload_bytes"
            raise refuse(given(key, size), key, f"{least} to {most} for engine {engine}")


def check_addresses(plan: Plan, given: Lookup) -> None:
    """Check that each engine can send to the addresses, and that a receiver can answer."""
    stream = plan.stream
    for to in stream.to:
        where = Given(to, given("stream.to", to).where)
        if to in ("broadcast", "unknown") and {"udp", "udp6"} & set(stream.engine):
            raise refuse(where, "stream.to", '"unicast" or "multicast" with UDP')
        if to == "unknown" and set(stream.kind) != {"one-way"}:
            raise refuse(where, "stream.to", 'it with stream.kind = ["one-way"] alone: nobody answers')
        if to == "unknown" and not has_switch(plan):
            raise refuse(where, "stream.to", f"{SWITCH}: no other path knows addresses")


def check_ends(plan: Plan, given: Lookup) -> None:
    """Check that there are enough ports for all senders and receivers."""
    stream = plan.stream
    for key, values, alone in (("senders", stream.senders, 1), ("receivers", stream.receivers, 0)):
        where = given(f"stream.{key}", list(values))
        if max(values) > alone and not has_switch(plan) and not (key == "senders" and stream.marks):
            raise refuse(where, f"stream.{key}", f"{SWITCH}: no other path has more than two ports")
    if max(stream.receivers) and not {"broadcast", "multicast"} & set(stream.to):
        value = given("stream.receivers", list(stream.receivers))
        raise refuse(value, "stream.receivers", '0, or "multicast" or "broadcast" in stream.to')
    if max(stream.senders) > 1 and set(stream.kind) & set(CLOSED):
        raise refuse(given("stream.senders", list(stream.senders)), "stream.senders", "1 for a closed loop")
    check_marks(plan, given)
    near, far, _ = ends(plan.sections)
    for key, there, wanted in (("near", plan.bed.near, near), ("far", plan.bed.far, far)):
        if there < wanted:
            raise refuse(given(f"bed.{key}", there), f"bed.{key}", f"at least {wanted} for what [stream] asks")


def check_marks(plan: Plan, given: Lookup) -> None:
    """Check that senders on one port have different DSCP, one for each sender, over UDP."""
    stream = plan.stream
    if not stream.marks:
        return
    where = given("stream.marks", list(stream.marks))
    if not set(stream.engine) <= {"udp", "udp6"}:
        raise refuse(where, "stream.marks", 'stream.engine = ["udp"] or ["udp6"]: no other engine carries them')
    if len(set(stream.marks)) != len(stream.marks) or set(stream.senders) != {len(stream.marks)}:
        raise refuse(where, "stream.marks", "a different one for each of stream.senders")


def check_loads(plan: Plan, given: Lookup) -> None:
    """Check that there is a device to load."""
    stream = plan.stream
    where = given("stream.load", list(stream.load))
    if any(stream.load) and not plan.bed.devices:
        raise refuse(where, "stream.load", "a device in bed.devices: its throughput is what the load is a share of")
    if any(stream.load) and "through" in stream.load_via and not has_switch(plan):
        via = given("stream.load_via", list(stream.load_via))
        raise refuse(via, "stream.load_via", f'"beside", or {SWITCH}: no other path has ports for a load')
    if any(stream.load) and "beside" in stream.load_via and not plan.bed.bypass:
        raise refuse(given("bed.bypass", plan.bed.bypass), "bed.bypass", 'true for stream.load_via = "beside"')
    if stream.load_frame_bytes > plan.bed.mtu + ETHERNET:
        most = plan.bed.mtu + ETHERNET
        key = "stream.load_frame_bytes"
        raise refuse(given(key, stream.load_frame_bytes), key, f"at most {most} with bed.mtu = {plan.bed.mtu}")


def check_schedules(plan: Plan, given: Lookup) -> None:
    """Check that the engine supports the schedules, and that a trial's frames fill them."""
    stream, trials = plan.stream, plan.trials
    for schedule in stream.schedule:
        where = Given(schedule, given("stream.schedule", schedule).where)
        if "live" in stream.engine and schedule not in ("flood", "regular"):
            raise refuse(where, "stream.schedule", '"flood" or "regular" with engine live, which sends in batches')
        burst = BURST.fullmatch(schedule)
        if burst and trials.count_at_most and int(burst[1]) > trials.count_at_most:
            raise refuse(where, "stream.schedule", f"bursts of at most trials.count_at_most = {trials.count_at_most}")
    for size in stream.sizes:
        if not any(rate.is_for(size) for rate in stream.rates):
            key = f"stream.{stream.rate_key}"
            where = given(key, [str(rate) for rate in stream.rates])
            raise refuse(where, key, f"a rate for stream.{stream.size_key} = {size} too, which none of these is for")
    for rate in stream.rates:
        if rate.size is not None and rate.size not in stream.sizes:
            where = Given(str(rate), given(f"stream.{stream.rate_key}", str(rate)).where)
            sizes = ", ".join(map(str, stream.sizes))
            raise refuse(
                where, f"stream.{stream.rate_key}", f"rates of sizes in stream.{stream.size_key}, which has {sizes}"
            )
    check_walk(plan, given)


def check_walk(plan: Plan, given: Lookup) -> None:
    """Check `walk`: several regular senders, each with frames left."""
    stream, trials = plan.stream, plan.trials
    if not stream.walk:
        return
    where, most = given("stream.walk", stream.walk), max(stream.senders)
    if most < 2 or set(stream.schedule) != {"regular"}:
        raise refuse(where, "stream.walk", 'several stream.senders and stream.schedule = ["regular"] beside it')
    slowest = min((pps for _, _, pps in paced_rates(plan)), default=None)
    frames = trials.count_at_most
    if slowest is not None:
        frames = min(int(slowest / most * trials.duration_ns / 1e9), frames or MOST_FRAMES)
    if frames is not None and stream.walk * (most - 1) > frames // 2:
        least = f"at most {frames // 2 // (most - 1)}"
        raise refuse(where, "stream.walk", f"{least}: the shortest trial has {frames} frames of each sender")


def check_rates(plan: Plan, given: Lookup) -> None:
    """Check that a shaped device can carry the rates, unless the method tests beyond that."""
    limit, stream = plan.bed.rate_bps, plan.stream
    if limit is None:
        return
    for rate, frame, pps in paced_rates(plan):
        most = limit / (8 * frame)
        if pps > most:
            key = f"stream.{stream.rate_key}"
            where = Given(str(rate), given(key, str(rate)).where)
            raise refuse(where, key, too_fast(most, frame, plan))
    frame = max(frame_sizes(plan))
    most = limit / (8 * frame)
    for schedule in stream.schedule:
        ramp = ramp_ends(schedule, frame)
        if schedule == "flood" or (ramp and max(ramp) > most):
            where = Given(schedule, given("stream.schedule", schedule).where)
            raise refuse(where, "stream.schedule", too_fast(most, frame, plan))


def too_fast(most: float, frame: int, plan: Plan) -> str:
    """Return what a shaped device carries of these frames."""
    return f"at most {int(most)}pps: frames of {frame} bytes fill bed.rate; {plan.study.method} asks nothing beyond it"


def frame_sizes(plan: Plan) -> list[int]:
    """Return the size of every frame that the plan sends, with FCS."""
    return [frame_of(plan, engine, size) for engine in plan.stream.engine for size in plan.stream.sizes]


def paced_rates(plan: Plan) -> Iterator[tuple[Rate, int, float]]:
    """Return each rate with each frame size sent at it, and frames per second; without shares, which are measured."""
    stream = plan.stream
    for rate, engine, size in product(stream.rates, stream.engine, stream.sizes):
        frame = frame_of(plan, engine, size)
        pps = rate.pps(frame)
        if rate.is_for(size) and pps is not None:
            yield rate, frame, pps


def frame_of(plan: Plan, engine: str, size: int) -> int:
    """Return the frame size, with FCS, of a size in the plan."""
    stream, tagged = plan.stream, plan.stream.vlan is not None
    return stream_frame(engine, stream_payload(engine, stream.size_key, size, tagged=tagged), tagged=tagged)


def has_switch(plan: Plan) -> bool:
    """Return whether any path has further ports."""
    return any(is_bridge(plan, device) for device in plan.bed.devices)


def is_bridge(plan: Plan, device: str) -> bool:
    """Return whether it is a bridge, or a simulated line, which may represent one."""
    return plan.bed.is_switch(device) or (plan.bed.simulated and device != "direct")


def words(choices: tuple[str, ...]) -> str:
    """Return a choice as part of a sentence."""
    return " or ".join(f'"{choice}"' for choice in choices)
