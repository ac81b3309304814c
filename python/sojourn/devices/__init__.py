"""The devices that can be put under test, one file a mode; their names are parsed here and nowhere else.

A file of this folder with a `DEVICE` is a mode; another distribution adds one by an entry point of the group
`sojourn.devices`, whose value is a `Mode` (`their.module:DEVICE`); one that cannot be used is left out, and `left_out`
says why. A device's name is `mode`, `mode*N` (N boxes in a row) or either with `:label`; of a variant of a mode it is
`mode:variant`, or `mode:variant*N` where that counts something (`bridge:rules*200`). What a mode declares, both sides
of the run folder may read; one that is no longer installed is reported under its bare name.
"""

from __future__ import annotations

import pkgutil
import re
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from sojourn.devices.mode import LONGEST_SLUG, Box, Command, Device, Ink, Mode, Port, Side, commands
from sojourn.errors import MachineError, RequestError

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
"""What a name may look like; a simulated line may have one that is no device's."""

DIRECT, A_A = "direct", "a/a"
PERSON = "person"
"""Who puts a path between its ports where no program does."""
TWIN = "/2"
"""Ends the path of a second link of a device's kind; that of the direct link is the A/A control."""
BYPASS = "/bypass"
"""Ends the path of a second link of a kind that is loaded in the first one's place."""

LONGEST_OF_PORTS = 6
"""Characters of a slug in "d-<slug>-t-1r16", which is as long as the name of an interface may be."""

ALSO_CALLED = {"bridge:emulate": "emulate:zero"}
"""Other names that a plan may have, and what they stand for: our bridge that emulates a delay of 0."""

OF_OTHERS = 100
"""`Mode.place` of modes that others add."""

CASCADE = re.compile(r"([a-z][a-z0-9_-]*)\*([2-9])")
LABEL = re.compile(r"[a-z0-9]{1,8}")
LONGEST_LABEL = 24
BOX_LABEL = re.compile(rf"[a-z0-9][a-z0-9-]{{0,{LONGEST_LABEL - 1}}}")
"""Of a box; interfaces bear its first letters and digits."""


@cache
def modes() -> dict[str, Mode]:
    """Every mode by its name, in the order in which they are listed; ours go before others of the same name."""
    found = {mode.name: mode for mode in (*_of_others()[0], *_own())}
    return dict(sorted(found.items(), key=lambda one: (one[1].place, one[0])))


def left_out() -> list[str]:
    """Why modes of others cannot be used, a sentence each."""
    return _of_others()[1]


@lru_cache
def parse(name: str) -> Device:
    """Reads a name; raises RequestError with what was expected."""
    variant, star, count = name.partition("*")
    if ":" in variant and (mode := modes().get(variant)):
        return _variant(name, mode, count if star else None)
    plain, colon, label = name.partition(":")
    kind, star, count = plain.partition("*")
    mode = modes().get(kind)
    if mode is None or (star and (mode.longest == 1 or not count.isdecimal())):
        raise RequestError(f"device '{name}': expected {what_there_is()}")
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
    """Why a label would promise what is not built: it is the name of a mode or of a variant; empty where it is not."""
    device = known(name)
    if device is None or device.mode.is_box or device.mode.is_outside or not device.label:
        return ""
    words = {word for mode in modes().values() if mode.place < OF_OTHERS for word in mode.name.split(":")}
    if device.label not in words:
        return ""
    return f"a label that is no name of a mode: there is no {device.kind} of the mode {device.label}"


def _variant(name: str, mode: Mode, count: str | None) -> Device:
    """A device of a mode that is a variant of another: without a label, and with a number where it counts something."""
    if not mode.counts and count is not None:
        raise RequestError(f"device '{name}': {mode.name} counts nothing, and stands in no row")
    if mode.counts and (count is None or not count.isdecimal() or not 1 <= int(count) <= mode.most):
        wanted = f"'{mode.name}*N' with N from 1 to {mode.most} {mode.counts}"
        raise RequestError(f"device '{name}': expected {wanted}")
    return Device(name if count is None else f"{mode.name}*{int(count)}", mode, mode.boxes, count=int(count or 0))


def twin_of(path: str) -> str:
    """The path of a second link of the same kind."""
    return A_A if path == DIRECT else f"{path}{TWIN}"


def fellow_of(path: str) -> str:
    """The path whose twin it is; any other path itself."""
    return DIRECT if path == A_A else path.removesuffix(TWIN)


def kind_of(path: str) -> str:
    """The path of whose kind a twin or a bypass is; any other path itself."""
    return path.removesuffix(BYPASS) if path.endswith(BYPASS) else fellow_of(path)


def is_long(path: str) -> bool:
    """Whether its name is so long in those of interfaces that a second link of it has no room for further ports."""
    device = known(path)
    return device is not None and len(device.slug) > LONGEST_OF_PORTS


def known(name: str) -> Device | None:
    """The device of a name; None for one that is no device's, as a simulated line's may be."""
    try:
        return parse(name)
    except RequestError:
        return None


def cables(name: str) -> int:
    """How many cables lead from A to B over a device; two where it is not known."""
    device = known(name)
    return device.cables if device else 2


def is_switch(name: str) -> bool:
    """Whether it has more ports than two, and learns addresses."""
    device = known(name)
    return device is not None and device.mode.is_switch


def emulator_label(name: str) -> str | None:
    """The label of an emulator, "" where it has none; None for any other device."""
    device = known(name)
    return device.label if device and device.mode.is_emulator else None


def cascade(name: str) -> tuple[str, int] | None:
    """The device of which several stand in a row, and how many, known here or not; None for any other name."""
    found = CASCADE.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def variant_of(name: str) -> str | None:
    """The mode that it is a variant of, as `bridge` of `bridge:rules*200`; None for any other name.

    Of a name that is not known here, what stands before its colon: a label looks like a variant there.
    """
    device = known(name)
    mode, colon, _ = (device.kind if device else name).partition(":")
    return mode if colon else None


def bare(name: str) -> str:
    """What it is called without its number, label or variant, known here or not."""
    return re.split("[*:]", name, maxsplit=1)[0]


def references() -> tuple[str, ...]:
    """The modes whose delays others' are reported beside, the first of them that is there."""
    return tuple(one.name for one in sorted(modes().values(), key=lambda one: one.reference) if one.reference)


def rank(name: str) -> int:
    """Which device a run is about, the highest first; one that is not known is there for its own sake."""
    device = known(name)
    return device.rank if device else 1


def called(name: str) -> str:
    """A device's name where a sentence begins, whether it is known here or not."""
    device = known(name)
    if device:
        return device.title
    row = cascade(name)
    return f"A cascade of {row[1]} {row[0]}" if row else f"The device {name}"


def what_there_is(least_boxes: int = 0) -> str:
    """The names that may be asked for, as a sentence has them."""
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
    """The modes of other distributions, and why some cannot be used; a broken one spoils no command."""
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
