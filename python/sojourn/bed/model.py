"""The model of a bed, before anything is built: hosts, links, devices, and all their names and addresses.

Everything here is pure: the same devices give the same topology, on every machine and for every backend. It does not
know namespaces, commands or processes.

The address plan: link k (direct is 1, the devices follow in their order) has 10.77.k.1 and fd77:0:0:k::1 at host A, .2
and ::2 at host B, interfaces `a-<path>` and `b-<path>`, MACs 02:77:00:00:k:01 and :02. Inside the device, station i has
a left port `d-<path>-<i>l` (towards A) and a right one `d-<path>-<i>r`. A bridge may have further A-side ends, the j-th
(from 2) `a-<path>-<j>` with 10.77.k.(10+j), ::(10+j hex) and 02:77:00:00:k:(10+j hex) at `d-<path>-1l<j>`, and further
B-side ends `b-<path>-<j>` with 10.77.k.(100+j), ::(40+j hex) and 02:77:00:00:k:(40+j hex) at its last station's
`…r<j>`. So may a device between real hosts that Sojourn does not build: of the cables of these ends it knows one port
alone. Behind a box that routes, B is in a subnet of its own: 10.78.k.2 and fd78:0:0:k::2, and the box has .254 and
::fe in both. A bypass is one more link with a second device of the same kind; its path is `<device>/bypass`, its names
end in `-y`. Its load loads the machine as the device does, but not the device. A twin is one more link of the same kind
that is measured like the first; its names end in `-t`, its path is `a/a` for the direct link and `<device>/2` for a
device. No port has 02:77:00:00:k:fe. Interface indexes are all different: two veth ends with the same index stay down
for up to a second.

A bed may draw its layout: then k is random, and links are made in a random order. So addresses, MACs, indexes and
positions in the kernel's tables differ between the sessions of a run.

A device may have a label, which replaces it in the names: so several of one kind have different names. A cable with a
rate contains an emulator (bed/emulated.py): its ports are `l-<path>-<i>l` and `…r`, i from 1 at A, and `l-<path>-n<j>l`
or `-f<j>l` on the cables of further ends.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from sojourn import devices as device_modes
from sojourn.backends import backends
from sojourn.bed.device_cpu import DeviceCpu
from sojourn.bed.emulated import Emulated, LinkSpec, Rated
from sojourn.bed.hosts import DEVICES, DEVICES_HOST, END_HOSTS, HOSTS, Host, HostName, require_paths
from sojourn.devices import BYPASS, Side
from sojourn.errors import RequestError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sojourn.devices import Device, Mode

NUMBERS = range(1, 251)
"""The numbers of links in a drawn layout: an octet of addresses and MACs, and the base of interface indexes."""
ETHERNET_BYTES = 18  # header and FCS
LEAST_MTU_BYTES = 1280  # the minimum for IPv6; every link carries both families
GREATEST_MTU_BYTES = 65535


@dataclass(frozen=True)
class BoxSpec:
    """The user's own box."""

    up: str
    """The program that builds it, with its full path and arguments."""
    down: str | None = None
    within_ns: int = 30_000_000_000
    """The time within which it must let frames pass."""
    routed: bool | None = None
    """Whether it forwards by IP addresses; None: this is found by probing."""


@dataclass(frozen=True)
class HostSpec:
    """A real host, and the options for OpenSSH to reach it."""

    address: str
    """As for `ssh`: a name, an address, or a host of the user's configuration."""
    user: str | None = None
    port: int | None = None
    identity: str | None = None
    """The file of a private key."""
    jump: str | None = None
    """The jump host."""
    config: str | None = None
    """A configuration file of OpenSSH that replaces the user's own."""
    sudo: bool = True
    """Whether to use `sudo -n` if the user is not root."""
    folder: str = "/var/tmp"
    """The folder for records until they are fetched."""
    keep: bool = False
    """Whether the instrument stays on the host."""


@dataclass(frozen=True)
class PathSpec:
    """The interfaces of a path of real hosts: at both ends, and at the device's host if Sojourn builds the device."""

    a: tuple[str, ...]
    """At A: the first is the one that every study has; more of them for studies of several senders or receivers."""
    b: tuple[str, ...]
    left: tuple[str, ...] = ()
    """The device's ports towards A, each cabled to the one in its place there."""
    right: tuple[str, ...] = ()
    """The same towards B."""
    switch: str | None = None
    """What connects the path between ports that it shares with others: a program, or "person"."""


