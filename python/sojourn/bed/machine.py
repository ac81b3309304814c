"""Facts of this machine, read from the kernel and from tools; a fact that is missing is null.

Reads only. Nothing here identifies the machine or its user.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.binary import find_instrument, search_path
from sojourn.errors import MachineError
from sojourn.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection

_SYSCTLS = (
    "kernel/perf_event_paranoid",
    "kernel/sched_autogroup_enabled",
    "kernel/sched_rt_period_us",
    "kernel/sched_rt_runtime_us",
    "kernel/timer_migration",
    "kernel/unprivileged_bpf_disabled",
    "net/core/bpf_jit_enable",
    "net/core/busy_poll",
    "net/core/busy_read",
    "net/core/default_qdisc",
    "net/core/dev_weight",
    "net/core/netdev_budget",
    "net/core/netdev_budget_usecs",
    "net/core/netdev_max_backlog",
    "net/core/netdev_tstamp_prequeue",
    "net/core/rmem_default",
    "net/core/rmem_max",
    "net/core/rps_sock_flow_entries",
    "net/core/wmem_default",
    "net/core/wmem_max",
    "vm/swappiness",
)

# The boot parameters that affect latency; others may reveal more of a machine than its owner would like.
_PARAMETERS = (
    *("amd_pstate", "clocksource", "cpufreq", "cpuidle", "idle", "intel_idle", "intel_pstate", "irqaffinity"),
    *("isolcpus", "mitigations", "nmi_watchdog", "nohz", "nosmt", "nowatchdog", "preempt", "processor."),
    *("rcu_nocb", "skew_tick", "threadirqs", "tsc", "transparent_hugepage"),
)

_VERSION_COMMANDS = {
    "bridge": ["bridge", "-V"],
    "ethtool": ["ethtool", "--version"],
    "ip": ["ip", "-V"],
    "ping": ["ping", "-V"],
    "tc": ["tc", "-V"],
    "tcpdump": ["tcpdump", "--version"],
    "unshare": ["unshare", "--version"],
}
_PACKAGES = ("altair", "numpy", "polars", "pyarrow", "scipy")
_CPU = Path("/sys/devices/system/cpu")
DMA_LATENCY = Path("/dev/cpu_dma_latency")
"""Holds the maximum allowed wake-up latency while it is open; with 0, idle processors poll."""
_COMMAND_SECONDS = 5.0
_NUMBER = re.compile(r"[0-9]{1,20}", re.ASCII)
"""A number of 64 bits. The texts of /proc are as odd as who shows them: a container's, or another kernel's."""


def stable() -> dict[str, Any]:
    """Return kernel, CPU, clocks and settings: facts that stay until somebody changes them."""
    return {
        "kernel": {
            "release": platform.release(),
            "version": platform.version(),
            "architecture": platform.machine(),
            "parameters": [word for word in _words("/proc/cmdline") if word.startswith(_PARAMETERS)],
            "preemption": _preemption(),
            "tick_hz": _tick_hz(),
        },
        "distribution": _distribution(),
        "cpu": _cpu(),
        "memory_total_bytes": _memory().get("MemTotal"),
        "clocks": {
            "clocksource": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            "clocksources": _words("/sys/devices/system/clocksource/clocksource0/available_clocksource"),
            "tai_minus_utc_s": _tai_offset_s(),
        },
        "sysctls": {key.replace("/", "."): _read(f"/proc/sys/{key}") for key in _SYSCTLS},
        "transparent_hugepage": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
    }


def versions() -> dict[str, str | None]:
    """Return the versions of the tools and libraries used."""
    with ThreadPoolExecutor(4) as pool:
        tools = dict(zip(_VERSION_COMMANDS, pool.map(_first_line, _VERSION_COMMANDS.values()), strict=True))
    binary = instrument_binary()
    libraries = {name: _package_version(name) for name in _PACKAGES}
    instrument = _first_line([binary, "--version"]) if binary else None
    return {"python": platform.python_version(), "sojourn-instrument": instrument, **tools, **libraries}


def sojourn() -> dict[str, Any]:
    """Return the version of Sojourn and, if run from its repository, the commit and whether files differ from it."""
    here = Path(__file__).resolve()
    commit = dirty = None
    if _git(here, ["ls-files", "--error-unmatch", here.name]) is not None:
        commit = _git(here, ["rev-parse", "HEAD"])
        dirty = bool(_git(here, ["status", "--porcelain", "--untracked-files=no"]))
    return {"version": __version__, "commit": commit, "dirty": dirty}


def moment() -> dict[str, Any]:
    """Return load, interrupts, context switches, frequencies and the like now."""
    return {
        "taken_tai_ns": time.clock_gettime_ns(time.CLOCK_TAI),
        "boot_id": _read("/proc/sys/kernel/random/boot_id"),
        "uptime_s": _uptime_s(),
        "load_average": list(os.getloadavg()),
        "cpu_ticks": cpu_ticks(),
        "interrupts": _interrupts(),
        "softirqs": _sums("/proc/softirqs"),
        "context_switches": int(_field_of_stat("ctxt")),
        "softnet": _softnet(),
        "memory_available_bytes": _memory().get("MemAvailable"),
        "frequency_khz": {cpu.name: _number(cpu / "cpufreq/scaling_cur_freq") for cpu in _cpus()},
    }


def governors() -> dict[str, str | None]:
    """Return the frequency governor of each processor; None without one."""
    return {cpu.name: _read(cpu / "cpufreq/scaling_governor") for cpu in _cpus()}


def judge_governors(found: Collection[str]) -> str | None:
    """Return what is wrong with these governors; None if nothing is."""
    changing = sorted(one for one in set(found) if one and one != "performance")
    return f"governor {', '.join(changing)}: it changes while we measure" if changing else None


STEADY_GOVERNOR = "cpupower frequency-set -g performance"
"""The command that makes the frequency of processors constant."""


def idle_driver() -> str | None:
    """Return the driver of idle states; None if the processors only halt."""
    found = _read(_CPU / "cpuidle/current_driver")
    return None if found == "none" else found


def sysctl(key: str) -> str | None:
    """Return a sysctl of this machine, by its dotted name."""
    return _read(f"/proc/sys/{key.replace('.', '/')}")


def instrument_binary() -> str | None:
    """Return the path of `sojourn-instrument`, or None."""
    with suppress(MachineError):
        return find_instrument()
    return None


def _cpu() -> dict[str, Any]:
    info = _read("/proc/cpuinfo") or ""
    flags = (_field(info, "flags") or _field(info, "Features") or "").split()
    return {
        "model": _field(info, "model name") or _field(info, "CPU implementer") or platform.machine(),
        "microcode": _field(info, "microcode"),
        "online": os.cpu_count(),
        "usable": sorted(os.sched_getaffinity(0)),
        "isolated": _read(_CPU / "isolated"),
        "nohz_full": _read(_CPU / "nohz_full"),
        "smt": _read(_CPU / "smt/control"),
        "hypervisor": "hypervisor" in flags,
        "constant_tsc": {"constant_tsc", "nonstop_tsc"} <= set(flags),
        "governor": governors(),
        "frequency_driver": _read(_CPU / "cpu0/cpufreq/scaling_driver"),
        "frequency_max_khz": _number(_CPU / "cpu0/cpufreq/scaling_max_freq"),
        "frequency_min_khz": _number(_CPU / "cpu0/cpufreq/scaling_min_freq"),
        "no_turbo": _read(_CPU / "intel_pstate/no_turbo"),
        "idle_driver": idle_driver(),
        "mitigations": {name: text for name, text in _vulnerabilities().items() if text != "Not affected"},
    }


def _vulnerabilities() -> dict[str, str | None]:
    return {path.name: _read(path) for path in sorted((_CPU / "vulnerabilities").glob("*"))}


def _cpus() -> list[Path]:
    return sorted(path for path in _CPU.glob("cpu[0-9]*"))


def _preemption() -> str | None:
    found = re.search(r"PREEMPT(_RT|_DYNAMIC|_LAZY)?", platform.version())
    return found[0] if found else None


def _tick_hz() -> int:
    """Return the tick rate: the coarse clock advances once a tick."""
    return round(1 / time.clock_getres(getattr(time, "CLOCK_MONOTONIC_COARSE", 6)))


def _tai_offset_s() -> int:
    """Return TAI − UTC in the kernel; zero means that nothing has set it."""
    return round((time.clock_gettime_ns(time.CLOCK_TAI) - time.clock_gettime_ns(time.CLOCK_REALTIME)) / 1e9)


def _distribution() -> str | None:
    with suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    return None


def _uptime_s() -> float | None:
    found = re.match(r"[0-9]+(\.[0-9]+)?", _read("/proc/uptime") or "")
    return float(found[0]) if found else None


def _memory() -> dict[str, int]:
    found = re.findall(r"^([^:\n]+):\s+([0-9]{1,19}) kB$", _read("/proc/meminfo") or "", re.MULTILINE)
    return {name: int(kib) * 1024 for name, kib in found}


def cpu_ticks() -> dict[str, int]:
    """Return the first line of /proc/stat, in clock ticks; steal is time that the hypervisor gave to others."""
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    return dict(zip(names, _numbers((_read("/proc/stat") or "").partition("\n")[0].partition(" ")[2]), strict=False))


def online() -> list[int]:
    """Return the online processors; the kernel writes them as ranges: 0-3,5."""
    text = _read(_CPU / "online") or ""
    if not re.fullmatch(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*", text, re.ASCII):
        return [0]
    ranges = (word.partition("-") for word in text.split(","))
    return sorted({cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)})


def _field_of_stat(name: str) -> str:
    found = re.search(rf"^{name} ([0-9]{{1,20}})", _read("/proc/stat") or "", re.MULTILINE)
    return found[1] if found else "0"


def _interrupts() -> dict[str, int]:
    """Return totals by source; hardware interrupts have the name of their device, not their number."""
    sums: dict[str, int] = {}
    for line in (_read("/proc/interrupts") or "").splitlines()[1:]:
        source, _, rest = line.partition(":")
        counts = _numbers(rest)
        words = [word for word in rest.split() if not _NUMBER.fullmatch(word)]
        name = words[-1] if source.strip().isdigit() and words else source.strip()
        sums[name] = sums.get(name, 0) + sum(counts)
    return {name: count for name, count in sums.items() if count}


def _sums(path: str) -> dict[str, int]:
    lines = (_read(path) or "").splitlines()[1:]
    return {name.strip(): sum(_numbers(rest)) for name, _, rest in (line.partition(":") for line in lines)}


def softnet_dropped() -> int:
    """Return the packets that this machine's cores dropped since boot because their backlog was full."""
    return sum(core["dropped"] for core in _softnet())


