"""The backend for simulated devices: every host is this machine, and nothing is built.

The instrument simulates the devices. Its processes still die with this process, and the machine's facts are still
recorded.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sojourn.bed.backends.local import LocalMachine
from sojourn.bed.processes import end_all, environment, finish, guarded, launch
from sojourn.bed.state import Mark, StateFile
from sojourn.errors import MachineError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Sequence

    from sojourn.bed.hosts import HostName
    from sojourn.bed.model import BedSpec, Cable, Topology


class SimulatedBackend(LocalMachine):
    """Programs on this machine; no cables."""

    simulated: ClassVar[bool] = True

    def __init__(self, run_id: str) -> None:
        self.unprivileged = False
        self.missing: list[str] = []
        self._mark = Mark.of_this_process(run_id)
        self._started: list[subprocess.Popen[Any]] = []

    def open(self, topology: Topology, spec: BedSpec) -> None:
        """Do nothing: there are no hosts to create."""

    def lay(self, cables: Iterable[Cable], mtu: int) -> None:
        """Do nothing: there are no cables."""

    def start(self, host: HostName, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        process = launch(guarded(argv), argv[0], self._mark, popen)
        self._started.append(process)
        return process

    def run(self, host: HostName, argv: Sequence[str], input: str | None = None) -> str:  # noqa: A002
        return finish(guarded(argv), input, environment(self._mark), shown=shlex.join(argv))

    def beside(self, argv: Sequence[str], host: HostName | None = None, **popen: Any) -> subprocess.Popen[Any]:
        return self.start(host or "a", argv, **popen)

    def cgroup(self, host: HostName) -> str:
        raise MachineError(f"host {host.upper()} is simulated: it has no cgroup")

    def put(self, host: HostName, path: str, text: str) -> None:
        Path(path).write_text(text)

    def machine_ids(self) -> dict[str, str]:
        """Return nothing: simulated time is the same on every machine."""
        return {}

    def socket(self, name: str) -> str:
        return str(StateFile(self._mark.run).socket(name))

    @classmethod
    def require_frequency(cls) -> None:
        """Do nothing: the processors' frequency has no effect on simulated time."""

    def close(self) -> None:
        """End the programs started here."""
        self.let_go()
        end_all(self._started)
        self._started.clear()
