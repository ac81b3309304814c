"""Cycles, instructions and cache misses of all processors, by hardware counters: perf_event_open(2).

Counts the whole machine, kernel included, from construction to `close`. It needs CAP_PERFMON, or
kernel.perf_event_paranoid below 1; most virtual machines have no such counters.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

EVENTS = {"cycles": (0, 0), "instructions": (0, 1), "cache_misses": (0, 3)}
"""Type and number of each event (linux/perf_event.h: PERF_TYPE_HARDWARE)."""

NUMBERS = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
"""The number of the system call, by architecture."""

ATTRIBUTE = struct.Struct("=IIQQQQQ80x")
"""struct perf_event_attr: type, size, config, period, sample_type, read_format, flags; the rest is zero."""

TIMES = 0b11
"""PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING: if there are more events than counters, counts are scaled by them."""

VALUE = struct.Struct("=QQQ")
CLOSE_ON_EXEC = 8
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")


class Counters:
    """Open counters of each event, one for each processor; `missing` says why there are none."""

    def __init__(self, cpus: list[int], events: Mapping[str, tuple[int, int]] | None = None) -> None:
        self.missing: str | None = None
        self._open: dict[str, list[int]] = {}
        try:
            for name, (kind, number) in (EVENTS if events is None else events).items():
                several = self._open.setdefault(name, [])
                for cpu in cpus:
                    several.append(_open(kind, number, cpu))
        except OSError as error:
            self.close()
            self.missing = _why(error)

    def read(self) -> dict[str, int | str]:
        """Return the count of each event so far, or only `missing`."""
        if self.missing is not None:
            return {"missing": self.missing}
        return {name: sum(map(_count, several)) for name, several in self._open.items()}

    def close(self) -> None:
        """Stop counting."""
        for several in self._open.values():
            for one in several:
                with suppress(OSError):
                    os.close(one)
        self._open.clear()
        self.missing = "counting has ended"


def _open(kind: int, number: int, cpu: int) -> int:
    if platform.machine() not in NUMBERS:
        raise OSError(errno.ENOSYS, f"perf_event_open is not known for {platform.machine()}")
    attribute = ATTRIBUTE.pack(kind, ATTRIBUTE.size, number, 0, 0, TIMES, 0)
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    # All processes (-1) on one processor, in no group (-1).
    words = (NUMBERS[platform.machine()], attribute, -1, cpu, -1, CLOSE_ON_EXEC)
    found = call(*(one if isinstance(one, bytes) else ctypes.c_long(one) for one in words))
    if found < 0:
        number_of_error = ctypes.get_errno()
        raise OSError(number_of_error, os.strerror(number_of_error))
    return int(found)


def _count(file: int) -> int:
    value, enabled, running = VALUE.unpack(os.read(file, VALUE.size))
    return int(value) if running in (0, enabled) else round(value * enabled / running)


def _why(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        level = PARANOID.read_text(encoding="ascii").strip() if PARANOID.is_file() else "?"
        return f"not permitted to this user (kernel.perf_event_paranoid = {level})"
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        return "this machine's processors offer no such counters"
    return f"not available: {error.strerror}"
