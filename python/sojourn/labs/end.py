"""One end of an emulated path: a network namespace for programs, its addresses, and its listening sockets."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sojourn.bed.ssh import reading
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sojourn.bed.backends.netns import NetnsBackend
    from sojourn.bed.hosts import HostName

LISTENING = {"tcp": "0A", "udp": "07"}
"""The states of receiving sockets in the kernel's tables: LISTEN, and that of every UDP socket."""

LOOK_SECONDS = 0.005


@dataclass(frozen=True)
class End:
    """One end. Its programs see the files that everybody sees; what they have started is ended with the laboratory."""

    name: Literal["near", "far"]
    host: HostName
    dev: str
    """Its interface."""
    address: str
    """Its IPv4 address."""
    address6: str
    """Its IPv6 address."""
    peer: str
    """The other end's IPv4 address."""
    peer6: str
    """The other end's IPv6 address."""
    backend: NetnsBackend

    @property
    def environment(self) -> dict[str, str]:
        """Variables that programs of this end get, beside the environment that they have anyway."""
        return {
            "SOJOURN_ADDRESS": self.address,
            "SOJOURN_ADDRESS6": self.address6,
            "SOJOURN_PEER": self.peer,
            "SOJOURN_PEER6": self.peer6,
            "SOJOURN_DEV": self.dev,
        }

    @property
    def congestion(self) -> str:
        """The congestion control of TCP that connections here have, unless they ask for another."""
        return self.backend.get(self.host, "/proc/sys/net/ipv4/tcp_congestion_control").strip()

    def popen(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **popen: Any
    ) -> subprocess.Popen[Any]:
        """Start a program here, as `subprocess.Popen` does, in a session of its own and without input unless
        `start_new_session` and `stdin` say otherwise. It is killed when this thread or process ends."""
        told = {**(os.environ if env is None else env), **self.environment}
        return self.backend.start(self.host, argv, env=told, **popen)

    def run(
        self,
        argv: Sequence[str],
        *,
        input: str | None = None,  # noqa: A002 - as subprocess has it
        timeout: float | None = None,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        **popen: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program here to its end, with its output as text, as `subprocess.run` does.

        Raises subprocess.CalledProcessError where it fails, unless `check` is False, and subprocess.TimeoutExpired.
        """
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | popen
        with self.popen(argv, env=env, **pipes) as process:
            try:
                out, said = process.communicate(input, timeout)
            except BaseException:
                process.kill()
                raise
        done = subprocess.CompletedProcess(list(argv), process.returncode, out, said)
        if check:
            done.check_returncode()
        return done

    def listens(self, port: int | None = None) -> bool:
        """Whether a program here waits for others over TCP or UDP: at this port, or at any."""
        return any(port in {None, one} for one in self._ports())

    def wait_for_port(
        self, port: int | None = None, seconds: float = 5.0, *, unless: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait until a program here listens at this port, or at any; raises MachineError when none does in time.

        Ends sooner when `unless` becomes true: when the program has ended.
        """
        deadline = time.monotonic() + seconds
        while not self.listens(port) and not unless():
            if time.monotonic() > deadline:
                where = "any port" if port is None else f"port {port}"
                raise MachineError(f"no program at the {self.name} end listens at {where} after {seconds:g} s")
            time.sleep(LOOK_SECONDS)

    def _ports(self) -> Iterator[int]:
        for protocol, state in LISTENING.items():
            for family in ("", "6"):
                yield from _ports_in(self.backend.get(self.host, f"/proc/net/{protocol}{family}"), state)


def _ports_in(table: str, wanted: str) -> Iterator[int]:
    """Yield the local ports of the sockets in this state, from a table of /proc/net."""
    with reading("/proc/net", "Linux"):
        for line in table.splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == wanted:
                yield int.from_bytes(bytes.fromhex(local[-4:]), "big")
