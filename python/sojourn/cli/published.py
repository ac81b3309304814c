"""`sojourn run published`: every study of a published experiment, one after another, and one page of all.

Each study is a run of its own, all in one folder. A study that fails is reported and left out; the others continue.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import TYPE_CHECKING

from sojourn.errors import MachineError, RequestError, SojournError

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from sojourn.plan import Plan

NAME = "published"
ASKED = "asked.json"
"""The values of the studies' plans in a folder's runs, and where they were measured."""

INVALID = 4
INTERRUPTED = 130


def run_published(folder: Path, *, full: bool, backend: str | None, history: bool, as_json: bool) -> int:
    """Run every study that is not finished in `folder` yet, write the page, and return the exit status.

    0; 4 if a run must not be trusted; 3 if a study could not be measured.
    """
    from rich.console import Console

    from sojourn.report.experiments import studies
    from sojourn.report.overview import print_overview, write_overview

    take(folder, studies(), {"full": full, "bed": backend})
    told = Console(file=sys.stderr, highlight=False, emoji=False)
    told.print(f"every run goes below {folder}", markup=False, soft_wrap=True)
    failed: dict[str, str] = {}
    for place, study in enumerate(studies(), 1):
        if (folder / study / "report" / "index.html").is_file():
            continue
        told.print(f"{study} ({place} of {len(studies())})", markup=False)
        try:
            one_run(study, folder / study, full=full, backend=backend, history=history)
        except SojournError as error:
            if error.status == INTERRUPTED:
                write_overview(folder, failed)
                raise_interrupted(folder)
            failed[study] = str(error)
        except KeyboardInterrupt:
            raise_interrupted(folder)
        except Exception as error:
            tell_fault(study, folder, told)
            failed[study] = f"a fault of Sojourn ({type(error).__name__}): see {folder / 'faults.txt'}"
        if study in failed:
            told.print(f"{study}: {failed[study]}", markup=False)
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


def raise_interrupted(folder: Path) -> None:
    """Raise the error that says how to resume all studies, not only the interrupted one."""
    from sojourn.conduct import Interrupted

    raise Interrupted(f"interrupted; go on with: sojourn run {NAME} --out {folder}")


def tell_fault(study: str, folder: Path, told: Console) -> None:
    """Write the traceback for a report of the fault."""
    with (folder / "faults.txt").open("a", encoding="utf-8") as file:
        file.write(f"{study}\n{traceback.format_exc()}\n")
    told.print(traceback.format_exc(), markup=False)


def one_run(study: str, path: Path, *, full: bool, backend: str | None, history: bool) -> None:
    """Measure a study, or resume it; analyse and report."""
    from sojourn.cli.apart import analyse_and_report
    from sojourn.cli.conclude import keep
    from sojourn.conduct import Screen, conduct, create_folder, resume
    from sojourn.records import RunFolder

    folder = RunFolder(path)
    if folder.plan.is_file():
        resume(folder, Screen())
    else:
        plan = plan_of(study, full=full, backend=backend)
        folder = create_folder(plan, path)
        conduct(plan, folder, Screen())
    analyse_and_report(folder.path)
    if history:
        keep(folder)


def plan_of(study: str, *, full: bool, backend: str | None) -> Plan:
    """Return the study's plan: quick, or full, as published if the study has such values."""
    from sojourn.plan import has_variant, load_plan

    return load_plan(study, sets=[], quick=not full, full=full and has_variant(study, "full"), backend=backend)


def dry_run(*, full: bool, backend: str | None, as_json: bool) -> None:
    """Show which studies would be run, and the time of each; or why one cannot be."""
    from sojourn.cli.dry_run import expansion, words
    from sojourn.report.experiments import studies

    took: dict[str, int] = {}
    refused: dict[str, str] = {}
    for study in studies():
        try:
            took[study] = int(expansion(plan_of(study, full=full, backend=backend))["total_ns"])
        except SojournError as error:
            refused[study] = str(error)
    if as_json:
        print(json.dumps({"studies": took, "refused": refused, "total_ns": sum(took.values())}))
        return
    for study in studies():
        print(f"{study:<{max(map(len, studies()))}}  {words(took[study]) if study in took else refused[study]}")
    print(f"About {words(sum(took.values()))} on a quiet machine, analysis and reports not counted.")


def take(folder: Path, names: list[str], asked: dict[str, object]) -> None:
    """Make the folder, or continue with one of ours; refuse any other folder, and one with other options."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        inside = {path.name for path in folder.iterdir()}
        if inside and ASKED not in inside:
            raise RequestError(
                f"{folder} holds {min(inside)}, which is not from `sojourn run {NAME}`: choose another --out"
            )
        strange = inside - {*names, ASKED, "index.html", "published.json", "faults.txt"}
        if strange:
            raise RequestError(f"{folder} holds {min(strange)}, which is no published study's: choose another --out")
        if inside and asked_before(folder / ASKED) != asked:
            raise RequestError(f"{folder} was measured with other options (--full, --bed): choose another --out")
        (folder / ASKED).write_text(json.dumps(asked) + "\n", encoding="utf-8")
    except OSError as error:
        raise MachineError(f"{folder} cannot be made ({error.strerror}): choose another --out") from error


def asked_before(path: Path) -> object:
    """Return the options that a folder was measured with; None if its file does not have them."""
    from sojourn.records.decode import json_file

    try:
        return json_file(path)
    except ValueError:
        return None


def stamped() -> str:
    """Return time and name: 2026-11-20T101500Z-published."""
    from datetime import UTC, datetime

    return f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}-{NAME}"
