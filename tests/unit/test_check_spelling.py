"""A word that no dictionary has is found in prose and in no code; a possessive is its noun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.check_spelling import WORDS, prose, unknown, used, write_words

if TYPE_CHECKING:
    from pathlib import Path

PAGE = """# The brigde

A [linkk](no/where.md)'s colour, its color, and `nocolr` of a qdisc.

```
nocodde
```
Bridge's ports: see <a href="wronng">x</a>, docs/mispeled.md, mispeled.md or https://mispeled.org.
"""


def test_prose_is_spell_checked_and_code_is_not(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/one.md").write_text(PAGE)
    places = used(tmp_path)
    assert places["brigde"] == ["docs/one.md:1"]
    assert places["Bridge"] == ["docs/one.md:8"], "lines keep their numbers"
    assert unknown(places) == {"brigde", "linkk", "qdisc"}
    assert prose(PAGE).count("\n") == PAGE.count("\n")


def test_word_list_is_sorted(tmp_path: Path) -> None:
    (tmp_path / WORDS).parent.mkdir(parents=True)
    write_words(tmp_path, {"veth", "Zou", "ACK", "ack"})
    assert (tmp_path / WORDS).read_text().split() == ["ACK", "ack", "veth", "Zou"]
