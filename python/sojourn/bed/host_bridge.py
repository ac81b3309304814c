"""A Linux bridge over two real ports of this machine: made, shown, and removed with the earlier state restored.

Unlike a bed it stays when this program ends: a file in /run/sojourn has the earlier state until `down`. A port that the
machine itself uses (an address, a route, another bridge, the SSH session of this program) is refused unless it is taken
over. Nothing is written elsewhere, except the files for systemd-networkd with `persist`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.bed import host_commands, networkd
from sojourn.bed.look import DEFAULT_HANDLE
from sojourn.bed.port_uses import in_use, kind_of, links_here
from sojourn.bed.processes import require_tools
from sojourn.bed.ssh import reading
from sojourn.devices.bridge_netfilter import LENDS, limited_rules
from sojourn.devices.bridge_qos import classes
from sojourn.errors import MachineError, RequestError, did_you_mean
from sojourn.records.decode import json_value
from sojourn.records.shape import FLAG, NEEDED, ONLY, TEXT, maybe, misfit

if TYPE_CHECKING:
    from collections.abc import Iterator

MODES = ("bridge", "qos", "netfilter")
STATES = Path("/run/sojourn")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,14}")
TOOLS = {"ip": "iproute2", "tc": "iproute2", "bridge": "iproute2"}
_HTB = {"1:", "2:"}
"""The handles of the qdiscs that `_make` gives to ports."""
_CLOSED = {"bond", "team"}
"""Kinds of interfaces that take a port only while it is down, and then set it up."""
_PORT = {"name": TEXT, "was_up": FLAG, "master": maybe(TEXT)}
STATE = {
    NEEDED: ("name", "mode", "ports", "notes", "files"), "name": TEXT, "mode": TEXT, "notes": [TEXT], "files": [TEXT],
    "mac": TEXT, "ports": [_PORT | {NEEDED: tuple(_PORT), ONLY: tuple(_PORT)}],
}  # fmt: skip
"""The shape that a file of STATES must have, whatever it holds. Files of earlier versions have no MAC address."""


@dataclass(frozen=True)
class PortBefore:
    """The state of a port before it joined the bridge."""

    name: str
    was_up: bool
    master: str | None


@dataclass(frozen=True)
class HostBridge:
    """A bridge that exists, and the state before it."""

    name: str
    mode: str
    ports: tuple[PortBefore, ...]
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = field(default=())
    """The files of systemd-networkd, if it was persisted."""

    @classmethod
    def read(cls, path: Path) -> HostBridge:
        """Read a state file; raises MachineError if it is not one."""
        try:
            kept = json_value(path.read_text(encoding="utf-8"))
            if wrong := misfit(kept, STATE):
                raise ValueError(wrong)
            ports = tuple(PortBefore(**one) for one in kept["ports"])
            return cls(kept["name"], kept["mode"], ports, tuple(kept["notes"]), tuple(kept["files"]))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise MachineError(
                f"{path} does not say how the ports were before the bridge ({error}): remove bridge and file by hand"
            ) from error


def up(name: str, ports: tuple[str, str], mode: str, *, take_over: bool, persist: bool) -> HostBridge:
    """Make the bridge; if a step fails, remove what was made so far."""
    _refuse_words(name, mode, persist=persist)
    _require_root()
    require_tools(TOOLS | ({"nft": "nftables"} if mode == "netfilter" else {}))
    with _alone():
        return _up(name, ports, mode, take_over=take_over, persist=persist)


def _up(name: str, ports: tuple[str, str], mode: str, *, take_over: bool, persist: bool) -> HostBridge:
    links = {link["ifname"]: link for link in links_here()}
    if name in links:
        raise RequestError(f"{name} is there already: choose another --name, or see `sojourn bridge status`")
    _refuse_pair(ports, links)
    for port in ports if not take_over else ():
        if found := in_use(port, links):
            raise RequestError(f"{port} {found[0]}: this machine uses it; --take-over bridges it all the same")
    if mode != "bridge":
        _refuse_queues(ports)
    before = tuple(PortBefore(one, "UP" in links[one]["flags"], links[one].get("master")) for one in ports)
    mac = _new_mac()
    files = networkd.files_of(name, ports, mode, mac) if persist else {}
    for path in files:
        if path.exists():
            raise RequestError(f"{path} is there already: remove it, or choose another --name")
    made = HostBridge(name, mode, before, files=tuple(map(str, files)))
    _write(made, mac)
    try:
        notes = _make(made, mac)
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o644)  # systemd-networkd runs as another user
    except BaseException as error:
        try:
            _undo(made, is_half_made=True)
        except MachineError as stays:
            raise MachineError(f"{str(error) or 'interrupted'}; {stays}") from error
        raise
    made = HostBridge(name, mode, before, tuple(notes), made.files)
    _write(made, mac)
    return made


def down(name: str | None) -> list[str]:
    """Remove a bridge and restore its ports; return the results, a sentence each.

    Raises MachineError if a port cannot be restored, or another interface has the bridge's name: the bridge and its
    state file, with the ports that are left, stay for another `down`.
    """
    _require_root()
    require_tools(TOOLS)
    with _alone():
        return _down(name)


def _down(name: str | None) -> list[str]:
    there = standing()
    if name is None and len(there) > 1:
        raise RequestError(f"several bridges stand: name one of {', '.join(one.name for one in there)}")
    one = next((one for one in there if name in (None, one.name)), None)
    if one is None:
        persisted = [path for path in networkd.paths_of(name) if path.exists()] if name and NAME.fullmatch(name) else []
        if not persisted:
            raise RequestError(f"there is no bridge of `sojourn bridge` here{f' by the name {name}' if name else ''}")
        one = HostBridge(str(name), "bridge", (), files=tuple(map(str, persisted)))
    return _undo(one)


def standing() -> list[HostBridge]:
    """Return every bridge of this network namespace that `up` made."""
    return [HostBridge.read(path) for path in sorted(STATES.glob(f"bridge-{_namespace()}-*.json"))]


def status() -> list[dict[str, Any]]:
    """Return every bridge, with the present state of its ports."""
    _require_root()
    require_tools(TOOLS)
    links = {link["ifname"]: link for link in host_commands.tables(["ip", "-json", "-statistics", "link"], "ifname")}
    states = {link["ifname"]: link for link in host_commands.tables(["bridge", "-json", "link"], "ifname")}
    found = []
    for one in standing():
        ports = [_port_now(one.name, port.name, links, states) for port in one.ports]
        found.append(asdict(one) | {"there": one.name in links, "now": ports})
    return found


def _refuse_words(name: str, mode: str, *, persist: bool) -> None:
    if mode not in MODES:
        raise RequestError(f"--mode {mode}: expected {', '.join(MODES[:-1])} or {MODES[-1]}{did_you_mean(mode, MODES)}")
    if not NAME.fullmatch(name):
        raise RequestError(f"--name {name}: expected up to 15 letters, digits, '_' and '-'")
    if persist and mode == "netfilter":
        raise RequestError("--persist with --mode netfilter: systemd-networkd has no rules of nftables")


def _refuse_pair(ports: tuple[str, str], links: dict[str, Any]) -> None:
    for port in ports:
        if port not in links:
            others = ", ".join(one for one in links if one != "lo") or "none"
            raise RequestError(f"there is no port {port}: this machine has {others}")
        if "LOOPBACK" in links[port]["flags"]:
            raise RequestError(f"{port} is the loopback interface, which cannot be bridged")
        if kind_of(links[port]) == "bridge":
            raise RequestError(f"{port} is a bridge itself, and cannot be a port of another")
    first, second = ports
    if first == second:
        raise RequestError(f"{first} twice: a bridge joins two ports")
    if links[first].get("link") == second or links[second].get("link") == first:
        raise RequestError(f"{first} and {second} lead to each other: every frame would come back")


def _refuse_queues(ports: tuple[str, str]) -> None:
    for port in ports:
        kind, handle = _root_queue(port)
        if handle != DEFAULT_HANDLE:
            what = f"a queueing discipline of its own ({kind} {handle})"
            raise RequestError(f"{port} has {what}: tc qdisc del dev {port} root, or --mode bridge")


def _root_queue(port: str) -> tuple[str, str]:
    """Return kind and handle of a port's root qdisc; from text, because `tc` prints no valid JSON of hfsc."""
    for line in host_commands.run(["tc", "qdisc", "show", "dev", port]).splitlines():
        if "root" in (words := line.split())[3:6]:  # some versions name the interface before it
            return words[1], words[2]
    return "", DEFAULT_HANDLE


