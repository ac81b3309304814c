"""The end of every run: analysis, report, and the exit status. Loads nothing that measures."""

from __future__ import annotations

import json
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
    import sys

    from rich.console import Console

    told = Console(file=sys.stderr, highlight=False, emoji=False)
    told.print("analysing", markup=False)
    from sojourn.analysis import analyse
    from sojourn.cli.readers import whoever_reads
    from sojourn.report import render_terminal, write_report
    from sojourn.report.beside import read_result

    others = [read_result(path) for path in beside]
    analyse(folder.path)
    if report:
        told.print("writing the report", markup=False)
        page = write_report(folder.path, vector=vector, beside=others)
        if pdf:
            told.print("printing the report", markup=False)
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
    import sys

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
