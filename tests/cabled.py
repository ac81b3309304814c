"""A bench for the devices of a study: a direct cable, and for each device a cable from A and one to B."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Cable = tuple[str, str, str, str]
"""Host and port, host and port."""


def cabled(devices: Sequence[str]) -> tuple[list[Cable], str]:
    """The cables, and the paths as a file of real hosts has them."""
    cables: list[Cable] = [("a", "eth1", "b", "eth1")]
    paths = '[paths.direct]\na = "eth1"\nb = "eth1"\n'
    for number, device in enumerate(devices, start=1):
        end, left, right = f"eth{number + 1}", f"eth{2 * number - 1}", f"eth{2 * number}"
        cables += [("a", end, "device", left), ("device", right, "b", end)]
        paths += f'[paths.{json.dumps(device)}]\na = "{end}"\nleft = "{left}"\nright = "{right}"\nb = "{end}"\n'
    return cables, paths
