"""LaTeX takes the tables of every archived run: each table of its report, and one for a paper of each quantity."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from scripts import make_gallery
from sojourn.analysis import analyse
from sojourn.errors import RequestError
from sojourn.report.contents import all_tables
from sojourn.report.paper import Asked, table
from sojourn.report.run import Run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sojourn.report.table import Table

BEGIN = r"""\documentclass{article}
\usepackage[paperwidth=150cm,paperheight=400cm,margin=1cm]{geometry}
\usepackage{booktabs}
\usepackage{siunitx}
\begin{document}
"""
FLOATS = 15
"""So many tables are set before a page ends: LaTeX keeps no more floats than some eighteen."""

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("archive", make_gallery.archives(), ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_latex_compiles_the_tables_of_a_run(archive: Path, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.fail("pdflatex is not installed: `scripts/setup.sh proof` does that")
    with tarfile.open(archive) as whole:
        whole.extractall(tmp_path, filter="data")
    folder = tmp_path / archive.name.removesuffix(".tar.xz")
    analyse(folder)
    tables = list(tables_of(Run.read(folder)))
    assert tables
    body = [one.latex() + (r"\clearpage" if place % FLOATS == FLOATS - 1 else "") for place, one in enumerate(tables)]
    (tmp_path / "all.tex").write_text("\n".join([BEGIN, *body, r"\end{document}"]), encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error", "all.tex"],
        cwd=tmp_path, capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    said = done.stdout.decode(errors="replace")
    assert done.returncode == 0, said[-2_000:]
    assert "Missing character" not in (tmp_path / "all.log").read_text(errors="replace")
    shown = subprocess.run(["pdftotext", "-layout", "all.pdf", "-"], cwd=tmp_path, capture_output=True, check=True)
    lines = ["".join(line.split()) for line in shown.stdout.decode().splitlines()]  # siunitx groups digits by spaces
    for one in tables:
        for row in one.rows:
            numbers = [entry.text for entry in row if re.fullmatch(r"\d+(\.\d+)?", entry.text)]
            in_order = re.compile(".*?".join(map(re.escape, numbers)))
            assert any(map(in_order.search, lines)), (one.name, numbers)


def tables_of(run: Run) -> Iterator[Table]:
    """Of the report, then for a paper of each quantity that its columns alone distinguish."""
    yield from all_tables(run)
    for quantity in dict.fromkeys(row["quantity"] for row in run.entries):
        try:
            yield table(run, Asked(quantity=quantity))
        except RequestError as refused:
            if "which is no column" not in str(refused):
                raise
