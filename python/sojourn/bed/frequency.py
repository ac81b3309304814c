"""The clock of this machine's processors, held at its highest while a bed stands, and given back however that ends.

A journal beside the beds' state files says what was found; a guardian process, which hears of our end by the end of its
standard input, writes that back and removes the journal. If it was killed too, the next to hold the clock does so, or
`bed clean`. The highest is the least frequency raised to the greatest (`scaling_min_freq`): that holds under every
driver and governor. Does not measure the frequency.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from sojourn.bed.state import Process, boot_id, state_folder
from sojourn.errors import MachineError

CPU = Path("/sys/devices/system/cpu")
ABSENT = "the clock of this machine's processors cannot be set (no {}): leave frequency out of variance.factors"
JOURNAL = "sojourn-frequency.json"

GUARDIAN = """
trap '' HUP INT TERM PIPE
echo ready
read -r end
kept=
for pair in "$@"; do echo "${pair##*=}" >"${pair%=*}" || kept=yes; done 2>/dev/null
[ "$kept" ] || rm -f "$0"
"""
"""$0 the journal, which stays where something could not be written; then FILE=VALUE of each processor."""


def require() -> None:
    """Refuses where processors have no clock that can be set, or where this user may not set it."""
    least = _files()
    if not least:
        raise MachineError(ABSENT.format(CPU / "cpu*/cpufreq"))
    if not all(os.access(path, os.W_OK) for path in least):
        raise MachineError(f"only root may set the clock of processors ({least[0]}): run with sudo")


class Highest:
    """The clock of all processors at its highest, until it is closed."""

    def __init__(self) -> None:
        require()
        recover()
        journal = state_folder() / JOURNAL
        found = {str(path): path.read_text(encoding="ascii").strip() for path in _files()}
        own = Process.of(os.getpid())
        text = {"boot": boot_id(), "pid": own.pid, "started_ticks": own.started_ticks, "found": found}
        try:
            with journal.open("x") as file:
                file.write(json.dumps(text) + "\n")
        except FileExistsError:
            raise MachineError(f"another run holds the clock of the processors ({journal}): wait for its end") from None
        self._guardian = subprocess.Popen(
            ["sh", "-c", GUARDIAN, str(journal), *(f"{path}={value}" for path, value in found.items())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            self._raise()
        except BaseException:
            self.close()
            raise

    def _raise(self) -> None:
        assert self._guardian.stdout is not None
        if self._guardian.stdout.readline() != b"ready\n":
            raise MachineError("the clock of the processors cannot be guarded: sh did not start")
        for path in _files():
            highest = path.with_name("scaling_max_freq").read_text(encoding="ascii").strip()
            try:
                path.write_text(highest + "\n", encoding="ascii")
            except OSError as error:
                raise MachineError(f"the clock of a processor cannot be set ({path}: {error.strerror})") from error

    def close(self) -> None:
        """Have the guardian give back what was found, and wait until it has."""
        for pipe in (self._guardian.stdin, self._guardian.stdout):
            if pipe is not None:
                pipe.close()
        self._guardian.wait()


def recover() -> list[str]:
    """Gives back what a journal says that a dead run left; returns what was done, a sentence each."""
    journal = state_folder() / JOURNAL
    said: dict[str, Any] | None = None
    with suppress(OSError, ValueError):
        if journal.lstat().st_uid == os.geteuid():
            said = json.loads(journal.read_text())
    if said is None or (Process(said["pid"], said["started_ticks"]).is_alive() and said["boot"] == boot_id()):
        return []
    if said["boot"] == boot_id():  # the kernel forgets the settings of an earlier boot
        for path, value in said["found"].items():
            with suppress(OSError):
                Path(path).write_text(f"{value}\n", encoding="ascii")
    journal.unlink(missing_ok=True)
    return ["Gave back the clock of the processors, which a dead run held."]


def _files() -> list[Path]:
    return sorted(CPU.glob("cpu[0-9]*/cpufreq/scaling_min_freq"))
