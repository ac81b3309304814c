"""Findings about settings of ports and hosts: not applied, changed, not restored, different at two ends, delaying.

Reads the bed's records of them, in the log and in bed.json; the bed decided which settings delay frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.analysis.finding import Finding, Place
from sojourn.records.settings import SettingRow, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.analysis.run import Run

COMPARED = ("coalescing", "rings")
"""The settings of a port that should be equal at the two ends of a path."""


def settings(run: Run) -> Iterator[Finding]:
    """Return the findings, each kind once; the sentence is of the first place."""
    rows = settings_of(run.log)
    yield from _one(
        "setting_not_taken",
        [row for row in rows if not row.is_as_asked],
        lambda row: f"{row.value} of {row.where} is {row.in_force}, and {row.asked} was asked",
    )
    yield from _one(
        "setting_changed",
        [row for row in rows if row.has_changed],
        lambda row: f"{row.value} of {row.where} was {row.in_force} at first, and {row.ended} when the session ended",
    )
    yield from _one(
        "setting_not_restored",
        [row for row in rows if row.is_back is False],
        lambda row: f"{row.value} of {row.where} was {row.before} before the run, and is {row.restored} after it",
    )
    yield from _unlike_ends(run)
    yield from _delaying(run)


def _one(name: str, rows: list[SettingRow], sentence: Any) -> Iterator[Finding]:
    if rows:
        more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
        yield Finding(name, sentence(rows[0]) + more, float(len(rows)))


def _unlike_ends(run: Run) -> Iterator[Finding]:
    """Return the paths whose two ends have different settings."""
    stable = run.bed.get("stable", {})
    hosts = stable.get("hosts") or {}
    found: dict[Place, list[str]] = {}
    for path in stable.get("bed", {}).get("paths") or []:
        ends = [hosts.get(end, {}).get("links", {}).get(path.get(f"{end}_dev"), {}) for end in ("a", "b")]
        for kind in COMPARED:
            a, b = (end.get(kind) or {} for end in ends)
            for name in a.keys() & b.keys():
                if a[name] != b[name]:
                    found.setdefault(Place(path["path"]), []).append(f"{name} is {a[name]} at A and {b[name]} at B")
    if found:
        place, words = next(iter(found.items()))
        sentence = f"the ends of path {place.device} have other settings: {', '.join(sorted(words))}"
        yield Finding("settings_differ", sentence, float(sum(map(len, found.values()))), tuple(found))


def _delaying(run: Run) -> Iterator[Finding]:
    said = [one for event in run.log if event.get("event") == "bed" for one in event.get("delaying") or ()]
    several = list(dict.fromkeys(map(str, said)))
    if several:
        more = f" (and {len(several) - 1} more sentences in log.jsonl)" if len(several) > 1 else ""
        yield Finding("delaying_settings", several[0].rstrip(".") + more, float(len(several)))
