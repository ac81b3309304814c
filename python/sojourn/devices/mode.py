"""What a device mode declares of itself: the shape of every file beside this one, and of those that others add.

A mode says how its boxes are built, what the machine must have for it, how they are removed, and how the device is
named, drawn and described. It is text and pure functions alone: a bed runs the commands, a report uses the words, so
both sides of the run folder may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class Port(Protocol):
    """An interface that a box joins to another."""

    @property
    def dev(self) -> str: ...


class Box(Protocol):
    """One box of a device, as a mode sees it: two ports, or more where it is a switch, on one host."""

    @property
    def left(self) -> Port:
        """Its port towards A."""

    @property
    def right(self) -> Port:
        """Its port towards B."""

    @property
    def ports(self) -> Sequence[Port]:
        """Every port, further ones of a switch included."""

    @property
    def name(self) -> str | None:
        """The interface that a switch is itself; None for other modes, as are the next two."""

    @property
    def ifindex(self) -> int | None: ...

    @property
    def mac(self) -> str | None: ...


class Command(NamedTuple):
    """A line for a tool that reads lines: `ip`, `tc` and `bridge` in batch mode, or `sh`."""

    tool: str
    line: str


class Ink(NamedTuple):
    """How a device is drawn in figures."""

    slug: str
    light: str
    dark: str
    dash: tuple[int, ...]
    symbol: str


Commands = Callable[[Box], Sequence[Command]]
Run = Callable[[Sequence[str]], str]
"""Runs a command on the devices' host and gives its output."""


def nothing(box: Box) -> Sequence[Command]:
    """No command."""
    del box
    return ()


def nobody(run: Run, boxes: Sequence[Box]) -> list[str]:
    """No port is waited for."""
    del run, boxes
    return []


@dataclass(frozen=True, kw_only=True)
class Mode:
    """A device mode: the kinds of boxes that can stand between A and B."""

    name: str
    """As plans have it: up to 8 letters, digits, "_" and "-"; up to 6 where several may stand in a row."""
    title: str
    """Where a sentence begins: "The Linux bridge"."""
    plural: str = ""
    """Of several in a row: "Linux bridges"."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """Of devices with certain labels."""
    box: str
    """What is written on a box of a drawing."""
    ink: Ink | None = None
    """None: one of the colours for other devices."""
    inks: Mapping[str, Ink] = field(default_factory=dict)
    """Of cascades and labels: "*2", ":idle"."""
    place: int = 100
    """Where legends and tables list it; plain devices of Sojourn itself have 0 to 99."""
    rank: int = 1
    """Which device a run is about, the highest first; 0: it is there for others to be compared with."""
    boxes: int = 1
    longest: int = 1
    """How many may stand in a row: `name*N`."""
    is_switch: bool = False
    """Whether it joins any number of ports, by an interface of its own that learns addresses."""
    is_emulator: bool = False
    """Whether only a running `sojourn-instrument emulate` joins its ports."""
    is_needed: bool = False
    """Whether Sojourn's main job cannot be done without it."""
    tools: Mapping[str, str] = field(default_factory=dict)
    """Programs that its commands need, and the package of each."""
    fix: str = ""
    """What a machine lacks that cannot build it, and the command that fixes that."""
    build: Commands = nothing
    """Joins the ports of a bare box; these are there, down, with addresses of Ethernet alone."""
    join: Commands = nothing
    """The same, once the ports are up."""
    waiting: Callable[[Run, Sequence[Box]], list[str]] = nobody
    """The ports of its boxes that do not forward yet."""
    flush_fdb: Commands = nothing
    """Flushes a switch's FDB: the addresses that it has learned."""
    remove: Commands = nothing
    """Takes away what would outlive the host's interfaces, which the bed removes itself; it is run too where the bed
    could not be built, and the box perhaps never was. After SIGKILL nothing runs it."""


@dataclass(frozen=True)
class Device:
    """What stands between A and B on one link: nothing (`direct`), or boxes of one mode in a row."""

    name: str
    mode: Mode
    stations: int
    label: str = ""
    """Tells devices of one mode apart."""

    @property
    def kind(self) -> str:
        """The name of its mode."""
        return self.mode.name

    @property
    def cables(self) -> int:
        """How many cables lead from A to B over it."""
        return self.stations + 1

    @property
    def slug(self) -> str:
        """The device as it appears in interface names: its label, else its name."""
        return self.label or self.name.replace("*", "x")

    @property
    def rank(self) -> int:
        """Its mode's, where it stands for it: neither a cascade nor one of several, unless it is an emulator."""
        return self.mode.rank if self.mode.is_emulator or self.name == self.mode.name else min(self.mode.rank, 1)

    @property
    def title(self) -> str:
        """Its name where a sentence begins."""
        if self.label in self.mode.titles:
            return self.mode.titles[self.label]
        called = self.mode.title
        if self.stations > 1:
            called = f"A cascade of {self.stations} {self.mode.plural or self.mode.name}"
        return f'{called} "{self.label}"' if self.label else called

    @property
    def ink(self) -> Ink | None:
        """Its own, if it has any."""
        return self.mode.ink if self.name == self.mode.name else self.mode.inks.get(self.name[len(self.mode.name) :])


def commands(tool: str, *lines: str) -> list[Command]:
    """Several lines for one tool."""
    return [Command(tool, line) for line in lines]
