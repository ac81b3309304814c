"""The clock of this machine's processors, held at its highest while a bed stands, and given back however that ends.

A journal beside the beds' state files says what was found; a guardian process, which hears of our end by the end of its
standard input, writes that back and removes the journal. If it was killed too, its run does so, or the next that has
the clock among its factors, or `bed clean`. The highest is the least frequency raised to the greatest
(`scaling_min_freq`): that holds under every driver and governor. Does not measure the frequency.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from sojourn.bed.state import Process, boot_id, pid_namespace, state_folder
from sojourn.errors import MachineError

CPU = Path("/sys/devices/system/cpu")
ABSENT = "the clock of this machine's processors cannot be set (no {}): leave frequency out of variance.factors"
JOURNAL = "sojourn-frequency.json"

GUARDIAN = """
trap '' HUP INT TERM PIPE
text=$1
shift
is_of_another() { [ -e "$0" ] && [ "$(cat "$0")" != "$text" ]; }
echo ready
read -r end
is_of_another && exit
kept=
for pair in "$@"; do echo "${pair##*=}" >"${pair%=*}" || kept=yes; done 2>/dev/null
[ "$kept" ] || is_of_another || rm -f "$0"
"""
"""$0 the journal, which stays where something could not be written; its text; then FILE=VALUE of each processor."""


def require() -> None:
    """Refuses where processors have no clock that can be set, or where this user may not set it."""
    least = _files()
    if not least:
        raise MachineError(ABSENT.format(CPU / "cpu*/cpufreq"))
    if not all(os.access(path, os.W_OK) for path in least):
        raise MachineError(f"only root may set the clock of processors ({least[0]}): run with sudo")


class Highest:
    """The clock of all processors at its highest, until it is closed."""

    _guardian: subprocess.Popen[bytes] | None = None

    def __init__(self) -> None:
        require()
        recover()
        self._journal = state_folder() / JOURNAL
        self._found = {str(path): path.read_text(encoding="ascii").strip() for path in _files()}
        own = Process.of(os.getpid())
        text = {"boot": boot_id(), "pids": pid_namespace(), "pid": own.pid, "started_ticks": own.started_ticks}
        self._text = json.dumps(text | {"found": self._found})
        self._claim()
        try:
            self._guardian = subprocess.Popen(
                ["sh", "-c", GUARDIAN, str(self._journal), self._text, *map("=".join, self._found.items())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            self._raise(self._guardian)
        except BaseException:
            self.close()
            raise

    def _claim(self) -> None:
        """Write the journal, which appears whole or not at all."""
        with tempfile.NamedTemporaryFile("w", dir=self._journal.parent, prefix=JOURNAL) as draft:
            draft.write(self._text + "\n")
            draft.flush()
            try:
                os.link(draft.name, self._journal)
            except FileExistsError:
                said = f"another run holds the clock of the processors ({self._journal}): wait for its end"
                raise MachineError(said) from None

    @staticmethod
    def _raise(guardian: subprocess.Popen[bytes]) -> None:
        assert guardian.stdout is not None
        if guardian.stdout.readline() != b"ready\n":
            raise MachineError("the clock of the processors cannot be guarded: sh did not start")
        for path in _files():
            highest = path.with_name("scaling_max_freq").read_text(encoding="ascii").strip()
            try:
                path.write_text(highest + "\n", encoding="ascii")
            except OSError as error:
                raise MachineError(f"the clock of a processor cannot be set ({path}: {error.strerror})") from error

    def close(self) -> None:
        """Have the guardian give back what was found, and wait until it has; what it has not is given back here."""
        if self._guardian is not None:
            for pipe in (self._guardian.stdin, self._guardian.stdout):
                if pipe is not None:
                    pipe.close()
            self._guardian.wait()
        if not self._is_own():
            return
        if kept := _give_back(self._found):
            raise MachineError(f"the clock of the processors could not be given back: write {' and '.join(kept)}")
        self._journal.unlink(missing_ok=True)

    def _is_own(self) -> bool:
        with suppress(OSError, ValueError):
            return self._journal.read_text().strip() == self._text
        return False


def recover() -> list[str]:
    """Gives back what a journal says that a dead run left; returns what was done, a sentence each."""
    journal = state_folder() / JOURNAL
    try:
        if journal.lstat().st_uid != os.geteuid():
            return []
        said: dict[str, Any] = json.loads(journal.read_text())
        run, found = Process(int(said["pid"]), int(said["started_ticks"])), dict(said["found"])
        boot, pids = said["boot"], said["pids"]
    except OSError:
        return []
    except (KeyError, TypeError, ValueError):
        journal.unlink(missing_ok=True)
        return [f"Removed {journal}, which should say how the clock of the processors was and cannot be read."]
    if boot == boot_id():  # the kernel forgets the settings of an earlier boot
        if pids != pid_namespace() or run.is_alive():
            return []
        if kept := _give_back(found):
            return [
                f"Could not give back the clock of the processors, which a dead run held: write {' and '.join(kept)}."
            ]
    journal.unlink(missing_ok=True)
    return ["Gave back the clock of the processors, which a dead run held."]


def _give_back(found: dict[str, str]) -> list[str]:
    """Writes what was found; returns what cannot be, of processors that are there: VALUE to FILE."""
    kept = []
    for path, value in found.items():
        try:
            with Path(path).open("r+", encoding="ascii") as file:  # makes no file
                file.write(f"{value}\n")
        except FileNotFoundError:
            continue  # its processor was taken away
        except OSError:
            kept.append(f"{value} to {path}")
    return kept


def _files() -> list[Path]:
    return sorted(CPU.glob("cpu[0-9]*/cpufreq/scaling_min_freq"))