def _make(one: HostBridge, mac: str) -> list[str]:
    """Make the parts that the mode needs; return sentences about how they were made.

    A port joins before it is set up and its queues are made: what has not joined is as it was. One command would set it
    up first on Linux before 6.1.
    """
    host_commands.run(["ip", "link", "add", "name", one.name, "address", mac, "type", "bridge", "stp_state", "0",
                       "forward_delay", "0", "mcast_snooping", "0"])  # fmt: skip
    silent = Path(f"/proc/sys/net/ipv6/conf/{one.name}/disable_ipv6")
    if silent.exists():
        silent.write_text("1")
    for number, port in enumerate(one.ports, start=1):
        _join(port.name, one.name)
        if one.mode != "bridge":
            major = number if one.mode == "qos" else 1
            for command in classes(port.name, major, major):
                host_commands.run([command.tool, *command.line.split()])
    host_commands.run(["ip", "link", "set", "dev", one.name, "up"])
    return _filter(one) if one.mode == "netfilter" else []


def _join(port: str, bridge: str) -> None:
    for step in (["master", bridge], ["up"]):
        host_commands.run(["ip", "link", "set", "dev", port, *step])


def _filter(one: HostBridge) -> list[str]:
    """Load the rules for this bridge only: in the bridge family, else by br_netfilter."""
    names = [port.name for port in one.ports]
    try:
        host_commands.run(["nft", "-f", "-"], limited_rules("bridge", _table(one), names))
    except MachineError:
        with suppress(MachineError, OSError):
            host_commands.run(["modprobe", "-q", "br_netfilter"])
        if not Path(LENDS).exists():
            raise MachineError(
                "this kernel tracks no connections in bridges: it has neither nf_conntrack_bridge nor br_netfilter"
            ) from None
        on = ("nf_call_iptables", "1", "nf_call_ip6tables", "1")
        host_commands.run(["ip", "link", "set", "dev", one.name, "type", "bridge", *on])
        host_commands.run(["nft", "-f", "-"], limited_rules("inet", _table(one), [one.name]))
        return ["Connections are tracked by br_netfilter: this kernel has no conntrack in bridges."]
    return ["Connections are tracked in the bridge family."]


