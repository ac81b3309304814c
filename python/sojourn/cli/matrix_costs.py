"""What `--dry-run` shows of a plan that asks what the log of TCP's state costs: its cells, their pairs, the time."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

from sojourn.cli.matrices import head
from sojourn.plan import Plan, estimate_costs, expand_costs, settings
from sojourn.plan.values import as_duration

if TYPE_CHECKING:
    from rich.console import Console


def costs_matrix(plan: Plan) -> dict[str, Any]:
    """Cells with their factors, pairs and times."""
    cost, pairs = estimate_costs(plan), expand_costs(plan)
    return head(plan) | {
        "pairs": len(pairs),
        "repetitions": plan.costs.repetitions,
        "sessions": len({pair.session for pair in pairs}),
        "form": plan.costs.form,
        "slice_ns": plan.costs.slice_ns,
        "measuring_ns": cost.measuring_ns,
        "total_ns": cost.total_ns,
        "cells": [{"cell": cell, **asdict(setting)} for cell, setting in enumerate(settings(plan))],
    }


def print_costs(shown: dict[str, Any], console: Console) -> None:
    """The same for a person: a line for each traffic and place, with its settings."""
    table = Table(box=None, pad_edge=False)
    for column in ("path", "flows", "on", "packets per log and controls"):
        table.add_column(column, overflow="fold")
    lines: dict[tuple[str, int, str], list[str]] = {}
    for cell in shown["cells"]:
        said = str(cell["packets_per_log"]) if cell["mode"] == "on" else cell["mode"].replace("off", "off again")
        lines.setdefault((cell["path"], cell["flows"], cell["where"]), []).append(said)
    for (path, flows, where), said in lines.items():
        table.add_row(path, str(flows), where, ", ".join(said))
    console.print(table)
    each = as_duration(shown["slice_ns"])
    traffic = f"{shown['sessions']} sessions" if shown["form"] == "slices" else "an iperf3 for each slice"
    console.print(
        f"\n{shown['pairs']} pairs of slices of {each}, one with and one without, {shown['repetitions']} of each cell; "
        f"{traffic}.",
        markup=False,
    )
