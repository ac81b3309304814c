"""Settings in a run's log: the requested value of each, and those before, in force, at the end and restored.

Written by `conduct.settings`; read by the analysis and the report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.records.shape import is_whole_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SET, RESTORED = EVENTS = ("settings-set", "settings-restored")
"""The second event of a part repeats everything in the first."""

MOST_CPU = 65_535
"""The highest processor number in a list."""

GONE = "gone"
"""The value read for a port that was removed with its bed, as its settings were."""


@dataclass(slots=True)
class Tuned:
    """One value that was set: of a port, or of a host if the port is empty."""

    host: str
    port: str
    setting: str
    """The name in a plan."""
    value: str
    """The name of the value if the setting has several: irq-36, governor-0."""
    asked: str
    before: str
    in_force: str
    """The value read back: a driver may use another one than it was given."""
    ended: str | None = None
    """The value after the measurement."""
    restored: str | None = None
    """The value after restoring; None if it could not be read."""

    @property
    def where(self) -> str:
        """The port, or the host, as text."""
        host = f"host {self.host.upper() if self.host in {'a', 'b'} else self.host}"
        host = "this machine" if self.host == "machine" else host
        return f"{self.port} of {host}" if self.port else host

    @property
    def is_as_asked(self) -> bool:
        """Whether the value read back is the requested one; for a limit, whether it is at most that."""
        if self.setting == "idle_latency":
            both = is_whole_text(self.in_force) and is_whole_text(self.asked)
            return both and 0 <= int(self.in_force) <= int(self.asked)
        return _plain(self, self.in_force) == _plain(self, self.asked)

    @property
    def has_changed(self) -> bool:
        """Whether the value differed at the end of the measurement."""
        return self.ended is not None and self.ended != self.in_force

    @property
    def is_back(self) -> bool | None:
        """Whether the old value is restored; None if unknown."""
        return None if self.restored is None else self.restored in {self.before, GONE}


@dataclass(slots=True)
class SettingRow(Tuned):
    """A value in the log of a run, with the part of the run that set it."""

    part: int = 0


def settings_of(log: Iterable[Mapping[str, Any]]) -> list[SettingRow]:
    """Return the rows of every part, in order."""
    by_part: dict[int, list[SettingRow]] = {}
    for event in log:
        if event.get("event") in EVENTS and isinstance(event.get("rows"), list):
            part = int(event.get("part", 0))
            by_part[part] = [_row(part, one) for one in event["rows"] if isinstance(one, dict)]
    return [row for part in sorted(by_part) for row in by_part[part]]


def _row(part: int, told: Mapping[str, Any]) -> SettingRow:
    words = {name: str(told.get(name, "")) for name in ("host", "port", "setting", "value", "asked", "before")}
    ended, restored = (None if told.get(name) is None else str(told[name]) for name in ("ended", "restored"))
    return SettingRow(part=part, **words, in_force=str(told.get("in_force", "")), ended=ended, restored=restored)


def _plain(row: Tuned, word: str) -> object:
    """Return a value in comparable form: lists of processors have several notations."""
    if row.setting != "irq_cpus":
        return word
    ranges = [one.partition("-") for one in word.split(",")]
    if not all(is_whole_text(first) and is_whole_text(last or first) for first, _, last in ranges):
        return word
    if any(int(last or first) > MOST_CPU for first, _, last in ranges):
        return word
    return {cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)}
