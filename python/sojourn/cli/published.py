"""`sojourn run published`: every study that a published experiment names, one after the other, and one page of all.

Each study is a run of its own, below one folder. A study that fails is told and left out; the others go on.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sojourn.errors import MachineError, RequestError, SojournError

if TYPE_CHECKING:
    from sojourn.plan import Plan

NAME = "published"
INVALID = 4
INTERRUPTED = 130


def run_published(out: Path | None, *, full: bool, backend: str | None, history: bool, as_json: bool) -> int:
    """Run every study that is not finished in `out` yet, write the page, and return the exit status.

    0; 4 where a run must not be trusted; 3 where a study could not be measured.
    """
    from rich.console import Console

    from sojourn.report.experiments import studies
    from sojourn.report.overview import print_overview, write_overview

    folder = out or Path("runs") / stamped()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(f"{folder} cannot be made ({error.strerror}): choose another --out") from error
    refuse_strange(folder, studies())
    failed: dict[str, str] = {}
    told = Console(file=sys.stderr, highlight=False, emoji=False)
    for place, study in enumerate(studies(), 1):
        if (folder / study / "analysis" / "verdict.json").is_file():
            continue
        told.print(f"{study} ({place} of {len(studies())})", markup=False)
        try:
            one_run(study, folder / study, full=full, backend=backend, history=history)
        except SojournError as error:
            if error.status == INTERRUPTED:
                raise
            failed[study] = str(error)
            told.print(f"{study}: {error}", markup=False)
    answers = write_overview(folder, failed)
    if as_json:
        print((folder / "published.json").read_text(encoding="utf-8"), end="")
    else:
        console = Console(highlight=False, emoji=False)
        print_overview(answers, console)
        console.print(f"Report: {folder / 'index.html'}", markup=False, soft_wrap=True)
    if failed:
        return MachineError.status
    return INVALID if any(one.verdict == "invalid" for one in answers) else 0


def one_run(study: str, path: Path, *, full: bool, backend: str | None, history: bool) -> None:
    """Measure, or go on where it was interrupted; analyse and report."""
    from sojourn.analysis import analyse
    from sojourn.cli.conclude import keep
    from sojourn.conduct import Screen, conduct, create_folder, resume
    from sojourn.records import RunFolder
    from sojourn.report import write_report

    folder = RunFolder(path)
    if folder.plan.is_file():
        resume(folder, Screen())
    else:
        plan = plan_of(study, full=full, backend=backend)
        folder = create_folder(plan, path)
        conduct(plan, folder, Screen())
    analyse(folder.path)
    write_report(folder.path)
    if history:
        keep(folder)


def plan_of(study: str, *, full: bool, backend: str | None) -> Plan:
    """The study's plan: quick, or all of it, as published where the study has such values."""
    from sojourn.plan import has_variant, load_plan

    return load_plan(study, sets=[], quick=not full, full=full and has_variant(study, "full"), backend=backend)


def dry_run(*, full: bool, backend: str | None, as_json: bool) -> None:
    """Show which studies would be run, and how long each takes."""
    import json

    from sojourn.cli.dry_run import expansion, words
    from sojourn.report.experiments import studies

    took = {study: int(expansion(plan_of(study, full=full, backend=backend))["total_ns"]) for study in studies()}
    if as_json:
        print(json.dumps({"studies": took, "total_ns": sum(took.values())}))
        return
    for study, total in took.items():
        print(f"{study:<{max(map(len, took))}}  {words(total)}")
    print(f"About {words(sum(took.values()))} on a quiet machine, analysis and reports not counted.")


def refuse_strange(folder: Path, names: list[str]) -> None:
    """A folder that holds anything but runs of these studies is somebody's own."""
    strange = [path.name for path in folder.iterdir() if path.name not in (*names, "index.html", "published.json")]
    if strange:
        raise RequestError(f"{folder} holds {strange[0]}, which is no run of a published study: choose another --out")


def stamped() -> str:
    """When, and what: 2026-11-20T101500Z-published."""
    from datetime import UTC, datetime

    return f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}-{NAME}"
