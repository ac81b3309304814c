"""Remove the netem of `sojourn emulate run --backend kernel` where that program and its shell were killed.

Reads the program's records (crates/instrument/src/emulate/netem_record.rs): network namespace, interface, handle. A
record is out of date if its boot, namespace, interface or qdisc is gone. A running program holds the lock of its port,
and its records are left alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sojourn.bed.processes import find_tool
from sojourn.bed.ssh import reading
from sojourn.bed.state import boot_id
from sojourn.binary import search_path
from sojourn.errors import MachineError
from sojourn.records.decode import json_value
from sojourn.records.shape import COUNT, NEEDED, PLACE, TEXT, misfit

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 10.0
_MOST_BYTES = 4096
_RECORD = {
    NEEDED: ("boot", "namespace", "index", "port", "handle"), "namespace": COUNT, "index": PLACE,
    **dict.fromkeys(("boot", "port", "handle"), TEXT),
}  # fmt: skip


@dataclass(frozen=True)
class Left:
    """A record: a netem qdisc and its interface."""

    boot: str
    namespace: int
    """The inode of the network namespace."""
    index: int
    """The index of the interface there."""
    port: str
    handle: str

    @classmethod
    def read(cls, path: Path) -> Left | None:
        """Read a record; None if it is not one, for instance if its program was killed while writing it."""
        try:
            with path.open("rb") as file:
                kept = json_value(file.read(_MOST_BYTES))
            if misfit(kept, _RECORD) is not None:
                return None
            named = (str(kept["boot"]), int(kept["namespace"]), int(kept["index"]), str(kept["port"]))
            return cls(*named, str(kept["handle"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def remove_left() -> tuple[list[str], list[str]]:
    """Remove what dead emulators left, and records that are out of date; return what was removed and what was not."""
    removed: list[str] = []
    stays: list[str] = []
    for path in [path for folder in folders() for path in sorted(folder.glob("netem-*.json"))]:
        try:
            with _locked(path.with_name(path.stem.replace("netem", "port") + ".lock")) as is_ours:
                said = _settled(path) if is_ours else None
        except (MachineError, OSError) as error:
            stays.append(f"The netem that {path} names could not be removed: {error}.")
        else:
            removed += [said] if said else []
    return removed, stays


def _settled(path: Path) -> str | None:
    """Remove the netem of a record, and the record; return what was removed, in a sentence.

    A record whose namespace cannot be entered stays: a process may hold the namespace by a descriptor only, and its
    next emulator identifies the netem by the record. It is out of date with the next boot.
    """
    left, said = Left.read(path), None
    if left is not None and left.boot == boot_id():
        namespace = _namespace(left.namespace)
        if namespace is None:
            return None
        said = _remove(left, namespace)
    path.unlink(missing_ok=True)
    return said


def folders() -> list[Path]:
    """Return this user's lock folders, as in crates/port/src/bridge/lock.rs: only this user can write there."""
    session = os.environ.get("XDG_RUNTIME_DIR")
    named = [Path("/run/sojourn")] if os.geteuid() == 0 else []
    named += [Path(session) / "sojourn"] if session else []
    return [
        folder for folder in [*named, Path(tempfile.gettempdir()) / f"sojourn-{_number_outside()}"] if _is_own(folder)
    ]


def _number_outside() -> int:
    """Return this user's id outside its user namespace: root of a user namespace is another user outside."""
    number = os.geteuid()
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inside, outside, count = map(int, line.split())
        if inside <= number < inside + count:
            return outside + number - inside
    return number


def _is_own(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return folder.is_dir() and not folder.is_symlink() and found.st_uid == os.geteuid() and not found.st_mode & 0o022


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Yield whether the lock was acquired; it is held within the block, and its holder removes it in the end."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        is_ours = False
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = os.path.samestat(os.fstat(descriptor), path.lstat())
        yield is_ours
        if is_ours:
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _remove(left: Left, namespace: Path) -> str | None:
    """Remove one netem; return a sentence, or None if it was gone already."""
    with reading("ip -json link", "iproute2"):
        links = [one for one in json.loads(_inside(namespace, "ip", "-json", "link") or "[]") if one]
        port = next((str(one["ifname"]) for one in links if one["ifindex"] == left.index), None)
    if port is None:
        return None
    queues = map(str.split, _inside(namespace, "tc", "qdisc", "show", "dev", port).splitlines())
    if not any(words[:3] == ["qdisc", "netem", left.handle] and "root" in words[3:6] for words in queues):
        return None
    _inside(namespace, "tc", "qdisc", "del", "dev", port, "root", "handle", left.handle)
    return f"Removed the netem {left.handle} of a dead emulator at {port}."


def _namespace(inode: int) -> Path | None:
    """Return the path by which a network namespace can be entered; None if there is none."""
    places = [Path("/proc/self/ns/net"), *Path("/run/netns").glob("*"), *Path("/proc").glob("[0-9]*/ns/net")]
    for place in places:
        with suppress(OSError):
            if place.stat().st_ino == inode:
                return place
    return None


def _inside(namespace: Path, *argv: str) -> str:
    """Return the output of an iproute2 command in a network namespace."""
    program = find_tool(argv[0]) or argv[0]
    command = ["nsenter", f"--net={namespace}", program, *argv[1:]]
    env = {**os.environ, "PATH": search_path()}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False, env=env
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"'{' '.join(argv)}' failed: {error}") from error
    if done.returncode != 0:
        said = " / ".join((done.stderr or done.stdout).strip().splitlines()[:2]) or f"status {done.returncode}"
        raise MachineError(f"'{' '.join(argv)}' failed: {said}")
    return done.stdout
