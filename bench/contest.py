"""Several programs at one task: each repetition runs all in random order, so that a slow minute affects all equally.

The result is a matrix (medians of each contestant) and claims: figures of ours that are compared with a target, alone
or as a ratio to a peer's neighbouring run.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench.compare import What, absent, alone, ratio

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.compare import Row, Target
    from bench.experiments import Ground, Sample

NOTHING = float("nan")


class Column(NamedTuple):
    """A figure that each contestant has."""

    key: str
    name: str
    unit: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure of one contestant, alone or as a ratio to a peer's, and its target, if it has one."""

    of: str
    key: str
    name: str
    unit: str
    target: Target | None
    beside: str | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """One task: its contestants, figures and claims."""

    task: str
    contestants: dict[str, Callable[[Ground], Sample]]
    columns: tuple[Column, ...]
    claims: tuple[Claim, ...] = ()
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def repeat(self, ground: Ground, seed: int, tell: Callable[[str], None]) -> None:
        """Run every contestant once, in random order."""
        names = list(self.contestants)
        for name in random.Random(seed).sample(names, len(names)):
            tell(f"{self.task} · {name}")
            self.samples.setdefault(name, []).append(self.contestants[name](ground))

    def rows(self) -> list[Row]:
        """Return the claims with their results; what was not measured has none, and does not meet its target."""
        return [self._row(claim) for claim in self.claims]

    def matrix(self) -> list[tuple[str, list[float]]]:
        """Each contestant's medians, in the order of the columns."""
        return [(name, [self._median(name, column.key) for column in self.columns]) for name in self.contestants]

    def as_json(self) -> dict[str, Any]:
        """Return all measurements."""
        return {
            "task": self.task,
            "columns": [column._asdict() for column in self.columns],
            "medians": [(name, [None if isnan(one) else one for one in values]) for name, values in self.matrix()],
            "repetitions": len(next(iter(self.samples.values()), [])),
            "samples": self.samples,
        }

    def _median(self, name: str, key: str) -> float:
        values = [one[key] for one in self.samples.get(name, []) if key in one]
        return float(np.median(values)) if values else NOTHING

    def _row(self, claim: Claim) -> Row:
        mine = self.samples.get(claim.of, [])
        theirs = mine if claim.beside is None else self.samples.get(claim.beside, [])
        pairs = [
            (a[claim.key], b[claim.key]) for a, b in zip(mine, theirs, strict=True) if claim.key in a and claim.key in b
        ]
        what = What(self.task, claim.beside or claim.of, claim.name, claim.unit)
        if not pairs:
            return absent(what, claim.target, is_ratio=claim.beside is not None)
        return (alone if claim.beside is None else ratio)(what, pairs, claim.target)