@dataclass(frozen=True)
class BedSpec:
    """The configuration of a bed."""

    backend: str = "netns"
    devices: tuple[str, ...] = ()
    device_cpu: str = "shared"
    mtu: int = 1500
    offloads: bool = False
    prober_cpu: int | None = None
    responder_cpu: int | None = None
    near: int = 1
    far: int = 1
    bypass: bool = False
    shaper: str = "tbf"
    rate_bps: int | None = None
    """Bits of frames with FCS per second at each device's B side; None: not shaped."""
    burst_bytes: int = 16_000
    queue_bytes: int = 150_000
    links: Mapping[str, LinkSpec] = field(default_factory=dict)
    """Rates and delays of cables, by path."""
    cgroups: bool = False
    """Whether hosts A and B each have a cgroup for their programs."""
    twins: tuple[str, ...] = ()
    """Paths, "direct" among them, that have a second link of the same kind."""
    layout: int | None = None
    """The seed for numbers and order of links; None: the same on every machine."""
    addresses: int | None = None
    """The seed for the numbers in addresses and MACs; None: those of the links."""
    has_direct: bool = True
    """Whether there is a direct link, which every comparison needs."""
    switches: Mapping[str, bool] = field(default_factory=dict)
    """What is switched on or off for this bed (`bed.switches`)."""
    boxes: Mapping[str, BoxSpec] = field(default_factory=dict)
    """The boxes that programs of the user build, by device."""
    hosts: Mapping[HostName, HostSpec] = field(default_factory=dict)
    """The real hosts, if the bed consists of such."""
    paths: Mapping[str, PathSpec] = field(default_factory=dict)
    """The interfaces of each path of real hosts."""
    every_port: bool = False
    """Whether each path has all ports that `paths` names, and not as many as `near` and `far` ask; and bypasses where
    it names them."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of its ports and hosts by their names in sojourn.plan.settings, with the kernel's values."""


@dataclass(frozen=True)
class Port:
    """One end of a cable."""

    host: HostName
    dev: str
    ifindex: int
    mac: str


@dataclass(frozen=True)
class End(Port):
    """A port of host A or B, with its addresses."""

    ip4: str
    ip6: str


@dataclass(frozen=True)
class Cable:
    """Two ports joined back to back: a veth pair, or a patch cord between real ports."""

    left: Port
    right: Port


@dataclass(frozen=True)
class Stretch:
    """The connection of two neighbouring ports: a cable, or two with a rated link between them."""

    cables: tuple[Cable, ...]
    emulated: Emulated | None

    @property
    def left(self) -> Port:
        """Its end towards A."""
        return self.cables[0].left

    @property
    def right(self) -> Port:
        """Its end towards B."""
        return self.cables[-1].right


@dataclass(frozen=True)
class Station:
    """One box of a device: its ports, and the interface that joins them, if there is one."""

    kind: str
    """The name of its mode."""
    left: Port
    right: Port
    name: str | None
    ifindex: int | None
    mac: str | None
    further_left: tuple[Port, ...] = ()
    further_right: tuple[Port, ...] = ()
    count: int = 0
    sides: tuple[Side, Side] | None = None

    @property
    def host(self) -> HostName:
        """The host that has it."""
        return self.left.host

    @property
    def mode(self) -> Mode:
        """The mode: what joins its ports."""
        return device_modes.modes()[self.kind]

    @property
    def lefts(self) -> tuple[Port, ...]:
        """Every port towards A."""
        return (self.left, *self.further_left)

    @property
    def rights(self) -> tuple[Port, ...]:
        """Every port towards B."""
        return (self.right, *self.further_right)

    @property
    def ports(self) -> tuple[Port, ...]:
        """Every port that it has."""
        return (*self.lefts, *self.rights)


