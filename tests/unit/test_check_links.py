"""A link to a file or heading that is not there is named with its line; whole ones, code and other hosts' are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts.check_links import ROOT, broken, pages

if TYPE_CHECKING:
    from pathlib import Path

OTHER = '# Two, of `it`\n\n## Again\n\n## Again\n\n<a id="named"></a>\n\n```\n# no heading\n```\n'


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(OTHER)
    return tmp_path / "docs/one.md"


@pytest.mark.parametrize(
    "text",
    [
        "[a](../README.md#two-of-it), [b](../README.md#again-1), [c](../README.md#named), [d](#one), [e](https://x.y/z)",
        "`[a](nowhere.md)`\n\n```\n[b](nowhere.md)\n```\n",
        '![p](../README.md "a title") <a href="../README.md">x</a>',
    ],
)
def test_valid_links_are_accepted(page: Path, text: str) -> None:
    page.write_text(f"# One\n\n{text}\n")
    assert [*broken(page, page.parents[1])] == []


@pytest.mark.parametrize(
    "link", ["two.md", "#nowhere", "../README.md#nowhere", "../README.md#no-heading", "../README.md#again-2"]
)
@pytest.mark.parametrize("form", ["see [it]({})", "[it]: {}", '<img src="{}">'])
def test_broken_link_is_reported_with_its_line(page: Path, link: str, form: str) -> None:
    page.write_text(f"# One\n\n```\ncode\n```\n\n{form.format(link)}\n")
    (complaint,) = broken(page, page.parents[1])
    assert complaint.startswith(f"docs/one.md:7: {link}: no ")


def test_every_link_in_the_repository_is_valid() -> None:
    assert [complaint for path in pages(ROOT) for complaint in broken(path, ROOT)] == []
