"""Real hosts and the paths between them, from a file (`--bed bed.toml`).

Every key is declared once, as in plans; unknown ones are refused with their line. Contacts no host.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn import devices
from sojourn.devices import A_A, BYPASS, DIRECT, PERSON
from sojourn.errors import RequestError, nearest
from sojourn.plan.boxes import by_path
from sojourn.plan.section import key, keys_of, read_section, section
from sojourn.plan.source import Given, Table, read_toml
from sojourn.plan.values import Reader, flag, list_of, matching, text, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SUFFIX = ".toml"
HOSTS = {"a": "asks", "b": "answers", "device": "holds the devices that Sojourn builds"}
"""The hosts that a bed may have."""
NEEDED = ("a", "b")

INTERFACE = matching(r"[^\s/:-][^\s/:]{0,14}", 'the name of an interface, such as "enp3s0"')


def ports() -> Reader:
    """An interface, or a list of different ones: the first is the one that every study has."""
    every = list_of(INTERFACE)

    def read(value: Any) -> tuple[str, ...] | None:
        found: tuple[str, ...] | None = every.read(value)
        return found if found is not None and len(found) <= devices.MOST_PORTS else None

    return replace(
        every, read=read, expected=f"{INTERFACE.expected}, or a list of up to {devices.MOST_PORTS} different ones"
    )


WORD = matching(r"[^\s-]\S*", "a name without spaces, which does not begin with -")
ADDRESS = matching(r"[\w:\[][\w.,:@%\[\]/+=-]*", "a name or an address without spaces and signs that a shell reads")
SWITCH = f'a program of yours with its arguments, or "{PERSON}", who is asked'

FOLDER = matching(r"/[\w./-]*", 'a folder by its whole path, such as "/var/tmp"')


@section
class RealHost:
    """A real host, and the options for OpenSSH to reach it."""

    address: str = key(ADDRESS, MISSING, "as ssh takes it: a name, an address, or a host of your own ssh_config")
    user: str | None = key(WORD, None, "who logs in; as OpenSSH's configuration says where it is left out")
    port: int | None = key(whole(1, 65_535), None, "port of its sshd")
    identity: str | None = key(
        text(), None, "file of a private key; the agent and the configuration serve where left out", name="key"
    )
    jump: str | None = key(ADDRESS, None, "host to go through, as ssh -J has it")
    config: str | None = key(text(), None, "file of OpenSSH's configuration in place of your own")
    sudo: bool = key(flag(), True, "whether rights come by sudo -n where the user is not root")  # noqa: FBT003
    folder: str = key(FOLDER, "/var/tmp", "where records are written until they are fetched")
    keep: bool = key(flag(), False, "whether the instrument stays on the host, for the next run")  # noqa: FBT003


@section
class RealPath:
    """The interfaces of a path."""

    a: tuple[str, ...] = key(ports(), MISSING, "the port of host A, or a list of its ports")
    b: tuple[str, ...] = key(ports(), MISSING, "the port of host B, or a list of its ports")
    left: tuple[str, ...] = key(
        ports(),
        (),
        "the port of the device's host that is cabled to A, or a list: each to the one in its place there; path direct "
        "has it where its link has a rate or delay (bed.links)",
    )
    right: tuple[str, ...] = key(ports(), (), "the same, cabled to B")
    switch: str | None = key(
        text(), None, f"what puts this path between its ports, which paths may then share: {SWITCH}"
    )

    @property
    def has_several(self) -> bool:
        """Whether it has several ports at an end."""
        return max(len(self.a), len(self.b)) > 1


@dataclass(frozen=True, slots=True)
class RealBed:
    """Real hosts, and the paths between them."""

    hosts: Mapping[str, RealHost]
    paths: Mapping[str, RealPath]

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices in its paths, by their names in a plan."""
        twins = {devices.twin_of(one) for one in self.paths}
        return tuple(one for one in self.paths if one != DIRECT and one not in twins and not one.endswith(BYPASS))

    @property
    def switches(self) -> tuple[str, ...]:
        """The devices that Sojourn does not build and that have several ports at an end, all of which they join."""
        return tuple(one for one in self.devices if _is_outside(one) and self.paths[one].has_several)

    def has_twins(self, main: str | None) -> bool:
        """Return whether the direct link and a device have a second one of their kind."""
        return A_A in self.paths and (main is None or devices.twin_of(main) in self.paths)


def is_file(bed: str) -> bool:
    """Return whether `--bed` names a file, and not a backend."""
    return bed.endswith(SUFFIX)


