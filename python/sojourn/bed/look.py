"""What a real host says of itself: one shell script over SSH, without rights and without changing anything."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.errors import MachineError

if TYPE_CHECKING:
    from sojourn.bed.ssh import Line

TOOLS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "flock": "util-linux",
    "timeout": "coreutils",
    "sha256sum": "coreutils",
    "gzip": "gzip",
}
"""What a host must have, and the package of each."""

OLDEST_KERNEL = (5, 15)

_LOOK = """
PATH=$PATH:/usr/sbin:/sbin; folder=$1; shift
echo '== uid'; id -u
echo '== boot'; cat /proc/sys/kernel/random/boot_id
echo '== kernel'; uname -r; uname -v; uname -m
echo '== distribution'; sed -n 's/^PRETTY_NAME=//p' /etc/os-release 2>/dev/null | tr -d '"'
echo '== cpu'; sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1
echo '== cpus'; sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status
echo '== memory'; sed -n 's/^MemTotal:[[:space:]]*\\([0-9]*\\) kB/\\1/p' /proc/meminfo
echo '== clocksource'; cat /sys/devices/system/clocksource/clocksource0/current_clocksource 2>/dev/null
echo '== ssh'; echo "$SSH_CONNECTION"
echo '== tools'; for tool in "$@"; do command -v "$tool" >/dev/null && echo "$tool"; done
echo '== links'; ip -json -details address 2>/dev/null
echo '== disk'; df -Pk "$folder" 2>/dev/null | tail -n 1
echo '== sudo'; [ "$(id -u)" = 0 ] || sudo -n true 2>&1 && echo yes
echo '== now'; date +%s%N
"""


@dataclass(frozen=True)
class Looked:
    """One host, as it was found."""

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
    """The interface that carries the SSH session; empty where that is not told."""
    tools: frozenset[str]
    links: dict[str, dict[str, Any]]
    """Its interfaces as `ip -json -details address` has them."""
    free_bytes: int | None
    sudo: str
    """"yes", or why not."""
    ahead_ns: int
    """By how much its CLOCK_REALTIME is ahead of ours."""
    ahead_error_ns: int
    """The largest error of that: half of what the asking took."""

    @property
    def kernel(self) -> tuple[int, ...]:
        """The first two numbers of its version."""
        return tuple(int(word) for word in self.release.split("-")[0].split(".")[:2] if word.isdigit())


def look(line: Line) -> Looked:
    """Ask a host."""
    before, began = time.time_ns(), time.monotonic_ns()
    said = line.run(["sh", "-c", _LOOK, "sh", line.spec.folder, *TOOLS, "python3", "ping", "taskset", "tcpdump"])
    took = time.monotonic_ns() - began
    found: dict[str, list[str]] = {}
    for words in said.splitlines():
        if words.startswith("== "):
            found[words[3:]] = []
        elif found:
            list(found.values())[-1].append(words)
    try:
        return _parse(found, before, took)
    except (KeyError, IndexError, ValueError) as error:
        raise MachineError(f"{line} does not answer as a Linux host does ({error!r})") from error


def _parse(found: dict[str, list[str]], before_ns: int, took_ns: int) -> Looked:
    links = {one["ifname"]: one for one in json.loads(" ".join(found["links"]) or "[]") if one}
    connection = (found["ssh"] or [""])[0].split()
    disk = (found["disk"] or [""])[0].split()
    # The clock is read by the script's last command, so less than all of the time lies behind it.
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
        free_bytes=int(disk[3]) * 1024 if len(disk) > 3 else None,
        sudo=" ".join(found["sudo"]),
        ahead_ns=ahead,
        ahead_error_ns=took_ns // 2,
    )


def cpus_of(words: str) -> list[int]:
    """The numbers of a list such as 0-3,8."""
    found: list[int] = []
    for part in words.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _with_address(links: dict[str, dict[str, Any]], address: str) -> str:
    for name, link in links.items():
        if any(one.get("local") == address for one in link.get("addr_info", [])):
            return name
    return ""


def own_addresses(link: dict[str, Any]) -> list[str]:
    """The addresses of an interface that somebody has given it."""
    return [f"{one['local']}/{one['prefixlen']}" for one in link.get("addr_info", []) if one.get("scope") != "link"]


def unfit(looked: Looked, name: str) -> str | None:
    """Why an interface cannot be taken as a test port; None where it can."""
    link = looked.links.get(name)
    if link is None:
        there = ", ".join(one for one in looked.links if one != "lo")
        return f"has no interface {name}; it has {there}"
    if name == looked.management:
        return f"is reached by SSH through {name}: a test port must be another interface"
    if name == "lo":
        return "has lo for itself: it is no port"
    if (master := link.get("master")) is not None:
        return f"has {name} in {master}: take it out first (ip link set dev {name} nomaster)"
    if addresses := own_addresses(link):
        return f"has the address {addresses[0]} on {name}: remove it first (ip address flush dev {name})"
    return None
