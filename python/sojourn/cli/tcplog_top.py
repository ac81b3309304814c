"""`sojourn tcplog top`: the flows of `tcplog watch` as a table that is updated.

Hides the instrument's process and its lines. The instrument decides which flows there are, and what is counted.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sojourn.bed.ssh import OUR_INSTRUMENT, reading
from sojourn.binary import find_instrument
from sojourn.cli.flows import CLOSED, COLUMNS, MAY_BE_UNKNOWN, NOTHING, flows_of, state, units
from sojourn.errors import DoubtfulError, MachineError, RequestError, SojournError, did_you_mean
from sojourn.records.decode import json_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.cli.flows import Flow

ERRORS: dict[int, type[SojournError]] = {2: RequestError, 3: MachineError, 4: DoubtfulError}
FEW_ROWS = 5
PATIENCE_SECONDS = 10
ENDS = ("local", "remote")
ADDRESS = 15
"""The least characters of an end in a narrow terminal."""


@dataclass(frozen=True)
class View:
    """The options of the display."""

    sort: str = "out"
    rows: int | None = None

    def __post_init__(self) -> None:
        if self.sort not in COLUMNS:
            meant = did_you_mean(self.sort, COLUMNS)
            raise RequestError(f"--sort {self.sort}: expected one of {', '.join(COLUMNS)}{meant}")

    def draw(self, told: dict[str, Any], console: Console) -> Table:
        """Return the table of one line of the instrument; raises MachineError for that of another version."""
        with reading("tcplog watch", OUR_INSTRUMENT):
            return self._drawn(told, console)

    def _drawn(self, told: dict[str, Any], console: Console) -> Table:
        flows = flows_of(told)
        column = COLUMNS[self.sort]
        flows.sort(key=column.key, reverse=not column.left)
        flows.sort(key=lambda flow: state(flow) in CLOSED)
        room = self.rows or (max(console.height - FEW_ROWS, 1) if console.is_terminal else len(flows))
        shown = fitting(console.width, flows[:room])
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), expand=False)
        table.title, table.title_justify, table.title_style = title(flows, room), "left", ""
        table.caption, table.caption_justify, table.caption_style = units(shown), "left", "dim"
        for name, width in shown.items():
            one = COLUMNS[name]
            mark = "▾" if name == self.sort else ""
            table.add_column(Text(one.title + mark, style="bold"), justify="left" if one.left else "right",
                             no_wrap=True, overflow="ellipsis", width=width)  # fmt: skip
        for flow in flows[:room]:
            cells = ((name, cut(COLUMNS[name].say(flow), width)) for name, width in shown.items())
            table.add_row(*(Text(text, style=style_of(flow, name)) for name, text in cells))
        return table


def fitting(width: int, flows: list[Flow]) -> dict[str, int]:
    """Return the columns that fit the terminal's width, each with its width: the least important are left out."""
    wide = {name: max([len(one.title) + 1, *(len(one.say(flow)) for flow in flows)]) for name, one in COLUMNS.items()}
    for name in MAY_BE_UNKNOWN:
        if flows and all(COLUMNS[name].say(flow) == NOTHING for flow in flows):
            del wide[name]
    most = max(width // 4, ADDRESS)
    shown = wide | {end: min(wide[end], most) for end in ENDS}
    for name in sorted(wide, key=lambda name: -COLUMNS[name].rank):
        if sum(shown.values()) + len(shown) <= width or not COLUMNS[name].rank:
            break
        del shown[name]
    for end in ENDS:  # the addresses get the remaining width
        shown[end] = min(wide[end], shown[end] + width - sum(shown.values()) - len(shown))
    return shown


def cut(text: str, width: int) -> str:
    """Shorten a text in its middle: of an address, port and host are the most important."""
    tail = width // 2
    return text if len(text) <= width else f"{text[: width - tail - 1]}…{text[-tail:]}"


def title(flows: list[Flow], room: int) -> Text:
    """Return the title: the number of flows, and of those shown."""
    more = f", {room} shown" if len(flows) > room else ""
    return Text(f"{len(flows)} flow{'s' * (len(flows) != 1)}{more}")


def style_of(flow: Flow, name: str) -> str:
    """Return the style of a cell, which highlights problems."""
    if (flow.get({"retrans": "total_retrans", "skipped": "skipped"}.get(name, "")) or 0) > 0:
        return "yellow"
    return "dim" if state(flow) in CLOSED else ""


def watch(words: list[str], view: View, *, once: bool) -> None:
    """Show the instrument's output until it ends or Ctrl-C; `once`: a single table."""
    argv = [find_instrument(), "tcplog", "watch", *words, *(["--count", "1"] if once else [])]
    # A session of its own: Ctrl-C is for us, and we end it after restoring the terminal.
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    )
    try:
        show(lines_of(process), view, once=once)
    except KeyboardInterrupt:
        if once:
            raise
        return
    finally:
        status, said = end(process)
    if status not in {0, -signal.SIGTERM}:
        raise ERRORS.get(status, MachineError)(
            said.removeprefix("sojourn-instrument: ") or f"watch ended with {status}"
        )


def lines_of(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Return the instrument's output, line by line."""
    assert process.stdout is not None
    for line in process.stdout:
        with suppress(ValueError):  # cut when it was killed
            told = json_value(line)
            if isinstance(told, dict) and "flows" in told:
                yield told


def show(lines: Iterator[dict[str, Any]], view: View, *, once: bool) -> None:
    """Draw each line: in place on a terminal, otherwise one table after another."""
    console = Console(highlight=False, emoji=False)
    if once:
        for told in lines:  # without a line, the instrument's error is raised when it has ended
            console.print(view.draw(told, console))
        return
    if not console.is_terminal:
        for told in lines:
            console.print(view.draw(told, console))
            sys.stdout.flush()
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        live.update(Text("waiting for flows …", style="dim"), refresh=True)
        for told in lines:
            live.update(view.draw(told, console), refresh=True)
            if not sys.stdout.isatty():  # a closed output that was not reported
                return


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """End the instrument, so that its programs are detached; return its status, and its last line."""
    with suppress(ProcessLookupError):
        process.terminate() if process.poll() is None else None
    try:
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        _, said = process.communicate()
    return process.returncode, (said.strip().splitlines() or [""])[-1]