def load_real_bed(file: str | Path) -> RealBed:
    """Read the hosts and paths in a file."""
    try:
        words = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RequestError(f"{file}: cannot be read: {reason}") from error
    bed = real_bed_of(words, str(file))
    here = Path(file).absolute().parent
    return replace(
        bed,
        hosts={name: _from_folder(host, here) for name, host in bed.hosts.items()},
        paths={name: _switched_from(path, here, f"{file}: paths.{name}.switch") for name, path in bed.paths.items()},
    )


def real_bed_of(words: str, name: str) -> RealBed:
    """Parse the hosts and paths in a text; refusals call it by its name."""
    table = read_toml(words, name)
    for dotted, given in table.items():
        _require_known(dotted, given)
    hosts = {one: RealHost(**_read(RealHost, f"hosts.{one}", table, name)) for one in _named("hosts", table)}
    paths = {one: RealPath(**_read(RealPath, f"paths.{one}", table, name)) for one in _named("paths", table)}
    for one in NEEDED:
        if one not in hosts:
            raise RequestError(f"{name}: the host {one} is missing: expected a section [hosts.{one}] with its address")
    if DIRECT not in paths:
        wanted = f"expected a section [paths.{DIRECT}] with the ports that one cable joins"
        raise RequestError(
            f"{name}: the path without a device is missing, and all others are compared with it: {wanted}"
        )
    bed = RealBed(hosts, paths)
    _check_devices(bed, table)
    _check_ports(bed, table)
    return bed


def _from_folder(host: RealHost, here: Path) -> RealHost:
    """Return the host with paths of files relative to the bed's file; `none` has a meaning for OpenSSH."""

    def whole(file: str | None) -> str | None:
        return file if file is None or file == "none" else str(here / Path(file).expanduser())

    return replace(host, identity=whole(host.identity), config=whole(host.config))


def _switched_from(path: RealPath, here: Path, where: str) -> RealPath:
    """Return the path with its switch program relative to the bed's file."""
    if path.switch in (None, PERSON):
        return path
    return replace(path, switch=by_path(path.switch, here, Given(path.switch, where), "switch"))


def from_folder(table: Table, here: Path) -> Table:
    """Return the table with the absolute path of the file in `bed.hosts`."""
    given = table.get("bed.hosts")
    if given is None or not isinstance(given.value, str):
        return table
    return table | {"bed.hosts": Given(str((here / given.value).absolute()), given.where)}


def asked_by(file: str, where: str) -> Table:
    """Return a plan's values for a file of hosts: its name, and the devices between the hosts."""
    bed = load_real_bed(file)
    main = max(bed.devices, key=devices.rank, default=None)
    return {
        "bed.backend": Given("ssh", where),
        "bed.hosts": Given(str(Path(file).absolute()), where),
        "bed.devices": Given(list(bed.devices), where),
        "bed.twins": Given(bed.has_twins(main), where),
        "bed.device_cpu": Given("shared", where),  # the core of a device is a matter of its own host
    }


def _read(kind: type, section_name: str, table: Table, name: str) -> dict[str, Any]:
    return read_section(kind, section_name, table, name)


def _named(what: str, table: Table) -> Iterator[str]:
    """Return the names of the tables below a section, in their order."""
    yield from dict.fromkeys(dotted.removeprefix(f"{what}.").rpartition(".")[0] for dotted in table
                             if dotted.startswith(f"{what}."))  # fmt: skip


def _require_known(dotted: str, given: Given) -> None:
    first, _, rest = dotted.partition(".")
    one, _, own = rest.rpartition(".")
    kinds = {"hosts": RealHost, "paths": RealPath}
    if first not in kinds or not one:
        meant = "a key of [hosts.a], [hosts.b], [hosts.device] or [paths.<name>]"
        raise RequestError(f"{given.where}: unknown key {dotted}: expected {meant}")
    if first == "hosts" and one not in HOSTS:
        meant = ", ".join(f"{name} ({role})" for name, role in HOSTS.items())
        raise RequestError(f"{given.where}: unknown host {one}: expected one of {meant}")
    keys = keys_of(kinds[first])
    if own not in keys:
        meant = nearest(own, keys) or f"one of {', '.join(keys)}"
        raise RequestError(f"{given.where}: unknown key {dotted}: expected {meant}")


