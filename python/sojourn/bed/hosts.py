"""The hosts of a bed: which there are, and between which of them is measured."""

from __future__ import annotations

from dataclasses import dataclass

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
