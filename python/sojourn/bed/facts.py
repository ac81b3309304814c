"""The facts of the machines that could make two runs differ, for `bed.json`.

`stable` has facts that stay the same unless something is changed, and is hashed; `moment` has those that change by
themselves (load, interrupts, counters). Nothing here identifies the machine or its user, and no fact is required: one
that is missing is null.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sojourn.bed import machine
from sojourn.bed.drawing import drawing
from sojourn.bed.ssh import reading
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sojourn.bed.backend import Backend
    from sojourn.bed.cores import DeviceCores
    from sojourn.bed.hosts import HostName
    from sojourn.bed.model import BedSpec, Link, Topology
    from sojourn.devices.mode import Box, Mode, Run

HOST_SYSCTLS = (
    "net/bridge/bridge-nf-call-iptables",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/icmp_echo_ignore_all",
    "net/ipv4/icmp_msgs_burst",
    "net/ipv4/icmp_msgs_per_sec",
    "net/ipv4/icmp_ratelimit",
    "net/ipv4/icmp_ratemask",
    "net/ipv4/ip_forward",
    "net/ipv4/ping_group_range",
    "net/ipv6/conf/all/disable_ipv6",
    "net/ipv6/conf/default/accept_dad",
    "net/ipv6/conf/default/accept_ra",
    "net/ipv6/conf/default/addr_gen_mode",
    "net/ipv6/conf/default/router_solicitations",
    "net/ipv6/icmp/ratelimit",
    "net/ipv6/icmp/ratemask",
    "net/ipv6/mld_qrv",
)
"""The sysctls that each network namespace has of its own."""

# One device per line on standard input.
_ETHTOOL = """
while read -r dev; do
    echo "= $dev"; ethtool -i "$dev"; ethtool -k "$dev"
    echo "= pause"; ethtool -a "$dev" 2>/dev/null
    echo "= coalescing"; ethtool -c "$dev" 2>/dev/null
    echo "= rings"; ethtool -g "$dev" 2>/dev/null
done
true
"""
_SYSCTL = 'for key in "$@"; do [ -r "/proc/sys/$key" ] && echo "$key $(cat "/proc/sys/$key")"; done; true'
_QDISC = re.compile(
    r"qdisc (?P<kind>\S+) (?P<handle>\S+) dev (?P<dev>\S+) (?:root|parent (?P<parent>\S+))(?: refcnt \d+)?"
    r"(?P<options>.*)",
    re.DOTALL,
)
_QDISC_FIELDS = ("kind", "handle", "dev", "parent", "root", "options")
_LINK_FIELDS = ("mtu", "operstate", "qdisc", "address", "txqlen", "flags", "num_tx_queues", "num_rx_queues", "master")


@dataclass(frozen=True)
class Change:
    """One fact that differs between two beds; None where one of them does not have it."""

    fact: str
    before: Any
    after: Any


def facts(backend: Backend, topology: Topology, spec: BedSpec, cores: DeviceCores) -> dict[str, Any]:
    """Return the content of `bed.json`."""
    stable: dict[str, Any] = {
        **backend.machine(),
        "sojourn": machine.sojourn(),
        "bed": {
            "spec": asdict(spec),
            "unprivileged": backend.unprivileged,
            "missing": list(backend.missing),
            "device_cpu": cores.facts(),
            "paths": [_path(topology, name) for name in topology.paths],
        },
        "hosts": {},
    }
    if not backend.simulated:
        stable["hosts"] = {host.name: _host(backend, host.name) for host in topology.hosts}
    if not spec.boxes:
        del stable["bed"]["spec"]["boxes"]
    del stable["bed"]["spec"]["hosts"]  # may name machines and users
    if not spec.paths:
        del stable["bed"]["spec"]["paths"]
    for path in stable["bed"]["spec"].get("paths", {}).values():
        del path["switch"]  # words of the user's, with names of machines
    if not spec.settings:
        del stable["bed"]["spec"]["settings"]
    if spec.layout is None:
        del stable["bed"]["spec"]["addresses"]  # drawn only if a layout is
    if "frequency" in spec.switches:
        stable["machine"]["cpu"].pop("frequency_min_khz", None)  # a switched setting is recorded with the switches
    if _are_settings(spec.switches):
        _without_settings(stable)
    layout = None if spec.layout is None else _take_layout(stable)
    return {
        "schema": "sojourn.bed",
        "version": 1,
        "hash": digest(stable),
        "stable": stable,
        "layout": layout,
        "moment": moment(backend, topology, spec, cores),
        "drawing": drawing(topology),
    }


def _are_settings(switches: Collection[str]) -> bool:
    """Return whether one of the switches is a setting; the plan's table is imported only if there are switches."""
    if not switches:
        return False
    from sojourn.plan.settings import SETTINGS

    return not SETTINGS.keys().isdisjoint(switches)


