"""Scenarios of a load in the notation of plans: a name, the measured flows, and background traffic. Pure."""

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
    """One scenario."""

    name: str
    flows: int
    congestion: str
    background: str = NONE

    @property
    def words(self) -> str:
        """The scenario in the notation of plans."""
        beside = "" if self.background == NONE else f" beside {self.background}"
        return f"{self.name}: {self.flows} {self.congestion}{beside}"


def scenario_of(words: str) -> Scenario | None:
    """Parse a scenario; None if it is malformed."""
    found = SHAPE.fullmatch(" ".join(words.split()))
    background = read(found["background"] or NONE) if found else None
    if found is None or background is None or int(found["flows"]) > MOST_FLOWS:
        return None
    return Scenario(found["name"], int(found["flows"]), found["congestion"], background)


def read_scenario(value: object) -> str | None:
    """Return a scenario in its canonical notation; None if malformed."""
    found = scenario_of(value) if isinstance(value, str) else None
    return None if found is None else found.words


SCENARIO = Reader(
    read_scenario,
    'a name, the flows of each direction, and what is beside them: "unresponsive: 4 reno beside udp 10Mbit/s"',
)
