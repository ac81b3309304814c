"""The report in the terminal: the verdict first, then the latencies, the line, the resolution, laws and findings.

It prints what analysis/ says and where the page lies; the page itself is not made here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sojourn.report.numbers import NOTHING, count, percent
from sojourn.report.run import Run
from sojourn.report.tables import fitted_lines, in_order, shown_of

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

STYLES = {
    "trusted": "bold green",
    "doubtful": "bold yellow",
    "invalid": "bold red",
    "note": "dim",
    "holds": "green",
    "fails": "bold red",
    "cannot tell": "yellow",
}
MOST_CELLS = 24


def render(folder: Path, console: Console) -> None:
    """Prints the summary of a run folder."""
    run = Run.read(folder)
    _print_verdict(run, console)
    _print_latencies(run, console)
    _print_lines(run, console)
    _print_laws(run, console)
    _print_findings(run, console)
    _print_paths(run, console)


def _print_verdict(run: Run, console: Console) -> None:
    verdict = str(run.verdict["verdict"])
    console.print(Text(str(run.verdict["sentence"]), style="bold"), soft_wrap=False)
    console.print(Text.assemble("Verdict: ", (verdict, STYLES.get(verdict, ""))))


def _print_latencies(run: Run, console: Console) -> None:
    found = run.rows("device_latency")
    pooled = found.filter(pl.col("statistic") == "pooled")
    cells = found.filter(pl.col("statistic") == "mean")
    if found.is_empty():
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title, side in (
        ("device", "left"),
        ("over", "left"),
        ("cell", "left"),
        ("latency", "right"),
        ("", "left"),
        ("interval", "left"),
        ("level", "right"),
        ("pairs", "right"),
    ):
        table.add_column(title, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for row in in_order(pooled):
        table.add_row(*_latency(run, row), style="bold")
    for row in in_order(cells.head(MOST_CELLS)):
        table.add_row(*_latency(run, row))
    console.print(Padding(table, (1, 0, 0, 0)))
    if cells.height > MOST_CELLS:
        console.print(f"… and {cells.height - MOST_CELLS} more cells in the report", style="dim")


def _latency(run: Run, row: dict[str, Any]) -> tuple[str, ...]:
    shown, cell = shown_of(row), run.cell_of(row)
    level = NOTHING if shown.interval == NOTHING else percent(round(row["level"], 3))
    words = (row["device"], row["reference"] or "", cell.short if cell else "pooled")
    return (*map(escape, words), shown.text, shown.unit, shown.interval, level, count(row["n"]))


def _print_lines(run: Run, console: Console) -> None:
    wanted = [(a, b) for a, b in fitted_lines(run) if a["reference"] is not None]
    if wanted:
        console.print()
    for intercept, slope in wanted:
        a, b = shown_of(intercept), shown_of(slope)
        name = f"{intercept['device']} over {intercept['reference']}"
        console.print(
            f"{escape(name)}: {a.text} µs ({a.interval}) + {b.text} ns/byte ({b.interval}) × frame bytes",
            highlight=False,
        )
    for row in run.rows("resolution").head(1).iter_rows(named=True):
        console.print(f"The bed can resolve {row['estimate'] / 1e3:.2g} µs.", highlight=False)


def _print_laws(run: Run, console: Console) -> None:
    laws = run.verdict.get("laws", [])
    if laws:
        console.print()
    for law in laws:
        answer = str(law["answer"])
        words = (
            f"{law['law'].replace('-', ' ')}: ",
            (answer, STYLES.get(answer, "")),
            f"  {law.get('sentence') or ''}",
        )
        console.print(Text.assemble(*words))


def _print_findings(run: Run, console: Console) -> None:
    found = run.findings()
    if found:
        console.print()
    for one in found:
        where = f" ({one['where']})" if one.get("where") else ""
        mark = (one["severity"], STYLES.get(one["severity"], ""))
        console.print(Text.assemble(mark, f" {one['name'].replace('_', ' ')}{where}: {one['sentence']}"))


def _print_paths(run: Run, console: Console) -> None:
    console.print()
    page = run.folder / "report" / "index.html"
    if page.is_file():
        console.print(Text(f"Report: {page}"), soft_wrap=True)
    console.print(Text(f"Run folder: {run.folder}"), soft_wrap=True)
