"""The Linux bridge with N nftables rules that match nothing: each is evaluated for each frame, which takes time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.devices.bridge import build, flush_fdb, waiting
from sojourn.devices.mode import Box, Ink, Mode, commands, links_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.devices.mode import Command

MOST = 9999


def filtered(box: Box) -> list[Command]:
    """Make the bridge with a chain at its forward hook: no port has any of the addresses in its rules."""
    strangers = (f"02:77:ee:00:{number >> 8:02x}:{number & 255:02x}" for number in range(1, box.count + 1))
    rules = "\n".join(f"ether saddr {mac} drop" for mac in strangers)
    chain = f"chain forward {{ type filter hook forward priority 0; policy accept;\n{rules}\n}}"
    return [*build(box), *commands("sh", f"nft -f - <<'END'\ntable bridge sojourn {{\n{chain}\n}}\nEND")]


def objects(box: Box) -> Sequence[str]:
    """Return commands for links and rules."""
    return [*links_of(box), "nft list ruleset"]


DEVICE = Mode(
    name="bridge:rules",
    slug="rule",
    title="The Linux bridge",
    box="bridge, rules",
    ink=Ink("bridge-rules", "#6b7a1f", "#bfd15c", (14, 2), "cross"),
    place=23,
    rank=3,
    counts="rules",
    most=MOST,
    is_switch=True,
    is_apart=True,
    tools={"bridge": "iproute2", "nft": "nftables"},
    fix="a kernel with CONFIG_BRIDGE and CONFIG_NF_TABLES_BRIDGE: modprobe -a bridge nf_tables",
    build=filtered,
    waiting=waiting,
    flush_fdb=flush_fdb,
    objects=objects,
)
