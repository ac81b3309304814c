"""The output of `--dry-run` for a plan that measures the cost of the log of TCP's state: its cells, pairs and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from sojourn.units import as_duration

if TYPE_CHECKING:
    from rich.console import Console


def print_costs(shown: dict[str, Any], console: Console) -> None:
    """Print a line for each traffic and place, with its settings."""
    table = Table(box=None, pad_edge=False)
    for column in ("path", "flows", "on", "sampling 1 in N, and controls"):
        table.add_column(column, overflow="fold")
    lines: dict[tuple[str, int, str], list[str]] = {}
    for cell in shown["cells"]:
        said = str(cell["packets_per_log"]) if cell["mode"] == "on" else cell["mode"].replace("off", "off again")
        lines.setdefault((cell["path"], cell["flows"], cell["where"]), []).append(said)
    for (path, flows, where), said in lines.items():
        table.add_row(path, str(flows), where, ", ".join(said))
    console.print(table)
    each = as_duration(shown["slice_ns"])
    traffic = f"{shown['transfers']} transfers" if shown["form"] == "slices" else "an iperf3 for each slice"
    console.print(
        f"\n{shown['pairs']} pairs of slices of {each}, one with and one without, {shown['repetitions']} of each cell; "
        f"{traffic}.",
        markup=False,
    )
