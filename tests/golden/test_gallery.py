"""docs/gallery.md says of each archived run what its analysis says today; its pictures are there, and no others."""

from __future__ import annotations

from scripts import make_gallery
from tests.golden.test_golden import RUNS


def test_the_gallery_is_that_of_the_archived_runs() -> None:
    entries = [make_gallery.entry(folder) for folder in make_gallery.archived()]
    assert make_gallery.PAGE.read_text() == make_gallery.page(entries), "stale: make docs"
    assert {one.name for one in entries} == set(RUNS)
    assert {path.stem for path in make_gallery.PICTURES.glob("*.svg")} == set(RUNS)
    assert all("<path" in one.picture for one in entries)
