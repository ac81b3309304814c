"""Which built-in studies lay the wire and an A/A control: decision 60 has a table, with why others do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sojourn import studies
from sojourn.plan import load_plan

PAGE = Path(__file__).parents[2] / "docs" / "decisions" / "0060-wire-and-control.md"
ROWS = [[part.strip() for part in line.split("|")[1:-1]] for line in PAGE.read_text().splitlines() if "| `" in line]
TABLE = {row[0].strip("`"): row[1:] for row in ROWS}
HAS_CONTROL = {"yes": (True, True), "no": (False, False), "not with `--quick`": (True, False)}


def test_the_table_has_every_study() -> None:
    assert sorted(TABLE) == sorted(studies.names())


@pytest.mark.parametrize("name", studies.names())
def test_study_creates_the_wire_listed_in_the_table(name: str) -> None:
    wire, control, why = TABLE[name]
    for quick, has_control in zip((False, True), HAS_CONTROL[control], strict=True):
        plan = load_plan(name, quick=quick)
        measured = {one.device for one in plan.expand()}
        assert ("wire" in measured) == (wire == "yes")
        own = any(getattr(plan.sections.get(part), "a_a", False) for part in ("pairs", "trials", "costs"))
        assert own == has_control
    assert why or wire == control == "yes", "a study without one of them says why"


def test_reasons_that_refer_to_another_study_name_an_existing_one() -> None:
    reasons = [row[2] for row in TABLE.values()]
    assert reasons[0] != "as before"
    assert all(re.match(r"as `(.+?)`", one) is None or re.match(r"as `(.+?)`", one)[1] in TABLE for one in reasons)  # type: ignore[index]