@dataclass(frozen=True)
class Link:
    """One way from A to B: a path of the experiment, with everything that is needed to send a probe over it."""

    path: str
    number: int
    device: Device
    near_ends: int = 1
    far_ends: int = 1
    rated: tuple[Rated | None, ...] = ()
    """The rate of each cable from A to B; empty if none has one. Further ends have that of their side's cable."""
    is_twin: bool = False
    """Whether it is the second of its kind."""
    addressed: int | None = None
    """The number in its addresses and MACs; None: the number in its indexes."""
    is_routed: bool = False
    """Whether B is in a subnet of its own, behind a box that forwards by IP addresses."""
    wired_as: str | None = None
    """The path whose ports it shares, which gives it names of interfaces and numbers; None: its own."""

    @property
    def octet(self) -> int:
        """The k of its addresses and MACs."""
        return self.number if self.addressed is None else self.addressed

    @property
    def is_bypass(self) -> bool:
        """Whether it is a bypass, which is loaded instead of the device."""
        return self.path.endswith(BYPASS)

    @property
    def slug(self) -> str:
        """The path as it appears in interface names."""
        if self.wired_as is not None:
            return self.wired_as
        return self.device.slug + "-y" * self.is_bypass + "-t" * self.is_twin

    @cached_property
    def near(self) -> tuple[End, ...]:
        """The ends at A; every path has the first one."""
        first = End("a", self.a_dev, self.number * 100 + 1, self.a_mac, self.a_ip4, self.a_ip6)
        return (first, *(self._end("a", j, 10, 0x10) for j in range(2, self.near_ends + 1)))

    @cached_property
    def far(self) -> tuple[End, ...]:
        """The ends at B; every path has the first one."""
        first = End("b", self.b_dev, self.number * 100 + 2, self.b_mac, self.b_ip4, self.b_ip6)
        return (first, *(self._end("b", j, 100, 0x40) for j in range(2, self.far_ends + 1)))

    @property
    def nobody_mac(self) -> str:
        """An address of this link that no port has: a bridge floods what is sent to it."""
        return f"02:77:00:00:{self.octet:02x}:fe"

    @property
    def a_dev(self) -> str:
        return f"a-{self.slug}"

    @property
    def b_dev(self) -> str:
        return f"b-{self.slug}"

    @property
    def a_mac(self) -> str:
        return f"02:77:00:00:{self.octet:02x}:01"

    @property
    def b_mac(self) -> str:
        return f"02:77:00:00:{self.octet:02x}:02"

    @property
    def a_ip4(self) -> str:
        return f"10.77.{self.octet}.1"

    @property
    def b_ip4(self) -> str:
        return f"10.{78 if self.is_routed else 77}.{self.octet}.2"

    @property
    def a_ip6(self) -> str:
        return f"fd77:0:0:{self.octet:x}::1"

    @property
    def b_ip6(self) -> str:
        return f"fd{78 if self.is_routed else 77}:0:0:{self.octet:x}::2"

    @property
    def device_host(self) -> HostName:
        """The host of its boxes."""
        return f"{DEVICES}-{self.slug}" if self.device.mode.is_apart else DEVICES

    @property
    def sides(self) -> tuple[Side, Side]:
        """The two subnets that a box may use for its ports, whether it routes or not."""
        k = self.octet
        left = Side(f"10.77.{k}.254", f"fd77:0:0:{k:x}::fe", self.a_ip4, self.a_ip6, self.a_mac)
        return left, Side(f"10.78.{k}.254", f"fd78:0:0:{k:x}::fe", f"10.78.{k}.2", f"fd78:0:0:{k:x}::2", self.b_mac)

    @property
    def a_port(self) -> End:
        return self.near[0]

    @property
    def b_port(self) -> End:
        return self.far[0]

    @cached_property
    def stations(self) -> tuple[Station, ...]:
        """The boxes from A to B that a bed builds; none if the device is an existing box on the bench."""
        if self.device.mode.is_outside:
            return ()
        return tuple(self._station(i) for i in range(1, self.device.stations + 1))

    @cached_property
    def further_cables(self) -> tuple[Cable, ...]:
        """The cables of the further ends, which join the first and the last station."""
        return tuple(cable for one in self.further_stretches for cable in one.cables)

    @cached_property
    def emulated(self) -> tuple[Emulated, ...]:
        """The port pairs that only running emulators join: an emulated device, and each cable with a rate."""
        devices = [
            Emulated(_plain_name(self.slug), self.path, station.left, station.right, label=self.device.label)
            for station in self.stations
            if station.mode.is_emulator
        ]
        return (*devices, *(one.emulated for one in (*self.stretches, *self.further_stretches) if one.emulated))

    @property
    def boxes(self) -> tuple[str, ...]:
        """The labels of boxes in a drawing, from A to B."""
        return (self.device.mode.box,) * self.device.stations

    @property
    def loose(self) -> tuple[End, ...]:
        """The further ends whose cables lead to a device that Sojourn does not build: their other ports are unknown."""
        return (*self.near[1:], *self.far[1:]) if self.device.mode.is_outside else ()

    @property
    def ports(self) -> tuple[Port, ...]:
        """Every cable end of the link, from A to B and then the further ones."""
        cables = (*self.cables, *self.further_cables)
        return (*(port for cable in cables for port in (cable.left, cable.right)), *self.loose)

    @cached_property
    def cables(self) -> tuple[Cable, ...]:
        """The cables from A to B: one more than there are stations, and one more for each with a rate."""
        return tuple(cable for one in self.stretches for cable in one.cables)

    @cached_property
    def stretches(self) -> tuple[Stretch, ...]:
        """From A to B, port to port: one more than there are stations."""
        ports = [self.a_port, *(p for s in self.stations for p in (s.left, s.right)), self.b_port]
        pairs = zip(ports[::2], ports[1::2], strict=True)
        rated = self.rated or (None,) * (len(self.stations) + 1)
        return tuple(
            self._stretch(Cable(*pair), str(i), 2 * i, one)
            for i, (pair, one) in enumerate(zip(pairs, rated, strict=True), start=1)
        )

    @cached_property
    def further_stretches(self) -> tuple[Stretch, ...]:
        """The same for the further ends."""
        if not self.stations:
            return ()
        near = list(zip(self.near[1:], self.stations[0].further_left, strict=True))
        far = list(zip(self.stations[-1].further_right, self.far[1:], strict=True))
        first, last = (self.rated[0], self.rated[-1]) if self.rated else (None, None)
        return (
            *(self._stretch(Cable(*pair), f"n{j}", 0x10 + 2 * j, first) for j, pair in enumerate(near, start=2)),
            *(self._stretch(Cable(*pair), f"f{j}", 0x40 + 2 * j, last) for j, pair in enumerate(far, start=2)),
        )

    def _stretch(self, cable: Cable, which: str, place: int, rated: Rated | None) -> Stretch:
        """Return a cable as it is, or with an emulator in it; `place` numbers the emulator's ports within the link."""
        if rated is None:
            return Stretch((cable,), None)
        name = f"l-{self.slug}-{which}"
        left, right = (
            Port(
                DEVICES,
                f"{name}{side}",
                200_000 + self.number * 0x100 + place + which_port,
                self._rated_mac(place + which_port),
            )
            for which_port, side in enumerate("lr")
        )
        joined = Emulated(_plain_name(name), self.path, left, right, rated=rated)
        return Stretch((Cable(cable.left, left), Cable(right, cable.right)), joined)

    def _rated_mac(self, place: int) -> str:
        return f"02:77:00:03:{self.octet:02x}:{place:02x}"

    def _station(self, i: int) -> Station:
        base, stem = self.number * 100 + 10 * i, f"d-{self.slug}-{i}"
        mode, count = self.device.mode, self.device.count
        left = Port(self.device_host, f"{stem}l", base, self._inner_mac(i, 1))
        right = Port(self.device_host, f"{stem}r", base + 1, self._inner_mac(i, 2))
        sides = self.sides if mode.is_apart else None
        if not mode.is_switch:
            return Station(mode.name, left, right, None, None, None, count=count, sides=sides)
        lefts = tuple(self._further(f"{stem}l", j, 0x10) for j in range(2, self.near_ends + 1)) if i == 1 else ()
        is_last = i == self.device.stations
        rights = tuple(self._further(f"{stem}r", j, 0x40) for j in range(2, self.far_ends + 1)) if is_last else ()
        own = (stem, base + 2, self._inner_mac(i, 3))
        return Station(mode.name, left, right, *own, lefts, rights, count=count, sides=sides)

    def _end(self, host: HostName, j: int, ip_base: int, mac_base: int) -> End:
        """The j-th end at a host, from 2."""
        mac = f"02:77:00:00:{self.octet:02x}:{mac_base + j:02x}"
        ip4, ip6 = f"10.77.{self.octet}.{ip_base + j}", f"fd77:0:0:{self.octet:x}::{mac_base + j:x}"
        return End(host, f"{host}-{self.slug}-{j}", self._further_index(mac_base + j), mac, ip4, ip6)

    def _further(self, stem: str, j: int, mac_base: int) -> Port:
        """The device's port of the j-th end, from 2."""
        mac = f"02:77:00:02:{self.octet:02x}:{mac_base + j:02x}"
        return Port(self.device_host, f"{stem}{j}", self._further_index(0x80 + mac_base + j), mac)

    def _further_index(self, which: int) -> int:
        return 100_000 + self.number * 0x100 + which

    def _inner_mac(self, station: int, which: int) -> str:
        return f"02:77:00:01:{self.octet:02x}:{station:x}{which:x}"


