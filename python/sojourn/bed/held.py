"""Kernel files that are held at a value while a bed stands on this machine, and always restored.

A journal beside the beds' state files has the old values. A guardian process, whose standard input ends when this
process ends, writes them back and removes the journal. If it was killed too, this is done by its run, by the next run
that holds the same files, or by `bed clean`.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sojourn.bed.state import OF_PROCESS, PROCESS, Process, boot_id, pid_namespace, state_folder
from sojourn.errors import MachineError
from sojourn.records.decode import json_value
from sojourn.records.shape import EACH, NEEDED, TEXT, misfit

if TYPE_CHECKING:
    from collections.abc import Mapping

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
"""$0 is the journal, which stays if a file could not be written; then its text; then FILE=VALUE of each file."""


JOURNAL = PROCESS | {
    NEEDED: (*OF_PROCESS, "boot", "pids", "found"), "boot": TEXT, "pids": TEXT, "found": {EACH: TEXT},
}  # fmt: skip
"""The shape that a journal must have, whatever it holds."""


class Held:
    """Files held at values until closed."""

    journal: ClassVar[str]
    """The name of the journal."""
    what: ClassVar[str]
    """The name of what is held, for sentences."""
    _guardian: subprocess.Popen[bytes] | None = None

    def __init__(self, wanted: Mapping[Path, str]) -> None:
        self._journal = state_folder() / self.journal
        self.found = {str(path): path.read_text(encoding="ascii").strip() for path in wanted}
        own = Process.of(os.getpid())
        text = {"boot": boot_id(), "pids": pid_namespace(), "pid": own.pid, "started_ticks": own.started_ticks}
        self._text = json.dumps(text | {"found": self.found})
        self._claim()
        try:
            self._guardian = subprocess.Popen(
                ["sh", "-c", GUARDIAN, str(self._journal), self._text, *map("=".join, self.found.items())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            self._set(self._guardian, wanted)
        except BaseException:
            self.close()
            raise

    def _claim(self) -> None:
        """Write the journal, which appears whole or not at all."""
        with tempfile.NamedTemporaryFile("w", dir=self._journal.parent, prefix=self.journal) as draft:
            draft.write(self._text + "\n")
            draft.flush()
            try:
                os.link(draft.name, self._journal)
            except FileExistsError:
                raise MachineError(f"another run holds {self.what} ({self._journal}): wait for its end") from None

    def _set(self, guardian: subprocess.Popen[bytes], wanted: Mapping[Path, str]) -> None:
        assert guardian.stdout is not None
        if guardian.stdout.readline() != b"ready\n":
            raise MachineError(f"{self.what} cannot be guarded: sh did not start")
        for path, value in wanted.items():
            try:
                path.write_text(value + "\n", encoding="ascii")
            except OSError as error:
                raise self.refusal(path, value, error) from error

    def refusal(self, path: Path, value: str, error: OSError) -> Exception:
        """Return the error for a file that does not accept a value."""
        return MachineError(f"{self.what} cannot be set to {value} ({path}: {error.strerror})")

    def close(self) -> None:
        """Have the guardian restore the old values, and wait for it; restore here what it could not."""
        if self._guardian is not None:
            for pipe in (self._guardian.stdin, self._guardian.stdout):
                if pipe is not None:
                    pipe.close()
            self._guardian.wait()
        if not self._is_own():
            return
        if kept := _give_back(self.found):
            raise MachineError(f"{self.what} could not be given back: write {' and '.join(kept)}")
        self._journal.unlink(missing_ok=True)

    def _is_own(self) -> bool:
        with suppress(OSError, ValueError):
            return self._journal.read_text().strip() == self._text
        return False


def recover(of: type[Held]) -> list[str]:
    """Restore the values in the journal of a dead run; return the results, a sentence each."""
    done, left = recovered(of)
    return [*done, *left]


def recovered(of: type[Held]) -> tuple[list[str], list[str]]:
    """Restore the values in the journal of a dead run; return what was done and what was not, a sentence each."""
    journal = state_folder() / of.journal
    try:
        if journal.lstat().st_uid != os.geteuid():
            return [], []
        said: dict[str, Any] = json_value(journal.read_text())
        if wrong := misfit(said, JOURNAL):
            raise ValueError(wrong)
        run, found = Process(int(said["pid"]), int(said["started_ticks"])), dict(said["found"])
        boot, pids = said["boot"], said["pids"]
    except OSError:
        return [], []
    except (KeyError, TypeError, ValueError):
        journal.unlink(missing_ok=True)
        return [f"Removed {journal}, which should say how {of.what} was and cannot be read."], []
    if boot == boot_id():  # the kernel forgets the settings of an earlier boot
        if pids != pid_namespace() or run.is_alive():
            return [], []
        if kept := _give_back(found):
            return [], [f"Could not give back {of.what}, which a dead run held: write {' and '.join(kept)}."]
    journal.unlink(missing_ok=True)
    return [f"Gave back {of.what}, which a dead run held."], []


def _give_back(found: dict[str, str]) -> list[str]:
    """Write the old values; return "VALUE to FILE" for each existing file that could not be written."""
    kept = []
    for path, value in found.items():
        try:
            with Path(path).open("r+", encoding="ascii") as file:  # does not create the file
                file.write(f"{value}\n")
        except FileNotFoundError:
            continue  # its processor was removed
        except (OSError, ValueError):  # no path, or no text that the kernel takes: the journal is damaged
            kept.append(f"{value} to {path}")
    return kept
