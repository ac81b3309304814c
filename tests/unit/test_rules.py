"""The project's own rules see what they forbid: a rule that reads sources is shown sources that break it."""

from __future__ import annotations

import ast

import pytest

from scripts import check_rules


@pytest.mark.parametrize(
    "source",
    [
        'if run.by_stream or run.method == "tcp-cost": pass',
        "visits = 1 if run.method in VISITED_ONCE else 2",
        'if run.plan["study"]["method"] == "pairs": pass',
        'if study.get("method") != WANTED: pass',
        "found = CHECKS.get(run.method, ())",
        "found = CHECKS[run.method]",
        "match plan.study.method:\n    case _: pass",
        'ONCE = ("tcp-cost",)',
        'asked = study.get("method", "pairs")',
        'plan = {"study": {"method": "emulator"}}',
    ],
)
def test_a_method_that_is_named_outside_its_folder_is_found(source: str) -> None:
    assert list(check_rules.named_methods(ast.parse(source), {"tcp-cost"}))


@pytest.mark.parametrize(
    "source",
    [
        'parts = load(run.method, "show").PARTS',
        'sentence = f"for study.method = {plan.study.method}"',
        "text(row['method'])",
        'column = ("method", "pairs")',
    ],
)
def test_a_method_may_be_passed_on_and_told(source: str) -> None:
    assert not list(check_rules.named_methods(ast.parse(source), {"tcp-cost"}))


def test_names_that_mean_nothing_else_are_the_rule() -> None:
    """A list of exceptions holds no name that no method has."""
    names = {one.parent.name.replace("_", "-") for one in check_rules.ROOT.glob("python/sojourn/methods/*/__init__.py")}
    assert names > check_rules.WORDS_TOO


@pytest.mark.parametrize(
    "line",
    [
        'single, star, count = device.partition("*")',
        "kind = name.split('*')[0]",
        'if one.startswith("bridge:"): pass',
        'label = name.removeprefix("emulate:")',
    ],
)
def test_a_device_name_that_is_taken_apart_is_found(line: str) -> None:
    assert check_rules.DEVICE_NAME.search(line)
