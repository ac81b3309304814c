"""`scripts/make_site.py` replaces a site and nothing else; what it builds is tested in tests/browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts import make_site

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def made(out: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The status, with pages that are built at once."""

    def build(_: Path, into: Path) -> int:
        (into / "docs").mkdir(parents=True)
        (into / ".buildinfo").write_text("new")
        return 0

    monkeypatch.setattr(make_site, "build", build)
    monkeypatch.setattr(make_site, "reports", lambda *_: [])
    monkeypatch.setattr("sys.argv", ["make_site.py", "--out", str(out)])
    return make_site.main()


def test_folder_that_is_not_a_site_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    thesis = tmp_path / "home/thesis.tex"
    thesis.parent.mkdir()
    thesis.write_text("years of work")
    for out in (thesis.parent, thesis):
        assert made(out, monkeypatch) == 2
        assert "is no site of ours" in capsys.readouterr().err
        assert thesis.read_text() == "years of work"
        assert [*tmp_path.rglob("*")] == [thesis.parent, thesis]


def test_site_empty_folder_and_missing_folder_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "site"
    out.mkdir()
    assert made(out, monkeypatch) == 0
    (out / "docs/stale.html").write_text("x")
    assert made(out, monkeypatch) == 0
    assert not (out / "docs/stale.html").exists()
    assert (out / "index.html").exists()
