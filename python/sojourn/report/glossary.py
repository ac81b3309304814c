"""The terms of a report: their meanings, and the links to them in its sentences.

The meanings are those of docs/reference/vocabulary.md; `make docs` writes them to templates/glossary.json.
"""

from __future__ import annotations

import json
import re
from functools import cache

from markupsafe import Markup, escape

from sojourn.report.shell import asset


@cache
def glossary() -> dict[str, str]:
    """Return each term with its meaning, in the order of the vocabulary."""
    return {str(term): str(meaning) for term, meaning in json.loads(asset("glossary.json")).items()}


LINKED = {
    "A/A control": "A/A control", "95 % CI": "95 % CI", "inter-departure time": "inter-departure time",
    "pacing error": "pacing error", "local drops": "local drops", "device under test": "device",
}  # fmt: skip
"""The linked words, each with its term: only unambiguous ones, for "round" or "path" may mean something else."""


def link(words: str) -> Markup:
    """Return the words with the first use of each term linked to its meaning, which is also its tooltip."""
    linked: set[str] = set()

    def to_term(found: re.Match[str]) -> str:
        term = _by_spelling()[" ".join(found[1].casefold().split())]
        if term in linked:
            return found[0]
        linked.add(term)
        return f'<a class="term" href="#{anchor(term)}" title="{escape(glossary()[term])}">{found[0]}</a>'

    return Markup(_terms().sub(to_term, str(escape(words))))


def anchor(term: str) -> str:
    """Return the id of the term's meaning on the page."""
    return "term-" + re.sub(r"\W+", "-", term.lower())


@cache
def _by_spelling() -> dict[str, str]:
    return {words.casefold(): term for words, term in LINKED.items()}


@cache
def _terms() -> re.Pattern[str]:
    longest_first = (re.escape(term).replace("\\ ", r"\s") for term in sorted(LINKED, key=len, reverse=True))
    return re.compile(rf"(?<![\w/&#-])({'|'.join(longest_first)})s?(?![\w/-]|\strip)", re.IGNORECASE)


SPELLED = {"md1": "M/D/1", "slope-is-sum-of-rates": "slope is the sum of 8/R"}


def hypothesis_name(name: str) -> str:
    """Return the name of a hypothesis in words: "no-tick" is no tick, "md1" the queue M/D/1."""
    return SPELLED.get(name) or name.replace("-", " ")
