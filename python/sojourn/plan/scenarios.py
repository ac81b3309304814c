"""Scenarios of a load as plans write them: a name, the flows that are measured, and what is beside them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sojourn.plan.backgrounds import NONE, read
from sojourn.plan.values import Reader

SHAPE = re.compile(
    r"(?P<name>[^:,]+): (?P<flows>[1-9]\d{0,3}) (?P<congestion>[a-z][a-z0-9_]*(\+[a-z][a-z0-9_]*){0,3})"
    r"( beside (?P<background>.+))?"
)
MOST_FLOWS = 1000


@dataclass(frozen=True, slots=True)
class Scenario:
    """One of them."""

    name: str
    flows: int
    congestion: str
    background: str = NONE

    @property
    def words(self) -> str:
        """As plans write it."""
        beside = "" if self.background == NONE else f" beside {self.background}"
        return f"{self.name}: {self.flows} {self.congestion}{beside}"


def scenario_of(words: str) -> Scenario | None:
    """The scenario that is written so; None where it is none."""
    found = SHAPE.fullmatch(" ".join(words.split()))
    background = read(found["background"] or NONE) if found else None
    if found is None or background is None or int(found["flows"]) > MOST_FLOWS:
        return None
    return Scenario(found["name"], int(found["flows"]), found["congestion"], background)


def read_scenario(value: object) -> str | None:
    """Its words as they are kept."""
    found = scenario_of(value) if isinstance(value, str) else None
    return None if found is None else found.words


SCENARIO = Reader(
    read_scenario,
    'a name, the flows of each direction, and what is beside them: "unresponsive: 4 reno beside udp 10Mbit/s"',
)
