"""One real host as OpenSSH reaches it: one connection, over which everything else goes; what fails, as a sentence.

OpenSSH is run, not imitated: the user's configuration, agent, keys and known hosts are its own business. A host key
that is not known is refused, whatever the configuration says, and nothing is ever asked of a person.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.bed.processes import end, find_tool, guarded
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.bed.model import HostSpec

OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "LogLevel=ERROR",
)
CONNECT_SECONDS = 30.0
COMMAND_SECONDS = 60.0
LOST = 255
"""The status of `ssh` where the connection failed, and not the command."""


class Line:
    """A connection to a host, open until `close` or the end of this process."""

    def __init__(self, name: str, spec: HostSpec, socket: str) -> None:
        self.name = name
        self.spec = spec
        self._socket = socket
        if find_tool("ssh") is None:
            raise MachineError("ssh not found: apt-get install openssh-client")
        self._master = subprocess.Popen(
            guarded([*self._ssh(), "-o", "ControlMaster=yes", "-o", "ControlPersist=no", "-N", spec.address]),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        self._await_connection()

    def __str__(self) -> str:
        return f"host {self.name} ({self.spec.address})"

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command here that runs another there, as whoever logs in."""
        return [*self._ssh(), "-o", "ControlMaster=no", self.spec.address, "--", shlex.join(argv)]

    def run(self, argv: Sequence[str], text: str = "", seconds: float = COMMAND_SECONDS) -> str:
        """Run a command there to its end; raises MachineError with what it said when it fails."""
        return self.run_bytes(argv, text.encode(), seconds).decode(errors="replace")

    def run_bytes(self, argv: Sequence[str], given: bytes = b"", seconds: float = COMMAND_SECONDS) -> bytes:
        """The same with bytes."""
        try:
            done = subprocess.run(
                guarded(self.command(argv)), input=given, capture_output=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            raise MachineError(f"{self}: '{argv[0]}' did not end within {seconds:.0f} s") from None
        if done.returncode == LOST and not self.is_up:
            raise MachineError(self.lost())
        if done.returncode != 0:
            said = " / ".join(done.stderr.decode(errors="replace").strip().splitlines()[-2:])
            raise MachineError(f"{self}: {said or f'status {done.returncode}'}")
        return done.stdout

    @property
    def is_up(self) -> bool:
        """Whether the connection still stands, as far as is known."""
        return self._master.poll() is None

    def lost(self) -> str:
        """The sentence for a connection that ended."""
        return f"{self}: the SSH connection was lost"

    def close(self) -> None:
        """End the connection."""
        if self._master.poll() is None:
            self._master.terminate()
        end(self._master)
        Path(self._socket).unlink(missing_ok=True)

    def _ssh(self) -> list[str]:
        spec = self.spec
        words = ["ssh", *(["-F", spec.config] if spec.config else [])]
        words += [word for option in (*OPTIONS, f"ControlPath={self._socket}") for word in ("-o", option)]
        words += ["-o", "IdentitiesOnly=yes", "-i", spec.identity] if spec.identity else []
        words += ["-l", spec.user] if spec.user else []
        words += ["-p", str(spec.port)] if spec.port else []
        return words + (["-J", spec.jump] if spec.jump else [])

    def _await_connection(self) -> None:
        deadline = time.monotonic() + CONNECT_SECONDS
        while not Path(self._socket).exists():
            if self._master.poll() is not None:
                _, said = self._master.communicate()
                raise MachineError(f"{self}: {why(said, self.spec)}")
            if time.monotonic() > deadline:
                self.close()
                raise MachineError(f"{self}: no SSH connection within {CONNECT_SECONDS:.0f} s")
            time.sleep(0.01)


def why(said: str, spec: HostSpec) -> str:
    """What `ssh` said when it could not connect, and what would fix it."""
    by_hand = shlex.join(["ssh", *(["-F", spec.config] if spec.config else []), spec.address])
    last = " ".join((said.strip().splitlines() or ["ssh ended without a word"])[-1].split())
    if "IDENTIFICATION HAS CHANGED" in said:
        found = re.search(r"Offending \S+ key in (\S+)", said)
        where = f" in {found[1]}" if found else ""
        return (
            f"its host key is not the one{where}: somebody answers in its place, or it was installed anew; "
            "ask who runs it before you remove that line"
        )
    if "Host key verification failed" in said or "host key is known" in said:
        return f"its host key is not known yet: connect once by hand and compare it: {by_hand}"
    if "Permission denied" in said:
        return f"it refuses the login ({last.rstrip('.')}): try {by_hand}"
    unreachable = ("Could not resolve", "Connection refused", "timed out", "No route", "unreachable", "closed by")
    if any(words in said for words in unreachable):
        return f"it cannot be reached: {last.removeprefix('ssh: ').rstrip('.')}"
    return f"ssh failed: {last.rstrip('.')}"


def who() -> str:
    """Who holds a bed, as others are told: user, machine, process."""
    user = os.environ.get("SUDO_USER") or os.environ.get("USER") or str(os.getuid())
    name = os.uname().nodename
    with suppress(OSError):
        name = Path("/etc/hostname").read_text(encoding="utf-8").strip() or name
    return f"{user}@{name}, process {os.getpid()}"


def rights(line: Line, uid: int) -> list[str]:
    """What is put before a command that needs the rights of root."""
    return ["sudo", "-n", "--"] if uid != 0 and line.spec.sudo else []


def launch(line: Line, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
    """Start a command there; its streams are those of the process here."""
    return subprocess.Popen(guarded(line.command(argv)), **popen)
