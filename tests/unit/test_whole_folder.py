"""A folder that is replaced whole: what was there, or what is there now, and nothing of the user's is touched."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from sojourn.records import whole_folder as module
from sojourn.records.on_disk import OnDisk
from sojourn.records.whole_file import umask
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
def test_new_folder_replaces_the_old_one_completely(
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
    assert place.stat().st_mode & 0o777 == 0o777 & ~umask()


def test_old_folder_is_kept_after_an_error(tmp_path: Path) -> None:
    place = made(tmp_path / "report", "old")

    def fails() -> None:
        with whole_folder(place) as draft:
            (draft / "one").write_text("new")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails()
    assert (place / "one").read_text() == "old"
    assert names(tmp_path) == {"report"}


def test_unreplaceable_target_keeps_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount point, for instance: that has nothing to do with what the file system can."""

    def busy(*_: object) -> bool:
        raise OSError(errno.EBUSY, "Device or resource busy")

    place = made(tmp_path / "report", "old")
    monkeypatch.setattr(module, "_exchange", busy)
    with pytest.raises(OSError, match="busy"):
        replaced(place, "new")
    assert (place / "one").read_text() == "old"


def test_without_rename_exchange_the_old_folder_is_restored_on_failure(
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


def test_only_drafts_of_dead_processes_are_removed(tmp_path: Path) -> None:
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


def test_failed_sync_is_not_taken_for_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "records").write_text("x")
    disk = OnDisk()
    disk.add(tmp_path)

    def fails(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        disk.sync()
