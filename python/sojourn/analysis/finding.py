"""Findings: a name, a severity, places, a sentence and the number behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.analysis.rows import finite
from sojourn.analysis.wording import counted
from sojourn.records import FINDINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from sojourn.analysis.factors import Factors
    from sojourn.analysis.rows import Row


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a finding: None means everywhere."""

    device: str | None = None
    cell: int | None = None

    def covers(self, row: Row) -> bool:
        """Return whether a row depends on this place; a pooled row depends on all its cells."""
        paths = {row.device, row.reference}
        here = self.device is None or self.device in paths
        return here and (self.cell is None or row.cell is None or self.cell == row.cell)

    def describe(self, cells: Mapping[int, Factors]) -> str:
        """Return the place in words."""
        cell = "" if self.cell is None or self.cell not in cells else cells[self.cell].describe()
        if self.device is None:
            return cell or "the whole run"
        return f"{self.device}, {cell}" if cell else self.device


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding at one or several places, the worst first; `value` belongs to the worst.

    `grade` overrides the severity of its name: an intended overload is no reason for doubt.
    """

    name: str
    sentence: str
    value: float | None = None
    places: tuple[Place, ...] = (Place(),)
    grade: str | None = None

    @property
    def severity(self) -> str:
        """The severity: "note", "doubtful" or "invalid"."""
        return self.grade or FINDINGS[self.name].severity

    def tidy(self, cells: Mapping[int, Factors]) -> dict[str, Any]:
        """Return the finding as in verdict.json."""
        where = self.places[0].describe(cells)
        if len(self.places) > 1:
            where += f"; and {counted(len(self.places) - 1, 'more cell')}"
        return {
            "name": self.name,
            "severity": self.severity,
            "where": where,
            "sentence": self.sentence,
            "value": finite(self.value),
            "places": [{"device": place.device, "cell": place.cell} for place in self.places],
        }


def worst_first(found: Mapping[Place, float]) -> tuple[tuple[Place, ...], float]:
    """Return the places by falling value, and the worst value."""
    places = sorted(found, key=lambda place: -found[place])
    return tuple(places), found[places[0]]


def worst_apart(
    name: str, found: Mapping[Place, float], overloads: Collection[Place], sentence: Callable[[Place], str]
) -> Iterator[Finding]:
    """Return one finding for the places that had to keep up, and a note for intended overloads.

    `sentence` returns the text for the worst place.
    """
    asked = {place: value for place, value in found.items() if place not in overloads}
    overload = {place: value for place, value in found.items() if place in overloads}
    if asked:
        places, worst = worst_first(asked)
        yield Finding(name, sentence(places[0]), worst, places)
    if overload:
        places, worst = worst_first(overload)
        yield Finding(name, f"as expected in overload, {sentence(places[0])}", worst, places, "note")


def mark(rows: list[Row], findings: list[Finding]) -> None:
    """Add to every row the names of the findings that concern it."""
    for row in rows:
        names = [one.name for one in findings if any(place.covers(row) for place in one.places)]
        row.findings = sorted({*row.findings, *names})
