"""What interfaces count, read often and quickly: from each host's `/proc/net/dev`. Judges nothing.

A command on each host, as the bed itself does it, takes longer than many a trial lasts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.bed.ssh import reading

if TYPE_CHECKING:
    from sojourn.bed.backend import Backend
    from sojourn.bed.hosts import HostName
    from sojourn.bed.model import Link
    from sojourn.conduct.site import Site

FIELDS = ("rx_packets", "rx_dropped", "tx_packets", "tx_dropped")
COLUMNS = (1, 3, 9, 11)
"""Where a line of /proc/net/dev has them, after the name."""

Counts = dict[str, dict[str, int]]


class Counters:
    """The counters of a site; there are none where it is simulated."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def read(self, *links: Link) -> Counts:
        """The counters of these links' ports; where a shaper stands before them, what its queue lost too."""
        bed = self._site.bed
        if bed.backend.simulated:
            return {}
        if bed.spec.rate_bps is not None:
            found = bed.counters(*(link.path for link in links))
            return {dev: {name: counts[name] for name in (*FIELDS, SHAPED) if name in counts}
                    for dev, counts in found.items()}  # fmt: skip
        wanted = {port.dev for link in links for port in link.ports}
        hosts = dict.fromkeys(port.host for link in links for port in link.ports)
        read = [_read(bed.backend, host) for host in hosts]
        return {dev: counts for host in read for dev, counts in host.items() if dev in wanted}


SHAPED = "qdisc_dropped"


def _read(backend: Backend, host: HostName) -> Counts:
    with reading(f"host {host.upper()}"):
        return parse(backend.get(host, "/proc/net/dev"))


def parse(text: str) -> Counts:
    """`/proc/net/dev`, without loopback."""
    found: Counts = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        words = rest.split()
        if name.strip() != "lo":
            found[name.strip()] = {field: int(words[column]) for field, column in zip(FIELDS, COLUMNS, strict=True)}
    return found
