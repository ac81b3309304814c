"""One real host, reached by OpenSSH: one connection that everything uses; failures become sentences.

OpenSSH itself is run: the user's configuration, agent, keys and known hosts apply. An unknown host key is refused,
whatever the configuration says, and nothing asks the user.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.bed import bounded
from sojourn.bed.bounded import MOST_BYTES, TooLongError
from sojourn.bed.processes import end, find_tool, guarded
from sojourn.bed.state import Process, StateFile, remove_left
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
"""The exit status of `ssh` if the connection failed, not the command."""


class TooMuchError(MachineError):
    """A host sends more than it was asked for."""


class Line:
    """A connection to a host, open until `close` or the end of this process."""

    def __init__(self, name: str, spec: HostSpec, socket: str) -> None:
        self.name = name
        self.spec = spec
        self._socket = socket
        if find_tool("ssh") is None:
            raise MachineError("ssh not found: apt-get install openssh-client")
        self._through = through(spec)
        self._master = subprocess.Popen(
            guarded(self._ssh("-o", "ControlMaster=yes", "-o", "ControlPersist=no", "-N")),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            errors="replace", start_new_session=True,
        )  # fmt: skip
        self._await_connection()

    def __str__(self) -> str:
        return f"host {self.name} ({self.spec.address})"

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the local command that runs another on the host, as the login user."""
        return [*self._ssh("-o", "ControlMaster=no"), shlex.join(argv)]

    def run(self, argv: Sequence[str], text: str = "", seconds: float = COMMAND_SECONDS) -> str:
        """Run a command on the host to its end; raises MachineError with its error output if it fails."""
        return self.run_bytes(argv, text.encode(), seconds).decode(errors="replace")

    def run_bytes(
        self,
        argv: Sequence[str],
        given: bytes = b"",
        seconds: float = COMMAND_SECONDS,
        most_bytes: int = MOST_BYTES,
    ) -> bytes:
        """Run a command with bytes as input and output; one that prints more than `most_bytes` is ended."""
        try:
            done = bounded.run(guarded(self.command(argv)), given, seconds, most_bytes)
        except subprocess.TimeoutExpired:
            raise MachineError(f"{self}: '{argv[0]}' did not end within {seconds:.0f} s") from None
        except TooLongError:
            raise TooMuchError(f"{self}: '{argv[0]}' printed more than {most_bytes} bytes: none is taken") from None
        if done.returncode == LOST and not self.is_up:
            raise MachineError(self.lost())
        if done.returncode != 0:
            said = " / ".join(done.stderr.decode(errors="replace").strip().splitlines()[-2:])
            raise MachineError(f"{self}: {said or f'status {done.returncode}'}")
        return done.stdout

    @property
    def is_up(self) -> bool:
        """Whether the connection is up, as far as known."""
        return self._master.poll() is None

    def lost(self) -> str:
        """Return the sentence for a connection that ended."""
        return f"{self}: the SSH connection was lost"

    def close(self) -> None:
        """End the connection."""
        if self._master.poll() is None:
            self._master.terminate()
        end(self._master)
        Path(self._socket).unlink(missing_ok=True)

    def _ssh(self, *more: str) -> list[str]:
        """Return the `ssh` command for the host, with more options."""
        spec = self.spec
        words = ["ssh", *(["-F", spec.config] if spec.config else [])]
        words += [word for option in (*OPTIONS, f"ControlPath={self._socket}") for word in ("-o", option)]
        words += ["-o", "IdentitiesOnly=yes", "-i", spec.identity] if spec.identity else []
        return [*words, *self._through, *more, *_target(spec)]

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


@contextmanager
def looking(name: str, spec: HostSpec) -> Iterator[Line]:
    """Connect to a host to look at it; a state file names the socket, so that it goes if this process is killed."""
    remove_left()
    state = StateFile(f"look-{secrets.token_hex(4)}")
    state.write(Process.of(os.getpid()))
    try:
        line = Line(name, spec, str(state.socket("ssh")))
        try:
            yield line
        finally:
            line.close()
    finally:
        state.remove()


UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""The errors of parsing output that is malformed."""

OUR_INSTRUMENT = "an instrument of this version"
"""What a host's program is expected to be, for `reading`."""


@contextmanager
def reading(host: object, kind: str = "a Linux host") -> Iterator[None]:
    """Turn errors in parsing the output of a host, or of one of its programs, into one sentence."""
    try:
        yield
    except UNREADABLE as error:
        raise MachineError(f"{host} does not answer as {kind} does ({str(error)[:200]!r})") from error


