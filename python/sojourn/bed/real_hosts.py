"""Check whether real hosts can hold a bed, and what would fix that; write a first file that describes one.

Everything is first inspected without changes, then tried: the bed is built once, each path is probed, and everything is
restored. This finds a wrongly connected cable, a link that stays down and a device that does not bridge.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sojourn.bed import machine, negotiated
from sojourn.bed.backends.ssh import require_fit
from sojourn.bed.bounded import first_line
from sojourn.bed.build import Bed, build_bed
from sojourn.bed.copies import instrument_for_hosts
from sojourn.bed.doctor import Check
from sojourn.bed.emulated import LinkSpec
from sojourn.bed.hosts import DEVICES_HOST, END_HOSTS, ports_of
from sojourn.bed.joined import COUNTED_SECONDS, PROBES, port_counters, require_joined, send, strays
from sojourn.bed.look import OLDEST_KERNEL, TOOLS, Looked, look, own_addresses, unfit
from sojourn.bed.model import BedSpec, HostSpec, Link, PathSpec, Topology, checked
from sojourn.bed.negotiated import Port, judge_rates, rates_of
from sojourn.bed.processes import end
from sojourn.bed.ssh import UNREADABLE, looking
from sojourn.devices import BYPASS, DIRECT, kind_of, twin_of
from sojourn.errors import MachineError, SojournError
from sojourn.plan.real_bed import INTERFACE
from sojourn.records.decode import json_value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from sojourn.bed.backend import Backend
    from sojourn.bed.doctor import Status
    from sojourn.bed.ssh import Line

ROOM_BYTES = 1_000_000_000
"""Free space for records, below which a warning is given: enough for some ten million probes."""

APART_NS = 1_000_000_000
"""A larger clock offset makes logs and records hard to compare; round-trip times are not affected."""

Grown = Mapping[str, Mapping[str, int]]
"""Counters by port, or how they have grown."""

READY_SECONDS = 15.0

JOINED = LinkSpec((None,), (1,))
"""Of a direct link through the host of devices: that there is an emulator, which passes frames on as they come here."""

ONLY_RATED = "for studies that give the direct link a rate or delay (bed.links) alone"

NO_PORTS = {"bridge", "bond", "team", "vlan", "macvlan", "dummy", "ifb", "tun", "vxlan", "wireguard", "vrf"}
"""Kinds of interfaces without a port for a cable."""


def examine(hosts: Mapping[str, HostSpec], paths: Mapping[str, PathSpec], devices: tuple[str, ...]) -> dict[str, Any]:
    """Inspect everything, then try it. Keys: `status`, `sentence`, `checks`."""
    bypass = any(path.endswith(BYPASS) for path in paths)
    links = {DIRECT: JOINED} if paths[DIRECT].left else {}
    twins = tuple(path for path in (DIRECT, *devices) if twin_of(path) in paths)
    spec = BedSpec(
        backend="ssh", devices=devices, hosts=hosts, paths=paths, every_port=True, bypass=bypass, twins=twins,
        links=links,
    )  # fmt: skip
    topology = Topology.of_spec(checked(spec))
    checks: list[Check] = []
    for name, host in hosts.items():
        checks += _host(name, host, sorted(_interfaces(name, topology, paths)))
    if not _lacking(checks):
        checks += _tried(spec)
    lacking, doubtful = _lacking(checks), [check for check in checks if check.status != "ok"]
    sentence = f"This bed can be measured on; {len(doubtful)} of {len(checks)} things are limited."
    if lacking:
        sentence = f"This bed cannot be measured on yet: {', '.join(check.name for check in lacking)}."
    elif not doubtful:
        sentence = "This bed can be measured on."
    return {"status": 3 if lacking else 0, "sentence": sentence, "checks": [asdict(check) for check in checks]}


def _lacking(checks: list[Check]) -> list[Check]:
    return [check for check in checks if check.needed and check.status == "missing"]


def _interfaces(name: str, topology: Topology, paths: Mapping[str, PathSpec]) -> set[str]:
    """The test ports of a real host."""
    real = ports_of(topology, paths)
    ends = [host.name for host in topology.hosts if (host.name if host.name in END_HOSTS else DEVICES_HOST) == name]
    return {real[port.dev] for host in ends for port in topology.ports(host) if port.dev in real}


def _host(name: str, spec: HostSpec, interfaces: list[str]) -> Iterator[Check]:
    group = f"host {name.upper() if name in END_HOSTS else name}"

    def check(what: str, found: str, fix: str | None = None, status: Status | None = None) -> Check:
        return Check(group, f"{group}: {what}", status or ("missing" if fix else "ok"), found, fix, needed=True)

    with ExitStack() as stack:
        try:
            line = stack.enter_context(looking(group.removeprefix("host "), spec))
            found = look(line)
        except SojournError as error:
            yield check("SSH", str(error), f"until this works: ssh {spec.address} true")
            return
        yield check("SSH", f"{spec.address}, over {found.management or 'an unknown interface'}")
        yield from _fitness(line, found, check)
        yield check("processors", f"{len(found.cpus)}: {found.cpu}", None if len(found.cpus) > 1 else "a host with two",
                    "ok" if len(found.cpus) > 1 else "limited")  # fmt: skip
        if found.governors:
            wrong = machine.judge_governors(found.governors)
            yield check("frequency", wrong or "governor performance", machine.STEADY_GOVERNOR if wrong else None,
                        "limited" if wrong else "ok")  # fmt: skip
        yield _disk(found, spec, check)
        yield check("clock", *judge_clock(found))
        for one in interfaces:
            reason = unfit(found, one)
            yield check(f"port {one}", reason or _told(found, one), "resolve what is reported here" if reason else None)


def _fitness(line: Line, found: Looked, check: Callable[..., Check]) -> Iterator[Check]:
    lacking = [tool for tool in TOOLS if tool not in found.tools]
    packages = " ".join(sorted({TOOLS[tool] for tool in lacking}))
    yield check("tools", f"lacking {', '.join(lacking)}" if lacking else "all there",
                f"apt-get install {packages}" if lacking else None)  # fmt: skip
    oldest = ".".join(map(str, OLDEST_KERNEL))
    old = found.kernel < OLDEST_KERNEL
    yield check("kernel", f"Linux {found.release}, {found.architecture}", f"Linux {oldest} or newer" if old else None)
    if lacking or old:
        return
    try:
        require_fit(line, found, instrument_for_hosts(found.architecture).read_bytes())
        yield check("rights", "root" if found.uid == 0 else "by sudo -n")
    except MachineError as error:
        yield check("rights and architecture", str(error), "resolve what is reported here")


def _disk(found: Looked, spec: HostSpec, check: Callable[..., Check]) -> Check:
    if found.free_bytes is None:
        return check(
            "disk", f"{spec.folder} cannot be looked at", f"mkdir {spec.folder}, or another folder in the file"
        )
    little = found.free_bytes < ROOM_BYTES
    told = f"{found.free_bytes / 1e9:.1f} GB free in {spec.folder}"
    return check("disk", told, "make room, or name another folder" if little else None, "limited" if little else "ok")


class Judged(NamedTuple):
    """The result of a check: what was found, what would fix it, and its status."""

    found: str
    fix: str | None
    status: Status


def judge_clock(looked: Looked) -> Judged:
    """Judge the offset of a host's clock from ours."""
    apart, error = abs(looked.ahead_ns), looked.ahead_error_ns
    if apart <= error:
        return Judged(f"ours, within {error // 1_000_000 + 1} ms", None, "ok")
    way = "ahead of" if looked.ahead_ns > 0 else "behind"
    told = f"{apart / 1e9:.3f} s {way} ours, with an error of at most {error / 1e9:.3f} s"
    far = apart - error > APART_NS
    return Judged(told, "set it: chronyc makestep" if far else None, "limited" if far else "ok")


