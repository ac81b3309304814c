"""What each session of a run draws at random, so that the interval covers the variation between beds.

These are properties of a bed that are set up once and may matter: numbers of links, and with them interface indexes;
the order in which links are made; addresses and MACs; the length of programs' environment, and with it the position of
their stacks; the cores of the two ends, if there is a choice. Processes, and so their address spaces, are new in each
session. A study of variance has further `switches`, on or off by its design and not by a draw. What is held
(`bed.hold`) is derived from the run's seed instead of the session's; a held address space is not randomised.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_ENVIRONMENT_BYTES = 4096
"""One page: the alignment of stacks is smaller."""

VARIABLE = "SOJOURN_SESSION"

FIXED = ("setarch", "-R")
"""The prefix that starts a program without address space randomisation."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A session's draw; everything is derived from the two seeds."""

    seed: int
    run_seed: int = 0
    """The seed of what is held."""
    held: tuple[str, ...] = ()
    switches: Mapping[str, bool] = field(default_factory=dict)
    """What the plan switches on or off on the bed."""

    def seed_of(self, what: str) -> int:
        """Return the seed of one of the drawn properties (`DRAWN`)."""
        return self.run_seed if what in self.held else self.seed

    @property
    def layout(self) -> int:
        """The seed for numbers and order of links."""
        return self.seed_of("layout")

    @property
    def addresses(self) -> int:
        """The seed for addresses and MACs."""
        return self.seed_of("addresses")

    @property
    def cores(self) -> random.Random:
        """The random generator for the cores of both ends."""
        return random.Random(f"{self.seed_of('cores')}/cores")

    @property
    def environment_bytes(self) -> int:
        """The length of the variable that extends the programs' environment."""
        return random.Random(f"{self.seed_of('processes')}/environment").randrange(MOST_ENVIRONMENT_BYTES)

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command of a program, with a fixed address space if that is held."""
        return [*(FIXED if "aslr" in self.held else ()), *argv]

    def environment(self) -> dict[str, str]:
        """Return the environment of programs."""
        return {**os.environ, VARIABLE: "-" * self.environment_bytes}

    def offset_ns(self, path: str, sd_ns: float, of: str = "") -> float:
        """Return the extra delay of a simulated path in this session, each way: normal with mean zero."""
        return random.Random(f"{self.seed_of(of)}/{path}").gauss(0.0, sd_ns)

    def told(self) -> dict[str, Any]:
        """Return the draw for the log."""
        return {
            "seed": self.seed,
            "run_seed": self.run_seed,
            "held": list(self.held),
            "layout": self.layout,
            "addresses": self.addresses,
            "environment_bytes": self.environment_bytes,
            **({"on": [one for one, is_on in self.switches.items() if is_on]} if self.switches else {}),
        }
