"""Emulation on an interface that this machine itself uses: two cables of ours, with the emulator between them.

The interface keeps its addresses and routes: the emulator's programs of traffic control redirect its frames over the
cables, and end with it. The cables are removed by a process that outlives this one, however this one ends.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.bed.port_uses import in_use, links_here
from sojourn.bed.processes import find_tool, require_tools
from sojourn.binary import search_path
from sojourn.errors import MachineError, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

TOOLS = {"ip": "iproute2", "ethtool": "ethtool"}
LOCKS = Path("/run/sojourn")
_SECONDS = 10.0
JOINING = ("tso", "gso", "gro", "tx")
"""Offloads of the cables that are switched off, so that the emulator sees frames as on the wire."""

KEEPER = """trap "" HUP INT TERM QUIT; cat >/dev/null; lock=$1; shift
for one; do ip link del dev "$one" 2>/dev/null; done; rm -f "$lock" """
"""Removes the cables, and then the lock, which it holds, when its standard input ends."""


@dataclass(frozen=True)
class Detour:
    """The ends of the two cables: of the first towards the machine, of the second towards the network."""

    interface: str
    inner: str
    left: str
    right: str
    outer: str

    @property
    def options(self) -> list[str]:
        """The emulator's options."""
        return [self.left, self.right, "--detour", self.interface, self.inner, self.outer]


def require_free(interface: str, *, take_over: bool) -> dict[str, Any]:
    """Return the interface as `ip` shows it; raises RequestError if it cannot be emulated, or is in use."""
    links = {link["ifname"]: link for link in links_here()}
    link = links.get(interface)
    if link is None:
        others = ", ".join(one for one in links if one != "lo") or "none"
        raise RequestError(f"there is no interface {interface}: this machine has {others}")
    if "LOOPBACK" in link["flags"] or link.get("link_type") != "ether":
        raise RequestError(f"{interface} carries no Ethernet frames: name an interface that leads to a network")
    if "UP" not in link["flags"]:
        raise RequestError(f"{interface} is down: ip link set {interface} up")
    if link.get("master"):
        why = f"{interface} belongs to {link['master']}, which takes its frames"
        raise RequestError(f"{why}: name {link['master']}, or two ports for `sojourn emulate`")
    uses = in_use(interface, links)
    if uses and not take_over:
        raise RequestError(f"{interface} {uses[0]}: this machine uses it; --take-over emulates it all the same")
    return link


@contextmanager
def detour(interface: str, *, take_over: bool) -> Iterator[Detour]:
    """Make two cables for the frames of an interface, for the time of the block."""
    if os.geteuid() != 0:
        raise MachineError("to emulate an interface of this machine needs root: run it with sudo")
    require_tools(TOOLS)
    link = require_free(interface, take_over=take_over)
    found = Detour(interface, *(f"sj{link['ifindex']}-{end}" for end in ("in", "l", "r", "out")))
    path = LOCKS / f"uplink-{Path('/proc/self/ns/net').stat().st_ino}-{link['ifindex']}.lock"
    with _alone(path, interface) as lock, _keeper(found, lock, path) as waits:
        _remove(found)  # cables left by one whose keeper was killed, too
        for near, far in ((found.inner, found.left), (found.right, found.outer)):
            of = ["mtu", str(link["mtu"])]
            _run("ip", "link", "add", near, *of, "type", "veth", "peer", "name", far, *of, keeps=waits)
            for end in (near, far):
                silent = Path(f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6")
                if silent.exists():
                    silent.write_text("1", encoding="utf-8")
                _run("ethtool", "-K", end, *(word for one in JOINING for word in (one, "off")))
                _run("ip", "link", "set", "dev", end, "arp", "off", "up")
        yield found


@contextmanager
def _alone(path: Path, interface: str) -> Iterator[int]:
    """Hold the lock of the interface, in a folder of root's; raises RequestError if another process emulates it."""
    LOCKS.mkdir(mode=0o700, exist_ok=True)
    while not (lock := _locked(path, interface)):
        pass
    try:
        yield lock
    finally:
        os.close(lock)


def _locked(path: Path, interface: str) -> int | None:
    """Return the lock; None if its last holder has just removed its file."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise RequestError(f"another `sojourn uplink` emulates {interface}: end it first") from None
    if path.exists() and path.samefile(f"/proc/self/fd/{lock}"):
        return lock
    os.close(lock)
    return None


@contextmanager
def _keeper(made: Detour, lock: int, path: Path) -> Iterator[int]:
    """Start a process that removes the cables when this one ends, however it ends; it holds the lock until then.

    It waits for everybody who has the returned descriptor: also for a program that makes a cable meanwhile.
    """
    keeper = subprocess.Popen(
        ["sh", "-c", KEEPER, "sh", str(path), made.inner, made.right],
        pass_fds=(lock,),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PATH": search_path()},
    )
    assert keeper.stdin is not None
    try:
        yield keeper.stdin.fileno()
    finally:
        _remove(made)  # somebody may have killed the keeper
        keeper.stdin.close()
        keeper.wait()


def _remove(made: Detour) -> None:
    for one in (made.inner, made.right):
        with suppress(MachineError):
            _run("ip", "link", "del", "dev", one)


def _run(*argv: str, keeps: int | None = None) -> None:
    """Run a program; raises MachineError with its error output if it fails. It has `keeps` open until it ends."""
    command, held = [find_tool(argv[0]) or argv[0], *argv[1:]], () if keeps is None else (keeps,)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False, pass_fds=held
        )
    except subprocess.TimeoutExpired:
        raise MachineError(f"'{' '.join(argv)}' did not end within {_SECONDS:.0f} s") from None
    if done.returncode != 0:
        raise MachineError(f"'{' '.join(argv)}' failed: {' / '.join(done.stderr.strip().splitlines()[:2])}")
