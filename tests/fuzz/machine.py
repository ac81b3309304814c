"""Readers of what this machine says: files of /proc and /sys, and the output of `ip`, `tc`, `nft` and of instruments.

Names in them are those that users chose: of processes, interfaces, mount points, tables. A container, or another
kernel, shows files of another form. Examples are those of a machine with a veth pair, a bridge and rules.
"""

from __future__ import annotations

import io
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rich.console import Console

from sojourn.analysis import device_rules
from sojourn.bed import (
    cgroups,
    clean,
    copies,
    cores,
    doctor,
    facts,
    host_bridge,
    host_commands,
    machine,
    netem_left,
    port_uses,
)
from sojourn.bed import state as bed_state
from sojourn.devices import bridge_netfilter
from sojourn.errors import MachineError
from sojourn.labs import end
from tests.fuzz.chosen import Reader


def _text(octets: bytes) -> str:
    return octets.decode(errors="replace")


def _started(octets: bytes) -> None:
    """Find the start time and the parent in /proc/PID/stat of a process of this name."""
    name = _text(octets)
    stat = f"7 ({name}) S 0 7 7 0 -1 4194560 95 0 0 0 0 0 0 0 20 0 1 0 4711 3133440 366\n"
    with patch.object(bed_state, "Path", _holding(stat)):
        assert bed_state.Process.of(7).started_ticks == 4711
    with patch.object(clean, "Path", _holding(stat)):
        assert len(clean._this_process_and_its_parents()) == 1


def _holding(text: str) -> Any:
    """Return a stand-in for `Path` by which every file has this text."""

    class File:
        def __init__(self, *_: object) -> None: ...

        def read_text(self, **_: object) -> str:
            return text

        def read_bytes(self) -> bytes:
            return text.encode(errors="surrogateescape")

    return File


def _marked(octets: bytes) -> None:
    """Find the mark of a bed in the environment of a process, which its user chose."""

    class Folder:
        def __truediv__(self, _: str) -> Any:
            return self

        def read_bytes(self) -> bytes:
            return octets

    clean._mark_of(Folder())  # type: ignore[arg-type]


def _mounts(octets: bytes) -> None:
    """Find the cgroups in a mount table in which this is a mount point, escaped as the kernel does."""
    place = octets
    for plain, escaped in ((b"\\", b"\\134"), (b" ", b"\\040"), (b"\t", b"\\011"), (b"\n", b"\\012")):
        place = place.replace(plain, escaped)
    other, own = (b"22 27 0:21 / %s rw - tmpfs tmpfs rw\n", b"41 31 0:38 / %s rw - cgroup2 cgroup2 rw\n")
    assert cgroups.unified_root(other % place + own % place) == Path(os.fsdecode(octets))


def _facts(octets: bytes) -> None:
    """Read every fact of the machine from files that all have this text."""
    with patch.object(machine, "_read", lambda _: _text(octets).strip()):
        assert all(0 <= cpu < 10**5 for cpu in machine.online())
        numbers = [
            *machine.cpu_ticks().values(),
            *machine._interrupts().values(),
            *machine._sums("/proc/softirqs").values(),
        ]
        assert all(number >= 0 for number in numbers)
        assert machine.softnet_dropped() >= 0
        machine._memory()
        machine._uptime_s()
        machine._field_of_stat("ctxt")
        machine._number(Path("/sys"))
        machine._cpu()


def _own_doctor(octets: bytes) -> None:
    """Show the instrument's own examination."""

    class Done:
        stdout, returncode = _text(octets), 0

    with (
        patch.object(machine, "instrument_binary", lambda: "instrument"),
        patch.object(subprocess, "run", lambda *_, **__: Done()),
    ):
        said = doctor._instrument_doctor()
    examination = {"checks": [vars(one) for one in doctor._instrument(said)]}
    doctor.print_examination(examination | {"sentence": ""}, Console(file=io.StringIO()))


def _program(octets: bytes) -> None:
    """Find the architecture that an instrument was built for."""
    assert copies.architecture_of(octets)


def _load(octets: bytes) -> None:
    """Read what the load on the device's core says it achieved."""

    class Load:
        stdin, stdout = io.StringIO(), io.StringIO()

    made = object.__new__(cores.DeviceCores)
    made._load = Load()  # type: ignore[assignment]
    with patch.object(cores, "line_of", lambda *_: octets), patch.object(Load.stdout, "fileno", lambda: 0, create=True):
        made.load()


