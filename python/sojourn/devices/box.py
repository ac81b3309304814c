"""The user's own box: a program joins two ports in a network stack of its own (`--device ./my-box.sh`).

Its environment, rights and removal are in bed/boxes.py; its section of a plan is in plan/boxes.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.devices.mode import Box, Mode
from sojourn.devices.router import QUIET

if TYPE_CHECKING:
    from collections.abc import Sequence


LENT = "cd /proc/sys/net/bridge 2>/dev/null && for one in bridge-nf-call-ip*; do echo $one = $(cat $one); done || true"
"""Shows whether br_netfilter passes bridged frames to the rules of the IP families; nothing without br_netfilter."""


def objects(box: Box) -> Sequence[str]:
    """All of the network stack, for nobody knows what the program has made; not what it put into further ones."""
    del box
    shown = ("ip -d link show", "ip address show", "ip -4 route show", "ip -6 route show", "tc -s qdisc show")
    rules = "if command -v nft >/dev/null; then nft list ruleset; fi"
    return [*shown, rules, LENT]


DEVICE = Mode(
    name="box",
    title="The box",
    box="box",
    place=60,
    rank=4,
    is_apart=True,
    is_box=True,
    sysctls=QUIET,
    objects=objects,
)
