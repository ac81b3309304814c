"""What each session of a run draws anew, so that its figure can tell what the bed's making is worth.

Whatever is set up once for a bed and could matter: numbers of links, and with them interface indexes; the order in
which links are laid; addresses and MACs; how long the environment of programs is, and with it where their stacks lie;
which cores the two ends have, where there is a choice. Processes are new in each session, and so are their address
spaces.
A study of variance has two more things on or off (`switches`), which its design says and not a draw.
What is held (`bed.hold`) follows from the run's seed in place of the session's; an address space that is held is not
random.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_ENVIRONMENT_BYTES = 4096
"""One page: stacks are aligned to less."""

VARIABLE = "SOJOURN_SESSION"

FIXED = ("setarch", "-R")
"""Starts a program whose address space is not random."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A session's draw; everything follows from the two seeds."""

    seed: int
    run_seed: int = 0
    """Of what is held."""
    held: tuple[str, ...] = ()
    switches: Mapping[str, bool] = field(default_factory=dict)
    """What is on or off on the bed, as the plan has it."""

    def seed_of(self, what: str) -> int:
        """The seed of one of the things that are drawn (`DRAWN`)."""
        return self.run_seed if what in self.held else self.seed

    @property
    def layout(self) -> int:
        """The seed of numbers and order of links."""
        return self.seed_of("layout")

    @property
    def addresses(self) -> int:
        """The seed of addresses and MACs."""
        return self.seed_of("addresses")

    @property
    def cores(self) -> random.Random:
        """Chooses the cores of both ends."""
        return random.Random(f"{self.seed_of('cores')}/cores")

    @property
    def environment_bytes(self) -> int:
        """By how much the environment of programs is longer."""
        return random.Random(f"{self.seed_of('processes')}/environment").randrange(MOST_ENVIRONMENT_BYTES)

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command of a program, its address space at the same place each time where that is held."""
        return [*(FIXED if "aslr" in self.held else ()), *argv]

    def environment(self) -> dict[str, str]:
        """The environment of programs."""
        return {**os.environ, VARIABLE: "-" * self.environment_bytes}

    def offset_ns(self, path: str, sd_ns: float, of: str = "") -> float:
        """How much slower a simulated path is in this session, each way: normal about zero; drawn with `of`."""
        return random.Random(f"{self.seed_of(of)}/{path}").gauss(0.0, sd_ns)

    def told(self) -> dict[str, Any]:
        """As the log has it."""
        return {
            "seed": self.seed,
            "run_seed": self.run_seed,
            "held": list(self.held),
            "layout": self.layout,
            "addresses": self.addresses,
            "environment_bytes": self.environment_bytes,
            **({"on": [one for one, is_on in self.switches.items() if is_on]} if self.switches else {}),
        }
