"""The direct link: one cable from A to B. It always exists, and every device is compared with it."""

from __future__ import annotations

from sojourn.devices.mode import Ink, Mode

DEVICE = Mode(
    name="direct",
    title="The direct link",
    box="",
    ink=Ink("direct", "#5b6470", "#a3adba", (5, 3), "circle"),
    place=0,
    rank=0,
    boxes=0,
    is_needed=True,
    fix="run as root, on a kernel with CONFIG_VETH: modprobe veth",
)