def _undo(one: HostBridge, *, is_half_made: bool = False) -> list[str]:
    """Restore the ports, and remove every part of the bridge; another interface of its name is left alone."""
    links = {link["ifname"]: link for link in links_here()}
    is_there = one.name in links
    if is_there and not _is_ours(one.name, links[one.name]):
        return _leave(one, links[one.name])
    restored: list[str] = []
    stays: list[str] = []
    left: list[PortBefore] = []
    for port in one.ports:
        try:
            restored.append(_restore(port, one, links, leaves_free=is_there and not is_half_made))
        except MachineError as error:
            stays.append(f"{port.name} is not as it was: {error}")
            left.append(port)
    if stays:
        _write(replace(one, ports=tuple(left)), _mac_kept(one.name))
        again = f"{one.name} stays until every port is given back: fix that, then `sojourn bridge down {one.name}`"
        raise MachineError("; ".join([*stays, again]))
    for family in ("bridge", "inet") if one.mode == "netfilter" else ():
        with suppress(MachineError):
            host_commands.run(["nft", "delete", "table", family, _table(one)])
    if is_there:
        host_commands.run(["ip", "link", "del", "dev", one.name])
    return [f"Removed {one.name}." if is_there else f"{one.name} was not there.", *_forget(one), *restored]


def _leave(one: HostBridge, other: dict[str, Any]) -> list[str]:
    """Leave an interface that is not the bridge which was made; raises MachineError if there are ports to restore."""
    told = f"{one.name} is not the bridge that was made"
    if one.ports:
        mac = f"ip link set dev {one.name} address {_mac_kept(one.name)}"
        alternative = f", or give it that one's address ({mac})" if kind_of(other) == "bridge" else ""
        raise MachineError(
            f"{told}: rename or remove it{alternative}, then `sojourn bridge down {one.name}` restores the ports"
        )
    return [f"{told}: it was left as it is.", *_forget(one)]


def _forget(one: HostBridge) -> list[str]:
    """Remove the files of systemd-networkd, and the state."""
    done: list[str] = []
    for path in map(Path, one.files):
        path.unlink(missing_ok=True)
        done.append(f"Removed {path}.")
    for path in (_draft_of(one.name), _state_of(one.name)):
        path.unlink(missing_ok=True)
    return done


