"""The devices that can be under test, one module per mode; their names are parsed here and nowhere else.

A module of this folder with a `DEVICE` is a mode; another distribution adds one by an entry point of the group
`sojourn.devices`, whose value is a `Mode` (`their.module:DEVICE`); an unusable one is left out, and `left_out` says
why. A device's name is `mode`, `mode*N` (N boxes in a row) or either with `:label`; for a variant of a mode it is
`mode:variant`, or `mode:variant*N` if that counts something (`bridge:rules*200`). Both sides of the run folder may read
the declaration of a mode; a mode that is no longer installed is reported by its bare name.
"""

from __future__ import annotations

import pkgutil
import re
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from sojourn.devices.mode import LONGEST_SLUG, Box, Command, Device, Ink, Mode, Port, Side, commands
from sojourn.errors import MachineError, RequestError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "LONGEST_SLUG",
    "Box",
    "Command",
    "Device",
    "Ink",
    "Mode",
    "Port",
    "Side",
    "called",
    "commands",
    "known",
    "modes",
    "parse",
]

GROUP = "sojourn.devices"
NAME = r"[a-z][a-z0-9_-]*(\*[2-9])?(:[a-z0-9_+-]+(\*[1-9][0-9]{0,3})?)?"
"""The pattern of names; a simulated line may have one that belongs to no device."""

DIRECT, A_A = "direct", "a/a"
PERSON = "person"
"""The value of `switch` for a path that a person connects."""
TWIN = "/2"
"""The suffix of the path of a second link of a device's kind; that of the direct link is the A/A control."""
BYPASS = "/bypass"
"""The suffix of the path of a second link of a kind that is loaded in place of the first one."""

MOST_SENDERS = 16
MOST_PORTS = MOST_SENDERS + 1
"""Of a bridge on a side: one more for background load."""

LONGEST_OF_PORTS = 6
"""The most characters of a slug in "d-<slug>-t-1r16", which has the maximum length of an interface name."""

ALSO_CALLED = {"bridge:emulate": "emulate:zero"}
"""Aliases in plans: our bridge that emulates a delay of 0."""

OF_OTHERS = 100
"""The default `Mode.place` of modes from other distributions."""

CASCADE = re.compile(r"([a-z][a-z0-9_-]*)\*([2-9])")
LABEL = re.compile(r"[a-z0-9]{1,8}")
LONGEST_LABEL = 24
BOX_LABEL = re.compile(rf"[a-z0-9][a-z0-9-]{{0,{LONGEST_LABEL - 1}}}")
"""The label of a box; interface names have its first letters and digits."""


@cache
def modes() -> dict[str, Mode]:
    """Return every mode by its name, in listing order; our modes have precedence over others of the same name."""
    found = {mode.name: mode for mode in (*_of_others()[0], *_own())}
    return dict(sorted(found.items(), key=lambda one: (one[1].place, one[0])))


def left_out() -> list[str]:
    """Return why modes of other distributions are unusable, a sentence each."""
    return _of_others()[1]


@lru_cache
def parse(name: str) -> Device:
    """Parse a name; raises RequestError with what was expected."""
    variant, star, count = name.partition("*")
    if ":" in variant and (mode := modes().get(variant)):
        return _variant(name, mode, count if star else None)
    plain, colon, label = name.partition(":")
    kind, star, count = plain.partition("*")
    mode = modes().get(kind)
    if mode is None or (star and (mode.longest == 1 or not count.isdecimal())):
        meant = did_you_mean(kind, modes()) if mode is None else ""
        raise RequestError(f"device '{name}': expected {what_there_is()}{meant}")
    if colon and not mode.boxes:
        raise RequestError(f"device '{name}': the {kind} link is there once, and has no label")
    if mode.is_box and colon and not BOX_LABEL.fullmatch(label):
        wanted = f"a label has 1 to {LONGEST_LABEL} small letters, digits and dashes"
        raise RequestError(f"device '{name}': {wanted}")
    if colon and not mode.is_box and not LABEL.fullmatch(label):
        raise RequestError(f"device '{name}': a label has 1 to 8 small letters and digits")
    boxes = int(count) if star else mode.boxes
    if star and boxes == 1:
        raise RequestError(f"device '{name}': one {kind} is written '{kind}'")
    if star and not 2 <= boxes <= mode.longest:
        raise RequestError(f"device '{name}': a cascade has from 2 to {mode.longest} {kind}s")
    return Device(f"{kind}{star}{boxes if star else ''}{colon}{label}", mode, boxes, label)


def promises(name: str) -> str:
    """Return why a label is misleading: it is the name of a mode or a variant; empty if it is not."""
    device = known(name)
    if device is None or device.mode.is_box or device.mode.is_outside or not device.label:
        return ""
    words = {word for mode in modes().values() if mode.place < OF_OTHERS for word in mode.name.split(":")}
    if device.label not in words:
        return ""
    return f"a label that is no name of a mode: there is no {device.kind} of the mode {device.label}"


