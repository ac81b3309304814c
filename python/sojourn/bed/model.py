"""What a bed is, before anything is built: hosts, links, devices, and every name and address they will have.

Everything here is pure: the same devices give the same topology, on every machine and for every backend. It knows
nothing of namespaces, commands or processes.

The plan of addresses: link k (direct is 1, the devices follow in their order) has 10.77.k.1 and fd77:0:0:k::1 at host
A, .2 and ::2 at host B, interfaces `a-<arm>` and `b-<arm>`, MACs 02:77:00:00:k:01 and :02. Inside the device, station
i has a left port `d-<arm>-<i>l` (towards A) and a right one `d-<arm>-<i>r`. A bridge may have further near ends, the
j-th (from 2) `a-<arm>-<j>` with 10.77.k.(10+j), ::(10+j hex) and 02:77:00:00:k:(10+j hex) at `d-<arm>-1l<j>`, and
further far ends `b-<arm>-<j>` with 10.77.k.(100+j), ::(40+j hex) and 02:77:00:00:k:(40+j hex) at its last station's
`…r<j>`. A decoy is one more link with the same device, its arm `<device>/decoy`, its names ending in `-y`: what loads
it loads the machine as the device does, and not the device. Nobody has 02:77:00:00:k:fe. Interface indexes differ
everywhere: two veth ends with the same index stay down for up to a second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from sojourn.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

HostName = Literal["a", "b", "d"]
DeviceKind = Literal["direct", "wire", "bridge"]

LONGEST_CASCADE = 4
MOST_ENDS = 17  # sixteen senders, and one more pair that loads the device meanwhile
DECOY = "/decoy"
ETHERNET_BYTES = 18  # header and FCS
LEAST_MTU_BYTES = 1280  # what IPv6 needs; every link carries both families
GREATEST_MTU_BYTES = 65535


@dataclass(frozen=True)
class BedSpec:
    """What is asked of a bed."""

    backend: str = "netns"
    devices: tuple[str, ...] = ()
    device_cpu: str = "shared"
    mtu: int = 1500
    offloads: bool = False
    prober_cpu: int | None = None
    responder_cpu: int | None = None
    near: int = 1
    far: int = 1
    decoy: bool = False
    shaper: str = "tbf"
    rate_bps: int | None = None
    """Bits of frames with their FCS per second at each device's far side; None leaves them unshaped."""
    burst_bytes: int = 16_000
    queue_bytes: int = 150_000


@dataclass(frozen=True)
class Host:
    """A place where programs run: A asks, B answers, D holds the devices."""

    name: HostName
    role: str


_PLAIN: dict[str, tuple[DeviceKind, int]] = {"direct": ("direct", 0), "wire": ("wire", 1), "bridge": ("bridge", 1)}

HOSTS: tuple[Host, ...] = (Host("a", "prober"), Host("b", "responder"), Host("d", "devices under test"))


@dataclass(frozen=True)
class Device:
    """What stands between A and B on one link: nothing (`direct`), or `stations` boxes of one kind in a row."""

    name: str
    kind: DeviceKind
    stations: int

    @classmethod
    def parse(cls, name: str) -> Device:
        """Reads a plan's name: `direct`, `wire`, `bridge` or `bridge*N` with N from 2 to 4."""
        if name in _PLAIN:
            return cls(name, *_PLAIN[name])
        found = re.fullmatch(r"bridge\*([0-9]+)", name)
        if found and 2 <= int(found[1]) <= LONGEST_CASCADE:
            return cls(f"bridge*{int(found[1])}", "bridge", int(found[1]))
        raise RequestError(f"device '{name}': {_what_is_wrong(name, found)}")

    @property
    def slug(self) -> str:
        """The name as it appears in interface names."""
        return self.name.replace("*", "x")


def _what_is_wrong(name: str, cascade: re.Match[str] | None) -> str:
    if cascade and int(cascade[1]) == 1:
        return "one bridge is written 'bridge'"
    if cascade:
        return f"a cascade has from 2 to {LONGEST_CASCADE} bridges"
    if name.startswith("bridge:"):
        return "a bridge has no modes yet; expected 'bridge'"
    return f"expected 'direct', 'wire', 'bridge' or 'bridge*N' with N from 2 to {LONGEST_CASCADE}"


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
    """Two ports joined back to back: a veth pair here, a patch cord elsewhere."""

    left: Port
    right: Port


