"""Which beds there are, and whose: a mark that every process of a bed carries, and one small file per bed.

The mark is the run's id with the controller's process id and the moment it started, so that a number given to somebody
else's process later is never mistaken for ours. The holder removes the file itself when its controller is gone; what
stays behind all the same is for `clean`.
"""

from __future__ import annotations

import glob
import json
import os
import re
import stat
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
OF_PROCESS = ("pid", "started_ticks")
PROCESS: dict[str, Any] = {NEEDED: OF_PROCESS, "pid": PLACE, "started_ticks": COUNT}
"""How a process is kept in a file, and what such a file has to be, for whatever it may be."""

_STATE = {
    NEEDED: ("mark", "boot", "pids", "holder"), **dict.fromkeys(("mark", "boot", "pids"), TEXT),
    "holder": PROCESS | {ONLY: OF_PROCESS},
}  # fmt: skip


@dataclass(frozen=True)
class Process:
    """One process, distinguished from any other that ever had its number."""

    pid: int
    started_ticks: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has this number now; raises OSError when there is none."""
        return cls(pid, _started_ticks(pid))

    def is_alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        try:
            return _started_ticks(self.pid) == self.started_ticks
        except (FileNotFoundError, ProcessLookupError):
            return False


@dataclass(frozen=True)
class Mark:
    """To which run, and to which controller of it, something belongs; within one boot and one process namespace."""

    run: str
    controller: Process

    @classmethod
    def of_this_process(cls, run: str) -> Mark:
        """The mark of a bed that this process builds."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", run):
            raise RequestError(f"run id '{run}': expected up to 100 letters, digits, '.', '_' and '-'")
        return cls(run, Process.of(os.getpid()))

    @classmethod
    def parse(cls, text: str) -> Mark | None:
        """Reads a mark; None when it is not one."""
        found = re.fullmatch(r"(.+)@([0-9]+)-([0-9]+)", text)
        return cls(found[1], Process(int(found[2]), int(found[3]))) if found else None

    def __str__(self) -> str:
        return f"{self.run}@{self.controller.pid}-{self.controller.started_ticks}"


@dataclass(frozen=True)
class State:
    """One bed, as its file tells of it."""

    path: Path
    mark: Mark
    boot: str
    pids: str
    holder: Process

    @classmethod
    def read(cls, path: Path) -> State:
        """Reads a state file; raises ValueError when it is not one."""
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
        """Whether its controller still runs; one whose process namespace is not ours counts as running."""
        if self.boot != boot_id():
            return False
        return self.pids != pid_namespace() or self.mark.controller.is_alive()


class StateFile:
    """This bed's own file: written when its holder is there, removed when everything is gone."""

    def __init__(self, run: str) -> None:
        self.mark = Mark.of_this_process(run)
        self.folder = state_folder()
        self.stem = f"{_PREFIX}{self.mark}"
        self.path = self.folder / f"{self.stem}.json"

    def claim(self) -> None:
        """Refuses a run that is going on."""
        for _, state in states(self.folder):
            if state and state.mark.run == self.mark.run and state.is_live():
                raise RequestError(f"run '{self.mark.run}' is going on already, in process {state.mark.controller.pid}")

    def write(self, holder: Process) -> None:
        """Says who keeps the bed; whole or not at all."""
        text = {"mark": str(self.mark), "boot": boot_id(), "pids": pid_namespace(), "holder": asdict(holder)}
        draft = self.path.with_suffix(".draft")
        with draft.open("x") as file:  # never through somebody else's link
            file.write(json.dumps(text) + "\n")
        draft.replace(self.path)

    def socket(self, name: str) -> Path:
        """A socket of one of the bed's programs, beside the file; it goes with it."""
        return self.folder / f"{self.stem}.{name}.sock"

    def remove(self) -> None:
        """Removes the file, and the sockets beside it."""
        remove_sockets(self.path)
        self.path.unlink(missing_ok=True)


def remove_left() -> None:
    """Removes the files of controllers that were killed and held their beds themselves, as over SSH does.

    Nothing else of such a bed is on this machine. What a bed of namespaces leaves is for `clean`; so is what has
    another boot's name, which may be another machine's where several share a home.
    """
    for path, state in states():
        if state is None or state.boot != boot_id() or state.holder != state.mark.controller:
            continue
        if not state.is_live():
            remove_sockets(path)
            path.unlink(missing_ok=True)


def remove_sockets(path: Path) -> None:
    """Removes the sockets beside a state file."""
    for socket in path.parent.glob(f"{glob.escape(path.stem)}.*.sock"):
        socket.unlink(missing_ok=True)


def state_folder() -> Path:
    """Where the state files are: a folder that is there anyway, the first of these that can be written to."""
    runtime = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR")
    for folder in (runtime, os.environ.get("XDG_CACHE_HOME"), Path.home() / ".cache"):
        if folder and Path(folder).is_dir() and os.access(folder, os.W_OK):
            return Path(folder)
    return _own_folder(Path("/tmp"))


def _own_folder(shared: Path) -> Path:
    """A folder of this user alone where everybody may write: what is in it, sockets too, nobody else has put there."""
    own = shared / f"sojourn-{os.geteuid()}"
    with suppress(FileExistsError):
        own.mkdir(mode=0o700)
    found = own.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise MachineError(f"{own} is not a folder of yours alone: remove it, or make a folder ~/.cache")
    return own


def states(folder: Path | None = None) -> Iterator[tuple[Path, State | None]]:
    """Every state file of this user; None for one that cannot be read as such."""
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
    """Field 22 of /proc/PID/stat; the name before it is in parentheses and may contain anything."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if fields[0] in "ZX":
        raise ProcessLookupError(pid)
    return int(fields[19])
