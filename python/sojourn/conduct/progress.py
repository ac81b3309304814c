"""The progress display: a bar on a terminal, plain lines elsewhere; on standard error only.

Draws between trials, never from a thread of its own: a redraw during a trial would affect the measurement. The interim
percentiles are of ended trials, from the answers of their instruments: no record is read for them.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from sojourn.records.so_far import ONE_WAY, QUANTILES, RTT, SoFar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from rich.console import RenderableType

REDRAW_SECONDS = 0.25
PLAIN_SECONDS = 5.0
MOST_PATHS = 12
"""The most paths whose percentiles are shown, limited by the lines of a screen."""

TITLES = {RTT: "RTT", ONE_WAY: "one-way delay"}


class Bar(Progress):
    """The bar, below the interim percentiles."""

    above: RenderableType | None = None

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        """Return the table that is drawn."""
        drawn = super().make_tasks_table(tasks)
        if self.above is None:
            return drawn
        both = Table.grid()
        both.add_row(self.above)
        both.add_row(drawn)
        return both


class Screen:
    """Progress through the trials of a run."""

    def __init__(self, stream: TextIO | None = None, on_doubt: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.on_doubt = on_doubt
        """Called with the first doubtful finding during a run; None if not configured, or called already."""
        self._stream = stream or sys.stderr
        self._console = Console(file=self._stream, highlight=False, emoji=False)
        self._bar: Bar | None = None
        self._so_far = SoFar()
        self._drawn = 0.0
        self._understood = 0.0
        self._lines: list[str] = []
        self._total = 0
        self._done = 0
        self._began = 0.0
        self._noted: set[str] = set()

    def note(self, words: str) -> None:
        """Print a line, but only once: later sessions of a run would repeat it."""
        if words not in self._noted:
            self._noted.add(words)
            self.say(words)

    def say(self, words: str) -> None:
        """Print a line; markup in it has no effect."""
        self._console.print(words, markup=False, soft_wrap=True)

    def doubt(self, finding: dict[str, Any]) -> None:
        """Print a doubtful finding once, and call `on_doubt` with the first."""
        self.note(f"doubtful so far: {finding['sentence']} ({finding['where']})")
        if self.on_doubt is not None:
            self.on_doubt(finding)
            self.on_doubt = None  # only the first is reported

    def begin(self, total: int) -> None:
        """Begin to count trials; a later session continues the count."""
        if self._began:
            return
        self._total, self._done, self._began = total, 0, time.monotonic()
        self._drawn = self._began
        self._understood = self._began - self._pause
        if self._console.is_terminal:
            columns = (
                TextColumn("measuring"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("trials,"),
                TimeRemainingColumn(),
            )
            self._bar = Bar(*columns, TextColumn("left"), console=self._console, auto_refresh=False, transient=True)
            self._bar.add_task("measuring", total=total)
            self._bar.start()

    def hear(self, entry: dict[str, Any]) -> None:
        """Handle an entry of the run's log."""
        self._so_far.take(entry)

    def expect(self, total: int) -> None:
        """Change the total number of trials."""
        self._total = max(total, self._done)
        if self._bar:
            self._bar.update(self._bar.task_ids[0], total=self._total)

    def step(self) -> None:
        """Count a trial; interim results are computed here, between trials, and only as often as drawn."""
        self._done += 1
        if (now := time.monotonic()) - self._understood >= self._pause:
            self._understood = now
            if self._bar:
                self._bar.above = table_of(self._so_far)
            else:
                self._lines = lines_of(self._so_far)
        self.tick()

    def tick(self) -> None:
        """Draw, if the interval since the last drawing has passed."""
        now = time.monotonic()
        if now - self._drawn < self._pause:
            return
        self._drawn = now
        if self._bar:
            self._bar.update(self._bar.task_ids[0], completed=self._done, refresh=True)
        else:
            spent = now - self._began
            left = f", about {spent / self._done * (self._total - self._done):.0f} s left" if self._done else ""
            self.say(f"measured {self._done} of {self._total} trials in {spent:.0f} s{left}")
            for line in self._lines:
                self.say(line)

    @property
    def _pause(self) -> float:
        return REDRAW_SECONDS if self._bar else PLAIN_SECONDS

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Remove the bar within a block that may ask the user."""
        if self._bar:
            self._bar.stop()
        try:
            yield
        finally:
            if self._bar:
                self._bar.start()

    def end(self) -> None:
        """Remove the bar."""
        if self._bar:
            self._bar.stop()
            self._bar = None

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()


def shown(so_far: SoFar) -> dict[str, dict[str, dict[str, str]]]:
    """Return the interim percentiles by quantity and path, in µs; a dash if there are too few delays."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for path, told in list(so_far.paths.items())[:MOST_PATHS]:
        for quantity in told.delays:
            if values := told.quantiles(quantity):
                words = {name: f"{values[name] / 1e3:.3g}" if name in values else "–" for name in QUANTILES}
                found.setdefault(quantity, {})[path] = words
    return found


def lines_of(so_far: SoFar) -> list[str]:
    """Return the interim percentiles as plain lines, one for each quantity."""
    heads = " / ".join(QUANTILES)
    return [
        f"  {TITLES[quantity]} so far, {heads} in µs: "
        + "; ".join(f"{path} {' / '.join(words.values())}" for path, words in paths.items())
        for quantity, paths in shown(so_far).items()
    ]


def table_of(so_far: SoFar) -> Table | None:
    """Return them as a table; None if there are none yet."""
    found = shown(so_far)
    if not found:
        return None
    table = Table(box=None, pad_edge=False)
    for name in ("so far, µs", "path", *QUANTILES):
        table.add_column(name, justify="right" if name in QUANTILES else "left", overflow="fold")
    for quantity, paths in found.items():
        for number, (path, words) in enumerate(paths.items()):
            table.add_row("" if number else TITLES[quantity], Text(path), *words.values())
    return table