@dataclass(frozen=True)
class Topology:
    """All paths of a bed; they exist at the same time as parallel links between A and B, unless they share ports."""

    links: tuple[Link, ...]
    hosts: tuple[Host, ...] = field(default=HOSTS)
    laid: tuple[Link, ...] = ()
    """The links in the order in which they are made."""

    @classmethod
    def of(
        cls,
        devices: tuple[str, ...],
        near: int = 1,
        far: int = 1,
        *,
        bypass: bool = False,
        links: Mapping[str, LinkSpec] | None = None,
    ) -> Topology:
        """Return the layout that is the same on every machine."""
        return cls.of_spec(BedSpec(devices=devices, near=near, far=far, bypass=bypass, links=links or {}))

    @classmethod
    def of_spec(cls, spec: BedSpec) -> Topology:
        """Return the layout: direct link, a link per device (bridges with further ends), then bypasses and twins."""
        parsed = [device_modes.parse(name) for name in spec.devices]
        _require_names_of_their_own(parsed)
        direct = [device_modes.parse("direct")] if spec.has_direct else []
        row = [*direct, *(device for device in parsed if device.stations)]
        for name, ends in (("near", spec.near), ("far", spec.far)):
            if not 1 <= ends <= device_modes.MOST_PORTS:
                raise RequestError(f"{name} = {ends}: a bridge has from 1 to {device_modes.MOST_PORTS} ports on a side")
        paths = [(device.name, device) for device in row]
        bypasses = {f"{device.name}{BYPASS}": device for device in row if spec.bypass}
        paths += [one for one in bypasses.items() if not spec.every_port or one[0] in spec.paths]
        paths += [(device_modes.twin_of(device.name), device) for device in row if device.name in spec.twins]
        draw = None if spec.layout is None else random.Random(spec.layout)
        numbers = range(1, len(paths) + 1) if draw is None else draw.sample(NUMBERS, len(paths))
        numbered = zip(numbers, paths, strict=True)
        plain = [_link(path, number, device, spec) for number, (path, device) in numbered]
        if spec.addresses is not None:
            octets = random.Random(f"{spec.addresses}/addresses").sample(NUMBERS, len(plain))
            plain = [replace(link, addressed=octet) for link, octet in zip(plain, octets, strict=True)]
        found = _sharing(tuple(_boxed(_rated(link, spec.links), spec.boxes) for link in plain), spec.paths)
        common = [host for host in HOSTS if not spec.hosts or host.name != DEVICES or DEVICES_HOST in spec.hosts]
        apart = [Host(link.device_host, f"{link.path} alone") for link in found if link.device_host != DEVICES]
        cabled = tuple(link for link in found if link.wired_as is None)
        laid = cabled if draw is None else tuple(draw.sample(cabled, len(cabled)))
        return cls(found, (*common, *apart), laid)

    @cached_property
    def paths(self) -> Mapping[str, Link]:
        """The links by the name of their path, direct first; the A/A control has its own if `direct` has a twin."""
        return {link.path: link for link in self.links}

    def link(self, path: str) -> Link:
        """Return the link of a path; `a/a` is the direct link itself if that has no twin."""
        try:
            return self.paths[device_modes.DIRECT if path == device_modes.A_A not in self.paths else path]
        except KeyError:
            raise RequestError(f"the bed has no path '{path}'; it has {', '.join(self.paths)} and a/a") from None

    @property
    def device_hosts(self) -> tuple[HostName, ...]:
        """The hosts that hold devices, the shared one first."""
        return tuple(host.name for host in self.hosts if host.name not in END_HOSTS)

    @property
    def cables(self) -> tuple[Cable, ...]:
        return tuple(cable for link in self.laid for cable in (*link.cables, *link.further_cables))

    @property
    def stations(self) -> tuple[Station, ...]:
        return tuple(station for link in self.laid for station in link.stations)

    @property
    def emulated(self) -> tuple[Emulated, ...]:
        """Everything that only running emulators join."""
        return tuple(one for link in self.laid for one in link.emulated)

    def ports(self, host: HostName) -> tuple[Port, ...]:
        """Every cable end at a host."""
        return tuple(port for link in self.laid for port in link.ports if port.host == host)


