"""Simulate an SSH host with arbitrary answers: every query of a bed, and valid answers to each.

Each query runs through the function that sends it and the parser of its answer; a target of `tests/fuzz/targets.py`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sojourn.bed import facts, joined, negotiated, real_hosts, turns, wiring
from sojourn.bed.backends import ssh
from sojourn.bed.fetching import Fetched, fetch
from sojourn.bed.keeper import READ_NEXT
from sojourn.bed.remote import RemoteProcess, kept
from sojourn.bed.settings import HostSettings
from sojourn.bed.ssh import reading
from sojourn.conduct import counters
from sojourn.conduct.addresses import addresses_of
from sojourn.conduct.meter import Meter
from sojourn.conduct.taps import matched_in, mean_delay_ns
from sojourn.devices import bridge
from sojourn.instruments.emulator import replay
from sojourn.instruments.iperf import sockets_in
from sojourn.instruments.learning import LONGEST_NS, send_new_addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sojourn.bed.backend import FilesRead

ASKED = {"rx_usecs": "0", "irq_cpus": "1", "governor": "performance", "idle_latency": "0"}
PORTS = (("77-1234", "eth1", "a-direct"),)
MOST_BYTES = 1 << 20


class AnsweringHost:
    """A stand-in for an SSH connection, a host with its keeper, and a backend: each query gets the next answer."""

    name, work, keeper, root = "a", "/var/tmp/sojourn", 77, ()
    tools = "/var/lib/sojourn/0"
    namespaces = {"a": "4001-1234"}  # noqa: RUF012 - nobody changes it
    found = SimpleNamespace(boot_id="boot")

    def __init__(self, answers: Sequence[bytes]) -> None:
        self._answers = list(answers)
        self._at = 0
        self.line = self

    def __str__(self) -> str:
        return "host A (a.lab)"

    def run_bytes(self, *_: object, **__: object) -> bytes:
        """Return the next answer; after the last one, start again with the first."""
        self._at += 1
        return self._answers[(self._at - 1) % len(self._answers)]

    def run(self, *_: object, **__: object) -> str:
        """Return the next answer as text."""
        return self.run_bytes().decode(errors="replace")

    def start(self, *_: object, **__: object) -> AnsweringProcess:
        """Return a program of the host, which prints the next answer and has ended."""
        return AnsweringProcess(self.run_bytes())

    def find(self, tool: str, *_: object) -> str:
        """Return a tool: the host has every one."""
        return tool

    def lend(self, *_: object) -> Path:
        """Return the place of a file of ours on the host."""
        return Path("/var/tmp/sojourn/lent")

    def instrument(self) -> str:
        """Return the place of the instrument on the host."""
        return f"{self.tools}/sojourn-instrument"

    def get(self, *_: object) -> str:
        """Return the contents of a file of the host."""
        return self.run()

    def send(self, _: str) -> bool:
        """Pretend to send a line to the keeper."""
        return True

    def require(self) -> None:
        """Pretend that the keeper is running."""

    def cgroup(self, _: str) -> str:
        """Return the cgroup of the host's programs."""
        return "/sys/fs/cgroup/a"

    def read(self, _: str, paths: Sequence[str], __: Sequence[int]) -> FilesRead:
        """Return several files of the host, with its time."""
        return ssh.files_of(self.run(), len(paths), 37_000_000_000)


class AnsweringProcess:
    """A stand-in for a program on the host that has printed an answer and ended."""

    returncode, where = 0, "host A (a.lab)"
    stdin = stderr = None

    def __init__(self, said: bytes) -> None:
        reader, writer = os.pipe()
        self.stdout = os.fdopen(reader, "rb", buffering=0)
        with os.fdopen(writer, "wb", buffering=0) as output:
            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, MOST_BYTES)
            output.write(said[:MOST_BYTES])

    def wait(self, _: float = 0.0) -> int:
        """Return its status."""
        return self.returncode

    def kill(self) -> None:
        """Do nothing: it has ended."""


def _fetch(host: AnsweringHost) -> None:
    """Fetch growing files: local ones have at most the stated size, and lie only in the records folder."""
    with tempfile.TemporaryDirectory() as spare:
        records = Path(spare) / "run/records"
        records.mkdir(parents=True)
        machine: Any = host
        one = Fetched(machine, "/there", records, {})
        try:
            fetch(one)
        finally:
            there = {path for path in Path(spare).rglob("*") if path.is_file()}
            assert there == {records / name for name in one.sizes}
            assert all((records / name).stat().st_size <= size for name, size in one.sizes.items())


def _settings(host: AnsweringHost) -> None:
    """Read the host's settings, set them, and check them at the end."""
    remote: Any = host
    one = HostSettings(remote, ASKED, has_its_own=True)
    one.require(["eth1"])
    one.set(PORTS)
    one.look()
    one.hear(host.run())
    assert all(isinstance(row.ended, str) and row.setting in ASKED for row in one.tuned)


def _usage(host: AnsweringHost) -> None:
    machine: Any = host
    assert len(ssh._usage(machine)) == 4


def _moment(host: AnsweringHost) -> None:
    machine: Any = host
    assert len(ssh._moment(machine)["load_average"]) <= 3


