"""What a plan becomes, and may not ask, where a device of it forwards by IP addresses: nothing but IP passes a router.

All paths of such a plan are sent the same: streams whose engine is "auto" are UDP over each of them, and of sizes that
UDP can have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sojourn import devices
from sojourn.plan.sizes import ENGINES, KINDS, stream_overhead
from sojourn.plan.source import Given, refuse

if TYPE_CHECKING:
    from sojourn.plan.ask import Lookup
    from sojourn.plan.types import Plan

BY_IP = ("udp", "udp6")
UDP = ENGINES["udp"]


def routed_devices(plan: Plan) -> list[str]:
    """The devices of a plan that route."""
    if plan.bed.simulated:
        return []
    boxes = {device for device, box in plan.bed.boxes.items() if box.routed}
    return [
        one
        for one in plan.bed.devices
        if one in boxes or ((known := devices.known(one)) is not None and known.mode.is_routed)
    ]


def over_routers(plan: Plan) -> Plan:
    """The plan with streams that pass its routers, where it leaves the engine open; it says what was changed."""
    if not routed_devices(plan) or "stream" not in plan.sections or "auto" not in plan.stream.engine:
        return plan
    stream, told = plan.stream, ["stream.engine = udp, which passes a router"]
    changed = replace(stream, engine=tuple(dict.fromkeys("udp" if one == "auto" else one for one in stream.engine)))
    extra = stream_overhead("udp", tagged=False) if stream.size_key == "frame_bytes" else 0
    least, most = UDP.least_payload + extra, plan.bed.mtu - UDP.headers + extra
    sizes = tuple(dict.fromkeys(min(most, max(least, one)) for one in stream.sizes))
    if sizes != stream.sizes:
        changed = replace(changed, **{stream.size_key: sizes})
        told.append(f"stream.{stream.size_key} from {least} to {most}, which UDP can have")
    return replace(plan.with_section("stream", changed), asked=(*plan.asked, *told))


def check_routed(plan: Plan, given: Lookup) -> None:
    """Probes and streams that a router passes on."""
    names = routed_devices(plan)
    if not names:
        return
    why = f"{names[0]} forwards nothing but IP"
    if "probe" in plan.sections:
        raw = [one for one in plan.probe.probe if KINDS[one].ip_version is None]
        if raw:
            value = Given(raw[0], given("probe.probe", raw[0]).where)
            raise refuse(value, "probe.probe", f"icmp or udp probes alone: {why}")
    if "stream" in plan.sections:
        _check_streams(plan, given, why)


def _check_streams(plan: Plan, given: Lookup, why: str) -> None:
    stream = plan.stream
    for engine in stream.engine:
        if engine not in BY_IP:
            value = Given(engine, given("stream.engine", engine).where)
            raise refuse(value, "stream.engine", f'"auto", "udp" or "udp6": {why}')
    for to in stream.to:
        if to != "unicast":
            raise refuse(
                Given(to, given("stream.to", to).where), "stream.to", f'"unicast" alone: {why}, to one address'
            )
    if any(stream.load):
        raise refuse(given("stream.load", list(stream.load)), "stream.load", f"no load, which is raw frames: {why}")
