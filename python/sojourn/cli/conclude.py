"""The end of every run: analysis, report, and the exit status. Loads nothing that measures."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sojourn.records import RunFolder

INVALID = 4


def conclude(  # noqa: PLR0913 - one for each thing that can be asked
    folder: RunFolder,
    *,
    as_json: bool,
    report: bool = True,
    history: bool = False,
    vector: bool = False,
    beside: Sequence[Path] = (),
    pdf: bool = False,
) -> None:
    """Analyse and, if requested, report and add to the history; exit 4 if the run must not be trusted."""
    from sojourn.cli.apart import analyse_and_report

    page = analyse_and_report(folder.path, report=report, vector=vector, beside=beside)
    from rich.console import Console

    from sojourn.cli.readers import whoever_reads
    from sojourn.report import render_terminal

    if page and pdf:
        print("printing the report", file=sys.stderr)
        from sojourn.report.pdf import print_pdf

        print_pdf(page)
    if history:
        keep(folder)
    verdict = json.loads(folder.verdict.read_text(encoding="utf-8"))
    with whoever_reads():
        if as_json:
            results = json.loads(folder.results.read_text(encoding="utf-8"))
            said = {key: verdict[key] for key in ("verdict", "simulated", "sentence", "checks") if key in verdict}
            print(json.dumps({"run": str(folder.path), **said, "results": results}))
        else:
            render_terminal(folder.path, Console(highlight=False, emoji=False))
            if history and (widened := over_boots(folder)):
                print(widened)
    if verdict["verdict"] == "invalid":
        raise typer.Exit(INVALID)


def keep(folder: RunFolder) -> None:
    """Add the run to the history; if that fails, print a sentence, and let the run end as usual."""
    from sojourn.errors import SojournError

    try:
        from sojourn.history import entry_of, find_history

        find_history().append(entry_of(folder))
    except SojournError as error:
        print(f"sojourn: not in the history: {error}", file=sys.stderr)


def over_boots(folder: RunFolder) -> str:
    """Return the headline's uncertainty including other boots and days, if the history has it; else empty."""
    from sojourn.errors import SojournError

    try:
        from sojourn.cli.boots import with_boots

        return with_boots(folder)
    except SojournError:
        return ""  # `keep` has reported why