def _processes(host: AnsweringHost) -> None:
    """Read the CPU time of a program, and the drops of the host's network stack."""
    backend: Any = ssh.SshBackend.__new__(ssh.SshBackend)
    process: Any = RemoteProcess.__new__(RemoteProcess)
    process.pid, process.remote, process.number = 9, host, 1
    backend._machines, backend._started = {"a": host}, [process]
    assert isinstance(backend.cpu_ns(9), int)
    assert isinstance(backend.softnet_dropped(), int)


def _tools(host: AnsweringHost) -> None:
    line: Any = host
    ssh.require_tools(line, {"nft": "nftables", "bridge": "iproute2"})


def _facts(host: AnsweringHost) -> None:
    """Read the host's settings for bed.json."""
    backend: Any = host
    json.dumps(facts._host(backend, "a"))


def _counters(host: AnsweringHost) -> None:
    """Read the counters of its interfaces, from `ip`, from `tc` and from the kernel's table."""
    backend: Any = host
    found = [
        *facts.counters(backend, "a").values(),
        facts.qdisc_dropped(backend, "a"),
        *counters._read(backend, "a").values(),
    ]
    assert all(isinstance(count, int) for one in found for count in one.values())


def _ports(host: AnsweringHost) -> None:
    """Read what its ports negotiated, and whether they are up."""
    backend: Any = host
    topology: Any = SimpleNamespace(hosts=(host,), ports=lambda _: (SimpleNamespace(dev="eth1"),))
    found = negotiated.ports_found(backend, topology, {"eth1": "enp1s0"})
    assert list(found) == ["eth1"]
    assert set(wiring._not_up(backend, "a", topology)) <= {"eth1"}


def _meter(host: AnsweringHost) -> None:
    bed: Any = SimpleNamespace(backend=host)
    Meter.of(bed, {"a": 3}).read()
    with reading(host):
        assert sockets_in(host.get(), "01") >= 0


def _keeper(host: AnsweringHost) -> None:
    """Parse a keeper's first line: its PID, and those of the processes that hold the namespaces of two hosts."""
    with reading(host):
        first, namespaces = kept(host.run().split(), ("a", "b"))
        assert isinstance(first, int)
        assert list(namespaces) == ["a", "b"]


def _learning(host: AnsweringHost) -> None:
    """Have the host send frames from new addresses, and count those that its bridge has learned."""
    backend: Any = host
    assert 0 < send_new_addresses(backend, "b", "eth1", 4096, 0.0, "02:00:00:00:00:01") < LONGEST_NS
    assert addresses_of(backend, "d", "br0") >= 0


def _tai(host: AnsweringHost) -> None:
    """Ask the host for its time and its TAI offset."""
    backend: Any = ssh.SshBackend.__new__(ssh.SshBackend)
    backend._machines, backend._tai_offsets, backend._tools = {"a": host}, {}, host.tools
    assert isinstance(backend.tai_ns("a"), int)


def _answered(host: AnsweringHost) -> None:
    """Ask whether B answers A: over a path that was just connected, and in the check of a bed."""
    backend: Any = host
    link: Any = SimpleNamespace(b_ip4="10.0.0.2", a_dev="eth1")
    assert turns.unanswered(backend, link) in (None, "B does not answer A", "not every probe is answered")
    with reading(host):
        received, least_us = real_hosts.answered(backend, link)
        assert 0 <= received <= joined.PROBES
        assert math.isfinite(least_us)


def _matched(host: AnsweringHost) -> None:
    """Parse the summary of two taps on the host."""
    mean_ns = mean_delay_ns(matched_in(host.run(), str(host)))
    assert mean_ns is None or math.isfinite(mean_ns)


def _replayed(host: AnsweringHost) -> None:
    """Parse the replay of an emulator's log on the host."""
    start: Any = host.start
    assert all(isinstance(one, dict) for one in replay(start, "sojourn-instrument", Path("/there"), "idle", 0))


def _waiting(host: AnsweringHost) -> None:
    """Ask whether the ports of a bridge are up and forward."""
    backend: Any = host
    ports = (SimpleNamespace(dev="eth1"),)
    station = SimpleNamespace(host="d", kind="bridge", mode=bridge.DEVICE, ports=ports)
    topology: Any = SimpleNamespace(ports=lambda _: ports, stations=(station,))
    assert set(wiring._not_up(backend, "d", topology)) <= {"eth1"}


QUESTIONS: dict[str, Callable[[AnsweringHost], None]] = {
    "fetch": _fetch,
    "settings": _settings,
    "usage": _usage,
    "moment": _moment,
    "processes": _processes,
    "tools": _tools,
    "facts": _facts,
    "counters": _counters,
    "ports": _ports,
    "meter": _meter,
    "keeper": _keeper,
    "learning": _learning,
    "tai": _tai,
    "answered": _answered,
    "matched": _matched,
    "replayed": _replayed,
    "waiting": _waiting,
}
"""The queries, by the first word of the target's input."""

