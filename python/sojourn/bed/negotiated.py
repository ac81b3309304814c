"""What a run says of the ports of real hosts: half duplex, and ports slower than the fastest of their path.

`sojourn bed check` says it of each port by its interface, with what would fix it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sojourn.bed.hosts import END_HOSTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sojourn.bed.backend import Backend
    from sojourn.bed.model import Topology

_ASK = 'while read -r dev; do echo "= $dev"; ethtool "$dev" 2>/dev/null; done; true'


def tell_of_links(backend: Backend, topology: Topology) -> None:
    """Adds to what the bed lacks what its ports negotiated amiss; they are measured as they are."""
    said: dict[tuple[str, str], str] = {}
    for host in topology.hosts:
        lines = "".join(f"{port.dev}\n" for port in topology.ports(host.name))
        if lines:
            blocks = re.split(r"^= ", backend.run(host.name, ["sh", "-c", _ASK], lines), flags=re.MULTILINE)
            said |= {(host.name, dev): told for dev, _, told in (block.partition("\n") for block in blocks[1:])}
    for link in topology.links:
        named = {
            f"{port.dev} of host {port.host.upper() if port.host in END_HOSTS else port.host}": said.get(
                (port.host, port.dev), ""
            )
            for port in link.ports
        }
        backend.missing.extend(f"Path {link.path}: {words}." for words in amiss(named))


def amiss(said: Mapping[str, str]) -> list[str]:
    """What is amiss with the ports of a path, by what `ethtool` says of each."""
    found = [
        f"{port} has half duplex" for port, words in said.items() if re.search(r"^\s*Duplex: Half", words, re.MULTILINE)
    ]
    rates = {port: int(rate[1]) for port, words in said.items() if (rate := re.search(r"Speed: (\d+)Mb/s", words))}
    slower = [port for port, rate in rates.items() if rate < max(rates.values())]
    found += [f"{port} has {rates[port]} Mbit/s, the fastest port {max(rates.values())}" for port in slower]
    return [f"{one}: frames wait there, and the device is blamed (sojourn bed check)" for one in found]
