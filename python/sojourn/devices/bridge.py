"""The Linux bridge: it learns as usual, and forwards at once: no spanning tree, listening state or IGMP snooping."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sojourn.devices.mode import STAR, Box, Ink, Mode, commands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.devices.mode import Command, Run

AGEING_CENTISECONDS = 360_000  # one hour: learned addresses do not age during a run


def build(box: Box) -> list[Command]:
    """Make the bridge with every port in it."""
    options = f"stp_state 0 forward_delay 0 mcast_snooping 0 ageing_time {AGEING_CENTISECONDS}"
    return commands(
        "ip",
        f"link add name {box.name} index {box.ifindex} address {box.mac} type bridge {options}",
        *(f"link set dev {port.dev} master {box.name}" for port in box.ports),
        f"link set dev {box.name} up",
    )


def waiting(run: Run, boxes: Sequence[Box]) -> list[str]:
    """Return the ports that are not in the state "forwarding"."""
    states = {link["ifname"]: link["state"] for link in json.loads(run(["bridge", "-json", "link"]))}
    return [port.dev for box in boxes for port in box.ports if states.get(port.dev) != "forwarding"]


def flush_fdb(box: Box) -> list[Command]:
    """Flush the FDB: the next frame to any address is flooded."""
    return commands("ip", f"link set dev {box.name} type bridge fdb_flush")


DEVICE = Mode(
    name="bridge",
    title="The Linux bridge",
    plural="Linux bridges",
    box="bridge",
    ink=Ink("bridge", "#0067a8", "#5fb3f2", (1, 0), "square"),
    inks={
        "*2": Ink("bridge2", "#c84f00", "#ff9355", (10, 3, 2, 3), "diamond"),
        "*3": Ink("bridge3", "#b0568c", "#e8a5cb", (4, 2, 1, 2), "triangle-down"),
        "*4": Ink("bridge4", "#a97a00", "#eabb3f", (2, 2), "triangle-right"),
        ":mixed": Ink("bridge-mixed", "#6b7a1f", "#bfd15c", (7, 2, 2, 2), "triangle-up"),
        "*2:uplink": Ink("bridge2-uplink", "#7a5cc0", "#b9a3f0", (12, 4), STAR),
    },
    place=20,
    reference=1,
    rank=2,
    longest=4,
    is_switch=True,
    is_needed=True,
    tools={"bridge": "iproute2"},
    fix="a kernel with CONFIG_BRIDGE: modprobe bridge",
    build=build,
    waiting=waiting,
    flush_fdb=flush_fdb,
)
