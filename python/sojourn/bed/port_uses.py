"""The uses that this machine has for its own ports: what would stop if a bridge or an emulator took one."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.bed import host_commands
from sojourn.bed.look import PEERS
from sojourn.bed.ssh import reading
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Mapping


def links_here() -> list[dict[str, Any]]:
    """Return every interface of this network namespace, as `ip` reports it."""
    return host_commands.tables(["ip", "-json", "-details", "link"], "ifname", "flags")


def in_use(port: str, links: Mapping[str, dict[str, Any]]) -> list[str]:
    """Return the uses that this machine has for one of its ports, as ends of sentences; empty for a free port."""
    found = []
    link = links[port]
    session = _session_port()
    if session == port:
        found.append("carries the SSH session that this runs in")
    if link.get("master"):
        found.append(f"belongs to {link['master']}")
    on_it = (name for name, one in links.items() if one.get("link") == port and kind_of(one) not in PEERS)
    found += [f"has {name} on it" for name in on_it]
    with reading("'ip -json address'", "iproute2"):
        addresses = [
            f"{own['local']}/{own['prefixlen']}"
            for one in host_commands.tables(["ip", "-json", "address", "show", "dev", port])
            for own in one.get("addr_info", [])
            if not (own.get("scope") == "link" and own.get("family") == "inet6")  # every port that is up has one
        ]
    if addresses:
        found.append(f"has the address {addresses[0]}")
    for family in ("-4", "-6"):
        routes = host_commands.tables(["ip", family, "-json", "route", "show", "dev", port], "dst")
        by_hand = [one["dst"] for one in routes if not str(one["dst"]).startswith(("fe80:", "ff00:"))]
        if by_hand and not addresses:
            found.append(f"has a route to {by_hand[0]}")
    return found


def kind_of(link: dict[str, Any]) -> str:
    """Return the kind of an interface; empty for hardware."""
    about = link.get("linkinfo")
    return str(about.get("info_kind", "")) if isinstance(about, dict) else ""


def _session_port() -> str | None:
    """Return the interface of the SSH session that runs this process, below sudo too; None outside SSH."""
    pid = os.getpid()
    while pid > 1:
        with suppress(OSError, ValueError, IndexError):
            found = re.search(rb"(?:^|\0)SSH_CONNECTION=(\S+) \d+ (\S+) ", Path(f"/proc/{pid}/environ").read_bytes())
            if found:
                return _port_towards(found[1].decode(errors="replace"))
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")  # a name may be any bytes
            pid = int(stat.rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return None


def _port_towards(address: str) -> str | None:
    """Return the interface towards an address; a link-local one names it by its zone."""
    address, _, zone = address.partition("%")
    if zone:
        return zone
    with suppress(MachineError):
        routes = host_commands.tables(["ip", "-json", "route", "get", address], "dev")
        return next((str(route["dev"]) for route in routes), None)
    return None
