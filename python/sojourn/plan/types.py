"""A plan and the sections that every method has: the study, the bed, its emulators, the two ends.

The sections of a method are in its `ask` module, or in a module here if several methods share them. Has no rules
between values, and reads no file.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from sojourn import devices
from sojourn.backends import backends, is_simulated
from sojourn.methods import DEFAULT, load, packages
from sojourn.plan.rates import bit_rate, cable_rate
from sojourn.plan.section import HOUR_NS, key, section
from sojourn.plan.settings import AS_FOUND, SETTINGS, SettingsPlan
from sojourn.plan.values import AUTO, auto_or, duration, flag, half_width, list_of, matching, one_of, text, whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sojourn.plan.ask import Ask
    from sojourn.plan.trial import Trial

DIRECT = "direct"
"""The path without a device: the papers' "no bridge"."""

A_A = "a/a"
"""The A/A control: the direct path measured again as if it were a device. Its difference is the bed's resolution."""

WIRE = "wire"
"""The reference with as many links as a device's path: a redirect in the kernel between two ports."""

_NAMED = matching(
    devices.NAME,
    'a device such as "wire", "bridge", "bridge*2" or "emulate" ("direct" is always there)',
)
DEVICE = replace(_NAMED, read=lambda value: devices.ALSO_CALLED.get(name := _NAMED.read(value), name))
CPU = auto_or(whole(0, 4095))
_PORTS = whole(1, devices.MOST_PORTS)

DRAWN = ("layout", "addresses", "processes", "cores", "order", "aslr")
"""What each bed of a run draws anew unless it is held.

Numbers, indexes and order of links; MAC and IP addresses; the size of programs' environment; the cores of both ends;
the order of paths; the addresses of our programs' memory, which are not randomised if held.
"""

SWITCHED = ("idle", "rps", "frequency", *SETTINGS)
"""What a study of variance also switches on or off on each bed.

Idle processors that poll instead of sleeping; receive packet steering to all cores; processors at their highest
frequency; each of [settings]. Other studies do not change the first three.
"""


@section
class Study:
    """The question of a study, and its source."""

    name: str = key(
        matching(r"[a-z0-9][a-z0-9-]*", 'a name of small letters, digits and dashes, such as "bridge-latency"'),
        MISSING,
        "names the run folder",
    )
    title: str = key(text(), "", "headline of the report")
    question: str = key(text(), "", "what the study answers")
    paper: str = key(text(), "", "where the question comes from")
    method: str = key(one_of(*packages()), DEFAULT, "how it is answered; the sections below depend on it")
    hypotheses: tuple[str, ...] = key(
        list_of(text(), may_be_empty=True), (), "published hypotheses to test, of those that the method can test"
    )
    published: tuple[str, ...] = key(
        list_of(matching(r"[a-z0-9_]+", 'the name of a published table, such as "bridge2003_rtt"'), may_be_empty=True),
        (),
        "published tables to compare with this run",
    )
    until: str | None = key(
        half_width(),
        None,
        ("sessions go on until the headline's interval is at most this far from its estimate, on each side"),
    )
    budget_ns: int | None = key(
        duration(1_000_000_000, 1000 * HOUR_NS), None, "time limit; no session begins that would exceed it"
    )


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """Rates and delays of one path's cables, from A to B; a list of one applies to every cable."""

    rates_bps: tuple[int | None, ...]
    """Bits per second on the wire, each way; None: no limit."""
    delays_ns: tuple[int, ...]


@section
class BoxPlan:
    """The user's own box: a program that builds what is between two ports."""

    up: str = key(text(), MISSING, "the program that builds the box, with its arguments")
    down: str | None = key(text(), None, "a program that is run before it is removed")
    within_ns: int = key(duration(1_000_000, HOUR_NS), 30_000_000_000, "time until frames pass it")
    routed: bool | None = key(auto_or(flag()), AUTO, "whether it forwards by IP addresses; auto: found by trying")