def _softnet() -> list[dict[str, int]]:
    """Return for each core: packets processed, dropped because of a full backlog, and exhausted budgets."""
    rows = [line.split() for line in (_read("/proc/net/softnet_stat") or "").splitlines()]
    names = ("processed", "dropped", "time_squeeze")
    return [
        dict(zip(names, (int(word, 16) for word in row[: len(names)]), strict=True))
        for row in rows
        if len(row) >= len(names) and all(re.fullmatch(r"[0-9a-fA-F]{1,16}", word) for word in row[: len(names)])
    ]


def _first_line(command: list[str]) -> str | None:
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMMAND_SECONDS,
            check=False,
            env={**os.environ, "PATH": search_path()},
        )
        lines = (done.stdout or done.stderr).strip().splitlines()
        return lines[0] if lines and done.returncode == 0 else None
    return None


def _git(here: Path, arguments: list[str]) -> str | None:
    with suppress(OSError, subprocess.TimeoutExpired):
        command = ["git", "-C", str(here.parent), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_COMMAND_SECONDS, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else None
    return None


def _package_version(name: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return None


def _field(text: str, name: str) -> str | None:
    found = re.search(rf"^{re.escape(name)}\s*:\s*(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else None


def _words(path: str) -> list[str]:
    return (_read(path) or "").split()


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text and _NUMBER.fullmatch(text) else None


def _numbers(text: str) -> list[int]:
    """Return the words of a text that are numbers of the kernel."""
    return [int(word) for word in text.split() if _NUMBER.fullmatch(word)]


def _read(path: str | Path) -> str | None:
    with suppress(OSError):
        return Path(path).read_text(errors="replace").strip()
    return None
