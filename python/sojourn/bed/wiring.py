"""Makes a bed of bare hosts and cables: silence, addresses, neighbours, stations, offloads; then waits until all is up.

Everything is done by commands over a backend, the same on every backend. It makes no host and no cable, and decides
nothing about CPUs.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from sojourn.bed.hosts import DEVICES, END_HOSTS
from sojourn.bed.ssh import reading
from sojourn.devices import Command
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sojourn.bed.backend import Backend
    from sojourn.bed.hosts import HostName
    from sojourn.bed.model import BedSpec, End, Link, Station, Topology
    from sojourn.devices import Mode

_UP_SECONDS = 5.0
_NEGOTIATED_SECONDS = 20.0
"""The time limit for ports of real hosts, which negotiate their rate first."""

OFFLOADS = ("tx", "gro", "gso", "tso")
"""The offloads that are switched off by default.

Transmit checksums first: with these, a veth passes on frames without a valid checksum, which raw receivers then see.
"""

_END_HOST_SYSCTLS: dict[str, str] = {
    "net/ipv4/conf/*/accept_redirects": "0",
    "net/ipv4/conf/*/arp_notify": "0",
    "net/ipv4/conf/*/rp_filter": "0",
    "net/ipv4/conf/*/send_redirects": "0",
    "net/ipv4/icmp_echo_ignore_all": "0",
    "net/ipv4/icmp_ratelimit": "0",
    "net/ipv4/ip_forward": "0",
    "net/ipv4/ping_group_range": "0 0",
    "net/ipv6/conf/*/accept_dad": "0",
    "net/ipv6/conf/*/accept_ra": "0",
    "net/ipv6/conf/*/accept_redirects": "0",
    "net/ipv6/conf/*/addr_gen_mode": "1",
    "net/ipv6/conf/*/autoconf": "0",
    "net/ipv6/conf/*/dad_transmits": "0",
    "net/ipv6/conf/*/disable_ipv6": "0",
    "net/ipv6/conf/*/mldv2_unsolicited_report_interval": "1",
    "net/ipv6/conf/*/router_solicitations": "0",
    "net/ipv6/icmp/ratelimit": "0",
    "net/ipv6/mld_qrv": "1",
}

_DEVICE_HOST_SYSCTLS: dict[str, str] = {
    "net/bridge/bridge-nf-call-arptables": "0",
    "net/bridge/bridge-nf-call-ip6tables": "0",
    "net/bridge/bridge-nf-call-iptables": "0",
    "net/ipv4/ip_forward": "0",
    "net/ipv6/conf/*/disable_ipv6": "1",
}

# Reads one `key value` per line; prints the keys that exist but refuse the value.
_SET_SYSCTLS = """
while read -r key value; do
    [ -e "/proc/sys/$key" ] || continue
    (echo "$value" > "/proc/sys/$key") 2>/dev/null || echo "$key"
done
"""


def silence(backend: Backend, topology: Topology) -> None:
    """Set every host's sysctls before it has interfaces: each new interface inherits them."""
    for host in topology.hosts:
        asked = _END_HOST_SYSCTLS if host.name in END_HOSTS else _DEVICE_HOST_SYSCTLS
        for mode in {one.kind: one.mode for one in topology.stations if one.host == host.name != DEVICES}.values():
            asked = {**asked, **mode.sysctls}
        lines = [f"{key} {value}" for key, value in _both_scopes(asked).items()]
        refused = backend.run(host.name, ["sh", "-c", _SET_SYSCTLS], "\n".join(lines) + "\n").split()
        if refused:
            backend.missing.append(f"Sysctls that host {host.name.upper()} would not take: {', '.join(refused)}.")


def wire_up(backend: Backend, topology: Topology, spec: BedSpec) -> None:
    """Give bare hosts and cables their addresses, neighbours and stations, and wait until every link has a carrier."""
    if not spec.offloads:
        for host in topology.hosts:
            _switch_offloads_off(backend, host.name, topology)
    for link in topology.laid:
        if link.device.mode.polls:
            prepare_live(backend, link)
    _set_up_devices(backend, topology)
    for name in topology.device_hosts:
        of_host = [link for link in topology.laid if link.device_host == name]
        _batch(backend, name, "tc", [line for link in of_host for line in _shaper(link, spec)])
    for end in END_HOSTS:
        lines = ["link set dev lo up", *(line for link in topology.laid for line in _end_host(link, end))]
        _batch(backend, end, "ip", lines)
    await_links(backend, topology, spec)


