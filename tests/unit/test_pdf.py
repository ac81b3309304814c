"""Printing a report where no Chromium is, and where it fails: one sentence, status 3. tests/browser prints one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sojourn.errors import MachineError
from sojourn.report import pdf

if TYPE_CHECKING:
    from pathlib import Path


def test_without_a_browser_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="no Chromium here") as said:
        pdf.print_pdf(tmp_path / "index.html")
    assert said.value.status == 3


def test_a_browser_that_fails_is_quoted_and_an_older_print_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chromium").write_text("#!/bin/sh\necho no display >&2\nexit 7\n")
    (tmp_path / "chromium").chmod(0o755)
    (tmp_path / "report.pdf").write_text("of the run before")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(MachineError, match=r"did not print the report \(status 7\): no display"):
        pdf.print_pdf(tmp_path / "index.html")
    assert not (tmp_path / "report.pdf").exists()