def _plain_name(dashed: str) -> str:
    """Return a name for records: letters and digits only."""
    return dashed.replace("-", "")


def _link(path: str, number: int, device: Device, spec: BedSpec) -> Link:
    """Return a link; only a switch has further ends, and its twin if their names fit; a bypass has one pair.

    A device that Sojourn does not build is one if it has several ports at an end.
    """
    is_twin = path == device_modes.twin_of(device.name)
    one = Link(path, number, device, is_routed=device.mode.is_routed, is_twin=is_twin)
    own = spec.paths.get(path)
    several = own is not None and max(len(own.a), len(own.b)) > 1
    is_built = device.mode.is_switch and not (is_twin and device_modes.is_long(device.name))
    if path.endswith(BYPASS) or not (is_built or (device.mode.is_outside and several)):
        return one
    near, far = (len(own.a), len(own.b)) if spec.every_port and own is not None else (spec.near, spec.far)
    return replace(one, near_ends=near, far_ends=far)


def _sharing(links: tuple[Link, ...], paths: Mapping[str, PathSpec]) -> tuple[Link, ...]:
    """Return the links; one that shares ports with an earlier link has that one's names and numbers.

    Only one of them is connected at a time.
    """
    first: dict[tuple[tuple[str, ...], tuple[str, ...]], Link] = {}
    found = []
    for link in links:
        own = paths.get(link.path)
        if own is not None and own.switch is not None:
            one = first.setdefault((own.a, own.b), link)
            if one is not link:
                link = replace(link, number=one.number, addressed=one.addressed, wired_as=one.slug)  # noqa: PLW2901
        found.append(link)
    return tuple(found)


