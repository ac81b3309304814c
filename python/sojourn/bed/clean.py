"""Remove what dead runs left: processes, and with them their namespaces and links; cgroups; netem qdiscs; files.

A process belongs to a dead run if its environment has a bed's mark and the controller in the mark no longer runs.
Everything else, live runs above all, is left alone; so is whatever cannot be decided. A run in a chroot has its state
file there: the run's processes lead to it.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sojourn.bed import cgroups, frequency, held, netem_left, settings
from sojourn.bed.processes import MARK_VARIABLE
from sojourn.bed.state import (
    Mark,
    Process,
    State,
    pid_namespace,
    remove_drafts,
    remove_sockets,
    state_folder,
    states,
)
from sojourn.records import scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE_SECONDS = 2.0

Found = list[tuple[Path, State | None]]
"""State files, each with its content."""


@dataclass
class Cleaning:
    """The results of cleaning, a sentence each."""

    removed: list[str] = field(default_factory=list)
    live: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def sentences(self) -> list[str]:
        """Return all sentences, in the order of importance."""
        return [*self.removed, *self.live, *self.left] or ["Nothing to clean."]


def clean() -> Cleaning:
    """Remove what dead runs and dead emulators of this user left."""
    done = Cleaning()
    marked = list(marked_processes())
    own = state_folder().absolute()
    folders = list(dict.fromkeys([own, *(root_of(process) / own.relative_to("/") for process, _ in marked)]))
    orphans = [(process, mark) for process, mark in marked if not mark.controller.is_alive()]
    _kill([process for process, _ in orphans])
    for process, mark in orphans:
        if process.is_alive():
            done.left.append(f"Process {process.pid} of the dead run {mark.run} did not end.")
        else:
            done.removed.append(f"Ended process {process.pid} of the dead run {mark.run}.")
    found = [one for folder in folders for one in states(folder)]
    _clean_cgroups(done, found)
    _clean_states(done, found)
    done.removed += [f"Removed {draft}, which was never finished." for one in folders for draft in remove_drafts(one)]
    for removed, stays in (
        held.recovered(frequency.Highest),
        held.recovered(settings.OfThisMachine),
        netem_left.remove_left(),
    ):
        done.removed += removed
        done.left += stays
    _clean_scratch(done)
    return done


def _clean_scratch(done: Cleaning) -> None:
    """Remove the temporary folders of this user's dead processes."""
    for folder, pid, started_ticks in scratch.left():
        if not Process(pid, started_ticks).is_alive():
            shutil.rmtree(folder, ignore_errors=True)
            if folder.exists():
                done.left.append(f"The temporary folder {folder} of a dead process could not be removed.")
            else:
                done.removed.append(f"Removed the temporary folder {folder} of a dead process.")


def marked_processes() -> Iterator[tuple[Process, Mark]]:
    """Return every visible process that has a bed's mark, without this process and its parents."""
    ours = _this_process_and_its_parents()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) in ours:
            continue
        with suppress(OSError, ValueError, IndexError):  # one that cannot be read must not keep the others
            process = Process.of(int(folder.name))
            mark = _mark_of(folder)
            if mark is not None and str((folder / "ns/pid").readlink()) == pid_namespace():
                yield process, mark


def _clean_cgroups(done: Cleaning, found: Found) -> None:
    """Remove the cgroups of this user and PID namespace whose controller is gone; live runs keep theirs."""
    others = {str(state.mark) for _, state in found if state is not None and state.is_live()}
    for folder, mark in cgroups.left():
        if mark.controller.is_alive() or str(mark) in others or cgroups.is_of_others(folder):
            continue
        with suppress(FileNotFoundError):  # its keeper may be removing it, too
            if folder.stat().st_uid != os.geteuid():
                continue
        if cgroups.remove(folder):
            done.removed.append(f"Removed the cgroups of the dead run {mark.run}.")
        else:
            done.left.append(f"The cgroups of the dead run {mark.run} could not be removed: {folder}.")


def _clean_states(done: Cleaning, found: Found) -> None:
    for path, state in found:
        if state is None:
            done.left.append(f"{path} is not a bed's state; look at it, then remove it by hand.")
        elif state.is_live():
            done.live.append(f"Run {state.mark.run} is going on in process {state.mark.controller.pid}: not touched.")
        else:
            remove_sockets(path)
            path.unlink(missing_ok=True)
            done.removed.append(f"Removed the state file of the dead run {state.mark.run}.")


def root_of(process: Process) -> Path:
    """Return the root folder of a process, as this one sees it; our own root if unknown."""
    with suppress(OSError):
        return Path(f"/proc/{process.pid}/root").readlink()
    return Path("/")


def _mark_of(folder: Path) -> Mark | None:
    prefix = f"{MARK_VARIABLE}=".encode()
    for entry in (folder / "environ").read_bytes().split(b"\0"):
        if entry.startswith(prefix):
            return Mark.parse(entry[len(prefix) :].decode(errors="replace"))
    return None


def _this_process_and_its_parents() -> set[int]:
    pids = set()
    pid = os.getpid()
    while pid > 0:
        pids.add(pid)
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:  # another user's, where /proc hides them (hidepid)
            break
        pid = int(stat.rpartition(")")[2].split()[1])
    return pids


def _kill(processes: list[Process]) -> None:
    """End the processes by SIGTERM, then by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with suppress(ProcessLookupError, PermissionError):
                if process.is_alive():
                    os.kill(process.pid, number)
        end = time.monotonic() + _PATIENCE_SECONDS / 2
        while any(process.is_alive() for process in processes) and time.monotonic() < end:
            time.sleep(0.01)
