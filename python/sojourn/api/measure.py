"""A study, run from a program: as `sojourn run` does it, without its words on the terminal unless they are wanted."""

from __future__ import annotations

import io
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sojourn.api.runs import Run


def run(  # noqa: PLR0913 - one for each option
    study: str | os.PathLike[str],
    *,
    sets: Mapping[str, object] | None = None,
    devices: Sequence[str] = (),
    bed: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    quick: bool = False,
    report: bool = False,
    quiet: bool = True,
) -> Run:
    """Measure a built-in study or a plan file, analyse it, and open the run.

    `sets` changes values of the plan (`{"pairs.rounds": 20, "devices": ["wire", "bridge"]}`), `devices` names those
    under test in place of the plan's, `bed` is "netns", "sim" or a file of real hosts, `out` the run folder to make,
    `report` whether report/ is written. Raises SojournError with the sentence that the command line would say, also
    where it is interrupted. Nothing is added to the user's history.
    """
    from sojourn.analysis import analyse
    from sojourn.api.runs import open as open_run
    from sojourn.cli.private import private_run
    from sojourn.conduct import Screen, conduct, create_folder, folder_of, refuse_wrong_words, try_boxes
    from sojourn.plan import load_plan

    words = [f"{key}={spelled(value)}" for key, value in (sets or {}).items()]
    backend = None if bed is None else os.fspath(bed)
    planned = partial(load_plan, os.fspath(study), sets=words, quick=quick, backend=backend, devices=list(devices))
    plan = planned()
    refuse_wrong_words(plan)
    if found := try_boxes(plan):
        plan = planned(more=found)
    into = folder_of(plan) if out is None else Path(out)
    with private_run(into):
        folder = create_folder(plan, into)
        conduct(plan, folder, Screen(io.StringIO() if quiet else sys.stderr))
        analyse(folder.path)
        if report:
            from sojourn.report import write_report

            write_report(folder.path)
    return open_run(into)


def spelled(value: object) -> str:
    """Return a value in the notation of `--set`: several separated by commas, true and false as in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(spelled, value))
    return f"{value}"