def await_links(backend: Backend, topology: Topology, spec: BedSpec) -> None:
    """Wait until every link has a carrier, and every device forwards."""
    _wait_until_up(backend, topology, _NEGOTIATED_SECONDS if spec.hosts else _UP_SECONDS)


def address_ends(backend: Backend, link: Link) -> None:
    """Give the ends of a link its addresses, neighbours and routes, and remove those that they have."""
    for end in END_HOSTS:
        devs = [own.dev for own in (link.near if end == "a" else link.far)]
        flushed = [f"address flush dev {dev}" for dev in devs]
        pinned = [f"neighbour flush dev {dev} nud permanent" for dev in devs]
        _batch(backend, end, "ip", [*flushed, *pinned])
        for dev in devs:
            backend.run(end, ["ip", "-6", "route", "flush", "dev", dev])  # IPv4 routes were removed with their address
        _batch(backend, end, "ip", _end_host(link, end))


def flush_fdb(backend: Backend, link: Link) -> None:
    """Flush the FDB of the link's switches."""
    commands = [command for station in link.stations for command in station.mode.flush_fdb(station)]
    _do(backend, link.device_host, commands)


def prepare_live(backend: Backend, link: Link) -> None:
    """Switch GRO on at every port of the link: a veth accepts redirected frames only while its peer polls (NAPI).

    Generic receive offload makes a veth poll; it never merges frames of our own EtherType.
    """
    for host in {port.host: None for port in link.ports}:
        lines = "".join(f"{port.dev}\n" for port in link.ports if port.host == host)
        if lines:
            backend.run(host, ["sh", "-c", 'while read -r dev; do ethtool -K "$dev" gro on || exit 1; done'], lines)


def _both_scopes(sysctls: dict[str, str]) -> dict[str, str]:
    return {key.replace("*", scope): value for key, value in sysctls.items() for scope in ("all", "default")}


def _switch_offloads_off(backend: Backend, host: HostName, topology: Topology) -> None:
    lines = "".join(f"{port.dev}\n" for port in topology.ports(host))
    if lines:
        words = " ".join(f"{what} off" for what in OFFLOADS)
        backend.run(host, ["sh", "-c", f'while read -r dev; do ethtool -K "$dev" {words} || exit 1; done'], lines)


def _end_host(link: Link, end: HostName) -> list[str]:
    """Return addresses and permanent neighbours of one link at one end: no ARP or ND is ever needed on the wire."""
    ours, theirs = (link.near, link.far) if end == "a" else (link.far, link.near)
    lines = []
    for own in ours:
        lines += [
            f"address add {own.ip4}/24 dev {own.dev}",
            f"address add {own.ip6}/64 dev {own.dev} nodad",
            f"link set dev {own.dev} up",
        ]
        if link.is_routed:
            lines += _by_gateway(link, end, own)
            continue
        for peer in theirs:
            for address in (peer.ip4, peer.ip6):
                lines.append(f"neighbour replace {address} lladdr {peer.mac} dev {own.dev} nud permanent")
    for own, peer in list(zip(ours, theirs, strict=False))[1:]:  # a further pair uses its own ports both ways
        lines += [f"route add {peer.ip4}/32 dev {own.dev} src {own.ip4}", f"route add {peer.ip6}/128 dev {own.dev}"]
    return lines


def _by_gateway(link: Link, end: HostName, own: End) -> list[str]:
    """Return the routes to the other subnet via the box's address, with a permanent neighbour entry for it."""
    left, right = link.sides
    gateway, there = (left, right) if end == "a" else (right, left)
    port = link.stations[0].left if end == "a" else link.stations[-1].right
    return [
        *(f"neighbour replace {ip} lladdr {port.mac} dev {own.dev} nud permanent" for ip in (gateway.ip4, gateway.ip6)),
        f"route add {there.end_ip4}/32 via {gateway.ip4} dev {own.dev} src {own.ip4}",
        f"route add {there.end_ip6}/128 via {gateway.ip6} dev {own.dev} src {own.ip6}",
        f"route add {there.ip4}/32 via {gateway.ip4} dev {own.dev} src {own.ip4}",
        f"route add {there.ip6}/128 via {gateway.ip6} dev {own.dev} src {own.ip6}",
    ]


