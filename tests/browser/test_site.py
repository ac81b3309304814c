"""The documentation site in a real browser: whole, quiet, searched, both schemes, a narrow window; a broken link fails.

The site is built once from the repository's own pages, as `make docs` builds it, and opened as files.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts import make_gallery
from scripts.make_site import build
from tests.browser.accessible import KEPT, once_a_kind, seen_and_read, violations
from tests.browser.looks import looks

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser.looks import Scheme

ROOT = Path(__file__).parents[2]
PAGES = [
    "docs/index",
    "docs/studies/rated-queue",
    "docs/users/README",
    "docs/guide/first-study",
    "docs/reference/plans",
    "docs/decisions/README",
    "docs/gallery",
    "docs/reference/proof",
    "README",
]
OF_EACH_KIND = ["docs/index", "docs/reference/plans", "docs/gallery", "README"]
"""A contents page, one of prose, tables and blocks, one of pictures, one without navigation of its own."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, "-m", "scripts.make_site", "--report", "rfc2544", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


@looks
def test_site_pages_are_complete_and_have_no_console_errors(
    browser: Browser, site: Path, scheme: Scheme, width: int
) -> None:
    for name in PAGES:
        page, said = _opened(browser, site / f"{name}.html", scheme, width)
        assert page.locator("h1").count() == 1, name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} scrolls sideways"
        assert said == [], name
        page.context.close()


@pytest.mark.parametrize(
    ("scheme", "pages"),
    [
        pytest.param("light", OF_EACH_KIND, id="light-few"),
        pytest.param("dark", PAGES, id="dark", marks=pytest.mark.proof),
    ],
)
def test_site_pages_are_accessible_by_keyboard_and_screen_reader(
    browser: Browser, site: Path, scheme: Scheme, pages: list[str]
) -> None:
    for name in pages:
        page, _ = _opened(browser, site / f"{name}.html", scheme, 1200)
        assert violations(page) == [], name
        page.context.close()


def test_site_search_works_without_a_server(browser: Browser, site: Path) -> None:
    page, said = _opened(browser, site / "docs/index.html", "light", 1200)
    page.get_by_placeholder("Search").first.fill("Hodges")
    page.keyboard.press("Enter")
    found = page.locator("ul.search li a", has_text="Hodges")
    found.first.wait_for()
    found.first.click()
    page.wait_for_url(re.compile(r"pairs-and-intervals|mirrored-rounds"))
    assert said == []


def test_gallery_links_to_complete_reports(browser: Browser, site: Path) -> None:
    page, said = _opened(browser, site / "docs/gallery.html", "light", 1200)
    assert page.locator("h2").count() == len(make_gallery.archives())
    assert page.locator("img").count() == len(list(make_gallery.PICTURES.glob("*.svg")))
    assert all(page.evaluate("[...document.images].map(one => one.complete && one.naturalWidth > 100)"))
    page.get_by_text("The whole report of rfc2544").click()
    page.locator("h1").wait_for()
    assert "RFC 2544" in page.title()
    assert said == []


