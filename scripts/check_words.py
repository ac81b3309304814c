"""Counts the retired words of docs/reference/vocabulary.md in what users read; their number may only shrink.

Reads README, the guide, concepts and reference, the strings of the Python package, and the help and strings of the Rust
crates. `--update` writes smaller counts into scripts/retired_words.json; without it nothing is changed. Counts are by
word over the whole tree, so that moving a file changes none.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
VOCABULARY = ROOT / "docs/reference/vocabulary.md"
EARLIER = ROOT / "python/sojourn/records/earlier.py"
"""Holds what earlier versions wrote, to read it."""

OLD_NAMES = re.compile(r'\bwas "[a-z_]+"|\bwith( ?"[a-z_]+" as "[a-z_]+",?)+|, formerly `[a-z_]+`')
"""Declarations of columns name what earlier versions called them, and the reference page repeats it."""

ALLOWED = ROOT / "scripts/retired_words.json"

Text = tuple[str, int, str]
"""File, line and what a user reads there."""


def main() -> int:
    """Compare what is there with what is allowed; status 1 where a word is used more often."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--update", action="store_true", help="lower what is allowed to what is there")
    parser.add_argument("--list", metavar="WORD", help="every place of one word")
    asked = parser.parse_args()
    words = retired(VOCABULARY.read_text())
    uses = list(find(words))
    counts = Counter(word for word, _ in uses)
    if asked.list:
        print("\n".join(place for word, place in uses if word == asked.list))
        return 0
    allowed: dict[str, int] = json.loads(ALLOWED.read_text()) if ALLOWED.exists() else dict(counts)
    more = {word: count for word, count in counts.items() if count > allowed.get(word, 0)}
    for word, count in sorted(more.items()):
        print(f"'{word}' is retired: {count} uses, {allowed.get(word, 0)} allowed. Write: {words[word]}")
        print(f"  every place: .venv/bin/python scripts/check_words.py --list '{word}'")
    if asked.update and not more:
        ALLOWED.write_text(json.dumps(dict(sorted(counts.items())), indent=2) + "\n")
    return 1 if more else 0


def retired(page: str) -> dict[str, str]:
    """The words in code type of the first column, each with what to write instead."""
    table = page.split("## Retired words")[1]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")]
    return {word: row[1].strip() for row in rows for word in re.findall(r"`([^`]+)`", row[0])}


def find(words: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Every use of a retired word: the word, and its place."""
    pattern = re.compile(r"(?<![\w-])(" + "|".join(sorted(words, key=len, reverse=True)) + r")(?![\w-])", re.IGNORECASE)
    for path, number, text in texts():
        for match in pattern.finditer(OLD_NAMES.sub("", text)):
            yield match[1].lower(), f"{path}:{number}: {text.strip()[:120]}"


def texts() -> Iterator[Text]:
    """What users read."""
    pages = [
        ROOT / "README.md",
        *(p for f in ("guide", "concepts", "reference") for p in (ROOT / "docs" / f).glob("*.md")),
    ]
    for page in sorted(pages):
        if page != VOCABULARY:
            yield from numbered(page, enumerate(page.read_text().splitlines(), start=1))
    for path in sorted(set((ROOT / "python").rglob("*.py")) - {EARLIER}):
        nodes = ast.walk(ast.parse(path.read_text()))
        strings = ((n.lineno, n.value) for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
        yield from numbered(path, strings)
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        if "tests" not in path.stem and "tests" not in path.parts:
            yield from numbered(path, rust_strings(path.read_text().split("#[cfg(test)]\nmod tests {")[0]))


def rust_strings(source: str) -> Iterator[tuple[int, str]]:
    """String literals, and doc comments where clap makes help of them."""
    is_help = "clap" in source
    for number, line in enumerate(source.splitlines(), start=1):
        comment = re.match(r"\s*///(.*)", line)
        if comment and is_help:
            yield number, comment[1]
        elif not re.match(r"\s*//", line):
            for match in re.finditer(r'"((?:\\.|[^"\\])*)"', OLD_NAMES.sub("", line)):
                yield number, match[1]


def numbered(path: Path, lines: Iterator[tuple[int, str]] | enumerate[str]) -> Iterator[Text]:
    """The same with the file's name."""
    name = str(path.relative_to(ROOT))
    return ((name, number, text) for number, text in lines)


if __name__ == "__main__":
    sys.exit(main())