def _told(found: Looked, name: str) -> str:
    link = found.links[name]
    return f"{link['address']}, MTU {link['mtu']}, {'up' if 'UP' in link['flags'] else 'down'}"


def _tried(spec: BedSpec) -> Iterator[Check]:
    """Build the bed, and probe each path."""
    try:
        with build_bed(spec, f"check-{secrets.token_hex(2)}") as bed:
            real = ports_of(bed.topology, spec.paths)
            for link in bed.topology.links:
                bed.put_in_place(link.path)
                yield from _ports(negotiated.ports_found(bed.backend, bed.topology, real), link)
                with _emulating(bed, link):
                    yield from _joining(bed, spec, link) if link.loose else ()
                    yield _cabling(bed, spec, link) or _path(bed, spec, link)
    except SojournError as error:
        said = _in_real_names(str(error), spec)
        yield Check(
            "bed",
            "the bed",
            "missing",
            said,
            "resolve what is reported here: a cable, or a port of the device?",
            needed=True,
        )


@contextmanager
def _emulating(bed: Bed, link: Link) -> Iterator[None]:
    """Run the emulator as a plain bridge if it is the device: without it no frame passes."""
    with ExitStack() as stack:
        for one in link.emulated:
            argv = [bed.backend.instrument(), "emulate", "run", one.left.dev, one.right.dev, "--json"]
            argv += ["--sleep", "--idle", "sleep", "--control", "none", "--die-with-parent"]
            said = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
            process = bed.backend.start(one.left.host, argv, **said)
            stack.callback(end, process)
            if '"ready"' not in first_line(process, READY_SECONDS):
                raise MachineError(f"the emulator does not start between {one.left.dev} and {one.right.dev}")
        yield


