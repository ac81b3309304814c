"""The Linux bridge with HTB at both ports: the QoS mode of linux-bridge-2003 (2.2), its classes and rates as printed.

Every frame is in the default class. The rates are those of a Fast Ethernet: what is faster waits in the class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.devices.bridge import build, flush_fdb, waiting
from sojourn.devices.mode import Box, Ink, Mode, commands, links_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.devices.mode import Command


def classes(dev: str, major: int, root: int) -> list[Command]:
    """Return the commands for a qdisc with three classes, as in the paper for one port."""
    one = f"class add dev {dev} parent"
    return commands(
        "tc",
        f"qdisc add dev {dev} root handle {major}:0 htb default 10",
        f"{one} {major}:0 classid {major}:{root} htb rate 102400kbit ceil 102400kbit quantum 20000",
        f"{one} {major}:{root} classid {major}:10 htb rate 102380kbit ceil 102400kbit prio 3 quantum 20000",
        f"{one} {major}:{root} classid {major}:12 htb rate 20kbit ceil 25kbit prio 5 quantum 1500 cburst 1501b",
    )


def shaped(box: Box) -> list[Command]:
    """Make the bridge with both of the paper's qdiscs; further ports of a side have the same as the first."""
    lefts = [port for port in box.ports if port is box.left or port.dev.startswith(box.left.dev)]
    sides = [(port, 1 if port in lefts else 2) for port in box.ports]
    return [*build(box), *(line for port, side in sides for line in classes(port.dev, side, side))]


def queues(box: Box) -> Sequence[str]:
    """Return commands for links, and for qdiscs and classes with their counters."""
    shown = [f"tc -s {what} show dev {port.dev}" for port in box.ports for what in ("qdisc", "class")]
    return [*links_of(box), *shown]


DEVICE = Mode(
    name="bridge:qos",
    title="The Linux bridge with HTB",
    box="bridge, HTB",
    ink=Ink("bridge-qos", "#b0568c", "#e8a5cb", (6, 2, 2, 2), "diamond"),
    place=21,
    rank=3,
    is_switch=True,
    shapes=True,
    tools={"bridge": "iproute2"},
    fix="a kernel with CONFIG_BRIDGE and CONFIG_NET_SCH_HTB: modprobe -a bridge sch_htb",
    build=shaped,
    waiting=waiting,
    flush_fdb=flush_fdb,
    objects=queues,
)