def _rated(link: Link, links: Mapping[str, LinkSpec]) -> Link:
    """Return the link with the rates of its cables; a bypass has those of its device."""
    spec = links.get(link.device.name)
    if spec is None:
        return link
    return replace(link, rated=spec.cables(len(link.stations) + 1, link.path))


def _boxed(link: Link, boxes: Mapping[str, BoxSpec]) -> Link:
    """Return the link of a box, routed if its configuration says so."""
    box = boxes.get(link.device.name)
    return link if box is None or box.routed is None else replace(link, is_routed=box.routed)


def _require_names_of_their_own(devices: list[Device]) -> None:
    """Refuse devices with the same name: interfaces are named after devices and labels."""
    taken = {"direct": device_modes.parse("direct")}
    for device in (device for device in devices if device.stations):
        if device.slug in taken and taken[device.slug] == device:
            raise RequestError(f"device '{device.name}' is asked for twice; once is enough")
        if device.slug in taken:
            raise RequestError(f"devices '{taken[device.slug].name}' and '{device.name}': expected labels that differ")
        taken[device.slug] = device


def checked(spec: BedSpec) -> BedSpec:
    """Return the same spec if its values are possible; the cores of the machine are not checked."""
    if spec.backend not in backends():
        meant = did_you_mean(spec.backend, backends())
        raise RequestError(f"bed backend '{spec.backend}': expected {' or '.join(map(repr, backends()))}{meant}")
    if not LEAST_MTU_BYTES <= spec.mtu <= GREATEST_MTU_BYTES:
        raise RequestError(
            f"mtu = {spec.mtu}: expected {LEAST_MTU_BYTES} to {GREATEST_MTU_BYTES} bytes (every link carries IPv6 too)"
        )
    if spec.shaper not in ("tbf", "htb"):
        raise RequestError(f"shaper '{spec.shaper}': expected 'tbf' or 'htb'")
    if spec.rate_bps is not None and spec.burst_bytes < spec.mtu + ETHERNET_BYTES:
        raise RequestError(
            f"burst_bytes = {spec.burst_bytes}: expected at least {spec.mtu + ETHERNET_BYTES}, one frame"
        )
    Topology.of_spec(spec)
    DeviceCpu.parse(spec.device_cpu)
    if spec.hosts:
        require_paths(Topology.of_spec(spec), spec)
    for name in spec.devices:
        if device_modes.parse(name).mode.is_outside and not spec.hosts:
            raise RequestError(f"device '{name}' stands between real hosts: expected --bed with a file that names them")
        if device_modes.parse(name).mode.is_box and name not in spec.boxes:
            raise RequestError(f"device '{name}': expected a section [bed.boxes] that names its program")
    return spec
