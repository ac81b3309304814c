"""docs/gallery.md says of each archived run what its analysis says today; its pictures are there, and no others."""

from __future__ import annotations

import re
import tarfile
from typing import TYPE_CHECKING

import pytest

from scripts import make_gallery
from sojourn import studies
from sojourn.records.log import read_log
from tests.golden.test_samples import as_declared

if TYPE_CHECKING:
    from pathlib import Path

OTHERS = sorted(make_gallery.RUNS.glob("*.tar.xz"))


def name_of(path: Path) -> str:
    return path.name.removesuffix(".tar.xz")


def as_written(path: Path) -> None:
    """Its part of the page, its picture, and the columns of its samples are what its analysis gives."""
    with make_gallery.unpacked(path) as folder:
        entry = make_gallery.entry(folder)
        as_declared(folder)
    assert entry.text in make_gallery.PAGE.read_text(), "stale: make docs"
    if entry.picture:
        assert "<path" in entry.picture
        assert (make_gallery.PICTURES / f"{entry.name}.svg").read_text() == entry.picture, "stale: make docs"


@pytest.mark.parametrize("path", sorted(make_gallery.GOLDEN.glob("*.tar.xz")), ids=name_of)
def test_gallery_page_agrees_with_the_golden_runs(path: Path) -> None:
    as_written(path)


@pytest.mark.proof  # half a minute of analysis
@pytest.mark.parametrize("path", OTHERS, ids=name_of)
def test_gallery_page_agrees_with_the_archived_runs(path: Path) -> None:
    as_written(path)


@pytest.mark.parametrize("path", OTHERS, ids=name_of)
def test_the_log_of_each_archived_run_is_read(path: Path, tmp_path: Path) -> None:
    """Each study's own events, as its method writes them: an analysis of all is in the proof alone."""
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.endswith("/log.jsonl"):
                archive.extract(member, tmp_path, filter="data")
                break
    assert any(event["event"] == "finished" for event in read_log(tmp_path / name_of(path) / "log.jsonl"))


def test_the_gallery_has_each_archived_run() -> None:
    page = make_gallery.PAGE.read_text()
    names = [name_of(path) for path in make_gallery.archives()]
    assert [part.partition(" -->")[0] for part in page.split("<!-- report of ")[1:]] == names
    pictures = {f"gallery/{path.name}" for path in make_gallery.PICTURES.glob("*.svg")}
    assert pictures == set(re.findall(r"gallery/\S+?\.svg", page))
    shown = {part.partition("]")[0] for part in page.split("The study [")[1:]}
    assert set(studies.names()) - shown == set(), "sojourn run STUDY --quick, python -m scripts.make_gallery add RUN"
