"""Keeps count of how long each reader of untrusted bytes has been searched: docs/reference/fuzzing.json and its page.

    python -m scripts.fuzz_ledger take [FILE]    add what searches noted in build/fuzz/spent.tsv, and empty that file
    python -m scripts.fuzz_ledger --check        change nothing; status 1 where the page is not what the counts say

`make fuzz` searches for minutes; over many sessions and machines the minutes add up. Processor time is counted, since a
search that runs beside other work gets less of it than the clock says. `make fuzz MINUTES=M` takes the notes itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SPENT = ROOT / "build/fuzz/spent.tsv"
CORPUS = ROOT / "tests/fuzz/corpus"
"""Has a folder of seeds for each target (tests/unit/test_corpus.py)."""

FACTS = ROOT / "docs/reference/fuzzing.json"
PAGE = ROOT / "docs/reference/fuzzing.md"
GOAL_MINUTES = 30

BEGINNING = """# Fuzzing

<!-- Written from docs/reference/fuzzing.json by `python -m scripts.fuzz_ledger take`, after `make fuzz`. -->

How long each reader of untrusted bytes has been searched by coverage (libFuzzer; Atheris for `python/…`), over all
searches since 2026-11-28, in minutes of processor time; earlier searches were not counted so. Bytes that ended a reader
became a test and a seed, and the reader was corrected; the inputs of a search that ended so are not counted. The aim is
{goal} minutes each.

{sentence}

`make fuzz MINUTES=M` searches for M minutes in all: one search for each processor at a time, the least searched
reader first, for at most ten minutes until the next one's turn. It ends earlier once none lacks minutes, writes
this page at its end and when it is interrupted (SIGTERM, Ctrl-C), and the next run continues from here. What is
missing is the sum, over the readers below {goal} minutes, of {goal} minutes less the time of each. Divided by the
number of processors it is the M that is needed on an otherwise idle machine; beside other work a search gets less
processor time, and M is more. The time of `python/…` includes that in which modules are loaded, some seconds of
each turn. `scripts/fuzz.sh keep`, once at the end, takes what was found into the repository, for build/fuzz/corpus
goes with the machine.

A reader that another one's target executes with the same freedom of bytes has no target of its own: the layers of a
frame, its segments and its checksum are one (`frame`), so are the ways to read a capture (`capture`, `python/capture`),
and samples of TCP are the records of a `spool`.

| reader | processor time | inputs tried | searches | that found something | last at |
|---|---|---|---|---|---|
"""

NEVER: dict[str, Any] = {"seconds": 0.0, "inputs": 0, "searches": 0, "found": 0}
"""The counts of a reader that nothing has searched."""

Counts = dict[str, dict[str, Any]]


def main() -> int:
    """Add the noted searches, or check the page."""
    asked = sys.argv[1:]
    if asked == ["--check"]:
        facts = read()
        if list(facts) == targets() and PAGE.is_file() and PAGE.read_text() == page(facts):
            return 0
        print("stale, run `.venv/bin/python -m scripts.fuzz_ledger take`: docs/reference/fuzzing.md")
        return 1
    if asked[:1] != ["take"] or len(asked) > 2:
        print("fuzz_ledger: expected `take [FILE]` or `--check`", file=sys.stderr)
        return 2
    take(Path(asked[1]) if len(asked) > 1 else SPENT)
    return 0


def targets() -> list[str]:
    """Return the names of all targets in order."""
    return sorted(path.parent.relative_to(CORPUS).as_posix() for path in CORPUS.rglob("made-00"))


def read() -> Counts:
    """Return the counts so far."""
    facts: Counts = json.loads(FACTS.read_text()) if FACTS.is_file() else {}
    return facts


def seconds(noted: Path) -> dict[str, float]:
    """Return the processor time of each target, with that of searches that are noted but not yet taken."""
    facts = read()
    for line in noted.read_text().splitlines() if noted.is_file() else []:
        add(facts, line)
    return {target: told["seconds"] for target, told in facts.items()}


def take(noted: Path) -> None:
    """Add the noted searches to the counts and write the page. Those of readers that are no target are not counted."""
    facts = read()
    taken = None
    if noted.is_file():
        taken = noted.rename(noted.with_suffix(".taken"))  # searches noted meanwhile are added the next time
        for line in taken.read_text().splitlines():
            add(facts, line)
    every = targets()
    for gone in sorted(facts.keys() - set(every)):
        print(f"fuzz_ledger: {gone} is no target, so its searches are not counted", file=sys.stderr)
    facts = {target: facts.get(target, dict(NEVER)) for target in every}
    FACTS.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(facts))
    if taken is not None:
        taken.unlink()


def add(facts: Counts, line: str) -> None:
    """Add one search, as noted by scripts/fuzz_search.py."""
    date, commit, target, outcome, spent, inputs = line.split("\t")
    told = facts.setdefault(target, dict(NEVER))
    told["seconds"] = round(told["seconds"] + sum(map(float, spent.split())), 2)
    told["inputs"] += int(inputs or 0)
    told["searches"] += 1
    told["found"] += outcome == "found"
    told["last"] = f"{date}, {commit}"


def page(facts: Counts) -> str:
    """Return the page, with the least searched reader first."""
    rows = sorted(facts.items(), key=lambda one: (one[1]["seconds"], one[0]))
    lines = [f"| `{name}` | {' | '.join(cells(told))} |\n" for name, told in rows]
    return BEGINNING.format(goal=GOAL_MINUTES, sentence=sentence(facts)) + "".join(lines)


def sentence(facts: Counts) -> str:
    """Say how many readers have been searched long enough, and how many minutes are missing."""
    minutes = [told["seconds"] / 60 for told in facts.values()]
    reached = sum(one >= GOAL_MINUTES for one in minutes)
    missing = sum(max(0.0, GOAL_MINUTES - one) for one in minutes)
    return (
        f"{reached} of {len(facts)} readers have been searched for {GOAL_MINUTES} minutes or more; {sum(minutes):,.0f} "
        f"minutes in all, and {missing:,.0f} are missing."
    )


def cells(told: dict[str, Any]) -> list[str]:
    """Return a reader's counts."""
    counts = [f"{told[key]:,}" for key in ("inputs", "searches", "found")]
    return [f"{told['seconds'] / 60:.1f} min", *counts, told.get("last", "never")]


if __name__ == "__main__":
    sys.exit(main())
