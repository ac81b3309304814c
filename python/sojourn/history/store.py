"""The file of the history: SQLite, with tables of runs and figures. A run is written completely or not at all.

Two runs that end at the same time wait for each other. A file that is damaged, of a later version or not writable
raises a `MachineError` with one sentence; nothing is ever repaired or deleted here.
"""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, fields, replace
from typing import TYPE_CHECKING

from sojourn.errors import MachineError
from sojourn.history.entry import Entry, Figure
from sojourn.records.decode import json_value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

try:
    import sqlite3
except ModuleNotFoundError as missing:  # a Python that was built without SQLite's headers
    raise MachineError("this Python was built without SQLite, which the history needs: use another Python") from missing

VERSION = 1
WAIT_SECONDS = 10.0
OF_RUN = tuple(one.name for one in fields(Entry) if one.name != "figures")
OF_FIGURE = tuple(one.name for one in fields(Figure))
SCHEMA = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    study TEXT NOT NULL,
    run TEXT NOT NULL,
    began_ns INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    bed TEXT NOT NULL,
    boot TEXT,
    kernel TEXT NOT NULL,
    version TEXT NOT NULL,
    simulated INTEGER NOT NULL,
    UNIQUE (study, run, began_ns)
);
CREATE TABLE figures (
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    quantity TEXT NOT NULL,
    statistic TEXT NOT NULL,
    device TEXT NOT NULL,
    reference TEXT,
    factors TEXT NOT NULL,
    estimate REAL NOT NULL,
    ci_low REAL,
    ci_high REAL,
    level REAL,
    unit TEXT NOT NULL,
    n INTEGER,
    sessions INTEGER,
    headline INTEGER NOT NULL
);
CREATE INDEX figures_of_run ON figures (run_id);
"""


@dataclass(frozen=True, slots=True)
class History:
    """The history in one file."""

    path: Path

    def append(self, entry: Entry) -> None:
        """Add a run; a resumed run that was analysed again replaces its earlier entry."""
        with self._told("written"):
            self._create()
            with closing(self._open()) as file, written_whole(file):
                if self._version(file) == 0:
                    make_tables(file)
                same = (entry.study, entry.run, entry.began_ns)
                file.execute("DELETE FROM runs WHERE study = ? AND run = ? AND began_ns = ?", same)
                values = [getattr(entry, name) for name in OF_RUN]
                added = file.execute(insertion("runs", OF_RUN), values)
                rows = [(added.lastrowid, *astuple(figure)) for figure in entry.figures]
                file.executemany(insertion("figures", ("run_id", *OF_FIGURE)), rows)

    def read(self, study: str | None = None) -> list[Entry]:
        """Return every run, or those of one study, in time order; none without a file."""
        with self._told("read"):
            if not self.path.exists():
                return []
            with closing(self._open()) as file:
                file.execute("BEGIN")
                if self._version(file) == 0:
                    return []
                where, values = ("", ()) if study is None else (" WHERE study = ?", (study,))
                chosen = f"SELECT id, {', '.join(OF_RUN)} FROM runs{where} ORDER BY began_ns, id"
                return [self._entry(file, *row) for row in file.execute(chosen, values).fetchall()]

    def _entry(self, file: sqlite3.Connection, number: int, *of_run: object) -> Entry:
        chosen = f"SELECT {', '.join(OF_FIGURE)} FROM figures WHERE run_id = ? ORDER BY rowid"
        rows = file.execute(chosen, (number,)).fetchall()
        if any(type(json_value(row[OF_FIGURE.index("factors")])) is not dict for row in rows):
            raise ValueError("a figure has no factors")
        figures = tuple(replace(Figure(*row), headline=bool(row[-1])) for row in rows)
        named = dict(zip(OF_RUN, of_run, strict=True))
        return Entry(**(named | {"simulated": bool(named["simulated"])}), figures=figures)  # type: ignore[arg-type]

    def _create(self) -> None:
        """Make the folder and the file, accessible to their owner only."""
        self.path.parent.parent.mkdir(parents=True, exist_ok=True)
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        os.close(os.open(self.path, flags, 0o600))

    def _open(self) -> sqlite3.Connection:
        file = sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None)
        file.execute("PRAGMA foreign_keys = ON")
        return file

    def _version(self, file: sqlite3.Connection) -> int:
        """Return the version of the file, 0 for a new one; refuse a later one than this."""
        version = int(file.execute("PRAGMA user_version").fetchone()[0])
        if version not in (0, VERSION):
            raise MachineError(
                f"the history in {self.path} is of version {version}, and this Sojourn knows {VERSION}: use a newer "
                "Sojourn, or move the file away"
            )
        return version

    @contextmanager
    def _told(self, done: str) -> Iterator[None]:
        """Turn errors into one sentence."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise MachineError(f"the history in {self.path} cannot be {done}: {error}") from error
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            raise MachineError(
                f"the history in {self.path} is damaged ({error}): move it away, and the next run begins a new one"
            ) from error
        except OSError as error:
            raise MachineError(f"the history in {self.path} cannot be {done}: {error.strerror}") from error


def make_tables(file: sqlite3.Connection) -> None:
    """Make the tables of a new file."""
    for statement in SCHEMA.split(";"):
        file.execute(statement)
    file.execute(f"PRAGMA user_version = {VERSION}")


def insertion(table: str, names: tuple[str, ...]) -> str:
    """Return the statement that adds a row of these columns."""
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


@contextmanager
def written_whole(file: sqlite3.Connection) -> Iterator[None]:
    """Execute all statements or none; no other process writes meanwhile."""
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        file.execute("ROLLBACK")
        raise
    file.execute("COMMIT")
