"""The commands in the order of `sojourn --help`: by purpose, the most usual first.

Each command is in one group; others are listed at the end. Hides how the parser formats a list; commands are declared
in commands.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer.core

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

GROUPS: dict[str, tuple[str, ...]] = {
    "Measure": ("run", "list", "doctor", "probe", "stream", "stamp", "clock"),
    "Emulate a path": ("emulate", "lab", "uplink"),
    "Capture packets, log TCP": ("capture", "match", "dataset", "tcplog", "why", "timeline"),
    "Runs and reports": ("report", "compare", "history", "watch", "export"),
    "Beds and bridges": ("bed", "bridge"),
    "Extend": ("new",),
}
OTHERS = "Others"


class Grouped(typer.core.TyperGroup):
    """The program, whose help lists its commands by group."""

    def list_commands(self, ctx: Context) -> list[str]:
        """The names of all commands, group by group."""
        declared = super().list_commands(ctx)
        placed = [name for names in GROUPS.values() for name in names if name in declared]
        return placed + [name for name in declared if name not in placed]

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write a section for each group, with one width for all."""
        names = self.list_commands(ctx)
        commands = {name: self.commands[name] for name in names if not self.commands[name].hidden}
        width = max(map(len, commands))
        grouped = {name for group in GROUPS.values() for name in group}
        groups = GROUPS | {OTHERS: tuple(name for name in names if name not in grouped)}
        for title, group in groups.items():
            rows = [
                (name.ljust(width), commands[name].get_short_help_str(formatter.width - 6 - width))
                for name in group
                if name in commands
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
