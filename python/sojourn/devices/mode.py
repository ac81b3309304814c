"""The declaration of a device mode: the type of every module beside this one, and of those in other distributions.

A mode declares how its boxes are built and removed, what the machine must have for it, and how the device is named,
drawn and described. It consists of text and pure functions: a bed runs the commands, a report uses the texts, so both
sides of the run folder may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

LONGEST_SLUG = 8
"""The most characters of a device in interface names, which the kernel limits to 15."""


class Port(Protocol):
    """An interface that a box joins to another."""

    @property
    def dev(self) -> str: ...


@dataclass(frozen=True)
class Side:
    """One side of a box with its own network stack: addresses for its port, and those of the end behind it."""

    ip4: str
    ip6: str
    end_ip4: str
    end_ip6: str
    end_mac: str


class Box(Protocol):
    """One box of a device, as a mode sees it: two ports, or more for a switch, on one host."""

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
        """The interface of a switch itself; None for other modes, like the next two."""

    @property
    def ifindex(self) -> int | None: ...

    @property
    def mac(self) -> str | None: ...

    @property
    def count(self) -> int:
        """The number in a name such as `bridge:rules*200`; 0 for modes that count nothing."""

    @property
    def sides(self) -> tuple[Side, Side] | None:
        """The sides towards A and B; None for boxes that share their host with others."""


class Command(NamedTuple):
    """A line for a tool in batch mode (`ip`, `tc` and `bridge`), or for `sh`."""

    tool: str
    line: str


STAR = "M0,-1L0.26,-0.36L0.95,-0.31L0.42,0.14L0.59,0.81L0,0.44L-0.59,0.81L-0.42,0.14L-0.95,-0.31L-0.26,-0.36Z"
SALTIRE = "M-0.9,-0.6L-0.6,-0.9L0,-0.3L0.6,-0.9L0.9,-0.6L0.3,0L0.9,0.6L0.6,0.9L0,0.3L-0.6,0.9L-0.9,0.6L-0.3,0Z"
HOURGLASS = "M-0.8,-0.9L0.8,-0.9L-0.8,0.9L0.8,0.9Z"
BOW_TIE = "M-0.9,-0.8L0.9,0.8L0.9,-0.8L-0.9,0.8Z"
SPARK = "M0,-1L0.22,-0.22L1,0L0.22,0.22L0,1L-0.22,0.22L-1,0L-0.22,-0.22Z"
CHEVRON_UP = "M0,-0.9L0.95,0.3L0.95,0.9L0,-0.2L-0.95,0.9L-0.95,0.3Z"
CHEVRON_DOWN = "M0,0.9L0.95,-0.3L0.95,-0.9L0,0.2L-0.95,-0.9L-0.95,-0.3Z"
CHEVRON_LEFT = "M-0.9,0L0.3,-0.95L0.9,-0.95L-0.2,0L0.9,0.95L0.3,0.95Z"
CHEVRON_RIGHT = "M0.9,0L-0.3,-0.95L-0.9,-0.95L0.2,0L-0.9,0.95L-0.3,0.95Z"
UPRIGHT = "M-0.32,-1H0.32V1H-0.32Z"
LEVEL = "M-1,-0.32H1V0.32H-1Z"
TEE = "M-0.95,-0.9H0.95V-0.35H0.3V0.95H-0.3V-0.35H-0.95Z"
"""Symbols beside those that Vega-Lite names: paths within a square from -1 to 1."""


class Ink(NamedTuple):
    """The colour, dash and symbol of a device in figures.

    Devices whose colours are near for some readers differ in both dash and symbol (tests/unit/test_palette.py).
    """

    slug: str
    light: str
    dark: str
    dash: tuple[int, ...]
    symbol: str


Commands = Callable[[Box], Sequence[Command]]
Run = Callable[[Sequence[str]], str]
"""Runs a command on the devices' host and returns its output."""


def nothing(box: Box) -> Sequence[Command]:
    """Return no command."""
    del box
    return ()


def nobody(run: Run, boxes: Sequence[Box]) -> list[str]:
    """Return no port."""
    del run, boxes
    return []


def links_of(box: Box) -> Sequence[str]:
    """Return commands for the interfaces of a box, as `ip` shows them."""
    names = [*([box.name] if box.name else []), *(port.dev for port in box.ports)]
    return [f"ip -d link show dev {name}" for name in names]


def nothing_to_note(run: Run, box: Box) -> Sequence[str]:
    """Return no sentence."""
    del run, box
    return ()