@dataclass(frozen=True)
class Station:
    """One box of a device: what joins its two ports, and its name where the join is an interface of its own."""

    kind: DeviceKind
    left: Port
    right: Port
    name: str | None
    ifindex: int | None
    mac: str | None
    further_left: tuple[Port, ...] = ()
    further_right: tuple[Port, ...] = ()

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
        """Every port that it joins."""
        return (*self.lefts, *self.rights)


@dataclass(frozen=True)
class Link:
    """One way from A to B: an arm of the experiment, with everything that a probe needs to be sent along it."""

    arm: str
    number: int
    device: Device
    near_ends: int = 1
    far_ends: int = 1

    @property
    def is_decoy(self) -> bool:
        """Whether it is there to be loaded in another's place."""
        return self.arm.endswith(DECOY)

    @property
    def slug(self) -> str:
        """The arm as it appears in interface names."""
        return self.device.slug + "-y" * self.is_decoy

    @cached_property
    def near(self) -> tuple[End, ...]:
        """The ends at A; the first is the one that every arm has."""
        first = End("a", self.a_dev, self.number * 100 + 1, self.a_mac, self.a_ip4, self.a_ip6)
        return (first, *(self._end("a", j, 10, 0x10) for j in range(2, self.near_ends + 1)))

    @cached_property
    def far(self) -> tuple[End, ...]:
        """The ends at B; the first is the one that every arm has."""
        first = End("b", self.b_dev, self.number * 100 + 2, self.b_mac, self.b_ip4, self.b_ip6)
        return (first, *(self._end("b", j, 100, 0x40) for j in range(2, self.far_ends + 1)))

    @property
    def nobody_mac(self) -> str:
        """An address of this link that no port has: a bridge floods what is sent to it."""
        return f"02:77:00:00:{self.number:02x}:fe"

    @property
    def a_dev(self) -> str:
        return f"a-{self.slug}"

    @property
    def b_dev(self) -> str:
        return f"b-{self.slug}"

    @property
    def a_mac(self) -> str:
        return f"02:77:00:00:{self.number:02x}:01"

    @property
    def b_mac(self) -> str:
        return f"02:77:00:00:{self.number:02x}:02"

    @property
    def a_ip4(self) -> str:
        return f"10.77.{self.number}.1"

    @property
    def b_ip4(self) -> str:
        return f"10.77.{self.number}.2"

    @property
    def a_ip6(self) -> str:
        return f"fd77:0:0:{self.number:x}::1"

    @property
    def b_ip6(self) -> str:
        return f"fd77:0:0:{self.number:x}::2"

    @property
    def a_port(self) -> End:
        return self.near[0]

    @property
    def b_port(self) -> End:
        return self.far[0]

    @cached_property
    def stations(self) -> tuple[Station, ...]:
        """The boxes from A to B."""
        return tuple(self._station(i) for i in range(1, self.device.stations + 1))

    @cached_property
    def further_cables(self) -> tuple[Cable, ...]:
        """The cables of the further ends, which join the first and the last station."""
        if not self.stations:
            return ()
        near = [Cable(end, port) for end, port in zip(self.near[1:], self.stations[0].further_left, strict=True)]
        far = [Cable(port, end) for port, end in zip(self.stations[-1].further_right, self.far[1:], strict=True)]
        return (*near, *far)

    @property
    def ports(self) -> tuple[Port, ...]:
        """Every cable end of the link, from A to B and then the further ones."""
        return tuple(port for cable in (*self.cables, *self.further_cables) for port in (cable.left, cable.right))

    @cached_property
    def cables(self) -> tuple[Cable, ...]:
        """The cables from A to B: one more than there are stations."""
        ports = [self.a_port, *(p for s in self.stations for p in (s.left, s.right)), self.b_port]
        return tuple(Cable(left, right) for left, right in zip(ports[::2], ports[1::2], strict=True))

    def _station(self, i: int) -> Station:
        base, stem = self.number * 100 + 10 * i, f"d-{self.slug}-{i}"
        left = Port("d", f"{stem}l", base, self._inner_mac(i, 1))
        right = Port("d", f"{stem}r", base + 1, self._inner_mac(i, 2))
        if self.device.kind != "bridge":
            return Station(self.device.kind, left, right, None, None, None)
        lefts = tuple(self._further(f"{stem}l", j, 0x10) for j in range(2, self.near_ends + 1)) if i == 1 else ()
        is_last = i == self.device.stations
        rights = tuple(self._further(f"{stem}r", j, 0x40) for j in range(2, self.far_ends + 1)) if is_last else ()
        return Station("bridge", left, right, stem, base + 2, self._inner_mac(i, 3), lefts, rights)

    def _end(self, host: HostName, j: int, ip_base: int, mac_base: int) -> End:
        """The j-th end at a host, from 2."""
        mac = f"02:77:00:00:{self.number:02x}:{mac_base + j:02x}"
        ip4, ip6 = f"10.77.{self.number}.{ip_base + j}", f"fd77:0:0:{self.number:x}::{mac_base + j:x}"
        return End(host, f"{host}-{self.slug}-{j}", self._further_index(mac_base + j), mac, ip4, ip6)

    def _further(self, stem: str, j: int, mac_base: int) -> Port:
        """The device's port of the j-th end, from 2."""
        mac = f"02:77:00:02:{self.number:02x}:{mac_base + j:02x}"
        return Port("d", f"{stem}{j}", self._further_index(0x80 + mac_base + j), mac)

    def _further_index(self, which: int) -> int:
        return 100_000 + self.number * 0x100 + which

    def _inner_mac(self, station: int, which: int) -> str:
        return f"02:77:00:01:{self.number:02x}:{station:x}{which:x}"


