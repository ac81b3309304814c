"""Every command of a page in docs/studies is one that the command line takes: read, and its plan expanded, not run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.in_process import sojourn

PAGES = Path(__file__).parents[2] / "docs/studies"
FENCED = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_every_command_of_a_study_page_is_taken(page: Path, tmp_path: Path) -> None:
    commands = [line for block in FENCED.findall(page.read_text()) for line in block.splitlines()]
    assert commands or page.name == "README.md"
    for command in commands:
        program, verb, *words = command.split()
        assert (program, verb) == ("sojourn", "run"), command
        done = sojourn("run", *words, "--dry-run", cwd=tmp_path)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert "of measuring" in done.stdout, done.stdout
