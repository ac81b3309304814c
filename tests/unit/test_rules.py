"""The project's own rules see what they forbid: a rule that reads sources is shown sources that break it."""

from __future__ import annotations

import ast
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from scripts import check_cycles, check_rules, check_words

if TYPE_CHECKING:
    from pathlib import Path


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
def test_method_may_be_passed_on_and_printed(source: str) -> None:
    assert not list(check_rules.named_methods(ast.parse(source), {"tcp-cost"}))


def test_exception_list_contains_only_method_names() -> None:
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
def test_device_name_parsed_outside_its_module_is_detected(line: str) -> None:
    assert check_rules.DEVICE_NAME.search(line)


SKIP = """
if !is_root() {{
    {}
    eprintln!("skipped: needs root");
    return;
}}
"""


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ('assert!(std::env::var_os("CI").is_none(), "CI must be root");', []),
        ("", [4]),
        ('assert!(std::env::var_os("HOME").is_none(), "CI must be root");', [4]),
    ],
)
def test_a_skip_that_passes_in_continuous_integration_is_found(before: str, found: list[int]) -> None:
    assert list(check_rules.silent_skips(SKIP.format(before))) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("with subprocess.Popen(argv) as one:\n    pass", [1]),
        ("x = 1\nwith (\n    other(),\n    Popen(argv) as one,\n):\n    pass", [2]),
        ("with Child(argv) as one:\n    pass", []),
        ("process = subprocess.Popen(argv)", []),
    ],
)
def test_process_that_would_block_a_failing_test_is_detected(source: str, found: list[int]) -> None:
    assert list(check_rules.awaited(source)) == found


@pytest.mark.parametrize("instead", ["", "overflow-checks = false"])
def test_a_release_without_overflow_checks_is_detected(
    instead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(check_rules.overflow()) == []
    profile = (check_rules.ROOT / "Cargo.toml").read_text()
    (tmp_path / "Cargo.toml").write_text(profile.replace("overflow-checks = true", instead))
    monkeypatch.setattr(check_rules, "ROOT", tmp_path)
    assert list(check_rules.overflow()) == ["Cargo.toml: [profile.release] lacks overflow-checks = true"]


def test_method_file_without_an_assigned_layer_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(check_rules.ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(check_rules.ROOT / "python", tmp_path / "python", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(check_rules, "ROOT", tmp_path)
    assert list(check_rules.import_contracts()) == []
    (tmp_path / "python/sojourn/methods/pairs/judging.py").touch()
    (complaint,) = check_rules.import_contracts()
    assert "sojourn.methods.pairs.judging is not on one side" in complaint


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("README.md", "What {} is"),
        ("docs/guide/planted.md", "Several {}s, at the end of a line"),
        ("python/sojourn/planted.py", 'TOLD = "the {} was seen"'),
        ("crates/planted/src/lib.rs", 'const TOLD: &str = "the {} was seen";'),
    ],
)
def test_a_retired_word_is_refused_wherever_users_read(
    page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = check_words.retired(check_words.VOCABULARY.read_text())
    word = next(iter(words))
    monkeypatch.setattr(check_words, "ROOT", tmp_path)
    file = tmp_path / page
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.format("thing"))
    assert check_words.main() == 0
    file.write_text(text.format(word))
    assert check_words.main() == 1
    assert capsys.readouterr().out.startswith(f"'{word}' is retired; write: {words[word]}\n  {page}:1: ")


@pytest.mark.parametrize("text", [
    "cells are told apart", "it is not\ntold from noise", "a block is told again", "it tells copy and loss apart",
    "COMMAND cannot be told to end", "it cannot tell a loss from a late reply", "stamps that could not\nbe had",
    "a log held against a capture", "the last words on a flow", "they come on top", "an estimate held to the truth",
])  # fmt: skip
def test_a_phrase_that_readers_misread_is_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(check_words.phrases(text))
    monkeypatch.setattr(check_words, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text(f"Of a run.\n\n{text}\n")
    assert check_words.main() == 1
    assert re.search(r"README\.md:[34]: ", capsys.readouterr().out)


@pytest.mark.parametrize(
    "text",
    ["the report tells what it found", "he told us", "a long-told tale", "apart from that", "a link held to a rate"],
)
def test_other_uses_of_tell_are_not_refused(text: str) -> None:
    assert not list(check_words.phrases(text))


def test_a_cycle_by_string_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file imports the other, which names the first in a string only."""
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "one.py").write_text("import planted.two")
    (package / "two.py").write_text('LATER = "planted.one:thing"')
    monkeypatch.setattr(check_cycles, "ROOT", tmp_path)
    modules = {"planted", "planted.one", "planted.two"}
    imported = {"planted": set[str](), "planted.one": {"planted.two"}, "planted.two": set[str]()}
    assert check_cycles.cycle(imported) == []
    edges = {one: imported[one] | check_cycles.by_string(one, modules) for one in modules}
    found = check_cycles.cycle(edges)
    assert (set(found), found[0]) == ({"planted.one", "planted.two"}, found[-1])