def _take_layout(stable: dict[str, Any]) -> dict[str, Any]:
    """Move what each session draws from the stable facts to the layout: seed, cores of the ends, addresses, …"""
    bed, hosts = stable["bed"], stable["hosts"]
    layout = {key: bed["spec"].pop(key) for key in ("layout", "addresses", "prober_cpu", "responder_cpu")}
    if bed["spec"]["switches"]:
        layout["switches"] = bed["spec"].pop("switches")
    if _are_settings(layout.get("switches", {})):
        layout["settings"] = bed["spec"].pop("settings", {})
    layout |= {"device_cpu": bed.pop("device_cpu"), "paths": [dict(path) for path in bed["paths"]]}
    kept = ("path", "a_dev", "b_dev", "rated")
    bed["paths"] = [
        {key: path[key] for key in kept if key in path} | {"stations": [one["kind"] for one in path["stations"]]}
        for path in bed["paths"]
    ]
    layout["neighbours"] = {name: host.pop("neighbours") for name, host in hosts.items()}
    layout["macs"] = {dev: link.pop("address", None) for host in hosts.values() for dev, link in host["links"].items()}
    for host in hosts.values():
        host["qdiscs"] = sorted(host["qdiscs"], key=lambda qdisc: str(qdisc.get("dev")))
        host["links"] = dict(sorted(host["links"].items()))
    return layout


def _without_settings(stable: dict[str, Any]) -> None:
    """Remove facts that settings change on some beds and not on others."""
    stable["machine"].get("cpu", {}).pop("governor", None)
    for host in stable["hosts"].values():
        for link in host["links"].values():
            link.pop("coalescing", None)
            link.pop("rings", None)


def moment(backend: Backend, topology: Topology, spec: BedSpec, cores: DeviceCores) -> dict[str, Any]:
    """Return the facts that change by themselves; their difference over a run is the activity beside it."""
    hosts = {} if backend.simulated else {host.name: counters(backend, host.name) for host in topology.hosts}
    return {**backend.moment(), "device_load": cores.load(), "link_counters": hosts}


