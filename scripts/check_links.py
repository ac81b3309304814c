"""Check every relative link of the repository's pages: its file must exist, and its anchor be a heading in it.

The pages are the Markdown of docs/ and of the root folder, from which the site is made with the same folders, so that a
link that works here works there. Fetches nothing: links with a scheme are not checked.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
FENCED = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2`*~* *$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
LINK = re.compile(
    r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s+(\S+)|\b(?:href|src)=\"([^\"]+)\"", re.MULTILINE
)
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)? *$", re.MULTILINE)
NAMED = re.compile(r"\b(?:id|name)=\"([^\"]+)\"")


def main() -> int:
    """Print every broken link; status 1 if there is one."""
    complaints = [complaint for path in pages(ROOT) for complaint in broken(path, ROOT)]
    print("\n".join(complaints) or "links: all whole")
    return 1 if complaints else 0


def pages(root: Path) -> list[Path]:
    """Return the pages of the site."""
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")])


def broken(path: Path, root: Path) -> Iterator[str]:
    """Return the broken links of a page, each with its line."""
    text = FENCED.sub(lambda block: "\n" * block[0].count("\n"), path.read_text())
    for number, line in enumerate(text.splitlines(), 1):
        for found in LINK.finditer(CODE.sub("", line)):
            link = found[1] or found[2] or found[3]
            if not SCHEME.match(link) and (why := complaint(path, unquote(link))):
                yield f"{path.relative_to(root)}:{number}: {link}: {why}"


def complaint(page: Path, link: str) -> str:
    """Return what is wrong with a link of a page; empty if nothing is."""
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists():
        return "no such file"
    if anchor and (target.suffix != ".md" or anchor not in anchors(target)):
        return f"no heading {anchor!r} there"
    return ""


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page: its headings, as GitHub and the site name them, and its own `id`s."""
    text = FENCED.sub("", page.read_text())
    found: dict[str, int] = {}
    names = set(NAMED.findall(text))
    for heading in HEADING.findall(text):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        names.add(f"{slug}-{found[slug]}" if slug in found else slug)
        found[slug] = found.get(slug, 0) + 1
    return frozenset(names)


if __name__ == "__main__":
    sys.exit(main())
