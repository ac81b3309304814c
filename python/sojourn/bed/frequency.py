"""The frequency of this machine's processors, held at its highest while a bed stands, and always restored.

bed/held.py has the journal and the guardian. Raising the minimum frequency to the maximum (`scaling_min_freq`) works
with every driver and governor. Does not measure the frequency.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from sojourn.bed import held
from sojourn.errors import MachineError

CPU = Path("/sys/devices/system/cpu")
ABSENT = "the clock of this machine's processors cannot be set (no {}): leave frequency out of variance.factors"
JOURNAL = "sojourn-frequency.json"


def require() -> None:
    """Refuse if the frequency of the processors cannot be set, or this user may not set it."""
    least = _files()
    if not least:
        raise MachineError(ABSENT.format(CPU / "cpu*/cpufreq"))
    if not all(os.access(path, os.W_OK) for path in least):
        raise MachineError(f"only root may set the clock of processors ({least[0]}): run with sudo")


class Highest(held.Held):
    """All processors at their highest frequency, until closed."""

    journal: ClassVar[str] = JOURNAL
    what: ClassVar[str] = "the clock of the processors"

    def __init__(self) -> None:
        require()
        recover()
        super().__init__(
            {path: path.with_name("scaling_max_freq").read_text(encoding="ascii").strip() for path in _files()}
        )


def recover() -> list[str]:
    """Restore the values in the journal of a dead run; return the results, a sentence each."""
    return held.recover(Highest)


def _files() -> list[Path]:
    return sorted(CPU.glob("cpu[0-9]*/cpufreq/scaling_min_freq"))
