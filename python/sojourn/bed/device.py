"""What a plan's words for a device mean: its kind, how many boxes, its label, and which core does its work. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from sojourn.bed.emulated import LABEL
from sojourn.errors import RequestError

DeviceKind = Literal["direct", "wire", "bridge", "emulate"]
LONGEST_CASCADE = 4

_PLAIN: dict[str, tuple[DeviceKind, int]] = {
    "direct": ("direct", 0),
    "wire": ("wire", 1),
    "bridge": ("bridge", 1),
    "emulate": ("emulate", 1),
}


@dataclass(frozen=True)
class Device:
    """What stands between A and B on one link: nothing (`direct`), or `stations` boxes of one kind in a row."""

    name: str
    kind: DeviceKind
    stations: int
    label: str = ""
    """Tells devices of one kind apart."""

    @classmethod
    def parse(cls, name: str) -> Device:
        """Reads a plan's name: `wire`, `bridge`, `bridge*N` with N from 2 to 4 or `emulate`, each with `:label`."""
        plain, colon, label = name.partition(":")
        if colon and (plain == "direct" or not LABEL.fullmatch(label)):
            raise RequestError(f"device '{name}': {_what_is_wrong_with_label(plain)}")
        if plain in _PLAIN:
            return cls(name, *_PLAIN[plain], label)
        found = re.fullmatch(r"bridge\*([0-9]+)", plain)
        if found and 2 <= int(found[1]) <= LONGEST_CASCADE:
            return cls(f"bridge*{int(found[1])}{colon}{label}", "bridge", int(found[1]), label)
        raise RequestError(f"device '{name}': {_what_is_wrong(found)}")

    @property
    def slug(self) -> str:
        """The device as it appears in interface names: its label, else its name."""
        return self.label or self.name.replace("*", "x")


def _what_is_wrong(cascade: re.Match[str] | None) -> str:
    if cascade and int(cascade[1]) == 1:
        return "one bridge is written 'bridge'"
    if cascade:
        return f"a cascade has from 2 to {LONGEST_CASCADE} bridges"
    return f"expected 'direct', 'wire', 'bridge', 'emulate' or 'bridge*N' with N from 2 to {LONGEST_CASCADE}"


def _what_is_wrong_with_label(plain: str) -> str:
    if plain == "direct":
        return "the direct link is there once, and has no label"
    return "a label has 1 to 8 small letters and digits"


@dataclass(frozen=True)
class DeviceCpu:
    """Where a device's packets are handled: by whoever sent them (`shared`), by a core of its own, by a loaded core."""

    kind: Literal["shared", "own", "loaded"]
    load: float = 0.0

    @classmethod
    def parse(cls, text: str) -> DeviceCpu:
        """Reads `shared`, `own` or `loaded:NN%` with NN from 1 to 95."""
        if text == "shared":
            return cls("shared")
        if text == "own":
            return cls("own")
        found = re.fullmatch(r"loaded:([0-9]{1,3})%", text)
        if found and 1 <= int(found[1]) <= 95:
            return cls("loaded", int(found[1]) / 100)
        raise RequestError(f"device_cpu = '{text}': expected 'shared', 'own' or 'loaded:NN%' with NN from 1 to 95")
