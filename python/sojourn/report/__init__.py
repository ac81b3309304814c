"""Write the report of a run: an HTML page, tables (CSV, Markdown, LaTeX), a summary; on request, figures (SVG, PDF).

Input is the run folder alone: analysis/, plan.toml, bed.json. Output is report/, which may be deleted and made again.
Nothing here estimates: every number is already in analysis/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from sojourn.report.beside import ToolResult


def write_report(folder: Path, *, vector: bool = False, beside: Sequence[ToolResult] = ()) -> Path:
    """Write report/ of a run folder, replacing what was there; return the path of the page.

    `vector`: write every figure as SVG and PDF too, which takes about as long as all the rest. `beside`: the results of
    other tools, for a table of their own.
    """
    from sojourn.report.write import write

    return write(folder, vector=vector, beside=beside)


def render_terminal(folder: Path, console: Console) -> None:
    """Print the verdict, the latencies with their intervals, hypotheses and findings, and the path of the report."""
    from sojourn.report.terminal import render

    render(folder, console)


__all__ = ["render_terminal", "write_report"]
