"""Adapt and check plans with devices for IP: a router passes only IP, and netfilter in a bridge acts only on IP.

Raw frames would pass such a bridge without the work that is to be measured. All paths of such a plan get the same
traffic: streams whose engine is "auto" are UDP over each of them, with sizes that UDP supports.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sojourn import devices
from sojourn.plan.sizes import ENGINES, ETHERNET, KINDS, stream_overhead
from sojourn.plan.source import Given, refuse

if TYPE_CHECKING:
    from sojourn.plan.ask import Lookup
    from sojourn.plan.source import Table
    from sojourn.plan.types import Plan

BY_IP = ("udp", "udp6", "tcp")
UDP = ENGINES["udp"]


def routed_devices(plan: Plan) -> list[str]:
    """Return the devices of a plan that route."""
    if plan.bed.simulated:
        return []
    boxes = {device for device, box in plan.bed.boxes.items() if box.routed}
    return [
        one
        for one in plan.bed.devices
        if one in boxes or ((known := devices.known(one)) is not None and known.mode.is_routed)
    ]


def acting_devices(plan: Plan) -> list[str]:
    """Return the devices of a plan that pass raw frames but act on IP packets only."""
    if plan.bed.simulated:
        return []
    known = {one: devices.known(one) for one in plan.bed.devices}
    return [one for one, device in known.items() if device is not None and device.mode.acts_on_ip]


def over_routers(plan: Plan, table: Table) -> Plan:
    """Return the plan with probes and streams that its routers pass and its filters act on; `asked` has the changes.

    The engine "auto" becomes UDP. Raw frames of a study become UDP too if the router was given by --device or --set;
    those of a plan that has both, and those given on the command line, are kept and refused.
    """
    if not routed_devices(plan) and not acting_devices(plan):
        return plan
    pointed = _is_beside("bed.devices", table)
    if "stream" in plan.sections:
        plan = _streams_over_routers(plan, is_free=pointed and not _is_beside("stream.engine", table),
                                     is_free_to=pointed and not _is_beside("stream.to", table))  # fmt: skip
    if "probe" in plan.sections and pointed and not _is_beside("probe.probe", table):
        plan = _probes_over_routers(plan)
    return plan


def _is_beside(key: str, table: Table) -> bool:
    """Return whether a value was given on the command line, not in a plan."""
    return key in table and table[key].where.startswith("--")


def _streams_over_routers(plan: Plan, *, is_free: bool, is_free_to: bool) -> Plan:
    stream, told, changes = plan.stream, [], {}
    raw = {one for one in stream.engine if one == "auto" or (is_free and one not in BY_IP)}
    if raw:
        changes["engine"] = tuple(dict.fromkeys("udp" if one in raw else one for one in stream.engine))
        told.append("stream.engine = udp, which a router passes on and a filter of IP acts on")
    extra = stream_overhead("udp", tagged=False) if stream.size_key == "frame_bytes" else 0
    least, most = UDP.least_payload + extra, plan.bed.mtu - UDP.headers + extra
    sizes = tuple(dict.fromkeys(min(most, max(least, one)) for one in stream.sizes))
    if raw and sizes != stream.sizes:
        changes[stream.size_key] = sizes
        changes[stream.rate_key] = tuple(
            dict.fromkeys(
                rate if rate.size is None else replace(rate, size=min(most, max(least, rate.size)))
                for rate in stream.rates
            )
        )
        told.append(f"stream.{stream.size_key} from {least} to {most}, which UDP can have")
    most_to = ("unicast",) if routed_devices(plan) else ("unicast", "multicast")
    passing = tuple(to for to in stream.to if to in most_to)
    if is_free_to and passing and passing != stream.to:
        changes["to"] = passing
        told.append(f"stream.to = {', '.join(passing)}: a router forwards unicast alone, UDP has multicast too")
    return _changed(plan, "stream", changes, told)


def _probes_over_routers(plan: Plan) -> Plan:
    probe, told, changes = plan.probe, [], {}
    names = tuple(dict.fromkeys(one.replace("raw/", "udp/") for one in probe.probe))
    if names != probe.probe:
        changes["probe"] = names
        told.append("udp probes in place of raw ones, which no router passes on and no filter of IP acts on")
        kind = KINDS["udp/ping-pong"]
        extra = kind.headers + ETHERNET if probe.size_key == "frame_bytes" else 0
        least, most = kind.least_payload + extra, plan.bed.mtu - kind.headers + extra
        sizes = tuple(dict.fromkeys(min(most, max(least, one)) for one in probe.sizes))
        if probe.size_key != "icmp_bytes" and sizes != probe.sizes:
            changes[probe.size_key] = sizes
            told.append(f"probe.{probe.size_key} from {least} to {most}, which UDP can have in a frame")
    return _changed(plan, "probe", changes, told)


def _changed(plan: Plan, section: str, changes: dict[str, Any], told: list[str]) -> Plan:
    if not changes:
        return plan
    own = replace(plan.sections[section], **changes)
    return replace(plan.with_section(section, own), asked=(*plan.asked, *told))


def check_routed(plan: Plan, given: Lookup) -> None:
    """Refuse probes and streams that a router does not pass, or on which a filter of IP does not act."""
    routed, acting = routed_devices(plan), acting_devices(plan)
    if routed:
        why = f"{routed[0]} forwards nothing but IP"
    elif acting:
        why = f"{acting[0]} acts only on IP: raw frames pass it without the work that is to be measured"
    else:
        return
    if "probe" in plan.sections:
        raw = [one for one in plan.probe.probe if KINDS[one].ip_version is None]
        if raw:
            value = Given(raw[0], given("probe.probe", raw[0]).where)
            raise refuse(value, "probe.probe", f"icmp or udp probes alone: {why}")
    if "stream" in plan.sections:
        _check_streams(plan, given, why, is_routed=bool(routed))


def _check_streams(plan: Plan, given: Lookup, why: str, *, is_routed: bool) -> None:
    stream = plan.stream
    for engine in stream.engine:
        if engine not in BY_IP:
            value = Given(engine, given("stream.engine", engine).where)
            raise refuse(value, "stream.engine", f'"auto", "udp" or "udp6": {why}')
    for to in stream.to if is_routed else ():
        if to != "unicast":
            raise refuse(
                Given(to, given("stream.to", to).where), "stream.to", f'"unicast" alone: {why}, to one address'
            )
    if any(stream.load) and is_routed:
        raise refuse(given("stream.load", list(stream.load)), "stream.load", f"no load, which is raw frames: {why}")