@dataclass(frozen=True, kw_only=True)
class Mode:
    """A device mode: a kind of box between A and B."""

    name: str
    """The name in plans: up to 8 letters, digits, "_" and "-"; up to 6 if there may be several in a row.

    A variant of another mode has that one's name and a word of its own: "bridge:qos".
    """
    slug: str = ""
    """The name in interface names, if it differs; by default, for a variant, its word."""
    title: str
    """The name at the beginning of a sentence: "The Linux bridge"."""
    plural: str = ""
    """The plural, for several in a row: "Linux bridges"."""
    beyond: str = ""
    """What a variant has in addition to its mode, for the beginning of a sentence: "Our capture"."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """Titles of devices with certain labels."""
    box: str
    """The text on a box in a drawing."""
    ink: Ink | None = None
    """None: one of the colours for other devices."""
    inks: Mapping[str, Ink] = field(default_factory=dict)
    """The inks of cascades and labels: "*2", ":idle"."""
    place: int = 100
    """The place in legends and tables; plain devices of Sojourn itself have 0 to 99."""
    rank: int = 1
    """The rank as the subject of a run, the highest first; 0: it is only for comparison."""
    reference: int = 0
    """The rank as a reference for other devices' delays: 1 before 2; 0: it is none."""
    boxes: int = 1
    longest: int = 1
    """The most boxes in a row: `name*N`."""
    counts: str = ""
    """What the number in `name*N` counts, if not boxes in a row: "rules"."""
    most: int = 0
    """The maximum of that number."""
    is_apart: bool = False
    """Whether it has its own network stack, so that its changes to it do not affect other devices."""
    is_routed: bool = False
    """Whether it forwards by IP addresses: then its ends are in two subnets, and only IP passes."""
    acts_on_ip: bool = False
    """Whether it acts on IP packets only: raw frames pass, but without the work beyond forwarding."""
    key: str = ""
    """The key by which a packet is matched behind it, as in `sojourn match --key`.

    By default this is the whole frame for a bridge and the IP packet for a router.
    """
    sysctls: Mapping[str, str] = field(default_factory=dict)
    """Further sysctls of the host of a device with its own network stack."""
    polls: bool = False
    """Whether XDP redirects frames to its ports, whose peers must then poll (NAPI); GRO makes veths do so."""
    shapes: bool = False
    """Whether its ports have qdiscs of its own, so that the bed cannot put a shaper there."""
    is_switch: bool = False
    """Whether it joins any number of ports by an interface of its own that learns addresses."""
    is_box: bool = False
    """Whether a program of the user builds it."""
    is_outside: bool = False
    """Whether it is a device between real hosts that the user has cabled: it is not built, configured or read."""
    program: str = ""
    """A shell script that builds it, as a user's program builds a box; it bridges."""
    told: tuple[str, ...] = ()
    """The arguments of the script."""
    is_emulator: bool = False
    """Whether only a running `sojourn-instrument emulate` joins its ports."""
    is_needed: bool = False
    """Whether measuring requires it."""
    tools: Mapping[str, str] = field(default_factory=dict)
    """Programs that its commands need, each with its package."""
    fix: str = ""
    """What a machine lacks that cannot build it, and the command that fixes that."""
    build: Commands = nothing
    """Joins the ports of a bare box; these exist, are down, and have only MAC addresses."""
    join: Commands = nothing
    """Joins the ports once they are up."""
    waiting: Callable[[Run, Sequence[Box]], list[str]] = nobody
    """Returns the ports of its boxes that do not forward yet."""
    flush_fdb: Commands = nothing
    """Flushes a switch's FDB: the addresses that it has learned."""
    objects: Callable[[Box], Sequence[str]] = links_of
    """Returns commands that show its kernel objects, for the report: `nft list ruleset`, `tc -s qdisc show dev …`."""
    notes: Callable[[Run, Box], Sequence[str]] = nothing_to_note
    """Returns sentences about how it was built here, if that depends on the machine."""
    broken: Callable[[Run, Box], Sequence[str]] = nothing_to_note
    """Returns sentences about what was broken at the end of a session: a finding."""
    remove: Commands = nothing
    """Removes what would outlive the host's interfaces, which the bed removes itself.

    It also runs if the bed could not be built, and the box may not exist. After SIGKILL nothing runs it.
    """

    def key_of(self, *, is_routed: bool) -> str:
        """Return the key by which a packet is matched behind it, depending on whether its boxes route."""
        return self.key or ("router" if is_routed else "bridge")


@dataclass(frozen=True)
class Device:
    """The device between A and B on one link: none (`direct`), or boxes of one mode in a row."""

    name: str
    mode: Mode
    stations: int
    label: str = ""
    """Distinguishes devices of one mode."""
    count: int = 0
    """The number of what its mode counts."""

    @property
    def kind(self) -> str:
        """The name of its mode."""
        return self.mode.name

    @property
    def cables(self) -> int:
        """The number of cables from A to B over it."""
        return self.stations + 1

    @property
    def slug(self) -> str:
        """The device in interface names: its label, else its name."""
        if self.label:
            return self.label.replace("-", "")[:LONGEST_SLUG]
        own = self.mode.slug or self.mode.name.rpartition(":")[2]
        return own + (f"x{self.stations}" if self.stations > 1 else str(self.count or ""))

    @property
    def rank(self) -> int:
        """Its mode's, where it stands for it: neither a cascade nor one of several, unless it is an emulator."""
        known = self.mode.is_emulator or self.mode.is_box or self.mode.is_outside
        stands_for_it = known or self.count or self.name == self.mode.name
        return self.mode.rank if stands_for_it else min(self.mode.rank, 1)

    @property
    def title(self) -> str:
        """Its name for the beginning of a sentence."""
        if self.label in self.mode.titles:
            return self.mode.titles[self.label]
        called = self.mode.title
        if self.stations > 1:
            called = f"A cascade of {self.stations} {self.mode.plural or self.mode.name}"
        if self.count:
            called = f"{called} with {self.count} {self.mode.counts}"
        return f'{called} "{self.label}"' if self.label else called

    @property
    def ink(self) -> Ink | None:
        """Its own ink, if it has one."""
        return self.mode.ink if self.name == self.mode.name else self.mode.inks.get(self.name[len(self.mode.name) :])


def commands(tool: str, *lines: str) -> list[Command]:
    """Return several lines for one tool."""
    return [Command(tool, line) for line in lines]
