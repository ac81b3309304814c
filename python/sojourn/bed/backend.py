"""The seam below a bed: what a machine, or several, must offer so that a bed can be built on it.

Above it, everything is text: commands as argument lists, `ip -batch` and friends on standard input, JSON out. So one
that runs the same commands over ssh fits beside the one for namespaces with no change above. A backend knows how to
bring hosts and bare cables into being, and how to run something on a host; it does not know addresses, bridges,
offloads or anything else that is the same on every machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Sequence

    from sojourn.bed.model import BedSpec, Cable, HostName, Topology


class Backend(Protocol):
    """Hosts to run things on. `close` removes whatever `open` made, and may be called at any moment, twice too."""

    unprivileged: bool
    """Whether it works without the rights of root."""

    missing: list[str]
    """What cannot be had here, a sentence each."""

    def open(self, topology: Topology, spec: BedSpec) -> None:
        """Brings the hosts into being, with no cable between them yet."""

    def lay(self, cables: Iterable[Cable], mtu: int) -> None:
        """Brings the cables into being, or finds them: bare, with their MACs, all down."""

    def start(self, host: HostName, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        """Starts a program on a host; it dies with this process, whatever happens to either."""

    def run(self, host: HostName, argv: Sequence[str], input: str | None = None) -> str:  # noqa: A002
        """Runs a command on a host to its end and gives its standard output; raises MachineError when it fails."""

    def beside(self, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        """Starts a program on no host: it watches them from outside, and dies with this process as they do."""

    def cgroup(self, host: HostName) -> str:
        """The cgroup in which the programs of a host run; raises MachineError where it has none of its own."""

    def put(self, host: HostName, path: str, text: str) -> None:
        """Writes a file of a host, the kernel's own (`/proc`, `/sys`) included."""

    def get(self, host: HostName, path: str) -> str:
        """Reads a file of a host."""

    def socket(self, name: str) -> str:
        """Where a program may listen for this process alone: a path that goes with the bed."""

    def facts(self) -> dict[str, Any]:
        """What kind of hosts these are."""

    def close(self) -> None:
        """Leaves everything as it was found."""
