"""Interface counters, read often and fast from each host's `/proc/net/dev`. Judges nothing.

A command on each host, which the bed itself uses, takes longer than many a trial.
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
"""The columns of these fields in a line of /proc/net/dev, after the name."""

Counts = dict[str, dict[str, int]]


class Counters:
    """The counters of a bed's interfaces; none if it is simulated."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def read(self, *links: Link) -> Counts:
        """Return the counters of these links' ports; with a shaper, also the drops of its queue."""
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
    """Parse `/proc/net/dev`, without loopback."""
    found: Counts = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        words = rest.split()
        if name.strip() != "lo":
            found[name.strip()] = {field: int(words[column]) for field, column in zip(FIELDS, COLUMNS, strict=True)}
    return found