def digest(stable: dict[str, Any]) -> str:
    """Return the hash of the stable facts: equal for two runs if and only if nothing was changed between them."""
    return hashlib.sha256(json.dumps(stable, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Return the differences between the stable facts of two `bed.json`."""
    old, new = (dict(_flat(bed["stable"])) if bed.get("stable") else {} for bed in (before, after))
    keys = sorted(old.keys() | new.keys())
    return [Change(key, old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)]


def _flat(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        return [leaf for key, inner in value.items() for leaf in _flat(inner, f"{path}.{key}" if path else str(key))]
    return [(path, value)]


def _path(topology: Topology, name: str) -> dict[str, Any]:
    link = topology.link(name)
    names = ("path", "a_dev", "b_dev", "a_mac", "b_mac", "a_ip4", "b_ip4", "a_ip6", "b_ip6")
    rated = [asdict(one) if one else None for one in link.rated]
    stations = [_without_nothing(asdict(station)) for station in link.stations]
    return {**{key: getattr(link, key) for key in names}, "stations": stations, **({"rated": rated} if rated else {})}


APART = ("count", "sides")
"""Keys of a station that only some modes have."""


def _without_nothing(station: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in station.items() if value or key not in APART}


def objects(backend: Backend, topology: Topology) -> dict[str, dict[str, Any]]:
    """Return the kernel objects of each device by path: notes, and commands with their output now."""
    if backend.simulated:
        return {}
    main = [link for link in topology.links if link.stations and not link.is_twin and not link.is_bypass]
    return {link.path: _objects(backend, link) for link in main}


def notes(backend: Backend, topology: Topology) -> dict[str, list[str]]:
    """Return the notes on each device with its further links, by the path of its first link."""
    return _of_each(backend, topology, lambda mode: mode.notes)


def broken(backend: Backend, topology: Topology) -> dict[str, list[str]]:
    """Return what is broken of each device with its further links, by the path of its first link."""
    return _of_each(backend, topology, lambda mode: mode.broken)


def _of_each(
    backend: Backend, topology: Topology, asked: Callable[[Mode], Callable[[Run, Box], Sequence[str]]]
) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for link in topology.links if not backend.simulated else ():
        if link.stations and not link.is_bypass:
            run = partial(backend.run, link.device_host)
            host = f"host {link.device_host.upper()}"
            with suppress(MachineError), reading(host):  # a failed inspection must not end a run
                said.setdefault(link.device.name, []).extend(asked(link.device.mode)(run, link.stations[0]))
    return said


def _objects(backend: Backend, link: Link) -> dict[str, Any]:
    mode, run = link.device.mode, partial(backend.run, link.device_host)
    asked = dict.fromkeys(one for station in link.stations for one in mode.objects(station))
    with reading(f"host {link.device_host.upper()}"):
        notes = list(mode.notes(run, link.stations[0]))
    return {"notes": notes, "shown": {one: _shown(run, one) for one in asked}}


def _shown(run: Run, command: str) -> str:
    try:
        return run(["sh", "-c", command]).rstrip()
    except MachineError as error:  # a failed inspection must not end a run
        return str(error)


def _host(backend: Backend, host: HostName) -> dict[str, Any]:
    with reading(f"host {host.upper()}"):
        return _facts_of(backend, host)


def _facts_of(backend: Backend, host: HostName) -> dict[str, Any]:
    links = [link for link in _json(backend, host, ["ip", "-json", "-details", "link"]) if link["ifname"] != "lo"]
    drivers = _drivers(backend.run(host, ["sh", "-c", _ETHTOOL], "".join(f"{link['ifname']}\n" for link in links)))
    qdiscs = _qdiscs(backend, host)
    neighbours = _json(backend, host, ["ip", "-json", "neighbour"])
    return {
        "links": {link["ifname"]: {**_link(link), **drivers.get(link["ifname"], {})} for link in links},
        "qdiscs": [{key: qdisc[key] for key in _QDISC_FIELDS if key in qdisc} for qdisc in qdiscs],
        "neighbours": {f"{n['dst']} {n['dev']}": f"{n.get('lladdr')} {' '.join(n['state'])}" for n in neighbours},
        "sysctls": _sysctls(backend, host),
    }


def _link(link: dict[str, Any]) -> dict[str, Any]:
    kept = {key: link[key] for key in _LINK_FIELDS if key in link}
    info = link.get("linkinfo", {})
    return {**kept, "kind": info.get("info_kind"), "bridge": _bridge(info)}


def _bridge(info: dict[str, Any]) -> dict[str, Any] | None:
    """Return a bridge's settings, without its timers, which change all the time."""
    if info.get("info_kind") != "bridge":
        return None
    names = ("stp_state", "forward_delay", "ageing_time", "vlan_filtering", "mcast_snooping", "nf_call_iptables")
    return {name: info.get("info_data", {}).get(name) for name in names}


def _drivers(text: str) -> dict[str, dict[str, Any]]:
    """Return the output of `ethtool -i`, `-k`, `-a`, `-c` and `-g` by device, without features that it lacks."""
    found: dict[str, dict[str, Any]] = {}
    for block in re.split(r"^= (?!(?:pause|coalescing|rings)$)", text, flags=re.MULTILINE)[1:]:
        dev, _, told = block.partition("\n")
        rest, _, more = told.partition("= pause\n")
        pause, _, more = more.partition("= coalescing\n")
        coalescing, _, rings = more.partition("= rings\n")
        states = dict(re.findall(r"^\s*([\w-]+): ((?:on|off)\b.*)$", rest, re.MULTILINE))
        driver = re.search(r"^driver: (.+)$", rest, re.MULTILINE)
        offloads = {name: state for name, state in states.items() if state != "off [fixed]"}
        found[dev] = {"driver": driver[1] if driver else None, "offloads": offloads, "pause": _pause(pause)}
        found[dev] |= {
            name: values
            for name, values in (("coalescing", _coalescing(coalescing)), ("rings", _rings(rings)))
            if values
        }
    return found


def _pause(text: str) -> dict[str, str] | str:
    """Pause frames (802.3x) as `ethtool -a` says; a driver without a wire, as veth's, knows of none."""
    return dict(re.findall(r"^(Autonegotiate|RX|TX):\s*(\w+)", text, re.MULTILINE)) or "not offered by the driver"


def _coalescing(text: str) -> dict[str, str]:
    """Return the interrupt coalescing parameters of `ethtool -c`, without those that the driver lacks."""
    found = dict(re.findall(r"^([\w-]+):\s*(\d+)$", text, re.MULTILINE))
    adaptive = re.search(r"^Adaptive RX: (\S+)\s+TX: (\S+)$", text, re.MULTILINE)
    words = dict(zip(("adaptive-rx", "adaptive-tx"), adaptive.groups(), strict=True)) if adaptive else {}
    return found | {name: word for name, word in words.items() if word in {"on", "off"}}


def _rings(text: str) -> dict[str, str]:
    """Return the current ring sizes of `ethtool -g`."""
    return dict(re.findall(r"^(RX|TX):\s*(\d+)$", text.partition("Current hardware settings:")[2], re.MULTILINE))


def _sysctls(backend: Backend, host: HostName) -> dict[str, str]:
    lines = backend.run(host, ["sh", "-c", _SYSCTL, "sh", *HOST_SYSCTLS]).splitlines()
    return {key.replace("/", "."): " ".join(value.split()) for key, _, value in (line.partition(" ") for line in lines)}


def counters(backend: Backend, host: HostName) -> dict[str, dict[str, int]]:
    """Return the counters of every interface of a host since its creation; one command, some milliseconds."""
    links = _json(backend, host, ["ip", "-json", "-statistics", "link"])
    names = ("packets", "bytes", "errors", "dropped")
    with reading(f"host {host.upper()}"):
        return {
            link["ifname"]: {f"{way}_{name}": int(link["stats64"][way][name]) for way in ("rx", "tx") for name in names}
            for link in links
            if link["ifname"] != "lo"
        }


def qdisc_dropped(backend: Backend, host: HostName) -> dict[str, int]:
    """Return the drops of the root qdisc of each interface of a host: those of a shaper, not of the port."""
    qdiscs = _qdiscs(backend, host, "-statistics")
    with reading(f"host {host.upper()}"):
        return {qdisc["dev"]: int(qdisc.get("drops", 0)) for qdisc in qdiscs if qdisc.get("root")}


def _qdiscs(backend: Backend, host: HostName, *options: str) -> list[dict[str, Any]]:
    """Return the qdiscs of a host; from the text of `tc` where its JSON is invalid, as with hfsc."""
    with reading(f"host {host.upper()}"):
        try:
            return _entries(backend.run(host, ["tc", "-json", *options, "qdisc", "show"]))
        except json.JSONDecodeError:
            said = backend.run(host, ["tc", *options, "qdisc", "show"])
            return [_qdisc_of_text(one) for one in re.split(r"\n(?=qdisc )", said.strip())]


def _qdisc_of_text(said: str) -> dict[str, Any]:
    """Return a qdisc as the JSON of `tc` would have it, its options as one text."""
    found = _QDISC.match(said)
    if not found:
        raise ValueError(f"`tc` says of a qdisc: {said[:40]}")
    drops = re.search(r"\(dropped (\d+),", said)
    options = " ".join(found["options"].split())
    where = {"root": True} if found["parent"] is None else {"parent": found["parent"]}
    named = {name: found[name] for name in ("kind", "handle", "dev")}
    return {**named, **where, "options": options, **({"drops": int(drops[1])} if drops else {})}


def _json(backend: Backend, host: HostName, argv: list[str]) -> list[dict[str, Any]]:
    with reading(f"host {host.upper()}"):
        return _entries(backend.run(host, argv))


def _entries(said: str) -> list[dict[str, Any]]:
    return [dict(entry) for entry in json.loads(said or "[]") if entry]
