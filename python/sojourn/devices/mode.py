"""What a device mode declares of itself: the shape of every file beside this one, and of those that others add.

A mode says how its boxes are built, what the machine must have for it, how they are removed, and how the device is
named, drawn and described. It is text and pure functions alone: a bed runs the commands, a report uses the words, so
both sides of the run folder may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

LONGEST_SLUG = 8
"""Characters of a device in the names of interfaces: more, and these pass the kernel's 15."""


class Port(Protocol):
    """An interface that a box joins to another."""

    @property
    def dev(self) -> str: ...


@dataclass(frozen=True)
class Side:
    """One side of a box that stands apart: addresses that it may give its port, and those of the end behind it."""

    ip4: str
    ip6: str
    end_ip4: str
    end_ip6: str
    end_mac: str


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

    @property
    def count(self) -> int:
        """The number in a name such as `bridge:rules*200`; 0 for modes that count nothing."""

    @property
    def sides(self) -> tuple[Side, Side] | None:
        """Towards A and towards B; None for boxes that share their host with others."""


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


def links_of(box: Box) -> Sequence[str]:
    """The interfaces of a box, as `ip` shows them."""
    names = [*([box.name] if box.name else []), *(port.dev for port in box.ports)]
    return [f"ip -d link show dev {name}" for name in names]


def nothing_to_note(run: Run, box: Box) -> Sequence[str]:
    """No sentence."""
    del run, box
    return ()


@dataclass(frozen=True, kw_only=True)
class Mode:
    """A device mode: the kinds of boxes that can stand between A and B."""

    name: str
    """As plans have it: up to 8 letters, digits, "_" and "-"; up to 6 where several may stand in a row. A variant of
    another mode has that one's name and a word of its own: "bridge:qos"."""
    slug: str = ""
    """As interfaces bear it, where that is not the name; of a variant its word, unless it says otherwise."""
    title: str
    """Where a sentence begins: "The Linux bridge"."""
    plural: str = ""
    """Of several in a row: "Linux bridges"."""
    beyond: str = ""
    """Of a variant, what it has that its mode has not, where a sentence begins: "Our capture"."""
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
    reference: int = 0
    """Whether others' delays are reported beside its own, and its rank: 1 before 2; 0: none."""
    boxes: int = 1
    longest: int = 1
    """How many may stand in a row: `name*N`."""
    counts: str = ""
    """What the number in `name*N` counts where it is not boxes in a row: "rules"."""
    most: int = 0
    """The largest such number."""
    is_apart: bool = False
    """Whether it has a network stack to itself: what it does to one, other devices must not feel."""
    is_routed: bool = False
    """Whether it forwards by IP addresses: then its ends are in two subnets, and only IP passes."""
    acts_on_ip: bool = False
    """Whether it acts on IP packets alone: raw frames pass, but what it does beyond forwarding is not done to them."""
    key: str = ""
    """By what a packet is known again behind it, as `sojourn match --key` has it; of a bridge the whole frame and of a
    router the IP packet, unless it says otherwise."""
    sysctls: Mapping[str, str] = field(default_factory=dict)
    """Of the host of a device that stands apart, beside those of every such host."""
    polls: bool = False
    """Whether XDP redirects frames to its ports: the neighbours of these must poll (NAPI), as GRO makes veths do."""
    shapes: bool = False
    """Whether its ports have queueing disciplines of its own, so that no shaper of the bed fits there."""
    is_switch: bool = False
    """Whether it joins any number of ports, by an interface of its own that learns addresses."""
    is_box: bool = False
    """Whether a program of the user's builds it."""
    is_outside: bool = False
    """Whether it stands between real hosts, as somebody has cabled it: nothing of it is built, set or read."""
    program: str = ""
    """A shell script that builds it, as a user's program builds a box; it bridges."""
    told: tuple[str, ...] = ()
    """The words that the script is given."""
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
    objects: Callable[[Box], Sequence[str]] = links_of
    """Commands that show what it made in the kernel, for the report: `nft list ruleset`, `tc -s qdisc show dev …`."""
    notes: Callable[[Run, Box], Sequence[str]] = nothing_to_note
    """Sentences about how it was built here, where machines differ in that."""
    broken: Callable[[Run, Box], Sequence[str]] = nothing_to_note
    """Sentences on what of it no longer was what it should be when a session had been measured: a finding."""
    remove: Commands = nothing
    """Takes away what would outlive the host's interfaces, which the bed removes itself; it is run too where the bed
    could not be built, and the box perhaps never was. After SIGKILL nothing runs it."""

    def key_of(self, *, is_routed: bool) -> str:
        """By what a packet is known again behind it, where its boxes were seen to route, or not to."""
        return self.key or ("router" if is_routed else "bridge")


@dataclass(frozen=True)
class Device:
    """What stands between A and B on one link: nothing (`direct`), or boxes of one mode in a row."""

    name: str
    mode: Mode
    stations: int
    label: str = ""
    """Distinguish devices of one mode."""
    count: int = 0
    """Of what its mode counts."""

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
        """Its name where a sentence begins."""
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
        """Its own, if it has any."""
        return self.mode.ink if self.name == self.mode.name else self.mode.inks.get(self.name[len(self.mode.name) :])


def commands(tool: str, *lines: str) -> list[Command]:
    """Several lines for one tool."""
    return [Command(tool, line) for line in lines]
