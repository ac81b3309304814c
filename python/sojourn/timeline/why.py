"""`sojourn why`: what limited a flow at a moment, and the outcome of its packets in flight, as a paragraph or JSON."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.export.log import NS
from sojourn.timeline.fate import fate_of
from sojourn.timeline.judge import judge
from sojourn.timeline.moment import moment_of
from sojourn.timeline.segments import joined
from sojourn.timeline.source import open_flow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sojourn.export.log import Chosen
    from sojourn.timeline.said import Rows, Sentence

WIDTH = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of `why`: for programs, and for a person."""

    told: dict[str, Any]
    text: str
    cut: tuple[str, ...]


def explain(path: Path, flow: int, after_ns: int, chosen: Chosen, more: Sequence[Path] = ()) -> Answer:
    """Return from the records alone what limited the flow `after_ns` after its first sample."""
    found = open_flow(path, flow, chosen, more)
    segments, account = joined(found)
    moment = moment_of(found, segments, after_ns)
    verdict = judge(moment)
    fate, fates = fate_of(moment)
    sentences = [*verdict.sentences, *fates]
    told: dict[str, Any] = {
        "flow": flow,
        "sender_flow": found.sender.flow,
        "at_s": after_ns / NS,
        "at_ns": moment.at_ns,
        "limit": verdict.limit,
        "cause": verdict.cause,
        "shares": verdict.shares,
        "in_flight": fate.as_dict(),
        "sentences": [_as_dict(one) for one in sentences],
        "account": account.as_dict(),
    }
    head = f"At {after_ns / NS:.3f} s of flow {flow} ({found.sender.title})"
    if found.sender.flow != flow or found.sender.log.path != path:
        head += f", whose data the other end sent (flow {found.sender.flow} of {found.sender.log.path}),"
    return Answer(told, _paragraph(head, sentences), found.cut)


def _as_dict(sentence: Sentence) -> dict[str, Any]:
    return {"text": sentence.text, "records": [{"file": one.file, "rows": one.rows} for one in sentence.records]}


def _paragraph(head: str, sentences: Sequence[Sentence]) -> str:
    """Return a paragraph whose sentences have the numbers of the records listed below it."""
    known: dict[Rows, int] = {}
    parts = []
    for sentence in sentences:
        marks = "".join(f"[{known.setdefault(rows, len(known) + 1)}]" for rows in sentence.records)
        parts.append(f"{sentence.text} {marks}".rstrip() + ".")
    first = parts[0] if parts else ""
    text = textwrap.fill(" ".join([f"{head}: {first}", *parts[1:]]), WIDTH, break_long_words=False)
    notes = [f"  [{number}] {rows.file}: {rows.rows}" for rows, number in known.items()]
    return "\n".join([text, *notes])
