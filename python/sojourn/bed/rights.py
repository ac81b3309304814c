"""What this user may do on this machine, found by trying each thing in a process that ends at once."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import socket
import subprocess
from dataclasses import dataclass

from sojourn.bed.netns import why_no_namespaces
from sojourn.bed.processes import find_tool

_AF_XDP = 44
_BPF_CALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
_TRY_SECONDS = 5.0


@dataclass(frozen=True)
class Rights:
    """What was allowed. `lockable_bytes` is None when there is no limit; `refusal` says why there are no namespaces."""

    root_namespaces: bool
    user_namespaces: bool
    refusal: str
    fifo: bool
    af_xdp: bool
    bpf: bool
    lockable_bytes: int | None


def rights() -> Rights:
    """Tries everything."""
    root_said = _try(["unshare", "--mount", "--net", "true"]) if os.geteuid() == 0 else "not root"
    user_said = _try(["unshare", "--user", "--map-root-user", "--mount", "--net", "true"])
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    unlimited = limit == resource.RLIM_INFINITY or os.geteuid() == 0
    return Rights(
        root_namespaces=not root_said,
        user_namespaces=not user_said,
        refusal=why_no_namespaces(user_said) if root_said and user_said else "",
        fifo=not _try(["chrt", "--fifo", "1", "true"]),
        af_xdp=_may_open_af_xdp(),
        bpf=_may_make_a_bpf_map(),
        lockable_bytes=None if unlimited else limit,
    )


def _try(command: list[str]) -> str:
    """What a command had to say against it; empty when it worked."""
    if find_tool(command[0]) is None:
        return f"{command[0]} not found"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TRY_SECONDS, check=False)
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
    """BPF_MAP_CREATE of an array with one element: type, key size, value size, entries."""
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