def _in_real_names(sentence: str, spec: BedSpec) -> str:
    """Replace the bed's names of ports in a sentence by those of the interfaces."""
    topology = Topology.of_spec(spec)
    real = ports_of(topology, spec.paths)
    hosts = {port.dev: port.host for host in topology.hosts for port in topology.ports(host.name)}
    for dev, name in real.items():
        host = hosts[dev].upper() if hosts[dev] in END_HOSTS else DEVICES_HOST
        sentence = re.sub(rf"(?<![\w-]){re.escape(dev)}(?![\w-])", f"{name} of host {host}", sentence)
    return sentence


def _ports(ports: Mapping[str, Port], link: Link) -> Iterator[Check]:
    """Report what the ports of a path have negotiated, and their settings that delay frames."""
    for port in (port for port in link.ports if port.dev in ports):
        one = ports[port.dev]
        name, _, host = one.name.partition(" of ")
        yield Check("ports", f"{host}: {name} ({link.path})", "limited" if one.fix else "ok", one.told, one.fix)
    if (differ := judge_rates(rates_of(link, ports))) is not None:
        fix = "slower ports delay frames, and the device is blamed: negotiate one speed at every port of the path"
        yield Check("ports", f"speeds ({link.path})", "limited", differ, fix)


def _cabling(bed: Bed, spec: BedSpec, link: Link) -> Check | None:
    """Report a port of an end whose cable leads to another port of the devices' host than the file says, or None.

    Each port sends frames that nobody answers, so that those which come in at a port can be distinguished
    from those which leave.
    They are broadcast: a switch passes them on to every port, which shows whether each of its ports forwards.
    """
    of_link = _leads(link)
    leads = {own: other for one in bed.topology.links for own, other in _leads(one).items()} | of_link
    first = {link.near[0].dev: link.far[1:], link.far[0].dev: link.near[1:]}
    for own in (*link.near, *link.far):
        if own.dev not in of_link:
            continue
        before = port_counters(bed)
        send(bed, [own])
        flooded = [one.dev for one in first.get(own.dev, ())]
        wrong = _settled(bed, before, partial(judge_cable, own.dev, leads, flooded))
        if wrong is not None:
            fix = "is each port of a and b cabled to the one in its place of left and right?"
            return Check("paths", f"path {link.path}", "missing", _in_real_names(wrong, spec), fix, needed=True)
    return None


def _joining(bed: Bed, spec: BedSpec, link: Link) -> Iterator[Check]:
    """Report a port of a device that Sojourn does not build which is not joined with those opposite, or that is joined
    with other paths.
    """
    try:
        require_joined(bed, link)
    except MachineError as error:
        said = str(error).removeprefix(f"path {link.path}: ")
        fix = "is each port of a and b cabled to the device, and does it forward between all of them (VLANs)?"
        yield Check("paths", f"ports of path {link.path}", "missing", said, fix, needed=True)
        return
    mend: str | None = None
    told = f"each of {len(link.near)} at A and {len(link.far)} at B gets what those opposite send"
    if others := strays(bed, link):
        said = _in_real_names(", ".join(others), spec)
        told, mend = f"what its ports send comes in at {said}, too", "keep the paths apart: a VLAN of its own for each"
    yield Check("paths", f"ports of path {link.path}", "limited" if mend else "ok", told, mend)


