"""The kernel's router that translates A's addresses to its own: source NAT of both families, in nftables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.devices.mode import SALTIRE, Box, Ink, Mode, commands
from sojourn.devices.router import SYSCTLS, route
from sojourn.devices.router import objects as of_router

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.devices.mode import Command


def translate(box: Box) -> list[Command]:
    """Return the router's commands, and a rule for each family: packets towards B get the address of that port."""
    _, right = box.sides or (None, None)
    assert right is not None
    rules = [
        "nft -f - <<'END'",
        "table inet sojourn {",
        "chain postrouting { type nat hook postrouting priority 100; policy accept;",
        f"oifname {box.right.dev} snat ip to {right.ip4}",
        f"oifname {box.right.dev} snat ip6 to {right.ip6}",
        "}",
        "}",
        "END",
    ]
    return [*route(box), *commands("sh", "\n".join(rules))]


def objects(box: Box) -> Sequence[str]:
    """Return the commands of a router, and one for the rules."""
    return [*of_router(box), "nft list ruleset"]


DEVICE = Mode(
    name="router:nat",
    title="The Linux router with NAT",
    box="router, NAT",
    ink=Ink("router-nat", "#8a7a4c", "#cdb978", (14, 3, 1, 3), SALTIRE),
    place=51,
    rank=3,
    is_apart=True,
    is_routed=True,
    key="nat",
    tools={"nft": "nftables"},
    sysctls=SYSCTLS,
    fix="a kernel with CONFIG_NFT_NAT and CONFIG_NF_TABLES_INET: modprobe -a nf_tables nft_nat nft_chain_nat",
    join=translate,
    objects=objects,
)
