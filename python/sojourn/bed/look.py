"""The facts of a real host: one shell script over SSH, which needs no rights and changes nothing."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sojourn.bed.ssh import reading
from sojourn.records.decode import json_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.bed.ssh import Line

TOOLS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "flock": "util-linux",
    "timeout": "coreutils",
    "sha256sum": "coreutils",
    "gzip": "gzip",
}
"""The tools that a host must have, each with its package."""

OLDEST_KERNEL = (5, 15)
BED_MACS = "02:77:00:"
"""The first octets of the MAC addresses of a bed's ports."""

_LOOK = """
PATH=$PATH:/usr/sbin:/sbin; folder=$1; shift
echo '== uid'; id -u
echo '== boot'; cat /proc/sys/kernel/random/boot_id
echo '== machine'; cat /etc/machine-id 2>/dev/null
echo '== kernel'; uname -r; uname -v; uname -m
echo '== distribution'; sed -n 's/^PRETTY_NAME=//p' /etc/os-release 2>/dev/null | tr -d '"'
echo '== cpu'; sed -n 's/^model name[[:space:]]*: //p; s/^CPU part[[:space:]]*: /CPU part /p' /proc/cpuinfo | head -n 1
echo '== cpus'; sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status
echo '== memory'; sed -n 's/^MemTotal:[[:space:]]*\\([0-9]*\\) kB/\\1/p' /proc/meminfo
echo '== clocksource'; cat /sys/devices/system/clocksource/clocksource0/current_clocksource 2>/dev/null
echo '== governors'; cat /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor 2>/dev/null | sort -u
echo '== ssh'; echo "$SSH_CONNECTION"
echo '== tools'; for tool in "$@"; do command -v "$tool" >/dev/null && echo "$tool"; done
echo '== links'; ip -json -details address 2>/dev/null
echo '== routes'; ip -json route show table all 2>/dev/null
echo '== routes6'; ip -json -6 route show table all 2>/dev/null
echo '== qdiscs'; tc qdisc 2>/dev/null | sed -n 's/^qdisc \\([^ ]*\\) \\([^ ]*\\) dev \\([^ ]*\\).*/\\1 \\2 \\3/p'
echo '== disk'; df -Pk "$folder" 2>/dev/null | tail -n 1
echo '== sudo'; [ "$(id -u)" = 0 ] || sudo -n true 2>&1 && echo yes
echo '== now'; date +%s%N
"""


class Qdisc(NamedTuple):
    """A qdisc of a host, by the words that `tc qdisc` begins its line with: its JSON is none where one is of hfsc."""

    kind: str
    handle: str
    dev: str


@dataclass(frozen=True)
class Looked:
    """One host, as found."""

    uid: int
    boot_id: str
    release: str
    version: str
    architecture: str
    distribution: str
    cpu: str
    cpus: tuple[int, ...]
    memory_bytes: int
    clocksource: str
    management: str
    """The interface with the host's address of the SSH session; empty if unknown."""
    tools: frozenset[str]
    links: dict[str, dict[str, Any]]
    """Its interfaces, as `ip -json -details address` reports them."""
    routes: tuple[dict[str, Any], ...]
    """Its routes of all tables, as `ip -json route` reports them."""
    free_bytes: int | None
    sudo: str
    """"yes", or why sudo does not work."""
    ahead_ns: int
    """The offset of its CLOCK_REALTIME minus ours."""
    ahead_error_ns: int
    """The maximum error of this offset: half the time that the request took."""
    machine_id: str = ""
    """Its /etc/machine-id, which must not be recorded; empty if it has none."""
    governors: tuple[str, ...] = ()
    """The frequency governors of its processors; empty if there are none."""
    qdiscs: tuple[Qdisc, ...] = ()

    @property
    def kernel(self) -> tuple[int, ...]:
        """The first two numbers of its kernel version."""
        numbers = re.match(r"(\d+)\.(\d+)", self.release)
        return tuple(map(int, numbers.groups())) if numbers else ()


def look(line: Line) -> Looked:
    """Read the facts of a host."""
    before, began = time.time_ns(), time.monotonic_ns()
    said = line.run(["sh", "-c", _LOOK, "sh", line.spec.folder, *TOOLS, "python3", "ping", "taskset", "tcpdump"])
    took = time.monotonic_ns() - began
    with reading(line):
        return parse(said, before, took)


