"""iperf3: TCP connections from A to B that carry as much as they can, until they are ended.

It makes traffic and measures nothing here: the traffic is read from the kernel's counters.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from sojourn.bed.ssh import reading
from sojourn.errors import MachineError
from sojourn.instruments.ping import pinned

if TYPE_CHECKING:
    from types import TracebackType

    from sojourn.bed import Bed
    from sojourn.bed.hosts import HostName

PORT = 5201
READY_SECONDS = 10.0
LISTENING, ESTABLISHED = "0A", "01"


class Traffic(NamedTuple):
    """The options of the traffic."""

    address: str
    flows: int
    seconds: float
    mss_bytes: int
    congestion_control: str
    sender_cpu: int | None = None
    receiver_cpu: int | None = None


class Iperf:
    """A server at B and a client at A; after construction, the connections exist."""

    def __init__(self, bed: Bed, asked: Traffic) -> None:
        self._bed = bed
        # A file, because a full pipe would stop the traffic.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the processes
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start("b", [*pinned(bed, "b", asked.receiver_cpu), *server_argv(asked)], LISTENING, 1)
            # One connection more than flows: the control connection of iperf3.
            client = [*pinned(bed, "a", asked.sender_cpu), *client_argv(asked)]
            self._start("a", client, ESTABLISHED, asked.flows + 1)
        except BaseException:
            self.stop()
            raise

    def require_alive(self) -> None:
        """Raise MachineError with its last output if an end has died."""
        for process in self._processes:
            if process.poll() is not None:
                self._said.seek(0)
                words = self._said.read().decode(errors="replace").strip().splitlines()
                raise MachineError(f"iperf3 ended early: {words[-1] if words else f'status {process.returncode}'}")

    def stop(self) -> None:
        """End both."""
        for process in reversed(self._processes):
            if process.poll() is None:
                process.kill()
            process.wait()
        self._processes.clear()
        self._said.close()

    def _start(self, host: HostName, argv: list[str], state: str, count: int) -> None:
        process = self._bed.backend.start(host, argv, stdout=self._said, stderr=subprocess.STDOUT)
        self._processes.append(process)
        end = time.monotonic() + READY_SECONDS
        while self._sockets(host, state) < count:
            self.require_alive()
            if time.monotonic() > end:
                raise MachineError(f"iperf3 has not its {count} connections after {READY_SECONDS:.0f} s")
            time.sleep(0.005)

    def _sockets(self, host: HostName, state: str) -> int:
        with reading(f"host {host.upper()}"):
            return sockets_in(self._bed.backend.get(host, "/proc/net/tcp"), state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def server_argv(asked: Traffic) -> list[str]:
    """Return the command line of the receiving end."""
    own = ["--one-off", "--bind", asked.address, "--port", str(PORT), "--interval", "0"]
    return ["iperf3", "--server", *own]


def client_argv(asked: Traffic) -> list[str]:
    """Return the command line of the sending end; it is always ended from outside."""
    return [
        *("iperf3", "--client", asked.address, "--port", str(PORT), "--time", f"{asked.seconds:.0f}"),
        *("--parallel", str(asked.flows), "--set-mss", str(asked.mss_bytes)),
        *("--congestion", asked.congestion_control, "--interval", "0"),
    ]


def sockets_in(text: str, state: str) -> int:
    """Return the number of sockets of our port in a state, from a host's `/proc/net/tcp`."""
    port = f":{PORT:04X}"
    lines = map(str.split, text.splitlines()[1:])
    return sum(words[3] == state and (port in words[1] or port in words[2]) for words in lines)