def _ip(octets: bytes) -> None:
    """Read what `ip -json` says of links, addresses and routes; it is the same answer to each question."""
    with patch.object(host_commands, "run", lambda *_: _text(octets)):
        links = {str(one["ifname"]): one for one in port_uses.links_here()}
        for name, link in links.items():
            port_uses.kind_of(link)
            with suppress(MachineError):
                port_uses.in_use(name, links)
        port_uses._port_towards("10.0.0.9")
        for name in links:
            host_bridge._port_now("hub", name, links, links)


def _queues(octets: bytes) -> None:
    """Read what `tc` says: its text, its JSON."""
    with suppress(ValueError):  # `facts` catches it by `reading`
        assert facts._qdisc_of_text(_text(octets))["kind"]
    with patch.object(host_commands, "run", lambda *_: _text(octets)):
        kind, handle = host_bridge._root_queue("eth1")
        assert isinstance(kind, str)
        assert isinstance(handle, str)


def _left(octets: bytes) -> None:
    """Look for the netem of a dead emulator: `ip -json link`, an empty line, `tc qdisc show`."""
    links, _, queues = _text(octets).partition("\n\n")
    left = netem_left.Left("boot", 5, 2, "n2", "5abc:")

    def inside(_: Path, tool: str, *words: str) -> str:
        return links if tool == "ip" else queues if "show" in words else ""

    with patch.object(netem_left, "_inside", inside):
        netem_left._remove(left, Path("/proc/self/ns/net"))


class _File:
    """A file of these bytes."""

    def __init__(self, octets: bytes) -> None:
        self.octets = octets

    def open(self, _: str) -> io.BytesIO:
        return io.BytesIO(self.octets)

    def read_text(self, **_: object) -> str:
        return self.octets.decode()


def _record(octets: bytes) -> None:
    """Read the record of a netem."""
    found = netem_left.Left.read(_File(octets))  # type: ignore[arg-type]
    assert found is None or found.index >= 0


def _bridge(octets: bytes) -> None:
    """Read the state of a bridge of real ports."""
    found = host_bridge.HostBridge.read(_File(octets))  # type: ignore[arg-type]
    assert all(isinstance(port.name, str) for port in found.ports)
    with patch.object(host_bridge, "_state_of", lambda _: _File(octets)):
        mac = host_bridge._mac_kept("br0")
    assert mac is None or isinstance(mac, str)


def _tables(octets: bytes) -> None:
    """Read what `nft -j list tables` says."""
    assert len(bridge_netfilter.notes(lambda _: _text(octets), None)) == 3  # type: ignore[arg-type]


def _rules(octets: bytes) -> None:
    """Find the chains in `nft list ruleset`, and the bridge of a device in `ip -d link show`."""
    text = _text(octets)
    assert all(chain.rules >= 0 for chain in device_rules.chains_of(text))
    for is_routed in (True, False, None):
        device_rules._of_device("bridge", {"ip -d link show": text, "nft list ruleset": text}, is_routed=is_routed)


def _listening(octets: bytes) -> None:
    """Find the ports that programs listen at, in /proc/net/tcp."""
    assert all(0 <= port < 1 << 16 for port in end._ports_in(_text(octets), "0A"))


def _ethtool(octets: bytes) -> None:
    """Read what `ethtool` says of pause frames, coalescing and rings."""
    for read in (facts._pause, facts._coalescing, facts._rings):
        read(_text(octets))


