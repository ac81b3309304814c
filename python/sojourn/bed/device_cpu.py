"""The core that handles a device's packets, as configured in a plan. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from sojourn.errors import RequestError


@dataclass(frozen=True)
class DeviceCpu:
    """The core that handles a device's packets: the sender's (`shared`), one of its own, or a loaded one of its own."""

    kind: Literal["shared", "own", "loaded"]
    load: float = 0.0

    @classmethod
    def parse(cls, text: str) -> DeviceCpu:
        """Parse `shared`, `own` or `loaded:NN%` with NN from 1 to 95."""
        if text == "shared":
            return cls("shared")
        if text == "own":
            return cls("own")
        found = re.fullmatch(r"loaded:([0-9]{1,3})%", text)
        if found and 1 <= int(found[1]) <= 95:
            return cls("loaded", int(found[1]) / 100)
        raise RequestError(f"device_cpu = '{text}': expected 'shared', 'own' or 'loaded:NN%' with NN from 1 to 95")
