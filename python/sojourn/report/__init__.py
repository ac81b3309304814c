"""What we say of a run: one HTML page, tables as CSV, Markdown and LaTeX, a summary; if asked, figures as SVG and PDF.

Input is the run folder alone: analysis/, plan.toml, bed.json. Output is report/, which may be deleted and made again.
Nothing here estimates: every number was in analysis/ before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from sojourn.report.beside import ToolResult


def write_report(folder: Path, *, vector: bool = False, beside: Sequence[ToolResult] = ()) -> Path:
    """Writes report/ of a run folder, replacing what was there; returns the page's path.

    `vector`: every figure also as SVG and PDF, which takes about as long as all else. `beside`: what other tools
    measured, for a table of its own.
    """
    from sojourn.report.write import write

    return write(folder, vector=vector, beside=beside)


def render_terminal(folder: Path, console: Console) -> None:
    """Prints the verdict, the latencies with their intervals, hypotheses and findings, and where the report lies."""
    from sojourn.report.terminal import render

    render(folder, console)


__all__ = ["render_terminal", "write_report"]