def through(spec: HostSpec) -> list[str]:
    """Return the options for `ssh` to go through jump hosts, each with our options, which `-J` leaves out.

    They are those of the bed file, else those of the configuration. A `ProxyCommand` of the configuration is left as it
    is.
    """
    if spec.jump == "none":
        return ["-o", "ProxyJump=none"]
    jumps = _hops(spec.jump, spec, ()) if spec.jump else _configured(spec.address, spec, ())
    command = ""
    for number, jump in enumerate(jumps):
        words = ["ssh", *(["-F", spec.config] if spec.config else [])]
        words += [word for option in (*OPTIONS, "ControlMaster=no", "ControlPath=none") for word in ("-o", option)]
        words += ["-i", spec.identity] if spec.identity else []
        *who_and_port, _, host = _destination(jump)
        if number:
            words += ["-o", f"ProxyCommand={command}"]
        elif _proxy_jump([*who_and_port, "--", host], spec):  # the host itself again
            words += ["-o", "ProxyJump=none"]
        command = f"{_escaped([*words, *who_and_port])} -W '[%h]:%p' -- {_escaped([host])}"
    return ["-o", f"ProxyCommand={command}"] if command else []


def _hops(jumps: str, spec: HostSpec, seen: tuple[str, ...]) -> list[str]:
    """Return the hosts of a list of jumps in order, preceded by those that the configuration has for the first."""
    first, *rest = jumps.split(",")
    return [*_configured(first, spec, (*seen, jumps)), first, *rest]


def _configured(destination: str, spec: HostSpec, seen: tuple[str, ...]) -> list[str]:
    """Return the jumps that the configuration has for a host; none if they lead to itself again (`Host *`)."""
    found = _proxy_jump(_destination(destination) if seen else _target(spec), spec)
    return [] if found is None or found in seen else _hops(found, spec, seen)


def _proxy_jump(target: Sequence[str], spec: HostSpec) -> str | None:
    """Return the ProxyJump of OpenSSH's configuration for a host."""
    argv = ["ssh", *(["-F", spec.config] if spec.config else []), "-o", "RequestTTY=no", "-G", *target]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except subprocess.TimeoutExpired:
        raise MachineError(f"host {spec.address}: ssh did not read its configuration within 30 s") from None
    if done.returncode != 0:
        raise MachineError(f"host {spec.address}: {why(done.stderr, spec)}")
    found = re.search(r"^proxyjump (\S+)$", done.stdout, re.MULTILINE)
    return None if found is None or found[1] == "none" else found[1]


def _target(spec: HostSpec) -> list[str]:
    """Return the options and the host for `ssh` to connect to."""
    words = ["-l", spec.user] if spec.user else []
    words += ["-p", str(spec.port)] if spec.port else []
    return [*words, "--", spec.address]


def _destination(jump: str) -> list[str]:
    """Return the same for a jump: `[user@]host[:port]`, or a URL with the scheme ssh."""
    found = re.fullmatch(r"(?:ssh://)?(?:([^@]+)@)?(\[[^]]+\]|[^:\[\]@]+)(?::(\d+))?/?", jump)
    if found is None or found[2].startswith("-"):
        raise MachineError(f"jump host {jump}: expected [user@]host[:port]")
    words = ["-l", found[1]] if found[1] else []
    words += ["-p", found[3]] if found[3] else []
    return [*words, "--", found[2].strip("[]")]


def _escaped(words: Sequence[str]) -> str:
    """Return words for the shell of a `ProxyCommand`, in which `ssh` expands per cent signs."""
    return shlex.join(words).replace("%", "%%")


def why(said: str, spec: HostSpec) -> str:
    """Return the reason for which `ssh` could not connect, and what would fix it."""
    jump = ["-J", spec.jump] if spec.jump else []
    by_hand = shlex.join(["ssh", *(["-F", spec.config] if spec.config else []), *jump, spec.address])
    whose = f"its host key, or that of {spec.jump}," if spec.jump else "its host key"
    last = " ".join((said.strip().splitlines() or ["ssh ended without a word"])[-1].split())
    if "IDENTIFICATION HAS CHANGED" in said:
        found = re.search(r"Offending \S+ key in (\S+)", said)
        where = f" in {found[1]}" if found else ""
        return (
            f"{whose} is not the one{where}: another host answers in its place, or it was reinstalled; ask its "
            "administrator before you remove that line"
        )
    if "Host key verification failed" in said or "host key is known" in said:
        return f"{whose} is not known yet: connect once by hand and compare it: {by_hand}"
    if "Permission denied" in said:
        return f"it refuses the login ({last.rstrip('.')}): try {by_hand}"
    unreachable = ("Could not resolve", "Connection refused", "timed out", "No route", "unreachable", "closed by")
    if any(words in said for words in unreachable):
        return f"it cannot be reached: {last.removeprefix('ssh: ').rstrip('.')}"
    return f"ssh failed: {last.rstrip('.')}"


def who() -> str:
    """Return the holder of a bed for others: user, machine, process."""
    user = os.environ.get("SUDO_USER") or os.environ.get("USER") or str(os.getuid())
    name = os.uname().nodename
    with suppress(OSError):
        name = Path("/etc/hostname").read_text(encoding="utf-8").strip() or name
    return f"{user}@{name}, process {os.getpid()}"


def rights(line: Line, uid: int) -> list[str]:
    """Return the prefix of a command that needs the rights of root."""
    return ["sudo", "-n", "--"] if uid != 0 and line.spec.sudo else []


def launch(line: Line, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
    """Start a command on the host; its streams are those of the local process."""
    return subprocess.Popen(guarded(line.command(argv)), **popen)