def _leads(link: Link) -> dict[str, str]:
    """Return the port of the devices' host to which each port of an end is cabled, if there is one."""
    ends = ((cable.left, cable.right) for cable in (*link.cables, *link.further_cables))
    pairs = (pair for left, right in ends for pair in ((left, right), (right, left)))
    return {own.dev: other.dev for own, other in pairs if own.host in END_HOSTS and other.host not in END_HOSTS}


def judge_cable(own: str, leads: Mapping[str, str], flooded: Collection[str], grown: Grown) -> str | None:
    """Return at which other ports the frames of a port came in, and where they did not, or None if all is as described.

    `leads`: as of `_leads`, for all links; `flooded`: the ports at the other end that get them, too. Half of the frames
    are enough: a cable that loses some is no wrong one.
    """
    came = {dev: grown[dev]["rx_packets"] for dev in (*leads.values(), *flooded)}
    there = leads[own]
    others = [dev for dev in leads.values() if dev != there and 2 * came[dev] >= PROBES]
    if 2 * came[there] < PROBES:
        where = f"comes in at {', '.join(others)}, not" if others else "does not come in"
        return f"what {own} sends {where} at {there}"
    if others:
        return f"what {own} sends comes in at {there}, and at {', '.join(others)}, too"
    silent = [dev for dev in flooded if 2 * came[dev] < PROBES]
    return f"what {own} sends does not reach {', '.join(silent)}" if silent else None


def _path(bed: Bed, spec: BedSpec, link: Link) -> Check:
    """Check whether B answers A, and over the path's ports; report the minimum RTT."""
    name, own, before = f"path {link.path}", spec.paths[link.path], port_counters(bed)
    try:
        received, least_us = answered(bed.backend, link)
        told = f"B answered {received} of {PROBES} probes, least round-trip time {least_us:.1f} µs"
        if kind_of(link.path) == DIRECT and own.left:
            told += f"; through {own.left[0]} and {own.right[0]} of host {DEVICES_HOST}: {ONLY_RATED}"
    except (SojournError, *UNREADABLE):
        over = f" over {own.left[0]} and {own.right[0]} of the device's host" if own.left else ""
        ends = f"{own.a[0]} of A cabled to {own.b[0]} of B"
        fix = f"is {ends}{over}, and does everything between them forward frames?"
        return Check("paths", name, "missing", "B does not answer A", fix, needed=True)
    passed = {port.dev for cable in link.cables for port in (cable.left, cable.right)}
    further = {port.dev for port in link.ports} - passed
    elsewhere = _settled(bed, before, partial(judge_way, passed, further, received))
    if elsewhere is not None:
        fix = "are the labels of two paths swapped in the file, or their cables?"
        return Check("paths", name, "missing", _in_real_names(elsewhere, spec), fix, needed=True)
    return Check("paths", name, "ok" if received == PROBES else "limited", told)


def answered(backend: Backend, link: Link) -> tuple[int, float]:
    """Probe B from A: how many replies came, and the minimum RTT in microseconds; raises UNREADABLE errors."""
    argv = [backend.instrument(), "probe", "icmp", link.b_ip4, "--dev", link.a_dev]
    said = json_value(backend.run("a", [*argv, "-c", str(PROBES), "-i", "5ms", "--timeout", "500ms", "--json"]))
    received, least_us = int(said["received"]), float(said["rtt"]["min_ns"]) / 1e3
    if not 0 <= received <= PROBES or not math.isfinite(least_us):
        raise ValueError(f"{str(received)[:30]} of {PROBES} replies")
    return received, least_us


