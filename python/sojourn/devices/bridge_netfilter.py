"""The Linux bridge with HTB and connection tracking: the ipp2p mode of linux-bridge-2003 (2.2), in nftables.

Its rules restore a connection's mark, accept marked packets, mark packets with a payload match, save that mark on the
connection, and put marked packets into the class of 20 kbit/s. ipp2p is in no present kernel: a match of the first
bytes of a BitTorrent handshake replaces it. Packets are of TCP and UDP; the paper's rules were for TCP only. Frames
without IP pass neither connection tracking nor rules; echoes are tracked, but the rules for marks skip them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.devices.bridge import build, flush_fdb, waiting
from sojourn.devices.bridge_qos import classes, queues
from sojourn.devices.mode import Box, Ink, Mode, commands
from sojourn.errors import MachineError
from sojourn.records.decode import json_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.devices.mode import Command, Run

HANDSHAKE = "0x13426974"
"""A length of 19, then "Bit": the first bytes that a BitTorrent peer sends."""

MARK, CLASS = 22, "1:12"
"""The values of the paper. Both ports have handles 1:, so that one rule names the class of either."""

LENDS = "/proc/sys/net/bridge/bridge-nf-call-iptables"
"""Exists if br_netfilter is loaded: without it a bridge accepts the option, but no rule is applied."""

CONNECTIONS = "head -n 50 /proc/net/nf_conntrack"

RULES = f"""table FAMILY sojourn {{
    chain prerouting {{
        type filter hook prerouting priority -150; policy accept;
        meta l4proto != {{ tcp, udp }} accept
        counter meta mark set ct mark
        meta mark != 0 accept
        @ih,0,32 {HANDSHAKE} meta mark set {MARK}
        meta mark {MARK} ct mark set meta mark
    }}
    chain postrouting {{
        type filter hook postrouting priority -150; policy accept;
        meta mark {MARK} meta priority set {CLASS}
    }}
}}"""


def limited_rules(family: str, table: str, interfaces: Sequence[str]) -> str:
    """Return the same rules, limited to packets of these interfaces, for a machine that has others."""
    named = ", ".join(f'"{one}"' for one in interfaces)
    lines = []
    for line in RULES.replace("table FAMILY sojourn", f"table {family} {table}").splitlines():
        lines.append(line)
        if "hook prerouting" in line:
            lines.append(f"        iifname != {{ {named} }} accept")
        if "hook postrouting" in line:
            lines.append(f"        oifname != {{ {named} }} accept")
    return "\n".join(lines) + "\n"


def tracked(box: Box) -> list[Command]:
    """Make the bridge with HTB at both ports and the rules: in the bridge family if that tracks connections."""
    script = [
        "modprobe -q nf_conntrack_bridge || true",
        "if ! nft -f - 2>/dev/null <<'END'",
        RULES.replace("FAMILY", "bridge"),
        "END",
        "then",
        "modprobe -q br_netfilter || true",
        f"test -e {LENDS} || {{ echo 'this kernel tracks no connections in bridges' >&2; exit 1; }}",
        f"ip link set dev {box.name} type bridge nf_call_iptables 1 nf_call_ip6tables 1",
        "nft -f - <<'END'",
        RULES.replace("FAMILY", "inet"),
        "END",
        "fi",
    ]
    shaping = [line for port in box.ports for line in classes(port.dev, 1, 1)]
    return [*build(box), *shaping, *commands("sh", "\n".join(script))]


def objects(box: Box) -> Sequence[str]:
    """Return commands for links, queues, rule counters and connections, which show that the rules were applied."""
    return [*queues(box), "nft list ruleset", CONNECTIONS]


def notes(run: Run, box: Box) -> list[str]:
    """Return which part of the kernel tracks connections, and what replaces ipp2p."""
    del box
    try:
        listed = json_value(run(["nft", "-j", "list", "tables"]))["nftables"]
        tables = [one["table"]["family"] for one in listed if "table" in one]
    except (LookupError, TypeError, ValueError) as error:
        raise MachineError(f"'nft -j list tables' does not answer as nftables does ({str(error)[:200]!r})") from error
    family = "bridge" in tables
    whose = (
        "the bridge family's own (nf_conntrack_bridge)"
        if family
        else (
            "br_netfilter's, which lends bridged packets to the IP families: this kernel has no conntrack in bridges "
            "(CONFIG_NF_CONNTRACK_BRIDGE)"
        )
    )
    return [
        f"Connection tracking is {whose}.",
        "ipp2p's payload match of 2003 is replaced by a match of the first four bytes of a BitTorrent handshake (@ih).",
        "Its rules for marks match TCP and UDP: a measurement with ICMP has connection tracking without these rules.",
    ]


DEVICE = Mode(
    name="bridge:netfilter",
    slug="netfilt",
    title="The Linux bridge with connection tracking",
    box="netfilter",
    ink=Ink("bridge-netfilter", "#c84f00", "#ff9355", (2, 2, 6, 2), "triangle-down"),
    place=22,
    rank=3,
    is_switch=True,
    is_apart=True,
    acts_on_ip=True,
    shapes=True,
    tools={"bridge": "iproute2", "nft": "nftables"},
    fix=(
        "a kernel with CONFIG_NF_CONNTRACK_BRIDGE, or CONFIG_BRIDGE_NETFILTER and CONFIG_NF_TABLES_INET, and with "
        "CONFIG_NFT_CT and CONFIG_NET_SCH_HTB: modprobe -a nf_conntrack_bridge nft_ct sch_htb"
    ),
    build=tracked,
    waiting=waiting,
    flush_fdb=flush_fdb,
    objects=objects,
    notes=notes,
)
