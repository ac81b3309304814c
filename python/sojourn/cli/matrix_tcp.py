"""What `--dry-run` shows of a plan with trials over TCP: its cells, how often each is measured, the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from sojourn.cli.matrices import head
from sojourn.plan import Plan, estimate_tcp, expand_tcp, tcp_cells

if TYPE_CHECKING:
    from rich.console import Console


def tcp_matrix(plan: Plan) -> dict[str, Any]:
    """Cells with their factors, trials and times."""
    cost, trials = estimate_tcp(plan), expand_tcp(plan)
    names = ("kind", "congestion", "pipe", "arm")
    cells = [{"cell": cell, **dict(zip(names, of, strict=True))} for cell, of in enumerate(tcp_cells(plan))]
    return head(plan) | {
        "connections": len(trials),
        "rounds": max(trial.round for trial in trials) + 1,
        "settings": sorted({trial.setting for trial in trials}),
        "measuring_ns": cost.measuring_ns,
        "total_ns": cost.total_ns,
        "cells": cells,
    }


def print_tcp(shown: dict[str, Any], console: Console) -> None:
    """The same for a person: a line for each cell."""
    table = Table(box=None, pad_edge=False)
    for column in ("trial", "congestion control", "path"):
        table.add_column(column, overflow="fold")
    for cell in shown["cells"]:
        table.add_row(cell["kind"], cell["congestion"], cell["pipe"] or cell["arm"])
    console.print(table)
    settings = f", each with the log {', '.join(shown['settings'])}" if len(shown["settings"]) > 1 else ""
    console.print(f"\n{shown['connections']} trials, {shown['rounds']} of each cell{settings}.", markup=False)
