"""The hosts of a bed, the ends of the measurement among them, and the interfaces that are their ports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn.errors import RequestError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sojourn.bed.model import BedSpec, Link, PathSpec, Topology

HostName = str
END_HOSTS: tuple[HostName, ...] = ("a", "b")
"""The measurement is between these; `d`, and the hosts of devices with their own network stack, are between them."""

DEVICES: HostName = "d"
"""The host of every device that shares its network stack with others."""


DEVICES_HOST = "device"
"""The real host for all devices' hosts; each of these has a network namespace of its own there."""


@dataclass(frozen=True)
class Host:
    """A place where programs run: A sends probes, B answers, the others hold devices."""

    name: HostName
    role: str


HOSTS: tuple[Host, ...] = (Host("a", "prober"), Host("b", "responder"), Host(DEVICES, "devices under test"))
"""The hosts that every bed has."""


def ports_of(topology: Topology, paths: Mapping[str, PathSpec]) -> dict[str, str]:
    """Return the real interface of each port, by its name in the bed; ports within the device's host have none."""
    found: dict[str, str] = {}
    for link in topology.links:
        own = paths[link.path]
        found |= {port.dev: name for port, name in zip(link.near, own.a, strict=False)}
        found |= {port.dev: name for port, name in zip(link.far, own.b, strict=False)}
        if len(link.cables) > 1:  # some end at the devices' host
            towards_a = [link.stretches[0], *(one for one in link.further_stretches if one.left.host == "a")]
            towards_b = [link.stretches[-1], *(one for one in link.further_stretches if one.right.host == "b")]
            found |= {one.cables[0].right.dev: name for one, name in zip(towards_a, own.left, strict=False)}
            found |= {one.cables[-1].left.dev: name for one, name in zip(towards_b, own.right, strict=False)}
    return found


def _wanted_of(link: Link, *, is_through: bool) -> str | None:
    """What is wrong with a link without a device of ours: an emulator alone joins ports of the devices' host there."""
    if any(link.rated) and link.device.mode.is_outside:
        return "no rate or delay in bed.links: it is cabled to a device that Sojourn does not build"
    if any(link.rated) and not is_through:
        return (
            f"hosts.{DEVICES_HOST} and the keys left and right, its ports towards A and towards B: the emulator of a "
            "rate or delay in bed.links is between them"
        )
    if is_through and not any(link.rated):
        return "a rate or delay in bed.links, or no left and right: nothing else joins these"
    return None


def require_paths(topology: Topology, spec: BedSpec) -> None:
    """Refuse what real hosts do not support: every path needs existing ports of its own."""
    for link in topology.links:
        if link.path not in spec.paths:
            there_are = f"expected one of {', '.join(spec.paths)}{did_you_mean(link.path, spec.paths)}"
            raise RequestError(f"the bed has no path '{link.path}': {there_are}")
        ports = spec.paths[link.path]
        is_through = bool(ports.left and ports.right) and DEVICES_HOST in spec.hosts
        if not link.stations and (wanted := _wanted_of(link, is_through=is_through)) is not None:
            raise RequestError(f"path '{link.path}' of a bed of real hosts: expected {wanted}")
        if link.stations and not is_through:
            wanted = f"hosts.{DEVICES_HOST} and the keys left and right, its ports towards A and towards B"
            raise RequestError(f"path '{link.path}' is a device that Sojourn builds: expected {wanted}")
        if len(ports.a) < link.near_ends or len(ports.b) < link.far_ends:
            wanted = f"{link.near_ends} ports at A and {link.far_ends} at B, and not {len(ports.a)} and {len(ports.b)}"
            raise RequestError(f"path '{link.path}' of a bed of real hosts: expected {wanted}")
    if spec.device_cpu != "shared":
        raise RequestError(f"device_cpu = '{spec.device_cpu}': expected 'shared' on a bed of real hosts")
