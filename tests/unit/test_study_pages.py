"""Every study has a page: what it asks, how its report is read, when not to trust it, what is published."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import pytest

from scripts import study_pages
from sojourn import studies
from sojourn.methods import package_page
from sojourn.plan import load_plan
from sojourn.records import FINDINGS
from sojourn.report import experiments

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = tomllib.loads(study_pages.TEXTS.read_text())


@pytest.mark.parametrize("name", studies.names())
def test_study_page_agrees_with_plan_and_method(name: str) -> None:
    path = study_pages.PAGES / f"{name}.md"
    assert path.exists(), f"no page of {name}: `make docs`"
    text = path.read_text()
    plan = tomllib.loads(studies.text(name))
    assert text == study_pages.page(name, plan, TEXTS), "stale: `make docs`"
    for heading in ("What is measured", "How to read the report", "When not to trust it"):
        [below] = re.findall(rf"^## {heading}\n\n(.+?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        assert len(below) > 200, heading
    assert plan["study"]["question"] in text
    for one in experiments.experiments():
        assert one.study != name or one.theirs in text
    load_plan(name, quick=True)  # what the page's command asks for


def test_of_several_archived_runs_a_trusted_one_that_measured_it_stands_beside_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = "\n## Made up\n\nThe study [x](studies/x.md): verdict *{}*.\n\n| the paper's | its result | this run |\n"
    runs = [
        ("trusted", ["1", experiments.LEFT_OUT]),
        ("doubtful", ["2", "3"]),
        ("doubtful", [experiments.LEFT_OUT] * 2),
    ]
    rows = [
        part.format(word) + "".join(f"| {at} | 5 | {one} |\n" for at, one in enumerate(ours)) for word, ours in runs
    ]
    (tmp_path / "gallery.md").write_text("# Gallery\n" + "".join(rows))
    monkeypatch.setattr(study_pages, "GALLERY", tmp_path / "gallery.md")
    found = study_pages.measured("x")
    assert (found["0", "5"], found["1", "5"]) == ("1", "3")


def test_the_list_has_every_study_and_no_page_is_left_over() -> None:
    listed = re.findall(r"^\| \[([\w-]+)\]", (study_pages.PAGES / "README.md").read_text(), re.MULTILINE)
    pages = {path.stem for path in study_pages.PAGES.glob("*.md")} - {"README"}
    assert listed == studies.names()
    assert pages == set(listed)


def test_texts_refer_to_existing_studies_methods_and_hypotheses() -> None:
    plans = [tomllib.loads(studies.text(name)) for name in studies.names()]
    asked = {one for plan in plans for one in plan["study"].get("hypotheses", [])}
    for method in {plan["study"].get("method", "pairs") for plan in plans}:
        assert set(tomllib.loads(package_page(method))) == {"read", "doubt"}, method
    assert set(TEXTS["hypotheses"]) == asked
    assert set(TEXTS["studies"]) <= set(studies.names())
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", study_pages.TEXTS.read_text()))
    assert named <= set(FINDINGS)
