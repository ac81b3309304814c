"""What must hold between the values of a plan: sizes that a probe can carry, devices that a backend has, and so on.

Each refusal names the key that a person most likely wants to change. Single values are checked before (values.py).
"""

from __future__ import annotations

import re

from sojourn import devices
from sojourn.errors import RequestError
from sojourn.plan.costs import check_costs
from sojourn.plan.emulatable import check_emulators, check_links
from sojourn.plan.sizes import ETHERNET, KINDS, LEAST_FRAME, exceeds_mtu, payload_of
from sojourn.plan.source import Given, Table, refuse
from sojourn.plan.streamable import check_backend, check_streams
from sojourn.plan.tcp import check_tcp
from sojourn.plan.types import DIRECT, FLOOD_NS, PAIR_METHODS, TCP_METHODS, Plan

MOST_ICMP = 65_507
"""An IPv4 packet holds 65,535 bytes with its own header of 20 and ICMP's of 8."""


def check(plan: Plan, table: Table, name: str) -> None:
    """Raise the first refusal, if there is one."""

    def given(key: str, value: object) -> Given:
        return table.get(key, Given(value, name))

    if plan.study.method == "tcp-cost":
        check_costs(plan, given)
        return
    if plan.study.method in TCP_METHODS:
        check_tcp(plan, given)
        check_devices(plan, given("bed.devices", list(plan.bed.devices)))
        check_emulators(plan, given)
        return
    probes = plan.study.method in PAIR_METHODS
    if probes:
        check_method(plan, given("study.method", plan.study.method), given("probe.interval", "flood"))
    else:
        check_backend(plan, given)
    check_devices(plan, given("bed.devices", list(plan.bed.devices)))
    check_emulators(plan, given)
    check_links(plan, given)
    if not probes:
        check_streams(plan, given)
        return
    key = f"probe.{plan.probe.size_key}"
    for probe in plan.probe.probe:
        for size in plan.probe.sizes:
            check_size(plan, probe, size, Given(size, given(key, size).where), key)
    check_request(plan, given("probe.request_payload_bytes", plan.probe.request_payload_bytes))
    if plan.pairs.warmup_probes >= plan.pairs.probes_per_block:
        value = given("pairs.warmup_probes", plan.pairs.warmup_probes)
        raise refuse(value, "pairs.warmup_probes", f"fewer than pairs.probes_per_block = {plan.pairs.probes_per_block}")


def check_devices(plan: Plan, given: Given) -> None:
    """Devices that the backend can build."""
    for device in plan.bed.devices:
        if device == DIRECT:
            raise refuse(given, "bed.devices", 'devices only: "direct" is always there')
        if plan.bed.backend != "sim" and devices.known(device) is None:
            what = f"{devices.what_there_is(1)}; several of a kind have labels, 'bridge:slow'".replace("'", '"')
            raise refuse(Given(device, given.where), "bed.devices", what)
    if plan.bed.backend == "sim":
        for device in (DIRECT, *plan.bed.devices):
            if device not in plan.bed.lines:
                wanted = f"expected a section [bed.lines.{quoted(device)}]"
                raise RequestError(f"{given.where}: the sim bed has no line for {device}: {wanted}")


def quoted(device: str) -> str:
    """A device as a TOML key."""
    return device if re.fullmatch(r"[\w-]+", device) else f'"{device}"'


def check_method(plan: Plan, method: Given, interval: Given) -> None:
    """What each method needs."""
    if plan.study.method == "departures":
        if plan.bed.backend == "sim":
            raise refuse(method, "study.method", '"pairs" on the sim bed, which has neither ping nor capture')
        if plan.probe.probe != ("icmp",):
            raise refuse(method, "study.method", 'probe.probe = ["icmp"] with it: ping knows no other')
        return
    if not plan.bed.devices and not plan.pairs.a_a:
        raise refuse(method, "study.method", "at least one device in bed.devices, or pairs.a_a = true")
    if FLOOD_NS in plan.probe.intervals_ns:
        raise refuse(interval, "probe.interval", 'times only: "flood" belongs to study.method = "departures"')


def check_size(plan: Plan, probe: str, size: int, given: Given, key: str) -> None:
    """A size that this probe can have and this link can carry."""
    kind = KINDS[probe]
    if plan.probe.size_key == "icmp_bytes" and kind.via != "icmp":
        raise refuse(given, key, f"payload_bytes or frame_bytes, since {probe} has no ICMP header")
    payload = payload_of(probe, plan.probe.size_key, size)
    short_frame = plan.probe.size_key == "frame_bytes" and size < LEAST_FRAME
    if payload < kind.least_payload or short_frame:
        raise refuse(given, key, f"at least {least(probe, plan.probe.size_key)} for {probe}")
    most = plan.bed.mtu if kind.via == "packet" else MOST_ICMP
    if payload > most:
        raise refuse(given, key, f"at most {size - payload + most} for {probe} with bed.mtu = {plan.bed.mtu}")


def least(probe: str, size_key: str) -> int:
    """The least size that may be asked under this name."""
    kind = KINDS[probe]
    if size_key == "icmp_bytes":
        return 8
    if size_key == "frame_bytes":
        return max(LEAST_FRAME, kind.least_payload + kind.headers + ETHERNET)
    return kind.least_payload


def check_request(plan: Plan, given: Given) -> None:
    """The fixed request must fit a frame, or the request would be measured as fragments."""
    for probe in plan.probe.probe:
        size = plan.probe.request_payload_bytes
        kind = KINDS[probe]
        if kind.kind != "request-response":
            continue
        if size < kind.least_payload or exceeds_mtu(probe, size, plan.bed.mtu):
            most = plan.bed.mtu - kind.headers
            raise refuse(given, "probe.request_payload_bytes", f"{kind.least_payload} to {most} for {probe}")