def _set_up_devices(backend: Backend, topology: Topology) -> None:
    """Build every box, mode by mode, so that an error names what the machine lacks for the mode."""
    alike: dict[tuple[HostName, str], list[Station]] = {}
    for station in topology.stations:
        alike.setdefault((station.host, station.kind), []).append(station)
    for (host, _), stations in alike.items():
        mode = stations[0].mode
        _make(backend, host, mode, [command for one in stations for command in mode.build(one)])
    for host in topology.device_hosts:
        _do(backend, host, [Command("ip", f"link set dev {port.dev} up") for port in topology.ports(host)])
    for (host, _), stations in alike.items():
        mode = stations[0].mode
        _make(backend, host, mode, [command for one in stations for command in mode.join(one)])


def _make(backend: Backend, host: HostName, mode: Mode, commands: Iterable[Command]) -> None:
    try:
        _do(backend, host, commands)
    except MachineError as error:
        lacks = f"; it needs {mode.fix}" if mode.fix else ""
        raise MachineError(f"device {mode.name} cannot be built here: {error}{lacks}") from error


def take_down(backend: Backend, topology: Topology) -> None:
    """Remove what devices made outside their host's interfaces; a failure of one does not stop the others."""
    for station in topology.stations:
        with suppress(MachineError):
            _do(backend, station.host, station.mode.remove(station))


def _do(backend: Backend, host: HostName, commands: Iterable[Command]) -> None:
    """Run commands on a host of devices, as many as possible by one call of a tool."""
    for tool, some in groupby(commands, key=lambda command: command.tool):
        _batch(backend, host, tool, [command.line for command in some])


FCS_BYTES = 4  # the kernel counts frames without it; with this overhead, a shaper's rate is that of whole frames


def _shaper(link: Link, spec: BedSpec) -> list[str]:
    """Return the shaper of a device at every port towards B; packets are dropped while its queue is full."""
    if spec.rate_bps is None or not link.stations:
        return []
    bucket = f"rate {spec.rate_bps}bit burst {spec.burst_bytes}b overhead {FCS_BYTES}"
    lines = []
    for port in link.stations[-1].rights:
        if spec.shaper == "tbf":
            lines.append(f"qdisc add dev {port.dev} root handle 1: tbf {bucket} limit {spec.queue_bytes}b")
            continue
        one = f"rate {spec.rate_bps}bit ceil {spec.rate_bps}bit burst {spec.burst_bytes}b cburst {spec.burst_bytes}b"
        lines += [
            f"qdisc add dev {port.dev} root handle 1: htb default 1",
            f"class add dev {port.dev} parent 1: classid 1:1 htb {one} overhead {FCS_BYTES}",
            f"qdisc add dev {port.dev} parent 1:1 handle 2: bfifo limit {spec.queue_bytes}b",
        ]
    return lines


def _batch(backend: Backend, host: HostName, tool: str, lines: list[str]) -> None:
    if lines:
        argv = ["sh", "-e"] if tool == "sh" else [tool, "-batch", "-"]
        backend.run(host, argv, "\n".join(lines) + "\n")


def _wait_until_up(backend: Backend, topology: Topology, seconds: float) -> None:
    """Wait until every port is UP and every device forwards; a frame sent earlier would be lost."""
    end = time.monotonic() + seconds
    while waiting := [port for host in topology.hosts for port in _not_up(backend, host.name, topology)]:
        if time.monotonic() > end:
            raise MachineError(f"{', '.join(waiting)} did not come up within {seconds:.0f} s")
        time.sleep(0.002)


def _not_up(backend: Backend, host: HostName, topology: Topology) -> list[str]:
    ports = [port.dev for port in topology.ports(host)]
    if not ports:
        return []
    with reading(f"host {host.upper()}"):
        found = {link["ifname"]: link["operstate"] for link in json.loads(backend.run(host, ["ip", "-json", "link"]))}
    down = [dev for dev in ports if found.get(dev) != "UP"]
    if host in END_HOSTS or down:
        return down
    run, here = partial(backend.run, host), [station for station in topology.stations if station.host == host]
    with reading(f"host {host.upper()}"):
        return [
            dev
            for kind, mode in {station.kind: station.mode for station in here}.items()
            for dev in mode.waiting(run, [station for station in here if station.kind == kind])
        ]
