"""Whether a device that Sojourn does not build joins all ports of its path: each port gets what those opposite send.

A switch may block a port for half a minute after its link has come up (spanning tree), and what is sent meanwhile is
lost. Nothing of the device is read: the ports of the hosts send frames that nobody answers, broadcast ones so that they
need no learned address, and each port opposite counts what comes in.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sojourn.bed.hosts import DEVICES_HOST, END_HOSTS, ports_of
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sojourn.bed.build import Bed
    from sojourn.bed.model import Link, Port

PROBES = 20
BROADCAST = "ff:ff:ff:ff:ff:ff"
JOINED_SECONDS = 60.0
"""The time within which a device must have joined its ports."""
COUNTED_SECONDS = 3.0
"""The time that drivers may take to update their counters."""

_SEND = """
to=$1 count=$2 program=$3; shift 3
for dev; do
    "$program" probe raw --dev "$dev" --to "$to" -c "$count" -i 1ms --timeout 1ms >/dev/null && continue
    status=$?
    [ $status = 4 ] || exit $status
done
"""  # status 4: nobody answers


def require_joined(bed: Bed, link: Link) -> None:
    """Wait until each port of the link's ends gets what every port opposite sends; else raise MachineError."""
    deadline = time.monotonic() + JOINED_SECONDS
    for own, opposite in _ways(link):
        while silent(_came(bed, own, opposite), opposite, len(own)):
            if time.monotonic() > deadline:
                raise MachineError(_first_silent(bed, link) or f"path {link.path}: its ports lose frames")


def strays(bed: Bed, link: Link) -> list[str]:
    """Return the ports of other paths that get what the link's ports send to all."""
    own = {port.dev for port in link.ports}
    others = [port.dev for one in bed.topology.links for port in one.ports if port.dev not in own]
    came = [_came(bed, *way) for way in _ways(link)]
    return [dev for dev in dict.fromkeys(others) if any(2 * one[dev] >= PROBES for one in came)]


def silent(came: Mapping[str, int], opposite: Sequence[Port], senders: int) -> list[Port]:
    """Return the ports that lack the frames of one of the senders, by how many came in; a few may be lost."""
    return [port for port in opposite if came[port.dev] < PROBES * (senders - 0.5)]


def port_counters(bed: Bed) -> dict[str, dict[str, int]]:
    """Return the counters of every port of the bed; raises MachineError with the names of those without."""
    found = bed.counters()
    ports = dict.fromkeys(port for link in bed.topology.links for port in link.ports)
    if lacking := [_called(bed, port) for port in ports if port.dev not in found]:
        fix = "was it removed, or does `ip -statistics link` there leave it out?"
        raise MachineError(f"no counters of {', '.join(lacking)}: {fix}")
    return found


def send(bed: Bed, ports: Sequence[Port]) -> None:
    """Have ports of one host send the frames, one port after the other."""
    argv = ["sh", "-c", _SEND, "sh", BROADCAST, str(PROBES), bed.backend.instrument()]
    bed.backend.run(ports[0].host, [*argv, *(port.dev for port in ports)])


def _ways(link: Link) -> tuple[tuple[Sequence[Port], Sequence[Port]], ...]:
    return (link.near, link.far), (link.far, link.near)


def _came(bed: Bed, own: Sequence[Port], opposite: Sequence[Port]) -> dict[str, int]:
    """Have ports of one host send, one after the other, and return what came in at each port of the bed."""
    before = port_counters(bed)
    send(bed, own)
    deadline = time.monotonic() + COUNTED_SECONDS
    while True:
        now = port_counters(bed)
        came = {dev: now[dev]["rx_packets"] - before[dev]["rx_packets"] for dev in now.keys() & before.keys()}
        if not silent(came, opposite, len(own)) or time.monotonic() > deadline:
            return came
        time.sleep(0.2)


def _first_silent(bed: Bed, link: Link) -> str | None:
    """Return where the frames of the first port that does not reach all ports opposite are missing."""
    for ours, opposite in _ways(link):
        for own in ours:
            if missing := silent(_came(bed, [own], opposite), opposite, 1):
                there = ", ".join(_called(bed, port) for port in missing)
                return f"path {link.path}: what {_called(bed, own)} sends does not reach {there}"
    return None


def _called(bed: Bed, port: Port) -> str:
    real = ports_of(bed.topology, bed.spec.paths)
    host = port.host.upper() if port.host in END_HOSTS else DEVICES_HOST
    return f"{real.get(port.dev, port.dev)} of host {host}"