LINKS = (
    b'[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP"],"mtu":65536,"qdisc":"noqueue","operstate":"UNKNOWN"},'
    b'{"ifindex":2,"link":"n1","ifname":"n2","flags":["BROADCAST","UP","LOWER_UP"],"mtu":1500,"qdisc":"noqueue",'
    b'"operstate":"UP","address":"6e:ac:90:fa:0f:d8","linkinfo":{"info_kind":"veth"},"dst":"default","dev":"n2"},'
    b'{"ifindex":3,"link":"n2","ifname":"n1","flags":["UP"],"master":"hub","dst":"10.0.0.0/24","dev":"hub",'
    b'"stats64":{"rx":{"packets":1,"dropped":0},"tx":{"packets":5,"dropped":0}},"addr_info":[{"family":"inet",'
    b'"local":"10.0.0.1","prefixlen":24,"scope":"global"}]},{}]'
)
QUEUES_JSON = (
    b'[{"kind":"htb","handle":"1:","dev":"n2","root":true,"options":{"default":"0x11"}},{"kind":"sfq","handle":"2:"}]'
)
QUEUES_TEXT = (
    b"qdisc netem 5abc: dev n2 root refcnt 2 limit 1000 delay 20ms\n"
    b" Sent 70 bytes 1 pkt (dropped 3, overlimits 0 requeues 0)\n backlog 0b 0p requeues 0\n"
)
STAT = (
    b"cpu  1355631 246003 608483 615207 9728 0 126242 2974 0 0\ncpu0 611153 123071\nctxt 815093411\nbtime 1795000000\n"
)
INTERRUPTS = (
    b"           CPU0       CPU1\n 24:          1          0  IO-APIC   5-edge      ACPI:Ged\n"
    b"NMI:          0          0   Non-maskable interrupts\nERR:          0\n"
)
SOFTNET = b"32cd7298 000210ce 0000005a 00000000 00000000\n116b3593 000e815a 00001a2a 00000000 00000000\n"
MEMORY = b"MemTotal:       24684096 kB\nMemFree:         1234567 kB\nHugePages_Total:       0\n"
CPUINFO = (
    b"processor\t: 0\nmodel name\t: A processor\nflags\t\t: fpu hypervisor constant_tsc nonstop_tsc\nmicrocode\t: 0x1\n"
)
DOCTOR = (
    b'{"status":0,"checks":[{"name":"clock","status":"ok","found":"tsc","needed":true},'
    b'{"name":"AF_XDP","status":"missing","detail":"no","fix":"run as root"}]}'
)
RULESET = (
    b"table inet sojourn {\n\tchain prerouting {\n\t\ttype filter hook prerouting priority mangle; policy accept;\n"
    b"\t\tmeta l4proto != { tcp, udp } accept\n\t\tcounter packets 0 bytes 0 meta mark set 0x00000007\n\t}\n}\n"
)
DEVICE = (
    b"2: d-bridge-1l@a-bridge-1: <UP> mtu 1500 master br state UP\n    bridge_slave state forwarding\n"
    b"3: d-bridge-1r@b-bridge-1: <UP> mtu 1500 master br state UP\n"
)
SOCKETS = (
    b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
    b"   0: 0100007F:1451 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1\n"
)
RECORD = b'{"boot":"9c1d","namespace":4026531840,"index":3,"port":"eth1","handle":"5abc:"}'
BRIDGE = (
    b'{"name":"br0","mode":"qos","ports":[{"name":"eth1","was_up":true,"master":null},'
    b'{"name":"eth2","was_up":false,"master":"br1"}],"notes":["a"],"files":[],"mac":"0a:00:00:00:00:01"}'
)
PAUSE = b"Autonegotiate:\ton\nRX:\t\toff\nTX:\t\ton\n"
RINGS = b"Pre-set maximums:\nRX:\t\t4096\nCurrent hardware settings:\nRX:\t\t256\nTX:\t\t256\n"

READERS = (
    Reader(_started, (b"cat", b"a) R (b")),
    Reader(_marked, (b"PATH=/bin\0SOJOURN_BED=run-1@123-456\0HOME=/root\0",)),
    Reader(_mounts, (b"/sys/fs/cgroup/unified", b"/a b\\c")),
    Reader(_facts, (STAT, INTERRUPTS, SOFTNET, MEMORY, CPUINFO, b"14945.39 6152.07", b"0-3,5")),
    Reader(_own_doctor, (DOCTOR,)),
    Reader(_load, (b'{"share": 0.5, "wanted": 0.5}',)),
    Reader(_ip, (LINKS, b"[]")),
    Reader(_queues, (QUEUES_JSON, QUEUES_TEXT)),
    Reader(_left, (LINKS + b"\n\n" + QUEUES_TEXT.replace(b" dev n2", b""),)),
    Reader(_record, (RECORD,)),
    Reader(_bridge, (BRIDGE,)),
    Reader(
        _tables, (b'{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "inet", "name": "a"}}]}',)
    ),
    Reader(_rules, (RULESET, DEVICE)),
    Reader(_listening, (SOCKETS,)),
    Reader(_ethtool, (PAUSE, RINGS)),
    Reader(_program, (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\0\x3e\0", b"#!/bin/sh")),
)
