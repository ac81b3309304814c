"""Open vSwitch, if installed: a box like a user's, built by the script beside this module.

It has its own daemons and database. If the kernel lacks the datapath, it forwards in user space, and the log of the box
says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sojourn.devices.mode import Box, Ink, Mode
from sojourn.devices.router import QUIET

if TYPE_CHECKING:
    from collections.abc import Sequence


def objects(box: Box) -> Sequence[str]:
    """Return commands for the network stack; further objects of the daemons are in the box's log."""
    del box
    return ("ip -d link show", "tc -s qdisc show")


DEVICE = Mode(
    name="ovs",
    title="Open vSwitch",
    box="Open vSwitch",
    ink=Ink("ovs", "#8f3f97", "#d39ad9", (8, 2, 8, 6), "cross"),
    place=55,
    rank=3,
    is_apart=True,
    program=str(Path(__file__).with_name("ovs.sh")),
    sysctls=QUIET,
    tools={
        "ovs-vsctl": "openvswitch-switch",
        "ovs-vswitchd": "openvswitch-switch",
        "ovsdb-server": "openvswitch-switch",
    },
    fix="Open vSwitch: apt-get install openvswitch-switch",
    objects=objects,
)
