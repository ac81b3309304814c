"""The output of `--dry-run` for a plan with trials over TCP: its cells, their repetitions, the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console


def print_tcp(shown: dict[str, Any], console: Console) -> None:
    """Print a line for each cell."""
    table = Table(box=None, pad_edge=False)
    further = ("scenario", "round_trips", "background")
    beside = [name for name in further if any(cell.get(name) for cell in shown["cells"])]
    for column in ("trial", "congestion control", *(name.replace("_", " ") for name in beside), "path"):
        table.add_column(column, overflow="fold")
    for cell in shown["cells"]:
        named = (cell.get(name, "") for name in beside)
        table.add_row(cell["kind"], cell["congestion"], *named, cell["pipe"] or cell["path"])
    console.print(table)
    several = shown.get("settings", ())
    settings = f", each with the log {', '.join(several)}" if len(several) > 1 else ""
    console.print(f"\n{shown['connections']} trials, {shown['rounds']} of each cell{settings}.", markup=False)