_LINK = {
    "ifname": "eth1", "operstate": "UP", "mtu": 1500, "address": "02:00:00:00:00:01", "flags": ["UP"],
    "linkinfo": {"info_kind": "bridge", "info_data": {"stp_state": 0, "ageing_time": 30000}},
    "stats64": {way: {"packets": 3, "bytes": 180, "errors": 0, "dropped": 1} for way in ("rx", "tx")},
}  # fmt: skip
_QDISC = {"kind": "fq_codel", "dev": "eth1", "root": True, "drops": 2, "options": {"limit": 9}}
_NEIGHBOUR = {"dst": "10.0.0.2", "dev": "eth1", "lladdr": "02:00:00:00:00:02", "state": ["PERMANENT"]}
_ETHTOOL = (
    "= eth1\ndriver: virtio_net\ntcp-segmentation-offload: on\nrx-checksumming: off [fixed]\n= pause\nRX:\t\toff\n"
    "= coalescing\nAdaptive RX: off  TX: off\nrx-usecs: 3\n= rings\nCurrent hardware settings:\nRX:\t\t256\n"
)
_PORT = "= eth1\n\tSpeed: 1000Mb/s\n\tDuplex: Full\n== coalescing\nAdaptive RX: off\nrx-usecs: 3\n== eee\n== offloads\n"
_DEV = "Inter-|\n face |\n    lo: " + "0 " * 16 + "\n  eth1: " + "7 " * 16 + "\n"
_SNMP = "Ip: Forwarding InReceives\nIp: 2 5\nTcp: ActiveOpens RetransSegs\nTcp: 4 2\n"
_NETSTAT = "TcpExt: SyncookiesSent TCPTimeouts\nTcpExt: 0 3\nIpExt: InNoRoutes InOctets\nIpExt: 0 700\n"
_USAGE = (
    "cpu  10 0 20 300 0 1 2 5 0 0\n100\n4\nended 0m1.20s 0m0.30s\n"
    "live S 1 2 3 0 -1 0 0 0 0 0 40 50 0 0 20 0 1 0 5 0 0\nsoftnet 0000001f 00000000 00000000\n"
)
_SET = (
    "set a-direct rx_usecs rx_usecs 3 0\nset a-direct irq_cpus irq-24 0-3 1\n"
    "set - governor governor-0 powersave performance\n"
)


_WAY = {"direction": "forward", "counts": {"matched": 3}, "delay": {"n": 3, "mean_ns": 700.5}}


def _said(question: str, *answers: str | bytes) -> bytes:
    return b"\f".join([question.encode(), *(one.encode() if isinstance(one, str) else one for one in answers)])


def _file(content: bytes) -> tuple[str, bytes, str]:
    digest = hashlib.sha256(content).hexdigest()
    return f" {len(content)} ./blocks-000.arrow\n", content, f"{digest}  -\n"


def _read(first: str, *others: str, programs: str = "") -> str:
    """What a host says of files, its time and the threads of programs."""
    parts = ["1795000000000000000\n", first, "1795000000001000000\n", *others, programs]
    return f"{READ_NEXT}\n".join(parts)


HOST_ANSWERS = [
    _said("fetch", *_file(b"some blocks")),
    _said("settings", "", "4\n", "0\n", _SET, "0 1 performance 0\n", "back a-direct rx_usecs 3\n"),
    _said("usage", _USAGE),
    _said("moment", "0.10 0.20 0.30 1/200 4000\n3600.51 7000.20\n"),
    _said("processes", "1200\n300\n", "0000001f 00000003 00000000\n00000001 00000000 00000000\n"),
    _said("tools", ""),
    _said(
        "facts", json.dumps([_LINK]), _ETHTOOL, json.dumps([_QDISC]), json.dumps([_NEIGHBOUR]),
        "net/ipv4/ip_forward 0\nnet/core/rmem_max 212992\n",
    ),
    _said("counters", json.dumps([_LINK]), json.dumps([_QDISC]), _DEV),
    _said("ports", _PORT, json.dumps([_LINK])),
    _said(
        "meter", "100\n", _read(_SNMP, _NETSTAT, "usage_usec 500\n", programs="700\n"),
        _read("usage_usec 700\n", "cpu  1 2 3 4 5 6 7 8\n", _SNMP, _NETSTAT),
        "  sl  local_address\n   0: 0100007F:1451 00000000:0000 0A\n",
    ),
    _said("keeper", "4000 4001-70 4002-71\n"),
    _said("learning", '{"elapsed_ns": 81920000}\n', json.dumps([{"mac": "02:78:00:00:00:01"}, {"mac": "33:33::"}])),
    _said("tai", '{"local": {"kernel": {"tai_offset_s": 37}}}\n', "1795000000000000000\n"),
    _said("answered", '{"received": 3}\n', '{"received": 20, "rtt": {"min_ns": 81000}}\n'),
    _said("matched", json.dumps({"pairs": [{"directions": [_WAY]}]})),
    _said("replayed", "replaying\n" + json.dumps({"event": "replayed", "identical": True, "packets": 7}) + "\n"),
    _said("waiting", json.dumps([_LINK]), json.dumps([{"ifname": "eth1", "state": "forwarding"}])),
]  # fmt: skip
"""Valid answers to each query."""