def _variant(name: str, mode: Mode, count: str | None) -> Device:
    """Return a device of a variant of a mode: without a label, and with a number if it counts something."""
    if not mode.counts and count is not None:
        raise RequestError(f"device '{name}': {mode.name} counts nothing, and stands in no row")
    if mode.counts and (count is None or not count.isdecimal() or not 1 <= int(count) <= mode.most):
        wanted = f"'{mode.name}*N' with N from 1 to {mode.most} {mode.counts}"
        raise RequestError(f"device '{name}': expected {wanted}")
    return Device(name if count is None else f"{mode.name}*{int(count)}", mode, mode.boxes, count=int(count or 0))


def twin_of(path: str) -> str:
    """Return the path of a second link of the same kind."""
    return A_A if path == DIRECT else f"{path}{TWIN}"


def fellow_of(path: str) -> str:
    """Return the path whose twin it is; for any other path, the path itself."""
    return DIRECT if path == A_A else path.removesuffix(TWIN)


def kind_of(path: str) -> str:
    """The path of whose kind a twin or a bypass is; any other path itself."""
    return path.removesuffix(BYPASS) if path.endswith(BYPASS) else fellow_of(path)


def is_long(path: str) -> bool:
    """Return whether its interface names are too long for further ports of a second link."""
    device = known(path)
    return device is not None and len(device.slug) > LONGEST_OF_PORTS


def known(name: str) -> Device | None:
    """Return the device of a name; None if there is none, as for a simulated line."""
    try:
        return parse(name)
    except RequestError:
        return None


def cables(name: str) -> int:
    """Return the number of cables from A to B over a device; two if it is unknown."""
    device = known(name)
    return device.cables if device else 2


def is_switch(name: str) -> bool:
    """Return whether it has more than two ports, and learns addresses."""
    device = known(name)
    return device is not None and device.mode.is_switch


def emulator_label(name: str) -> str | None:
    """Return the label of an emulator, "" if it has none; None for any other device."""
    device = known(name)
    return device.label if device and device.mode.is_emulator else None


def cascade(name: str) -> tuple[str, int] | None:
    """Return the device and the number of a cascade, known here or not; None for any other name."""
    found = CASCADE.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def variant_of(name: str) -> str | None:
    """Return the mode that it is a variant of, such as `bridge` for `bridge:rules*200`; None for any other name.

    For a name that is unknown here, return the part before its colon: a label looks like a variant there.
    """
    device = known(name)
    mode, colon, _ = (device.kind if device else name).partition(":")
    return mode if colon else None


def bare(name: str) -> str:
    """Return its name without number, label or variant, known here or not."""
    return re.split("[*:]", name, maxsplit=1)[0]


def references() -> tuple[str, ...]:
    """Return the modes that other devices' delays are compared with, in order of preference."""
    return tuple(one.name for one in sorted(modes().values(), key=lambda one: one.reference) if one.reference)


def rank(name: str) -> int:
    """Return the rank of a device as the subject of a run, the highest first; an unknown one has rank 1."""
    device = known(name)
    return device.rank if device else 1


def called(name: str) -> str:
    """Return a device's name for the beginning of a sentence, whether or not it is known here."""
    device = known(name)
    if device:
        return device.title
    row = cascade(name)
    return f"A cascade of {row[1]} {row[0]}" if row else f"The device {name}"


def what_there_is(least_boxes: int = 0) -> str:
    """Return the allowed names as part of a sentence."""
    plain = [
        f"'{mode.name}*N' with N from 1 to {mode.most} {mode.counts}" if mode.counts else f"'{mode.name}'"
        for mode in modes().values()
        if mode.boxes >= least_boxes and not mode.is_box and not mode.is_outside
    ]
    rows = [f"'{mode.name}*N' with N from 2 to {mode.longest}" for mode in modes().values() if mode.longest > 1]
    *names, last = [*plain, *rows]
    return f"{', '.join(names)} or {last}{''.join(f' ({sentence})' for sentence in left_out())}"


def _own() -> Iterator[Mode]:
    for one in pkgutil.iter_modules(__path__):
        mode = getattr(import_module(f"{__name__}.{one.name}"), "DEVICE", None)
        if isinstance(mode, Mode):
            yield mode


@cache
def _of_others() -> tuple[list[Mode], list[str]]:
    """Return the modes of other distributions, and why some are unusable; a broken one does not break a command."""
    usable, refused = [], []
    for one in entry_points(group=GROUP):
        try:
            usable.append(_usable(one.load()))
        except Exception as error:  # whatever their module raises
            refused.append(f"the entry point {one.name} = {one.value} of {GROUP} is left out: {error}")
    return usable, refused


def _usable(mode: object) -> Mode:
    if not isinstance(mode, Mode):
        raise MachineError("it is no device mode")
    longest = LONGEST_SLUG - len("*2") * (mode.longest > 1)
    if len(mode.name) > longest:
        raise MachineError(f"a name of {len(mode.name)} characters, which interfaces bear, is longer than {longest}")
    return mode
