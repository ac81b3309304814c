"""The hosts of a bed: which there are, and between which of them is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

HostName = Literal["a", "b", "d"]
END_HOSTS: tuple[HostName, ...] = ("a", "b")
"""What is between them is measured; `d` holds it."""


@dataclass(frozen=True)
class Host:
    """A place where programs run: A asks, B answers, D holds the devices."""

    name: HostName
    role: str


HOSTS: tuple[Host, ...] = (Host("a", "prober"), Host("b", "responder"), Host("d", "devices under test"))