@dataclass(frozen=True)
class Topology:
    """All arms of a bed; they exist at once, as parallel links between A and B."""

    links: tuple[Link, ...]
    hosts: tuple[Host, ...] = field(default=HOSTS)

    @classmethod
    def of(cls, devices: tuple[str, ...], near: int = 1, far: int = 1, *, decoy: bool = False) -> Topology:
        """Lays out the direct link and one link per device, bridges with their further ends; then the decoys."""
        parsed = [Device.parse(name) for name in devices]
        for device in parsed:
            if parsed.count(device) > 1:
                raise RequestError(f"device '{device.name}' is asked for twice; once is enough")
        others = [device for device in parsed if device.kind != "direct"]
        row = [Device.parse("direct"), *others]
        for name, ends in (("near", near), ("far", far)):
            if not 1 <= ends <= MOST_ENDS:
                raise RequestError(f"{name} = {ends}: a bridge has from 1 to {MOST_ENDS} ports on a side")
        arms = [(device.name, device) for device in row]
        arms += [(f"{device.name}{DECOY}", device) for device in row if decoy]
        return cls(tuple(_link(arm, number, device, near, far) for number, (arm, device) in enumerate(arms, start=1)))

    @classmethod
    def of_spec(cls, spec: BedSpec) -> Topology:
        """The layout that a spec asks."""
        return cls.of(spec.devices, spec.near, spec.far, decoy=spec.decoy)

    @cached_property
    def arms(self) -> Mapping[str, Link]:
        """The links by the name of their arm, direct first; the A/A control has no link of its own."""
        return {link.arm: link for link in self.links}

    def arm(self, name: str) -> Link:
        """The link of an arm; `a/a` is the direct link again."""
        try:
            return self.arms["direct" if name == "a/a" else name]
        except KeyError:
            raise RequestError(f"the bed has no arm '{name}'; it has {', '.join(self.arms)} and a/a") from None

    def __getitem__(self, name: str) -> Link:
        return self.arm(name)

    @property
    def cables(self) -> tuple[Cable, ...]:
        return tuple(cable for link in self.links for cable in (*link.cables, *link.further_cables))

    @property
    def stations(self) -> tuple[Station, ...]:
        return tuple(station for link in self.links for station in link.stations)

    def ports(self, host: HostName) -> tuple[Port, ...]:
        """Every cable end at a host."""
        return tuple(port for cable in self.cables for port in (cable.left, cable.right) if port.host == host)


def _link(arm: str, number: int, device: Device, near: int, far: int) -> Link:
    """Only a bridge has further ends, and a decoy has as many as a load needs: one pair."""
    if device.kind != "bridge" or arm.endswith(DECOY):
        return Link(arm, number, device)
    return Link(arm, number, device, near, far)


def checked(spec: BedSpec) -> BedSpec:
    """The same spec, once its values are known to be possible; what cores there are is not looked at."""
    if spec.backend not in ("netns", "sim"):
        raise RequestError(f"bed backend '{spec.backend}': expected 'netns' or 'sim'")
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
    return spec


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
