"""Spells the pages by a dictionary of English and the field's own words, docs/reference/words.txt.

    python -m scripts.check_spelling           name each word that neither has, and each of ours that no page uses
    python -m scripts.check_spelling --add     add those words to ours, after you have read them

Prose alone is read: no code, no addresses, no names of files. hunspell has the dictionaries (British and American).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORDS = Path("docs/reference/words.txt")
PAGES = ("*.md", "docs/**/*.md", "python/sojourn/report/**/*.md")
QUOTED = {"docs/reference/proof.md", "docs/reference/bench.md"}
"""Written from measurements, with names of tests and machines."""

CODE = re.compile(
    r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)"  # blocks
    r"|`+[^`]*`+"  # names in a line
    r"|<!--.*?-->|<[^>\n]+>"  # the target of a link
    r"|\]\([^)]*\)"  # where a link leads
    r"|https?://\S+|\S+@\S+"
    r"|[^\s\[\]()]*[/_\\][^\s\[\]()]*"  # paths and names of programs
    r"|[^\s\[\]()]*\w\.(md|py|rs|toml|json|csv|sh|deb|lab|html|svg|pdf)\b\S*",
    re.DOTALL | re.MULTILINE,
)
WORD = re.compile(r"(?<![\w.])[A-Za-zÀ-ÿ]+(?:['\u2019](?!s\b)[a-z]+)?(?!\w)")
"""The pattern matches a possessive as its noun."""


def main() -> int:
    """Print unknown and unused words; status 1 if there is one, 3 without a spelling checker."""
    if shutil.which("hunspell") is None:
        print("check_spelling: hunspell is not installed: run `make setup`", file=sys.stderr)
        return 3
    ours = set((ROOT / WORDS).read_text().split())
    places = used(ROOT)
    wrong = unknown(places) - ours
    if "--add" in sys.argv[1:]:
        write_words(ROOT, ours & places.keys() | wrong)
        return 0
    for word in sorted(wrong):
        print(f"{places[word][0]}: '{word}' is in no dictionary: correct it, or add it to {WORDS}")
    for word in sorted(ours - places.keys()):
        print(f"{WORDS}: '{word}' is on no page: take it out")
    return 1 if wrong or ours - places.keys() else 0


def write_words(root: Path, words: set[str]) -> None:
    """Write our words, in order."""
    (root / WORDS).write_text("".join(f"{word}\n" for word in sorted(words, key=lambda word: (word.lower(), word))))


def used(root: Path) -> dict[str, list[str]]:
    """Return each word of the pages, and its places."""
    places: dict[str, list[str]] = defaultdict(list)
    for page in sorted({page for pattern in PAGES for page in root.glob(pattern)}):
        name = str(page.relative_to(root))
        if name not in QUOTED:
            for number, line in enumerate(prose(page.read_text()).splitlines(), start=1):
                for word in WORD.findall(line):
                    places[word.replace("\u2019", "'")].append(f"{name}:{number}")
    return places


def prose(text: str) -> str:
    """A page without its code; its lines keep their numbers."""
    return CODE.sub(lambda match: "\n" * match[0].count("\n") or " ", text)


def unknown(words: dict[str, list[str]]) -> set[str]:
    """Return the words that no dictionary has."""
    told = subprocess.run(
        ["hunspell", "-i", "utf-8", "-d", "en_GB,en_US", "-l"],
        input="\n".join(words), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(told.stdout.split())


if __name__ == "__main__":
    sys.exit(main())
