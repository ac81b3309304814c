"""Which trials take the second link of their path's kind, where a bed has two direct links and two of the device.

What a path is asked for is spread over both links: of two visits in a round one takes the second, drawn which, so that
drift has no sign; of repetitions every other one. So a second link adds no trial, and a figure of the path is the mean
of both. Where the A/A control is a path of the plan, it has the second direct link, and the first is the direct one.
Lays no link.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn.plan.types import A_A, DIRECT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sojourn.plan.types import Plan


@dataclass(frozen=True, slots=True)
class Spread:
    """The draw of a plan, apart from that of its order: the same plan without second links has the same trials."""

    doubled: tuple[str, ...]
    """The paths that have two links."""
    order: random.Random

    @classmethod
    def of(cls, plan: Plan, seed: int) -> Spread:
        """The draw of a seed."""
        return cls(plan.twins, random.Random(f"links {seed}"))

    def over(self, paths: Iterable[str], turns: Sequence[int]) -> dict[str, frozenset[int]]:
        """Of each path, those of its turns that take the second link: half of them; none where it has one link."""
        there = tuple(paths)
        doubled = [one for one in there if one in self.doubled and not (one == DIRECT and A_A in there)]
        drawn = {one: self._half(turns) for one in doubled}
        return {one: drawn.get(one, frozenset()) for one in there}

    def _half(self, turns: Sequence[int]) -> frozenset[int]:
        """Every other turn, from the first or from the second on."""
        return frozenset(turns[self.order.randrange(2) :: 2])
