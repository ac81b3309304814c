"""The least that the kernel can do between two ports: a frame received at one is sent at the other (tc mirred)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.devices.mode import Box, Ink, Mode, commands, links_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.devices.mode import Command


def redirect(box: Box) -> list[Command]:
    """Return the commands for a redirect in each direction."""
    lines = []
    for come, go in ((box.left, box.right), (box.right, box.left)):
        everything = f"filter add dev {come.dev} ingress protocol all prio 1 u32 match u32 0 0"
        lines.append(f"qdisc add dev {come.dev} clsact")
        lines.append(f"{everything} action mirred egress redirect dev {go.dev}")
    return commands("tc", *lines)


def objects(box: Box) -> Sequence[str]:
    """Return commands for links and filters."""
    return [*links_of(box), *(f"tc -s filter show dev {port.dev} ingress" for port in box.ports)]


DEVICE = Mode(
    name="wire",
    title="The wire (a redirect)",
    box="redirect",
    ink=Ink("wire", "#008f68", "#35c69a", (8, 3), "triangle-up"),
    place=10,
    rank=0,
    reference=2,
    is_needed=True,
    fix="a kernel with CONFIG_NET_ACT_MIRRED and CONFIG_NET_CLS_U32: modprobe -a act_mirred cls_u32 sch_ingress",
    join=redirect,
    objects=objects,
)