@pytest.fixture(scope="module")
def whole_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site with the whole report of every archived run."""
    out = tmp_path_factory.mktemp("site") / "whole"
    subprocess.run([sys.executable, "-m", "scripts.make_site", "--out", str(out)], cwd=ROOT, check=True)
    return out


PARTS = 6
"""Side by side, each of them some minutes."""


@pytest.mark.proof
@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_and_every_report_is_accessible_by_keyboard_and_screen_reader(
    browser: Browser, whole_site: Path, part: int
) -> None:
    pages = sorted(path.with_suffix(".html") for path in (ROOT / "docs").rglob("*.md"))
    pages = [whole_site / path.relative_to(ROOT) for path in pages]
    pages += sorted(whole_site.glob("docs/gallery/*/report/index.html"))
    assert len(pages) > 150
    found = {str(path.relative_to(whole_site)): judged(browser, path) for path in pages[part::PARTS]}
    assert not {path: several for path, several in found.items() if several}


def judged(browser: Browser, path: Path) -> list[str]:
    page, _ = _opened(browser, path, "light", 1200)
    found = seen_and_read(page)
    page.context.close()
    return found


def test_contrast_that_is_too_low_in_the_dark_is_found(browser: Browser, tmp_path: Path) -> None:
    style = "body { background: white; color: black; } "
    dark = "@media (prefers-color-scheme: dark) { body { background: black; color: COLOUR; } }"
    head = '<!doctype html><html lang="en"><head><title>A page</title><style>'
    body = "</style></head><body><main><h1>A page</h1><p>It has a sentence.</p></main></body></html>"
    for colour, kinds in (("#ccc", []), ("#333", ["dark: color-contrast"])):
        path = tmp_path / "page.html"
        path.write_text(head + style + dark.replace("COLOUR", colour) + body)
        assert [one.partition(" (")[0] for one in judged(browser, path)] == kinds


def test_a_row_that_differs_is_judged_among_hundreds_that_are_alike(browser: Browser, tmp_path: Path) -> None:
    """Rows alike are reduced to a few; one with a button that has no name, or with grey text, is of another kind."""
    head = '<!doctype html><html lang="en"><head><title>A page</title><style>body { background: #fff; } '
    head += "@media (prefers-color-scheme: dark) { body { background: #fefefe; } }</style></head>"
    alike = "".join(f'<tr id="r{n}"><td>{n}</td><td><a href="#r{n}">row</a></td></tr>' for n in range(500))
    for odd, kinds in (
        ("<td>1</td><td><a href='#r1'>row</a></td>", []),
        ("<td>1</td><td><button></button></td>", ["button-name"]),
        ("<td>1</td><td style='color: #ddd'>grey</td>", ["color-contrast", "dark: color-contrast"]),
    ):
        path = tmp_path / "page.html"
        table = f"<table><tr><th>n</th><th>where</th></tr><tbody>{alike}<tr>{odd}</tr></tbody></table>"
        path.write_text(f"{head}<body><main><h1>A page</h1>{table}</main></body></html>")
        page, _ = _opened(browser, path, "light", 1200)
        once_a_kind(page)
        assert page.locator("tr").count() <= KEPT + 2
        page.context.close()
        assert [one.partition(" (")[0] for one in judged(browser, path)] == kinds


def test_every_page_of_docs_is_reached_from_the_first(site: Path) -> None:
    linked = set(
        re.findall(r'class="toctree-l\d[^"]*"><a class="[^"]*" href="([^"#]+)', _text(site / "docs/index.html"))
    )
    for one in [*linked]:
        folder = (site / "docs" / one).parent
        below = re.findall(r'class="toctree-l\d[^"]*"><a class="[^"]*" href="([^"#]+)', _text(site / "docs" / one))
        linked |= {str((folder / other).resolve()) for other in below if not other.startswith("http")}
    reached = {(site / "docs" / one).resolve() for one in linked}
    pages = {(site / path.relative_to(ROOT)).with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert pages - reached == {site / "docs/index.html"}


@pytest.mark.parametrize(
    ("link", "says"), [("two.md", "two.md"), ("#nowhere", "nowhere"), ("../README.md#nowhere", "nowhere")]
)
def test_broken_link_is_detected(tmp_path: Path, link: str, says: str, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pages/docs").mkdir(parents=True)
    (tmp_path / "pages/README.md").write_text("# Two\n")
    first = f"# One\n\n[two](../README.md#two), [broken]({link})\n\n```{{toctree}}\n../README\n```\n"
    (tmp_path / "pages/docs/index.md").write_text(first)
    assert build(tmp_path / "pages", tmp_path / "out") == 1
    warnings = [line for line in capfd.readouterr().err.splitlines() if "WARNING" in line]
    assert len(warnings) == 1
    assert says in warnings[0]


def _opened(browser: Browser, path: Path, scheme: Scheme, width: int) -> tuple[Page, list[str]]:
    """The page, and what it said or asked for elsewhere."""
    page = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme).new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(("file:", "data:")) else said.append(request.url))
    page.goto(path.as_uri())
    return page, said


def _text(path: Path) -> str:
    return path.read_text()
