"""The table of settings: every value that a run set, with the value before, requested, in force and restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.records.settings import SettingRow, settings_of
from sojourn.report.numbers import NOTHING
from sojourn.report.table import Column, Entry, Table, printed, text

if TYPE_CHECKING:
    from sojourn.report.run import Run

COLUMNS = (
    Column(("where",), "Of", numeric=False),
    Column(("value",), "Setting", numeric=False),
    Column(("before",), "Before", numeric=False),
    Column(("asked",), "Asked", numeric=False),
    Column(("in_force",), "In force", numeric=False),
    Column(("ended",), "At the end", numeric=False),
    Column(("restored",), "Restored", numeric=False),
    Column(("sessions",), "Sessions"),
)
NOTE = (
    "As read: before it was set, after it was set, at the end of each session, and after it was given back. Times of "
    "gro_flush_timeout are in ns, of all others in µs. “gone”: the port was removed with its bed. Without an entry, "
    "nobody could be asked: the host gives it back by itself."
)


def settings(run: Run) -> Table:
    """One row for each value; sessions with the same course are one row."""
    counted: dict[tuple[str | None, ...], int] = {}
    for row in settings_of(run.log):
        key = _words(row)
        counted[key] = counted.get(key, 0) + 1
    rows = tuple((*map(_entry, key), printed(str(count))) for key, count in counted.items())
    return Table("settings", "Settings of ports and hosts", COLUMNS, rows, NOTE, wide=True, grouped=True)


def _words(row: SettingRow) -> tuple[str | None, ...]:
    return (row.where, row.value, row.before, row.asked, row.in_force, row.ended, row.restored)


def _entry(word: str | None) -> Entry:
    return Entry(NOTHING) if word is None else text(word)
