"""Which built-in studies lay two links of a kind: decision 81 has a table, with why others do not."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from sojourn import studies
from sojourn.plan import load_plan

PAGE = Path(__file__).parents[2] / "docs" / "decisions" / "0081-two-links-of-a-kind.md"
ROWS = [
    [part.strip() for part in line.split("|")[1:-1]]
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and "`" in line
]
NAMES = {name: row[1:] for row in ROWS for name in re.findall(r"`([a-z0-9*-]+)`", row[0]) if "*" not in name}
PATTERNS = {name: row[1:] for row in ROWS for name in re.findall(r"`([a-z0-9-]+\*)`", row[0])}


def told_of(name: str) -> list[str]:
    """The row of a study: by its name, else by a pattern."""
    return NAMES.get(name) or next(row for pattern, row in PATTERNS.items() if fnmatch(name, pattern))


@pytest.mark.parametrize("name", studies.names())
def test_study_creates_the_links_listed_in_the_table(name: str) -> None:
    direct, device, how = told_of(name)
    for quick in (False, True):
        plan = load_plan(name, quick=quick)
        assert ("direct" in plan.twins) == (direct == "2")
        assert any(one != "direct" for one in plan.twins) == (device == "2")
        taken = {one.path for one in plan.expand()}
        assert {f"{one}/2" for one in plan.twins if one != "direct"} <= taken, "a second link that is laid is measured"
    assert how


def test_table_names_only_existing_studies() -> None:
    assert set(NAMES) <= set(studies.names())
