"""Writes the page of what `make bench` measured, docs/reference/bench.md, from build/bench.json.

`make bench` runs for half an hour, its parts for minutes. So the page keeps, in docs/reference/bench.json, the last
figures of each task, with the date, the commit and the machine of their run: a run of one part replaces that part's
tasks and no others. `--anew` forgets all earlier runs. `--check` changes nothing, and is status 1 where the page is not
what bench.json says; `--lay-out` writes it from that file. Measures nothing: bench/ does.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.compare import Row
from bench.goals import beside_goals
from bench.table import BEFORE, HEAD, HEAD_OF_GOALS, KEY, cells, grouped, quantity

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[1]
MEASURED = Path("build/bench.json")
FACTS = Path("docs/reference/bench.json")
PAGE = Path("docs/reference/bench.md")
NOTHING_YET: dict[str, Any] = {"runs": [], "rows": [], "contests": []}

OPENING = """\
# Bench

<!-- Written by scripts/write_bench.py from docs/reference/bench.json; `make bench` measures. -->

What `make bench` measured: Sojourn and its peers side by side, in one run, and interleaved where a row compares two. No
figure here is typed. The machines are shared, so what counts is a ratio within a run, with its interval; do not compare
two runs with each other.
"""


def main() -> int:
    """Merge the new measurements into the facts and write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--check", action="store_true", help="change nothing; exit 1 if the page is stale")
    which.add_argument("--lay-out", action="store_true", help="write the page from docs/reference/bench.json")
    which.add_argument("--anew", action="store_true", help="forget all earlier runs")
    parser.add_argument("--measured", type=Path, default=ROOT / MEASURED, help="what `make bench` left")
    asked = parser.parse_args()
    if not (asked.check or asked.lay_out):
        if not asked.measured.is_file():
            print(f"write_bench: no {asked.measured}: run `make bench` first", file=sys.stderr)
            return 2
        earlier = NOTHING_YET if asked.anew or not (ROOT / FACTS).is_file() else json.loads((ROOT / FACTS).read_text())
        facts = merged(earlier, json.loads(asked.measured.read_text()))
        (ROOT / FACTS).write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    return laid_out(ROOT, check=asked.check)


def laid_out(root: Path, *, check: bool) -> int:
    """Write the page from the facts; with `check`, report whether it is stale."""
    text = page(json.loads((root / FACTS).read_text()))
    if (root / PAGE).is_file() and (root / PAGE).read_text() == text:
        return 0
    if check:
        print(f"stale, run `.venv/bin/python -m scripts.write_bench --lay-out`: {PAGE}")
        return 1
    (root / PAGE).write_text(text)
    print(f"written: {PAGE}")
    return 0


def merged(earlier: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """Replace a task's earlier figures by the new ones, and drop runs of which no figure is left."""
    new = {one["task"] for kind in ("rows", "contests") for one in measured[kind]}
    number = len(earlier["runs"])
    runs = [*earlier["runs"], measured["machine"]]
    kept: dict[str, list[dict[str, Any]]] = {}
    for kind in ("rows", "contests"):
        fresh = [
            {"run": number, **{key: value for key, value in one.items() if key != "samples"}} for one in measured[kind]
        ]
        kept[kind] = [one for one in earlier[kind] if one["task"] not in new] + fresh
    used = sorted({one["run"] for ones in kept.values() for one in ones})
    return {
        "runs": [runs[place] for place in used],
        **{kind: [{**one, "run": used.index(one["run"])} for one in ones] for kind, ones in kept.items()},
    }


# --- the page --------------------------------------------------------------------------------------------------------


def page(facts: dict[str, Any]) -> str:
    """Return the whole page."""
    rows = [row_of(one) for one in facts["rows"]]
    runs = {row.task: one["run"] for row, one in zip(rows, facts["rows"], strict=True)}
    held = [row for row in rows if row.target is not None]
    count = {answer: sum(row.answer == answer for row in held) for answer in ("met", "met?", "not met?", "not met")}
    open_ended = count["met?"] + count["not met?"]
    counted = (
        f"{len(held)} figures have a target: {count['met']} meet it, {count['not met']} do not; of {open_ended} the "
        "interval holds the limit, or there is none "
        f"({count['met?']} on the good side, {count['not met?']} on the other)."
    )
    lines = [
        OPENING,
        counted,
        "",
        "## Runs",
        "",
        *table(
            ("run", "date", "commit", "machine", "repetitions", "load at the end"),
            (run_cells(*one) for one in enumerate(facts["runs"], 1)),
        ),
        "## Beside the goals",
        "",
        f"What the tool itself costs. The figures of {BEFORE} came with the goals, from another machine of two cores.",
        "",
        *table(("run", *HEAD_OF_GOALS), ((str(runs[row.task] + 1), *line) for row, line in beside_goals(rows))),
        "## Targets not met",
        "",
        *table(
            ("task", *HEAD[:-1]),
            ((row.task, *cells(row)[:-1]) for row in rows if row.answer.startswith("not met")),
        ),
        "## All figures",
        "",
        "? behind an answer: the interval holds the limit too, or there is none.",
        "",
    ]
    for contest in facts["contests"]:
        lines += [
            f"### {contest['task']}",
            "",
            f"Medians of {contest['repetitions']} repetitions, run {contest['run'] + 1}.",
            "",
        ]
        units = [column["unit"] for column in contest["columns"]]
        heads = ("", *(column["name"] for column in contest["columns"]))
        lines += table(heads, ((name, *map(median, values, units)) for name, values in contest["medians"]))
    for (task, peer), group in grouped(rows):
        lines += [f"### {task}: beside {peer}", "", f"Run {runs[task] + 1}.", "", *table(HEAD, map(cells, group))]
    return "\n".join([*lines, KEY]) + "\n"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return a Markdown table with an empty line after it."""
    heads = [*heads]
    return [
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
        *(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in row)} |" for row in rows),
        "",
    ]


def run_cells(number: int, run: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a run's line."""
    machine = f"{run['cpu']}, {run['cores']} cores, Linux {run['kernel']}"
    return (str(number), run["date"], f"`{run['commit']}`", machine, str(run["repetitions"]), f"{run['load_1min']:.1f}")


def row_of(kept: dict[str, Any]) -> Row:
    """Build a row of the bench from JSON."""
    return Row.from_json({key: value for key, value in kept.items() if key != "run"})


def median(value: float | None, unit: str) -> str:
    """Return a contestant's median as text, also if it has none."""
    return "–" if value is None else quantity(value, unit)


if __name__ == "__main__":
    sys.exit(main())
