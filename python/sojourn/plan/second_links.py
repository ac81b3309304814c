"""The choice of trials that use the second link of their path's kind, if a bed has two links of a kind.

The trials of a path are spread over both links: of two visits in a round one, drawn at random, uses the second, so that
drift has no sign; of repetitions every other one. So a second link adds no trial, and a figure of the path is the mean
of both. If the A/A control is a path of the plan, it uses the second direct link, and `direct` the first. Makes no
link.
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
    """The draw of a plan, separate from that of its order: without second links the trials are the same."""

    doubled: tuple[str, ...]
    """The paths that have two links."""
    order: random.Random

    @classmethod
    def of(cls, plan: Plan, seed: int) -> Spread:
        """Return the draw of a seed."""
        return cls(plan.twins, random.Random(f"links {seed}"))

    def over(self, paths: Iterable[str], turns: Sequence[int]) -> dict[str, frozenset[int]]:
        """Return the turns of each path that use the second link: half of them; none for a path with one link."""
        there = tuple(paths)
        doubled = [one for one in there if one in self.doubled and not (one == DIRECT and A_A in there)]
        drawn = {one: self._half(turns) for one in doubled}
        return {one: drawn.get(one, frozenset()) for one in there}

    def _half(self, turns: Sequence[int]) -> frozenset[int]:
        """Return every other turn, beginning with the first or the second."""
        return frozenset(turns[self.order.randrange(2) :: 2])
