"""How Sphinx makes the site of the repository's own pages; `scripts/make_site.py` calls it.

The source folder is the repository, so that a relative link means the same on the site as in a checkout. Nothing on the
site is fetched from elsewhere. Links to folders become their names: the site has no page for them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer
from sphinx.writers.html5 import HTML5Translator

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]

project = "Sojourn"
html_title = "Sojourn"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["docs/**", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
exclude_patterns = [
    "build",
    "target",
    ".*",
    "**/__pycache__",
    "bench",
    "crates",
    "dist",
    "packaging",
    "python",
    "scripts",
    "tests",
]

myst_heading_anchors = 4
highlight_language = "text"

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_show_search_summary = False  # a page that is opened as a file may not fetch the others
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

CONTENTS = {f"docs/{section}/README" for section in ("studies", "users", "guide", "concepts", "reference", "decisions")}
"""Pages that list their folder: the navigation has the folder's other pages below them."""

WHOLE_REPORT = re.compile(r"<!-- report of (\S+) -->")
"""Where docs/gallery.md links to a report, which the site alone has."""

OTHER_PAGE = re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)\)")


def setup(app: Sphinx) -> None:
    """Name what the pages' blocks are written in, and prepare each page."""
    for name in ("csv", "ipfw", "profile", "sudoers", "words"):
        app.add_lexer(name, TextLexer)
    app.set_translator("html", Translator)
    app.connect("source-read", prepare)


class Translator(HTML5Translator):
    """Writes an empty corner of a table as a data cell: a header without text confuses screen readers."""

    def visit_entry(self, node: Element) -> None:
        """Begin a cell."""
        super().visit_entry(node)
        if not node.astext().strip():
            self.body[-1] = self.body[-1].replace("<th", "<td", 1)
            self.context[-1] = self.context[-1].replace("</th", "</td", 1)


def prepare(_app: Sphinx, name: str, source: list[str]) -> None:
    """Give a page that lists its folder the navigation, take links to folders away, and link to reports."""
    folder = (ROOT / name).parent

    def without_folders(link: re.Match[str]) -> str:
        return link[1] if (folder / link[2]).is_dir() else link[0]

    source[0] = OTHER_PAGE.sub(without_folders, source[0])
    source[0] = WHOLE_REPORT.sub(
        r'<p><a href="gallery/\1/report/index.html">The whole report of \1</a></p>\n', source[0]
    )
    if name in CONTENTS:
        below = "*/README" if any(folder.glob("*/README.md")) else ""
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n:glob:\n\n*\n{below}\n```\n"
