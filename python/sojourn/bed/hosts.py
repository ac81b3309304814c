"""The hosts of a bed: which there are, between which of them is measured, and what interfaces their ports are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sojourn.bed.model import PathSpec, Topology

HostName = str
END_HOSTS: tuple[HostName, ...] = ("a", "b")
"""What is between them is measured; `d`, and the hosts of devices that stand apart, hold it."""

DEVICES: HostName = "d"
"""The host of every device that shares its network stack with others."""


DEVICES_HOST = "device"
"""The real host of all that hold devices; each has a network namespace of its own there."""


@dataclass(frozen=True)
class Host:
    """A place where programs run: A asks, B answers, the others hold devices."""

    name: HostName
    role: str


HOSTS: tuple[Host, ...] = (Host("a", "prober"), Host("b", "responder"), Host(DEVICES, "devices under test"))
"""Those of every bed."""


def ports_of(topology: Topology, paths: Mapping[str, PathSpec]) -> dict[str, str]:
    """The real interface of each port of a bed, by the port's name there."""
    found: dict[str, str] = {}
    for link in topology.links:
        own = paths[link.path]
        found |= {link.a_dev: own.a, link.b_dev: own.b}
        for station in link.stations:
            assert own.left is not None
            assert own.right is not None
            found |= {station.left.dev: own.left, station.right.dev: own.right}
    return found
