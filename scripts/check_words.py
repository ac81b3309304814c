"""Refuse the retired words of docs/reference/vocabulary.md in text for users, and some phrases that are easily misread.

Reads the pages of the root folder, the guide, concepts and reference, the templates of reports, the studies, packaged
files, the strings of the Python package, and the help and strings of the Rust crates. Names of earlier versions are
allowed where they are read: `earlier.py`, the declarations of columns, and the changelog's tables of new words.
"""

from __future__ import annotations

import ast
import itertools
import operator
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
VOCABULARY = ROOT / "docs/reference/vocabulary.md"
CHANGES = ROOT / "CHANGELOG.md"
EARLIER = ROOT / "python/sojourn/records/earlier.py"
"""Has the names of earlier versions, to read their files."""

OLD_NAMES = re.compile(r'\bwas "[a-z_]+"|\bwith( ?"[a-z_]+" as "[a-z_]+",?)+|, formerly `[a-z_]+`')
"""Declarations of columns have the names of earlier versions, which the reference page repeats."""

OWN_NAMES = re.compile(r"\bpackets_per_log\b")
"""SIFTR's name of its parameter `ppl` (siftr(4)), as a key of plans and a column."""

PHRASES = {
    r"told\s+(apart|from)": "distinguished (from), or: significantly different from",
    r"tell(s|ing)?\s+(\S+\s+){1,6}apart": "distinguish",
    r"(is|are|be|been|being|was|were|gets?)\s+((not|only|also|never|now|so)\s+)?told": "is reported; reports, gets",
    r"cannot\s+tell\s+(\S+\s+){1,6}from": "cannot distinguish",
    r"could\s+not\s+be\s+had": "is missing, was not available",
    r"held\s+(against\s+(the|a|what)|to\s+(the|a\s+known)\s+truth)": "compared with",
    r"come(s)?\s+on\s+top": "is in addition to, exceeds",
    r"last\s+words\s+on": "final records of",
}
"""The refused phrases, also across a line break, with replacements."""

QUOTED = ("docs/reference/proof.md",)
"""Pages that quote reports of earlier versions: no phrase is refused there."""

PAGES = (
    "*.md",
    *(f"docs/{folder}/*.md" for folder in ("guide", "concepts", "reference", "studies", "users")),
    *(f"python/sojourn/report/templates/*.{kind}" for kind in ("html", "js", "css", "json")),
    *(
        "python/sojourn/report/**/*.toml",
        "python/sojourn/studies/*.toml",
        "python/sojourn/devices/*.sh",
        "packaging/**/*",
    ),
)
"""Read completely, with their comments."""

Text = tuple[str, int, str]
"""File, line and text for users."""


def main() -> int:
    """Print every place of a retired word; status 1 if there is one."""
    words = retired(VOCABULARY.read_text())
    uses = [(word, words[word], place) for word, place in find(words)] + list(find_phrases())
    for word, instead, place in uses:
        print(f"'{word}' is retired; write: {instead}\n  {place}")
    return 1 if uses else 0


def retired(page: str) -> dict[str, str]:
    """Return the words in code type of the first column, each with its replacement."""
    table = page.split("## Retired words")[1]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")]
    return {word: row[1].strip() for row in rows for word in re.findall(r"`([^`]+)`", row[0])}


def find(words: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Return every use of a retired word, its plural, and keys made of it: the word, and its place."""
    either = "|".join(sorted(words, key=len, reverse=True)).replace(" ", "[ _]")
    pattern = re.compile(rf"(?<![\w-])({either})s?(?![\w-])", re.IGNORECASE)
    for path, number, text in texts():
        for match in pattern.finditer(OWN_NAMES.sub("", OLD_NAMES.sub("", text))):
            yield match[1].lower().replace("_", " "), f"{path}:{number}: {text.strip()[:120]}"


def find_phrases() -> Iterator[tuple[str, str, str]]:
    """Return every refused phrase, its replacement, and its place."""
    read = (text for text in texts() if text[0] not in QUOTED)
    files = itertools.groupby(read, key=operator.itemgetter(0))
    for path, found in files:
        lines = list(found)
        for instead, match in phrases(" \n".join(text for _, _, text in lines)):
            number, text = lines[match.string.count(" \n", 0, match.start())][1:]
            yield " ".join(match[0].split()), instead, f"{path}:{number}: {text.strip()[:120]}"


def phrases(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Return each refused phrase of a text, with its replacement."""
    for phrase, instead in PHRASES.items():
        for match in re.finditer(rf"\b{phrase}\b", text, re.IGNORECASE):
            yield instead, match


def texts() -> Iterator[Text]:
    """Return all text for users."""
    for page in sorted(page for pattern in PAGES for page in ROOT.glob(pattern)):
        if page != VOCABULARY and page.is_file():
            lines = enumerate(page.read_text().splitlines(), start=1)
            told = (one for one in lines if page != CHANGES or not one[1].startswith("|"))
            yield from numbered(page, told)
    for path in sorted(set((ROOT / "python").rglob("*.py")) - {EARLIER}):
        nodes = ast.walk(ast.parse(path.read_text()))
        strings = ((n.lineno, n.value) for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
        yield from numbered(path, strings)
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        if "tests" not in path.stem and "tests" not in path.parts:
            yield from numbered(path, rust_strings(path.read_text().split("#[cfg(test)]\nmod tests {")[0]))


def rust_strings(source: str) -> Iterator[tuple[int, str]]:
    """Return string literals, and doc comments that clap turns into help."""
    is_help = "clap" in source
    for number, line in enumerate(source.splitlines(), start=1):
        comment = re.match(r"\s*///(.*)", line)
        if comment and is_help:
            yield number, comment[1]
        elif not re.match(r"\s*//", line):
            for match in re.finditer(r'"((?:\\.|[^"\\])*)"', OLD_NAMES.sub("", line)):
                yield number, match[1]


def numbered(path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[Text]:
    """Return the lines with the file's name."""
    name = str(path.relative_to(ROOT))
    return ((name, number, text) for number, text in lines)


if __name__ == "__main__":
    sys.exit(main())