def parse(said: str, before_ns: int, took_ns: int) -> Looked:
    """Parse the script's output; raises KeyError, IndexError or ValueError if it is malformed."""
    found: dict[str, list[str]] = {}
    for words in said.splitlines():
        if words.startswith("== "):
            found[words[3:]] = []
        elif found:
            list(found.values())[-1].append(words)
    links = {one["ifname"]: _held(one, LINK) for one in _tables(found["links"]) if one}
    routes = [[_held(one, ROUTE) for one in _tables(found[name])] for name in ("routes", "routes6")]
    connection = (found["ssh"] or [""])[0].split()
    disk = (found["disk"] or [""])[0].split()
    # The script's last command reads the clock, so that nearly all of the time has passed before it.
    ahead = int(found["now"][0]) - (before_ns + took_ns // 2)
    return Looked(
        uid=int(found["uid"][0]),
        boot_id=found["boot"][0],
        release=found["kernel"][0],
        version=found["kernel"][1],
        architecture=found["kernel"][2],
        distribution=" ".join(found["distribution"]),
        cpu=" ".join(found["cpu"]),
        cpus=tuple(cpus_of(found["cpus"][0])),
        memory_bytes=int(found["memory"][0]) * 1024,
        clocksource=" ".join(found["clocksource"]),
        management=_with_address(links, connection[2]) if len(connection) == 4 else "",
        tools=frozenset(found["tools"]),
        links=links,
        routes=tuple(one for some in routes for one in some),
        free_bytes=int(disk[3]) * 1024 if len(disk) > 3 else None,
        sudo="yes" if found["sudo"][-1:] == ["yes"] else " ".join(found["sudo"]),
        ahead_ns=ahead,
        ahead_error_ns=took_ns // 2,
        machine_id=" ".join(found.get("machine", [])),
        governors=tuple(found.get("governors", [])),
        qdiscs=tuple(_qdisc(line) for line in found.get("qdiscs", []) if line),
    )


LINK: dict[str, type] = {
    "ifname": str, "address": str, "mtu": int, "flags": list, "operstate": str, "link_type": str, "master": str,
    "link": str, "linkinfo": dict, "addr_info": list,
}  # fmt: skip
OF_PORT = ("address", "mtu", "flags")
"""The properties that are restored when a port is returned to its host."""
ADDRESS: dict[str, type] = {"local": str, "prefixlen": int, "scope": str}
ROUTE: dict[str, type] = {"dst": str, "dev": str, "protocol": str, "type": str, "nexthops": list}
"""The members of `ip -json` that are read, with their types; a missing or null member is left out."""
LONGEST_QDISC = 40
"""More characters than a kind of qdisc, its handle and its interface can have."""
DEFAULT_HANDLE = "0:"
"""The handle of qdiscs that the kernel gives an interface by itself."""


def _qdisc(line: str) -> Qdisc:
    """Parse the kind of a qdisc, its handle and its interface."""
    words = line.split()
    if len(words) != len(Qdisc._fields) or len(line) > LONGEST_QDISC:
        raise ValueError(f"`tc` says of a qdisc: {line[:40]}")
    return Qdisc(*words)


def _tables(words: list[str]) -> list[dict[str, Any]]:
    """Parse an array of tables, as `ip -json` writes it."""
    read = json_value(" ".join(words) or "[]")
    if not isinstance(read, list) or not all(isinstance(one, dict) for one in read):
        raise ValueError("what `ip -json` says is no array of tables")
    return read


def _held(table: dict[str, Any], kinds: dict[str, type]) -> dict[str, Any]:
    """Return the table without nulls; a member of a wrong type raises ValueError."""
    held = {name: value for name, value in table.items() if value is not None}
    wrong = next((name for name, kind in kinds.items() if not isinstance(held.get(name, kind()), kind)), None)
    if wrong is not None or (kinds is ADDRESS and not ADDRESS.keys() <= held.keys()):
        raise ValueError(f"what `ip` says of {wrong or 'an address'} is not of its kind")
    for inner, of in (("addr_info", ADDRESS), ("nexthops", ROUTE)):
        if inner in kinds and inner in held:
            if not all(isinstance(one, dict) for one in held[inner]):
                raise ValueError(f"what `ip -json` says of {inner} is no array of tables")
            held[inner] = [_held(one, of) for one in held[inner] if one]
    if kinds is LINK and not held.get("ifname"):
        raise ValueError("`ip -json` names no interface")
    return held | ({"dst": held.get("dst", "")} if kinds is ROUTE else {})


MOST_CPUS = 1 << 16
"""More processors than any kernel supports."""


def cpus_of(words: str) -> list[int]:
    """Return the numbers of a list such as 0-3,8."""
    found: list[int] = []
    for part in words.split(","):
        first, _, last = part.partition("-")
        if max(int(first), int(last or first)) >= MOST_CPUS:
            raise ValueError(f"there is no processor of such a number: {part[:20]}")
        found += range(int(first), int(last or first) + 1)
    return found


def _with_address(links: dict[str, dict[str, Any]], address: str) -> str:
    """Return the interface with an address; a link-local one, which several may have, names it by its zone."""
    address, _, zone = address.partition("%")
    able = [
        name for name, link in links.items() if any(one.get("local") == address for one in link.get("addr_info", []))
    ]
    return zone if zone in able else next(iter(able), "")


def own_addresses(link: dict[str, Any]) -> list[str]:
    """Return the configured addresses of an interface, without link-local ones."""
    return [f"{one['local']}/{one['prefixlen']}" for one in link.get("addr_info", []) if one.get("scope") != "link"]


def unfit(looked: Looked, name: str) -> str | None:
    """Return why an interface cannot be a test port; None if it can."""
    if name not in looked.links:
        left = [other for other, link in looked.links.items() if link.get("address", "").startswith(BED_MACS)]
        if left:
            told = f"has no interface {name}, but {', '.join(left)}, left by a run that was killed"
            fix = (
                f", or: ip link set dev {left[0]} down; ip link set dev {left[0]} name {name}" if len(left) == 1 else ""
            )
            return f"{told}: the next run gives it back{fix}"
        return f"has no interface {name}; it has {', '.join(one for one in looked.links if one != 'lo')}"
    return next(_reasons(looked, name), None)


def _reasons(looked: Looked, name: str) -> Iterator[str]:
    """Return the reasons against an interface."""
    link, management = looked.links[name], looked.management
    if not management:
        yield "has no interface with the address of the SSH session: what carries it is not known, so no port is taken"
    if name == management:
        yield f"is reached by SSH through {name}: a test port must be another interface"
    if name == "lo":
        yield "has lo for itself: it is no port"
    if (master := link.get("master")) is not None:
        yield f"has {name} in {master}: take it out first (ip link set dev {name} nomaster)"
    for upper in _on_top_of(looked, name):
        yield f"has {upper} on {name}: remove it first (ip link delete dev {upper})"
    for shared in sorted(_below(looked, name) & {management, *_below(looked, management)}):
        yield f"is reached by SSH through {management}, and {name} needs {shared} as that does"
    for address in own_addresses(link):
        yield f"has the address {address} on {name}: remove it first (ip address flush dev {name})"
    for route in _routes_over(looked, name):
        yield f"has a route to {route} over {name}: remove it first"
    yield from _lost_by_a_move(looked, name)
    if lacking := [member for member in OF_PORT if member not in link]:
        yield f"does not tell {', '.join(lacking)} of {name}: a port could not be given back as it was"


PEERS = {"veth", "netkit", "vxcan"}
"""Kinds of interfaces whose `link` is the other end of a pair."""


def _lower(link: dict[str, Any]) -> str | None:
    """Return the interface below one, such as that of a VLAN."""
    return None if link.get("linkinfo", {}).get("info_kind") in PEERS else link.get("link")


def _on_top_of(looked: Looked, name: str) -> Iterator[str]:
    return (one for one, link in looked.links.items() if _lower(link) == name)


def _below(looked: Looked, name: str) -> set[str]:
    """Return all interfaces that an interface is on top of or belongs to, directly or not."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        link = looked.links.get(ahead.pop(), {})
        new = {one for one in (_lower(link), link.get("master")) if one} - found
        found |= new
        ahead += new
    return found


def _routes_over(looked: Looked, name: str) -> Iterator[str]:
    """Return the destinations of configured routes over an interface, without those that the kernel makes itself."""
    for route in looked.routes:
        devs = {route.get("dev"), *(one.get("dev") for one in route.get("nexthops", []))}
        if name in devs and route.get("protocol") != "kernel" and route.get("type") != "multicast":
            yield route["dst"]


def _lost_by_a_move(looked: Looked, name: str) -> Iterator[str]:
    """Return the reasons that are programs and qdiscs which somebody has set on an interface."""
    for qdisc in looked.qdiscs:
        if qdisc.dev == name and qdisc.handle != DEFAULT_HANDLE:
            kind = qdisc.kind
            off = f"tc qdisc del dev {name} {kind if kind in {'clsact', 'ingress'} else 'root'}"
            yield f"has the qdisc {kind} on {name}, which would be lost: remove it first ({off})"
    if "xdp" in looked.links[name]:
        off = f"ip link set dev {name} xdp off, or xdpgeneric off"
        yield f"has an XDP program on {name}, which would be lost: remove it first ({off})"
