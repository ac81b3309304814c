"""All published experiments on one page: each paper's tables and figures, their results, and those of our studies.

It reads the run folders of the studies, all in one folder, and estimates nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from rich.markup import escape
from rich.table import Table as Grid

from sojourn.records.whole_file import write_whole
from sojourn.report.experiments import Answer, answer, experiments, papers
from sojourn.report.numbers import NOTHING, Shown, plain_decimals
from sojourn.report.page import bound
from sojourn.report.run import Run
from sojourn.report.shell import policy, style, templates
from sojourn.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.console import Console

NOTE = (
    "“Theirs” is as published, “ours” is from the runs in this folder. The machines are decades apart: compare signs, "
    "ratios and what depends on what, never the times themselves."
)


def write_overview(folder: Path, failed: Mapping[str, str]) -> list[Answer]:
    """Write `index.html` and `published.json` from the runs in `folder`; `failed`: why a study has no run."""
    runs = {name: Run.read(folder / name) for name in _finished(folder)}
    answers = [
        answer(one, runs.get(one.study), failed.get(one.study, "its study was not run")) for one in experiments()
    ]
    write_whole(folder / "published.json", json.dumps([_plain(one) for one in answers], indent=1) + "\n")
    write_whole(folder / "index.html", _page(folder, answers, runs))
    return answers


def print_overview(answers: list[Answer], console: Console) -> None:
    """Print the overview in the terminal: a table for each paper."""
    for name, paper in papers().items():
        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), title=paper.title, title_justify="left")
        for title, ratio in (("published in", 2), ("what", 5), ("theirs", 4), ("ours", 5)):
            grid.add_column(title, ratio=ratio, overflow="fold")
        for one in answers:
            if one.experiment.paper == name:
                where = ", ".join(one.experiment.items)
                grid.add_row(
                    *(escape(words) for words in (where, one.experiment.about, one.experiment.theirs, ours(one)))
                )
        console.print(grid)
        console.print()


def ours(one: Answer) -> str:
    """Return our figure with its interval, its words and its verdict."""
    figure = [] if one.shown is None else [_sentence(one.shown)]
    doubt = [one.verdict] if one.verdict and one.verdict != "trusted" else []
    return "; ".join([*figure, *([one.words] if one.words else []), *doubt]) or NOTHING


def _sentence(shown: Shown) -> str:
    """Return a figure with its interval; times in ms or s where µs would be thousands."""
    size = abs(shown.value or 0.0)
    if shown.unit == "µs" and size >= 1000:
        factor, unit = (1e-6, "s") if size >= 1e6 else (1e-3, "ms")
        value, low, high = (None if end is None else end * factor for end in (shown.value, shown.low, shown.high))
        shown = Shown(value, low, high, unit)
    if shown.interval != NOTHING:
        return shown.sentence()
    digits = plain_decimals(shown.value, 3)
    return f"{shown.value:.{digits}f} {shown.unit}".strip() if shown.value is not None else NOTHING


def _finished(folder: Path) -> list[str]:
    """Return the studies that have an analysed run in the folder."""
    return sorted(path.parent.parent.name for path in folder.glob("*/analysis/verdict.json"))


def _plain(one: Answer) -> dict[str, Any]:
    """Return an answer for JSON: the value is in its display unit."""
    found = one.experiment
    value = {} if one.shown is None else {
        "value": one.shown.value, "low": one.shown.low, "high": one.shown.high, "unit": one.shown.unit,
    }  # fmt: skip
    return {
        "paper": found.paper, "items": list(found.items), "about": found.about, "theirs": found.theirs,
        "study": found.study or None, "ours": value or None, "words": one.words, "verdict": one.verdict or None,
    }  # fmt: skip


def _page(folder: Path, answers: list[Answer], runs: Mapping[str, Run]) -> str:
    surroundings = templates()
    surroundings.filters["bound"] = bound
    measured = [one for one in answers if one.shown is not None]
    return surroundings.get_template("published.html").render(
        name=folder.resolve().name,
        facts=f"{len(runs)} studies; {len(measured)} of {len(answers)} experiments have a figure of ours",
        note=NOTE,
        papers=[
            (paper.title, [(one, ours(one)) for one in answers if one.experiment.paper == name])
            for name, paper in papers().items()
        ],
        verdicts={name: str(run.verdict["verdict"]) for name, run in runs.items()},
        style=Markup(style()),
        policy=policy([]),
        version=__version__,
    )
