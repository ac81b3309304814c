"""The page of attacks, faults and bounds names tests that there are."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/attacks.md").read_text()
TEST = {".rs": r"#\[(?:test|ignore[^\]]*)\](?:\s*#\[[^\]]*\])*\s*fn (\w+)", ".py": r"^def (test_\w+)"}


@cache
def written_in(path: str) -> frozenset[str]:
    """The tests of a file."""
    file = ROOT / path
    assert file.is_file(), path
    return frozenset(re.findall(TEST[file.suffix], file.read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w/.]+::\w+)`", PAGE))))
def test_tests_named_on_the_page_exist(name: str) -> None:
    path, _, test = name.partition("::")
    assert test in written_in(path)


def test_every_row_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| what is ")]
    assert len(rows) > 70
    assert [row for row in rows if "::" not in row.rpartition(" | ")[2]] == []


def test_missing_test_is_detected() -> None:
    assert "test_every_row_names_a_test" in written_in("tests/unit/test_attacks.py")
    assert "test_nothing" not in written_in("tests/unit/test_attacks.py")
    with pytest.raises(AssertionError):
        written_in("tests/unit/none.py")