def _settled(bed: Bed, before: Grown, judge: Callable[[Grown], str | None]) -> str | None:
    """Return what is wrong with the packets that each port of the bed has counted since; drivers may count late."""
    ways = ("rx_packets", "tx_packets")
    deadline = time.monotonic() + COUNTED_SECONDS
    while True:
        now = port_counters(bed)
        ports = [port.dev for one in bed.topology.links for port in one.ports]
        found = judge({dev: {way: now[dev][way] - before[dev][way] for way in ways} for dev in ports})
        if found is None or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def judge_way(passed: Collection[str], further: Collection[str], received: int, grown: Grown) -> str | None:
    """Return which ports that probes pass counted too few packets, and which ports of other paths counted the probes.

    The `further` ports of the path may have got an answer, or a flooded frame.
    """
    most = {dev: max(counted.values()) for dev, counted in grown.items()}
    silent = [dev for dev, packets in most.items() if dev in passed and packets < received]
    stray = [dev for dev, packets in most.items() if dev not in {*passed, *further} and 2 * packets >= PROBES]
    words = [f"did not pass {', '.join(silent)}"] * bool(silent) + [f"passed {', '.join(stray)}"] * bool(stray)
    return f"B answers, but the probes {' and '.join(words)}" if words else None


@dataclass(frozen=True)
class Candidate:
    """An interface that a cable may end at."""

    name: str
    told: str


def ports_found(found: Looked) -> list[Candidate]:
    """Return the interfaces of a host that can be test ports; those with a carrier first."""
    able = [
        name
        for name, link in found.links.items()
        if INTERFACE.read(name) is not None and _may_be_port(link) and unfit(found, name) is None
    ]
    able.sort(key=lambda name: found.links[name].get("operstate") != "UP")
    return [Candidate(name, _told(found, name)) for name in able]


def _may_be_port(link: dict[str, Any]) -> bool:
    kind = link.get("linkinfo", {}).get("info_kind")
    return link.get("link_type") == "ether" and kind not in NO_PORTS and not own_addresses(link)


def first_file(hosts: Mapping[str, HostSpec]) -> str:
    """Return a description of a bed from the hosts' interfaces; the user must correct which cable is where."""
    looked: dict[str, list[Candidate]] = {}
    words = ["# Written by `sojourn bed new`: correct which port is cabled where, then: sojourn bed check bed.toml"]
    for name, spec in hosts.items():
        with looking(name.upper() if name in END_HOSTS else name, spec) as line:
            looked[name] = ports_found(look(line))
        needed = 1 if len(hosts) == len(END_HOSTS) else 2
        if len(looked[name]) < needed:
            raise MachineError(
                f"{line} has {len(looked[name])} interface(s) that can be a test port, and {needed} are needed: "
                "one that carries the SSH session, has an address or is in a bridge cannot"
            )
        words += ["", f"[hosts.{name}]", f"address = {json.dumps(spec.address)}"]
        words += [f"{key} = {json.dumps(value)}" for key in ("user", "config", "jump") if (value := getattr(spec, key))]
        words += [f"#   {one.name}: {json.dumps(one.told)[1:-1]}" for one in looked[name]]
    a, b = (looked[name] for name in END_HOSTS)
    words += _path_words("direct", a=a[0], b=b[0])
    if DEVICES_HOST in hosts:
        left, right = looked[DEVICES_HOST][:2]
        words += _path_words("bridge", a=a[1], left=left, right=right, b=b[1])
        words += _more_words(a[2:], looked[DEVICES_HOST][2:])
    elif len(a) > 1 and len(b) > 1:
        words += _path_words('"dut:box"', a=a[1], b=b[1])
        words += _several_words(a[2:], b[2:])
    return "\n".join(words) + "\n"


def _more_words(a: list[Candidate], inner: list[Candidate]) -> list[str]:
    """How studies of several senders would have it, where there are interfaces for them."""
    if not a or not inner:
        return []
    return [
        "# For studies of several senders or receivers, with a cable from each of a to the one in its place of left:",
        "# a = [..., {}]    left = [..., {}]    and b and right alike".format(
            *(json.dumps(one[0].name) for one in (a, inner))
        ),
    ]


def _several_words(a: list[Candidate], b: list[Candidate]) -> list[str]:
    """The same where the device is not built here: no cable of one end belongs to one of the other."""
    more = [f"{end} = [..., {json.dumps(ports[0].name)}]" for end, ports in (("a", a), ("b", b)) if ports]
    if not more:
        return []
    return [
        "# For studies of several senders or receivers, with a cable from each port to one of the device:",
        f"# {'    '.join(more)}",
    ]


def _path_words(name: str, **ports: Candidate) -> list[str]:
    return ["", f"[paths.{name}]", *(f"{end} = {json.dumps(port.name)}" for end, port in ports.items())]
