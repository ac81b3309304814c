"""Check what this machine can do, and say how to fix what it cannot.

Everything is tried: a bed is built, and on it the shaper, the device's own core and the minimum RTT of the direct link.
The instrument's own report (`sojourn-instrument doctor --json`) is included. The status is 3 when something is missing
that measuring requires, else 0.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from sojourn.bed import machine
from sojourn.bed.backends.netns import TOOL_PACKAGES
from sojourn.bed.boxes import LACKS
from sojourn.bed.build import Bed, build_bed
from sojourn.bed.cores import cpu_mask
from sojourn.bed.model import BedSpec
from sojourn.bed.processes import find_tool
from sojourn.bed.rights import rights
from sojourn.devices import left_out, modes
from sojourn.errors import SojournError, spelled
from sojourn.records.decode import json_value
from sojourn.records.scratch import scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.text import Text

    from sojourn.devices import Mode

Status = Literal["ok", "limited", "missing"]

_ANSWER_SECONDS = 5.0
_FLOOR_PROBES = 244
_ECHO_REPLY_BIT = 1  # of icmp_ratemask: whether the kernel limits the rate of echo replies too
_STUDY_TOOLS = {
    "ping": ("iputils-ping", "the study ping-wait and `make bench`"),
    "tcpdump": ("tcpdump", "the study ping-wait"),
    "chromium": ("chromium", "the browser test of the report"),
}


@dataclass(frozen=True)
class Check:
    """The result of one check; `needed`: measuring requires it."""

    group: str
    name: str
    status: Status
    found: str
    fix: str | None = None
    needed: bool = False


def examine() -> dict[str, Any]:
    """Run all checks, which takes a second or two. Keys: `status`, `sentence`, `checks`, `instrument`."""
    instrument = _instrument_doctor()
    checks = [*_tools(), *_rights(), *_beds(), *_kernel(), *_processor(), *_instrument(instrument)]
    lacking = [check for check in checks if check.needed and check.status == "missing"]
    return {
        "status": 3 if lacking else 0,
        "sentence": _sentence(checks, lacking),
        "checks": [asdict(check) for check in checks],
        "instrument": instrument,
    }


def print_examination(examination: dict[str, Any], console: Console | None = None) -> None:
    """Print the examination as a table, with the worst results last, next to the prompt."""
    from rich.console import Console
    from rich.table import Table

    console = console or Console(highlight=False, emoji=False)
    table = Table(box=None, pad_edge=False)
    for column in ("", "what", "found", "how to fix it"):
        table.add_column(column, overflow="fold")
    marks = {"ok": "[green]✓[/]", "limited": "[yellow]~[/]", "missing": "[red]✗[/]"}
    for check in examination["checks"]:
        fix = check["fix"] or ""
        table.add_row(marks[check["status"]], _plain(check["name"]), _plain(check["found"]), _plain(fix))
    console.print(table)
    console.print()
    console.print(_plain(examination["sentence"]))


def _plain(said: str) -> Text:
    """Return text of any origin, such as a host's: without markup, and with control characters spelled out."""
    from rich.text import Text

    return Text("".join(map(spelled, said)))


def _sentence(checks: list[Check], lacking: list[Check]) -> str:
    if lacking:
        names = ", ".join(check.name for check in lacking)
        return f"This machine cannot do the main job yet: {names}."
    limited = sum(check.status != "ok" for check in checks)
    if limited:
        return f"This machine can do the main job; {limited} of {len(checks)} things are missing or limited."
    return "This machine can do everything."


def _tools() -> Iterator[Check]:
    of_devices = {tool: package for mode in needed_modes() for tool, package in mode.tools.items()}
    for tool, package in (TOOL_PACKAGES | of_devices).items():
        there = find_tool(tool)
        yield _there("tools", tool, there, f"apt-get install {package}", needed=True)
    for tool, (package, purpose) in _STUDY_TOOLS.items():
        there = find_tool(tool)
        yield _there("tools", tool, there, f"for {purpose}: apt-get install {package}", needed=False)


def _there(group: str, name: str, path: str | None, fix: str, *, needed: bool) -> Check:
    return Check(group, name, "ok" if path else "missing", path or "not found", None if path else fix, needed)


