"""Every table and figure of the papers, the study that reproduces it, and the result of a run of that study.

The list is `published/experiments.toml`. It selects rows of results and divides one by another; it estimates nothing.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, field, fields
from importlib import resources
from typing import TYPE_CHECKING, Any

from sojourn.report.numbers import duration
from sojourn.report.shapes import ratio
from sojourn.report.tables import shown_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sojourn.report.numbers import Shown
    from sojourn.report.run import Run


LEFT_OUT = "this run leaves it out"


@dataclass(frozen=True)
class Paper:
    """A paper: its title, and the numbers of its tables and figures."""

    title: str
    tables: tuple[str, ...]
    figures: tuple[str, ...]

    @property
    def items(self) -> list[str]:
        """Every table and figure, in the form in which experiments name them."""
        return [f"table {one}" for one in self.tables] + [f"figure {one}" for one in self.figures]


@dataclass(frozen=True)
class Experiment:
    """One published experiment: its place in the paper, its result, and the row of our study that stands beside it."""

    paper: str
    items: tuple[str, ...]
    about: str
    theirs: str
    study: str = ""
    ours: dict[str, Any] = field(default_factory=dict)
    over: dict[str, Any] = field(default_factory=dict)
    hypothesis: str = ""
    findings: list[str] = field(default_factory=list)
    table: str = ""
    rows: dict[str, list[str]] = field(default_factory=dict)
    why: str = ""
    quick: str = ""
    """Why the quick run of the study omits it; empty if it does not."""

    def has(self, row: Mapping[str, str]) -> bool:
        """Return whether a row of its published table belongs to it."""
        return all(row[key] in wanted for key, wanted in self.rows.items())


@dataclass(frozen=True)
class Left:
    """Published rows without an experiment: the study whose report shows them beside ours, or why none does."""

    table: str
    rows: dict[str, list[str]]
    study: str = ""
    why: str = ""

    def has(self, row: Mapping[str, str]) -> bool:
        """Return whether a row of the published table is one of them."""
        return all(row[key] in wanted for key, wanted in self.rows.items())


@dataclass(frozen=True)
class Answer:
    """Our result for an experiment: a value with its interval, words, or the reason why there is neither."""

    experiment: Experiment
    shown: Shown | None = None
    words: str = ""
    verdict: str = ""


def papers() -> dict[str, Paper]:
    """The papers by their short names."""
    found = _catalogue()["papers"]
    return {name: Paper(one["title"], tuple(one["tables"]), tuple(one["figures"])) for name, one in found.items()}


def experiments() -> list[Experiment]:
    """Return every experiment in the order of the papers; ValueError for an entry with an unknown or a missing key."""
    known = {one.name for one in fields(Experiment)}
    found = []
    for entry in _catalogue()["experiment"]:
        if unknown := entry.keys() - known:
            raise ValueError(f"{entry['about']}: an experiment has no {', '.join(sorted(unknown))}")
        if sum(bool(entry.get(key)) for key in ("study", "why")) != 1:
            raise ValueError(f"{entry['about']}: an experiment has a study, or says why not")
        found.append(Experiment(**{**entry, "items": tuple(entry["items"])}))
    return found


def left() -> list[Left]:
    """Return the rows without an experiment, in the order of the list."""
    return [Left(**entry) for entry in _catalogue()["left"]]


def studies() -> list[str]:
    """Return the studies that the experiments name, each once, in their order."""
    return list(dict.fromkeys(one.study for one in experiments() if one.study))


def answer(experiment: Experiment, run: Run | None, why_none: str = "") -> Answer:
    """Return the result of the study's run for the experiment; `why_none`: the reason why there is no run."""
    if experiment.why:
        return Answer(experiment, words=f"none: {experiment.why}")
    if run is None:
        return Answer(experiment, words=f"not measured: {why_none}")
    shown, paced = _figure(experiment, run)
    words = [*([paced] if paced else []), *_outcomes(experiment, run), *_findings(experiment, run)]
    if experiment.ours and shown is None:
        words.insert(0, LEFT_OUT)
    if experiment.quick and (words[:1] == [LEFT_OUT] or _not_tested(experiment) in words):
        words.append(experiment.quick)
    return Answer(experiment, shown, "; ".join(words), str(run.verdict["verdict"]))


def select(run: Run, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the run's results with these values; without a `reference` in `wanted`, those without one.

    With `near_interval_ns`, return those whose interval between packets is the nearest to it, by ratio.
    """
    criteria = {"reference": None, **wanted}
    near = criteria.pop("near_interval_ns", None)
    found = [
        row
        for row in run.entries
        if row["estimate"] is not None and all(row.get(name) == value for name, value in criteria.items())
    ]
    paces = {row["interval_ns"] for row in found if row.get("interval_ns")} if near else set()
    if not paces:
        return found
    nearest = min(paces, key=lambda one: abs(math.log(one / near)))
    return [row for row in found if row["interval_ns"] == nearest]


def _figure(experiment: Experiment, run: Run) -> tuple[Shown | None, str]:
    """Return the figure from the first matching row; and the interval between packets, if the paper used another."""
    rows = select(run, experiment.ours) if experiment.ours else []
    if not rows:
        return None, ""
    near, ours = experiment.ours.get("near_interval_ns"), rows[0].get("interval_ns")
    words = f"ours a packet each {duration(ours)}, theirs {duration(near)}" if near and ours and ours != near else ""
    if not experiment.over:
        return shown_of(rows[0]), words
    under = select(run, experiment.over)
    return (ratio(rows[0], under[0]) if under else None), words


def _outcomes(experiment: Experiment, run: Run) -> list[str]:
    if not experiment.hypothesis:
        return []
    tested = [one for one in run.verdict.get("hypotheses") or [] if one["hypothesis"] == experiment.hypothesis]
    outcomes = [str(one["outcome"]) for one in tested]
    counted = [f"{outcomes.count(one)} {one}" if len(outcomes) > 1 else one for one in dict.fromkeys(outcomes)]
    return [f"{experiment.hypothesis}: {', '.join(counted) or 'not tested'}"]


def _not_tested(experiment: Experiment) -> str:
    return f"{experiment.hypothesis}: not tested"


def _findings(experiment: Experiment, run: Run) -> list[str]:
    there = {one["name"] for one in run.findings()}
    return [f"{name.replace('_', ' ')}: {'found' if name in there else 'not found'}" for name in experiment.findings]


def _catalogue() -> dict[str, Any]:
    source = resources.files("sojourn.report").joinpath("published", "experiments.toml")
    return tomllib.loads(source.read_text(encoding="utf-8"))
