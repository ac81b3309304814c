"""What each session of a run draws anew, so that its figure can tell what the bed's making is worth.

Whatever is set up once for a bed and could matter: numbers of links, and with them addresses, MACs and interface
indexes; the order in which links are laid; how long the environment of programs is, and with it where their stacks lie;
which cores the two ends have, where there is a choice. Processes are new in each session, and so are their address
spaces.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import Any

MOST_ENVIRONMENT_BYTES = 4096
"""One page: stacks are aligned to less."""

VARIABLE = "SOJOURN_SESSION"


@dataclass(frozen=True, slots=True)
class Draw:
    """A session's draw; everything follows from the seed."""

    seed: int

    @property
    def layout(self) -> int:
        """The seed of numbers and order of links."""
        return self.seed

    @property
    def cores(self) -> random.Random:
        """Chooses the cores of both ends."""
        return random.Random(f"{self.seed}/cores")

    @property
    def environment_bytes(self) -> int:
        """By how much the environment of programs is longer."""
        return random.Random(f"{self.seed}/environment").randrange(MOST_ENVIRONMENT_BYTES)

    def environment(self) -> dict[str, str]:
        """The environment of programs."""
        return {**os.environ, VARIABLE: "-" * self.environment_bytes}

    def offset_ns(self, path: str, sd_ns: float) -> float:
        """How much slower a simulated path is in this session, each way: normal about zero."""
        return random.Random(f"{self.seed}/{path}").gauss(0.0, sd_ns)

    def told(self) -> dict[str, Any]:
        """As the log has it."""
        return {"seed": self.seed, "environment_bytes": self.environment_bytes}