def _rights() -> Iterator[Check]:
    """Check what this user may do."""
    may = rights()
    if may.root_lacks:
        found, _, fix = may.root_lacks.partition(": ")
        yield Check("rights", "network namespaces", "missing", found, fix, needed=True)
    elif may.root_namespaces:
        yield Check("rights", "network namespaces", "ok", "as root", needed=True)
    elif may.user_namespaces:
        found = "in a user namespace: no real-time priority, no core of its own for the device, no BPF"
        yield Check("rights", "network namespaces", "limited", found, "run as root", needed=True)
    else:
        yield Check("rights", "network namespaces", "missing", may.refusal, "run as root", needed=True)
    for name, there, fix in (
        ("real-time priority (SCHED_FIFO)", may.fifo, _what_gives_fifo()),
        ("AF_XDP sockets", may.af_xdp, "run as root, on a kernel with CONFIG_XDP_SOCKETS"),
        ("BPF", may.bpf, "run as root, on a kernel with CONFIG_BPF_SYSCALL"),
    ):
        yield Check("rights", name, "ok" if there else "limited", "yes" if there else "no", None if there else fix)
    locked = may.lockable_bytes
    found = "as much as is wanted" if locked is None else f"{locked // 1024} KiB"
    little = locked is not None and locked < 64 << 20
    yield Check(
        "rights", "locked memory", "limited" if little else "ok", found, "ulimit -l unlimited" if little else None
    )


def _what_gives_fifo() -> str:
    if os.geteuid() == 0:
        return "its control group or container gives this shell none: cpu.rt_runtime_us, CAP_SYS_NICE"
    return "run as root, or allow it: ulimit -r 50"


def _beds() -> Iterator[Check]:
    """Build a bed, and check on it what needs one."""
    began = time.monotonic()
    try:
        with build_bed(BedSpec(devices=tuple(mode.name for mode in needed_modes())), f"doctor-{os.getpid()}") as bed:
            built_ms = (time.monotonic() - began) * 1e3
            yield Check("bed", "a bed with a bridge", "ok", f"built in {built_ms:.0f} ms", needed=True)
            yield _netem(bed)
            yield _steering(bed)
            yield _floor(bed)
    except SojournError as error:
        yield Check("bed", "a bed with a bridge", "missing", str(error), _fix_of_a_bed(), needed=True)
    for mode in modes().values():
        if mode.fix and not mode.is_needed:
            yield _device(mode)
    yield _own_box()
    for sentence in left_out():
        yield Check("bed", "devices of other packages", "limited", sentence, "update or remove that package")


def _own_box() -> Check:
    """Check what a box that the user's program builds needs, all of it at once."""
    command = ["/bin/sh", "-c", f'{LACKS}printf %s "$lacks"']
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    name, lacks = "a box of your own", done.stdout or done.stderr
    if lacks:
        return Check("bed", name, "limited", lacks, "as it says; nothing else needs it")
    return Check("bed", name, "ok", "its programs and mount points are here")


def needed_modes() -> list[Mode]:
    """Return the devices that measuring requires, the direct link first."""
    return [mode for mode in modes().values() if mode.is_needed]


def _device(mode: Mode) -> Check:
    """Build a device that not every machine supports."""
    name = f"{mode.name}*1" if mode.counts else mode.name
    try:
        with build_bed(BedSpec(devices=(name,)), f"doctor-{os.getpid()}"):
            return Check("bed", f"device {mode.name}", "ok", "built")
    except SojournError as error:
        return Check("bed", f"device {mode.name}", "limited", str(error), mode.fix)


def _fix_of_a_bed() -> str:
    """Return how to fix a bed that could not be built, found by building each part of it."""
    for mode in needed_modes():
        try:
            with build_bed(BedSpec(devices=(mode.name,)), f"doctor-{os.getpid()}"):
                continue
        except SojournError:
            return mode.fix
    return "sojourn bed clean, then again"


def _netem(bed: Bed) -> Check:
    with suppress(SojournError):
        bed.backend.run("d", ["tc", "qdisc", "replace", "dev", "d-wire-1l", "root", "netem", "delay", "1ms"])
        bed.backend.run("d", ["tc", "qdisc", "del", "dev", "d-wire-1l", "root"])
        return Check("bed", "netem", "ok", "yes")
    return Check("bed", "netem", "limited", "no; nothing needs it yet", "modprobe sch_netem")


def _steering(bed: Bed) -> Check:
    name, core = "a core of its own for the device", max(os.sched_getaffinity(0))
    if len(os.sched_getaffinity(0)) < 2:
        return Check("bed", name, "limited", "there is only one core", "a machine with two cores")
    path = "/sys/class/net/d-wire-1l/queues/rx-0/rps_cpus"
    with suppress(SojournError):
        bed.backend.put("d", path, cpu_mask(core))
        bed.backend.put("d", path, "0")
        return Check("bed", name, "ok", "by receive packet steering")
    return Check("bed", name, "limited", "packet steering is refused", "run as root, on a kernel with CONFIG_RPS")


