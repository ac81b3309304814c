"""The identity of beds: a mark that every process of a bed carries, and one small file per bed.

The mark is the run's id with the controller's process id and start time, so that a reused process id is never mistaken
for ours. The holder removes the file when its controller is gone; what is left even so, `clean` removes.
"""

from __future__ import annotations

import glob
import json
import os
import re
import stat
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.errors import MachineError, RequestError
from sojourn.records.decode import json_value
from sojourn.records.shape import COUNT, NEEDED, ONLY, PLACE, TEXT, misfit

if TYPE_CHECKING:
    from collections.abc import Iterator


_PREFIX = "sojourn-bed-"
_RUN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_WRITTEN_SECONDS = 60.0
"""A draft that is older is of a killed process: it takes its place at once."""

OF_PROCESS = ("pid", "started_ticks")
PROCESS: dict[str, Any] = {NEEDED: OF_PROCESS, "pid": PLACE, "started_ticks": COUNT}
"""The fields of a process in a file, and the shape that they must have, whatever the file holds."""

_STATE = {
    NEEDED: ("mark", "boot", "pids", "holder"), **dict.fromkeys(("mark", "boot", "pids"), TEXT),
    "holder": PROCESS | {ONLY: OF_PROCESS},
}  # fmt: skip


@dataclass(frozen=True)
class Process:
    """One process, distinguished from earlier and later ones with the same number."""

    pid: int
    started_ticks: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """Return the process that has this number now; raises OSError if there is none."""
        return cls(pid, _started_ticks(pid))

    def is_alive(self) -> bool:
        """Return whether it still runs; a zombie does not."""
        try:
            return _started_ticks(self.pid) == self.started_ticks
        except (FileNotFoundError, ProcessLookupError):
            return False


@dataclass(frozen=True)
class Mark:
    """The run and the controller that something belongs to; valid within one boot and one PID namespace."""

    run: str
    controller: Process

    @classmethod
    def of_this_process(cls, run: str) -> Mark:
        """Return the mark of a bed that this process builds."""
        if not re.fullmatch(_RUN, run):
            raise RequestError(f"run id '{run}': expected up to 100 letters, digits, '.', '_' and '-'")
        return cls(run, Process.of(os.getpid()))

    @classmethod
    def parse(cls, text: str) -> Mark | None:
        """Parse a mark; None if it is not one: any user can give a process an environment."""
        found = re.fullmatch(rf"({_RUN})@([0-9]{{1,10}})-([0-9]{{1,20}})", text)
        return cls(found[1], Process(int(found[2]), int(found[3]))) if found else None

    def __str__(self) -> str:
        return f"{self.run}@{self.controller.pid}-{self.controller.started_ticks}"


@dataclass(frozen=True)
class State:
    """One bed, as in its state file."""

    path: Path
    mark: Mark
    boot: str
    pids: str
    holder: Process

    @classmethod
    def read(cls, path: Path) -> State:
        """Read a state file; raises ValueError if it is not one."""
        try:
            text: dict[str, Any] = json_value(path.read_text())
            if wrong := misfit(text, _STATE):
                raise ValueError(wrong)
            mark = Mark.parse(text["mark"])
            if mark is None:
                raise ValueError("its mark is malformed")
            return cls(path, mark, str(text["boot"]), str(text["pids"]), Process(**text["holder"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a bed's state: {error}") from error

    def is_live(self) -> bool:
        """Return whether its controller still runs; one in another PID namespace counts as running."""
        if self.boot != boot_id():
            return False
        return self.pids != pid_namespace() or self.mark.controller.is_alive()


class StateFile:
    """This bed's own file: written when its holder exists, removed when everything is gone."""

    def __init__(self, run: str) -> None:
        self.mark = Mark.of_this_process(run)
        self.folder = state_folder()
        self.stem = f"{_PREFIX}{self.mark}"
        self.path = self.folder / f"{self.stem}.json"

    def claim(self) -> None:
        """Refuse a run that is already in progress."""
        for _, state in states(self.folder):
            if state and state.mark.run == self.mark.run and state.is_live():
                raise RequestError(f"run '{self.mark.run}' is going on already, in process {state.mark.controller.pid}")

    def write(self, holder: Process) -> None:
        """Write the holder of the bed; the file appears whole or not at all."""
        text = {"mark": str(self.mark), "boot": boot_id(), "pids": pid_namespace(), "holder": asdict(holder)}
        draft = self.path.with_suffix(".draft")
        with draft.open("x") as file:  # never through a link made by another user
            file.write(json.dumps(text) + "\n")
        draft.replace(self.path)

    def socket(self, name: str) -> Path:
        """Return a socket path for one of the bed's programs, beside the file; it is removed with it."""
        return self.folder / f"{self.stem}.{name}.sock"

    def remove(self) -> None:
        """Remove the file, and the sockets beside it."""
        remove_sockets(self.path)
        self.path.unlink(missing_ok=True)


def remove_left() -> None:
    """Remove the files of killed controllers that held their beds themselves, as over SSH, and old drafts.

    Nothing else of such a bed is on this machine. Beds of namespaces are left to `clean`; so are files of another boot,
    which may be another machine's if several share a home.
    """
    remove_drafts(state_folder())
    for path, state in states():
        if state is None or state.boot != boot_id() or state.holder != state.mark.controller:
            continue
        if not state.is_live():
            remove_sockets(path)
            path.unlink(missing_ok=True)


def remove_drafts(folder: Path) -> list[Path]:
    """Remove this user's drafts of state files that were never finished; return them."""
    removed = []
    for draft in folder.glob(f"{_PREFIX}*.draft"):
        with suppress(FileNotFoundError):
            found = draft.lstat()
            if found.st_uid == os.geteuid() and found.st_mtime < time.time() - _WRITTEN_SECONDS:
                draft.unlink()
                removed.append(draft)
    return removed


def remove_sockets(path: Path) -> None:
    """Remove the sockets beside a state file."""
    for socket in path.parent.glob(f"{glob.escape(path.stem)}.*.sock"):
        socket.unlink(missing_ok=True)


def state_folder() -> Path:
    """Return the folder of state files: the first existing one of these that is writable."""
    runtime = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR")
    for folder in (runtime, os.environ.get("XDG_CACHE_HOME"), Path.home() / ".cache"):
        if folder and Path(folder).is_dir() and os.access(folder, os.W_OK):
            return Path(folder)
    return _own_folder(Path("/tmp"))


def _own_folder(shared: Path) -> Path:
    """Return a folder of this user in one that everybody can write to; nobody else can put files or sockets in it."""
    own = shared / f"sojourn-{os.geteuid()}"
    with suppress(FileExistsError):
        own.mkdir(mode=0o700)
    found = own.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise MachineError(f"{own} is not a folder of yours alone: remove it, or make a folder ~/.cache")
    return own


def states(folder: Path | None = None) -> Iterator[tuple[Path, State | None]]:
    """Return every state file of this user, with None for one that cannot be parsed."""
    for path in sorted((folder or state_folder()).glob(f"{_PREFIX}*.json")):
        try:
            if path.lstat().st_uid == os.geteuid():
                yield path, State.read(path)
        except ValueError:
            yield path, None
        except FileNotFoundError:
            continue  # its run has just ended


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _started_ticks(pid: int) -> int:
    """Return field 22 of /proc/PID/stat; the name before it is in parentheses and may contain any bytes."""
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    if fields[0] in "ZX":
        raise ProcessLookupError(pid)
    return int(fields[19])
