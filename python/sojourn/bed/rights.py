"""The rights of this user on this machine, found by trying each in a process that ends at once."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import resource
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sojourn.bed.processes import find_tool

_AF_XDP = 44
_BPF_CALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
_TRY_SECONDS = 5.0

# Sysctls that forbid user namespaces to unprivileged users: key, value that forbids, value that allows.
_NAMESPACE_SYSCTLS = (
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("user.max_user_namespaces", "0", "10000"),
)


# As for beds: in a chroot, whose root is no mount point, the propagation of its mounts cannot be changed.
_NAMESPACES = ("unshare", "--mount", "--propagation", "unchanged", "--net")


_SYS_ADMIN = 21
_NEEDED_BY_ROOT = {"NET_ADMIN": 12, "NET_RAW": 13}
"""The capabilities that a bed needs beside the one that makes its namespaces, by number: links, packet sockets."""


@dataclass(frozen=True)
class Rights:
    """The rights found. `lockable_bytes` is None without a limit; `refusal` says why there are no namespaces.

    `root_lacks` is a sentence where root may make namespaces and no links in them.
    """

    root_namespaces: bool
    root_lacks: str
    user_namespaces: bool
    refusal: str
    fifo: bool
    af_xdp: bool
    bpf: bool
    lockable_bytes: int | None


def rights() -> Rights:
    """Try all rights."""
    is_root = os.geteuid() == 0
    root_said = _try([*_NAMESPACES, "true"]) if is_root else "not root"
    user_said = _try(["unshare", "--user", "--map-root-user", "--mount", "--net", "true"])
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    unlimited = limit == resource.RLIM_INFINITY or os.geteuid() == 0
    return Rights(
        root_namespaces=not root_said,
        root_lacks=what_root_lacks() if is_root else "",
        user_namespaces=not user_said,
        refusal=why_no_namespaces(root_said if is_root else user_said) if root_said and user_said else "",
        fifo=not _try(["chrt", "--fifo", "1", "true"]),
        af_xdp=_may_open_af_xdp(),
        bpf=_may_make_a_bpf_map(),
        lockable_bytes=None if unlimited else limit,
    )


def what_root_lacks() -> str:
    """Return the capabilities that root lacks for a bed in namespaces that it may make, with a fix; else nothing.

    A container's root has few. Without the one for namespaces the bed is built in a user namespace, which has all.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    held = int(found[1], 16) if found else -1
    lacking = [name for name, number in _NEEDED_BY_ROOT.items() if not held >> number & 1]
    if not lacking or not held >> _SYS_ADMIN & 1:
        return ""
    names, options = (" and ".join(f"CAP_{one}" for one in lacking), " ".join(f"--cap-add {one}" for one in lacking))
    return f"root lacks {names} here, as in a container: start the container with {options}, or measure outside of it"


def what_is_missing_without_root() -> list[str]:
    """Return what a bed in a user namespace lacks, a sentence each; tried, because limits can be raised for a user."""
    missing = []
    if _try(["chrt", "--fifo", "1", "true"]):
        missing.append("No real-time priority (SCHED_FIFO) without root: a busy machine can delay departures.")
    if not _may_make_a_bpf_map():
        missing.append("No BPF without root: no XDP programs, so AF_XDP cannot receive.")
    return missing


def why_no_namespaces(refusal: str) -> str:
    """Return the sentence for a machine that allows no network namespace, with a fix."""
    for key, bad, good in _NAMESPACE_SYSCTLS:
        with suppress(OSError):
            if Path("/proc/sys", key.replace(".", "/")).read_text().strip() == bad:
                return f"no network namespace here ({refusal}): run as root, or let root do 'sysctl -w {key}={good}'"
    return f"no network namespace here ({refusal}): run as root"


def _try(command: list[str]) -> str:
    """Run a command; return its error output, empty if it succeeded."""
    if find_tool(command[0]) is None:
        return f"{command[0]} not found"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TRY_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} hung"
    return "" if done.returncode == 0 else done.stderr.strip() or f"{command[0]} failed"


def _may_open_af_xdp() -> bool:
    try:
        socket.socket(_AF_XDP, socket.SOCK_RAW, 0).close()
    except OSError:
        return False
    return True


def _may_make_a_bpf_map() -> bool:
    """Try BPF_MAP_CREATE of an array with one element: type, key size, value size, entries."""
    number = _BPF_CALL.get(platform.machine())
    if number is None:
        return False
    attributes = (ctypes.c_uint32 * 32)(2, 4, 4, 1)
    descriptor = ctypes.CDLL(None, use_errno=True).syscall(
        number, 0, ctypes.byref(attributes), ctypes.sizeof(attributes)
    )
    if descriptor < 0:
        return False
    os.close(descriptor)
    return True