def _floor(bed: Bed) -> Check:
    """Measure the tester's minimum RTT: ICMP over the bed's direct link."""
    name = "floor of an empty link"
    rtt = _direct_rtt(bed)
    if rtt is None:
        return Check("bed", name, "missing", "the instrument did not answer", "make setup", needed=True)
    found = f"round trip {rtt['min_ns'] / 1e3:.1f} µs at least, {rtt['p50_ns'] / 1e3:.1f} µs median"
    return Check("bed", name, "ok", found, needed=True)


def _direct_rtt(bed: Bed) -> dict[str, float] | None:
    binary = machine.instrument_binary()
    if binary is None:
        return None
    link = bed.topology.link("direct")
    request = {
        "block": 0, "device": "direct", "round": 0, "visit": 0, "cell": 0, "kind": "icmp", "schedule": "regular",
        "to": {"via": "icmp", "address": link.b_ip4, "dev": link.a_dev},
        "request_payload_bytes": 56, "response_payload_bytes": 56, "interval_ns": 1_000_000, "count": _FLOOR_PROBES,
        "warmup": 44, "timeout_ns": 200_000_000, "seed": 1,
    }  # fmt: skip
    with scratch("doctor") as folder, suppress(SojournError, ValueError):
        argv = [binary, "probe", "blocks", "--record", str(folder)]
        answers = bed.backend.run("a", argv, json.dumps(request) + "\n").splitlines()
        return next((answer["rtt"] for answer in map(json.loads, answers) if answer.get("event") == "block"), None)
    return None


def _kernel() -> Iterator[Check]:
    """Check settings of the machine itself; inside a bed, Sojourn sets them."""
    name, mask = "ICMP echo replies unlimited", machine.sysctl("net.ipv4.icmp_ratemask")
    if mask is not None and int(mask) & _ECHO_REPLY_BIT:
        found = f"limited to one per {machine.sysctl('net.ipv4.icmp_ratelimit')} ms and peer"
        yield Check("kernel", name, "limited", found, "on the peer: sysctl -w net.ipv4.icmp_ratemask=6168")
    else:
        yield Check("kernel", name, "ok", "by this machine as a peer")
    ignored = machine.sysctl("net.ipv4.icmp_echo_ignore_all") == "1"
    fix = "on the peer: sysctl -w net.ipv4.icmp_echo_ignore_all=0" if ignored else None
    yield Check("kernel", "ICMP echo answered", "limited" if ignored else "ok", "no" if ignored else "yes", fix)
    clocks = machine.stable()["clocks"]
    good = clocks["clocksource"] in ("tsc", "arch_sys_counter", "timebase", "riscv_clocksource")
    slow = None if good else "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource"
    yield Check("kernel", "clock source", "ok" if good else "limited", str(clocks["clocksource"]), slow)
    offset = clocks["tai_minus_utc_s"]
    found = (
        f"ahead of UTC by {offset} s"
        if offset
        else "the kernel does not know the offset of TAI: its CLOCK_TAI equals UTC"
    )
    yield Check("kernel", "TAI clock", "ok", found)


def _processor() -> Iterator[Check]:
    cpu = machine.stable()["cpu"]
    cores = len(cpu["usable"])
    few = cores < 2
    yield Check(
        "processor", "cores", "limited" if few else "ok", str(cores), "a machine with two cores" if few else None
    )
    governors = {governor for governor in cpu["governor"].values() if governor}
    if not governors:
        yield Check("processor", "frequency", "ok", "not under this kernel's control")
    elif (found := machine.judge_governors(governors)) is None:
        yield Check("processor", "frequency", "ok", "governor performance")
    else:
        yield Check("processor", "frequency", "limited", found, machine.STEADY_GOVERNOR)
    if cpu["hypervisor"]:
        found = "a virtual machine: its host can take the cores away at any time (steal)"
        yield Check("processor", "bare metal", "limited", found, "a machine of its own")


def _instrument(said: dict[str, Any] | None) -> Iterator[Check]:
    binary = machine.instrument_binary()
    yield _there("instrument", "sojourn-instrument", binary, "make setup", needed=True)
    checks = (said or {}).get("checks")
    for entry in checks if isinstance(checks, list) else []:
        if not isinstance(entry, dict):
            continue
        status: Status = entry["status"] if entry.get("status") in ("ok", "limited", "missing") else "limited"
        found, fix = str(entry.get("found") or entry.get("detail") or ""), entry.get("fix")
        fix = None if fix is None else str(fix)
        yield Check("instrument", str(entry.get("name")), status, found, fix, bool(entry.get("needed")))


def _instrument_doctor() -> dict[str, Any] | None:
    """Return the instrument's own report; None if it is missing or its report is unreadable."""
    binary = machine.instrument_binary()
    if binary is None:
        return None
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        command = [binary, "doctor", "--json"]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_ANSWER_SECONDS * 2, check=False
        )
        said = json_value(done.stdout)
        return said if isinstance(said, dict) else {"checks": said}
    return None
