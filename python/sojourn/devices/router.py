"""The kernel's router: it forwards IPv4 and IPv6 between the two subnets of A and B.

Every neighbour is permanent: no ARP or ND is sent. Frames without IP are not forwarded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.devices.mode import STAR, Box, Ink, Mode, commands, links_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sojourn.devices.mode import Command

QUIET: Mapping[str, str] = {
    "net/ipv4/conf/*/accept_redirects": "0",
    "net/ipv4/conf/*/rp_filter": "0",
    "net/ipv4/conf/*/send_redirects": "0",
    "net/ipv6/conf/*/accept_dad": "0",
    "net/ipv6/conf/*/accept_ra": "0",
    "net/ipv6/conf/*/addr_gen_mode": "1",
    "net/ipv6/conf/*/disable_ipv6": "0",
    "net/ipv6/conf/*/mldv2_unsolicited_report_interval": "1",
    "net/ipv6/mld_qrv": "1",
}
"""The sysctls of a host that may have addresses but sends nothing by itself."""

SYSCTLS = {**QUIET, "net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}


def route(box: Box) -> list[Command]:
    """Return the commands for an address of each family and a permanent neighbour at each port."""
    lines = []
    for port, side in zip((box.left, box.right), box.sides or (), strict=True):
        lines += [f"address add {side.ip4}/24 dev {port.dev}", f"address add {side.ip6}/64 dev {port.dev} nodad"]
        for address in (side.end_ip4, side.end_ip6):
            lines.append(f"neighbour replace {address} lladdr {side.end_mac} dev {port.dev} nud permanent")
    return commands("ip", *lines)


def objects(box: Box) -> Sequence[str]:
    """Return commands for links, addresses, routes and neighbours of the router's own network stack."""
    shown = ("ip address show", "ip -4 route show", "ip -6 route show", "ip neighbour show")
    forwarding = "sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding"
    return [*links_of(box), *shown, forwarding]


DEVICE = Mode(
    name="router",
    title="The Linux router",
    box="router",
    ink=Ink("router", "#a97a00", "#eabb3f", (9, 2), STAR),
    place=50,
    rank=3,
    is_apart=True,
    is_routed=True,
    sysctls=SYSCTLS,
    fix="a kernel with CONFIG_IPV6, and net.ipv6.conf.*.disable_ipv6 that may be 0",
    join=route,
    objects=objects,
)
