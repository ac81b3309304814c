"""Keeps count of how long each reader of untrusted bytes has been searched: docs/reference/fuzzing.json and its page.

    python -m scripts.fuzz_ledger take [FILE]    add what searches noted in build/fuzz/spent.tsv, and empty that file
    python -m scripts.fuzz_ledger --check        change nothing; status 1 where the page is not what the counts say

`make fuzz` searches for minutes; over many sessions and machines the minutes add up. Processor time is counted, since a
search that runs beside other work gets less of it than the clock says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SPENT = ROOT / "build/fuzz/spent.tsv"
EVERY = ROOT / "build/fuzz/every.txt"
"""The names of all targets, written by scripts/fuzz.sh."""

FACTS = ROOT / "docs/reference/fuzzing.json"
PAGE = ROOT / "docs/reference/fuzzing.md"
GOAL_MINUTES = 30

BEGINNING = """# Fuzzing

<!-- Written from docs/reference/fuzzing.json by `python -m scripts.fuzz_ledger take`, after `make fuzz`. -->

How long each reader of untrusted bytes has been searched by coverage (libFuzzer; Atheris for `python/…`), over all
searches since 2026-11-28, in minutes of processor time; earlier searches were not counted so. Bytes that ended a reader
became a test and a seed, and the reader was corrected; the inputs of a search that ended so are not counted. The aim is
{goal} minutes each.

{reached} of {readers} readers have been searched for {goal} minutes or more; {total} minutes in all.

| reader | processor time | inputs tried | searches | that found something | last at |
|---|---|---|---|---|---|
"""

NEVER: dict[str, Any] = {"seconds": 0.0, "inputs": 0, "searches": 0, "found": 0}
"""The counts of a reader that nothing has searched."""

Counts = dict[str, dict[str, Any]]


def main() -> int:
    """Add the noted searches, or check the page."""
    asked = sys.argv[1:]
    facts: Counts = json.loads(FACTS.read_text()) if FACTS.is_file() else {}
    if asked == ["--check"]:
        if PAGE.is_file() and PAGE.read_text() == page(facts):
            return 0
        print("stale, run `.venv/bin/python -m scripts.fuzz_ledger take`: docs/reference/fuzzing.md")
        return 1
    if asked[:1] != ["take"] or len(asked) > 2:
        print("fuzz_ledger: expected `take [FILE]` or `--check`", file=sys.stderr)
        return 2
    for target in EVERY.read_text().split() if EVERY.is_file() else []:
        facts.setdefault(target, dict(NEVER))
    noted, taken = Path(asked[1]) if len(asked) > 1 else SPENT, None
    if noted.is_file():
        taken = noted.rename(noted.with_suffix(".taken"))  # searches noted meanwhile are added the next time
        for line in taken.read_text().splitlines():
            add(facts, line)
    FACTS.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(facts))
    if taken is not None:
        taken.unlink()
    return 0


def add(facts: Counts, line: str) -> None:
    """Add one search, as noted by scripts/fuzz.sh."""
    date, commit, target, outcome, spent, inputs = line.split("\t")
    told = facts.setdefault(target, dict(NEVER))
    told["seconds"] = round(told["seconds"] + sum(map(float, spent.split())), 1)
    told["inputs"] += int(inputs or 0)
    told["searches"] += 1
    told["found"] += outcome == "found"
    told["last"] = f"{date}, {commit}"


def page(facts: Counts) -> str:
    """Return the page, with the least searched reader first."""
    rows = sorted(facts.items(), key=lambda one: (one[1]["seconds"], one[0]))
    lines = [f"| `{name}` | {' | '.join(cells(told))} |\n" for name, told in rows]
    seconds = [told["seconds"] for told in facts.values()]
    said = BEGINNING.format(
        goal=GOAL_MINUTES,
        reached=sum(one >= 60 * GOAL_MINUTES for one in seconds),
        readers=len(facts),
        total=f"{sum(seconds) / 60:,.0f}",
    )
    return said + "".join(lines)


def cells(told: dict[str, Any]) -> list[str]:
    """Return a reader's counts."""
    counts = [f"{told[key]:,}" for key in ("inputs", "searches", "found")]
    return [f"{told['seconds'] / 60:.1f} min", *counts, told.get("last", "never")]


if __name__ == "__main__":
    sys.exit(main())