def _restore(port: PortBefore, one: HostBridge, links: dict[str, Any], *, leaves_free: bool) -> str:
    """Restore a port; return the result. If that fails a port of the bridge is in it again.

    A port in another bridge is somebody's by now. So is one in none if `leaves_free`, but its queues are removed: an
    `up` of an earlier version that was killed may have made them.
    """
    if port.name not in links:
        return f"{port.name} is gone: nothing of it was restored."
    link = links[port.name]
    now = link.get("master")
    had_queue = now in {None, one.name} and one.mode != "bridge" and _drop_queue(port.name)
    if (now, "UP" in link["flags"]) == (port.master, port.was_up):
        return f"{port.name} is as it was."
    if now != one.name and (now is not None or leaves_free):
        what = "its queue was removed" if had_queue else "it was left as it is"
        return f"{port.name} is no longer in {one.name}: {what}."
    master = links.get(port.master or "")
    is_closed = master is not None and kind_of(master) in _CLOSED
    steps: list[list[str]] = [] if port.was_up and not is_closed else [["down"]]
    steps.append(["nomaster"] if master is None else ["master", master["ifname"]])
    steps.append(["up" if port.was_up else "down"])
    try:
        for step in steps:
            host_commands.run(["ip", "link", "set", "dev", port.name, *step])
    except MachineError:
        with suppress(MachineError):  # what it left before that failed has let it go
            if now == one.name:
                _join(port.name, one.name)
        raise
    if port.master is not None and master is None:
        return f"{port.name} belongs to nothing: {port.master} is gone."
    return f"{port.name} is as it was."


def _drop_queue(port: str) -> bool:
    """Remove our HTB from a port; return whether it was there."""
    kind, handle = _root_queue(port)
    if kind != "htb" or handle not in _HTB:
        return False
    host_commands.run(["tc", "qdisc", "del", "dev", port, "root"])
    return True


def _is_ours(name: str, link: dict[str, Any]) -> bool:
    """Return whether a link is the bridge that was made: by its MAC address, if the state file has it."""
    return kind_of(link) == "bridge" and _mac_kept(name) in {None, link.get("address")}


def _mac_kept(name: str) -> str | None:
    """Return the MAC address of a bridge that was made, from its state file."""
    with suppress(OSError, ValueError):
        kept = json_value(_state_of(name).read_text(encoding="utf-8"))
        mac: str | None = kept.get("mac") if misfit(kept, STATE) is None else None
        return mac
    return None


def _new_mac() -> str:
    """Return a random MAC address that is locally administered, and of one interface."""
    return ":".join(f"{octet:02x}" for octet in (0x0A, *secrets.token_bytes(5)))


def _port_now(bridge: str, port: str, links: dict[str, Any], states: dict[str, Any]) -> dict[str, Any]:
    link = links.get(port)
    if link is None:
        return {"port": port, "state": "gone"}
    if link.get("master") != bridge:
        return {"port": port, "state": f"no longer in {bridge}"}
    counted = link.get("stats64", {})
    with reading("'ip -json -statistics link'", "iproute2"):
        return {
            "port": port,
            "state": states.get(port, {}).get("state", "unknown"),
            "carrier": link.get("operstate"),
            "received": counted.get("rx", {}).get("packets"),
            "sent": counted.get("tx", {}).get("packets"),
            "dropped": sum(counted.get(way, {}).get("dropped", 0) for way in ("rx", "tx")),
        }


def _table(one: HostBridge) -> str:
    return f"sojourn_{one.name.replace('-', '_')}"


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock of STATES: wait until no other `up`, `down`, or command started by a killed one is running.

    Each command inherits the lock: one that outlives its `sojourn` could make a bridge after `down` has looked for it.
    """
    STATES.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(STATES, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + 2 * host_commands.SECONDS
        while not _locked(lock):
            if time.monotonic() > deadline:
                raise MachineError("another `sojourn bridge` is at work here: try again when it has ended")
            time.sleep(0.02)
        host_commands.inherited.append(lock)
        yield
    finally:
        host_commands.inherited.clear()
        os.close(lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(one: HostBridge, mac: str | None) -> None:
    draft = _draft_of(one.name)
    known = {} if mac is None else {"mac": mac}
    draft.write_text(json.dumps(asdict(one) | known) + "\n", encoding="utf-8")
    draft.replace(_state_of(one.name))


def _draft_of(name: str) -> Path:
    return _state_of(name).with_suffix(".draft")


def _state_of(name: str) -> Path:
    return STATES / f"bridge-{_namespace()}-{name}.json"


def _namespace() -> int:
    """Return a number that identifies this network namespace on this machine, as long as it exists."""
    return Path("/proc/self/ns/net").stat().st_ino


def _require_root() -> None:
    if os.geteuid() != 0:
        raise MachineError("bridges of real ports need root: run it with sudo")
