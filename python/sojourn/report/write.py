"""Write report/: the page, the tables as files, and on request the figures as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.records.whole_file import write_whole
from sojourn.records.whole_folder import refuse_link, whole_folder
from sojourn.report.beside import beside_table
from sojourn.report.contents import all_figures, all_tables
from sojourn.report.page import page
from sojourn.report.published import published_tables
from sojourn.report.run import Run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sojourn.report.beside import ToolResult
    from sojourn.report.figure import Figure
    from sojourn.report.table import Table


def write(folder: Path, *, vector: bool, beside: Sequence[ToolResult] = ()) -> Path:
    """Write the report of a run folder and return the page's path."""
    run = Run.read(folder)
    report = folder / "report"
    refuse_link(report)
    report.mkdir(exist_ok=True)
    tables, published, figures = all_tables(run), published_tables(run), all_figures(run)
    others = [beside_table(run, beside)] if beside else []
    text = page(run, tables, published, figures, vector=vector, others=others)
    with whole_folder(report / "tables") as into:
        _write_tables(into, [*tables, *published.tables, *others])
    with whole_folder(report / "figures") as into:
        if vector:
            _write_figures(into, figures)
    index = report / "index.html"
    write_whole(index, text)
    return index


def _write_tables(into: Path, tables: list[Table]) -> None:
    for table in tables:
        write_whole(into / f"{table.name}.csv", table.csv())
        write_whole(into / f"{table.name}.md", table.markdown())
        write_whole(into / f"{table.name}.tex", table.latex())


def _write_figures(into: Path, figures: list[Figure]) -> None:
    import vl_convert

    from sojourn.report.bundle import svg

    for figure in figures:
        drawn = svg(figure.file())
        write_whole(into / f"{figure.name}.svg", drawn)
        write_whole(into / f"{figure.name}.pdf", vl_convert.svg_to_pdf(drawn))