@section
class BedPlan:
    """The machines and the devices between them."""

    backend: str = key(
        one_of(*backends()), "netns", "real frames in namespaces or between real hosts, or simulated lines"
    )
    hosts: str | None = key(text(), None, "the file that names real hosts and their cables: of --bed FILE.toml")
    devices: tuple[str, ...] = key(
        list_of(DEVICE, may_be_empty=True), ("wire", "bridge"), "what is put between the hosts"
    )
    device_cpu: str = key(
        matching(
            r"shared|own|loaded:([1-9]|[1-8]\d|9[0-5])%",
            '"shared", "own" or a load of at most 95 %, such as "loaded:50%"',
        ),
        "shared",
        "where the device's work is done",
    )
    mtu: int = key(whole(1280, 65_535), 1500, "bytes of an IP packet that fit a frame; IPv6 needs 1280")
    offloads: bool = key(flag(), False, "whether the links may use segmentation and checksum offloads")  # noqa: FBT003
    near: int = key(_PORTS, None, "ports of a bridge towards A; as many as the study needs")
    """More than one if there are several senders, or a load through the device."""
    far: int = key(_PORTS, None, "ports of a bridge towards B; as many as the study needs")
    bypass: bool = key(
        flag(),
        None,
        "whether each path has a second, separate device of its kind for bypass load; if the study needs one",
    )
    shaper: Literal["tbf", "htb"] = key(
        one_of("tbf", "htb"), "tbf", ("queueing discipline that limits a device to its rate")
    )
    rate_bps: int | None = key(bit_rate(), None, "rate at which a device sends towards B, in bits of frames with FCS")
    burst_bytes: int = key(whole(1_300, 100_000_000), 16_000, "size of the shaper's token bucket")
    queue_bytes: int = key(
        whole(1_300, 1_000_000_000),
        150_000,
        "size of the queue before it, and before each link with a rate; packets that do not fit are dropped",
    )
    link_rate_bps: int | None = key(
        cable_rate(),
        None,
        ("rate of every cable in each direction, in bits on the wire: our emulator is put into the cable"),
    )
    link_delay_ns: int = key(duration(0, HOUR_NS), 0, "delay of every cable, each way", quiet=True)
    """Both are moved to `links` when a plan is read, and have their defaults from then on."""
    sessions: int = key(whole(1, 1000), 1, "beds of the run, each made anew", quiet=True)
    most_sessions: int | None = key(whole(2, 1000), None, "with study.until or study.budget: most beds; by default 100")
    twins: bool = key(
        flag(),
        False,  # noqa: FBT003
        "whether each bed has two direct links and two of the device, which shows how far instances of either differ",
        quiet=True,
    )
    hold: tuple[str, ...] = key(
        list_of(one_of(*DRAWN), may_be_empty=True),
        (),
        "random choices that are made once for all beds, not anew for each",
        quiet=True,
    )
    links: Mapping[str, LinkPlan] = field(default_factory=dict)
    """Cables that are replaced by links of our emulator, by path."""
    boxes: Mapping[str, BoxPlan] = field(default_factory=dict)
    """Boxes that programs of the user build, by device."""
    outside_switches: tuple[str, ...] = ()
    """Devices that Sojourn does not build, and that have several ports at an end in the file of hosts."""
    lines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The behaviour of each device of a simulated bed, as the instrument reads it."""

    @property
    def simulated(self) -> bool:
        """Whether its lines are simulated, and time costs nothing."""
        return is_simulated(self.backend)

    def is_switch(self, device: str) -> bool:
        """Whether a device has more than two ports, and learns addresses."""
        return devices.is_switch(device) or device in self.outside_switches


@section
class EmulatorPlan:
    """The configuration of an emulator among the devices."""

    words: str | None = key(
        text(),
        None,
        'configuration string of the pipe in both directions; "" is an idle pipe; without the key, a plain bridge',
    )
    """Moved to the two below when a plan is read."""
    forward: str | None = key(text(), None, "pipe from A to B alone")
    backward: str | None = key(text(), None, "pipe from B to A alone")
    config: str | None = key(text(), None, "file of pipes and rules, in place of these strings")
    seed: int = key(whole(0, 2**62), 1, "of every impairment")
    engine: str = key(one_of("auto", "xdp", "packet"), "auto", "how frames are moved")
    cpu: int | None = key(CPU, AUTO, "core of the emulator; auto: the device's own, or one that the prober leaves")
    spin: bool | None = key(auto_or(flag()), AUTO, "polls without a pause; auto: where no other program has its core")
    fifo: bool | None = key(auto_or(flag()), AUTO, "real-time priority")
    budget_ns: int | None = key(
        duration(1, HOUR_NS), None, "a packet that leaves later than this after its time is late"
    )
    memory: str | None = key(text(), None, 'frames held at most, such as "256MiB"')
    compensate_ns: int = key(
        duration(0, 1_000_000_000),
        0,
        "path delay compensation: the delay outside the emulator, subtracted from each departure",
        quiet=True,
    )
    log: bool = key(flag(), None, "whether every packet is recorded; by default where the method needs it")


@section
class HostPlan:
    """The cores and scheduling of the two ends. None is "auto" everywhere here: chosen on the machine, and recorded."""

    prober_cpu: int | None = key(CPU, AUTO, "core of the prober")
    responder_cpu: int | None = key(CPU, AUTO, "core of the responder")
    fifo: bool | None = key(auto_or(flag()), AUTO, "real-time priority")
    wait: str | None = key(
        auto_or(one_of("spin", "sleep-then-spin", "sleep")), AUTO, "how the prober waits for the next departure"
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run does, with every default resolved.

    A section of the method is an attribute: `plan.pairs`.
    """

    study: Study
    bed: BedPlan
    host: HostPlan
    sections: Mapping[str, Any]
    """The method's own sections, by name."""
    emulators: Mapping[str, EmulatorPlan]
    """Emulators by label; "" is for labels without a section of their own."""
    asked: tuple[str, ...] = ()
    """What the user requested beyond the file, as typed: "--quick", "--set rounds=8"."""
    settings: SettingsPlan = AS_FOUND

    @property
    def twins(self) -> tuple[str, ...]:
        """The paths that have a second link: the direct one, the main device and, for probes, the reference.

        An emulator, and a path with rated links, has none: that would be another instance of a program. For streams, a
        device between real hosts has none either, nor a switch with many ports whose name leaves no room.
        """
        if not self.bed.twins:
            return ()
        main = max(self.bed.devices, key=devices.rank, default=None)
        doubled = dict.fromkeys(one for one in (main, self.reference) if one is not None)
        can = [one for one in doubled if one not in self.bed.links and devices.emulator_label(one) is None]
        if self.ask.twins == "all":
            return (DIRECT, *can)
        # The A/A control, if it is a path, is the second direct link itself, rated or not.
        has_control = getattr(self.sections.get("trials"), "a_a", False)
        own = () if DIRECT in self.bed.links and not has_control else (DIRECT,)
        several, is_real = max(self.bed.near, self.bed.far) > 1, self.bed.hosts is not None
        return (*own, *(one for one in can if not is_real and not (several and devices.is_long(one))))

    @property
    def reference(self) -> str | None:
        """The device that the others are compared with, besides the direct link and the wire; None if there is none."""
        found: str | None = getattr(self.sections.get("pairs"), "reference", None)
        return found

    @property
    def ask(self) -> Ask:
        """The ask of its method."""
        return ask_of(self.study.method)

    def expand(self) -> Sequence[Trial[Any]]:
        """Return every trial, in the order of measurement."""
        return self.ask.expand(self)

    def __getattr__(self, name: str) -> Any:
        if name not in self.sections:
            raise AttributeError(f"{self.study.method} has no section [{name}]")
        return self.sections[name]

    def with_section(self, name: str, value: Any) -> Plan:
        """Return the plan with another value of one section."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return Plan(**own | {"sections": {**self.sections, name: value}})


def ask_of(method: str) -> Ask:
    """Return the ask of a method."""
    found: Ask = load(method, "ask").ASK
    return found
