"""Negotiated and configured properties of ports that delay frames, for `sojourn bed check` and for a run.

Half duplex, ports slower than the fastest of their path, interrupt coalescing, links that sleep (EEE). Ports have the
names that people know, with their host.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from sojourn.bed.hosts import DEVICES_HOST, END_HOSTS
from sojourn.bed.machine import STEADY_GOVERNOR, judge_governors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sojourn.bed.backend import Backend
    from sojourn.bed.model import Link, Topology

OFFLOADS = {
    "generic-receive-offload": "gro",
    "generic-segmentation-offload": "gso",
    "tcp-segmentation-offload": "tso",
    "large-receive-offload": "lro",
}
"""Offloads that join or split frames: names of `ethtool -k`, with those of `ethtool -K`."""

# One device per line on standard input.
_ASK = """
PATH=$PATH:/usr/sbin:/sbin
while read -r dev; do
    echo "= $dev"
    ethtool "$dev" 2>/dev/null
    echo '== coalescing'; ethtool -c "$dev" 2>/dev/null
    echo '== eee'; ethtool --show-eee "$dev" 2>/dev/null
    echo '== offloads'; ethtool -k "$dev" 2>/dev/null
done
true
"""

BLAMED = "frames wait there, and the device is blamed (sojourn bed check)"


class Port(NamedTuple):
    """A port, as found."""

    name: str
    """The name that people know, with the host."""
    told: str
    fix: str | None
    """What to change; None if nothing delays frames."""
    mbps: int | None


def ports_found(backend: Backend, topology: Topology, real: Mapping[str, str]) -> dict[str, Port]:
    """Return every port that is a real interface, by its name in the bed; `real` has the interfaces' names."""
    found: dict[str, Port] = {}
    for host in topology.hosts:
        devs = [port.dev for port in topology.ports(host.name) if port.dev in real]
        if not devs:
            continue
        said = backend.run(host.name, ["sh", "-c", _ASK], "".join(f"{dev}\n" for dev in devs))
        blocks = re.split(r"^= (?!=)", said, flags=re.MULTILINE)[1:]
        told = {dev: words for dev, _, words in (block.partition("\n") for block in blocks)}
        where = f"host {host.name.upper() if host.name in END_HOSTS else DEVICES_HOST}"
        for dev in devs:
            words, fix = judge_port(told.get(dev, ""))
            rate = re.match(r"(\d+)Mb/s", words)
            name = f"{real[dev]} of {where}"
            found[dev] = Port(name, words, fix, int(rate[1]) if rate else None)
    return found


def rates_of(link: Link, ports: Mapping[str, Port]) -> dict[str, int]:
    """Return the speeds of a path's ports in Mbit/s, by their known names; ports without a speed are left out."""
    every = (ports[port.dev] for port in link.ports if port.dev in ports)
    return {one.name: one.mbps for one in every if one.mbps is not None}


def delaying(backend: Backend, topology: Topology, real: Mapping[str, str]) -> list[str]:
    """Return what delays frames at the bed's ports and hosts, a sentence each; the run goes on with them.

    Without names of interfaces only the hosts are checked.
    """
    ports = ports_found(backend, topology, real) if real else {}
    found = []
    for link in topology.links:
        for port in link.ports:
            one = ports.get(port.dev)
            if one is not None and one.fix is not None:
                found.append(f"Path {link.path}: {one.name} has {one.told}: {BLAMED}: {one.fix}.")
        if (differ := judge_rates(rates_of(link, ports))) is not None:
            found.append(f"Path {link.path}: {differ}: {BLAMED}.")
    for host, governors in backend.governors().items():
        if (wrong := judge_governors(governors)) is not None:
            found.append(f"{host[:1].upper()}{host[1:]} has {wrong}: {STEADY_GOVERNOR}.")
    return list(dict.fromkeys(found))


def judge_rates(rates: Mapping[str, int]) -> str | None:
    """Return which ports are slower than the path's fastest, by speeds in Mbit/s; None if all are equal."""
    fastest = max(rates.values(), default=0)
    slower = [f"{port} has {rate} Mbit/s" for port, rate in rates.items() if rate < fastest]
    return f"{', '.join(slower)}; the path's fastest port has {fastest} Mbit/s" if slower else None


def judge_port(said: str) -> tuple[str, str | None]:
    """Return a summary of `ethtool` for a port, and what to change if anything delays frames or is slow."""
    speed, duplex = (re.search(rf"^\s*{name}: (.+)$", said, re.MULTILINE) for name in ("Speed", "Duplex"))
    rate = speed[1].strip() if speed and "Unknown" not in speed[1] else "speed not told"
    way = duplex[1].strip().lower() if duplex and "Unknown" not in duplex[1] else "not told"
    waits = [int(words) for words in re.findall(r"^rx-usecs:\s*(\d+)", said, re.MULTILINE)]
    adaptive = re.search(r"^Adaptive RX: on", said, re.MULTILINE) is not None
    sleeps = re.search(r"^\s*EEE status: enabled - active", said, re.MULTILINE) is not None
    told = [rate, f"duplex {way}"]
    fixes = []
    if way == "half":
        fixes.append("half duplex: negotiate at both ends, or set both alike (ethtool -s DEV speed N duplex full)")
    if adaptive or any(waits):
        told.append("coalescing adaptive" if adaptive else f"coalescing {max(waits)} us")
        fixes.append("interrupts wait for more frames: ethtool -C DEV adaptive-rx off rx-usecs 0")
    if sleeps:
        told.append("energy-efficient Ethernet active")
        fixes.append("the link sleeps: ethtool --set-eee DEV eee off")
    if on := [short for long, short in OFFLOADS.items() if re.search(rf"^{long}: on\b", said, re.MULTILINE)]:
        told.append(f"offloads on: {' '.join(on)}")
    return ", ".join(told), "; ".join(fixes) or None