def _check_devices(bed: RealBed, table: Table) -> None:
    for path in bed.paths:
        given = table[f"paths.{path}.a"]
        fellow = devices.kind_of(path)
        if fellow not in bed.paths:
            wanted = f"a section [paths.{fellow}] of which it is the second"
            raise RequestError(f"{given.where}: path {path}: expected {wanted}")
        if fellow != DIRECT and devices.known(fellow) is None:
            wanted = f'"dut:<label>" for a device that is cabled there, or {devices.what_there_is(1)}'
            raise RequestError(f"{given.where}: path {path}: expected {DIRECT}, {wanted.replace(chr(39), chr(34))}")
    for path, own in bed.paths.items():
        device, given = devices.known(devices.kind_of(path)), table[f"paths.{path}.a"]
        ours = device is not None and bool(device.stations) and not device.mode.is_outside
        if ours and ("device" not in bed.hosts or not own.left or not own.right):
            wanted = "a section [hosts.device], and its ports as left and right"
            raise RequestError(f"{given.where}: path {path} is a device that Sojourn builds: expected {wanted}")
        if devices.kind_of(path) == DIRECT:
            _check_direct(path, own, bed, given)
        elif not ours and (own.left or own.right):
            wanted = "no left and right: nothing is built there"
            raise RequestError(f"{given.where}: path {path}: expected {wanted}")
        is_switch = device is not None and (device.mode.is_switch or device.mode.is_outside)
        _check_several(path, own, table, is_switch=is_switch)


def _is_outside(device: str) -> bool:
    known = devices.known(device)
    return known is not None and known.mode.is_outside


def _check_direct(path: str, own: RealPath, bed: RealBed, given: Given) -> None:
    """A direct link goes through the devices' host, where an emulator gives it a rate, or is one cable; and so does
    each other one.
    """
    through = bool(bed.paths[DIRECT].left or bed.paths[DIRECT].right)
    if path != DIRECT and bool(own.left or own.right) != through:
        wanted = "left and right, as path direct has them" if through else "no left and right: path direct has none"
        raise RequestError(f"{given.where}: path {path}: expected {wanted}")
    if through and ("device" not in bed.hosts or not own.left or not own.right):
        wanted = "a section [hosts.device], and its ports as left and right; or neither of them"
        raise RequestError(f"{given.where}: path {path} goes through the host of devices: expected {wanted}")


def _check_several(path: str, own: RealPath, table: Table, *, is_switch: bool) -> None:
    """Only what joins more than two ports has several at an end, each with a cable to the device's host or, where
    Sojourn does not build it, to the device itself.
    """
    for end, inner in (("a", "left"), ("b", "right")):
        there, given = getattr(own, end), table[f"paths.{path}.{end}"]
        if len(there) > 1 and (not is_switch or path.endswith(BYPASS)):
            why = "a load beside a device has one pair of ports" if is_switch else "it joins two ports"
            raise RequestError(f"{given.where}: path {path}: {end} has {len(there)} ports: expected one: {why}")
        is_through = is_switch and not _is_outside(devices.kind_of(path))
        if (is_through or getattr(own, inner)) and len(getattr(own, inner)) != len(there):
            counted = f"{inner} has {len(getattr(own, inner))} and {end} has {len(there)}"
            wanted = "as many: each of the one is cabled to the one in its place of the other"
            raise RequestError(f"{table[f'paths.{path}.{inner}'].where}: path {path}: {counted}: expected {wanted}")


def _check_ports(bed: RealBed, table: Table) -> None:
    """Check that every path has ports of its own, except those with a switch, which may share two ports."""
    taken: dict[tuple[str, str], str] = {}
    for path, own in bed.paths.items():
        if own.switch is not None and own.left:
            wanted = "no switch: what is joined by left and right has ports of its own"
            raise RequestError(f"{table[f'paths.{path}.switch'].where}: path {path}: expected {wanted}")
        if own.switch is not None and own.has_several:
            wanted = "no switch: a path with several ports at an end has ports of its own"
            raise RequestError(f"{table[f'paths.{path}.switch'].where}: path {path}: expected {wanted}")
        if own.switch is not None and path.endswith(BYPASS):
            wanted = "no switch: its load passes while the path beside it is measured"
            raise RequestError(f"{table[f'paths.{path}.switch'].where}: path {path}: expected {wanted}")
        fellow = taken.get(("a", own.a[0]))
        if fellow is not None and fellow == taken.get(("b", own.b[0])) and own.switch and bed.paths[fellow].switch:
            continue
        for host, names in (("a", ("a",)), ("b", ("b",)), ("device", ("left", "right"))):
            for name, port in ((one, port) for one in names for port in getattr(own, one)):
                if (host, port) in taken:
                    both = f"{port} of host {host} is a port of path {taken[host, port]} already"
                    wanted = f"another interface, or the same two ports and a key switch in both paths: {SWITCH}"
                    raise RequestError(f"{table[f'paths.{path}.{name}'].where}: {both}: expected {wanted}")
                taken[host, port] = path
