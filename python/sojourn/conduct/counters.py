"""What interfaces count, read often and quickly: from `/proc` of a process that lives on each host.

A command on each host, as the bed itself does it, takes longer than many a trial lasts. Judges nothing.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sojourn.bed.model import HOSTS

if TYPE_CHECKING:
    from types import TracebackType

    from sojourn.bed.model import HostName, Link
    from sojourn.conduct.site import Site

FIELDS = ("rx_packets", "rx_dropped", "tx_packets", "tx_dropped")
COLUMNS = (1, 3, 9, 11)
"""Where a line of /proc/net/dev has them, after the name."""

Counts = dict[str, dict[str, int]]


class Counters:
    """A process on each host that does nothing but live there."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._living: dict[HostName, subprocess.Popen[Any]] = {}

    def read(self, *links: Link) -> Counts:
        """The counters of these links' ports; where a shaper stands before them, what its queue lost too."""
        if self._site.simulated:
            return {}
        if self._site.bed.spec.rate_bps is not None:
            found = self._site.bed.counters(*(link.arm for link in links))
            return {dev: {name: counts[name] for name in (*FIELDS, SHAPED) if name in counts}
                    for dev, counts in found.items()}  # fmt: skip
        wanted = {port.dev for link in links for port in link.ports}
        read = [parse(Path(f"/proc/{pid}/net/dev").read_text(encoding="ascii")) for pid in self._pids()]
        return {dev: counts for host in read for dev, counts in host.items() if dev in wanted}

    def _pids(self) -> list[int]:
        if not self._living:
            for host in HOSTS:
                start = self._site.start(host.name)
                process = start(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                self._living[host.name] = process
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("there\n")
                process.stdin.flush()
                process.stdout.readline()  # it has arrived on its host once it echoes
        return [process.pid for process in self._living.values()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._living.values():
            process.kill()
            process.communicate()


SHAPED = "qdisc_dropped"


def parse(text: str) -> Counts:
    """`/proc/net/dev`, without loopback."""
    found: Counts = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        words = rest.split()
        if name.strip() != "lo":
            found[name.strip()] = {field: int(words[column]) for field, column in zip(FIELDS, COLUMNS, strict=True)}
    return found
