"""What a run's log says of settings: of each value what was asked, was before, was in force, and was given back.

Written by `conduct.settings`; read by the analysis and the report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.records.shape import is_whole_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SET, RESTORED = EVENTS = ("settings-set", "settings-restored")
"""The later of a part says all that the earlier says."""

MOST_CPU = 65_535
"""The number of the last processor that a list of them may name."""

GONE = "gone"
"""What is read of a port that was removed with its bed, as its settings were."""


@dataclass(slots=True)
class Tuned:
    """One value that was set: of a port, or of a host where the port is empty."""

    host: str
    port: str
    setting: str
    """As a plan calls it."""
    value: str
    """Which of its values, where it has several: irq-36, governor-0."""
    asked: str
    before: str
    in_force: str
    """What was read back: a driver may take another value than the one that it was given."""
    ended: str | None = None
    """What was read when the measurement had ended."""
    restored: str | None = None
    """What was read after it had been given back; None where nobody could be asked."""

    @property
    def where(self) -> str:
        """The port, or the host, as people read it."""
        host = f"host {self.host.upper() if self.host in {'a', 'b'} else self.host}"
        host = "this machine" if self.host == "machine" else host
        return f"{self.port} of {host}" if self.port else host

    @property
    def is_as_asked(self) -> bool:
        """Whether what was read back is what was asked; of a limit, whether it is at most that."""
        if self.setting == "idle_latency":
            both = is_whole_text(self.in_force) and is_whole_text(self.asked)
            return both and 0 <= int(self.in_force) <= int(self.asked)
        return _plain(self, self.in_force) == _plain(self, self.asked)

    @property
    def has_changed(self) -> bool:
        """Whether it was another value at the end of the measurement."""
        return self.ended is not None and self.ended != self.in_force

    @property
    def is_back(self) -> bool | None:
        """Whether it is as it was before; None where that was not heard."""
        return None if self.restored is None else self.restored in {self.before, GONE}


@dataclass(slots=True)
class SettingRow(Tuned):
    """One of them, as the log of a run has it: which part of the run set it."""

    part: int = 0


def settings_of(log: Iterable[Mapping[str, Any]]) -> list[SettingRow]:
    """The rows of every part, in their order."""
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
    """A value that can be compared: lists of processors may be written in several ways."""
    if row.setting != "irq_cpus":
        return word
    ranges = [one.partition("-") for one in word.split(",")]
    if not all(is_whole_text(first) and is_whole_text(last or first) for first, _, last in ranges):
        return word
    if any(int(last or first) > MOST_CPU for first, _, last in ranges):
        return word
    return {cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)}
