"""A folder that is replaced whole: what was there, or what is there now, and nothing of the user's is touched."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from sojourn.records import whole_folder as module
from sojourn.records.on_disk import OnDisk
from sojourn.records.whole_folder import remove_drafts, whole_folder


def made(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "one").write_text(text)
    return path


def replaced(path: Path, text: str) -> None:
    with whole_folder(path) as draft:
        (draft / "one").write_text(text)


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize("before", ["nothing", "folder", "file", "link"])
def test_it_takes_the_place_of_all_that_was_there(
    tmp_path: Path, before: str, can_exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_exchange:
        monkeypatch.setattr(module, "_exchange", lambda *_: False)
    place, other = tmp_path / "in/report", made(tmp_path / "other", "somebody's")
    place.parent.mkdir()
    if before == "folder":
        made(place, "old")
        (place / "left").write_text("old")
    elif before == "file":
        place.write_text("old")
    elif before == "link":
        place.symlink_to(other)
    replaced(place, "new")
    assert (place / "one").read_text() == "new"
    assert names(place) == {"one"}
    assert names(place.parent) == {"report"}
    assert (other / "one").read_text() == "somebody's"
    assert place.stat().st_mode & 0o777 == 0o777 & ~module._umask()


def test_after_an_error_what_was_there_stays(tmp_path: Path) -> None:
    place = made(tmp_path / "report", "old")

    def fails() -> None:
        with whole_folder(place) as draft:
            (draft / "one").write_text("new")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails()
    assert (place / "one").read_text() == "old"
    assert names(tmp_path) == {"report"}


def test_a_place_that_cannot_be_taken_keeps_what_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount point, for instance: that has nothing to do with what the file system can."""

    def busy(*_: object) -> bool:
        raise OSError(errno.EBUSY, "Device or resource busy")

    place = made(tmp_path / "report", "old")
    monkeypatch.setattr(module, "_exchange", busy)
    with pytest.raises(OSError, match="busy"):
        replaced(place, "new")
    assert (place / "one").read_text() == "old"


def test_where_names_cannot_be_exchanged_the_old_folder_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, rename = made(tmp_path / "report", "old"), Path.rename

    def fails_for_drafts(self: Path, target: Path) -> Any:
        if module.DRAFT in self.name:
            raise OSError(errno.EIO, "no")
        return rename(self, target)

    monkeypatch.setattr(module, "_exchange", lambda *_: False)
    monkeypatch.setattr(Path, "rename", fails_for_drafts)
    with pytest.raises(OSError, match="no"):
        replaced(place, "new")
    assert (place / "one").read_text() == "old"
    assert names(tmp_path) == {"report"}


def test_drafts_of_the_dead_are_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (".report.old", ".report.draft-mine", ".report.bak12345", "report.draft-abcdefgh"):
        made(tmp_path / name, "the user's")
    made(tmp_path / ".report.draft-abcdefgh", "of a killed writer")
    with whole_folder(tmp_path / "report") as alive:
        assert ".report.draft-abcdefgh" not in names(tmp_path)
        remove_drafts(tmp_path / "report")
        assert alive.is_dir(), "its writer lives"
    assert names(tmp_path) == {
        "report", ".report.old", ".report.draft-mine", ".report.bak12345", "report.draft-abcdefgh",
    }  # fmt: skip


def test_a_disk_that_could_not_is_not_taken_for_one_that_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "records").write_text("x")
    disk = OnDisk()
    disk.add(tmp_path)

    def fails(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        disk.sync()
